"""Cohort selection: the speakers most similar to each speaker, and pair machines against only these.

Similarity is measured between codebooks (``codebook_similarity``). In order of enrollment, a pair machine (i, j) is
trained if either speaker is among the R most similar to the other so far, and it is kept from then on. The machines
therefore do not depend on which speakers were enrolled in one run, every speaker has one against each of the R most
similar speakers, and a new speaker costs N similarities, at least R machines, and an update of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappush, heappushpop
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pipeline.config import MachineConfig
from pipeline.machines.pairs import Pair, PairMachine, PairSource, train_pairs
from pipeline.machines.pool import Array, Pool
from pipeline.machines.workers import LocalThreads, in_order

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Cohorts:
    """Cohorts of C claims: ``members`` (C, P) in ascending order, with the claimed speakers at ``slots`` (C,)."""

    members: Numbers
    slots: Numbers

    @classmethod
    def of(cls, claims: Iterable[int], others: Numbers) -> Self:
        """Return the cohorts made of each claim and its ``others`` (C, W), in any order."""
        own = np.fromiter(claims, dtype=np.int64)
        members = np.sort(np.concatenate((own[:, None], others.reshape(len(own), others.shape[-1])), axis=1), axis=1)
        return cls(members, (members < own[:, None]).sum(axis=1))

    @classmethod
    def of_everybody(cls, claims: Iterable[int], speakers: int) -> Self:
        """Return cohorts that consist of all ``speakers``."""
        own = np.fromiter(claims, dtype=np.int64)
        return cls(np.broadcast_to(np.arange(speakers), (len(own), speakers)), own)

    @property
    def claims(self) -> Numbers:
        """Return the speaker numbers (C,) of the claims."""
        return self.members[np.arange(len(self.slots)), self.slots]

    @property
    def speakers(self) -> Numbers:
        """Return the speakers in any of the cohorts, in order."""
        return np.unique(self.members)

    def numbered(self) -> Self:
        """Return the same cohorts with speakers numbered by their position in ``speakers``."""
        return type(self)(np.searchsorted(self.speakers, self.members), self.slots)


def codebook_similarity(pool: Pool, speaker: int, others: Iterable[int]) -> Array:
    """Return the similarity (n,) of the codebooks of ``speaker`` and each of ``others``, in [0, 1] and symmetric.

    The cosine of the two codebooks' means in the kernel's feature space: the mean kernel value between them over the
    geometric mean of the mean values within each. Without the division, tight codebooks would be similar to all others.
    """
    within = pool.self_similarity
    values = [
        pool.mean_kernel(max(speaker, other), min(speaker, other)) / np.sqrt(within[speaker] * within[other])
        for other in others
    ]
    return np.array(values)


def most_similar_of(values: Array, most: int) -> Numbers:
    """Return the indices of the ``most`` largest of ``values`` (n,), largest first, ties in order."""
    return np.argsort(-values, kind="stable")[:most].astype(np.int64)


def ever_in_cohort(values: Array, speaker: int, most: int) -> NDArray[np.bool_]:
    """Return a mask (N,) of the speakers that are, or were at any time, among the ``most`` most similar to ``speaker``.

    ``values`` (N,) are similarities to ``speaker``; the value at ``speaker`` is ignored.
    """
    among = np.zeros(len(values), dtype=np.bool_)
    among[most_similar_of(values[:speaker], most)] = True
    most_similar = values[:speaker][among[:speaker]].tolist()
    heapify(most_similar)
    for later in range(speaker + 1, len(values)):
        if len(most_similar) < most:
            heappush(most_similar, values[later])
        elif values[later] > most_similar[0]:
            heappushpop(most_similar, values[later])
        else:
            continue
        among[later] = True
    return among


@dataclass(frozen=True)
class CohortTable:
    """The W = min(R, N - 1) most similar of N speakers (N, W), most similar first, with similarities (N, W)."""

    nearest: Numbers
    similarity: Array

    def __len__(self) -> int:
        return len(self.nearest)

    @classmethod
    def of_nobody(cls) -> CohortTable:
        """Return the empty table."""
        return cls(np.empty((0, 0), dtype=np.int64), np.empty((0, 0)))

    def with_newcomer(self, values: Array, most: int) -> tuple[CohortTable, Numbers]:
        """Add a speaker with similarities ``values`` (N,); return the table, and the speakers to train against.

        ``most`` is R.
        """
        count, width = self.nearest.shape
        own = most_similar_of(values, most)
        if count == 0:
            return CohortTable(np.empty((1, 0), dtype=np.int64), np.empty((1, 0))), own
        nearest, known = self.nearest, self.similarity
        if width < most:  # the lists are not full yet
            nearest = np.concatenate((nearest, np.full((count, 1), count)), axis=1)
            known = np.concatenate((known, np.full((count, 1), -np.inf)), axis=1)
        entered = np.flatnonzero(values > known[:, -1])
        nearest, known = nearest.copy(), known.copy()
        # The new speaker takes the last place and moves up past less similar speakers, but not past equals.
        nearest[entered, -1], known[entered, -1] = count, values[entered]
        order = np.argsort(-known[entered], axis=1, kind="stable")
        nearest[entered] = np.take_along_axis(nearest[entered], order, axis=1)
        known[entered] = np.take_along_axis(known[entered], order, axis=1)
        table = CohortTable(np.concatenate((nearest, own[None])), np.concatenate((known, values[own][None])))
        return table, np.union1d(own, entered).astype(np.int64)

    def without(self, speaker: int, changed: Mapping[int, Array], most: int) -> CohortTable:
        """Return the table without ``speaker``, the others renumbered.

        ``changed`` holds, by new number, the similarities (N - 1,) of the speakers whose rows are recomputed. It must
        include every speaker with the removed one in the cohort.
        """
        width = min(most, len(self) - 2)
        nearest = np.delete(self.nearest, speaker, axis=0)[:, :width]
        nearest = nearest - (nearest > speaker)
        known = np.delete(self.similarity, speaker, axis=0)[:, :width]
        for number, values in changed.items():
            others = np.delete(np.arange(len(values)), number)
            best = others[most_similar_of(values[others], width)]
            nearest[number], known[number] = best, values[best]
        return CohortTable(nearest, known)


CohortPlan = tuple[CohortTable, list[Pair]]
"""Cohorts, and the missing pair machines (later, earlier), in order."""


def plan_cohorts(pool: Pool, settings: MachineConfig, known: CohortTable | None, *, jobs: int) -> CohortPlan | None:
    """Return the cohorts of ``pool``, whose first speakers are those of ``known``, and the pair machines to train.

    None if pair machines are trained against everybody, or not at all.
    """
    if settings.cohort == "all" or "one_vs_one" not in settings.kinds:
        return None
    table = known or CohortTable.of_nobody()
    pairs: list[Pair] = []
    newcomers = range(len(table), len(pool))
    pool = replace(pool)  # so that arrays cached for the similarities are freed afterwards
    rows = in_order(lambda later: codebook_similarity(pool, later, range(later)), newcomers, jobs)
    for later, values in zip(newcomers, rows, strict=True):
        table, others = table.with_newcomer(values, settings.cohort)
        pairs += [(later, int(earlier)) for earlier in others]
    return table, pairs


def cohorts_without(
    gone: int, pool: Pool, table: CohortTable, machines: PairSource, settings: MachineConfig, *, jobs: int = 1
) -> tuple[CohortTable, dict[Pair, PairMachine]]:
    """Return the cohorts without the speaker ``gone``, and new machines by (later, earlier); ``pool`` holds the rest.

    Only speakers with a machine against the removed one ever had it in their cohorts; in these, others move up. Old and
    new machines together are the same as if only the rest had been enrolled.
    """
    if settings.cohort == "all":
        raise AssertionError("where machines are kept against everybody, there is none to train when a speaker goes")
    most = settings.cohort

    def renumbered(numbers: Iterable[int]) -> list[int]:
        return [number - (number > gone) for number in numbers if number != gone]

    affected = sorted(machines.against(gone))
    kept = [renumbered(machines.against(number)) for number in affected]
    left = renumbered(affected)
    everybody = range(len(pool))
    values = list(in_order(lambda number: codebook_similarity(pool, number, everybody), left, jobs))
    missing = {
        (max(number, other), min(number, other))
        for number, row, there in zip(left, values, kept, strict=True)
        for other in set(np.flatnonzero(ever_in_cohort(row, number, most)).tolist()) - set(there)
    }
    trained = train_pairs(pool, settings, sorted(missing), workers=LocalThreads(jobs))
    return table.without(gone, dict(zip(left, values, strict=True)), most), trained
