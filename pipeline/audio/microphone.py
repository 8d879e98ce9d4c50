"""A microphone as blocks of samples, which PortAudio's thread puts into a queue.

Needs the extra ``mic`` (sounddevice) and PortAudio itself; both are loaded when a microphone is opened, and not before.
"""

from __future__ import annotations

import importlib
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.streams import Samples
from pipeline.errors import AudioError

_PORTAUDIO = "install PortAudio (Debian and Ubuntu: apt install libportaudio2)"
_MOST_WAITING = 10.0  # seconds of sound that may wait for a slow reader
_MOST_SILENT = 5.0  # seconds without a block, even a silent one, after which a device counts as unplugged


class SampleQueue:
    """Blocks of mono samples from one thread to another, in order.

    At most ``waiting`` seconds of sound wait; blocks beyond that are dropped and counted in ``lost`` (seconds), since
    a thread that serves a sound card must never wait.
    """

    def __init__(self, rate: int, *, waiting: float = _MOST_WAITING, silent: float = _MOST_SILENT) -> None:
        self.rate = rate
        self.lost = 0.0
        self._silent = silent
        self._room = round(waiting * rate)
        self._changing = threading.Lock()
        self._queue: queue.SimpleQueue[Samples | None] = queue.SimpleQueue()

    def put(self, block: NDArray[Any]) -> None:
        """Queue a copy of ``block`` (n,) or (n, channels), full scale 1, without waiting."""
        samples = np.array(block, dtype=np.float64)  # the sound card fills the same buffer again
        samples = samples if samples.ndim == 1 else samples.mean(axis=1)
        with self._changing:
            if len(samples) > self._room:
                self.lost += len(samples) / self.rate
                return
            self._room -= len(samples)
        self._queue.put(samples)

    def close(self) -> None:
        """Let ``blocks`` end after those in the queue."""
        self._queue.put(None)

    def blocks(self) -> Iterator[Samples]:
        """Yield the blocks (n,) until ``close``; raises AudioError when none has come for too long."""
        while True:
            try:
                samples = self._queue.get(timeout=self._silent)
            except queue.Empty:
                raise AudioError(
                    f"microphone: no audio arrived for {self._silent:g} s;"
                    " was it unplugged, or taken by another program?"
                ) from None
            if samples is None:
                return
            with self._changing:
                self._room += len(samples)
            if len(samples):
                yield samples


@contextmanager
def open_microphone(device: int | str | None = None) -> Iterator[SampleQueue]:
    """Record from the input ``device`` (its number or a part of its name; None: the system's default).

    Yields the queue of its blocks, at the device's own rate in Hz. Raises AudioError where sounddevice or PortAudio is
    missing, and where there is no such device or it cannot be opened.
    """
    sounddevice, stream = _sounddevice(), None
    try:
        properties = sounddevice.query_devices(device, "input")
        source = SampleQueue(int(properties["default_samplerate"]))
        stream = sounddevice.InputStream(
            samplerate=source.rate,
            channels=1,
            dtype="float32",
            device=device,
            callback=lambda block, _frames, _time, _status: source.put(block),
        )
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        if stream is not None:
            stream.close()
        which = "the default one" if device is None else repr(device)
        raise AudioError(
            f"microphone: an input device is needed and {which} cannot be opened"
            f" ({' '.join(str(error).split())}); is one plugged in, and may this program use it?"
        ) from None
    try:
        yield source
    finally:
        stream.close()
        source.close()


def _sounddevice() -> Any:
    try:
        return importlib.import_module("sounddevice")
    except ImportError:
        problem = "the library sounddevice is needed and not installed: pip install '.[mic]' in the checkout"
    except OSError as error:
        problem = f"sounddevice cannot load PortAudio ({error}): {_PORTAUDIO}"
    raise AudioError(f"microphone: {problem}; or pipe the audio of another program into the command")
