"""Which frames are speech: a causal gate on frame energy.

A frame passes when it is both within ``range_db`` of the loudest so far and far enough above the noise floor. Far
enough is ``margin_share`` of the distance from floor to peak, within ``least_margin_db`` and ``most_margin_db``: the
gate is strict where speech stands far above the noise, and lenient where it does not. The floor is the lowest level
so far, rising ``rise_db_per_second`` while louder frames go by; the peak sinks ``fall_db_per_second``. Nothing looks
ahead, so what a frame is does not depend on what comes after it.

Digital silence says nothing about the room and leaves both trackers alone. At the start the floor is unknown: for
``start_seconds`` it is taken to be no higher than ``start_floor_db`` below full scale, so that a recording cut into
in mid-word is heard from its first frame. That is the one place where absolute level matters. Steady noise passes no
longer than that, too short to be scored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.config import GateConfig
from pipeline.features.framing import without_offset

# Quieter than the last bit of 16-bit audio: digital silence.
SILENCE_DB = -100.0


def frame_level(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Level (T,) of ``frames`` (T, L) in dB below full scale: 10 log10 of the variance, never -inf.

    The variance, not the mean square: a constant offset, as cheap sound cards add, is no sound.
    """
    centred = without_offset(frames)
    return level(np.einsum("tl,tl->t", centred, centred) / frames.shape[1])


def level(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """``power`` in dB below full scale, never -inf."""
    return np.asarray(10.0 * np.log10(power + 1e-15))


class SpeechGate:
    """The gate's trackers, carried from chunk to chunk."""

    def __init__(self, settings: GateConfig, *, frames_per_second: float) -> None:
        self._settings = settings
        self._rise = settings.rise_db_per_second / frames_per_second
        self._fall = settings.fall_db_per_second / frames_per_second
        self._starting = round(settings.start_seconds * frames_per_second)
        self._floor = np.inf
        self._peak = -np.inf

    def push(self, levels: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Speech or not (T,) for frames of ``levels`` (T,) in dB."""
        return self.hear(levels)[0]

    def hear(self, levels: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Speech or not, and how far below the loudest so far in dB, both (T,), for frames of ``levels`` (T,) in dB."""
        settings, rise, fall = self._settings, self._rise, self._fall
        share, least, most = settings.margin_share, settings.least_margin_db, settings.most_margin_db
        floor, peak = self._floor, self._peak
        speech, below = [], []
        # Conditions, not min and max: a call for each costs more than all the rest.
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
