"""An audit log on disk: lines appended whole, their chain followed from the first to the last.

What is changed, left out, put in or moved breaks the chain (``pipeline.audit_chain``), and ``check_log`` names the
line. What a chain cannot show: lines cut off at the end leave a chain that is sound, and a missing log says nothing.
Without a key, whoever can write to the log can also write all of it anew. Against both, keep the last hash in another
place from time to time and give it as the ``anchor``; against the second, use a key. A process that appends under a
key can read that key: it protects against everybody else.

Lines are appended under a lock, and are on the disk before ``append`` returns. A process killed while it writes can
leave part of a line, which no ``append`` has vouched for; the next one takes it off and says so in the chain, with the
bytes that it took.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from pipeline import keys
from pipeline.audit_chain import BEGINNING, KEY_VARIABLE, MOST_LINE, OPEN, REPAIR, BrokenChainError, Chain, Value
from pipeline.errors import AuditError
from pipeline.files import open_regular, sync_folder

NAME = "audit.jsonl"
_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class AuditReport:
    """A log whose chain is sound: how many ``lines`` of which ``events``, and the ``last_hash``, to keep elsewhere.

    ``repairs`` counts unfinished lines that were found and taken off, ``torn`` the bytes of one at the end now.
    Times are UTC. ``keyed`` is whether the hashes are under a key.
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
    """The key in the file ``path``, else in the environment variable VOICECLAIM_AUDIT_KEY; None without either.

    Line ends around it do not count. Raises AuditError for a file that cannot be read, or a key under 16 bytes.
    """
    return keys.read_key(path, variable=KEY_VARIABLE, error=AuditError)


class AuditLog:
    """The log at ``path``, made by the first ``append``; a folder stands for the ``audit.jsonl`` in it.

    With a ``key`` (see ``read_key``) its hashes are under that key.
    """

    def __init__(self, path: Path | str, *, key: bytes | None = None) -> None:
        self.path = _file_at(Path(path))
        self._key = key

    def append(self, event: str, fields: Mapping[str, Value]) -> str:
        """Write one line and wait until the disk has it; its hash.

        Raises AuditError, and leaves the log as it was, where it cannot be written, its last line does not hold, it
        is of another version or key, or another process holds it for half a minute.
        """
        if event in (OPEN, REPAIR):
            raise AuditError(f"event {event!r}: the log says this of itself")
        with _locked(self.path), self._opened() as file:
            chain, torn = self._end_of(file)
            lines = b"" if chain.lines else chain.opening()
            if torn:
                lines += chain.line(REPAIR, {"bytes": len(torn), "found": torn.decode("ascii", "backslashreplace")})
            lines += chain.line(event, fields)
            _write_whole(file, lines, instead_of=len(torn))
        return str(chain.previous)

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            is_new = not self.path.exists()
            with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(errno.EINVAL, "a regular file was expected")
                yield file
                os.fsync(file.fileno())
            if is_new:
                sync_folder(self.path.parent)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise AuditError(f"{self.path}: the audit log cannot be written: {reason}") from error

    def _end_of(self, file: FileIO) -> tuple[Chain, bytes]:
        """The chain as it stands after the last whole line, and what follows that line."""
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2 * MOST_LINE))
        whole, newline, torn = file.readall().rpartition(b"\n")
        if len(torn) > MOST_LINE or not _may_be_torn(torn):
            raise AuditError(
                f"{self.path}: it does not end like an audit log, and nothing is written to it; is it one?"
            )
        if not newline:
            return Chain(self._key), torn
        chain = Chain(self._key, previous=None)
        try:
            chain.follow(whole.rpartition(b"\n")[2])
        except BrokenChainError as error:
            raise AuditError(
                f"{self.path}: its last line does not hold: {error}; nothing more is written to it:"
                " look into it with `voiceclaim audit`, then begin a new log"
            ) from None
        return chain, torn


def check_log(path: Path | str, *, key: bytes | None = None, anchor: str | None = None) -> AuditReport:
    """Follow the chain of the log at ``path`` (a folder stands for the ``audit.jsonl`` in it) from its first line on.

    An ``anchor``, a hash that was noted down earlier, must be among those met. Raises AuditError for a log that cannot
    be read and for one whose chain is broken, naming the first line that does not hold.
    """
    path, chain, met = _file_at(Path(path)), Chain(key), _Met(anchor)
    try:
        with open_regular(path) as file:
            left = _settled_size(path, file)
            while left > 0:
                line = file.readline(min(left, MOST_LINE))
                left -= len(line)
                if line.endswith(b"\n"):
                    met.count(chain.follow(line[:-1]))
                elif left > 0:
                    raise BrokenChainError("it is longer than a line of an audit log can be: edited, or damaged")
                else:
                    met.torn = len(line)
    except BrokenChainError as error:
        raise AuditError(f"{path}, line {chain.lines + 1}: {error}") from None
    except OSError as error:
        raise AuditError(f"{path}: the audit log cannot be read: {error.strerror or error}") from None
    return met.report(path, chain)


class _Met:
    """What was met along a chain."""

    def __init__(self, anchor: str | None) -> None:
        self._missing = anchor
        self._events: Counter[str] = Counter()
        self._times: list[str] = []
        self.torn = 0

    def count(self, table: Mapping[str, Any]) -> None:
        """Take in one line."""
        self._events[table["event"]] += 1
        self._times[1:] = [table["time"]]
        if table["hash"] == self._missing:
            self._missing = None

    def report(self, path: Path, chain: Chain) -> AuditReport:
        """What all of it came to; raises AuditError for no line at all, and for a missing anchor."""
        if chain.lines == 0:
            raise AuditError(f"{path}: an audit log has at least one whole line, got none; was it cut off?")
        if self._missing is not None:
            raise AuditError(
                f"{path}: none of its {chain.lines} lines has the hash {self._missing[:80]!r}: lines at its end were"
                " removed since that was noted down, or it was written anew; or it is another log's"
            )
        return AuditReport(
            path=path,
            lines=chain.lines,
            events=dict(self._events),
            first_time=self._times[0],
            last_time=self._times[-1],
            last_hash=str(chain.previous),
            keyed=chain.key is not None,
            repairs=self._events[REPAIR],
            torn=self.torn,
        )


def _may_be_torn(end: bytes) -> bool:
    """Whether ``end`` can be what a killed writer or a power cut leaves: a line's beginning, or blanks on the disk."""
    return not end.strip(b"\0") or end[: len(BEGINNING)] == BEGINNING[: len(end)]


def _file_at(path: Path) -> Path:
    try:
        return path / NAME if path.is_dir() else path
    except OSError:  # no file can have that path, and whoever opens it will say so
        return path


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep writers out, waiting for one that is at it; raises AuditError."""
    try:
        with FileLock(_lock_of(path), timeout=_WAIT_SECONDS, poll_interval=0.01):
            yield
    except Timeout:
        raise AuditError(f"{path}: another process holds the audit log; try again") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AuditError(f"{path}: the audit log cannot be written: {reason}") from error


def _settled_size(path: Path, file: BinaryIO) -> int:
    """Bytes of the log when no writer is halfway through a line, as far as that can be told without writing here."""
    try:
        # A lock made by whoever checks might be one that the writers may not open.
        if _lock_of(path).exists():
            with _locked(path):
                return os.fstat(file.fileno()).st_size
    except AuditError:
        pass
    return os.fstat(file.fileno()).st_size


def _write_whole(file: FileIO, data: bytes, *, instead_of: int) -> None:
    """Put ``data`` in the place of the last ``instead_of`` bytes; when it does not fit, none of it stays."""
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
