"""Each speaker's hardest rivals, and pair machines against these alone.

How hard a rival is, is how near the two codebooks are (``Hardness``). Speaker by speaker, in order of enrollment, a
pair machine is made of the newcomer j and an earlier i where i is among the R hardest rivals of j so far, or j among
those of i. Once made it stays. So which machines there are does not depend on who was enrolled together; everybody has
a machine against each of their R hardest rivals among all; and a newcomer costs N looks at a pair of codebooks, the
machines of R rivals and of those to whom the newcomer is one, and a change in the table of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappush, heappushpop
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.pool import Pool
from pipeline.threads import in_order, jobs_of

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Hardness:
    """How near the codebooks of two speakers of ``pool`` are, in [0, 1], the same whichever is named first.

    The cosine of the two codebooks' means in the kernel's feature space: the mean kernel value between them over the
    geometric mean of those within each. Without the division, who has tight codebooks is near to everybody.
    """

    pool: Pool

    def __call__(self, one: int, other: int) -> float:
        """Of two speakers."""
        between = self.pool.gram(max(one, other), min(one, other)).mean()
        return float(between / np.sqrt(self._within[one] * self._within[other]))

    def to(self, speaker: int, others: Iterable[int]) -> Array:
        """Of one speaker to each of ``others`` (n,)."""
        return np.array([self(speaker, other) for other in others])

    @cached_property
    def _within(self) -> Array:
        return np.array([self.pool.gram(speaker, speaker).mean() for speaker in range(len(self.pool))])


def hardest(values: Array, most: int) -> Numbers:
    """Places of the ``most`` largest of ``values`` (n,), the largest first; of equal ones the earlier."""
    return np.argsort(-values, kind="stable")[:most].astype(np.int64)


def ever_hardest(values: Array, speaker: int, most: int) -> NDArray[np.bool_]:
    """Who (N,) is among the ``most`` hardest rivals of ``speaker``, or was when they or the speaker came.

    ``values`` (N,) are the hardness of everybody, the speaker's own being of no account.
    """
    among = np.zeros(len(values), dtype=np.bool_)
    among[hardest(values[:speaker], most)] = True
    held = values[:speaker][among[:speaker]].tolist()
    heapify(held)
    for later in range(speaker + 1, len(values)):
        if len(held) < most:
            heappush(held, values[later])
        elif values[later] > held[0]:
            heappushpop(held, values[later])
        else:
            continue
        among[later] = True
    return among


@dataclass(frozen=True)
class RivalTable:
    """Of N speakers the W = min(R, N - 1) hardest rivals (N, W), the hardest first, and their ``hardness`` (N, W)."""

    nearest: Numbers
    hardness: Array

    def __len__(self) -> int:
        return len(self.nearest)

    @classmethod
    def of_nobody(cls) -> RivalTable:
        """The table before the first speaker."""
        return cls(np.empty((0, 0), dtype=np.int64), np.empty((0, 0)))

    def with_newcomer(self, values: Array, most: int) -> tuple[RivalTable, Numbers]:
        """The table with one speaker more, and against whom that speaker gets a pair machine.

        ``values`` (N,) are the newcomer's hardness to those of the table, ``most`` is R.
        """
        count, width = self.nearest.shape
        own = hardest(values, most)
        if count == 0:
            return RivalTable(np.empty((1, 0), dtype=np.int64), np.empty((1, 0))), own
        nearest, known = self.nearest, self.hardness
        if width < min(most, count):  # the lists are not full yet
            nearest = np.concatenate((nearest, np.full((count, 1), count)), axis=1)
            known = np.concatenate((known, np.full((count, 1), -np.inf)), axis=1)
        entered = np.flatnonzero(values > known[:, -1])
        nearest, known = nearest.copy(), known.copy()
        # The newcomer takes the last place and is moved up past those who are less hard, not past their equals.
        nearest[entered, -1], known[entered, -1] = count, values[entered]
        order = np.argsort(-known[entered], axis=1, kind="stable")
        nearest[entered] = np.take_along_axis(nearest[entered], order, axis=1)
        known[entered] = np.take_along_axis(known[entered], order, axis=1)
        table = RivalTable(np.concatenate((nearest, own[None])), np.concatenate((known, values[own][None])))
        return table, np.union1d(own, entered).astype(np.int64)

    def without(self, speaker: int, changed: Mapping[int, Array], most: int) -> RivalTable:
        """The table of everybody else, numbered anew.

        ``changed`` holds the hardness (N - 1,) of the rest to each speaker, by the new number, whose list is made
        again: all who had the one who is gone among their rivals must be there.
        """
        width = min(most, len(self) - 2)
        nearest = np.delete(self.nearest, speaker, axis=0)[:, :width]
        nearest = nearest - (nearest > speaker)
        known = np.delete(self.hardness, speaker, axis=0)[:, :width]
        for number, values in changed.items():
            rivals = np.delete(np.arange(len(values)), number)
            found = rivals[hardest(values[rivals], width)]
            nearest[number], known[number] = found, values[found]
        return RivalTable(nearest, known)


@dataclass(frozen=True)
class PairMachine:
    """f(x) = sum over m of own[m] K(x, m) - sum over m of rival[m] K(x, m) + bias, of a speaker and an earlier one.

    ``own`` (k,) over the later speaker's centroids, ``rival`` over the earlier one's; families have an axis (L,) more.
    """

    own: Array
    rival: Array
    bias: Array


class MachineSource(Protocol):
    """Pair machines of some of the pairs of a population, wherever they are kept."""

    def machine(self, later: int, earlier: int) -> PairMachine:
        """The machine of two speakers; raises LookupError for a pair without."""

    def earlier(self, speaker: int) -> Numbers:
        """Numbers (n,) of the earlier speakers that ``speaker`` has a machine against, in order."""


@dataclass(frozen=True)
class RivalMachines:
    """Pair machines that were ``trained`` now, named by (later, earlier), and those of a ``known`` source."""

    trained: Mapping[tuple[int, int], PairMachine]
    known: MachineSource | None = None

    def machine(self, later: int, earlier: int) -> PairMachine:
        """See MachineSource."""
        if (later, earlier) in self.trained:
            return self.trained[later, earlier]
        if self.known is None:
            raise LookupError(f"there is no pair machine of speakers {later} and {earlier}")
        return self.known.machine(later, earlier)

    def earlier(self, speaker: int) -> Numbers:
        """See MachineSource."""
        if speaker in self._trained_against or self.known is None:
            return np.array(sorted(self._trained_against.get(speaker, [])), dtype=np.int64)
        return self.known.earlier(speaker)

    @cached_property
    def _trained_against(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for later, earlier in self.trained:
            found.setdefault(later, []).append(earlier)
        return found


@dataclass(frozen=True)
class RivalPlan:
    """Pair machines that are still to be trained, as (later, earlier) in order, and the ``table`` once they are."""

    table: RivalTable
    pairs: Sequence[tuple[int, int]]


def plan_rivals(pool: Pool, most: int, known: RivalTable | None = None, *, jobs: int = 1) -> RivalPlan:
    """Who the ``most`` hardest rivals of each speaker of ``pool`` are, its first speakers being those of ``known``."""
    table = RivalTable.of_nobody() if known is None else known
    pairs: list[tuple[int, int]] = []
    newcomers = range(len(table), len(pool))

    hardness = Hardness(pool)

    def to_earlier(later: int) -> Array:
        return hardness.to(later, range(later))

    for later, values in zip(newcomers, in_order(to_earlier, newcomers, jobs_of(jobs)), strict=True):
        table, rivals = table.with_newcomer(values, most)
        pairs += [(later, int(earlier)) for earlier in rivals]
    return RivalPlan(table, pairs)
