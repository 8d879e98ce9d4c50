"""Files: bounded reading of untrusted paths, names derived from a file's, and flushing of folders to the disk.

Failures to read or write raise ``OSError`` with a reason in words (``strerror``); the caller adds the file and its
purpose.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_BLOCK = 2**20
# Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever. It has no effect on regular files.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BufferedReader:
    """Open the regular file at ``path`` for reading, without waiting; links are followed.

    Raises OSError for anything else (a folder, pipe, socket or device), for a missing file, a loop of links and a path
    that no file can have.
    """
    try:
        _refuse_others(path.stat().st_mode)  # merely opening a device may have an effect
        descriptor = os.open(path, _FLAGS)
    except ValueError as error:  # a NUL, or text that the file system cannot encode
        raise OSError(errno.EINVAL, f"no file can have such a path ({error})") from None
    try:
        _refuse_others(os.fstat(descriptor).st_mode)  # the path may have been replaced in between
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of the regular file at ``path``; raises OSError, also for over ``most`` bytes."""
    content = bytearray()
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # The system's own files, as in /proc, report a size of 0.
        while size <= most and (data := file.read(min(_BLOCK, most + 1 - len(content)))):
            content += data
    if max(size, len(content)) > most:
        raise OSError(errno.EFBIG, f"too large: at most {most:,} bytes are read")
    return bytes(content)


def is_same_file(first: Path, second: Path) -> bool:
    """Return True if both paths are equal or lead to one file, by links or by spelling."""
    try:
        return first == second or first.samefile(second)
    except (OSError, ValueError):  # what cannot be found is reported where it is opened
        return False


def beside(path: Path, suffix: str, *, prefix: str = "") -> Path:
    """Return ``path`` with a prefix and a suffix added to its name; raises OSError if it has none, as . and /."""
    if not path.name:
        raise OSError(errno.EISDIR, "a file was expected, got a folder")
    return path.with_name(f"{prefix}{path.name}{suffix}")


def obstacle(path: Path, error: Exception) -> str:
    """Return in words why no file could be made at ``path``; usually its folder is missing."""
    if isinstance(error, FileNotFoundError) and not path.parent.exists():
        return f"there is no folder {path.parent}"
    return getattr(error, "strerror", None) or str(error)


def sync_folder(folder: Path) -> None:
    """Flush the names in ``folder`` to the disk if the system can (not on Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_others(mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, f"a regular file was expected, got {kind}")
