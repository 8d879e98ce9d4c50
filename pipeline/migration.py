"""Manifests of older format versions, brought up to the present one as they are read.

Reading a store never changes it: the next commit writes the present version. What a version said differently:

    1  no digest over the manifest, so no seal; no identity; array files without their size
    2  the present one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.errors import StoreFormatError

VERSION = 2
"""Format version that is written."""
DIGEST = "digest"
"""Key of the digest over a manifest, from version 2 on."""

Table = dict[str, Any]


def migrated(table: Mapping[str, Any], where: str) -> Table:
    """The manifest ``table``, of any version up to ``VERSION``, as one of ``VERSION``.

    Raises StoreFormatError for a version that is newer or none, and for keys that its version did not have.
    """
    version = table.get("version")
    if type(version) is not int or version < 1:
        raise StoreFormatError(
            f"{where}: the format version must be a whole number from 1 on, got {str(version)[:80]!r}; changed by hand?"
        )
    if version > VERSION:
        raise StoreFormatError(
            f"{where}: format version {str(version)[:80]}, this program reads versions up to {VERSION};"
            " a newer program made the store"
        )
    table = dict(table)
    while table["version"] < VERSION:
        table = STEPS[table["version"]](table, where)
    return table


def _from_1(table: Table, where: str) -> Table:
    if later := {DIGEST, "identity"} & table.keys():
        raise StoreFormatError(
            f"{where}: format version 1 has no {sorted(later)[0]!r}: its version was changed by hand, or the file is"
            " made of two"
        )
    return {**table, "version": 2}


STEPS: Mapping[int, Callable[[Table, str], Table]] = {1: _from_1}
"""What brings each older version up by one."""
