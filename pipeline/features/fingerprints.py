"""Audio fingerprints, for finding copies of known recordings (``pipeline.features.copies``).

Two takes of one word by one speaker are never the same signal; a copy of a recording is, after any codec, gain,
resampling or time shift. There is one fingerprint of 32 bits every 10 ms. Each bit tells, for one of 32 pairs of
neighbouring bands between 300 and 3,300 Hz, whether the difference of their levels has risen over the last 30 ms
(Haitsma and Kalker, A highly robust audio fingerprinting system, 2002, with other steps). Audio is a suspected
duplicate as soon as a window of it differs from some part of a recording in fewer bits than two takes do.

This detects copies of recordings that are known. It is no test of liveness: an unknown recording, a loudspeaker in a
room and a synthetic voice pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.resampling import Resampler
from pipeline.features.framing import FrameStream

Array = NDArray[np.float64]
Prints = NDArray[np.uint32]
"""One fingerprint per 10 ms frame; 0 where the recording is digitally silent."""

RATE = 8000  # Hz: a telephone's, so that audio sent through one can be compared
STEP = 80
STEP_SECONDS = STEP / RATE
_LENGTH = 512
_WINDOW = np.hanning(_LENGTH)
_LAG = 3  # frames between the two levels that are compared
BITS = 32
_EDGES = np.geomspace(300.0, 3300.0, BITS + 2) / RATE * _LENGTH
SCALES = (1.0, *(1.025**step for step in (-4, -3, -2, -1, 1, 2, 3, 4)))
"""Factors of frequency, and of time, at which changed copies are searched."""
_LEAST_POWER = 1e-12
_SILENCE = 1e-7  # energy of a frame between those edges: a tenth of the energy of 16-bit rounding

# In a window of 0.64 s only frames within 30 dB of the loudest so far are compared: pauses carry no information.
WINDOW = 64
LEAST_LOUD = 16
RANGE_DB = 30.0


def most_differing(loud: int) -> float:
    """Return the share of differing bits below which a comparison of ``loud`` frames indicates a duplicate.

    Few frames agree by chance more easily. Chosen on the 4,800 enrollment recordings of commands30: the closest other
    take of the same speaker is 0.01 above this line, the worst copy by mu-law at 8 kHz just under it.
    """
    return float(0.34 - 0.6 / np.sqrt(loud))


class FingerprintStream:
    """Mono samples at ``rate`` Hz to fingerprints, one per 10 ms frame, and the level of each frame in dB.

    Each frame has one fingerprint for each of the S ``scales``, with bands multiplied by it; the first scale must be 1.
    """

    def __init__(self, rate: int, scales: Sequence[float] = (1.0,)) -> None:
        self._ends = np.round(np.outer(scales, _EDGES)).astype(int) - 1
        self._resampler = Resampler(rate, RATE)
        self._frames = FrameStream(_LENGTH, STEP)
        self._rises = np.empty((0, len(scales), BITS))

    def push(self, samples: Array) -> tuple[Prints, Array]:
        """Return fingerprints (T, S) and levels (T,) in dB of the frames that ``samples`` (n,) complete."""
        return self._prints_of(self._resampler.push(samples))

    def flush(self) -> tuple[Prints, Array]:
        """Return fingerprints and levels of the last frames, and close."""
        return self._prints_of(self._resampler.flush())

    def _prints_of(self, samples: Array) -> tuple[Prints, Array]:
        bands = self._band_powers(self._frames.push(samples))
        # log r_b = log P_b+1 - log P_b, which is compared with what it was _LAG frames ago
        rises = np.concatenate((self._rises, bands[..., 1:] / bands[..., :-1]))
        self._rises = rises[max(0, len(rises) - _LAG) :]
        more = rises[_LAG:] > rises[:-_LAG]
        energies = bands[len(bands) - len(more) :, 0].sum(axis=1)
        prints = np.packbits(more, axis=2, bitorder="little").view("<u4")[..., 0].astype(np.uint32, copy=False)
        return np.where(energies[:, None] > _SILENCE, prints, np.uint32(0)), 10.0 * np.log10(energies)

    def _band_powers(self, frames: Array) -> Array:
        """Return the powers (T, S, B + 1), above 0, of ``frames`` (T, L) in the bands of each scale."""
        spectrum = np.fft.rfft(frames * _WINDOW, axis=1)[:, : self._ends.max() + 1]
        below = np.cumsum(spectrum.real**2 + spectrum.imag**2, axis=1).take(self._ends.ravel(), axis=1)
        below = below.reshape(len(below), *self._ends.shape)
        powers: Array = below[..., 1:] - below[..., :-1]
        powers += _LEAST_POWER
        return powers


def joined(recordings: Iterable[Prints]) -> Prints:
    """Concatenate the fingerprints of several recordings."""
    return np.concatenate([np.empty(0, dtype=np.uint32), *recordings])
