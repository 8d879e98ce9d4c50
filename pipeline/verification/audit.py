"""Tamper-evident audit log: JSON lines that each hold the hash of the line before.

    {"n":3,"time":"2024-05-17T09:30:00.123456Z","event":"verify",...,"previous":"<hash of line 2>","hash":"<of this>"}

A line's hash is the SHA-256 of its bytes up to the hash itself, or HMAC-SHA-256 with a key. A line that is changed,
removed, inserted or moved breaks the chain, and ``check_log`` names it. Two attacks leave a valid chain: removing
lines at the end, and, without a key, rewriting the whole log. Against both, store the last hash elsewhere from time to
time and give it as the ``anchor``; against the second, use a key. A process that appends with a key can read that key,
so that the key protects against everybody else.

Lines are appended under a lock, and are on the disk before ``append`` returns. A process killed while it writes can
leave part of a line, for which ``append`` never returned; the next one removes it and records its bytes in the chain.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from pipeline.errors import AuditError
from pipeline.files import beside, open_regular, sync_folder
from pipeline.store import keys

FORMAT = "voiceclaim-audit"
VERSION = 1
KEY_VARIABLE = "VOICECLAIM_AUDIT_KEY"
OPEN, REPAIR = "open", "repair"

Value = str | int | float | bool | None

_MAX_LINE = 2**17  # bytes
_MAX_TEXT = 1000  # characters of one value
_BEGINNING = b'{"n":'  # of every line
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_TAIL_BYTES = len(',"hash":""}') + 64
_TYPES = {"n": int, "time": str, "event": str, "previous": str, "hash": str}
_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Contents of a log with a valid chain: ``lines`` by ``events``, and the ``last_hash``, to be stored elsewhere.

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


class AuditLog:
    """The log at ``path``, created by the first ``append``.

    With a ``key`` (see ``read_key``) its hashes are keyed.
    """

    def __init__(self, path: Path | str, *, key: bytes | None = None) -> None:
        self.path = Path(path)
        self._key = key

    def append(self, event: str, fields: Mapping[str, Value]) -> str:
        """Write one line, wait until it is on the disk, and return its hash.

        Raises AuditError, and leaves the log as it was, if it cannot be written, its last line is not valid, it has
        another version or key, or another process holds its lock for 30 seconds.
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
        """Raise what ``append`` would raise now, before something is done that is to be logged; begin a new log."""
        with _locked(self.path), self._opened() as file:
            chain, torn = self._end_of(file)
            if not chain.lines and not torn:
                _write_whole(file, chain.opening(), instead_of=0)

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        is_new = not self.path.exists()
        with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "a regular file was expected")
            yield file
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self.path.parent)

    def _end_of(self, file: FileIO) -> tuple[Chain, bytes]:
        """Return the chain after the last whole line, and the bytes that follow that line."""
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2 * _MAX_LINE))
        whole, newline, torn = file.readall().rpartition(b"\n")
        # A killed writer or a power cut leaves the beginning of a line, or zeros.
        may_be_torn = not torn.strip(b"\0") or torn[: len(_BEGINNING)] == _BEGINNING[: len(torn)]
        if len(torn) > _MAX_LINE or not may_be_torn:
            raise AuditError(
                f"{self.path}: it does not end like an audit log, and nothing is written to it; is it one?"
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


@dataclass
class Chain:
    """Position in a chain: ``lines`` passed, and the hash of the last, ``previous`` (None: entered in the middle)."""

    key: bytes | None
    lines: int = 0
    previous: str | None = "0" * 64

    def opening(self) -> bytes:
        """Return the first line of a log: its format, an id of its own, and if its hashes are keyed."""
        about: dict[str, Value] = {"format": FORMAT, "version": VERSION, "log": secrets.token_hex(16)}
        return self.line(OPEN, {**about, "keyed": self.key is not None})

    def line(self, event: str, fields: Mapping[str, Value]) -> bytes:
        """Return the next line, with its line end, and move on to it.

        Texts are cut to 1000 characters. Raises AuditError if the line gets too long.
        """
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        body: dict[str, Value] = {"n": self.lines + 1, "time": time, "event": event}
        body |= {name: _as_json(value) for name, value in fields.items() if name not in _TYPES}
        text = json.dumps({**body, "previous": self.previous}, separators=(",", ":"), allow_nan=False).encode()[:-1]
        digest = self._digest(text)
        line = text + f',"hash":"{digest}"}}\n'.encode()
        if len(line) > _MAX_LINE:
            raise AuditError(
                f"event {event!r}: a line of an audit log has at most {_MAX_LINE:,} bytes, got {len(line):,}"
            )
        self.lines, self.previous = self.lines + 1, digest
        return line

    def follow(self, line: bytes) -> dict[str, Any]:
        """Return the fields of ``line`` (without its line end) if it is valid here; raise AuditError if not."""
        tail, table = _TAIL.fullmatch(line[-_TAIL_BYTES:]), _parsed(line)
        if tail is None or table is None:
            raise AuditError("it is no line of an audit log: edited, or damaged")
        digest, begun = tail[1].decode(), self.previous is not None
        if begun and table["n"] != self.lines + 1:
            raise AuditError(
                f"its number is {table['n']}: lines were removed, inserted or moved here, or it was edited"
            )
        if (table["event"] == OPEN) != (table["n"] == 1):
            raise AuditError("a log has its opening line first and nowhere else: edited, or its beginning removed")
        if table["event"] == OPEN:
            self._check_opening(table)
        if not hmac.compare_digest(digest, self._digest(line[:-_TAIL_BYTES])):
            raise AuditError("its hash is not that of its content: edited, or written with another key")
        if begun and table["previous"] != self.previous:
            raise AuditError("it does not follow the line before it: one of the two was replaced")
        self.lines, self.previous = table["n"], digest
        return table

    def _check_opening(self, table: Mapping[str, Any]) -> None:
        if (table.get("format"), table.get("version")) != (FORMAT, VERSION):
            got = f"{table.get('format')!r:.80}, version {table.get('version')!r:.80}"
            raise AuditError(f"the log's format is {got}; this program reads {FORMAT!r}, version {VERSION}")
        if table.get("keyed") is False and self.key is not None:
            raise AuditError(
                f"it opens a log without a key, and one was given (in {KEY_VARIABLE}?): rewritten, or begun before"
                " there was a key"
            )
        if table.get("keyed") is not (self.key is not None):
            raise AuditError(
                f"it opens a log with a key, and none was given: name the key's file, or set {KEY_VARIABLE}"
            )

    def _digest(self, text: bytes) -> str:
        if self.key is None:
            return hashlib.sha256(text).hexdigest()
        return hmac.new(self.key, text, hashlib.sha256).hexdigest()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the object in ``line`` if it has the fields of every line, and none of them twice."""
    try:
        pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list)
        table = dict(pairs)
    except (ValueError, TypeError, RecursionError):
        return None
    if len(table) != len(pairs) or any(type(table.get(name)) is not kind for name, kind in _TYPES.items()):
        return None
    return table


def _as_json(value: Value) -> Value:
    """Cut long texts, and write infinite numbers as text."""
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return f"{value[:_MAX_TEXT]}... ({len(value)} characters)"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _lines(path: Path) -> Iterator[bytes]:
    """Yield each line with its end; raise AuditError for one that is too long."""
    with open_regular(path) as file:
        left = _settled_size(path, file)
        while left > 0:
            line = file.readline(min(left, _MAX_LINE))
            left -= len(line)
            if left > 0 and not line.endswith(b"\n"):
                raise AuditError("it is longer than a line of an audit log can be: edited, or damaged")
            yield line


def _settled_size(path: Path, file: BinaryIO) -> int:
    """Return the size of the log while no writer is halfway through a line, if its lock can be taken."""
    try:
        # A lock file made by a reader might be one that the writers may not open.
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
    """Replace the last ``instead_of`` bytes by ``data``; if not all of it can be written, remove it."""
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
