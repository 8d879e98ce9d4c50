"""Failed claims, in an SQLite file: a caller who fails too often at one claim, or at many, has to wait.

An attempt counts as failed until it is accepted: a caller gains no attempts by starting many at once or breaking them
off. An attempt with too little speech to be scored does not count. The file identifies speakers by their random ids,
and callers by hashes of their tokens.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.errors import TooManyAttemptsError
from pipeline.verification.private_file import transaction

SUFFIX = ".attempts"
Outcome = Literal["accepted", "failed", "not scored"]
_FORGET_SECONDS = 7 * 24 * 3600.0
_HOUR = 3600.0
_DELAY_SECONDS = 30.0
_TABLE = (
    "CREATE TABLE IF NOT EXISTS failed (caller TEXT NOT NULL, speaker TEXT NOT NULL, failures REAL NOT NULL,"
    " last REAL NOT NULL, PRIMARY KEY (caller, speaker)) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """Limits of failed attempts, beyond which a caller has to wait.

    After ``failures`` in a row for one claim, each further attempt has to wait: 30 seconds at first, and twice as long
    after each further failure, up to ``lockout_seconds``. An acceptance ends the row. Over all claims, a caller may
    fail ``caller_failures`` times an hour, whatever is accepted.
    """

    failures: int = 5
    lockout_seconds: float = 3600.0
    caller_failures: int = 100

    def wait(self, failures: float) -> float:
        """Return the seconds from the last of so many failures to the next attempt."""
        if failures < self.failures:
            return 0.0
        return min(_DELAY_SECONDS * math.pow(2.0, min(failures - self.failures, 64)), self.lockout_seconds)


class Attempts:
    """The failures in the file ``path``, which is made when it is first needed. All methods raise AuditError."""

    def __init__(self, path: Path | str, limits: AttemptLimits) -> None:
        self.path = Path(path)
        self.limits = limits

    @classmethod
    def beside(cls, store: Path, limits: AttemptLimits) -> Attempts:
        """Return the failures that belong to ``store``: all services of a store count together."""
        return cls(store.with_name(f"{store.name}{SUFFIX}"), limits)

    def begin(self, caller: str, speaker: str) -> None:
        """Count an attempt of ``caller`` to be ``speaker`` as failed; raises TooManyAttemptsError if they must wait."""
        with self._opened() as database:
            now = time.time()
            failures, last = _row(database, caller, speaker)
            self._count(database, caller, now, last + self.limits.wait(failures) - now)
            _write(database, caller, speaker, failures + 1, now)

    def fail(self, caller: str) -> None:
        """Count a claim of ``caller`` to be an unknown speaker; raises TooManyAttemptsError if they must wait."""
        with self._opened() as database:
            self._count(database, caller, time.time(), 0.0)

    def end(self, caller: str, speaker: str, outcome: Outcome) -> float:
        """Record the outcome of an attempt, and return the seconds until the caller's next one."""
        with self._opened() as database:
            now = time.time()
            failures, _ = _row(database, caller, speaker)
            if outcome == "accepted":
                failures = 0
            elif outcome == "not scored":
                failures = max(0, failures - 1)
            if outcome != "failed":
                _write(database, caller, "", max(0.0, self._recent(database, caller, now) - 1), now)
            _write(database, caller, speaker, failures, now)
            database.execute("DELETE FROM failed WHERE failures = 0 OR last < ?", (now - _FORGET_SECONDS,))
        return self.limits.wait(failures)

    def _count(self, database: sqlite3.Connection, caller: str, now: float, wait: float) -> None:
        """Count one more failure over all claims; raises TooManyAttemptsError for one too many, or with a ``wait``."""
        failures = self._recent(database, caller, now) + 1
        too_many = failures - self.limits.caller_failures
        if too_many > 0:
            wait = max(wait, too_many * _HOUR / self.limits.caller_failures)
        if wait > 0:
            raise TooManyAttemptsError(wait)
        _write(database, caller, "", failures, now)

    def _recent(self, database: sqlite3.Connection, caller: str, now: float) -> float:
        """Return the failures of ``caller`` over all claims, which decay to none in an hour."""
        failures, last = _row(database, caller, "")
        return max(0.0, failures - (now - last) * self.limits.caller_failures / _HOUR)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction of the only writer."""
        with transaction(self.path, (_TABLE,), "failed attempts cannot be counted") as database:
            # Where the clock was set back, failures are in the future: they count as of now.
            database.execute("UPDATE failed SET last = :now WHERE last > :now", {"now": time.time()})
            database.commit()  # also if the attempt is refused
            database.execute("BEGIN IMMEDIATE")
            yield database


def _row(database: sqlite3.Connection, caller: str, speaker: str) -> tuple[float, float]:
    query = "SELECT failures, last FROM failed WHERE caller = ? AND speaker = ?"
    found: tuple[float, float] | None = database.execute(query, (caller, speaker)).fetchone()
    return found or (0, 0.0)


def _write(database: sqlite3.Connection, caller: str, speaker: str, failures: float, last: float) -> None:
    database.execute("INSERT OR REPLACE INTO failed VALUES (?, ?, ?, ?)", (caller, speaker, failures, last))
