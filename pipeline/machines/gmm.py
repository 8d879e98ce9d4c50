"""MAP-adapted Gaussian mixtures: the universal background model with its means moved to each speaker's speech.

Means are adapted by maximum a posteriori (Reynolds, Quatieri and Dunn, Speaker verification using adapted Gaussian
mixture models, 2000, section 3.3). Components with many frames of the speaker move to these; those with few follow
similar components: components are grouped, groups are grouped again, and each is drawn to the offset of its group
(structural maximum a posteriori; Shinoda and Lee, A structural Bayes approach to speaker adaptation, 2001). Seconds of
speech give little more than one offset common to all components, minutes give each component its own.

A segment is scored by the mean over frames of the log-likelihood ratio of the speaker's mixture to the background
model. Component posteriors are those of the background model: the ratio is then linear in the segment's statistics,
which supervector machines read too, and one matrix product gives everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.encoder import BackgroundModel

Array = NDArray[np.float64]
MeanOffsets = NDArray[np.float32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class AdaptedMixtures:
    """GMMs of N speakers, adapted from the one background model of ``ubms``.

    Their mean ``offsets`` (N, K, d) are in standard deviations of its components.
    """

    ubms: tuple[BackgroundModel, ...]
    offsets: MeanOffsets

    def margins(self, statistics: Sequence[Array]) -> Array:
        """Return mean log-likelihood ratios (N,), nats a frame, of a segment by its one array of ``statistics``.

        With n_k and f_k the statistics of order zero and one, and s_k the speaker's offset, the ratio is
        sum_k (s_k . f_k - n_k |s_k|^2 / 2) / sum_k n_k. Products are summed in single precision. Of n segments with
        statistics (n, K, 1 + d), ratios are (n, N).
        """
        ((occupancy, first),) = ((its[..., 0], its[..., 1:]) for its in statistics)
        rows = first.astype(self.offsets.dtype).reshape(*occupancy.shape[:-1], -1)
        ratios = rows @ self._rows.T - occupancy @ self._half_squares.T
        return np.asarray(ratios / np.maximum(np.add.reduce(occupancy, axis=-1, keepdims=True), 1e-12))

    @cached_property
    def _rows(self) -> MeanOffsets:
        return np.ascontiguousarray(self.offsets.reshape(len(self.offsets), -1))

    @cached_property
    def _half_squares(self) -> Array:
        """Return |s_k|^2 / 2 (N, K)."""
        return np.asarray(0.5 * np.einsum("nkd,nkd->nk", self.offsets, self.offsets, dtype=np.float64))


def component_groups(means: Array, groups: Sequence[int]) -> list[Numbers]:
    """Group components with ``means`` (K, d) into so many ``groups``, fine to coarse, by Ward's clustering.

    The first level (K,) has the group of each component, each further one the group of each group of the level before.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # half a second that scoring need not wait

    levels, members = [], np.arange(len(means))
    tree = linkage(means, "ward") if len(means) > 1 else None
    for count in groups:
        groups_of = np.zeros(len(members), np.int64) if tree is None else fcluster(tree, count, "maxclust") - 1
        level = np.zeros(members.max() + 1, dtype=np.int64)
        level[members] = groups_of
        levels.append(level)
        members = groups_of
    return levels


def map_mean_offsets(
    statistics: Array, levels: Sequence[Numbers], *, relevance: float, group_relevance: float
) -> MeanOffsets:
    """Return a speaker's mean offsets (K, d), as stored, by the ``statistics`` (K, 1 + d) of all their speech.

    ``levels`` are those of ``component_groups``; ``relevance`` and ``group_relevance`` are relevance factors: frames at
    which the offset of a component, or of a group, has half its weight.
    """
    # Statistics of a group are the sums of its members'.
    sums = [statistics]
    for level in levels:
        above = np.zeros((level.max() + 1, statistics.shape[1]))
        np.add.at(above, level, sums[-1])
        sums.append(above)
    # From coarse to fine: s = (f + relevance s_above) / (n + relevance), above the coarsest 0.
    offset = np.zeros((len(sums[-1]), statistics.shape[1] - 1))
    for place in range(len(levels), -1, -1):
        drawn_to = offset[levels[place]] if place < len(levels) else offset
        weight = group_relevance if place else relevance
        offset = (sums[place][:, 1:] + weight * drawn_to) / (sums[place][:, :1] + weight)
    return offset.astype(np.float32)
