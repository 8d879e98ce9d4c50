"""Copies of one recording under two names, told by fingerprints; or by stretches, where a store has nothing else.

Fingerprints (``pipeline.fingerprint``) of two recordings are compared at every place where a frame of one has the
very number of a frame of the other: of unrelated recordings one in thousands has such a place by chance, a copy has
one in nearly every word. There the bits of a window must differ as little as a replay's would.

A store keeps no recordings. Without fingerprints (``replay.keep``) it still has vectors of stretches of speech: those
of other speech are far from each other, those of copies of one recording are the same wherever they were cut alike, as
they are when a whole folder is enrolled a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.fingerprint import LEAST_LOUD, WINDOW, most_differing
from pipeline.machines.segments import Vectors, unit
from pipeline.recording_quality import Recording

Copies = list[tuple[int, int]]

# Places that one number is looked up at, in the order of recordings: a number of silence or a tone may be everywhere.
MOST_PLACES = 100
# Loud frames that recordings with the same fingerprints throughout must have, windows or not.
LEAST_ALIKE = 10
# Cosine of two stretches from which on they are of one recording; other speech of the same speaker stays below 0.8.
SAME_STRETCH = 0.9

# Bits below which a window of so many loud frames is a copy.
_MOST_BITS = np.array([32 * n * most_differing(n) if n >= LEAST_LOUD else 0.0 for n in range(WINDOW + 1)])


def copies(recordings: Sequence[tuple[int, Recording]]) -> Copies:
    """Pairs (i, j), i < j, of ``recordings``, given with the numbers of their speakers: copies under two speakers."""
    found = set()
    for first, second, lag in _candidates(recordings):
        if (first, second) not in found and _is_copy(recordings[first][1], recordings[second][1], lag):
            found.add((first, second))
    return sorted(found)


def _candidates(recordings: Sequence[tuple[int, Recording]]) -> list[tuple[int, int, int]]:
    """Triples (i, j, lag): somewhere frame t of recording i has the number of frame t + lag of recording j."""
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
    found: list[NDArray[np.int64]] = []
    for apart in range(1, MOST_PLACES):
        alike = np.flatnonzero(prints[apart:] == prints[:-apart])
        if len(alike) == 0:
            break
        alike = alike[speaker[alike] != speaker[alike + apart]]
        other = alike + apart
        found.append(np.stack((number[alike], number[other], frame[other] - frame[alike]), axis=1))
    if not found:
        return []
    # Sorting was stable, so that the earlier recording of a pair comes first.
    return [(int(i), int(j), int(lag)) for i, j, lag in np.unique(np.concatenate(found), axis=0)]


def _is_copy(one: Recording, other: Recording, lag: int) -> bool:
    """Whether some window of ``one`` has nearly the bits of ``other``, ``lag`` frames later there."""
    start, end = max(0, -lag), min(len(one.prints), len(other.prints) - lag)
    loud = one.loud[start:end]
    differing = np.bitwise_count(one.prints[start:end] ^ other.prints[start + lag : end + lag]) * loud
    if lag == 0 and len(one.prints) == len(other.prints) and loud.sum() >= LEAST_ALIKE and not differing.any():
        return True
    size = min(WINDOW, len(loud))
    heard, bits = _windows(loud, size), _windows(differing, size)
    return bool((bits < _MOST_BITS[heard]).any())


def _windows(values: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Sums of every ``size`` neighbours of ``values`` (T,)."""
    sums = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    return np.asarray(sums[size:] - sums[: len(sums) - size])


def alike_stretches(new: Vectors, stored: Vectors) -> float:
    """Share of the stretches ``new`` (S, D) that some one of ``stored`` (R, D) is the same as."""
    if len(new) == 0 or len(stored) == 0:
        return 0.0
    products = unit(np.asarray(new, dtype=np.float32)) @ unit(np.asarray(stored, dtype=np.float32)).T
    return float((products.max(axis=1) >= SAME_STRETCH).mean())
