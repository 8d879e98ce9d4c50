"""Audit log of the service and the commands: a file of JSON lines, each chained to the one before (``audit_chain``).

Lines are appended under a lock, and are on the disk before ``append`` returns. A process killed while it writes can
leave part of a line, for which ``append`` never returned; the next one removes it and records its bytes in the chain.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from pipeline.errors import AuditError
from pipeline.files import beside, open_regular, sync_folder
from pipeline.store import keys
from pipeline.verification.audit_chain import BEGINNING, KEY_VARIABLE, MAX_LINE, OPEN, REPAIR, Chain, Value

_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Contents of a log with a valid chain: ``lines``, counts by ``events``, and the ``last_hash``, to keep elsewhere.

    ``repairs`` counts unfinished lines that were removed, ``torn`` the bytes of one at the end now. Times are UTC.
    ``keyed`` is true if the hashes are keyed.
    """

    path: Path
    lines: int
    events: Mapping[str, int]
    first_time: str
    last_time: str
    last_hash: str
    keyed: bool
    repairs: int
    torn: int


def read_key(path: Path | None = None) -> bytes | None:
    """Return the key in the file ``path``, else in the environment variable VOICECLAIM_AUDIT_KEY, else None.

    Line ends around it are stripped. Raises AuditError for a file that cannot be read, or a key under 16 bytes.
    """
    return keys.read_key(path, variable=KEY_VARIABLE, error=AuditError)


def open_log(path: Path | None, key_file: Path | None) -> AuditLog | None:
    """Return the audit log at ``path`` with the key of ``read_key``; None without a path. Raises AuditError."""
    if path is not None and not path.parent.is_dir():
        raise AuditError(f"{path}: no audit log can be kept here: there is no folder {path.parent}")
    return None if path is None else AuditLog(path, key=read_key(key_file))


class AuditLog:
    """An audit log: lines of JSON, each with a hash of itself and the line before (``verification.audit_chain``).

    Parameters
    ----------
    path : path
        The file, which the first ``append`` creates.
    key : bytes, optional
        Key of its hashes (``read_key``): without one, whoever can write to the log can make a whole chain anew.

    Examples
    --------
    >>> from pipeline.verification.audit import AuditLog, check_log
    >>> last = AuditLog("audit.log").append("note", {"text": "began"})
    >>> check_log("audit.log", anchor=last).events
    {'open': 1, 'note': 1}
    """

    def __init__(self, path: Path | str, *, key: bytes | None = None) -> None:
        self.path = Path(path)
        self._key = key

    def append(self, event: str, fields: Mapping[str, Value]) -> str:
        """Write one line, and wait until it is on the disk.

        Parameters
        ----------
        event : str
            What happened, in one word.
        fields : mapping of str to str, number, bool or None
            Details that a reader needs; texts are cut to 1000 characters.

        Returns
        -------
        str
            Hash of the line, an anchor for ``check_log``.

        Raises
        ------
        AuditError
            If the log cannot be written, if its last line is not valid, if it has another version or key, if another
            process holds its lock for 30 seconds, if the line is too long, or if the name of the event or of a field is
            reserved. The log is left as it was.
        """
        if event in (OPEN, REPAIR):
            raise AuditError(f"event {event!r} is reserved for the log itself")
        with _locked(self.path), self._opened() as file:
            chain, torn = self._end_of(file)
            lines = b"" if chain.lines else chain.opening()
            if torn:
                lines += chain.line(REPAIR, {"bytes": len(torn), "removed": torn.decode("ascii", "backslashreplace")})
            lines += chain.line(event, fields)
            _write_whole(file, lines, instead_of=len(torn))
        return str(chain.previous)

    def check_writable(self) -> None:
        """Raise as ``append`` would, before anything is done that must be logged; begin a log that is missing."""
        with _locked(self.path), self._opened() as file:
            chain, torn = self._end_of(file)
            if not chain.lines and not torn:
                _write_whole(file, chain.opening(), instead_of=0)

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        is_new = not self.path.exists()
        with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "a regular file was expected")
            yield file
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self.path.parent)

    def _end_of(self, file: FileIO) -> tuple[Chain, bytes]:
        """Return the chain after the last complete line, and the bytes that follow that line."""
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2 * MAX_LINE))
        whole, newline, torn = file.readall().rpartition(b"\n")
        # A killed writer or a power cut leaves the beginning of a line, or zeros.
        may_be_torn = not torn.strip(b"\0") or torn[: len(BEGINNING)] == BEGINNING[: len(torn)]
        if len(torn) > MAX_LINE or not may_be_torn:
            raise AuditError(
                f"{self.path}: the file does not end like an audit log, so nothing is written to it; is it one?"
            )
        if not newline:
            return Chain(self._key), torn
        chain = Chain(self._key, previous=None)
        try:
            chain.follow(whole.rpartition(b"\n")[2])
        except AuditError as error:
            raise AuditError(
                f"{self.path}: its last line is not valid: {error}; nothing more is written to it:"
                " check it with `voiceclaim audit`, then begin a new log"
            ) from None
        return chain, torn


def check_log(path: Path | str, *, key: bytes | None = None, anchor: str | None = None) -> AuditReport:
    """Check the chain of the log at ``path`` from its first line to its last.

    An ``anchor``, a hash that was noted down earlier, must be among its hashes. Raises AuditError for a log that
    cannot be read, and for a broken chain, naming the first invalid line.
    """
    path, chain = Path(path), Chain(key)
    events: Counter[str] = Counter()
    first_time, last_time, anchored, torn = "", "", anchor is None, 0
    try:
        for line in _lines(path):
            if not line.endswith(b"\n"):
                torn = len(line)
                break
            table = chain.follow(line[:-1])
            events[table["event"]] += 1
            first_time, last_time = first_time or table["time"], table["time"]
            anchored = anchored or table["hash"] == anchor
    except AuditError as error:
        raise AuditError(f"{path}, line {chain.lines + 1}: {error}") from None
    except OSError as error:
        raise AuditError(f"{path}: the audit log cannot be read: {error.strerror or error}") from None
    if chain.lines == 0:
        raise AuditError(f"{path}: an audit log has at least one whole line, got none; was it cut off?")
    if not anchored:
        raise AuditError(
            f"{path}: none of its {chain.lines} lines has the hash {str(anchor)[:80]!r}: lines at its end were removed"
            " since that was noted down, or it was rewritten; or the hash is from another log"
        )
    return AuditReport(
        path=path,
        lines=chain.lines,
        events=dict(events),
        first_time=first_time,
        last_time=last_time,
        last_hash=str(chain.previous),
        keyed=key is not None,
        repairs=events[REPAIR],
        torn=torn,
    )


def _lines(path: Path) -> Iterator[bytes]:
    """Yield each line with its end; raise AuditError for one that is too long."""
    with open_regular(path) as file:
        left = _settled_size(path, file)
        while left > 0:
            line = file.readline(min(left, MAX_LINE))
            left -= len(line)
            if left > 0 and not line.endswith(b"\n"):
                raise AuditError("it is longer than a line of an audit log can be: edited, or damaged")
            yield line


def _settled_size(path: Path, file: BinaryIO) -> int:
    """Return the size of the log while no writer is halfway through a line, if its lock can be taken."""
    try:
        # The writers might not be allowed to open a lock file made by a reader.
        with _locked(path) if _lock_of(path).exists() else nullcontext():
            return os.fstat(file.fileno()).st_size
    except AuditError:
        return os.fstat(file.fileno()).st_size


def _lock_of(path: Path) -> Path:
    return beside(path, ".lock")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the writers' lock, waiting for another process to release it; errors of the files become AuditErrors."""
    try:
        with FileLock(_lock_of(path), timeout=_WAIT_SECONDS, poll_interval=0.01):
            yield
    except Timeout:
        raise AuditError(f"{path}: another process holds the audit log; try again") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AuditError(f"{path}: the audit log cannot be written: {reason}") from error


def _write_whole(file: FileIO, data: bytes, *, instead_of: int) -> None:
    """Replace the last ``instead_of`` bytes by ``data``; neither stays if not all of ``data`` can be written."""
    start = file.seek(0, os.SEEK_END) - instead_of
    if instead_of:
        file.truncate(start)
    done = 0
    try:
        while done < len(data):
            done += file.write(data[done:])
    except BaseException:
        file.truncate(start)
        raise
