"""What the doors of one service share: the store, who may call, the threads that compute, the counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from pipeline.audit_events import replay_memory, verification_recorder
from pipeline.early import EarlyRule
from pipeline.errors import ServiceError, VoiceclaimError
from pipeline.server.live_store import LiveStore, SharedStore
from pipeline.server.metrics import Metrics
from pipeline.server.settings import Settings
from pipeline.server.training import Trainer
from pipeline.updates import Update
from pipeline.verification import Verifier

T = TypeVar("T")


class Service:
    """One service, its threads started; ``close`` ends them."""

    def __init__(self, settings: Settings, *, threads: int) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.store = LiveStore(
            settings.store,
            most=settings.limits.verifiers,
            outsiders=settings.outsiders,
            memory=replay_memory(settings.log),
        )
        self.trainer = Trainer(settings)
        self.ending = asyncio.Event()
        self._scoring = ThreadPoolExecutor(threads, thread_name_prefix="scoring")
        self._decoding = ThreadPoolExecutor(2, thread_name_prefix="files")
        self._waiting = ThreadPoolExecutor(4, thread_name_prefix="disk")
        self._making = ThreadPoolExecutor(1, thread_name_prefix="machines")
        self._streams = 0

    async def score(self, work: Callable[..., T], *arguments: object) -> T:
        """Run a few milliseconds of maths off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._scoring, work, *arguments)

    async def aside(self, work: Callable[..., T], *arguments: object) -> T:
        """Run what waits for a disk off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, work, *arguments)

    async def verifier(self, claim: str, system: str | None, early: EarlyRule | None = None) -> Verifier:
        """A verifier of the newest revision, whose machines may have to be read first; raises VoiceclaimError."""
        return await asyncio.get_running_loop().run_in_executor(self._making, self.store.verifier, claim, system, early)

    async def decode(self, work: Callable[[], T]) -> T:
        """Run what decodes a whole file off the event loop, two files at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._decoding, work)

    def allow(self, token: str | None, *scopes: str) -> None:
        """Raise ServiceError unless ``token`` allows one of ``scopes``."""
        tokens = self.settings.tokens
        if tokens is None:
            return
        allowed = tokens.scopes_of(token or "")
        if not allowed:
            what = "no token came" if not token else "the token is unknown"
            raise ServiceError(401, f"a bearer token is needed, and {what}", kind="Unauthorized")
        if not allowed & set(scopes):
            raise ServiceError(403, f"the token does not allow this: it needs {' or '.join(scopes)}", kind="Forbidden")

    def check_name(self, name: str) -> None:
        """Raise ServiceError for a name that nobody can be enrolled by here; any other text is one."""
        most = self.settings.limits.name_characters
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise ServiceError(422, "a name must be text: half a surrogate pair came", kind="InputError") from None
        if not name or name in (".", "..") or len(name) > most or "\0" in name:
            raise ServiceError(
                422,
                f"a name has 1 to {most} characters, none of them NUL, and is not . or .., which no URL can carry",
                kind="InputError",
            )

    @contextmanager
    def stream(self, kind: str) -> Iterator[None]:
        """A place among the streams; raises ServiceError when there is none."""
        most = self.settings.limits.streams
        if self.ending.is_set():
            raise ServiceError(503, "the service is shutting down; try again later")
        if self._streams >= most:
            raise ServiceError(503, f"{most} streams are open, and there may be no more; try again later")
        self._streams += 1
        self.metrics.streams.labels(kind).inc()
        try:
            yield
        finally:
            self._streams -= 1
            self.metrics.streams.labels(kind).dec()

    def snapshot(self) -> SharedStore | None:
        """The store as it stands, also to the counters."""
        store = self.store.current()
        self.metrics.revision.set(0 if store is None else store.manifest.revision)
        self.metrics.speakers.set(0 if store is None else len(store.names))
        return store

    def record(self, claim: str, verifier: Verifier | None, outcome: Update | VoiceclaimError) -> None:
        """Count what came of a claim, and write it to the audit log if there is one; raises AuditError."""
        decision = str(outcome.decision) if isinstance(outcome, Update) else "error"
        self.metrics.decisions.labels(decision).inc()
        store = self.store.current() if verifier is None else verifier.store
        if self.settings.log is None or store is None:
            return
        recorder = verification_recorder(self.settings.log, store, claim, key_file=self.settings.log_key)
        recorder(verifier, None, outcome)

    async def end(self) -> None:
        """Take nobody more; streams end, and who is being enrolled already will be."""
        self.ending.set()
        self.trainer.refuse()
        while self.trainer.busy:
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """End the threads and the process that trains."""
        self._scoring.shutdown(wait=True, cancel_futures=True)
        self._decoding.shutdown(wait=True, cancel_futures=True)
        self._waiting.shutdown(wait=True, cancel_futures=True)
        self._making.shutdown(wait=True, cancel_futures=True)
        self.trainer.close()
