"""Chain of an audit log: JSON lines that each hold the hash of the line before.

    {"n":3,"time":"2024-05-17T09:30:00.123456Z","event":"verify",...,"previous":"<hash of line 2>","hash":"<of this>"}

A line's hash is the SHA-256 of its bytes up to the hash itself, or HMAC-SHA-256 with a key. A line that is changed,
removed, inserted or moved breaks the chain, and ``check_log`` names it. Two attacks leave a valid chain: removing
lines at the end, and, without a key, rewriting the whole log. Against both, store the last hash elsewhere from time to
time and give it as the ``anchor``; against the second, use a key. The key must be readable by the process that
appends: it protects against everybody else.
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
OPEN, REPAIR = "open", "repair"

Value = str | int | float | bool | None

MAX_LINE = 2**17  # bytes
BEGINNING = b'{"n":'  # of every line
_MAX_TEXT = 1000  # characters of one value
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_TAIL_BYTES = len(',"hash":""}') + 64
_TYPES = {"n": int, "time": str, "event": str, "previous": str, "hash": str}


@dataclass
class Chain:
    """Position in a chain: ``lines`` passed, and ``previous``, the hash of the last (None: entered in the middle)."""

    key: bytes | None
    lines: int = 0
    previous: str | None = "0" * 64

    def opening(self) -> bytes:
        """Return the first line of a log: its format, a new id, and whether its hashes are keyed."""
        about: dict[str, Value] = {"format": FORMAT, "version": VERSION, "log": secrets.token_hex(16)}
        return self.line(OPEN, {**about, "keyed": self.key is not None})

    def line(self, event: str, fields: Mapping[str, Value]) -> bytes:
        """Return the next line, with its line end, and move on to it.

        Texts are cut to 1000 characters. Raises AuditError for a field with a name that every line uses, and for a line
        that gets too long.
        """
        if taken := fields.keys() & _TYPES.keys():
            raise AuditError(f"event {event!r}: field {min(taken)!r} is the log's own; give it another name")
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        body: dict[str, Value] = {"n": self.lines + 1, "time": time, "event": event}
        body |= {name: _as_json(value) for name, value in fields.items()}
        text = json.dumps({**body, "previous": self.previous}, separators=(",", ":"), allow_nan=False).encode()[:-1]
        digest = self._digest(text)
        line = text + f',"hash":"{digest}"}}\n'.encode()
        if len(line) > MAX_LINE:
            raise AuditError(
                f"event {event!r}: a line of an audit log has at most {MAX_LINE:,} bytes, got {len(line):,}"
            )
        self.lines, self.previous = self.lines + 1, digest
        return line

    def follow(self, line: bytes) -> dict[str, Any]:
        """Return the fields of ``line`` (without its line end) if it is valid here; raise AuditError if not."""
        tail, table = _TAIL.fullmatch(line[-_TAIL_BYTES:]), _parsed(line)
        if tail is None or table is None:
            raise AuditError("it is not a line of an audit log: edited, or damaged")
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
                f"it opens a log without a key, but one was given (in {KEY_VARIABLE}?): rewritten, or begun before"
                " there was a key"
            )
        if table.get("keyed") is not (self.key is not None):
            raise AuditError(
                f"it opens a log with a key, but none was given: name the key's file, or set {KEY_VARIABLE}"
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
