"""Fingerprints of audio that was accepted before, in a file beside the audit log, so that a copy of it is found.

    {"claim": "anna", "time": "2024-05-17T09:30:00Z", "prints": "<base64 of little-endian numbers of 32 bits>"}

The log itself stays free of anything a voice could be told by, and can be shown around; this file is for nobody else
(mode 0600). It is not chained: who can write to it can make the system forget. The newest lines count, up to ten
minutes of audio a claim. A line that a killed process left unfinished is taken off by the next one.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from pipeline.errors import AuditError
from pipeline.files import read_bounded, sync_folder, write_durably
from pipeline.fingerprint import STEP_SECONDS, Prints

SUFFIX = ".fingerprints"
_WAIT_SECONDS = 30.0
_MOST_BYTES = 2**30
# Of one recording, and of all of one claim; comparing costs in proportion.
MOST_OF_ONE = round(60 / STEP_SECONDS)
_MOST_OF_CLAIM = round(600 / STEP_SECONDS)


class ReplayMemory:
    """The file at ``path``, made by the first ``add``."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def beside(cls, log: Path | str) -> ReplayMemory:
        """The one that belongs to the audit log in the file ``log``."""
        log = Path(log)
        return cls(log.with_name(f"{log.name}{SUFFIX}"))

    def known(self, claim: str) -> list[Prints]:
        """Fingerprints (T,) of what was accepted as ``claim``, newest first; raises AuditError."""
        found: list[Prints] = []
        total = 0
        for line in reversed(self._lines()):
            entry = _entry(line, self.path)
            if entry["claim"] != claim:
                continue
            prints = _decoded(entry["prints"], self.path)
            total += len(prints)
            if total > _MOST_OF_CLAIM:
                break
            found.append(prints)
        return found

    def add(self, claim: str, prints: Prints) -> None:
        """Remember the first minute of audio that was accepted as ``claim``; raises AuditError."""
        if not prints.any():
            return
        data = base64.b64encode(prints[:MOST_OF_ONE].astype("<u4").tobytes()).decode()
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = json.dumps({"claim": claim, "time": time, "prints": data}).encode() + b"\n"
        with self._changing() as content:
            self._append(line, whole=content.rfind(b"\n") + 1)

    def forget(self, claim: str) -> int:
        """Erase what was accepted as ``claim``; how many recordings that were. Raises AuditError."""
        if not self.path.exists():
            return 0
        with self._changing() as content:
            lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
            kept = [line for line in lines if _entry(line, self.path)["claim"] != claim]
            partial = self.path.with_name(f"{self.path.name}.new")
            write_durably(partial, b"".join(kept))
            partial.chmod(0o600)
            partial.replace(self.path)
            sync_folder(self.path.parent)
        return len(lines) - len(kept)

    def _lines(self) -> list[bytes]:
        with self._told():
            try:
                content = read_bounded(self.path, _MOST_BYTES)
            except FileNotFoundError:
                return []
        return content[: content.rfind(b"\n") + 1].splitlines()

    @contextmanager
    def _changing(self) -> Iterator[bytes]:
        """Keep other writers out; what the file holds."""
        with self._told(), FileLock(f"{self.path}.lock", timeout=_WAIT_SECONDS, poll_interval=0.01):
            yield read_bounded(self.path, _MOST_BYTES) if self.path.exists() else b""

    def _append(self, line: bytes, *, whole: int) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            file.truncate(whole)
            file.seek(whole)
            try:
                if file.write(line) != len(line):
                    raise OSError("no space is left")
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(whole)
                raise
        if whole == 0:
            sync_folder(self.path.parent)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the file system as AuditError."""
        try:
            yield
        except Timeout:
            raise AuditError(f"{self.path}: another process holds these fingerprints; try again") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise AuditError(f"{self.path}: fingerprints of accepted audio cannot be kept here: {reason}") from error


def _entry(line: bytes, path: Path) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("claim", "prints")):
        raise AuditError(f"{path}: a line is not a claim with its fingerprints; damaged, or another file?")
    return entry


def _decoded(text: str, path: Path) -> Prints:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype="<u4").astype(np.uint32)
    except ValueError:
        raise AuditError(f"{path}: fingerprints in it cannot be read; damaged?") from None
