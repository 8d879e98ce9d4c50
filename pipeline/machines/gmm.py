"""MAP-adapted Gaussian mixtures: the universal background model with its means adapted to each speaker.

Means are adapted by maximum a posteriori (Reynolds, Quatieri and Dunn, Speaker verification using adapted Gaussian
mixture models, 2000, section 3.3). Components with many frames of the speaker move to those frames; components with few
follow similar ones. Components are grouped, groups are grouped again, and each is drawn to the offset of its group
(structural maximum a posteriori; Shinoda and Lee, A structural Bayes approach to speaker adaptation, 2001). Seconds of
speech give little more than one common offset, minutes an offset for each component.

A segment is scored by the mean over frames of the log-likelihood ratio of the speaker's mixture to the background
model. Component posteriors are taken from the background model: the ratio is then linear in the segment's statistics,
which supervector machines use too, and one matrix product gives the ratios of all speakers.
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

    The mean ``offsets`` (N, K, d) are in standard deviations of the components.
    """

    ubms: tuple[BackgroundModel, ...]
    offsets: MeanOffsets

    def margins(self, statistics: Sequence[Array]) -> Array:
        """Return mean log-likelihood ratios (N,), in nats per frame, of a segment from its one array of ``statistics``.

        With the zeroth- and first-order statistics n_k and f_k and the speaker's offset s_k, the ratio is
        sum_k (s_k . f_k - n_k |s_k|^2 / 2) / sum_k n_k. Products are summed in single precision. For n segments with
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
    """Group components with ``means`` (K, d) into given numbers of ``groups``, fine to coarse, by Ward's clustering.

    The first level (K,) gives the group of each component, each further level the group of each group before.
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
    """Return a speaker's mean offsets (K, d), as stored, from the ``statistics`` (K, 1 + d) of all their speech.

    ``levels`` come from ``component_groups``. ``relevance`` and ``group_relevance`` are relevance factors: the number
    of frames at which the offset of a component, or of a group, has half its weight.
    """
    # Statistics of a group are the sums of its members' statistics.
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
