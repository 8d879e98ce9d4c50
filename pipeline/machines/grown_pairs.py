"""Pair machines of a population that has grown: those that were there, and beside them those of the newcomers.

What was there is not copied into wider arrays: it may lie in the files of a store, and all of it grows as N^2, where
what newcomers bring grows as N.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.population import PairSource

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GrownPairs:
    """Pair machines (``population.PairSource``) of the first n speakers, ``known``, and of those who came after them.

    ``own[i]`` (k, N): centroids of newcomer i against everybody; ``against[j]`` (k, N - n): those of the earlier
    speaker j against each newcomer; ``biases`` (N - n, N) of newcomers against everybody. Families of L machines have
    one more axis (L,).
    """

    known: PairSource
    own: tuple[Array, ...]
    against: tuple[Array, ...]
    biases: Array

    def rows(self, speaker: int) -> Array:
        """See PairSource."""
        first = len(self.against)
        if speaker >= first:
            return self.own[speaker - first]
        return np.concatenate((self.known.rows(speaker), self.against[speaker]), axis=1)

    def columns(self, claims: NDArray[np.int64]) -> Array:
        """See PairSource."""
        earlier, newcomers = self._told_apart(claims)
        above = np.concatenate([rows[:, claims[newcomers] - len(self.against)] for rows in self.against])
        shape = (len(above), len(claims), *above.shape[2:])
        known = np.empty(shape)
        known[:, newcomers] = above
        known[:, earlier] = self.known.columns(claims[earlier])
        return np.concatenate([known, *(rows[:, claims] for rows in self.own)])

    def bias(self, claims: NDArray[np.int64]) -> Array:
        """See PairSource."""
        first = len(self.against)
        earlier, newcomers = self._told_apart(claims)
        found = np.empty((len(claims), *self.biases.shape[1:]))
        found[newcomers] = self.biases[claims[newcomers] - first]
        found[earlier, :first] = self.known.bias(claims[earlier])
        found[earlier, first:] = -np.swapaxes(self.biases[:, claims[earlier]], 0, 1)
        return found

    def _told_apart(self, claims: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places in ``claims`` of the earlier speakers, and of newcomers."""
        is_earlier = claims < len(self.against)
        return np.flatnonzero(is_earlier), np.flatnonzero(~is_earlier)
