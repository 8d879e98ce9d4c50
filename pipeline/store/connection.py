"""Connections to a store's SQLite file: paths are checked, and SQLite's errors become the store's own."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import StoreBusyError, StoreError, StoreFormatError
from pipeline.files import obstacle

_NO_ROOM = "is the disk full? Readers need 32 KiB beside the store, too"
_NOT_OURS = "may this user write to it, to its folder and to the files -wal and -shm beside it?"
_ENVIRONMENT = {
    sqlite3.SQLITE_CANTOPEN: _NOT_OURS,
    sqlite3.SQLITE_FULL: _NO_ROOM,
    sqlite3.SQLITE_IOERR: _NO_ROOM,
    sqlite3.SQLITE_NOMEM: "is there memory left?",
    sqlite3.SQLITE_PERM: _NOT_OURS,
    sqlite3.SQLITE_READONLY: _NOT_OURS,
}
_PATIENCE = 5000  # milliseconds to wait while another process opens or closes the file


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into the store's own, with the file and the likely cause."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise StoreError(f"{path}: text that is not valid Unicode cannot be stored: {error.object!r:.200}") from None
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise busy_error(path) from None
        if code in _ENVIRONMENT:
            cause = _ENVIRONMENT[code]
            raise StoreError(f"{path}: the store cannot be read or written: {error}; {cause}") from None
        order = "; a command's first argument is the store" if code == sqlite3.SQLITE_NOTADB else ""
        raise StoreFormatError(f"{path}: not a speaker store, or a damaged one ({str(error)[:200]}){order}") from None


def busy_error(path: Path) -> StoreBusyError:
    """Return the error for a store that another process writes to."""
    return StoreBusyError(f"{path}: another process is writing to this store; try again when it is done")


def status_of(path: Path) -> os.stat_result | None:
    """Return the status of the regular file at ``path``, None if there is none; raises StoreError for anything else."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        shown = str(path).encode("ascii", "backslashreplace").decode()
        raise StoreError(f"{shown}: no store can be here: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise StoreError(f"{path}: {what}; a speaker store is one file")
    return status


def logs_of(path: Path) -> list[Path]:
    """Return the paths at which SQLite keeps changes that are not yet in the file at ``path``; they need not exist."""
    return [Path(f"{path}{suffix}") for suffix in ("-wal", "-journal")]


def find_or_make(path: Path) -> tuple[tuple[int, int] | None, bool]:
    """Return the device and inode of the file at ``path``, and whether it was made, empty, by this call."""
    if (inode := inode_of(path)) is not None:
        if not (os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)):  # SQLite would leave files
            raise StoreError(f"{path}: the store or its folder is read-only, for this user or on this disk")
        return inode, False
    try:
        path.resolve().touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return inode_of(path), False
    except (OSError, ValueError, RuntimeError) as error:
        raise StoreError(f"{path}: no store can be made here: {obstacle(path, error)}") from None
    return inode_of(path), True


def inode_of(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the regular file at ``path``; None if there is nothing. Raises StoreError."""
    status = status_of(path)
    return None if status is None else (status.st_dev, status.st_ino)


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Connect to the file; one that this user cannot write to and nobody is writing to is opened as immutable."""
    real, mode = path.resolve(), "rw"
    if not writable and not (os.access(real, os.W_OK) and os.access(real.parent, os.W_OK)):
        mode = "ro" if any(log.exists() for log in logs_of(real)) else "ro&immutable=1"
    uri = f"{real.as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_PATIENCE / 1000, isolation_level=None, check_same_thread=False)
