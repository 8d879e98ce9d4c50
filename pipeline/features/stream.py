"""Samples to speech feature vectors, as a stream: the one path for files, pipes and microphones.

    samples -> pre-emphasis -> frames less their mean -> window -> linear prediction (or MFCC) -> deltas -> speech gate

Any cutting of the same samples into chunks gives the same vectors bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.config import FeatureSettings
from pipeline.errors import StreamClosedError
from pipeline.features import lpc
from pipeline.features.deltas import DeltaStream
from pipeline.features.framing import FrameStream, PreEmphasis, frames_of, without_offset
from pipeline.features.gate import SpeechGate, frame_level, level
from pipeline.features.mfcc import MelCepstrum
from pipeline.features.perceptual import PerceptualPrediction

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """What one push gave: ``vectors`` (T, d) of the speech frames, and how many frames of any kind went by.

    ``below_peak`` (T,): how far below the loudest frame so far each of them was, in dB, 0 or more.
    """

    vectors: Array
    frames: int
    below_peak: Array

    def part(self, rows: slice) -> FeatureBlock:
        """Some of the speech frames."""
        vectors = self.vectors[rows]
        return FeatureBlock(vectors, len(vectors), self.below_peak[rows])


def joined(blocks: Sequence[FeatureBlock]) -> FeatureBlock:
    """Consecutive blocks, at least one, as one."""
    return FeatureBlock(
        np.concatenate([block.vectors for block in blocks]),
        sum(block.frames for block in blocks),
        np.concatenate([block.below_peak for block in blocks]),
    )


@lru_cache(maxsize=8)
def static_features(settings: FeatureSettings, *, compiled: bool = False) -> Callable[[Array], Array]:
    """The function from windowed frames (T, L), one or more, to static features (T, order) that ``settings`` name.

    It keeps nothing between calls, so that streams share it. ``compiled`` as for ``FeatureStream``.
    """
    order = settings.order
    if settings.kind == "mfcc":
        return MelCepstrum(settings.rate, settings.frame_length, order)
    solve = _coefficients(settings, compiled)
    if settings.kind == "lpc":
        return solve
    if settings.kind in ("lpcc", "plp"):
        return lambda frames: lpc.cepstrum(solve(frames), compiled=compiled)
    if settings.kind == "lsf":
        return lambda frames: lpc.line_spectral_frequencies(solve(frames))
    if settings.kind == "reflection":
        return lambda frames: lpc.reflection_from_coefficients(solve(frames))
    return lambda frames: lpc.log_area_ratios(lpc.reflection_from_coefficients(solve(frames)))


def _coefficients(settings: FeatureSettings, compiled: bool) -> Callable[[Array], Array]:
    order = settings.order
    if settings.kind == "plp":
        return PerceptualPrediction(
            settings.rate,
            settings.frame_length,
            order,
            bands=settings.bands,
            compression=settings.compression,
            compiled=compiled,
        )
    if settings.method == "burg":
        return lambda frames: lpc.burg(frames, order)
    return lambda frames: lpc.levinson_durbin(lpc.autocorrelate(frames, order), compiled=compiled).coefficients


class FeatureStream:
    """Speech feature vectors (T, ``settings.dimension``) of mono samples at ``settings.rate`` Hz.

    ``compiled`` code gives the same vectors to rounding, in less time where samples come a few frames at a time; it
    loads numba, which takes half a second.
    """

    def __init__(self, settings: FeatureSettings, *, compiled: bool = False) -> None:
        self.settings = settings
        self._compiled = compiled
        self._pre_emphasis = PreEmphasis(settings.pre_emphasis)
        self._raw = FrameStream(settings.frame_length, settings.frame_step)
        self._emphasised = FrameStream(settings.frame_length, settings.frame_step)
        self._window = window(settings.window, settings.frame_length)
        self._static = static_features(settings, compiled=compiled)
        self._deltas = DeltaStream(settings.delta_width, scale=settings.delta_scale) if settings.deltas else None
        self._gate = SpeechGate(settings.gate, frames_per_second=1.0 / settings.step_seconds)
        self._before = np.zeros(0 if self._deltas is None else self._deltas.width, dtype=bool)
        self._waiting = np.empty(0, dtype=bool)
        self._below_peak = np.empty(0)
        self._closed = False

    @property
    def delay_ms(self) -> float:
        """From a sound to the vector that holds it: the frame's own length and the deltas' look-ahead."""
        look_ahead = 0 if self._deltas is None else self._deltas.delay_frames
        samples = self.settings.frame_length + look_ahead * self.settings.frame_step
        return 1000.0 * samples / self.settings.rate

    def push(self, samples: Array) -> FeatureBlock:
        """Take in ``samples`` (n,), full scale 1, and give the vectors they complete."""
        if self._closed:
            raise StreamClosedError("features: the stream was flushed and takes no more samples; start a new one")
        speech, below_peak = self._gate.hear(self._levels(samples))
        self._waiting = np.concatenate((self._waiting, speech))
        self._below_peak = np.concatenate((self._below_peak, below_peak))
        static = self._static_of(*self._emphasised.completed(self._pre_emphasis.push(samples)), self._wanted(speech))
        return self._gated(static if self._deltas is None else self._deltas.push(static))

    def _levels(self, samples: Array) -> Array:
        """Levels (T,) of the frames that ``samples`` complete."""
        if not self._compiled:
            return frame_level(self._raw.push(samples))
        from pipeline.features.frame_kernels import variances

        pending, count = self._raw.completed(samples)
        found = np.empty(count)
        variances(pending, self.settings.frame_step, self.settings.frame_length, found)
        return level(found)

    def _wanted(self, speech: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Frames whose features are asked for: those of ``speech`` (T,), and their neighbours for its deltas.

        The last of them may be neighbours of speech that is still to come.
        """
        reach = 0 if self._deltas is None else self._deltas.width
        known = np.concatenate((self._before, speech, np.ones(reach, dtype=bool)))
        self._before = known[len(speech) : len(speech) + reach]
        if speech.all():
            return np.arange(len(speech))
        near = [known[at : at + len(speech)] for at in range(2 * reach + 1)]
        return np.flatnonzero(np.logical_or.reduce(near))

    def _static_of(self, samples: Array, count: int, wanted: NDArray[np.int64]) -> Array:
        """Static features (T, order) of so many frames in emphasised ``samples``, 0 of those not ``wanted``."""
        static = np.zeros((count, self.settings.order))
        if len(wanted) == 0:
            return static
        length, step = self.settings.frame_length, self.settings.frame_step
        if self._compiled:
            from pipeline.features import frame_kernels

            windowed = np.empty((len(wanted), length))
            frame_kernels.windowed(samples, step, wanted, self._window, windowed)
        else:
            windowed = without_offset(frames_of(samples, count, length, step)[wanted])
            windowed *= self._window
        static[wanted] = self._static(windowed)
        return static

    def flush(self) -> FeatureBlock:
        """Give the vectors held back for look-ahead, and close."""
        self._closed = True
        if self._deltas is None or self._waiting.size == 0:
            return FeatureBlock(np.empty((0, self.settings.dimension)), 0, np.empty(0))
        return self._gated(self._deltas.flush())

    def _gated(self, vectors: Array) -> FeatureBlock:
        speech, self._waiting = self._waiting[: len(vectors)], self._waiting[len(vectors) :]
        below_peak, self._below_peak = self._below_peak[: len(vectors)], self._below_peak[len(vectors) :]
        return FeatureBlock(vectors[speech], len(vectors), below_peak[speech])


def window(name: str, length: int) -> Array:
    """Symmetric analysis window (length,): ``hamming``, ``hann`` or ``rectangular``."""
    shapes: dict[str, Callable[[int], Array]] = {"hamming": np.hamming, "hann": np.hanning, "rectangular": np.ones}
    return shapes[name](length)
