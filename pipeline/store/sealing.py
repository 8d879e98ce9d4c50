"""Sealing a store that is not sealed, changing its key, and checking a store from end to end.

A seal shows every edit of a store by somebody without its key. It cannot show that a store is the newest: an older
state, sealed under the same key, is intact, too. Note down the ``anchor`` of a check elsewhere: a later check against
it finds a store that is older, or another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import StoreError, StoreSealError, check_type
from pipeline.store.keys import Key, NoKey, checked_key
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store

_ANCHOR = re.compile(r"([0-9a-f]{32}):([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """A store in which every row is intact; ``anchor``, its identity and revision, is what to note down."""

    path: Path
    identity: str
    revision: int
    speakers: int
    sealed: bool

    @property
    def anchor(self) -> str:
        """Return what a later ``check_store`` compares with."""
        return f"{self.identity}:{self.revision}"


def seal_store(path: Path | str, key: bytes, *, old_key: bytes | None = None) -> StoreCheck:
    """Check the store at ``path`` and seal it under ``key``; one that is sealed already needs its ``old_key``.

    Only seal what you trust: earlier changes to an unsealed store are sealed too. Raises StoreSealError,
    StoreFormatError for a damaged store, and as ``Store.writing``.

    Parameters
    ----------
    path : path
        The store.
    key : bytes
        At least 16 bytes; without it nobody can change the store unseen.
    old_key : bytes, optional
        Key of the seal that is there.

    Returns
    -------
    StoreCheck

    Examples
    --------
    >>> import pipeline, shutil
    >>> copy = shutil.copy("speakers.store", "sealed.store")
    >>> pipeline.seal_store(copy, b"sixteen bytes or more").sealed
    True
    """
    key = checked_key(key, "key", StoreSealError)
    store = Store(path, key=NoKey.UNSEALED if old_key is None else old_key)
    try:
        store.check()
    except StoreSealError:
        if old_key is not None:
            raise
        raise StoreSealError(f"{path}: the store is sealed already; to change its key, give the old one, too") from None
    with store.writing() as transaction:
        transaction.reseal(key)
    return _check_of(store.path, Store(path, key=key).load())


def check_store(path: Path | str, *, key: Key = None, anchor: str | None = None) -> StoreCheck:
    """Check every row of the store at ``path``, and that it is the store of ``anchor``, and not older.

    Raises StoreSealError, also for an anchor that does not hold, StoreFormatError and StoreMissingError.

    Parameters
    ----------
    path : path
        The store.
    key : bytes, optional
        Key of its seal.
    anchor : str, optional
        ``StoreCheck.anchor`` of an earlier check.

    Returns
    -------
    StoreCheck

    Examples
    --------
    >>> import pipeline
    >>> check = pipeline.check_store("speakers.store")
    >>> check.speakers, check.sealed
    (4, False)
    """
    check_type("anchor", anchor, str | None, "the anchor of an earlier check")
    store = Store(path, key=key)
    check = _check_of(store.path, store.check())
    if anchor is None:
        return check
    noted = _ANCHOR.fullmatch(anchor)
    if noted is None:
        raise StoreError(f"anchor {anchor[:80]!r}: must be IDENTITY:REVISION, as an earlier check printed it")
    if noted[1] != check.identity:
        raise StoreSealError(f"{path}: the store is {check.identity}, not the anchor's {noted[1]}")
    if int(noted[2]) > check.revision:
        raise StoreSealError(
            f"{path}: the store is at revision {check.revision}, and was at {noted[2]} when the anchor was noted down:"
            " an older state was put back"
        )
    return check


def _check_of(path: Path, model: SpeakerModel) -> StoreCheck:
    return StoreCheck(path, model.identity, model.revision, len(model.speakers), model.sealed)
