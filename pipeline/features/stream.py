"""Samples to speech feature vectors, as a stream: the one path for files, pipes and microphones.

    samples -> pre-emphasis -> frames less their mean -> window -> LPC, PLP or MFCC -> deltas -> speech frames only
       |                                                                                            |
       +--> levels in band -> voice activity detection ---------------------------------------------+

Any chunking of the same samples gives the same vectors bit for bit.
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
from pipeline.features.framing import DeltaStream, FrameStream, PreEmphasis, window, without_offset
from pipeline.features.mfcc import mel_cepstrum
from pipeline.features.plp import perceptual_prediction
from pipeline.features.vad import VoiceActivityDetector, speech_level

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """Output of one push: ``vectors`` (T, d) of the speech frames, and the number of all ``frames``, speech or not.

    ``below_peak`` (T,): dB below the loudest frame so far, 0 or more.
    """

    vectors: Array
    frames: int
    below_peak: Array

    def part(self, rows: slice) -> FeatureBlock:
        """Return some of the speech frames."""
        vectors = self.vectors[rows]
        return FeatureBlock(vectors, len(vectors), self.below_peak[rows])


def joined(blocks: Sequence[FeatureBlock]) -> FeatureBlock:
    """Concatenate consecutive blocks, at least one."""
    return FeatureBlock(
        np.concatenate([block.vectors for block in blocks]),
        sum(block.frames for block in blocks),
        np.concatenate([block.below_peak for block in blocks]),
    )


@lru_cache(maxsize=8)
def static_features(settings: FeatureSettings) -> Callable[[Array], Array]:
    """Return the function from windowed frames (T, L) to static features (T, order).

    It is stateless, so streams share it.
    """
    if settings.kind == "mfcc":
        return mel_cepstrum(settings.rate, settings.frame_length, settings.order)
    solve = _coefficients(settings)
    return solve if settings.kind == "lpc" else lambda frames: lpc.cepstrum(solve(frames))


def _coefficients(settings: FeatureSettings) -> Callable[[Array], Array]:
    order = settings.order
    if settings.kind == "plp":
        length, bands = settings.frame_length, settings.bands
        return perceptual_prediction(settings.rate, length, order, bands=bands, compression=settings.compression)
    if settings.method == "burg":
        return lambda frames: lpc.burg(frames, order)
    return lambda frames: lpc.levinson_durbin(lpc.autocorrelate(frames, order))


class FeatureStream:
    """Speech feature vectors (T, ``settings.dimension``) of mono samples at ``settings.rate`` Hz."""

    def __init__(self, settings: FeatureSettings) -> None:
        self.settings = settings
        self._pre_emphasis = PreEmphasis(settings.pre_emphasis)
        self._raw = FrameStream(settings.frame_length, settings.frame_step)
        self._emphasised = FrameStream(settings.frame_length, settings.frame_step)
        self._window = window(settings.window, settings.frame_length)
        self._static = static_features(settings)
        self._deltas = DeltaStream(settings.delta_width, scale=settings.delta_scale) if settings.deltas else None
        self._level = speech_level(settings)
        self._vad = VoiceActivityDetector(settings.vad, frames_per_second=1.0 / settings.step_seconds)
        self._before = np.zeros(0 if self._deltas is None else self._deltas.width, dtype=bool)
        self._speech = np.empty(0, dtype=bool)  # of frames that wait for their deltas
        self._below_peak = np.empty(0)
        self._closed = False

    @property
    def delay_ms(self) -> float:
        """Delay from a sound to its vector: the frame's own length and the look-ahead of the deltas."""
        look_ahead = 0 if self._deltas is None else self._deltas.width
        samples = self.settings.frame_length + look_ahead * self.settings.frame_step
        return 1000.0 * samples / self.settings.rate

    def push(self, samples: Array) -> FeatureBlock:
        """Take ``samples`` (n,), full scale 1, and return the vectors they complete."""
        if self._closed:
            raise StreamClosedError("features: the stream was flushed and takes no more samples; start a new one")
        speech, below_peak = self._vad.push(self._level(self._raw.push(samples)))
        self._speech = np.concatenate((self._speech, speech))
        self._below_peak = np.concatenate((self._below_peak, below_peak))
        frames = self._emphasised.push(self._pre_emphasis.push(samples))
        static = self._static_of(frames, self._wanted(speech))
        return self._speech_of(static if self._deltas is None else self._deltas.push(static))

    def _wanted(self, speech: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the frames to analyse: those of ``speech`` (T,), and their neighbours for its deltas.

        The last of them may be neighbours of speech that is still to come.
        """
        reach = 0 if self._deltas is None else self._deltas.width
        flags = np.concatenate((self._before, speech, np.ones(reach, dtype=bool)))
        self._before = flags[len(speech) : len(speech) + reach]
        if speech.all():
            return np.arange(len(speech))
        near = [flags[at : at + len(speech)] for at in range(2 * reach + 1)]
        return np.flatnonzero(np.logical_or.reduce(near))

    def _static_of(self, frames: Array, wanted: NDArray[np.int64]) -> Array:
        """Return static features (T, order) of ``frames`` (T, L), 0 of those not ``wanted``."""
        static = np.zeros((len(frames), self.settings.order))
        if len(wanted):
            windowed = without_offset(frames[wanted])
            windowed *= self._window
            static[wanted] = self._static(windowed)
        return static

    def flush(self) -> FeatureBlock:
        """Return the vectors held back for look-ahead, and close."""
        self._closed = True
        if self._deltas is None or self._speech.size == 0:
            return FeatureBlock(np.empty((0, self.settings.dimension)), 0, np.empty(0))
        return self._speech_of(self._deltas.flush())

    def _speech_of(self, vectors: Array) -> FeatureBlock:
        speech, self._speech = self._speech[: len(vectors)], self._speech[len(vectors) :]
        below_peak, self._below_peak = self._below_peak[: len(vectors)], self._below_peak[len(vectors) :]
        return FeatureBlock(vectors[speech], len(vectors), below_peak[speech])
