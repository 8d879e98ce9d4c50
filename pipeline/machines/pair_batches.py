"""Pair machines in batches for workers elsewhere: each batch takes along the codebooks that it needs and no others.

A pair's machine depends on the centroids of its two speakers alone, and so on no batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.backends import Workers
from pipeline.config import MachineConfig
from pipeline.machines.implied import train_pair_family
from pipeline.machines.pool import Pool
from pipeline.machines.solver import PoolSolver

Array = NDArray[np.float64]
Pair = tuple[int, int]
Machine = tuple[Array, Array, Any]
"""Own and rival coefficients and bias of a pair's machine, or of its family."""

# A batch's pairs are of at most this many speakers and as many rivals: 32 codebooks go with 256 machines.
_TILE = 16
_MOST, _LEAST, _BATCHES = 256, 8, 32  # pairs a batch; batches to aim at where there are few pairs


@dataclass(frozen=True)
class _Terms:
    """What all batches have in common."""

    settings: MachineConfig
    family: int | None
    sigma: float
    speakers: int


def by_tiles(pairs: Sequence[Pair]) -> list[Pair]:
    """The same pairs, those of the same few speakers beside each other."""
    return sorted(pairs, key=lambda pair: (pair[0] // _TILE, pair[1] // _TILE))


def pairs_elsewhere(
    pool: Pool, settings: MachineConfig, pairs: Sequence[Pair], family: int | None, workers: Workers
) -> Iterator[Machine]:
    """The machine of each of the ``pairs``, or its ``family``, in order, by ``workers``; raises FitError."""
    size = min(_MOST, max(_LEAST, -(-len(pairs) // _BATCHES)))
    batches = (pairs[start : start + size] for start in range(0, len(pairs), size))
    tasks = ((batch, {n: pool.codebook(n) for pair in batch for n in pair}) for batch in batches)
    for machines in workers.map(_solve, tasks, common=_Terms(settings, family, pool.sigma, len(pool))):
        yield from machines


def _solve(terms: _Terms, pairs: Sequence[Pair], books: Mapping[int, Array]) -> list[Machine]:
    # Speakers keep their numbers, which errors name; those without a part in the batch have no centroids.
    nobody = np.empty((0, next(iter(books.values())).shape[1]))
    pool = Pool.of([books.get(n, nobody) for n in range(terms.speakers)], terms.sigma)
    cost = terms.settings.C
    if terms.family is None:
        return [(made.own_coef, made.rival_coef, made.bias) for made in PoolSolver(pool).pairs(pairs, C=cost)]
    # By LIBSVM, as in the assembly: the solver knows no class weights.
    families = (train_pair_family(pool, own, rival, C=cost, machines=terms.family) for own, rival in pairs)
    return [(made.own, made.rival, made.bias) for made in families]
