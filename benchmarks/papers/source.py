"""Data files of the papers: read from a local folder or downloaded, checked by SHA-256 either way."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipeline.errors import InputError

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
    .gz). ``any_version`` accepts files with another checksum. ``mirror``
    is an address to fetch from instead: mirror/adult/a9a. ``cache`` is pooch's folder for this program unless given.
    """

    folder: Path | None = None
    any_version: bool = False
    mirror: str | None = None
    cache: Path | None = None

    def has(self, file: TableFile) -> bool:
        """Return True if there is a folder and it holds the file."""
        return self.folder is not None and self._local(file) is not None

    def path(self, file: TableFile) -> Path:
        """Return the local path of the file, downloaded if necessary; only a download is checked here.

        Raises InputError for a file that is missing, cannot be downloaded, or has another checksum.
        """
        if self.folder is None:
            return self._fetched(file)
        local = self._local(file)
        if local is None:
            raise InputError(
                f"{self.folder}: {file.name} is missing; searched for {file.room}/{file.name} and {file.name}, plain or"
                f" as {', '.join(suffix for suffix in _OPENERS if suffix)}. It is published at {file.address}"
            )
        return local

    def read(self, file: TableFile) -> bytes:
        """Return the file's content, uncompressed and checked; raises InputError as ``path`` and ``check`` do."""
        path = self.path(file)
        content = read_content(path)
        if file.sha256 is not None:
            self.check(path, content, file.sha256)
        return content

    def check(self, path: Path, content: bytes, expected: str) -> None:
        """Raise InputError if the content's SHA-256 differs, unless ``any_version`` is set."""
        actual = hashlib.sha256(content).hexdigest()
        if actual != expected and not self.any_version:
            raise InputError(
                f"{path}: its content's SHA-256 should be {expected}, got {actual}; the file is damaged or another"
                " version (--any-version takes it as it is)"
            )

    def _local(self, file: TableFile) -> Path | None:
        assert self.folder is not None  # noqa: S101  # checked by the callers
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
            raise InputError(
                f"{file.name}: cannot be fetched from {address} ({error}); fetch it yourself, put it into a folder"
                f" as {file.room}/{file.name} and name the folder with --tables"
            ) from None
        except ValueError as error:
            raise InputError(f"{file.name}: what {address} gave is not the file that was expected: {error}") from None


def read_content(path: Path) -> bytes:
    """Return the file's bytes, uncompressed by its suffix; raises InputError if damaged or too large."""
    try:
        with _OPENERS.get(path.suffix, open)(path, "rb") as stream:
            return bounded(stream, path)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); an interrupted download?") from None


def bounded(stream: IO[Any], where: Path | str) -> bytes:
    """Return all bytes of the stream; raises InputError beyond ``LIMIT``."""
    content: bytes = stream.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise InputError(f"{where}: at most {LIMIT} bytes of data expected, got more; another file of that name?")
    return content


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
# The archive has the training rows in a format of compress(1) that Python does not read.
_SHUTTLE = "https://raw.githubusercontent.com/ssmcnatt/assignments/0ff4d1020232e9ff1c32813584601f3dac48423a/data"


def _plain(room: str, name: str, folder: str, sha256: str) -> TableFile:
    return TableFile(room, name, f"{folder}/{name}", sha256, sha256)


_LIST = (
    _plain("adult", "a9a", _LIBSVM, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
    _plain("adult", "a9a.t", _LIBSVM, "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
    _plain("adult", "a1a", _LIBSVM, "25117c3e7614e158bb7f883b47b1facb46c28948fdfc9eae4f804ac2c00e0392"),
    _plain("adult", "a1a.t", _LIBSVM, "0212d0c4a3996fe6fb6a0ab54033d9f4fa4b60369b6e3bb141821d9ffc40c04d"),
    _plain("web", "w8a", _LIBSVM, "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2"),
    _plain("web", "w8a.t", _LIBSVM, "618929ecb01bebb841daec4cae4aa07b97832d29b08652452775598929547fde"),
    _plain("web", "w7a", _LIBSVM, "bd02f445a1a2f4aaefd27d7dcc31f1f6a8521f904157f2ee7c96d1294cd26e36"),
    _plain("web", "w7a.t", _LIBSVM, "a52edcfe9871e3b0db5d864959bf32230491ddfeca3334cfec93c1d932ea32b9"),
    _plain("web", "w1a", _LIBSVM, "0ae2b1c40f6a99061d1c6f4a1f3b50eea58a2f3b8bf851a337c25c2a65a49d32"),
    # In the order that taking the rows of w1a out of w8a gives; the published file may have another.
    _plain("web", "w1a.t", _LIBSVM, "c1dd8da3c5ed1fe3bc310d86b1f32a595791290b807182306c3a7ed2ff0324cc"),
    _plain(
        "german",
        "german.data-numeric",
        f"{_UCI}/statlog/german",
        "2752b044394958ab6dd193a0b56ca0f0b3a2d8bc7cb8c008e35a5e84bbec02f8",
    ),
    _plain(
        "sonar",
        "sonar.all-data",
        f"{_UCI}/undocumented/connectionist-bench/sonar",
        "e90434cdbf00fcf93ffa911fe447ae25606979658e60f1d32e155c3b5240234d",
    ),
    _plain("shuttle", "shuttle.trn", _SHUTTLE, "87b24ee9fb5137e1d417659cf905d84d0e15342bbaa60770f1ae83da1a38200a"),
    _plain(
        "shuttle",
        "shuttle.tst",
        f"{_UCI}/statlog/shuttle",
        "f776934a628d9b94c482cb058a76ddaa63823e0f74aec065813c9dff3b89d661",
    ),
    TableFile(
        "reuters21578",
        "reuters21578.tar.gz",
        f"{_UCI}/reuters21578-mld/reuters21578.tar.gz",
        None,
        "3bae43c9b14e387f76a61b6d82bf98a4fb5d3ef99ef7e7075ff2ccbcf59f9d30",
        names=("reuters21578-sgml.tar.xz", "reuters21578.tar.xz"),
    ),
)
FILES = {file.name: file for file in _LIST}
REUTERS_SHA256 = "b9f3dfa9691a57bfac8d55c0fde314e12cdb6a2ad66bebf3f61c9b8883ad2be3"
"""SHA-256 of the 22 SGML files of Reuters-21578, concatenated."""
