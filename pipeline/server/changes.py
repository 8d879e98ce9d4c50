"""Changes of the store: enrollments and removals, each in a process that can be ended before it commits.

One enrollment at a time, for one caller after the other. A removal does not wait for an enrollment in training: it ends
the training, which leaves the store as it was and begins again after the removal. An enrollment is ended only once;
after that, removals wait for it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from pipeline.errors import AuditError, ServiceError, VoiceclaimError
from pipeline.server.callers import Caller
from pipeline.server.messages import Aliases, service_error, without_paths
from pipeline.server.settings import Settings
from pipeline.server.utterances import Recordings, Table
from pipeline.server.workers import Bounds, Channel, Worker, Workers
from pipeline.store.store import Store
from pipeline.store.waiting import when_free
from pipeline.verification.audit import AuditLog

if TYPE_CHECKING:
    from pipeline.enrollment.report import EnrollmentReport

_NICE, _REMOVAL_NICE = 19, 10
_BUSY_SECONDS = 30.0  # another process may be writing to the store
_PROGRESS_SECONDS = 0.25
_COMMITTING = "committing"


@dataclass(eq=False)
class Known:
    """An enrolled speaker as a request found them; the ``id`` changes when recordings are added."""

    id: int


class Changes:
    """The changes that callers ask for; at most ``limits.waiting_enrollments`` of a caller wait for their turn.

    ``aliases`` returns the paths that no error may show.
    """

    def __init__(self, settings: Settings, aliases: Callable[[], Aliases]) -> None:
        self._settings = replace(settings, tokens=None)  # which the processes do not need
        self._aliases = aliases
        limits = settings.limits
        seconds, waiting = limits.train_seconds, limits.waiting_enrollments
        self._enrollments = Workers("enrollments", 1, Bounds(_NICE, seconds, idle=True), waiting=waiting)
        self._removals = Workers("removals", 1, Bounds(_REMOVAL_NICE, seconds), waiting=waiting)
        self._training: Worker | None = None  # which a removal may end
        self._removing = 0
        self._known = WeakSet[Known]()

    @property
    def waiting(self) -> int:
        """Return how many enrollments and removals wait."""
        return self._enrollments.turns.waiting + self._removals.turns.waiting

    def check_queue(self, caller: Caller) -> None:
        """Raise ServiceError if no more enrollments of ``caller`` may wait."""
        self._enrollments.turns.check(caller)

    def known(self, speaker_id: int) -> Known:
        """Return what identifies a speaker until a request to add recordings is done."""
        known = Known(speaker_id)
        self._known.add(known)
        return known

    async def enroll(
        self,
        caller: Caller,
        name: str,
        recordings: Recordings,
        *,
        to: Known | None = None,
        channel: int | None = None,
        progress: Callable[[Table], None] = lambda _table: None,
    ) -> Table:
        """Enroll ``name``, or add recordings ``to`` them; return the fields of ``Enrolled``. Raises ServiceError.

        ``channel``, from 1, of the recordings is read, or the mean of all. ``progress`` is called with the ``stage`` of
        the training and the ``share`` of it that is done.
        """
        async with self._enrollments.turns.place(caller):
            table = await self._train(name, recordings, to, channel, progress, may_be_ended=True)
            if not table:  # a removal ended it, and the next ones wait for it
                async with self._removals.turns.place(caller):
                    table = await self._train(name, recordings, to, channel, progress)
            return table

    async def _train(
        self,
        name: str,
        recordings: Recordings,
        to: Known | None,
        channel: int | None,
        progress: Callable[[Table], None],
        *,
        may_be_ended: bool = False,
    ) -> Table:
        """Enroll as ``enroll``; return an empty table if a removal ended it, which takes ``may_be_ended``."""
        known_id = None if to is None else to.id
        arguments = (self._settings, self._aliases(), name, dict(recordings), known_id, channel)
        async with self._enrollments.begun(_enroll, *arguments) as (worker, messages):
            if may_be_ended and self._removing:
                return {}
            self._training = worker if may_be_ended else None
            try:
                async for message in messages:
                    if message == _COMMITTING:
                        self._training = None  # from here on no removal ends it
                        if not worker.was_ended:
                            worker.answer()
                    elif "result" in message:
                        table: Table = message["result"]
                    else:
                        progress(message)
            except ServiceError:
                if may_be_ended and worker.was_ended:
                    return {}
                raise
            finally:
                self._training = None
        new_id = table.pop("id")
        for known in self._known:
            known.id = new_id if known.id == known_id else known.id
        return table

    async def remove(self, caller: Caller, name: str) -> Table:
        """Remove ``name`` and return the fields of ``Removed``; raises ServiceError."""
        self._removing += 1
        try:
            if self._training is not None:
                self._training.end()
                self._training = None
            arguments = (self._settings, self._aliases(), name)
            async with self._removals.conversation(caller, _remove, *arguments) as (worker, messages):
                async for message in messages:
                    if message == _COMMITTING:
                        worker.answer()
                    else:
                        table: Table = message["result"]
            return table
        finally:
            self._removing -= 1

    def close(self) -> None:
        """End every process; what it had not committed is lost."""
        self._enrollments.close()
        self._removals.close()


# In the processes


def _enroll(
    channel: Channel,
    settings: Settings,
    aliases: Aliases,
    name: str,
    recordings: Recordings,
    known_id: int | None,
    chosen: int | None,
) -> Table:
    from pipeline.audio.corpus import Utterance
    from pipeline.enrollment.enroll import enroll
    from pipeline.verification.audit_events import record_enrollment

    aliases = [*aliases, *recordings.items()]
    speakers = {name: [Utterance(name, path, channel=chosen) for path in recordings]}

    def check_known() -> None:
        if known_id is not None and known_id not in {speaker.id for speaker in Store(settings.store).load().speakers}:
            detail = f"{name!r}: no such speaker is enrolled any more, and nothing was changed"
            raise ServiceError(404, detail, kind="UnknownSpeakerError")

    def before_commit() -> None:
        check_known()  # nobody else can write to the store now
        _ask_to_commit(channel, settings)

    store = Store(settings.store, before_commit=before_commit)
    try:
        check_known()
        config = settings.config if store.state() is None else None  # a store has its own
        report = when_free(
            lambda: enroll(
                store, speakers, config, add=known_id is not None, jobs=settings.jobs, progress=_reporter(channel)
            ),
            settings.limits.train_seconds,
        )
        _log_change(settings, lambda log: record_enrollment(log, report))
    except VoiceclaimError as error:
        raise service_error(error, aliases) from None
    return _enrolled(report, recordings, aliases)


def _enrolled(report: EnrollmentReport, recordings: Recordings, aliases: Aliases) -> Table:
    """Return the fields of ``Enrolled``, and the speaker's id in the store."""
    return {
        **report.summaries[0],
        "id": report.enrolled[0].id,
        "revision": report.model.revision,
        "warnings": [without_paths(finding.reason, aliases) for finding in report.warnings],
        "skipped": [
            {"file": recordings[path], "reason": without_paths(reason, aliases)} for path, reason in report.skipped
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


def _remove(channel: Channel, settings: Settings, aliases: Aliases, name: str) -> Table:
    from pipeline.enrollment.removal import remove_speaker
    from pipeline.verification.audit_events import record_removal, recorded

    store = Store(settings.store, before_commit=lambda: _ask_to_commit(channel, settings))
    try:
        left = recorded(
            lambda: when_free(lambda: remove_speaker(store, name, jobs=settings.jobs), _BUSY_SECONDS),
            lambda left: _log_change(settings, lambda log: record_removal(log, left, name)),
        )
    except VoiceclaimError as error:
        raise service_error(error, aliases) from None
    return {"removed": name, "left": len(left.names), "revision": left.revision}


def _ask_to_commit(channel: Channel, settings: Settings) -> None:
    """Wait until the service lets this process commit; raises AuditError where the change could not be logged."""
    if (log := settings.audit_log) is not None:
        log.check_writable()
    channel.ask(_COMMITTING)


def _log_change(settings: Settings, record: Callable[[AuditLog], None]) -> None:
    """Record a change that was made, if there is a log; raises AuditError, which says that the change was made."""
    try:
        if (log := settings.audit_log) is not None:
            record(log)
    except AuditError as error:
        raise AuditError(f"the change was made, but its record failed: {error}") from None
