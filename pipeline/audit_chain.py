"""Lines of an audit log, each carrying the hash of the one before: how one is written, what makes one hold.

    {"n":3,"time":"2024-05-17T09:30:00.123456Z","event":"verify",...,"previous":"<hash of line 2>","hash":"<of this>"}

A line's hash is SHA-256 of its bytes up to its own hash, the hash of the line before among them; with a key it is
HMAC-SHA-256 under that key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.errors import AuditError

FORMAT = "voiceclaim-audit"
VERSION = 1
KEY_VARIABLE = "VOICECLAIM_AUDIT_KEY"
MOST_LINE = 2**17  # bytes
BEGINNING = b'{"n":'  # of every line
OPEN, REPAIR = "open", "repair"

Value = str | int | float | bool | None

_START = "0" * 64
_MOST_TEXT = 1000  # characters of one value
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_TAIL_BYTES = len(',"hash":""}') + 64
_KINDS = {"n": int, "time": str, "event": str, "previous": str, "hash": str}


class BrokenChainError(Exception):
    """A line that does not hold, and why. Callers turn it into an AuditError that names the log and the line."""


@dataclass
class Chain:
    """Where a chain stands: ``lines`` passed and the hash of the last, ``previous``; None if entered in the middle."""

    key: bytes | None
    lines: int = 0
    previous: str | None = _START

    def opening(self) -> bytes:
        """The first line of a log: what it is, an id of its own, and whether its hashes are under a key."""
        about: dict[str, Value] = {"format": FORMAT, "version": VERSION, "log": secrets.token_hex(16)}
        return self.line(OPEN, {**about, "keyed": self.key is not None})

    def line(self, event: str, fields: Mapping[str, Value]) -> bytes:
        """The line that says ``event`` at this place, with its line end; the chain moves on.

        Texts are cut to 1000 characters. Raises AuditError for more than a line can hold.
        """
        body: dict[str, Value] = {"n": self.lines + 1, "time": _now(), "event": event}
        body |= {name: _plain(value) for name, value in fields.items() if name not in _KINDS}
        text = json.dumps({**body, "previous": self.previous}, separators=(",", ":"), allow_nan=False).encode()[:-1]
        digest = self._digest(text)
        line = text + f',"hash":"{digest}"}}\n'.encode()
        if len(line) > MOST_LINE:
            raise AuditError(
                f"event {event!r}: a line of an audit log has at most {MOST_LINE:,} bytes, got {len(line):,}"
            )
        self.lines, self.previous = self.lines + 1, digest
        return line

    def follow(self, line: bytes) -> dict[str, Any]:
        """The content of ``line``, without its line end, if it is what must come here; else BrokenChainError."""
        tail, table = _TAIL.fullmatch(line[-_TAIL_BYTES:]), _parsed(line)
        if tail is None or table is None:
            raise BrokenChainError("it is no line of an audit log: edited, or damaged")
        given, begun = tail[1].decode(), self.previous is not None
        if begun and table["n"] != self.lines + 1:
            raise BrokenChainError(
                f"it says that it is line {table['n']}: lines were removed, put in or moved here, or it was edited"
            )
        if (table["event"] == OPEN) != (table["n"] == 1):
            raise BrokenChainError(
                "a log has its opening line first and nowhere else: edited, or its beginning removed"
            )
        if table["event"] == OPEN:
            self._check_opening(table)
        if not hmac.compare_digest(given, self._digest(line[:-_TAIL_BYTES])):
            raise BrokenChainError("its hash is not that of its content: it was edited, or written under another key")
        if begun and table["previous"] != self.previous:
            raise BrokenChainError("it does not follow the line before it: one of the two was replaced")
        self.lines, self.previous = table["n"], given
        return table

    def _check_opening(self, table: Mapping[str, Any]) -> None:
        """Raise BrokenChainError for a log of another format, or whose hashes are of another kind."""
        if (table.get("format"), table.get("version")) != (FORMAT, VERSION):
            raise BrokenChainError(
                f"it opens a log of the format {_short(table.get('format'))}, version {_short(table.get('version'))};"
                f" this program reads {FORMAT!r}, version {VERSION}"
            )
        if table.get("keyed") is False and self.key is not None:
            raise BrokenChainError(
                f"it opens a log without a key, and one was given (in {KEY_VARIABLE}?): written anew, or begun before"
                " there was a key"
            )
        if table.get("keyed") is not (self.key is not None):
            raise BrokenChainError(
                f"it opens a log with a key, and none was given: name the key's file, or set {KEY_VARIABLE}"
            )

    def _digest(self, text: bytes) -> str:
        if self.key is None:
            return hashlib.sha256(text).hexdigest()
        return hmac.new(self.key, text, hashlib.sha256).hexdigest()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object that ``line`` holds, if it has what every line has, nothing twice."""
    try:
        pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list)
        table = dict(pairs)
    except (ValueError, TypeError, RecursionError):
        return None
    if len(table) != len(pairs) or any(type(table.get(name)) is not kind for name, kind in _KINDS.items()):
        return None
    return table


def _plain(value: Value) -> Value:
    """``value`` as JSON can say it: texts cut to a length, infinite numbers in words."""
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return f"{value[:_MOST_TEXT]}... ({len(value)} characters)"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _short(value: object) -> str:
    return repr(value)[:80]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
