"""Fingerprints of recordings, and whether audio is a copy of one that was heard before.

Two takes of one word by one speaker are never the same signal; a copy of a recording is, whatever codec, gain, rate or
offset in time it went through. Every 10 ms one number of 32 bits says, for 32 pairs of neighbouring bands between 300
and 3,300 Hz, whether the difference of their levels has risen or fallen over the last 30 ms (Haitsma and Kalker, A
highly robust audio fingerprinting system, 2002, with other steps). Audio is taken for a copy as soon as a window of it
differs from a recording, at some place, in fewer bits than two takes do.

This finds copies of recordings that are known. It is no test of liveness: a recording that was never heard here, a
loudspeaker in a room, a synthetic voice pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import Resampler, open_audio
from pipeline.features.framing import FrameStream, frames_of

Array = NDArray[np.float64]
Prints = NDArray[np.uint32]
"""One number a frame of 10 ms; 0 where the recording is digitally silent."""

RATE = 8000  # Hz: a telephone's, so that what went through one can be compared
STEP = 80
STEP_SECONDS = STEP / RATE
_LENGTH = 512
_LAG = 3  # frames from a level to the one that it is compared with
_BITS = 32
_EDGES = np.round(np.geomspace(300.0, 3300.0, _BITS + 2) / RATE * _LENGTH).astype(int)
_LEAST_POWER = 1e-12
_SILENCE = 1e-7  # of a frame's energy between those edges: a tenth of that of 16-bit rounding

# Of a window of 0.64 s, what is within 30 dB of the loudest so far is compared: pauses tell nothing.
WINDOW = 64
LEAST_LOUD = 16
RANGE_DB = 30.0
CHECK_EVERY = 20
LOOK_SECONDS = 0.4
# Places that differ by more than this in a few frames of the window are not looked at in the others.
_FIRST_FRAMES = 8
_FIRST_DIFFERING = 0.38
_EVENLY = np.linspace(0.0, 1.0, _FIRST_FRAMES)


def most_differing(loud: int) -> float:
    """Share of differing bits below which ``loud`` compared frames are a copy.

    Chance agrees more easily on few frames. Chosen on the 4,800 enrollment recordings of commands30: the nearest of
    their speakers' other takes is 0.01 above this line, the worst copy by mu-law at 8 kHz just under it.
    """
    return float(0.34 - 0.6 / np.sqrt(loud))


class FingerprintStream:
    """Mono samples at ``rate`` Hz to fingerprints, one a 10 ms frame, and the level of each frame in dB.

    ``compiled`` loads numba, and makes no difference but in time.
    """

    def __init__(self, rate: int, *, compiled: bool = False) -> None:
        self._resampler = Resampler(rate, RATE)
        self._frames = FrameStream(_LENGTH, STEP)
        self._compiled = compiled
        self._bands = np.empty((0, _BITS + 1))

    def push(self, samples: Array) -> tuple[Prints, Array]:
        """Fingerprints and levels (T,) of the frames that ``samples`` (n,) complete."""
        return self._heard(self._resampler.push(samples))

    def flush(self) -> tuple[Prints, Array]:
        """Those that were waiting for audio after them; takes no more."""
        return self._heard(self._resampler.flush())

    def _heard(self, samples: Array) -> tuple[Prints, Array]:
        powers, prints = (_compiled_powers, _compiled_prints) if self._compiled else (_powers, _prints)
        bands = np.concatenate((self._bands, powers(*self._frames.completed(samples))))
        self._bands = bands[max(0, len(bands) - _LAG) :]
        found, energies = prints(bands)
        return found, 10.0 * np.log10(energies)


_WINDOW = np.hanning(_LENGTH)


def _powers(samples: Array, count: int) -> Array:
    """Powers (T, B + 1), more than nothing, in the bands of the first ``count`` frames of ``samples``."""
    spectrum = np.fft.rfft(frames_of(samples, count, _LENGTH, STEP) * _WINDOW, axis=1)
    heard = spectrum[:, _EDGES[0] : _EDGES[-1]]
    powers: Array = np.add.reduceat(heard.real**2 + heard.imag**2, _EDGES[:-1] - _EDGES[0], axis=1)
    return powers + _LEAST_POWER


def _prints(bands: Array) -> tuple[Prints, Array]:
    """Fingerprints (T,) and energies (T,) of all frames but the first ``_LAG`` by their ``bands`` (T + 3, B + 1)."""
    before, now = bands[:-_LAG], bands[_LAG:]
    # Of levels, which are logs: one band's less its neighbour's, more than it was.
    rising = now[:, 1:] * before[:, :-1] > before[:, 1:] * now[:, :-1]
    energies = now.sum(axis=1)
    found = np.packbits(rising, axis=1, bitorder="little").view("<u4")[:, 0].astype(np.uint32, copy=False)
    return np.where(energies > _SILENCE, found, np.uint32(0)), energies


def _compiled_powers(samples: Array, count: int) -> Array:
    from pipeline import fingerprint_kernels

    frames, powers = np.empty((count, _LENGTH)), np.empty((count, _BITS + 1))
    fingerprint_kernels.windowed(samples, STEP, _WINDOW, frames)
    fingerprint_kernels.band_powers(np.fft.rfft(frames, axis=1).view(np.float64), _EDGES, _LEAST_POWER, powers)
    return powers


def _compiled_prints(bands: Array) -> tuple[Prints, Array]:
    from pipeline import fingerprint_kernels

    count = max(0, len(bands) - _LAG)
    found, energies = np.empty(count, dtype=np.uint32), np.empty(count)
    fingerprint_kernels.prints(bands, _LAG, _SILENCE, found, energies)
    return found, energies


def _differing(known: Prints, recent: Prints, frames: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    """Bits in which the ``frames`` of ``recent`` differ from what is ``known``, for each place where they may lie."""
    places = len(known) - len(recent) + 1
    lagged = np.ndarray((len(recent), places), known.dtype, known, strides=(known.itemsize, known.itemsize))
    return np.asarray(np.bitwise_count(lagged[frames] ^ recent[frames, None]).sum(axis=0, dtype=np.uint16))


def _compiled_differing(known: Prints, recent: Prints, frames: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    from pipeline import fingerprint_kernels

    found = np.empty(len(known) - len(recent) + 1, dtype=np.uint32)
    fingerprint_kernels.differing(known, recent, frames, found)
    return found


class ReplayDetector:
    """Whether one stream of audio holds a copy of one of the recordings with these ``known`` fingerprints.

    ``push`` and ``close`` return ``suspected``, which stays true. Checks are of every 0.2 s of audio, at the same
    places however it is cut, and cost in proportion to the length of all that is known. ``prints`` are those of the
    audio itself, of its first ``keep`` frames where that is a number: a stream may be long. ``compiled`` as for
    ``FingerprintStream``.
    """

    def __init__(self, known: Iterable[Prints], rate: int, *, keep: int | None = None, compiled: bool = False) -> None:
        self.suspected = False
        # A window may begin before the first recording, and end after the last.
        room = np.zeros(WINDOW, dtype=np.uint32)
        self._known = joined([room, *known, room])
        self._stream = FingerprintStream(rate, compiled=compiled)
        self._differing = _compiled_differing if compiled else _differing
        # A hundred calls of numpy take their time however little they are given.
        self._waiting: list[Array] = []
        self._samples, self._enough = 0, round(LOOK_SECONDS * rate)
        self._keep_most = keep
        self._heard: list[Prints] = []
        self._recent = np.empty(0, dtype=np.uint32)
        self._loud = np.empty(0, dtype=bool)
        self._peak = -np.inf
        self._count = 0

    @property
    def prints(self) -> Prints:
        """Fingerprints (T,) of what has been heard, as far as they are kept."""
        return joined(self._heard)[: self._keep_most]

    def push(self, samples: Array) -> bool:
        """Take in mono ``samples`` (n,), which are kept as they are and looked at once there are 0.4 s of them."""
        self._waiting.append(samples)
        self._samples += len(samples)
        if self._samples >= self._enough:
            self._look()
        return self.suspected

    def _look(self) -> None:
        samples = np.concatenate([np.empty(0), *self._waiting])
        self._waiting, self._samples = [], 0
        self._take(*self._stream.push(samples))

    def close(self) -> bool:
        """Take in what waited for more audio, and look at the end."""
        self._look()
        self._take(*self._stream.flush())
        self._check()
        return self.suspected

    def _take(self, prints: Prints, levels: Array) -> bool:
        if self._keep_most is None or self._count < self._keep_most:
            self._heard.append(prints)
        at = 0
        while at < len(prints):
            size = min(len(prints) - at, CHECK_EVERY - self._count % CHECK_EVERY)
            self._keep(prints[at : at + size], levels[at : at + size])
            at += size
            if self._count % CHECK_EVERY == 0:
                self._check()
        return self.suspected

    def _keep(self, prints: Prints, levels: Array) -> None:
        peaks = np.maximum(np.maximum.accumulate(levels), self._peak)
        self._peak = float(peaks[-1])
        self._count += len(prints)
        loud = (levels > peaks - RANGE_DB) & (prints != 0)
        self._recent = np.concatenate((self._recent, prints))[-WINDOW:]
        self._loud = np.concatenate((self._loud, loud))[-WINDOW:]

    def _check(self) -> None:
        """Compare the last window with every place in the known recordings."""
        loud = np.flatnonzero(self._loud)
        places = len(self._known) - len(self._recent) + 1
        if self.suspected or len(loud) < LEAST_LOUD or places < 1:
            return
        few = loud[np.rint(_EVENLY * (len(loud) - 1)).astype(int)]
        differing = self._differing(self._known, self._recent, few)
        near = np.flatnonzero(differing < _FIRST_DIFFERING * _BITS * len(few))
        if len(near):
            bits = np.bitwise_count(self._known[near[:, None] + loud] ^ self._recent[loud]).sum(axis=1, dtype=np.int64)
            self.suspected = float(bits.min()) < most_differing(len(loud)) * _BITS * len(loud)


def joined(recordings: Iterable[Prints]) -> Prints:
    """Fingerprints of several recordings as one array."""
    return np.concatenate([np.empty(0, dtype=np.uint32), *recordings])


def fingerprint_of(samples: Array, rate: int) -> Prints:
    """Fingerprints (T,) of mono ``samples`` (n,) at ``rate`` Hz."""
    stream = FingerprintStream(rate)
    return np.concatenate((stream.push(samples)[0], stream.flush()[0]))


def fingerprint_file(path: Path | str, *, start: float | None = None, end: float | None = None) -> Prints:
    """Fingerprints (T,) of a file, or of a segment of it in seconds; raises AudioError."""
    with open_audio(path, start=start, end=end) as audio:
        stream = FingerprintStream(audio.rate)
        found = [stream.push(samples)[0] for samples in audio.blocks()]
    return np.concatenate([*found, stream.flush()[0]])
