"""The state of one service: the newest model, threads, processes, metrics, and the callers' shares."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from pipeline.errors import ServiceError, SpeakerExistsError, StreamClosedError, UnknownSpeakerError, VoiceclaimError
from pipeline.names import checked_name, normal, twin_of
from pipeline.scoring.decisions import Decision, Update
from pipeline.scoring.sequential import SequentialTest
from pipeline.server.callers import Caller, Shares, Turns
from pipeline.server.changes import Changes, Known
from pipeline.server.logs import log_event
from pipeline.server.metrics import Metrics
from pipeline.server.newest import NewestModel, VerifierSettings, speaker_key
from pipeline.server.scorers import Scorers
from pipeline.server.settings import Settings
from pipeline.server.spool import Spool
from pipeline.server.utterances import Recordings
from pipeline.server.workers import Bounds, Workers, started_threads
from pipeline.store.model import SpeakerModel
from pipeline.verification.attempts import Attempts, Outcome
from pipeline.verification.audit_events import (
    duplicate_memory,
    identification_recorder,
    record_delay,
    verification_recorder,
)
from pipeline.verification.duplicate_audio import DuplicateMemory
from pipeline.verification.identification import Identification
from pipeline.verification.identifier import Identifier
from pipeline.verification.verifier import Verifier

_FILES_NICE = 10  # a caller with a file waits for its end, one who speaks for every word
Pool = Literal["scoring", "disk", "log", "machines"]
T = TypeVar("T")


class Service:
    """One service, its threads and processes; ``close`` ends them."""

    def __init__(self, settings: Settings, *, threads: int) -> None:
        limits = settings.limits
        self.settings = settings
        self.metrics = Metrics()
        self.streams = Shares("streams", limits.streams, max(1, int(limits.share * limits.streams)))
        self.changes = Changes(settings, aliases=lambda: self.aliases)
        decoding = Bounds(_FILES_NICE, limits.decode_seconds, limits.decode_memory)
        self.decoders = Workers("files to decode", threads, decoding, waiting=limits.waiting)
        if limits.share < 1:
            self.decoders.turns.keep_one()
        self.parsing = Turns("forms to parse", 1, waiting=limits.connections)
        self._scoring = Turns("pieces of audio to score", threads, waiting=limits.streams)
        verifiers = VerifierSettings(
            settings.store, limits.verifiers, settings.unknown_impostors, settings.decide_by, settings.log
        )
        scorers = partial(Scorers, verifiers, threads, waiting=limits.streams, aliases=lambda: self.aliases)
        self.scorers, self.file_scorers = scorers(), scorers(claims_each=1, nice=_FILES_NICE)
        every = (self._scoring, self.scorers, self.file_scorers)
        self.metrics.watch("scoring", lambda: sum(each.waiting for each in every))
        for what, turns in (("decoding", self.decoders.turns), ("changes", self.changes)):
            self.metrics.watch(what, partial(getattr, turns, "waiting"))
        self._newest = NewestModel(verifiers)
        self._attempts = None if settings.attempts is None else Attempts.beside(settings.store, settings.attempts)
        sizes: dict[Pool, int] = {"scoring": threads, "disk": 4, "log": 4, "machines": 1}
        self._pools = {name: started_threads(size, name) for name, size in sizes.items()}
        self.spool = Spool(settings.spool, limits.spool_bytes)  # last: nothing else deletes it
        self.room = Shares("bytes of uploads", self.spool.bytes, max(1, int(limits.share * self.spool.bytes)))

    @property
    def aliases(self) -> list[tuple[Path, str]]:
        """Return paths that no caller is told, with the names that stand for them."""
        settings = self.settings
        aliases = [(settings.store, "the store"), (self.spool.folder, "uploads"), *self._newest.aliases]
        if self._attempts is not None:
            aliases.append((self._attempts.path, "the attempts"))
        if settings.log is not None:
            aliases += [
                (DuplicateMemory.beside(settings.log).path, "the fingerprints"),
                (settings.log, "the audit log"),
            ]
        if settings.log_key is not None:
            aliases.append((settings.log_key, "the key of the audit log"))
        return aliases

    async def run(self, pool: Pool, work: Callable[..., T], *arguments: object) -> T:
        """Run ``work`` off the event loop, in a thread of ``pool``; work on the log may wait for other processes."""
        return await asyncio.get_running_loop().run_in_executor(self._pools[pool], work, *arguments)

    @asynccontextmanager
    async def private_folder(self) -> AsyncIterator[Path]:
        """Give a folder for the recordings of one request, which is deleted at the end of the block."""
        folder = await self.run("disk", self.spool.private_folder)
        try:
            yield folder
        finally:
            await self.run("disk", self.spool.erase, folder)

    async def score(self, caller: Caller, work: Callable[..., T], *arguments: object) -> T:
        """Run ``work`` on a piece of audio of ``caller`` in a thread, in turn; claims have ``scorers``."""
        async with self._scoring.place(caller):
            return await self.run("scoring", work, *arguments)

    async def model(self) -> SpeakerModel | None:
        """Return the newest model, None before the first enrollment."""
        model = await self.run("disk", self._newest.current)
        self.metrics.revision.set(0 if model is None else model.revision)
        self.metrics.speakers.set(0 if model is None else len(model.names))
        return model

    async def verifier(self, claim: str, system: str | None, early: SequentialTest | None = None) -> Verifier:
        """Return a verifier of the newest revision; raises VoiceclaimError."""
        return await self.run("machines", self._newest.verifier, claim, system, early)

    async def claimed(
        self, caller: Caller, claim: str, system: str | None, early: SequentialTest | None = None
    ) -> Verifier:
        """Return ``verifier`` for a claim of ``caller``; a claim that cannot be judged is recorded.

        A claim to be somebody who is not enrolled counts as failed. Raises VoiceclaimError.
        """
        claim = normal(claim)
        try:
            return await self.verifier(claim, system, early)
        except VoiceclaimError as error:
            if self._attempts is not None and isinstance(error, UnknownSpeakerError):
                await self.run("log", self._attempts.fail, caller.key)
            await self.record(claim, None, error)
            raise

    async def identifier(self) -> Identifier:
        """Return an identifier of the newest revision; raises VoiceclaimError, also where nobody is enrolled."""
        found = await self.run("machines", self._newest.identifier)
        if found is None:
            raise ServiceError(409, "nobody is enrolled yet", kind="UnknownSpeakerError")
        return found

    async def enroll(
        self,
        caller: Caller,
        name: str,
        recordings: Recordings,
        *,
        to: Known | None = None,
        channel: int | None = None,
        progress: Callable[[dict[str, Any]], None] = lambda _table: None,
    ) -> dict[str, Any]:
        """Enroll as ``Changes.enroll``, and note how long it took."""
        started = time.perf_counter()
        try:
            return await self.changes.enroll(caller, name, recordings, to=to, channel=channel, progress=progress)
        finally:
            seconds = time.perf_counter() - started
            self.metrics.enrollment_seconds.observe(seconds)
            log_event("enrollment", recordings=len(recordings), added=to is not None, seconds=seconds)

    def check_enrolled(self, verifier: Verifier) -> None:
        """Raise StreamClosedError if the speaker has been removed since ``verifier`` was made."""
        self._newest.check_enrolled(verifier)

    def check_found(self, found: Identification) -> None:
        """Raise StreamClosedError if somebody who was ``found`` has been removed meanwhile."""
        model = self._newest.current()
        if model is None or not {candidate.name for candidate in found.candidates} <= set(model.names):
            raise StreamClosedError("a speaker has been removed meanwhile; there is no identification")

    async def check_new(self, caller: Caller, name: str) -> tuple[str, SpeakerModel | None]:
        """Return ``name`` as it is to be enrolled, and the model, if there is one; raises if it cannot be enrolled."""
        name = checked_name(name)
        self.changes.check_queue(caller)
        model = await self.model()
        if model is not None:
            twin = await self.run("disk", twin_of, name, [speaker.name for speaker in model.speakers])
            if twin == name:
                raise SpeakerExistsError(
                    f"{name!r} is enrolled already; add to their recordings, or remove them first"
                    if name in model.names
                    else f"{name!r} is a background speaker; choose another name"
                )
            if twin is not None:
                raise SpeakerExistsError(f"{name!r} looks like {twin!r}, who is enrolled; choose another name")
        return name, model

    async def known(self, name: str) -> tuple[str, Known]:
        """Return ``name`` as it is enrolled, and what identifies the speaker from now on; raises ServiceError."""
        model = await self.model()
        plain = normal(name)
        if model is None or plain not in model.names:
            raise ServiceError(404, f"{name!r}: no such speaker is enrolled", kind="UnknownSpeakerError")
        return plain, self.changes.known(model.speaker(plain).id)

    @contextmanager
    def stream(self, kind: str, caller: Caller) -> Iterator[None]:
        """Count one more stream until the end of the block; raises ServiceError beyond the limits."""
        with self.streams.of(caller) as share:
            share.take(1)
            self.metrics.streams.labels(kind).inc()
            try:
                yield
            finally:
                self.metrics.streams.labels(kind).dec()

    @asynccontextmanager
    async def attempt(self, caller: Caller, verifier: Verifier) -> AsyncIterator[Attempt]:
        """Count an attempt, and at the end of the block how it ended; raises TooManyAttemptsError."""
        attempt, speaker = Attempt(), speaker_key(verifier)
        if self._attempts is None:
            yield attempt
            return
        await self.run("log", self._attempts.begin, caller.key, speaker)
        try:
            yield attempt
        except VoiceclaimError:
            attempt.outcome = attempt.outcome or "not scored"
            raise
        finally:
            await self.run("log", self._end_attempt, self._attempts, caller, verifier, attempt)

    def _end_attempt(self, attempts: Attempts, caller: Caller, verifier: Verifier, attempt: Attempt) -> None:
        seconds = attempts.end(caller.key, speaker_key(verifier), attempt.outcome or "failed")
        if seconds and (log := self.settings.audit_log) is not None:
            record_delay(log, verifier.model, verifier.claim, seconds)

    async def record(
        self, claim: str, verifier: Verifier | None, outcome: Update | VoiceclaimError, channel: int | None = None
    ) -> None:
        """Count the outcome of a claim, and write it to the audit log if there is one; raises AuditError.

        ``channel`` is the one that was chosen of a file.
        """
        decision = str(outcome.decision) if isinstance(outcome, Update) else "error"
        self.metrics.decisions.labels(decision).inc()
        if isinstance(outcome, Update):
            self.metrics.duplicates.inc(bool(outcome.duplicate_suspected))
            log_event("decision", decision=decision, speech_seconds=outcome.speech_seconds)
        await self.run("log", self._log, claim, verifier, outcome, channel)

    def _log(
        self, claim: str, verifier: Verifier | None, outcome: Update | VoiceclaimError, channel: int | None
    ) -> None:
        model = self._newest.current() if verifier is None else verifier.model
        if model is not None:
            verification_recorder(self.settings.audit_log, model, claim, channel=channel)(verifier, None, outcome)

    def log_identification(self, identifier: Identifier, found: Identification, channel: int | None) -> None:
        """Write an identification to the audit log, if there is one; raises AuditError."""
        identification_recorder(self.settings.audit_log, identifier, channel=channel)(None, found)

    def start(self) -> None:
        """Start the processes that score; raises VoiceclaimError."""
        model, memory = self._newest.current(), duplicate_memory(self.settings.log)
        if memory is not None and model is not None:  # speakers may have been removed while no service was running
            memory.keep_enrolled(model)
        with ThreadPoolExecutor() as threads:
            list(threads.map(Scorers.start, (self.scorers, self.file_scorers)))

    def close(self) -> None:
        """End the threads and the processes, and delete the uploads."""
        self.changes.close()
        self.decoders.close()
        self.scorers.close()
        self.file_scorers.close()
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        self.spool.close()


@dataclass(slots=True)
class Attempt:
    """The outcome of an attempt; None while nothing is known."""

    outcome: Outcome | None = None

    def note(self, update: Update) -> None:
        """Note the final state."""
        known: dict[Decision, Outcome] = {Decision.ACCEPTED: "accepted", Decision.NOT_ENOUGH_SPEECH: "not scored"}
        self.outcome = known.get(update.decision, "failed")
