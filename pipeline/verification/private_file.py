"""Private SQLite files, for data that the audit log must not hold; opened for one transaction at a time."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from pipeline.errors import AuditError

_WAIT_SECONDS = 30.0


@contextmanager
def transaction(path: Path, schema: Sequence[str], failed: str, *, create: bool = True) -> Iterator[sqlite3.Connection]:
    """Open the file at ``path``, with the tables of ``schema``, for one transaction; the end of the block commits it.

    With ``create``, a missing file is made, readable by this user only, and other writers wait; without it, a missing
    file is an empty database. Erased data is overwritten. Raises AuditError, which says what ``failed``.
    """
    try:
        if create:
            path.touch(mode=0o600)
        is_there = path.exists()
        if is_there and not path.is_file():  # never opened and closed here: other threads would lose their locks
            raise OSError(errno.EINVAL, "a regular file was expected")
        with closing(sqlite3.connect(path if is_there else ":memory:", timeout=_WAIT_SECONDS)) as database, database:
            for statement in ("PRAGMA secure_delete = ON", *schema):
                database.execute(statement)
            if create:
                database.execute("BEGIN IMMEDIATE")
            yield database
    except (OSError, ValueError, TypeError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise AuditError(f"{path}: {failed}: {reason}") from error
