"""The folder of a store: one writer at a time, what in it is a store's, and what nothing names any more."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.errors import StoreBusyError, StoreError
from pipeline.files import sync_folder
from pipeline.manifest import NAME as MANIFEST
from pipeline.manifest import PARTIAL

LOCK = ".lock"
SPEAKERS = "speakers"
_ARRAY_FILE = re.compile(r"(?:one_vs_rest|segments|calibration|posteriors|[0-9a-f]{16})-[0-9]+\.safetensors")


@contextmanager
def held_folder(path: Path) -> Iterator[None]:
    """Keep other writers out of the folder at ``path``, made if it is not there and taken back if it stays empty.

    Raises StoreBusyError while another process writes, StoreError for a folder of other things or one that cannot be
    written to.
    """
    made: list[Path] = []
    try:
        with writing(path):
            _make(path, made)
            _refuse_strangers(path)
        with _locked(path):
            try:
                yield
            finally:
                _forget_if_empty(path, made)
    finally:
        for folder in reversed(made):
            with suppress(OSError):  # it holds something, or is gone
                folder.rmdir()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell what cannot be written as a StoreError."""
    try:
        yield
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        raise StoreError(f"{path}: the store cannot be written: {error.strerror or error}{at}") from error


def sweep(path: Path, kept: Collection[str]) -> None:
    """Delete what is named as only a store names its files, but for those ``kept``; what others left stays."""
    with suppress(OSError):
        for file in [*path.iterdir(), *(path / SPEAKERS).glob("*")]:
            ours = _is_ours(file) or file == path / PARTIAL
            if ours and file.relative_to(path).as_posix() not in kept:
                with suppress(OSError):  # the next writer will try again
                    file.unlink()


def _make(path: Path, made: list[Path]) -> None:
    """Make the folder and its parents; those that were not there are ``made``, and on the disk."""
    for folder in reversed((path, *path.parents)):
        if not folder.is_dir():
            with suppress(FileExistsError):  # another writer was quicker, or else the next step fails
                folder.mkdir()
                made.append(folder)
                sync_folder(folder.parent)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(path / LOCK)
    with writing(path):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise StoreBusyError(
                f"{path}: another process is writing to this store; try again when it is done"
            ) from None
    try:
        yield
    finally:
        lock.release()


def _forget_if_empty(path: Path, made: list[Path]) -> None:
    """Take back the lock, while it is held, of a store that never came to be."""
    if not made or (path / MANIFEST).exists():
        return
    with suppress(OSError):
        if (path / SPEAKERS).exists():
            (path / SPEAKERS).rmdir()
        if {entry.name for entry in path.iterdir()} == {LOCK}:
            (path / LOCK).unlink()


def _refuse_strangers(path: Path) -> None:
    """Raise StoreError for a folder without a manifest that holds anything a store does not leave behind."""
    if (path / MANIFEST).exists():
        return
    inside = [entry for entry in path.iterdir() if entry.name not in {LOCK, SPEAKERS, PARTIAL}]
    if (path / SPEAKERS).is_dir():
        inside += (path / SPEAKERS).iterdir()
    strangers = sorted(entry.name for entry in inside if not _is_ours(entry))
    if strangers:
        raise StoreError(
            f"{path}: the folder holds other things ({', '.join(strangers[:3])}) and no store; name a new or"
            " empty folder"
        )


def _is_ours(path: Path) -> bool:
    """Whether ``path`` is named as only a store names its files."""
    return path.is_file() and _ARRAY_FILE.fullmatch(path.name) is not None
