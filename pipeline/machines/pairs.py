"""Pair machines, one speaker against another: trained in batches, kept in memory or read from a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipeline.config import MachineConfig
from pipeline.machines.pool import Array, Pool
from pipeline.machines.workers import LocalThreads, Workers

Pair = tuple[int, int]
Progress = Callable[[int], None]
"""Called with the number of machines that have just been trained."""

# Batches for a remote worker have pairs of at most this many speakers with as many others, so that 32 codebooks are
# sent for 256 machines.
_TILE = 16
_MOST, _LEAST, _BATCHES = 256, 8, 32  # pairs in a batch; batches to aim at where there are few pairs


@dataclass(frozen=True, slots=True)
class PairMachine:
    """Soft-margin machine of one speaker against another, from the first one's side.

    f(x) = sum over m of own[m] K(x, own centroid m) - sum over m of rival[m] K(x, rival's centroid m) + bias, with
    ``own`` (k_i,) and ``rival`` (k_j,) between 0 and C.
    """

    own: Array
    rival: Array
    bias: float

    def flipped(self) -> PairMachine:
        """Return the same machine from the other speaker's side, with margins of opposite sign."""
        return PairMachine(self.rival, self.own, -self.bias)


class PairSource(Protocol):
    """Pair machines of a population, in memory or in a store."""

    def against(self, speaker: int) -> Mapping[int, PairMachine]:
        """Return every pair machine of ``speaker``, by the other's number, from the speaker's side.

        A speaker unknown to the source has none.
        """


class Pairs:
    """Pair machines in memory: those ``trained``, by (speaker, other), added to those of a ``known`` source."""

    def __init__(self, trained: Mapping[Pair, PairMachine], known: PairSource | None = None) -> None:
        self.trained = trained
        self.known = known
        self._trained: dict[int, dict[int, PairMachine]] = defaultdict(dict)
        for (speaker, other), machine in trained.items():
            self._trained[speaker][other] = machine
            self._trained[other][speaker] = machine.flipped()

    def against(self, speaker: int) -> Mapping[int, PairMachine]:
        """See PairSource."""
        trained = self._trained.get(speaker, {})
        return trained if self.known is None else {**self.known.against(speaker), **trained}


def train_pairs(
    pool: Pool,
    settings: MachineConfig,
    pairs: Sequence[Pair],
    *,
    workers: Workers,
    progress: Progress | None = None,
) -> dict[Pair, PairMachine]:
    """Train the machines of ``pairs`` (speaker, other), by ``workers``; raises FitError."""
    trained = {}
    solve = _elsewhere if workers.remote else _here
    for pair, machine in solve(pool, settings, pairs, workers):
        trained[pair] = machine
        if progress is not None:
            progress(1)
    return trained


def _here(
    pool: Pool, settings: MachineConfig, pairs: Sequence[Pair], workers: Workers
) -> Iterator[tuple[Pair, PairMachine]]:
    """Yield the machines of ``pairs`` by threads of this process."""
    from pipeline.machines.smo import PoolSolver  # scoring imports this module, and need not wait for it

    solver = PoolSolver(pool, among={number for pair in pairs for number in pair}, jobs=workers.jobs)
    for pair, machine, _ in solver.pairs(pairs, C=settings.C):
        yield pair, machine


def _elsewhere(
    pool: Pool, settings: MachineConfig, pairs: Sequence[Pair], workers: Workers
) -> Iterator[tuple[Pair, PairMachine]]:
    """Yield the machines of ``pairs`` by remote ``workers``; each batch includes the codebooks that it needs."""
    # Sorted so that pairs of the same few speakers are neighbours.
    pairs = sorted(pairs, key=lambda pair: (pair[0] // _TILE, pair[1] // _TILE))
    size = min(_MOST, max(_LEAST, -(-len(pairs) // _BATCHES)))
    batches = (pairs[start : start + size] for start in range(0, len(pairs), size))
    tasks = ((batch, {n: pool.codebook(n) for pair in batch for n in pair}) for batch in batches)
    for machines in workers.map(_solve_batch, tasks, common=(settings, pool.sigma, len(pool))):
        yield from machines


def _solve_batch(
    common: tuple[MachineConfig, float, int], pairs: Sequence[Pair], books: Mapping[int, Array]
) -> list[tuple[Pair, PairMachine]]:
    settings, sigma, speakers = common
    # Speakers keep their numbers, which errors name; speakers outside the batch have no centroids.
    nobody = np.empty((0, next(iter(books.values())).shape[1]))
    pool = Pool.of([books.get(n, nobody) for n in range(speakers)], sigma)
    return list(_here(pool, settings, pairs, LocalThreads()))
