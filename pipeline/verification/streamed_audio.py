"""Audio of a stream: mixed down, checked, measured, and collected until there is enough to analyse.

One thread at a time pushes audio into a stream, and no stream is copied.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Never, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.audio.downmix import Downmix, Mixed
from pipeline.audio.streams import as_samples, check_samples
from pipeline.errors import InputError
from pipeline.features.frontend import FrontEnd
from pipeline.features.stream import FeatureBlock, joined
from pipeline.store.model import SpeakerModel
from pipeline.verification.audio_warnings import AudioMeter

Array = NDArray[np.float64]
Given = ParamSpec("Given")
Result = TypeVar("Result")
Stream = TypeVar("Stream", bound="AudioStream")

# A score is a mean over all speech so far. After the first seconds, the audio that is analysed at once grows in
# proportion to the speech, up to MOST_SECONDS: the audio not yet scored is always the same share of it.
STEADY_SECONDS, MOST_SECONDS = 5.0, 2.0


class StreamedAudio:
    """The audio of one stream that is scored on ``model``, in chunks of any length.

    ``rate`` in Hz is None for the model's own; ``where`` begins every error message. Audio is analysed when there are
    ``update_ms`` of it, or more in a long stream unless it is ``steady``. Several channels are replaced by their mean,
    or by one ``channel``, from 1; ``mix`` is the downmix that was applied before, if any.
    """

    def __init__(
        self,
        model: SpeakerModel,
        rate: int | None,
        where: str,
        *,
        update_ms: float,
        steady: bool = False,
        channel: int | None = None,
        mix: Mixed | None = None,
    ) -> None:
        features = model.config.features
        rate = features.rate if rate is None else rate
        self.where = where
        self.in_use = threading.RLock()
        self._mix = Downmix(where, channel)
        self.meter = AudioMeter(model, rate, self._mix if mix is None else mix)
        self.front_end = FrontEnd(features, rate, where=where, meter=self.meter.speech)
        self._waiting: list[Array] = []
        self._samples, self._enough = 0, round(rate * update_ms / 1000)
        self._steady_frames = math.inf if steady else STEADY_SECONDS / features.step_seconds
        self._frames = 0  # of speech

    @property
    def seconds(self) -> float:
        """Return the length of all audio so far."""
        return (self.front_end.samples + self._samples) / self.front_end.rate

    @property
    def is_enough(self) -> bool:
        """Return True if there is as much audio as is analysed at once."""
        more = min(self._enough * self._frames / self._steady_frames, MOST_SECONDS * self.front_end.rate)
        return self._samples >= max(self._enough, more)

    def take(self, given: ArrayLike) -> Array:
        """Keep a mono copy of ``given`` samples, since the caller's may change, and return it; raises AudioError."""
        samples = as_samples(given, self.where, self._mix)
        first = self.front_end.samples + self._samples
        check_samples(samples, self.where, rate=self.front_end.rate, first=first)
        self._waiting.append(samples)
        self._samples += len(samples)
        return samples

    def features(self) -> FeatureBlock:
        """Return the features of the audio kept since the last call."""
        samples = np.concatenate([np.empty(0), *self._waiting])
        self._waiting, self._samples = [], 0
        self.meter.push(samples)
        block = self.front_end.push(samples)
        self._frames += len(block.vectors)
        return block

    def end(self) -> FeatureBlock:
        """Return the last features; raises AudioError for channels that cancel each other."""
        self._mix.check()
        # Joined, since scoring a few frames by themselves takes a twentieth of a claim's time.
        return joined([self.features(), self.front_end.flush()])


class AudioStream(ABC):
    """Base of the streams: they have no copies, which would take each other's audio.

    A ``with`` block that ends without an exception closes its stream; the outcome is that of ``close``.
    """

    _audio: StreamedAudio

    @abstractmethod
    def close(self) -> object:
        """End the audio and return the outcome; a second call repeats it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def __reduce_ex__(self, _protocol: Any) -> Never:
        raise InputError(f"{self._audio.where}: a stream cannot be copied or pickled; make another one")


def alone(method: Callable[Concatenate[Stream, Given], Result]) -> Callable[Concatenate[Stream, Given], Result]:
    """Have a method that takes audio raise InputError while another thread uses the stream."""

    @wraps(method)
    def alone_in(stream: Stream, /, *given: Given.args, **named: Given.kwargs) -> Result:
        audio = stream._audio
        if not audio.in_use.acquire(blocking=False):
            raise InputError(
                f"{audio.where}: one thread at a time pushes audio, and another one is at it: which came first is not"
                " known; let one thread push it all, as from a queue.Queue"
            )
        try:
            return method(stream, *given, **named)
        finally:
            audio.in_use.release()

    return alone_in
