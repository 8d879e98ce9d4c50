"""Streaming conversion of the sampling rate, by libsoxr."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import soxr

from pipeline.audio.streams import Samples, check_rate
from pipeline.errors import StreamClosedError


class Resampler:
    """Streaming conversion from ``in_rate`` to ``out_rate`` Hz: libsoxr's HQ quality, one channel.

    The concatenated output is the same bit for bit however the input is cut into pushes. With equal rates
    every push returns its argument. Raises ``AudioError`` for a rate out of range.
    """

    def __init__(self, in_rate: int, out_rate: int) -> None:
        check_rate(in_rate, "resampler input")
        check_rate(out_rate, "resampler output")
        self.in_rate = in_rate
        self.out_rate = out_rate
        self._stream = None if in_rate == out_rate else _soxr_stream(in_rate, out_rate)
        self._closed = False

    @property
    def delay_ms(self) -> float:
        """Return the longest time in milliseconds that audio waits inside, measured; 0 for equal rates.

        libsoxr filters in whole blocks, so the wait varies between a few milliseconds and this value.
        """
        return 0.0 if self._stream is None else _longest_wait_ms(self.in_rate, self.out_rate)

    def push(self, samples: Samples) -> Samples:
        """Take finite ``samples`` (n,) and return the output (m,) that is ready, often none.

        Raises ``StreamClosedError`` after ``flush``.
        """
        self._refuse_if_closed()
        if self._stream is None:
            return samples
        ready: Samples = self._stream.resample_chunk(np.ascontiguousarray(samples, dtype=np.float64))
        return ready

    def flush(self) -> Samples:
        """Return the rest of the output (m,) and close; a second flush raises ``StreamClosedError``."""
        self._refuse_if_closed()
        self._closed = True
        if self._stream is None:
            return np.empty(0)
        rest: Samples = self._stream.resample_chunk(np.empty(0), last=True)
        return rest

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StreamClosedError("resampler: it has been flushed and takes no more audio; make a new one")


def resampled(samples: Samples, in_rate: float, out_rate: int) -> Samples:
    """Return whole ``samples`` (n,) at ``out_rate`` Hz."""
    if in_rate == out_rate:
        return samples
    return np.asarray(soxr.resample(samples, in_rate, out_rate, quality="HQ"), dtype=np.float64)


def _soxr_stream(in_rate: int, out_rate: int) -> Any:
    return soxr.ResampleStream(in_rate, out_rate, 1, dtype="float64", quality="HQ")


@lru_cache
def _longest_wait_ms(in_rate: int, out_rate: int) -> float:
    """Measure the wait with silence, a millisecond at a time.

    The number of samples out depends only on the number in. Two seconds or 2**16 samples hold enough of the filter's
    blocks to find the longest wait to within a sample.
    """
    stream = _soxr_stream(in_rate, out_rate)
    chunk = np.zeros(max(1, in_rate // 1000))
    came_out, longest = 0, 0.0
    for went_in in range(len(chunk), max(2 * in_rate, 2**16), len(chunk)):
        longest = max(longest, went_in / in_rate - came_out / out_rate)
        came_out += len(stream.resample_chunk(chunk))
    return 1000.0 * (longest + 1.0 / out_rate)
