"""Samples to overlapping frames: pre-emphasis, then whole, left-aligned frames.

A frame starts every ``step`` samples and is handed out once all its ``length`` samples have arrived, so the only
delay is the frame itself. Samples left over at the end, too few for a frame, are dropped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]


class PreEmphasis:
    """First-order high-pass y[n] = x[n] - coefficient * x[n-1], its last input sample kept between chunks.

    The sample before the first is taken to equal the first, so a constant signal stays constant from its start.
    """

    def __init__(self, coefficient: float) -> None:
        self.coefficient = coefficient
        self._previous: float | None = None

    def push(self, samples: Samples) -> Samples:
        """Filter ``samples`` (n,) and return as many."""
        if samples.size == 0 or self.coefficient == 0.0:
            return samples
        first = samples[0] if self._previous is None else self._previous
        self._previous = float(samples[-1])
        return samples - self.coefficient * np.concatenate(([first], samples[:-1]))


def without_offset(frames: Samples) -> Samples:
    """``frames`` (T, L), each less its own mean."""
    # What ``mean`` gives, without what it takes beside: of a few frames that is the most.
    return np.asarray(frames - np.add.reduce(frames, axis=1, keepdims=True) / frames.shape[1])


def frames_of(samples: Samples, count: int, length: int, step: int) -> Samples:
    """The first ``count`` frames (count, length) in ``samples`` (n,), one every ``step``: a read-only view."""
    if count == 0:
        return np.empty((0, length))
    # numpy's sliding windows, which take longer to make than a short chunk's frames to be used.
    size = samples.itemsize
    frames: Samples = np.ndarray((count, length), dtype=samples.dtype, buffer=samples, strides=(step * size, size))
    frames.flags.writeable = False
    return frames


class FrameStream:
    """Cut a stream of samples into frames (T, length), one every ``step`` samples."""

    def __init__(self, length: int, step: int) -> None:
        self.length = length
        self.step = step
        self._pending: Samples = np.empty(0)
        self._skip = 0

    def push(self, samples: Samples) -> Samples:
        """Return the frames (T, length) completed by ``samples`` (n,), a read-only view."""
        return frames_of(*self.completed(samples), self.length, self.step)

    def completed(self, samples: Samples) -> tuple[Samples, int]:
        """The samples in which the frames completed by ``samples`` (n,) lie, from the first one's on; how many."""
        pending = np.concatenate((self._pending, samples)) if self._pending.size else samples
        dropped = min(self._skip, pending.size)
        self._skip -= dropped
        pending = pending[dropped:]
        count = max(0, (pending.size - self.length) // self.step + 1) if self._skip == 0 else 0
        used = count * self.step
        self._skip += max(0, used - pending.size)
        self._pending = pending[used:].copy()
        return np.ascontiguousarray(pending), count
