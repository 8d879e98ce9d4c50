"""Voice activity detection: a causal threshold on frame energy.

A frame is speech when it is both within ``range_db`` of the loudest so far and far enough above the noise floor. Far
enough is ``margin_share`` of the distance from floor to peak, within ``min_margin_db`` and ``max_margin_db``: strict
where speech stands far above the noise, lenient where it does not. The floor is the lowest level so far, rising
``rise_db_per_second`` while louder frames go by; the peak sinks ``fall_db_per_second``. There is no look-ahead.

Digital silence carries no information about the room and leaves both trackers unchanged. At the start the floor is
unknown: for ``start_seconds`` it is taken to be at most ``start_floor_db`` below full scale, so that a recording that
begins in mid-word passes from its first frame. Only there does absolute level matter. Steady noise passes no longer
than that, too short to be scored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.config import VadConfig
from pipeline.features.framing import without_offset

# Quieter than the last bit of 16-bit audio: digital silence.
SILENCE_DB = -100.0


def frame_level(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the level (T,) of ``frames`` (T, L) in dB below full scale: 10 log10 of the variance, never -inf.

    The variance, not the mean square: a constant offset, as cheap sound cards add, is no sound.
    """
    centred = without_offset(frames)
    power = np.einsum("tl,tl->t", centred, centred) / frames.shape[1]
    return np.asarray(10.0 * np.log10(power + 1e-15))


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
