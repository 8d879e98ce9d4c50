"""Which frames are speech: a causal gate on frame energy.

A frame passes when it is both within ``range_db`` of the loudest so far and at least ``margin_db`` above the noise
floor. The floor is the lowest level so far, rising ``rise_db_per_second`` while louder frames go by; the peak sinks
``fall_db_per_second``. Nothing looks ahead, so what a frame is does not depend on what comes after it.

Digital silence says nothing about the room and leaves both trackers alone. Before the first pause the floor is
unknown: it starts at ``floor_start_db`` below full scale, so that a recording cut into in mid-word is heard from its
first frame. That is the one place where absolute level matters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.config import GateConfig

# Quieter than the last bit of 16-bit audio: digital silence.
SILENCE_DB = -100.0


def frame_level(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Level (T,) of ``frames`` (T, L) in dB below full scale: 10 log10 of the mean square, never -inf."""
    power = np.einsum("tl,tl->t", frames, frames) / frames.shape[1]
    return np.asarray(10.0 * np.log10(power + 1e-15))


class SpeechGate:
    """The gate's two trackers, carried from chunk to chunk."""

    def __init__(self, settings: GateConfig, *, frames_per_second: float) -> None:
        self._range = settings.range_db
        self._margin = settings.margin_db
        self._rise = settings.rise_db_per_second / frames_per_second
        self._fall = settings.fall_db_per_second / frames_per_second
        self._floor = settings.floor_start_db
        self._peak = -np.inf

    def push(self, levels: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Speech or not (T,) for frames of ``levels`` (T,) in dB."""
        speech = np.zeros(len(levels), dtype=bool)
        for t, level in enumerate(levels.tolist()):
            if level < SILENCE_DB:
                continue
            self._peak = max(level, self._peak - self._fall)
            self._floor = min(level, self._floor + self._rise)
            speech[t] = level > self._peak - self._range and level > self._floor + self._margin
        return speech
