"""The state of one service: the newest model, threads, metrics, the process that enrolls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Literal, TypeVar

import numpy as np

from pipeline.errors import (
    InputError,
    ServiceError,
    SpeakerExistsError,
    StoreMissingError,
    UnknownSpeakerError,
    VoiceclaimError,
)
from pipeline.scoring.decisions import Update
from pipeline.scoring.sequential import SequentialTest
from pipeline.server.enrollment import EnrollmentProcess
from pipeline.server.metrics import Metrics
from pipeline.server.settings import Settings
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Stamp, Store
from pipeline.verification.audit_events import duplicate_memory, verification_recorder
from pipeline.verification.duplicate_audio import DuplicateMemory
from pipeline.verification.policies import policy_of
from pipeline.verification.verifier import Verifier

Pool = Literal["scoring", "decoding", "disk", "machines"]
T = TypeVar("T")


class NewestModel:
    """The newest model in the store at ``path``, which need not exist yet, and its ``most`` latest verifiers.

    A ``Verifier`` keeps the model that it was made of. ``unknown_impostors`` is that of ``Store.load``, ``memory`` that
    of ``Verifier``. Thread-safe.
    """

    def __init__(
        self, path: Path, *, most: int, unknown_impostors: float | None = None, memory: DuplicateMemory | None = None
    ) -> None:
        self._store = Store(path)
        self._unknown = unknown_impostors
        self._memory = memory
        self._opening = Lock()
        self._stamp: Stamp | None = None
        self._model: SpeakerModel | None = None
        self._making = Lock()
        self._verifier = lru_cache(most)(self._make)

    def current(self) -> SpeakerModel | None:
        """Return the newest model, None before the first enrollment, at the cost of a ``stat`` while nothing changes.

        Raises StoreFormatError or StoreSealError.
        """
        stamp = self._store.stamp()
        if stamp == self._stamp:
            return self._model
        with self._opening:
            if stamp != self._stamp:
                self._read()
                self._stamp = stamp
            return self._model

    def _read(self) -> None:
        try:
            model = self._store.load(unknown_impostors=self._unknown)
        except StoreMissingError:
            self._model = None
            return
        known = self._model
        if known is None or (known.identity, known.revision) != (model.identity, model.revision):
            self._model = model
            self._verifier.cache_clear()

    def verifier(self, claim: str, system: str | None = None, early: SequentialTest | None = None) -> Verifier:
        """Return a verifier of the newest model; raises what ``Verifier`` raises. The first one reads machines."""
        with self._making:
            model = self.current()
            if model is None:
                raise UnknownSpeakerError(claim)
            return self._verifier(model, claim, system, early)

    def _make(self, model: SpeakerModel, claim: str, system: str | None, early: SequentialTest | None) -> Verifier:
        return Verifier(model, claim, system=system, decide_by=policy_of(sequential=early), memory=self._memory)


def threshold_probability(verifier: Verifier, frames: int) -> float | None:
    """Return the probability of a target trial at the threshold after ``frames`` of speech; None without one."""
    if frames == 0:
        return None
    llr = verifier.decider.llr_threshold
    if llr is None:
        llrs = verifier.model.llrs(verifier.system, np.array([verifier.decider.threshold]), frames)
        llr = None if llrs is None else float(llrs[0])
    return verifier.probability(llr)


class Service:
    """One service, its threads started; ``close`` ends them."""

    def __init__(self, settings: Settings, *, threads: int) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.enrollment = EnrollmentProcess(settings)
        self._newest = NewestModel(
            settings.store,
            most=settings.limits.verifiers,
            unknown_impostors=settings.unknown_impostors,
            memory=duplicate_memory(settings.log),
        )
        sizes: dict[Pool, int] = {"scoring": threads, "decoding": 2, "disk": 4, "machines": 1}
        self._pools = {name: ThreadPoolExecutor(size, thread_name_prefix=name) for name, size in sizes.items()}
        self._streams = 0

    async def run(self, pool: Pool, work: Callable[..., T], *arguments: object) -> T:
        """Run ``work`` off the event loop, in a thread of ``pool``."""
        return await asyncio.get_running_loop().run_in_executor(self._pools[pool], work, *arguments)

    async def model(self) -> SpeakerModel | None:
        """Return the newest model, None before the first enrollment."""
        model = await self.run("disk", self._newest.current)
        self.metrics.revision.set(0 if model is None else model.revision)
        self.metrics.speakers.set(0 if model is None else len(model.names))
        return model

    async def verifier(self, claim: str, system: str | None, early: SequentialTest | None = None) -> Verifier:
        """Return a verifier of the newest revision; raises VoiceclaimError."""
        return await self.run("machines", self._newest.verifier, claim, system, early)

    async def check_new(self, name: str) -> SpeakerModel | None:
        """Raise unless ``name`` can be enrolled now; return the model, if there is one."""
        most = self.settings.limits.name_characters
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError("a name must be text, got half a surrogate pair") from None
        if not name or name in (".", "..") or len(name) > most or {"\0", "\ufffd"} & set(name):
            raise InputError(
                f"a name has 1 to {most} characters of UTF-8, none of them NUL, and is not . or .., which no URL can"
                " carry"
            )
        self.enrollment.check_queue()
        model = await self.model()
        if model is not None and name in {speaker.name for speaker in model.speakers}:
            raise SpeakerExistsError(f"{name!r} is enrolled already; remove them first")
        return model

    async def check_known(self, name: str) -> None:
        """Raise unless ``name`` is enrolled."""
        model = await self.model()
        if model is None or name not in {speaker.name for speaker in model.speakers}:
            raise ServiceError(404, f"{name!r}: no such speaker is enrolled", kind="UnknownSpeakerError")

    @contextmanager
    def stream(self, kind: str) -> Iterator[None]:
        """Count one more stream until the end of the block; raises ServiceError beyond the limit."""
        most = self.settings.limits.streams
        if self._streams >= most:
            raise ServiceError(503, f"{most} streams are open, and there may be no more; try again later")
        self._streams += 1
        self.metrics.streams.labels(kind).inc()
        try:
            yield
        finally:
            self._streams -= 1
            self.metrics.streams.labels(kind).dec()

    async def record(self, claim: str, verifier: Verifier | None, outcome: Update | VoiceclaimError) -> None:
        """Count the outcome of a claim, and write it to the audit log if there is one; raises AuditError."""
        decision = str(outcome.decision) if isinstance(outcome, Update) else "error"
        self.metrics.decisions.labels(decision).inc()
        await self.run("disk", self._log, claim, verifier, outcome)

    def _log(self, claim: str, verifier: Verifier | None, outcome: Update | VoiceclaimError) -> None:
        model = self._newest.current() if verifier is None else verifier.model
        if self.settings.log is not None and model is not None:
            recorder = verification_recorder(self.settings.log, model, claim, key_file=self.settings.log_key)
            recorder(verifier, None, outcome)

    def close(self) -> None:
        """End the threads and the process that enrolls."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        self.enrollment.close()
