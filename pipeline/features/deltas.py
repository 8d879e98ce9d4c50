"""Time derivatives of feature vectors by linear regression over neighbouring frames.

The delta of frame t needs ``width`` frames after it, so the stream hands every frame out that much later: its delay.
Before the first frame and after the last the edge frame is repeated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class DeltaStream:
    """Append deltas to static features: (T, d) in, (T', 2 d) out, ``width`` frames behind."""

    def __init__(self, width: int, *, scale: float = 1.0) -> None:
        self.width = width
        self.scale = scale
        self._per_square = scale / (2.0 * sum(w * w for w in range(1, width + 1)))
        self._held: Array | None = None

    @property
    def delay_frames(self) -> int:
        """Frames of look-ahead."""
        return self.width

    def push(self, static: Array) -> Array:
        """Return every frame whose look-ahead has arrived, with its deltas."""
        if len(static) == 0:
            return np.empty((0, 2 * static.shape[1]))
        if self._held is None:
            self._held = np.repeat(static[:1], self.width, axis=0)
        return self._advance(np.concatenate((self._held, static)))

    def flush(self) -> Array:
        """Return the frames still held back, the last one repeated as their look-ahead."""
        if self._held is None:
            return np.empty((0, 0))
        return self._advance(np.concatenate((self._held, np.repeat(self._held[-1:], self.width, axis=0))))

    def _advance(self, padded: Array) -> Array:
        count = len(padded) - 2 * self.width
        if count <= 0:
            self._held = padded
            return np.empty((0, 2 * padded.shape[1]))
        self._held = padded[count:].copy()
        size = padded.shape[1]
        found = np.empty((count, 2 * size))
        found[:, :size] = padded[self.width : self.width + count]
        slope = padded[self.width + 1 :][:count] - padded[self.width - 1 :][:count]
        for w in range(2, self.width + 1):
            slope += w * (padded[self.width + w :][:count] - padded[self.width - w :][:count])
        np.multiply(slope, self._per_square, out=found[:, size:])
        return found
