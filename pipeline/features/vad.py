"""Voice activity detection: a causal threshold on the level of a frame in the band of speech.

A frame is speech when it is both within ``range_db`` of the loudest so far and far enough above the noise floor. Far
enough is ``margin_share`` of the distance from floor to peak, within ``min_margin_db`` and ``max_margin_db``: strict
where speech stands far above the noise, lenient where it does not. The floor is the lowest level so far, rising
``rise_db_per_second`` while louder frames go by; the peak sinks ``fall_db_per_second``. There is no look-ahead.

The band is about ``low_hz`` to ``high_hz``, so that rumble and hum below it do not shut the gate, nor much of the hiss
above it. Runs of samples are averaged, which takes 3 to 4 dB off at ``high_hz``; and the part of each frame that sines
up to ``low_hz`` explain is left out, fitted by least squares: of rumble, 60 dB less remains, where a window would let
it leak into the band. Nothing is carried from frame to frame.

Digital silence, quiet at all frequencies, carries no information about the room and leaves both trackers unchanged. At
the start the floor is unknown: for ``start_seconds`` it is taken to be at most ``start_floor_db`` below full scale, so
that a recording that begins in mid-word passes from its first frame. Only there does absolute level matter. Steady
noise passes no longer than that, too short to be scored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.config import FeatureSettings, VadConfig
from pipeline.features.framing import without_offset

# Quieter than the last bit of 16-bit audio: digital silence.
SILENCE_DB = -100.0
# Singular values of less than this share of the largest are left out: 60 dB, and a few shapes instead of them all.
LEAST_SHARE = 1e-3


def frame_level(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the level (T,) of ``frames`` (T, L) in dB below full scale: 10 log10 of the variance, never -inf.

    The variance, not the mean square: a constant offset, as cheap sound cards add, is no sound.
    """
    centred = without_offset(frames)
    power = np.einsum("tl,tl->t", centred, centred) / frames.shape[1]
    return np.asarray(10.0 * np.log10(power + 1e-15))


@lru_cache(maxsize=8)
def speech_level(settings: FeatureSettings) -> Callable[..., NDArray[np.float64]]:
    """Return the function from frames (T, L) to their level (T,) between ``vad.low_hz`` and ``vad.high_hz``, in dB.

    Digital silence has its ``frame_level``; all else is at ``SILENCE_DB`` or above. That level (T,) may be given as a
    second argument. The function is stateless, so streams share it.
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
    # Twice as dense as the frame resolves; what the sines hardly differ in is no shape of its own.
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
