"""Enrollment and removal: audio from files or a stream into a private folder, then a process that changes the store.

The process does one change at a time, at low priority; the store changes completely or not at all, and a process that
dies leaves the service running.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import soundfile

from pipeline.audio.files import AudioReader, open_audio
from pipeline.audio.levels import Clipping
from pipeline.audio.streams import PcmDecoder, PcmFormat, Samples
from pipeline.config import Config
from pipeline.errors import AudioError, ServiceError, StoreBusyError, VoiceclaimError
from pipeline.features.frontend import FrontEnd
from pipeline.server.messages import service_error, without_paths
from pipeline.server.settings import Settings
from pipeline.store.model import SpeakerModel

_NICE = 10
_TASKS_PER_PROCESS = 16  # then its memory is returned
_BUSY_SECONDS = 30.0  # another process may be writing to the store
_SUBTYPES = {"s16le": ("PCM_16", "<i2"), "f32le": ("FLOAT", "<f4")}
Table = dict[str, Any]
Recordings = Mapping[Path, str]
"""Audio files, and the names that the caller knows them by."""
T = TypeVar("T")

# Audio


def private_folder(spool: Path | None) -> Path:
    """Make a folder that only this user can read, in ``spool`` (None: among the system's temporary files)."""
    return Path(tempfile.mkdtemp(prefix="voiceclaim-", dir=spool))


def save_uploads(
    files: Sequence[tuple[str, BinaryIO]], folder: Path, *, seconds: float
) -> tuple[Recordings, list[dict[str, str]]]:
    """Copy the ``files`` (name, content) that can be decoded into ``folder``; the others are returned with the reason.

    Raises AudioError if none can be decoded, ServiceError for one of more than ``seconds``.
    """
    recordings: dict[Path, str] = {}
    skipped: list[dict[str, str]] = []
    for number, (name, file) in enumerate(files, start=1):
        try:
            with open_audio(file) as audio:
                for _ in blocks_within(audio, seconds):
                    pass
        except AudioError as error:
            skipped.append({"file": name, "reason": str(error)})
            continue
        path = folder / f"{number:04d}"
        file.seek(0)
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        recordings[path] = name
    if not recordings:
        raise AudioError(f"none of the {len(files)} files can be used; the first: {skipped[0]['reason']}")
    return recordings, skipped


def blocks_within(audio: AudioReader, seconds: float) -> Iterator[Samples]:
    """Decode ``audio`` block by block; raises AudioError, or ServiceError beyond ``seconds``."""
    samples = 0
    for block in audio.blocks():
        samples += len(block)
        if samples > seconds * audio.rate:
            raise ServiceError(413, f"a file has at most {seconds:g} s of audio; cut it into parts", kind="InputError")
        yield block


class UtteranceFiles:
    """Utterances of an enrollment stream, a file each; ``discard`` them when done.

    The speech in them is measured by the front end of ``model``, or of the settings that a new store would have.
    """

    def __init__(self, settings: Settings, model: SpeakerModel | None, pcm: PcmFormat) -> None:
        self._config = model.config if model is not None else settings.config or Config()
        self._aim = max(settings.aim_seconds, self._config.codebook.min_seconds)
        self._max_files = settings.limits.files
        self._pcm = pcm
        self._folder = private_folder(settings.spool)
        self._files: list[Path] = []
        self._rest = b""  # of a sample cut in two
        self._audio_seconds = self._speech_seconds = self._peak = 0.0
        self._begin()

    def needs(self) -> Table:
        """Return the seconds of speech that are required, and those to aim for."""
        return {"least_seconds": self._config.codebook.min_seconds, "aim_seconds": self._aim}

    def push(self, data: bytes) -> None:
        """Append bytes to the current utterance; raises AudioError."""
        samples = self._decoder.push(data)
        rest = self._rest + data
        end = len(rest) - len(rest) % self._pcm.frame_bytes
        self._rest = rest[end:]
        self._file.write(np.frombuffer(rest[:end], _SUBTYPES[self._pcm.encoding][1]))
        self._count(len(self._front_end.push(samples).vectors))
        self._clipping.push(samples)
        if len(samples):
            self._peak = float(np.abs(samples).max())

    def next_utterance(self) -> None:
        """End the current utterance and begin another; raises ServiceError for one too many."""
        self.finish()
        if len(self._files) >= self._max_files:
            raise ServiceError(413, f"an enrollment has at most {self._max_files} utterances", kind="InputError")
        self._begin()

    def finish(self) -> None:
        """End the current utterance."""
        if not self._file.closed:
            self._count(len(self._front_end.flush().vectors))
            self._audio_seconds += self._front_end.samples / self._front_end.rate
            self._file.close()

    def progress(self) -> Table:
        """Return the audio and speech so far, the ``peak`` of the last chunk and the utterance's ``clipped`` share."""
        current = 0.0 if self._file.closed else self._front_end.samples / self._front_end.rate
        return {
            "utterances": len(self._files),
            "audio_seconds": round(self._audio_seconds + current, 3),
            "speech_seconds": round(self._speech_seconds, 3),
            "utterance_speech_seconds": round(self._utterance_seconds, 3),
            "aim_seconds": self._aim,
            "peak": self._peak,
            "clipped": self._clipping.share,
        }

    def recordings(self) -> Recordings:
        """Return the utterances in order."""
        return {path: f"utterance {number}" for number, path in enumerate(self._files, start=1)}

    def discard(self) -> None:
        """Delete every recording."""
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self) -> None:
        path = self._folder / f"{len(self._files):04d}.wav"
        subtype, _ = _SUBTYPES[self._pcm.encoding]
        self._file: Any = soundfile.SoundFile(path, "w", self._pcm.rate, 1, subtype, format="WAV")
        self._files.append(path)
        where = f"utterance {len(self._files)}"
        self._decoder = PcmDecoder(self._pcm, where=where)
        self._front_end = FrontEnd(self._config.features, self._pcm.rate, where=where)
        self._clipping = Clipping()
        self._rest = b""
        self._utterance_seconds = 0.0

    def _count(self, frames: int) -> None:
        seconds = frames * self._config.features.step_seconds
        self._speech_seconds += seconds
        self._utterance_seconds += seconds


# The process


class EnrollmentProcess:
    """The only writer to the store; at most ``limits.waiting_enrollments`` wait for their turn."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = _new_pool()
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def enroll(self, name: str, recordings: Recordings, *, add: bool = False) -> Table:
        """Enroll ``name``, or ``add`` to them, and return the fields of ``Enrolled``; raises ServiceError."""
        return await self._run(_enroll, name, dict(recordings), add)

    async def remove(self, name: str) -> Table:
        """Remove ``name`` and return the fields of ``Removed``; raises ServiceError."""
        return await self._run(_remove, name)

    def check_queue(self) -> None:
        """Raise ServiceError if the queue is full."""
        if self._waiting > self._settings.limits.waiting_enrollments:
            raise ServiceError(503, f"{self._waiting} enrollments and removals wait already; try again later")

    def close(self) -> None:
        """End the process once its task is done."""
        self._pool.shutdown(wait=True)

    async def _run(self, task: Callable[..., Table], *arguments: Any) -> Table:
        self.check_queue()
        self._waiting += 1
        try:
            async with self._turn:
                running = asyncio.get_running_loop().run_in_executor(self._pool, task, self._settings, *arguments)
                return await _until_done(running)
        except BrokenProcessPool:
            self._pool = _new_pool()
            raise ServiceError(
                503, "the enrollment process has died, and the store is unchanged; out of memory?"
            ) from None
        finally:
            self._waiting -= 1


async def _until_done(running: asyncio.Future[Table]) -> Table:
    """Wait for ``running`` even if this task is cancelled: the next task must not start before it is done."""
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


def _new_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=_initialize, max_tasks_per_child=_TASKS_PER_PROCESS
    )


def _initialize() -> None:
    """Run at low priority, and ignore Ctrl-C, which the terminal sends to this process too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(_NICE)


def _enroll(settings: Settings, name: str, recordings: dict[Path, str], add: bool) -> Table:
    from pipeline.audio.corpus import Utterance
    from pipeline.enrollment.enroll import enroll
    from pipeline.verification.audit import AuditLog, read_key
    from pipeline.verification.audit_events import record_enrollment

    shown = [(settings.store, "the store"), *recordings.items()]
    speakers = {name: [Utterance(name, path) for path in recordings]}
    try:
        config = None if settings.store.exists() else settings.config  # a store has its own
        report = _when_free(lambda: enroll(settings.store, speakers, config, add=add, jobs=settings.jobs))
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


def _remove(settings: Settings, name: str) -> Table:
    from pipeline.enrollment.removal import remove_speaker
    from pipeline.verification.audit import AuditLog, read_key
    from pipeline.verification.audit_events import record_removal

    try:
        left = _when_free(lambda: remove_speaker(settings.store, name, jobs=settings.jobs))
        if settings.log is not None:
            record_removal(AuditLog(settings.log, key=read_key(settings.log_key)), left, name)
    except VoiceclaimError as error:
        raise service_error(error, [(settings.store, "the store")]) from None
    return {"removed": name, "left": len(left.names), "revision": left.revision}


def _when_free(write: Callable[[], T]) -> T:
    """Call ``write``, again and again while another process writes to the store."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return write()
        except StoreBusyError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.2)
