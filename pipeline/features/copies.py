"""Detection of audio that is a copy of a known recording, unchanged or changed, by fingerprints.

Two searches: the last 0.64 s are compared with every place in the known recordings, and the last 2.56 s are searched
for copies at another speed, pitch or tempo. If all frequencies were multiplied by a factor, bands multiplied by the
same factor give the recording's bits again; at another speed or tempo, frames are farther apart or closer together.
Nine factors of each are tried, at places where twenty neighbouring bits of a frame agree with those of a known frame,
as they do several times in a copy.

Nobody says a phrase of that length the same way twice. Neither does a synthesiser: it repeats words to the bit, but not
the pauses between them. Over 2.56 s, copies are also found after worse codecs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pipeline.features.fingerprints import (
    BITS,
    LEAST_LOUD,
    RANGE_DB,
    SCALES,
    WINDOW,
    Array,
    FingerprintStream,
    Prints,
    joined,
    most_differing,
)

Frames = NDArray[np.int64]

CHECK_EVERY = 20
CHECK_SECONDS = 0.4
# Places that differ by more than this share in the first few frames compared are skipped.
_FIRST_FRAMES = 8
_FIRST_DIFFERING = 0.38
_EVENLY = np.linspace(0.0, 1.0, _FIRST_FRAMES)

CHANGED_WINDOW = 256
CHANGED_EVERY = 120
CHANGED_LEAST_LOUD = 60
_KEY_BITS, _KEY_SHIFTS = 20, (0, 12)
_BESIDE = np.array([-6, -3, 3, 6])  # offsets of the frames that are compared first, at any rate
_BESIDE_DIFFERING = 0.4
# A steady tone agrees with another one everywhere, so that the number of trials needs a limit.
_MOST_ALIKE, _MOST_ANCHORS = 8, 4096
_CHANGED_FIRST = 16
_CHANGED_FIRST_DIFFERING = 0.42


def changed_most_differing(loud: int) -> float:
    """Return the share of differing bits below which a comparison of ``loud`` frames indicates a changed copy.

    Chosen on the 300 development phrases of commands30: the closest pair is 0.09 above this line. Among the 72 phrases
    of data/demo the closest pair is on it: a synthetic voice that repeats two words of three.
    """
    return float(0.35 - 0.6 / np.sqrt(loud))


class DuplicateDetector:
    """Detects copies, in a stream, of the recordings with these ``known`` fingerprints.

    ``push`` and ``close`` return ``suspected``, which stays true once set. Unchanged copies are searched every 0.2 s of
    audio, at a cost proportional to the total length of the recordings; changed copies every 1.2 s, and at the end.
    These times do not depend on how the audio is cut into chunks. ``prints`` are the fingerprints of the stream's first
    ``keep`` frames.
    """

    def __init__(self, known: Iterable[Prints], rate: int, *, keep: int = 0) -> None:
        self.suspected = False
        # A window may begin before the first recording, and end after the last.
        room = np.zeros(WINDOW, dtype=np.uint32)
        self._known = joined([room, *known, room])
        self._sums = np.empty(len(self._known), np.uint16)
        self._different = np.empty(len(self._known), np.uint32)
        self._bits = np.empty(len(self._known), np.uint8)
        self._changed = ChangedCopies(self._known)
        self._stream = FingerprintStream(rate, SCALES)
        # Samples are collected until there are 0.4 s: a check takes a hundred numpy calls even for a few samples.
        self._waiting: list[Array] = []
        self._samples, self._enough = 0, round(CHECK_SECONDS * rate)
        self._keep_most = keep
        self._kept: list[Prints] = []
        self._recent = np.empty((0, len(SCALES)), dtype=np.uint32)
        self._loud = np.empty(0, dtype=bool)
        self._peak = -np.inf
        self._count = 0

    @property
    def prints(self) -> Prints:
        """Return the fingerprints (T,) kept of the stream so far."""
        return joined(self._kept)[: self._keep_most]

    def push(self, samples: Array) -> bool:
        """Take mono ``samples`` (n,), which must not change afterwards; they are checked every 0.4 s."""
        self._waiting.append(samples)
        self._samples += len(samples)
        if self._samples >= self._enough:
            self._process()
        return self.suspected

    def close(self) -> bool:
        """Check the remaining samples."""
        if self._waiting:
            self._process()
        self._take(*self._stream.flush())
        self._check()
        self._check_changed()
        return self.suspected

    def _process(self) -> None:
        samples = np.concatenate(self._waiting)
        self._waiting, self._samples = [], 0
        self._take(*self._stream.push(samples))

    def _take(self, prints: Prints, levels: Array) -> None:
        if self._count < self._keep_most:
            self._kept.append(prints[:, 0])
        at = 0
        while at < len(prints):
            size = min(len(prints) - at, CHECK_EVERY - self._count % CHECK_EVERY)
            self._slide(prints[at : at + size], levels[at : at + size])
            at += size
            if self._count % CHECK_EVERY == 0:
                self._check()
            if self._count >= CHANGED_WINDOW and self._count % CHANGED_EVERY == 0:
                self._check_changed()

    def _slide(self, prints: Prints, levels: Array) -> None:
        """Advance the window."""
        peaks = np.maximum(np.maximum.accumulate(levels), self._peak)
        self._peak = float(peaks[-1])
        self._count += len(prints)
        loud = (levels > peaks - RANGE_DB) & (prints[:, 0] != 0)
        self._recent = np.concatenate((self._recent, prints))[-CHANGED_WINDOW:]
        self._loud = np.concatenate((self._loud, loud))[-CHANGED_WINDOW:]

    def _check(self) -> None:
        """Compare the last 0.64 s with every place in the known recordings."""
        recent, loud = self._recent[-WINDOW:, 0], np.flatnonzero(self._loud[-WINDOW:])
        places = len(self._known) - len(recent) + 1
        if self.suspected or len(loud) < LEAST_LOUD:
            return
        few = loud[np.rint(_EVENLY * (len(loud) - 1)).astype(int)]
        # differing[p]: bits in which those frames differ from the known recordings at place p. Written over in place:
        # allocating new arrays would cost more than the computation.
        differing, different, bits = self._sums[:places], self._different[:places], self._bits[:places]
        differing[:] = 0
        for frame in few:
            np.bitwise_xor(self._known[frame : frame + places], recent[frame], out=different)
            np.add(differing, np.bitwise_count(different, out=bits), out=differing)
        near = np.flatnonzero(differing < _FIRST_DIFFERING * BITS * len(few))
        if len(near):
            counts = np.bitwise_count(self._known[near[:, None] + loud] ^ recent[loud]).sum(axis=1, dtype=np.int64)
            self.suspected = float(counts.min()) < most_differing(len(loud)) * BITS * len(loud)

    def _check_changed(self) -> None:
        """Search the known recordings for changed copies of the last 2.56 s."""
        if not self.suspected:
            self.suspected = self._changed.hold(self._recent, np.flatnonzero(self._loud))


class ChangedCopies:
    """Index of the ``known`` fingerprints, for the search of changed copies."""

    def __init__(self, known: Prints) -> None:
        self._known = known
        self._keys = [known >> shift & 2**_KEY_BITS - 1 for shift in _KEY_SHIFTS]

    def hold(self, prints: Prints, loud: Frames) -> bool:
        """Return True if ``prints`` (T, S), compared on the frames ``loud``, are a changed copy.

        Each anchor is tried with each rate: in a few frames first, then in all.
        """
        if len(loud) < CHANGED_LEAST_LOUD:
            return False
        frames, scales, places = self._anchors(prints, loud)
        few = loud[np.rint(np.linspace(0, len(loud) - 1, _CHANGED_FIRST)).astype(int)]
        anchors = np.repeat(np.arange(len(frames)), len(SCALES))
        rates = np.tile(SCALES, len(frames))
        for compared, most in ((few, _CHANGED_FIRST_DIFFERING), (loud, changed_most_differing(len(loud)))):
            at = places[anchors, None] + np.rint((compared - frames[anchors, None]) * rates[:, None]).astype(int)
            near = self._differing(prints[compared, scales[anchors, None]], at) < most
            anchors, rates = anchors[near], rates[near]
        return len(anchors) > 0

    def _anchors(self, prints: Prints, loud: Frames) -> tuple[Frames, Frames, Frames]:
        """Return frames, scales and places (A,) that agree in all bits of a key, and roughly in frames nearby."""
        found = [np.empty((2, 0), dtype=np.int64)]
        for shift, known in zip(_KEY_SHIFTS, self._keys, strict=True):
            keys = (prints[loud] >> shift & 2**_KEY_BITS - 1).ravel()
            order = np.argsort(keys)
            order = order[np.count_nonzero(keys == 0) :]
            keys = keys[order]
            # Most places are ruled out by a table of the keys' last 16 bits.
            table = np.zeros(2**16, dtype=bool)
            table[keys & 0xFFFF] = True
            places = np.flatnonzero(table[known & 0xFFFF])
            first = np.searchsorted(keys, known[places], "left")
            count = np.minimum(np.searchsorted(keys, known[places], "right") - first, _MOST_ALIKE)
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            found.append(np.stack((order[np.repeat(first, count) + within], np.repeat(places, count))))
        rows, places = np.concatenate(found, axis=1)
        frames, scales = loud[rows // prints.shape[1]], rows % prints.shape[1]
        beside = np.clip(frames[:, None] + _BESIDE, 0, len(prints) - 1)
        at = places[:, None] + beside - frames[:, None]
        near = self._differing(prints[beside, scales[:, None]], at) < _BESIDE_DIFFERING
        some = np.flatnonzero(near)[:: 1 + np.count_nonzero(near) // _MOST_ANCHORS]
        return frames[some], scales[some], places[some]

    def _differing(self, prints: Prints, places: Frames) -> Array:
        """Return the shares (N,) of bits in which ``prints`` (N, L) differ from those known at ``places`` (N, L)."""
        known = self._known[np.clip(places, 0, len(self._known) - 1)]
        shares: Array = np.bitwise_count(known ^ prints).sum(axis=1) / (BITS * prints.shape[1])
        return shares
