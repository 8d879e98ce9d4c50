"""Fingerprints of accepted audio, in an SQLite file beside the audit log, to detect duplicates of it later.

The log itself holds no biometric data and can be shared; this file is private (mode 0600), and data erased from it is
overwritten. It has no hash chain: anyone who can write to it can remove fingerprints. The newest recordings count, up
to ten minutes of audio per claim.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from pipeline.errors import AuditError
from pipeline.features.fingerprints import STEP_SECONDS, Prints
from pipeline.files import open_regular

SUFFIX = ".fingerprints"
_WAIT_SECONDS = 30.0
# Fingerprints kept of one recording, and compared with for one claim; the comparison is linear in them.
MOST_OF_ONE = round(60 / STEP_SECONDS)
_MAX_OF_CLAIM = round(600 / STEP_SECONDS)


class DuplicateMemory:
    """The fingerprints in the file ``path``, which the first ``add`` creates."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def beside(cls, log: Path | str) -> DuplicateMemory:
        """Return the fingerprints that belong to the audit log in the file ``log``."""
        log = Path(log)
        return cls(log.with_name(f"{log.name}{SUFFIX}"))

    def known(self, claim: str) -> list[Prints]:
        """Return the fingerprints (T,) of audio accepted as ``claim``, newest first; raise AuditError."""
        recordings: list[Prints] = []
        total = 0
        with self._opened() as database:
            rows = database.execute("SELECT prints FROM accepted WHERE claim = ? ORDER BY number DESC", (claim,))
            for (data,) in rows:
                total += len(data) // 4
                if total > _MAX_OF_CLAIM:
                    break
                recordings.append(np.frombuffer(data, dtype="<u4").astype(np.uint32))
        return recordings

    def add(self, claim: str, prints: Prints) -> None:
        """Store the fingerprints of the first minute of audio accepted as ``claim``; raise AuditError."""
        if not prints.any():
            return
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self._opened(create=True) as database:
            entry = (claim, time, prints[:MOST_OF_ONE].astype("<u4").tobytes())
            database.execute("INSERT INTO accepted (claim, time, prints) VALUES (?, ?, ?)", entry)

    def forget(self, claim: str) -> int:
        """Erase the fingerprints of ``claim`` and return the number of recordings; raise AuditError."""
        with self._opened() as database:
            return database.execute("DELETE FROM accepted WHERE claim = ?", (claim,)).rowcount

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction (without a file: an empty database); errors become AuditErrors."""
        try:
            if create:
                self.path.touch(mode=0o600)
            name = str(self.path) if create or self.path.exists() else ":memory:"
            if name != ":memory:":
                open_regular(self.path).close()
            with closing(sqlite3.connect(name, timeout=_WAIT_SECONDS)) as database, database:
                database.execute("PRAGMA secure_delete = ON")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS accepted"
                    " (number INTEGER PRIMARY KEY, claim TEXT NOT NULL, time TEXT NOT NULL, prints BLOB NOT NULL)"
                )
                yield database
        except (OSError, ValueError, TypeError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise AuditError(f"{self.path}: fingerprints of audio cannot be read or written: {reason}") from error
