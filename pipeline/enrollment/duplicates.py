"""Detection of one recording enrolled under two names, or twice under one, by fingerprints.

Fingerprints (``pipeline.features.fingerprints``) of two recordings are compared at each lag at which some frame of one
equals a frame of the other: one in thousands of unrelated recordings has such a lag by chance, a duplicate has one in
nearly every word. At that lag the bits of a window must differ as little as in duplicate-audio detection. Takes of one
word by one speaker are alike, so a copy among a speaker's recordings must agree from beginning to end, in more bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.enrollment.quality import Recording, kept_of
from pipeline.features.fingerprints import BITS, LEAST_LOUD, WINDOW, Prints, most_differing

# Frames compared with each frame of equal value, in the order of recordings: silence and tones repeat everywhere.
MAX_PLACES = 100
# Fewest loud frames by which recordings are duplicates if all fingerprints are identical, however short the window.
MIN_IDENTICAL = 10

# Among recordings of one speaker, a copy is at most so many frames late or longer, and has less than this share of
# differing bits. Of 381,600 pairs of half-second takes of commands30, compared from their beginnings, one copy has
# 0.08, and all others have 0.33 or more.
MOST_LATE = 10
MOST_COPIED = 0.2

# Bits, by the number of loud frames in a window: a duplicate has fewer differing bits there.
_MAX_BITS = np.array([32 * n * most_differing(n) if n >= LEAST_LOUD else 0.0 for n in range(WINDOW + 1)])


def duplicates(recordings: Sequence[tuple[int, Recording]]) -> list[tuple[int, int]]:
    """Return the pairs (i, j), i < j, of duplicate recordings of two speakers; each is given with its speaker."""
    pairs = set()
    for first, second, lag in _candidates(recordings):
        if (first, second) not in pairs and _is_duplicate(recordings[first][1], recordings[second][1], lag):
            pairs.add((first, second))
    return sorted(pairs)


def copies(recordings: Sequence[Recording]) -> list[tuple[int, int]]:
    """Return the pairs (i, j), i < j, of one speaker's recordings in which the second is a copy of the first."""
    pairs = set()
    for i, j, lag in _candidates(list(enumerate(recordings))):
        one, other = recordings[i], recordings[j]
        is_whole = max(abs(lag), abs(len(one.prints) - len(other.prints))) <= MOST_LATE
        if is_whole and _is_copy(*_compared(one, other, lag)):
            pairs.add((i, j))
    return sorted(pairs)


class KnownRecordings:
    """Known recordings, by their fingerprints (F,) end to end; other recordings may be copies of them, or of parts."""

    def __init__(self, known: Prints) -> None:
        self._known = kept_of(known)
        self._places = np.argsort(known, kind="stable")
        self._prints = known[self._places]

    def hold(self, recording: Recording) -> bool:
        """Return True if ``recording``, silence aside, is a copy throughout, at the lag where most frames are known."""
        frames = np.flatnonzero(recording.loud)
        prints = recording.prints[frames]
        at = np.searchsorted(self._prints, prints)
        equal = np.flatnonzero(self._prints.take(at, mode="clip") == prints) if len(self._prints) else at[:0]
        if not len(equal):
            return False
        lags, counts = np.unique(self._places[at[equal]] - frames[equal], return_counts=True)
        loud, differing = _compared(recording, self._known, int(lags[np.argmax(counts)]))
        return loud.sum() >= len(frames) - MOST_LATE and _is_copy(loud, differing)


def _candidates(recordings: Sequence[tuple[int, Recording]]) -> list[tuple[int, int, int]]:
    """Return triples (i, j, lag) such that some frame t of recording i equals frame t + lag of recording j."""
    frames = [np.flatnonzero(recording.loud) for _, recording in recordings]
    counts = [len(places) for places in frames]
    if sum(counts) == 0:
        return []
    number = np.repeat(np.arange(len(recordings)), counts)
    speaker = np.repeat([owner for owner, _ in recordings], counts)
    frame = np.concatenate(frames)
    prints = np.concatenate([one.prints[places] for (_, one), places in zip(recordings, frames, strict=True)])
    order = np.argsort(prints, kind="stable")
    number, speaker, frame, prints = number[order], speaker[order], frame[order], prints[order]
    triples: list[NDArray[np.int64]] = []
    for apart in range(1, MAX_PLACES):
        equal = np.flatnonzero(prints[apart:] == prints[:-apart])
        if len(equal) == 0:
            break
        equal = equal[speaker[equal] != speaker[equal + apart]]
        other = equal + apart
        triples.append(np.stack((number[equal], number[other], frame[other] - frame[equal]), axis=1))
    if not triples:
        return []
    # The sort was stable, so that the earlier recording of a pair comes first.
    return [(int(i), int(j), int(lag)) for i, j, lag in np.unique(np.concatenate(triples), axis=0)]


def _compared(one: Recording, other: Recording, lag: int) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
    """Return which frames of ``one`` are loud, and in how many bits each differs from ``other``, ``lag`` frames later.

    The T frames are those that both have; frames that are not loud count as equal.
    """
    start, end = max(0, -lag), min(len(one.prints), len(other.prints) - lag)
    loud = one.loud[start:end]
    return loud, np.bitwise_count(one.prints[start:end] ^ other.prints[start + lag : end + lag]) * loud


def _is_copy(loud: NDArray[np.bool_], differing: NDArray[np.uint8]) -> bool:
    """Return True if as few bits differ in the ``loud`` frames (T,) as in copies only."""
    return bool(loud.sum() >= MIN_IDENTICAL and differing.sum() < MOST_COPIED * BITS * loud.sum())


def _is_duplicate(one: Recording, other: Recording, lag: int) -> bool:
    """Return True if some window of ``one`` has nearly the bits of ``other``, ``lag`` frames later there."""
    loud, differing = _compared(one, other, lag)
    if lag == 0 and len(one.prints) == len(other.prints) and loud.sum() >= MIN_IDENTICAL and not differing.any():
        return True
    size = min(WINDOW, len(loud))
    frames, bits = _window_sums(loud, size), _window_sums(differing, size)
    return bool((bits < _MAX_BITS[frames]).any())


def _window_sums(values: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Return the sums of each ``size`` consecutive ``values`` (T,)."""
    sums = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    return np.asarray(sums[size:] - sums[: len(sums) - size])
