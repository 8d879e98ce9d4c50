"""Processes for tasks that may take long, or go wrong: each can be ended at any moment, and ends with the service.

A task is a function of a ``Channel`` and its arguments. It sends samples and values in JSON, and returns a value in
JSON, so that nothing of a caller's audio is unpickled here. Whoever stops listening ends the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any

import numpy as np
import numpy.fft
import numpy.ma  # both would otherwise be loaded by the first request, when memory may have run out

from pipeline.audio.streams import Samples
from pipeline.errors import ServiceError
from pipeline.server import logs
from pipeline.server.callers import Caller, Turns
from pipeline.server.messages import service_error

Message = Any
_SAMPLES, _JSON = b"s", b"j"
_TASKS_PER_PROCESS = 16  # then its memory is returned


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a kind of process: increase of its ``nice`` value, bytes of ``memory`` (None: all), ``seconds`` a task.

    With ``idle``, it only gets the processor time that others leave, on systems that support this.
    """

    nice: int
    seconds: float
    memory: int | None = None
    idle: bool = False


class Channel:
    """A task's end of the pipe to the service, by which it sends its messages."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def samples(self, samples: Samples) -> None:
        """Send mono samples (n,)."""
        self._pipe.send_bytes(_SAMPLES + samples.astype("<f8").tobytes())

    def value(self, value: Any) -> None:
        """Send a value in JSON."""
        self._pipe.send_bytes(_JSON + json.dumps(value).encode())

    def ask(self, value: Any) -> None:
        """Send a value, and wait until the other end answers it; it may end this process instead."""
        self.value(value)
        self._pipe.recv()


class Worker:
    """One process, started at once; whoever begins a task makes it ``busy``, until the task has returned."""

    def __init__(self, bounds: Bounds) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, bounds), daemon=False)  # it may have its own
        self._process.start()
        if hasattr(os, "setpriority"):  # at once: its imports alone take as long as many pieces of audio
            os.setpriority(os.PRIO_PROCESS, self._process.pid or 0, os.getpriority(os.PRIO_PROCESS, 0) + bounds.nice)
        if bounds.idle and hasattr(os, "SCHED_IDLE"):
            with suppress(OSError):  # refused, as in some containers: the nice value still applies
                os.sched_setscheduler(self._process.pid or 0, os.SCHED_IDLE, os.sched_param(0))
        theirs.close()
        self._bounds = bounds
        self._left = bounds.seconds
        self.busy = self.was_ended = self._may_change = False
        self.tasks = 0

    def begin(self, task: Callable[..., Any], *arguments: Any) -> None:
        """Begin a task."""
        self._may_change, self._left = False, self._bounds.seconds
        self.tasks += 1
        self._pipe.send((task, arguments))

    def answer(self) -> None:
        """Answer what the task asks: from here on it may change something."""
        self._may_change = True
        with suppress(OSError):  # it has died, as the next message says
            self._pipe.send(None)

    def receive(self) -> Message:
        """Wait for the next message: samples (n,), a value, or what the task returns as {"result": value}.

        Raises ServiceError, also for a task that takes too long or whose process has died.
        """
        started = time.monotonic()
        try:
            if not self._pipe.poll(max(0.0, self._left)):
                self._kill()
                detail = f"it took longer than {self._bounds.seconds:g} s, and was ended; {self._left_so}"
                raise ServiceError(
                    503, f"{detail}; too much at a time, or too busy a machine?", retry_seconds=self._bounds.seconds
                )
            data = self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise ServiceError(503, f"the process that did it has died, and {self._left_so}; out of memory?") from None
        finally:
            self._left -= time.monotonic() - started
        if data[:1] == _SAMPLES:
            return np.frombuffer(data, "<f8", offset=1)
        message = json.loads(data[1:])
        if isinstance(message, dict) and message.keys() & {"result", "problem"}:
            self.busy = False
        if isinstance(message, dict) and "problem" in message:
            raise ServiceError(**message["problem"])
        return message

    @property
    def _left_so(self) -> str:
        return "the change may have been made, and not be logged" if self._may_change else "nothing was changed"

    def end(self) -> None:
        """End the process at once, whatever it does; a thread that waits for its message gets a ServiceError."""
        self.was_ended = True
        self._kill()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            _kill_group(self._process.pid)
        self._process.kill()

    def join(self) -> None:
        """Wait until the process has ended."""
        self._process.join()

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended, or is about to."""
        return self.was_ended or not self._process.is_alive()


def started_threads(count: int, what: str) -> ThreadPoolExecutor:
    """Return threads that have all started: CPython waits for ever for one that it starts when memory has run out.

    Raises MemoryError where one cannot be started.
    """
    threads, go = ThreadPoolExecutor(count, thread_name_prefix=what), threading.Event()
    try:
        for _ in range(count):
            threads.submit(go.wait)
    except RuntimeError as error:
        raise MemoryError(str(error)) from None
    finally:
        go.set()
    return threads


class Workers:
    """At most ``count`` processes, for one caller after the other; they start when they are needed, and stay."""

    def __init__(self, what: str, count: int, bounds: Bounds, *, waiting: int) -> None:
        self.turns = Turns(what, count, waiting=waiting)
        self._bounds = bounds
        self._idle: list[Worker] = []
        self._working: set[Worker] = set()
        self._threads = started_threads(count, what)

    @asynccontextmanager
    async def conversation(
        self, caller: Caller, task: Callable[..., Any], *arguments: Any
    ) -> AsyncIterator[tuple[Worker, AsyncIterator[Message]]]:
        """Wait for a turn and begin a task, as ``begun`` does."""
        async with self.turns.place(caller), self.begun(task, *arguments) as conversation:
            yield conversation

    @asynccontextmanager
    async def begun(
        self, task: Callable[..., Any], *arguments: Any
    ) -> AsyncIterator[tuple[Worker, AsyncIterator[Message]]]:
        """Begin a task for the caller whose turn it is; its result comes last. Leaving the block early ends it."""
        worker = self._ready() or await self._run(Worker, self._bounds)
        worker.busy = True  # also where this is cancelled, and the task begins all the same
        self._working.add(worker)
        try:
            await self._run(worker.begin, task, *arguments)
            yield worker, self._messages(worker)
        finally:
            self._working.discard(worker)
            if worker.busy or worker.has_ended or worker.tasks >= _TASKS_PER_PROCESS:
                worker.end()
                self._threads.submit(worker.join)
            else:
                self._idle.append(worker)

    async def result(self, caller: Caller, task: Callable[..., Any], *arguments: Any) -> Any:
        """Run a task that sends no messages, and return its result."""
        async with self.conversation(caller, task, *arguments) as (_, messages):
            return (await anext(messages))["result"]

    def _ready(self) -> Worker | None:
        while self._idle:
            worker = self._idle.pop()
            if not worker.has_ended:
                return worker
        return None

    async def _messages(self, worker: Worker) -> AsyncIterator[Message]:
        while worker.busy:
            yield await self._run(worker.receive)

    async def _run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        """End every process, whatever it does."""
        for worker in (*self._idle, *self._working):
            worker.end()
            worker.join()
        self._threads.shutdown(wait=True)


# In the process


def _work(pipe: Any, bounds: Bounds) -> None:
    _settle(bounds)
    channel = Channel(pipe)
    while True:
        try:
            task, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            channel.value({"result": task(channel, *arguments)})
        except Exception as error:
            problem = service_error(error)
            fields = {"status": problem.status, "detail": problem.detail, "kind": problem.kind}
            channel.value({"problem": fields})


def _settle(bounds: Bounds) -> None:
    """Run within bounds, end with the service, and leave signals of the terminal to it."""
    logs.configure("error")
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # with whatever this process starts
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if bounds.memory is not None:
        with suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (bounds.memory, bounds.memory))


def _end_with_parent() -> None:
    """Wait until the service has ended, however that came about."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        _kill_group(os.getpid())
        os._exit(1)


def _kill_group(process: int | None) -> None:
    """End the group of processes that ``process`` leads, if it leads one; raises ProcessLookupError without any."""
    if process is not None and hasattr(os, "killpg"):
        os.killpg(process, signal.SIGKILL)
