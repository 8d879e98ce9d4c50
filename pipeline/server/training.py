"""Enrollment and removal in a process of their own, one at a time: streams keep their cores and their memory.

What the process does it finishes, or the store stays as it was; a process that dies leaves the service running.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from pipeline.errors import ServiceError, StoreBusyError, VoiceclaimError
from pipeline.server.problems import service_error, without_paths
from pipeline.server.settings import Settings

_NICE = 10
_TASKS_A_PROCESS = 16  # then it gives its memory back
_BUSY_SECONDS = 30.0  # another process may be writing to the store
Table = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Recording:
    """A file of audio, and what its sender called it."""

    path: Path
    shown: str


class Trainer:
    """The one who writes to the store; at most ``limits.waiting_enrollments`` wait for their turn."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = _pool()
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._refuses = False

    async def enroll(self, name: str, recordings: Sequence[Recording]) -> Table:
        """Enroll ``name`` and return the summary; raises ServiceError."""
        return await self._run(_enroll, name, tuple(recordings))

    async def remove(self, name: str) -> Table:
        """Remove ``name``; raises ServiceError."""
        return await self._run(_remove, name)

    @property
    def busy(self) -> bool:
        """Whether somebody is being enrolled or removed, or waits for it."""
        return self._waiting > 0

    def check_room(self) -> None:
        """Raise ServiceError if nobody more may wait."""
        if self._refuses:
            raise ServiceError(503, "the service is shutting down and takes nobody more; try again later")
        if self._waiting > self._settings.limits.waiting_enrollments:
            raise ServiceError(503, f"{self._waiting} enrollments and removals wait already; try again later")

    def refuse(self) -> None:
        """Take nobody more; those who wait already are done."""
        self._refuses = True

    def close(self) -> None:
        """End the process when it has done what it was given."""
        self._pool.shutdown(wait=True)

    async def _run(self, task: Callable[..., Table], *arguments: Any) -> Table:
        self.check_room()
        self._waiting += 1
        try:
            async with self._turn:
                running = asyncio.get_running_loop().run_in_executor(self._pool, task, self._settings, *arguments)
                # Whoever asked may be gone; the process goes on, and the next one must not start before it is done.
                return await _to_its_end(running)
        except BrokenProcessPool:
            self._pool = _pool()
            raise ServiceError(
                503, "the process that trains has died, and the store is as it was; out of memory?"
            ) from None
        finally:
            self._waiting -= 1


async def _to_its_end(running: asyncio.Future[Table]) -> Table:
    """What ``running`` comes to, waited for even when this task is cancelled."""
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with contextlib.suppress(Exception):
            running.result()
        raise cancelled
    return running.result()


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=_begin, max_tasks_per_child=_TASKS_A_PROCESS
    )


def _begin() -> None:
    """Work behind the streams, and leave the end to the service: a Ctrl-C reaches this process too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(_NICE)


def _enroll(settings: Settings, name: str, recordings: Sequence[Recording]) -> Table:
    from pipeline.audit import AuditLog, read_key
    from pipeline.audit_events import record_enrollment
    from pipeline.corpus import Utterance
    from pipeline.enrollment import enroll

    shown = [(settings.store, "the store"), *((recording.path, recording.shown) for recording in recordings)]
    speakers = {name: [Utterance(name, recording.path) for recording in recordings]}
    try:
        # A store that exists has its own settings.
        config = None if (settings.store / "manifest.json").exists() else settings.config
        report = _when_free(lambda: enroll(settings.store, speakers, config, jobs=settings.jobs))
        if settings.log is not None:
            record_enrollment(AuditLog(settings.log, key=read_key(settings.log_key)), report)
    except VoiceclaimError as error:
        raise service_error(error, shown) from None
    names = {recording.path: recording.shown for recording in recordings}
    return {
        **asdict(report.enrolled[0]),
        "revision": report.store.manifest.revision,
        "warnings": [without_paths(finding.reason, shown) for finding in report.warnings],
        "skipped": [{"file": names[path], "reason": without_paths(reason, shown)} for path, reason in report.skipped],
    }


def _remove(settings: Settings, name: str) -> Table:
    from pipeline.audit import AuditLog, read_key
    from pipeline.audit_events import record_removal
    from pipeline.enrollment import remove_speaker

    try:
        left = _when_free(lambda: remove_speaker(settings.store, name, jobs=settings.jobs))
        if settings.log is not None:
            record_removal(AuditLog(settings.log, key=read_key(settings.log_key)), left, name)
    except VoiceclaimError as error:
        raise service_error(error, [(settings.store, "the store")]) from None
    return {"removed": name, "left": len(left.names), "revision": left.manifest.revision}


def _when_free(write: Callable[[], T]) -> T:
    """What ``write`` returns, tried again while another process writes to the store."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return write()
        except StoreBusyError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.2)
