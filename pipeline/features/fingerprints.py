"""Audio fingerprints, and detection of audio that duplicates a known recording.

Two takes of one word by one speaker are never the same signal; a copy of a recording is, whatever codec, gain, rate or
offset in time it went through. Every 10 ms a fingerprint holds 32 bits: for each of 32 pairs of neighbouring bands
between 300 and 3,300 Hz, whether the difference of their levels has risen over the last 30 ms (Haitsma and Kalker, A
highly robust audio fingerprinting system, 2002, with other steps). Audio is a suspected duplicate as soon as a window
of it differs from a recording, at some place, in fewer bits than two takes do.

This detects copies of recordings that are known. It is no test of liveness: an unknown recording, a loudspeaker in a
room and a synthetic voice pass.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pipeline.audio.resampling import Resampler
from pipeline.features.framing import FrameStream

Array = NDArray[np.float64]
Prints = NDArray[np.uint32]
"""One fingerprint a frame of 10 ms; 0 where the recording is digitally silent."""

RATE = 8000  # Hz: a telephone's, so that what went through one can be compared
STEP = 80
STEP_SECONDS = STEP / RATE
_LENGTH = 512
_WINDOW = np.hanning(_LENGTH)
_LAG = 3  # frames from a level to the one that it is compared with
_BITS = 32
_EDGES = np.round(np.geomspace(300.0, 3300.0, _BITS + 2) / RATE * _LENGTH).astype(int)
_LEAST_POWER = 1e-12
_SILENCE = 1e-7  # of a frame's energy between those edges: a tenth of that of 16-bit rounding

# In a window of 0.64 s only frames within 30 dB of the loudest so far are compared: pauses carry no information.
WINDOW = 64
LEAST_LOUD = 16
RANGE_DB = 30.0
CHECK_EVERY = 20
CHECK_SECONDS = 0.4
# Places that differ by more than this share in the first few frames compared are skipped.
_FIRST_FRAMES = 8
_FIRST_DIFFERING = 0.38
_EVENLY = np.linspace(0.0, 1.0, _FIRST_FRAMES)


def most_differing(loud: int) -> float:
    """Return the share of differing bits below which ``loud`` compared frames are a duplicate.

    Chance agrees more easily on few frames. Chosen on the 4,800 enrollment recordings of commands30: the nearest of
    their speakers' other takes is 0.01 above this line, the worst copy by mu-law at 8 kHz just under it.
    """
    return float(0.34 - 0.6 / np.sqrt(loud))


class FingerprintStream:
    """Mono samples at ``rate`` Hz to fingerprints, one a 10 ms frame, and the level of each frame in dB."""

    def __init__(self, rate: int) -> None:
        self._resampler = Resampler(rate, RATE)
        self._frames = FrameStream(_LENGTH, STEP)
        self._bands = np.empty((0, _BITS + 1))

    def push(self, samples: Array) -> tuple[Prints, Array]:
        """Return fingerprints and levels (T,) of the frames that ``samples`` (n,) complete."""
        return self._prints_of(self._resampler.push(samples))

    def flush(self) -> tuple[Prints, Array]:
        """Return those of the last frames, and close."""
        return self._prints_of(self._resampler.flush())

    def _prints_of(self, samples: Array) -> tuple[Prints, Array]:
        bands = np.concatenate((self._bands, _band_powers(self._frames.push(samples))))
        self._bands = bands[max(0, len(bands) - _LAG) :]
        before, now = bands[:-_LAG], bands[_LAG:]
        # log now_{b+1} - log now_b > log before_{b+1} - log before_b, without logarithms
        rising = now[:, 1:] * before[:, :-1] > before[:, 1:] * now[:, :-1]
        energies = now.sum(axis=1)
        prints = np.packbits(rising, axis=1, bitorder="little").view("<u4")[:, 0].astype(np.uint32, copy=False)
        return np.where(energies > _SILENCE, prints, np.uint32(0)), 10.0 * np.log10(energies)


def _band_powers(frames: Array) -> Array:
    """Return the powers (T, B + 1), above 0, of ``frames`` (T, L) in the bands."""
    spectrum = np.fft.rfft(frames * _WINDOW, axis=1)[:, _EDGES[0] : _EDGES[-1]]
    powers: Array = np.add.reduceat(spectrum.real**2 + spectrum.imag**2, _EDGES[:-1] - _EDGES[0], axis=1)
    return powers + _LEAST_POWER


class DuplicateDetector:
    """Detects duplicates in a stream: whether it holds a copy of a recording with these ``known`` fingerprints.

    ``push`` and ``close`` return ``suspected``, which stays true. Every 0.2 s of audio is checked, at the same places
    however it is cut, at a cost proportional to the length of all known recordings. ``prints`` are those of the stream
    itself, of its first ``keep`` frames.
    """

    def __init__(self, known: Iterable[Prints], rate: int, *, keep: int = 0) -> None:
        self.suspected = False
        # A window may begin before the first recording, and end after the last.
        room = np.zeros(WINDOW, dtype=np.uint32)
        self._known = joined([room, *known, room])
        self._stream = FingerprintStream(rate)
        # Samples are collected until there are 0.4 s: a check costs a hundred numpy calls however few they are.
        self._waiting: list[Array] = []
        self._samples, self._enough = 0, round(CHECK_SECONDS * rate)
        self._keep_most = keep
        self._kept: list[Prints] = []
        self._recent = np.empty(0, dtype=np.uint32)
        self._loud = np.empty(0, dtype=bool)
        self._peak = -np.inf
        self._count = 0

    @property
    def prints(self) -> Prints:
        """Fingerprints (T,) of the stream so far, as far as they are kept."""
        return joined(self._kept)[: self._keep_most]

    def push(self, samples: Array) -> bool:
        """Take mono ``samples`` (n,), which must not change afterwards; they are checked every 0.4 s."""
        self._waiting.append(samples)
        self._samples += len(samples)
        if self._samples >= self._enough:
            self._process()
        return self.suspected

    def close(self) -> bool:
        """Check what is left."""
        self._process()
        self._take(*self._stream.flush())
        self._check()
        return self.suspected

    def _process(self) -> None:
        samples = np.concatenate([np.empty(0), *self._waiting])
        self._waiting, self._samples = [], 0
        self._take(*self._stream.push(samples))

    def _take(self, prints: Prints, levels: Array) -> None:
        if self._count < self._keep_most:
            self._kept.append(prints)
        at = 0
        while at < len(prints):
            size = min(len(prints) - at, CHECK_EVERY - self._count % CHECK_EVERY)
            self._slide(prints[at : at + size], levels[at : at + size])
            at += size
            if self._count % CHECK_EVERY == 0:
                self._check()

    def _slide(self, prints: Prints, levels: Array) -> None:
        """Move the window on."""
        peaks = np.maximum(np.maximum.accumulate(levels), self._peak)
        self._peak = float(peaks[-1])
        self._count += len(prints)
        loud = (levels > peaks - RANGE_DB) & (prints != 0)
        self._recent = np.concatenate((self._recent, prints))[-WINDOW:]
        self._loud = np.concatenate((self._loud, loud))[-WINDOW:]

    def _check(self) -> None:
        """Compare the window with every place in the known recordings."""
        loud = np.flatnonzero(self._loud)
        places = len(self._known) - len(self._recent) + 1
        if self.suspected or len(loud) < LEAST_LOUD or places < 1:
            return
        few = loud[np.rint(_EVENLY * (len(loud) - 1)).astype(int)]
        # differing[p]: bits in which those frames differ from the known recordings at place p, by a strided view.
        size = self._known.itemsize
        lagged = np.ndarray((len(self._recent), places), self._known.dtype, self._known, strides=(size, size))
        differing = np.bitwise_count(lagged[few] ^ self._recent[few, None]).sum(axis=0, dtype=np.uint16)
        near = np.flatnonzero(differing < _FIRST_DIFFERING * _BITS * len(few))
        if len(near):
            bits = np.bitwise_count(self._known[near[:, None] + loud] ^ self._recent[loud]).sum(axis=1, dtype=np.int64)
            self.suspected = float(bits.min()) < most_differing(len(loud)) * _BITS * len(loud)


def joined(recordings: Iterable[Prints]) -> Prints:
    """Concatenate the fingerprints of several recordings."""
    return np.concatenate([np.empty(0, dtype=np.uint32), *recordings])
