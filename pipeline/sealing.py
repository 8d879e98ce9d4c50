"""Sealing a store that is not sealed, changing its key, and checking a store from end to end.

A seal shows every edit of a store by whoever has not got its key. It cannot show that the store as it stands is not the
newest: an older state, sealed under the same key, is sound in itself. For that, note down the ``anchor`` of a check in
another place; a later check against it finds a store that is older, or another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import StoreError, StoreSealError
from pipeline.keys import read_key
from pipeline.manifest import KEY_VARIABLE, Key, NoKey
from pipeline.store import SpeakerStore
from pipeline.store_writer import store_writer

_ANCHOR = re.compile(r"([0-9a-f]{32}):([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """A store all of whose files are sound; ``anchor`` is what to note down: its identity and revision."""

    path: Path
    identity: str
    revision: int
    speakers: int
    files: int
    sealed: bool

    @property
    def anchor(self) -> str:
        """For a later ``check_store``."""
        return f"{self.identity}:{self.revision}"


def read_store_key(path: Path | None = None) -> bytes | None:
    """The key in the file ``path``, else in VOICECLAIM_STORE_KEY; None without either. Raises StoreSealError."""
    return read_key(path, variable=KEY_VARIABLE, error=StoreSealError)


def seal_store(path: Path | str, key: bytes, *, old_key: bytes | None = None) -> StoreCheck:
    """Check the store at ``path`` and seal it under ``key``; one that is sealed already needs its ``old_key``.

    Only seal what you trust: whatever has been done to a store without a seal is sealed along. Raises StoreSealError,
    StoreFormatError for a damaged store, and as ``store_writer``.
    """
    try:
        SpeakerStore.open(path, key=old_key or NoKey.UNSEALED)
    except StoreSealError:
        if old_key is not None:
            raise
        raise StoreSealError(f"{path}: the store is sealed already; to change its key, give the old one, too") from None
    with store_writer(path, key=old_key or NoKey.UNSEALED) as writer:
        return _about(writer.seal(key))


def check_store(path: Path | str, *, key: Key = None, anchor: str | None = None) -> StoreCheck:
    """Check every file of the store at ``path``, and that it is the one of ``anchor`` and no older.

    Raises StoreSealError, also for an anchor that is not met, StoreFormatError and StoreMissingError.
    """
    store = SpeakerStore.open(path, key=key)
    store.check_files()
    found = _about(store)
    if anchor is not None:
        noted = _ANCHOR.fullmatch(anchor)
        if noted is None:
            raise StoreError(f"anchor {anchor[:80]!r}: must be IDENTITY:REVISION, as an earlier check printed it")
        if noted[1] != found.identity:
            raise StoreSealError(
                f"{path}: the store is {found.identity or 'without identity'}, not the anchor's {noted[1]}"
            )
        if int(noted[2]) > found.revision:
            raise StoreSealError(
                f"{path}: the store is at revision {found.revision}, and was at {noted[2]} when the anchor was noted"
                " down: an older state was put back"
            )
    return found


def _about(store: SpeakerStore) -> StoreCheck:
    manifest = store.manifest
    return StoreCheck(
        path=store.path,
        identity=manifest.identity,
        revision=manifest.revision,
        speakers=len(manifest.speakers),
        files=len(manifest.files()),
        sealed=store.sealed,
    )
