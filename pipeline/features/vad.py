"""Voice activity detection: a causal, adaptive threshold on the level of each frame in the speech band.

A frame of level L is speech where

    L > peak - range_db  and  L > floor + margin,
    margin = margin_share (peak - floor), at least min_margin_db and at most max_margin_db:

strict where speech stands far above the noise, lenient where it does not. The floor follows the lowest level so far,
rising by ``rise_db_per_second``; the peak follows the highest, falling by ``fall_db_per_second``. There is no
look-ahead.

The band is about ``low_hz`` to ``high_hz``, so that speech is found in spite of rumble and hum below it and most of the
hiss above it. Runs of samples are averaged, which attenuates ``high_hz`` by 3 to 4 dB. Sines up to ``low_hz`` are
fitted to each frame by least squares and subtracted, which attenuates rumble by 60 dB; with a window, rumble would leak
into the band. Each frame is measured independently.

Digital silence, quiet at all frequencies, carries no information on the room and leaves both trackers unchanged. At the
start the floor is unknown: for ``start_seconds`` it is assumed to be ``start_floor_db`` or lower, so that in a
recording that begins in mid-word the first frame already counts as speech. Absolute level matters nowhere else. Steady
noise counts as speech for no longer than this, too short to be scored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.config import FeatureSettings, VadConfig
from pipeline.features.framing import without_offset

# Anything quieter than the last bit of 16-bit audio is digital silence.
SILENCE_DB = -100.0
# Singular values below this share of the largest, -60 dB, are left out, so that a few shapes remain.
LEAST_SHARE = 1e-3


def frame_level(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the level (T,) of ``frames`` (T, L) in dB below full scale: 10 log10 of the variance, never -inf.

    The variance, not the mean square: a constant offset, as from cheap sound cards, is not sound.
    """
    centred = without_offset(frames)
    power = np.einsum("tl,tl->t", centred, centred) / frames.shape[1]
    return np.asarray(10.0 * np.log10(power + 1e-15))


@lru_cache(maxsize=8)
def speech_level(settings: FeatureSettings) -> Callable[..., NDArray[np.float64]]:
    """Return the function from frames (T, L) to their level (T,) between ``vad.low_hz`` and ``vad.high_hz``, in dB.

    The level of digital silence is its ``frame_level``; all other frames are at ``SILENCE_DB`` or above.
    ``frame_level`` (T,) may be passed as a second argument. The function is stateless, so streams share it.
    """
    run = max(1, round(0.5 * settings.rate / settings.vad.high_hz))  # samples averaged: white noise keeps 1 / run
    length = settings.frame_length // run
    slow = _slow_shapes(length, settings.rate / run, settings.vad.low_hz)

    def level(frames: NDArray[np.float64], whole: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        sums = frames[:, : length * run : run]
        for at in range(1, run):
            sums = sums + frames[:, at : length * run : run]
        # einsum, not a BLAS product: BLAS may round differently for different numbers of frames.
        explained = np.einsum("tl,kl->tk", sums, slow)
        power = np.einsum("tl,tl->t", sums, sums) - np.einsum("tk,tk->t", explained, explained)
        in_band = 10.0 * np.log10(np.maximum(power, 0.0) / (length * run * run) + 1e-15)
        whole = frame_level(frames) if whole is None else whole
        return np.where(whole < SILENCE_DB, whole, np.maximum(in_band, SILENCE_DB))

    return level


def _slow_shapes(length: int, rate: float, highest: float) -> NDArray[np.float64]:
    """Return an orthonormal basis (K, ``length``) of a constant and sines up to ``highest`` Hz."""
    seconds = np.arange(length) / rate
    # Frequencies at half the frame's resolution, whose sines are nearly dependent: small singular values are left out.
    hertz = np.arange(1, int(2.0 * highest * length / rate + 1e-9) + 1) * (0.5 * rate / length)
    phases = 2.0 * np.pi * hertz[:, None] * seconds
    shapes = without_offset(np.concatenate((np.cos(phases), np.sin(phases))))
    _, weights, basis = np.linalg.svd(shapes, full_matrices=False)
    constant = np.full((1, length), length**-0.5)
    return np.concatenate((constant, basis[weights > LEAST_SHARE * weights.max(initial=0.0)]))


class VoiceActivityDetector:
    """Floor and peak trackers, carried from chunk to chunk."""

    def __init__(self, settings: VadConfig, *, frames_per_second: float) -> None:
        self._settings = settings
        self._rise = settings.rise_db_per_second / frames_per_second
        self._fall = settings.fall_db_per_second / frames_per_second
        self._starting = round(settings.start_seconds * frames_per_second)
        self._floor = np.inf
        self._peak = -np.inf

    def push(self, levels: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return speech flags (T,) and dB below the loudest frame so far (T,) of frames of ``levels`` (T,) in dB."""
        settings, rise, fall = self._settings, self._rise, self._fall
        share, least, most = settings.margin_share, settings.min_margin_db, settings.max_margin_db
        floor, peak = self._floor, self._peak
        speech, below = [], []
        # Comparisons instead of min and max, whose calls would dominate the loop.
        for level in levels.tolist():
            passes = False
            if level >= SILENCE_DB:
                peak -= fall
                peak = level if level > peak else peak
                floor += rise
                floor = level if level < floor else floor
                low = floor
                if self._starting > 0:
                    self._starting -= 1
                    low = min(floor, settings.start_floor_db)
                margin = share * (peak - low)
                margin = least if margin < least else most if margin > most else margin
                passes = level > peak - settings.range_db and level > low + margin
            speech.append(passes)
            below.append(peak - level if peak > level else 0.0)
        self._floor, self._peak = floor, peak
        return np.array(speech, dtype=bool), np.array(below, dtype=np.float64)
