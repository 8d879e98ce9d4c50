"""Backups of a store that may be in use, and their restoration, by SQLite's online backup."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from pipeline.errors import StoreError, StoreFormatError, StoreMissingError
from pipeline.files import beside, obstacle, sync_folder
from pipeline.store.connection import busy_error, connect, inode_of, logs_of, store_errors
from pipeline.store.keys import Key
from pipeline.store.model import SpeakerModel
from pipeline.store.rows import open_rows
from pipeline.store.store import Store


def backup_store(store: Path | str, copy: Path | str, *, key: Key = None) -> SpeakerModel:
    """Copy a store to one new file, even while others read or write it, and check every row of the copy.

    Parameters
    ----------
    store, copy : path
        The store, and the file to make.
    key : bytes, optional
        Key of the seal, as of ``Store``.

    Returns
    -------
    SpeakerModel
        What the copy holds.

    Raises
    ------
    StoreError
        If the copy exists or cannot be written, if the log of another store is beside it, or if the store is damaged.

    Examples
    --------
    >>> from pipeline.store.backup import backup_store
    >>> backup_store("speakers.store", "copy.store").names
    ('anna', 'dexter', 'ivan', 'lars')
    """
    copy = Path(copy)
    try:
        part = beside(copy, ".part", prefix=".")
        _check_new(copy)
        _remove(part)  # left by a backup that was killed
        part.touch(mode=0o600, exist_ok=False)
        try:
            _copy(Store(store, key=key), part)
            Store(part, key=key).check()
            _check_new(copy)  # once more, after the time that copying took
            part.replace(copy)
        finally:
            _remove(part)
        sync_folder(copy.parent)
    except OSError as error:
        raise StoreError(f"{copy}: no backup can be made here: {obstacle(copy, error)}") from None
    return Store(copy, key=key).load()


def restore_store(copy: Path | str, store: Path | str, *, key: Key = None) -> tuple[str, ...]:
    """Replace a store by a backup, in one transaction: readers see the old state or the new one.

    Parameters
    ----------
    copy, store : path
        A backup, and the store, which need not exist.
    key : bytes, optional
        Key of the seal, as of ``Store``.

    Returns
    -------
    tuple of str
        Names that the backup brings back: those of speakers who were not in the store.

    Raises
    ------
    StoreError, StoreBusyError
        If the backup is damaged, of another store or later than the store, or if the store is damaged or is being
        written to; the store is left as it is.

    Examples
    --------
    >>> from pipeline.store.backup import backup_store, restore_store
    >>> _ = backup_store("speakers.store", "copy.store")
    >>> restore_store("copy.store", "speakers.store")
    ()
    """
    backup = Store(copy, key=key)
    try:
        kept = backup.check()
    except StoreMissingError:
        raise StoreMissingError(copy, "no backup of a store here; a mistyped or moved path?") from None
    try:
        there = Store(store, key=key).load()
    except StoreMissingError:
        if inode_of(Path(store)) is None:
            backup_store(copy, store, key=key)
        else:  # an empty file, which an enrollment that was killed may leave
            _copy(backup, Path(store))
        return kept.names
    except StoreFormatError as error:
        logs = " and ".join(log.name for log in logs_of(Path(store)))
        raise StoreFormatError(f"{error}; to restore here, move it away first, with {logs} beside it") from None
    if kept.identity != there.identity:
        raise StoreError(
            f"{copy}: a backup of another store ({kept.identity}) than {store} ({there.identity}); to have it here,"
            " move that store away first"
        )
    if kept.revision > there.revision:
        raise StoreError(
            f"{copy}: the backup has revision {kept.revision}, and the store {store} an earlier one ({there.revision});"
            " are the two exchanged? If not, move the store away first"
        )
    present = {speaker.id for speaker in there.speakers}
    _copy(backup, Path(store))
    return tuple(speaker.name for speaker in kept.speakers if speaker.id not in present)


def _check_new(copy: Path) -> None:
    """Raise StoreError where a file has the name of the ``copy``, or would be its log."""
    if os.path.lexists(copy):
        raise StoreError(f"{copy}: a backup must be a new file, and this one exists; name another, or remove it")
    if log := next((log for log in logs_of(copy) if log.exists()), None):
        raise StoreError(f"{log}: the log of a store that was here would change the copy; move it to that store")


def _remove(part: Path) -> None:
    """Remove the file of a backup that is not complete, and its logs, which a full disk leaves."""
    for path in (part, *logs_of(part)):
        path.unlink(missing_ok=True)


def _refuse_busy(status: int, path: Path) -> None:
    """Raise StoreBusyError where SQLite would wait without end for another writer."""
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise busy_error(path)


def _copy(store: Store, path: Path) -> None:
    """Copy the present ``store`` into the file at ``path`` in one transaction, and wait until it is on the disk."""
    source = open_rows(store.path, store.key).take_connection()
    with store_errors(path), closing(source), closing(connect(path, writable=True)) as target:
        target.execute("PRAGMA synchronous = FULL")
        target.execute("PRAGMA secure_delete = ON")
        source.backup(target, progress=lambda status, *_: _refuse_busy(status, path))
        target.execute("PRAGMA busy_timeout = 0")  # a checkpoint must not wait for readers
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
