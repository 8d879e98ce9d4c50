"""Where the papers' data files come from: a folder of the user's, or the public homes, checked either way."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipeline.errors import TableError

LIMIT = 128 * 2**20
"""Bytes of a file's content beyond which it is refused: the largest, Reuters-21578, has 28 million."""

_OPENERS: dict[str, Any] = {"": open, ".xz": lzma.open, ".bz2": bz2.open, ".gz": gzip.open}


@dataclass(frozen=True)
class TableFile:
    """A data file: the folder and name it goes by, its public address, and the SHA-256 of its content.

    ``sha256`` is of the content uncompressed, so that a compressed copy will do; None for an archive, whose members
    the reader checks. ``names`` are further names it may have. ``download_sha256`` is of the bytes at ``address``.
    """

    room: str
    name: str
    address: str
    sha256: str | None
    download_sha256: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableSource:
    """Files from ``folder``; without one, from their public addresses, kept in ``cache``.

    ``folder`` holds the files in one folder a collection (adult/a9a) or all together, plain or compressed (.xz, .bz2,
    .gz). ``any_version`` takes files whose checksum is another than the one that the figures were made with. ``mirror``
    is an address to fetch from instead: mirror/adult/a9a. ``cache`` is pooch's folder for this program unless given.
    """

    folder: Path | None = None
    any_version: bool = False
    mirror: str | None = None
    cache: Path | None = None

    def has(self, file: TableFile) -> bool:
        """Whether the folder, where there is one, holds the file."""
        return self.folder is not None and self._found(file) is not None

    def path(self, file: TableFile) -> Path:
        """The file on this disk, after downloading it if need be; only a download is checked here.

        Raises TableError for a file that is missing, cannot be fetched, or was fetched and is not what it should be.
        """
        if self.folder is None:
            return self._fetched(file)
        found = self._found(file)
        if found is None:
            raise TableError(
                f"{self.folder}: {file.name} is missing; looked for {file.room}/{file.name} and {file.name}, plain or"
                f" as {', '.join(suffix for suffix in _OPENERS if suffix)}. It lives at {file.address}"
            )
        return found

    def read(self, file: TableFile) -> bytes:
        """The file's content, uncompressed and checked; raises TableError as ``path`` and ``check`` do."""
        path = self.path(file)
        content = read_content(path)
        if file.sha256 is not None:
            self.check(path, content, file.sha256)
        return content

    def check(self, path: Path, content: bytes, expected: str) -> None:
        """Raise TableError where the content's SHA-256 is another, unless any version will do."""
        found = hashlib.sha256(content).hexdigest()
        if found != expected and not self.any_version:
            raise TableError(
                f"{path}: its content's SHA-256 should be {expected}, got {found}; the file is damaged or another"
                " version (--any-version takes it as it is)"
            )

    def _found(self, file: TableFile) -> Path | None:
        assert self.folder is not None  # noqa: S101  # asked by those who know
        for home in (self.folder / file.room, self.folder):
            for name in (file.name, *file.names):
                for suffix in _OPENERS:
                    path = home / f"{name}{suffix}"
                    if path.is_file():
                        return path
        return None

    def _fetched(self, file: TableFile) -> Path:
        import pooch

        address = file.address if self.mirror is None else f"{self.mirror.rstrip('/')}/{file.room}/{file.name}"
        known = None if self.any_version else f"sha256:{file.download_sha256}"
        home = Path(pooch.os_cache("voiceclaim") if self.cache is None else self.cache) / "tables" / file.room
        try:
            return Path(pooch.retrieve(address, known_hash=known, fname=file.name, path=home))
        except OSError as error:
            raise TableError(
                f"{file.name}: cannot be fetched from {address} ({error}); fetch it yourself, put it into a folder"
                f" as {file.room}/{file.name} and name the folder with --tables"
            ) from None
        except ValueError as error:
            raise TableError(f"{file.name}: what {address} gave is not the file that was expected: {error}") from None


def read_content(path: Path) -> bytes:
    """The file's bytes, uncompressed by its suffix; raises TableError for a file that is damaged or too large."""
    try:
        with _OPENERS.get(path.suffix, open)(path, "rb") as stream:
            return bounded(stream, path)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise TableError(f"{path}: cannot be read ({error}); an interrupted download?") from None


def bounded(stream: IO[Any], where: Path | str) -> bytes:
    """All bytes of the stream; raises TableError beyond ``LIMIT``."""
    content: bytes = stream.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise TableError(f"{where}: at most {LIMIT} bytes of data expected, got more; another file of that name?")
    return content
