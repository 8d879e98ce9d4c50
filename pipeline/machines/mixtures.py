"""Speaker models: the population's mixture of sounds, moved to where each speaker makes them.

A model is the mixture that segment machines sort frames by (``SegmentSpace``) with its means adapted to one speaker's
enrollment speech (maximum a posteriori; Reynolds, Quatieri and Dunn, Speaker verification using adapted Gaussian
mixture models, 2000, section 3.3). Means of sounds that the speaker made often go where the speaker's frames are;
those of sounds that were hardly heard follow what the sounds like them did: components are grouped, groups are grouped
again, and each is drawn to the shift of the group it is in (structural maximum a posteriori; Shinoda and Lee, A
structural Bayes approach to speaker adaptation, 2001). With seconds of speech the shift of all sounds together is most
of what there is to know; with minutes, each sound has its own.

A stretch is judged by the mean over frames of the log-likelihood ratio of the speaker's model to the mixture itself.
Which sound a frame is stays what the mixture says of it, so that the ratio is a sum over the stretch's statistics, the
same that segment machines read, and costs one product for everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Shifts = NDArray[np.float32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class SpeakerModels:
    """Models of N speakers: ``shifts`` (N, K, d) of the K components' means, in their standard deviations."""

    shifts: Shifts

    def __len__(self) -> int:
        return len(self.shifts)

    def scores(self, statistics: Array) -> Array:
        """Mean log-likelihood ratios (N,), nats a frame, of a stretch by its ``statistics`` (K, 1 + d).

        With share g_tk of frame x_t in component k, and the speaker's shift s_k of it, the ratio of a frame is the sum
        over k of g_tk (s_k . (x_t - m_k) / sigma_k - |s_k|^2 / 2). Products are summed in single precision.
        """
        occupancy = statistics[:, 0]
        linear = self._rows @ statistics[:, 1:].astype(self.shifts.dtype).ravel()
        return np.asarray((linear - self._half_squares @ occupancy) / max(float(np.add.reduce(occupancy)), 1e-12))

    def with_more(self, shifts: Sequence[Shifts]) -> SpeakerModels:
        """These models, then those of ``shifts``, (K, d) each."""
        return SpeakerModels(np.concatenate((self.shifts, np.stack(shifts))) if shifts else self.shifts)

    def without(self, speaker: int) -> SpeakerModels:
        """The models of everybody else."""
        return SpeakerModels(np.delete(self.shifts, speaker, axis=0))

    @cached_property
    def _rows(self) -> Shifts:
        return np.ascontiguousarray(self.shifts.reshape(len(self.shifts), -1))

    @cached_property
    def _half_squares(self) -> Array:
        """|s_k|^2 / 2 (N, K)."""
        return np.asarray(0.5 * np.einsum("nkd,nkd->nk", self.shifts, self.shifts, dtype=np.float64))


@dataclass(frozen=True)
class Adaptation:
    """How a mixture of K components is adapted.

    ``levels`` are groupings from fine to coarse: the first (K,) says in which group each component is, each further one
    in which group of its own the groups of the one before are. ``relevance`` is the number of frames at which a
    component's own shift is believed by half, ``group_relevance`` that of a group's.
    """

    levels: tuple[Numbers, ...]
    relevance: float
    group_relevance: float

    @classmethod
    def of(cls, means: Array, *, groups: Sequence[int], relevance: float, group_relevance: float) -> Adaptation:
        """Of a mixture with ``means`` (K, d), in so many ``groups``, fine to coarse, by Ward's clustering of these."""
        from scipy.cluster.hierarchy import fcluster, linkage  # half a second that scoring need not wait

        levels, members = [], np.arange(len(means))
        tree = linkage(means, "ward") if len(means) > 1 else None
        for count in groups:
            found = np.zeros(len(members), np.int64) if tree is None else fcluster(tree, count, "maxclust") - 1
            level = np.zeros(members.max() + 1, dtype=np.int64)
            level[members] = found
            levels.append(level)
            members = found
        return cls(tuple(levels), relevance, group_relevance)

    def shifts(self, statistics: Array) -> Shifts:
        """Shifts (K, d) of a speaker's model, as stored, by the ``statistics`` (K, 1 + d) of all their speech."""
        sums = [statistics]
        for level in self.levels:
            above = np.zeros((level.max() + 1, statistics.shape[1]))
            np.add.at(above, level, sums[-1])
            sums.append(above)
        shift = np.zeros((len(sums[-1]), statistics.shape[1] - 1))
        for place in range(len(self.levels), -1, -1):
            drawn_to = shift[self.levels[place]] if place < len(self.levels) else shift
            weight = self.group_relevance if place else self.relevance
            shift = (sums[place][:, 1:] + weight * drawn_to) / (sums[place][:, :1] + weight)
        return shift.astype(np.float32)
