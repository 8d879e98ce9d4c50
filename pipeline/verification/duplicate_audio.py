"""Fingerprints of accepted audio, in an SQLite file beside the audit log, to detect later duplicates of that audio.

The log itself holds no biometric data and can be shared; this file is private (mode 0600), and data erased from it is
overwritten. It has no hash chain: anyone who can write to it can remove fingerprints. Speakers are identified by their
random ids, not by name. The newest recordings of each are kept: up to ten minutes, for a year.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from pipeline.errors import AuditError, StoreError, StoreMissingError
from pipeline.features.fingerprints import STEP_SECONDS, Prints
from pipeline.files import beside
from pipeline.store.keys import Key
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.private_file import transaction

SUFFIX = ".fingerprints"
KEPT_DAYS = 365
# Fingerprints kept of one recording, and of one speaker; comparing with them is linear in their number.
MOST_OF_ONE = round(60 / STEP_SECONDS)
_MAX_OF_SPEAKER = round(600 / STEP_SECONDS)
_SCHEMA = (
    "DROP TABLE IF EXISTS accepted",  # of an earlier version, by names
    "CREATE TABLE IF NOT EXISTS recording (number INTEGER PRIMARY KEY, store TEXT NOT NULL, speaker INTEGER NOT NULL,"
    " time TEXT NOT NULL, prints BLOB NOT NULL CHECK (typeof(prints) = 'blob' AND length(prints) % 4 = 0))",
    "CREATE INDEX IF NOT EXISTS recording_speaker ON recording (store, speaker, number, length(prints))",
    "CREATE INDEX IF NOT EXISTS recording_time ON recording (time)",
)


class DuplicateMemory:
    """Fingerprints of accepted audio, in an SQLite file.

    Parameters
    ----------
    path : path
        The file, which the first ``add`` creates.
    key : bytes, optional
        Key of the seal of the stores on which the audio was accepted, as for ``Store``.
    """

    def __init__(self, path: Path | str, *, key: Key = None) -> None:
        self.path, self._key = Path(path), key

    @classmethod
    def beside(cls, log: Path | str) -> DuplicateMemory:
        """Return the fingerprints that belong to the audit log in the file ``log``; raises AuditError."""
        log = Path(log)
        try:
            return cls(beside(log, SUFFIX))
        except OSError as error:
            raise AuditError(f"{log}: no fingerprints of audio can be kept beside it: {error.strerror}") from None

    def known(self, model: SpeakerModel, claim: str) -> list[Prints]:
        """Return the fingerprints (T,) of audio accepted as ``claim``, newest first; raise AuditError."""
        query = "SELECT prints FROM recording WHERE store = ? AND speaker = ? ORDER BY number DESC"
        with self._opened() as database:
            rows = database.execute(query, _speaker(model, claim)).fetchall()
        return [np.frombuffer(data, dtype="<u4").astype(np.uint32) for (data,) in rows]

    def add(self, model: SpeakerModel, claim: str, prints: Prints) -> None:
        """Store the fingerprints of the first minute of audio accepted as ``claim``; raise AuditError.

        Nothing is kept for a speaker who was removed from the store after ``model`` was read from it.
        """
        if not prints.any():
            return
        speaker, now = _speaker(model, claim), datetime.now(UTC)
        entry = (*speaker, _text_of(now), prints[:MOST_OF_ONE].astype("<u4").tobytes())
        with self._opened(create=True) as database:
            # A removal changes the store first and this file second, so either this check or the removal itself
            # catches the fingerprints of a removed speaker.
            if not self._is_enrolled(model, claim):
                return
            database.execute("INSERT INTO recording (store, speaker, time, prints) VALUES (?, ?, ?, ?)", entry)
            # Where the clock was set back, recordings are in the future.
            database.execute("UPDATE recording SET time = :now WHERE time > :now", {"now": _text_of(now)})
            database.execute("DELETE FROM recording WHERE time < ?", (_text_of(now - timedelta(days=KEPT_DAYS)),))
            database.execute(
                "DELETE FROM recording WHERE number IN (SELECT number FROM (SELECT number,"
                " sum(length(prints)) OVER (ORDER BY number DESC) AS total"
                " FROM recording WHERE store = ? AND speaker = ?) WHERE total > ?)",
                (*speaker, 4 * _MAX_OF_SPEAKER),
            )

    def keep_enrolled(self, model: SpeakerModel) -> int:
        """Erase the fingerprints of speakers who are no longer in the store of ``model``; return their number.

        Raises AuditError.
        """
        ids = {speaker.id for speaker in model.speakers}
        with self._opened() as database:
            query = "SELECT DISTINCT speaker FROM recording WHERE store = ?"
            kept = {speaker for (speaker,) in database.execute(query, (model.identity,))}
            gone = [(model.identity, speaker) for speaker in kept - ids]
            database.executemany("DELETE FROM recording WHERE store = ? AND speaker = ?", gone)
        return len(gone)

    def _is_enrolled(self, model: SpeakerModel, claim: str) -> bool:
        """Return whether the speaker is in the store that ``model`` was read from, as it stands now."""
        if not model.identity:
            return True
        try:
            now = Store(model.where, key=self._key).load()
        except StoreMissingError:
            return False
        except StoreError as error:
            raise AuditError(f"{self.path}: cannot find out whether {claim!r} is still enrolled: {error}") from error
        return any((now.identity, speaker.id) == _speaker(model, claim) for speaker in now.speakers)

    def _opened(self, *, create: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self.path, _SCHEMA, "fingerprints of audio cannot be read or written", create=create)


def _speaker(model: SpeakerModel, claim: str) -> tuple[str, int]:
    return model.identity, model.speakers[model.position(claim)].id


def _text_of(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
