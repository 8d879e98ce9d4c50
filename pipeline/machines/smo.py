"""Train many small machines over one pool: LIBSVM's algorithm without its overhead for each call.

All machines of a speaker share the speaker's kernel block, and batches of problems are solved without the interpreter
lock on any number of threads. A machine depends, bit for bit, only on the centroids of its own speakers: not on the
other machines trained, their order, or the number of threads.

Kernel values are float32, as in LIBSVM's cache; products, coefficients and residuals are float64.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipeline.errors import FitError
from pipeline.machines.pairs import Pair, PairMachine
from pipeline.machines.pool import Array, Pool
from pipeline.machines.workers import in_order

TOLERANCE = 1e-3
STEP_LIMIT = 10_000_000  # LIBSVM's; ordinary problems take a thousand
BLOCK_BYTES = 256 * 2**20
BATCH = 32


@dataclass(frozen=True, slots=True)
class SpeakerMachine:
    """Machine of one ``speaker``, alone or against everybody else: margin = K(x, centroids) @ coef + bias.

    Alone, ``coef`` (k,) over the speaker's own centroids lies between 0 and 1, and its sum is nu k. Against the rest,
    ``coef`` (M,) lies between 0 and C on the speaker's own centroids, between -C and 0 on the others; its sum is 0.
    ``active`` is the size of the last active set, ``rounds`` the number of sets solved; both are 0 if LIBSVM solved the
    machine.
    """

    speaker: int
    coef: Array
    bias: float
    active: int
    rounds: int


class PoolSolver:
    """Solver of the pair and one-class problems over ``pool``.

    ``tolerance`` is that of LIBSVM's stopping rule: the most by which two points may violate the optimality conditions.
    ``jobs`` threads share the work (negative: counted as joblib does). Gram blocks of the speakers in pairs (``among``;
    by default all) are held up to ``memory`` bytes; others are recomputed for each machine. Raises FitError for
    centroids that are not finite and, while solving, if a problem takes more than ``step_limit`` steps.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        among: Collection[int] | None = None,
        tolerance: float = TOLERANCE,
        jobs: int = 1,
        memory: int = BLOCK_BYTES,
        step_limit: int = STEP_LIMIT,
    ) -> None:
        self._kernels, self._points, self._norms = prepared(pool)
        self._tolerance = tolerance
        self._step_limit = step_limit
        self._jobs = jobs
        self._offsets = np.ascontiguousarray(pool.offsets, dtype=np.int64)
        self._counts = np.diff(self._offsets)
        self._places, values = self._places_within(
            memory, np.arange(len(pool)) if among is None else np.array(sorted(among), dtype=np.int64)
        )
        self._blocks = np.empty(values, np.float32)
        with threadpool_limits(1, "blas"):
            held = np.flatnonzero((self._places >= 0) & (self._counts > 0))
            for _ in in_order(self._fill_block, held.tolist(), self._jobs):
                pass

    def pairs(self, pairs: Iterable[Pair], *, C: float) -> Iterator[tuple[Pair, PairMachine, int]]:
        """Yield each pair (own, rival) with its soft-margin machine and the steps that it took, in the order given."""
        todo = iter(pairs)
        batches = iter(lambda: list(islice(todo, BATCH)), [])
        with threadpool_limits(1, "blas"):
            for solutions in in_order(lambda batch: self._solve_pairs(batch, C), batches, self._jobs):
                yield from solutions

    def one_class(self, speakers: Iterable[int], *, nu: float) -> Iterator[SpeakerMachine]:
        """Yield the one-class machine of each of the ``speakers`` (Schoelkopf et al. 1999, in LIBSVM's scale)."""
        with threadpool_limits(1, "blas"):
            yield from in_order(lambda speaker: self._solve_one_class(speaker, nu), speakers, self._jobs)

    def _places_within(self, memory: int, among: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Return the start of each speaker's block, -1 for those that are not held, and the number of values held."""
        ends = np.concatenate(([0], np.cumsum(self._counts[among] ** 2)))
        held = int(np.searchsorted(4 * ends[1:], memory, side="right"))
        places = np.full(len(self._counts), -1, dtype=np.int64)
        places[among[:held]] = ends[:held]
        return places, int(ends[held])

    def _fill_block(self, speaker: int) -> None:
        count, place = self._counts[speaker], self._places[speaker]
        self._fill(speaker, self._blocks[place : place + count * count].reshape(count, count))

    def _fill(self, speaker: int, gram: NDArray[np.float32]) -> None:
        own = slice(self._offsets[speaker], self._offsets[speaker + 1])
        points, norms = self._points[own], self._norms[own]
        self._kernels.fill(points, norms, points, norms, np.empty(gram.size), gram, 0)

    def _solve_pairs(self, batch: Sequence[Pair], C: float) -> list[tuple[Pair, PairMachine, int]]:
        pairs = np.array(batch, dtype=np.int64)
        most = self._counts[pairs].max()
        own, rival = np.empty((len(pairs), most)), np.empty((len(pairs), most))
        bias, steps = np.empty(len(pairs)), np.empty(len(pairs), np.int64)
        self._kernels.solve_pairs(
            *(self._points, self._norms, self._offsets, self._places, self._blocks),
            *(pairs, float(C), self._tolerance, self._step_limit),
            *(own, rival, bias, steps),
        )
        solved = []
        for p, (i, j) in enumerate(batch):
            taken = self._checked(int(steps[p]), f"speakers {i} and {j}, C = {C:g}")
            machine = PairMachine(own[p, : self._counts[i]], rival[p, : self._counts[j]], float(bias[p]))
            solved.append(((i, j), machine, taken))
        return solved

    def _solve_one_class(self, speaker: int, nu: float) -> SpeakerMachine:
        count = self._counts[speaker]
        gram = np.empty((count, count), np.float32)
        self._fill(speaker, gram)
        # LIBSVM's start: the first points have the largest coefficients allowed.
        coef = np.clip(nu * count - np.arange(count), 0.0, 1.0)
        room, residual = 1.0 - coef, -(gram @ coef)
        steps = self._kernels.optimise(gram, residual, room, coef, 1.0, self._tolerance, self._step_limit)
        self._checked(steps, f"speaker {speaker} alone, nu = {nu:g}")
        return SpeakerMachine(speaker, coef, self._kernels.bias_of(residual, room, coef), count, 1)

    def _checked(self, steps: int, what: str) -> int:
        if steps < 0:
            raise FitError(
                f"machine of {what}: not within {self._tolerance:g} of the optimum after {self._step_limit} steps;"
                " a smaller C or a larger tolerance ends sooner"
            )
        return steps


def prepared(pool: Pool) -> tuple[ModuleType, Array, Array]:
    """Return the compiled kernels, the centroids (M, d) of ``pool`` over sigma, and half their squared lengths (M,).

    Raises FitError for centroids that are not finite.
    """
    if not np.isfinite(pool.centroids).all():
        raise FitError("the pool of centroids holds values that are not finite; machines need finite ones")
    # Loads numba, and compiles the first time: seconds that only training should take.
    from pipeline.machines import smo_kernels

    points = np.ascontiguousarray(pool.centroids / pool.sigma)
    return smo_kernels, points, 0.5 * (points * points).sum(axis=1)
