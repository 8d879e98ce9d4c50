"""Changes of the store: enrollments and removals, each in a process that can be ended before it commits.

One enrollment at a time, for one caller after the other. A removal waits for nobody's enrollment: the one that is being
trained is ended, which leaves the store as it was, and begins again after the removal.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pipeline.errors import ServiceError, StoreBusyError, VoiceclaimError
from pipeline.server.callers import Caller
from pipeline.server.messages import service_error, without_paths
from pipeline.server.settings import Settings
from pipeline.server.utterances import Recordings, Table
from pipeline.server.workers import Bounds, Channel, Worker, Workers
from pipeline.store.store import Store

_NICE, _REMOVAL_NICE = 19, 10
_BUSY_SECONDS = 30.0  # another process may be writing to the store
_PROGRESS_SECONDS = 0.25
_COMMITTING = "committing"
T = TypeVar("T")


class Changes:
    """The changes that callers ask for; at most ``limits.waiting_enrollments`` of a caller wait for their turn."""

    def __init__(self, settings: Settings) -> None:
        self._settings = replace(settings, tokens=None)  # which the processes do not need
        limits = settings.limits
        seconds, waiting = limits.train_seconds, limits.waiting_enrollments
        self._enrollments = Workers("enrollments", 1, Bounds(_NICE, seconds), waiting=waiting)
        self._removals = Workers("removals", 1, Bounds(_REMOVAL_NICE, seconds), waiting=waiting)
        self._training: Worker | None = None  # which has not begun to commit
        self._removing = 0
        self._none_removed = asyncio.Event()
        self._none_removed.set()

    @property
    def waiting(self) -> int:
        """Return how many enrollments and removals wait."""
        return self._enrollments.turns.waiting + self._removals.turns.waiting

    def check_queue(self, caller: Caller) -> None:
        """Raise ServiceError if no more enrollments of ``caller`` may wait."""
        self._enrollments.turns.check(caller)

    async def enroll(
        self,
        caller: Caller,
        name: str,
        recordings: Recordings,
        *,
        add: bool = False,
        progress: Callable[[Table], None] = lambda _table: None,
    ) -> Table:
        """Enroll ``name``, or ``add`` to them, and return the fields of ``Enrolled``; raises ServiceError.

        ``progress`` is called with the ``stage`` of the training and the ``share`` of it that is done.
        """
        while True:
            await self._none_removed.wait()
            table = await self._enroll(caller, name, recordings, add, progress)
            if table is not None:
                return table

    async def _enroll(
        self, caller: Caller, name: str, recordings: Recordings, add: bool, progress: Callable[[Table], None]
    ) -> Table | None:
        """Enroll ``name``; return None where a removal ended it."""
        arguments = (self._settings, name, dict(recordings), add)
        async with self._enrollments.conversation(caller, _enroll, *arguments) as (worker, messages):
            self._training = worker
            try:
                async for message in messages:
                    if message != _COMMITTING and "result" in message:
                        table: Table = message["result"]
                    elif message != _COMMITTING:
                        progress(message)
                    elif self._training is worker:  # and from here on it is not ended
                        self._training = None
                        worker.answer()
            except ServiceError:
                if not worker.was_ended:
                    raise
                return None
            finally:
                self._training = None
        return table

    async def remove(self, caller: Caller, name: str) -> Table:
        """Remove ``name`` and return the fields of ``Removed``; raises ServiceError."""
        self._removing += 1
        self._none_removed.clear()
        try:
            if self._training is not None:
                self._training.end()
                self._training = None
            table: Table = await self._removals.result(caller, _remove, self._settings, name)
            return table
        finally:
            self._removing -= 1
            if not self._removing:
                self._none_removed.set()

    def close(self) -> None:
        """End every process, and what it had not committed."""
        self._enrollments.close()
        self._removals.close()


# In the processes


def _enroll(channel: Channel, settings: Settings, name: str, recordings: Recordings, add: bool) -> Table:
    from pipeline.audio.corpus import Utterance
    from pipeline.enrollment.enroll import enroll
    from pipeline.verification.audit import AuditLog, read_key
    from pipeline.verification.audit_events import record_enrollment

    shown = [(settings.store, "the store"), *recordings.items()]
    speakers = {name: [Utterance(name, path) for path in recordings]}
    store = Store(settings.store, before_commit=lambda: channel.ask(_COMMITTING))
    try:
        config = None if settings.store.exists() else settings.config  # a store has its own
        report = _when_free(
            lambda: enroll(store, speakers, config, add=add, jobs=settings.jobs, progress=_reporter(channel)),
            settings.limits.train_seconds,
        )
        if settings.log is not None:
            record_enrollment(AuditLog(settings.log, key=read_key(settings.log_key)), report)
    except VoiceclaimError as error:
        raise service_error(error, shown) from None
    return {
        **report.summaries[0],
        "revision": report.model.revision,
        "warnings": [without_paths(finding.reason, shown) for finding in report.warnings],
        "skipped": [
            {"file": recordings[path], "reason": without_paths(reason, shown)} for path, reason in report.skipped
        ],
    }


def _reporter(channel: Channel) -> Callable[[str, int, int], None]:
    """Return a callback of ``enroll`` that sends the stage and its share a few times a second."""
    done: Counter[str] = Counter()
    sent = [0.0]

    def report(stage: str, steps: int, total: int) -> None:
        done[stage] += steps
        if time.monotonic() - sent[0] >= _PROGRESS_SECONDS:
            sent[0] = time.monotonic()
            channel.value({"stage": stage, "share": min(1.0, done[stage] / max(total, 1))})

    return report


def _remove(_channel: Channel, settings: Settings, name: str) -> Table:
    from pipeline.enrollment.removal import remove_speaker
    from pipeline.verification.audit import AuditLog, read_key
    from pipeline.verification.audit_events import record_removal

    try:
        left = _when_free(lambda: remove_speaker(settings.store, name, jobs=settings.jobs), _BUSY_SECONDS)
        if settings.log is not None:
            record_removal(AuditLog(settings.log, key=read_key(settings.log_key)), left, name)
    except VoiceclaimError as error:
        raise service_error(error, [(settings.store, "the store")]) from None
    return {"removed": name, "left": len(left.names), "revision": left.revision}


def _when_free(write: Callable[[], T], seconds: float) -> T:
    """Call ``write``, again and again while another process writes to the store."""
    until = time.monotonic() + seconds
    while True:
        try:
            return write()
        except StoreBusyError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.2)
