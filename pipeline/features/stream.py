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
from pipeline.features.framing import FrameStream, PreEmphasis, without_offset
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
        emphasised = self._pre_emphasis.push(samples)
        levels, windowed = (self._compiled_frames if self._compiled else self._frames)(samples, emphasised)
        static = self._static(windowed) if len(windowed) else np.empty((0, self.settings.order))
        speech, below_peak = self._gate.hear(levels)
        self._waiting = np.concatenate((self._waiting, speech))
        self._below_peak = np.concatenate((self._below_peak, below_peak))
        return self._gated(static if self._deltas is None else self._deltas.push(static))

    def _frames(self, samples: Array, emphasised: Array) -> tuple[Array, Array]:
        """Levels (T,) of the frames that are completed, and what their emphasised samples are, windowed (T, L)."""
        windowed = without_offset(self._emphasised.push(emphasised))
        windowed *= self._window
        return frame_level(self._raw.push(samples)), windowed

    def _compiled_frames(self, samples: Array, emphasised: Array) -> tuple[Array, Array]:
        from pipeline.features import frame_kernels

        length, step = self.settings.frame_length, self.settings.frame_step
        pending, count = self._raw.completed(samples)
        variances = np.empty(count)
        frame_kernels.variances(pending, step, length, variances)
        pending, count = self._emphasised.completed(emphasised)
        windowed = np.empty((count, length))
        frame_kernels.windowed(pending, step, self._window, windowed)
        return level(variances), windowed

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
