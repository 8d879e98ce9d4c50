"""Streams of samples to overlapping frames, and of feature vectors to their time derivatives.

A frame starts every ``step`` samples and is returned once all its ``length`` samples have arrived, so the only delay is
the frame itself. Samples left over at the end, too few for a frame, are dropped. Deltas are a linear regression over
neighbouring frames; frame t needs the ``width`` frames after it, which is the delay of its delta.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class PreEmphasis:
    """First-order high-pass y[n] = x[n] - coefficient * x[n-1]; the last input sample is kept between chunks.

    The sample before the first is taken to equal the first, so a constant signal stays constant from its start.
    """

    def __init__(self, coefficient: float) -> None:
        self.coefficient = coefficient
        self._previous: float | None = None

    def push(self, samples: Array) -> Array:
        """Filter ``samples`` (n,) and return as many."""
        if samples.size == 0 or self.coefficient == 0.0:
            return samples
        first = samples[0] if self._previous is None else self._previous
        self._previous = float(samples[-1])
        return samples - self.coefficient * np.concatenate(([first], samples[:-1]))


def window(name: str, length: int) -> Array:
    """Return a symmetric analysis window (length,): ``hamming``, ``hann`` or ``rectangular``."""
    shapes: dict[str, Callable[[int], Array]] = {"hamming": np.hamming, "hann": np.hanning, "rectangular": np.ones}
    return shapes[name](length)


def without_offset(frames: Array) -> Array:
    """Subtract the mean of each frame from ``frames`` (T, L)."""
    # The same value as numpy's ``mean``, whose overhead would dominate for a few frames.
    return np.asarray(frames - np.add.reduce(frames, axis=1, keepdims=True) / frames.shape[1])


class FrameStream:
    """Cut a stream of samples into frames (T, length), one every ``step`` samples."""

    def __init__(self, length: int, step: int) -> None:
        self.length = length
        self.step = step
        self._pending: Array = np.empty(0)
        self._skip = 0

    def push(self, samples: Array) -> Array:
        """Return the frames (T, length) completed by ``samples`` (n,), a read-only view."""
        pending = np.concatenate((self._pending, samples)) if self._pending.size else samples
        dropped = min(self._skip, pending.size)
        self._skip -= dropped
        pending = pending[dropped:]
        count = max(0, (pending.size - self.length) // self.step + 1)
        used = count * self.step
        self._skip += max(0, used - pending.size)
        self._pending = pending[used:].copy()
        if count == 0:
            return np.empty((0, self.length))
        # As numpy's sliding_window_view, which costs more than a short chunk's frames are worth.
        samples = np.ascontiguousarray(pending)
        strides = (self.step * samples.itemsize, samples.itemsize)
        frames: Array = np.ndarray((count, self.length), samples.dtype, samples, strides=strides)
        frames.flags.writeable = False
        return frames


class DeltaStream:
    """Append deltas to static features: (T, d) in, (T', 2 d) out, ``width`` frames behind.

        delta_t = scale * sum over w = 1..width of w (x_{t+w} - x_{t-w}) / (2 sum of w^2)

    Before the first frame and after the last, the edge frame is repeated.
    """

    def __init__(self, width: int, *, scale: float = 1.0) -> None:
        self.width = width
        self.scale = scale
        self._per_square = scale / (2.0 * sum(w * w for w in range(1, width + 1)))
        self._held: Array | None = None

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
        vectors = np.empty((count, 2 * size))
        vectors[:, :size] = padded[self.width : self.width + count]
        slope = padded[self.width + 1 :][:count] - padded[self.width - 1 :][:count]
        for w in range(2, self.width + 1):
            slope += w * (padded[self.width + w :][:count] - padded[self.width - w :][:count])
        np.multiply(slope, self._per_square, out=vectors[:, size:])
        return vectors
