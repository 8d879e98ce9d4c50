"""The processes that score claims: each claim stays with one process, which serves callers in turn."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.audio.streams import Samples
from pipeline.errors import AudioError, AuditError, ServiceError, StreamClosedError
from pipeline.scoring.decisions import Update
from pipeline.server import scoring
from pipeline.server.callers import Caller, Turns
from pipeline.server.messages import UPDATE, Aliases, without_paths
from pipeline.server.newest import VerifierSettings
from pipeline.server.scoring import AudioClaim
from pipeline.server.workers import Bounds, Worker, started_threads
from pipeline.verification.verifier import Verifier

# Live claims that each process has before another process is started.
CLAIMS_EACH = 8
# Attempts to begin a claim while the store keeps changing.
_TRIES = 3
_Threads = tuple[ThreadPoolExecutor, ThreadPoolExecutor]  # to send to a process, and to receive from it
_SECONDS = 60.0  # that a piece of audio may take, or reading a model
_RAISED_AGAIN = {kind.__name__: kind for kind in (AudioError, AuditError, StreamClosedError)}


class _Scorer:
    """One process, its turns, and the number of its claims.

    Two tasks have a turn at a time: one is on its way to the process while the other runs.
    """

    def __init__(self, nice: int, waiting: int, threads: _Threads) -> None:
        self.worker = Worker(Bounds(nice, _SECONDS))
        self.turns = Turns("pieces of audio to score", 2, waiting=waiting)
        self.claims = 0
        self.threads = self._sending, self._receiving = threads

    async def do(self, caller: Caller, task: Callable[..., Any], *arguments: Any) -> Any:
        """Run a task when it is the turn of ``caller``, and return its result."""
        async with self.turns.place(caller):
            return await asyncio.wrap_future(self.begin(task, *arguments))

    def begin(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Begin a task behind those that were begun before; its result comes later."""
        result = Future[Any]()
        result.set_running_or_notify_cancel()  # whoever stops waiting does not stop the process
        self._sending.submit(self._send, result, task, *arguments)
        return result

    def _send(self, result: Future[Any], task: Callable[..., Any], *arguments: Any) -> None:
        try:
            self.worker.begin(task, *arguments)
        except OSError:
            result.set_exception(ServiceError(503, "the process that scored this has died; out of memory?"))
        else:
            self._receiving.submit(self._receive, result)

    def _receive(self, result: Future[Any]) -> None:
        try:
            result.set_result(self.worker.receive()["result"])
        except ServiceError as error:
            result.set_exception(error)

    def forget(self, number: int) -> None:
        """End a stream as soon as its process is free."""
        if not self.worker.has_ended:
            self.begin(scoring.forget, number)

    def end(self) -> None:
        """End the process, whatever it does."""
        self.worker.end()
        self.worker.join()


@dataclass(frozen=True, slots=True)
class ScoredClaim:
    """The stream of a claim, judged as by ``verifier``; a sound is scored at most ``delay_ms`` later."""

    verifier: Verifier
    delay_ms: float
    settings: VerifierSettings
    do: Callable[..., Awaitable[Any]]
    number: int

    async def push(self, data: bytes) -> dict[str, Any]:
        """Score ``data``, and return the state."""
        state: dict[str, Any] = await self.do(scoring.push, self.settings, self.number, data)
        return state

    async def feed(self, samples: Samples) -> None:
        """Score ``samples`` (n,)."""
        await self.do(scoring.feed, self.number, samples)

    async def close(self, *, channels_differ: bool = False) -> tuple[Update, dict[str, Any]]:
        """End the stream, whose audio may be the mean of channels that differ; return the last update and state."""
        state = await self.do(scoring.close, self.number, channels_differ)
        return UPDATE.validate_python(state), state


class Scorers:
    """At most ``most`` processes for claims under ``settings``, one more started when each has ``claims_each``.

    ``nice`` is added to their nice values, ``waiting`` is that of ``Turns``; ``aliases`` returns the paths that no
    error may show.
    """

    def __init__(
        self,
        settings: VerifierSettings,
        most: int,
        *,
        waiting: int,
        aliases: Callable[[], Aliases],
        claims_each: int = CLAIMS_EACH,
        nice: int = 0,
    ) -> None:
        self._settings, self._most, self._waiting, self._aliases = settings, most, waiting, aliases
        self._claims_each, self._nice = claims_each, nice
        self._scorers: list[_Scorer] = []
        self._starter = started_threads(1, "scoring")
        self._threads = [(started_threads(1, "scoring"), started_threads(1, "scoring")) for _ in range(most)]
        self._numbers = itertools.count()
        self._starting = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """Return how many pieces of audio wait."""
        return sum(scorer.turns.waiting for scorer in self._scorers)

    def start(self) -> None:
        """Start one more process; raises ServiceError if it cannot be started, or cannot read the model.

        It is added in this thread: the task that waits for it may have been cancelled by then.
        """
        used = [scorer.threads for scorer in self._scorers]
        scorer = _Scorer(self._nice, self._waiting, next(each for each in self._threads if each not in used))
        try:
            scorer.begin(scoring.prepare, self._settings).result()
        except ServiceError as error:
            scorer.end()
            detail = f"a process that scores could not be started: {error.detail}"
            raise ServiceError(error.status, detail, kind=error.kind) from None
        self._scorers.append(scorer)

    @asynccontextmanager
    async def claim(
        self, caller: Caller, made: Callable[[], Awaitable[Verifier]], hello: AudioClaim
    ) -> AsyncIterator[ScoredClaim]:
        """Begin the stream of a claim, judged as by the verifier that is ``made``, until the end of the block."""
        # A process that is being started counts towards ``most``, even if nobody waits for it any more.
        with self._as_here():
            scorer, number = await asyncio.shield(self._least_busy()), next(self._numbers)

        async def do(task: Callable[..., Any], *arguments: Any) -> Any:
            with self._as_here():
                return await scorer.do(caller, task, *arguments)

        scorer.claims += 1
        try:
            verifier, delay_ms = await self._begun(do, made, number, hello)
            yield ScoredClaim(verifier, delay_ms, self._settings, do, number)
        finally:
            scorer.claims -= 1
            scorer.forget(number)

    async def _begun(
        self, do: Callable[..., Awaitable[Any]], made: Callable[[], Awaitable[Verifier]], number: int, hello: AudioClaim
    ) -> tuple[Verifier, float]:
        for tries_left in reversed(range(_TRIES)):
            verifier = await made()
            try:
                return verifier, await do(scoring.begin, self._settings, number, hello, verifier.model.revision)
            except ServiceError as error:
                if error.kind != scoring.CHANGED or not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _least_busy(self) -> _Scorer:
        async with self._starting:
            self._scorers = [scorer for scorer in self._scorers if not scorer.worker.has_ended]
            few = min((scorer.claims for scorer in self._scorers), default=self._claims_each)
            if few >= self._claims_each and len(self._scorers) < self._most:
                await asyncio.get_running_loop().run_in_executor(self._starter, self.start)
            return min(self._scorers, key=lambda scorer: scorer.claims)

    @contextmanager
    def _as_here(self) -> Iterator[None]:
        """Raise the error of a process as if raised here, without paths of the server."""
        try:
            yield
        except ServiceError as error:
            detail = without_paths(error.detail, self._aliases())
            kind = _RAISED_AGAIN.get(error.kind)
            raise (ServiceError(error.status, detail, kind=error.kind) if kind is None else kind(detail)) from None

    def close(self) -> None:
        """End every process, whatever it does."""
        self._starter.shutdown(wait=True)
        for scorer in self._scorers:
            scorer.end()
        for threads in itertools.chain.from_iterable(self._threads):
            threads.shutdown(wait=True)
