"""Train one-vs-rest machines over a pool of any size, without the Gram matrix of the whole pool.

Few points of the other speakers are support vectors. A machine is therefore solved over an active set of points. Points
that violate the optimality conditions are added until there are none: LIBSVM's stopping rule over the whole pool. Only
kernel values of points that were active are held; the number of threads changes no bit of a machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipeline.errors import FitError
from pipeline.machines.pool import Array, Pool
from pipeline.machines.smo import STEP_LIMIT, TOLERANCE, SpeakerMachine, prepared
from pipeline.machines.workers import in_order

Numbers = NDArray[np.int64]

GRAM_BYTES = 256 * 2**20
NEAREST = 4  # initially active points of the rest, for each of the speaker's own
GROWTH = 0.5  # largest growth of an active set in a round, as a share of its size
ROUND_LIMIT = 1000  # about ten are usual
TILE_ROWS = 64


class RestSolver:
    """Solver of the one-vs-rest problems over ``pool`` (two speakers or more).

    ``tolerance``, ``jobs`` and ``step_limit`` as for PoolSolver. In each thread, the active Gram matrix takes at most
    ``memory`` bytes, and so do the kernel values with all points; if the active set becomes too large, LIBSVM solves
    the machine with a cache of that size. Raises FitError for centroids that are not finite and, while solving, if an
    active set takes more than ``step_limit`` steps.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        tolerance: float = TOLERANCE,
        jobs: int = 1,
        memory: int = GRAM_BYTES,
        step_limit: int = STEP_LIMIT,
    ) -> None:
        if len(pool) < 2:
            raise FitError(f"one-vs-rest machines need two speakers or more, and the pool has {len(pool)}")
        self._kernels, self._points, self._norms = prepared(pool)
        self._pool = pool
        self._tolerance = tolerance
        self._jobs = jobs
        self._memory = memory
        self._step_limit = step_limit

    def machines(self, speakers: Iterable[int], *, C: float, known: Array | None = None) -> Iterator[SpeakerMachine]:
        """Yield the soft-margin machine of each of the ``speakers`` against all others, in the order given.

        Machines of the first n speakers start from ``known`` coefficients (m, n) over the first m centroids. These must
        be between 0 and C on the speaker's own centroids, between -C and 0 on others, and sum to zero.
        """
        with threadpool_limits(1, "blas"):
            yield from in_order(lambda speaker: self._solve(speaker, C, known), speakers, self._jobs)

    def _solve(self, speaker: int, C: float, known: Array | None) -> SpeakerMachine:
        labels = np.where(self._pool.owner == speaker, 1.0, -1.0)
        coef, values = np.zeros(len(labels)), _KernelValues(self._kernels, self._points, self._norms, self._memory)
        if known is not None and speaker < known.shape[1]:
            coef[: len(known)] = known[:, speaker]
            active = np.flatnonzero((coef != 0.0) | (labels > 0))
        else:
            active = self._first_active(labels, values)
        for rounds in range(ROUND_LIMIT + 1):
            residual = labels.copy()
            values.subtract_margins(np.flatnonzero(coef), coef, residual)
            newcomers = self._newcomers(active, labels, coef, residual, C)
            if rounds and not len(newcomers):
                bias = self._kernels.bias_of(residual, *_room(labels, coef, C))
                return SpeakerMachine(speaker, coef, float(bias), len(active), rounds)
            # Each round increases the objective, so that dropping points cannot cause a cycle.
            if coef.any():
                active = np.sort(np.concatenate((np.flatnonzero((coef != 0.0) | (labels > 0)), newcomers)))
            if 4 * len(active) ** 2 > self._memory:
                return self._by_libsvm(speaker, labels, C)
            if not self._improve(values.between(active), active, labels, coef, residual, C):
                break
        raise FitError(
            f"machine of speaker {speaker} against the rest, C = {C:g}: not within {self._tolerance:g} of the optimum"
            f" after {ROUND_LIMIT} rounds of {self._step_limit} steps; a smaller C or a larger tolerance ends sooner"
        )

    def _first_active(self, labels: Array, values: _KernelValues) -> Numbers:
        """Return the speaker's points, and points of the rest with the largest sums of kernel values with these."""
        mine, rest = np.flatnonzero(labels > 0), np.flatnonzero(labels < 0)
        distance = np.zeros(len(labels))
        values.subtract_margins(mine, np.ones(len(labels)), distance)
        nearest = rest[np.argsort(distance[rest], kind="stable")[: NEAREST * len(mine)]]
        return np.sort(np.concatenate((mine, nearest)))

    def _newcomers(self, active: Numbers, labels: Array, coef: Array, residual: Array, C: float) -> Numbers:
        """Return points outside the active set that violate the optimality conditions; if there are many, the worst.

        Their coefficients are zero and can only decrease. While the bias is wrong, nearly every point violates them.
        """
        up, _ = _room(labels, coef, C)
        best = residual[up > 0.0].max(initial=-np.inf)
        outside = np.ones(len(residual), dtype=bool)
        outside[active] = False
        violating = np.flatnonzero(outside & (best - residual >= self._tolerance))
        return violating[np.argsort(residual[violating], kind="stable")[: max(1, round(GROWTH * len(active)))]]

    def _improve(
        self, gram: NDArray[np.float32], active: Numbers, labels: Array, coef: Array, residual: Array, C: float
    ) -> bool:
        """Optimise the active coefficients in place; return False if that takes too many steps."""
        left, (up, down) = residual[active], _room(labels[active], coef[active], C)
        steps = self._kernels.optimise(gram, left, up, down, C, self._tolerance, self._step_limit)
        coef[active] = np.where(labels[active] > 0, down, 0.0 - up)
        return bool(steps >= 0)

    def _by_libsvm(self, speaker: int, labels: Array, C: float) -> SpeakerMachine:
        from sklearn import config_context  # slow to import, and seldom needed
        from sklearn.svm import SVC

        machine = SVC(C=C, gamma=0.5 / self._pool.sigma**2, tol=self._tolerance, cache_size=self._memory / 2**20)
        with config_context(assume_finite=True, skip_parameter_validation=True):
            machine.fit(self._pool.centroids, labels)
        coef = np.zeros(len(labels))
        coef[machine.support_] = machine.dual_coef_[0]
        return SpeakerMachine(speaker, coef, float(machine.intercept_[0]), 0, 0)


class _KernelValues:
    """Kernel values of all ``points`` with those requested so far, kept as long as they fit into ``memory`` bytes."""

    def __init__(self, kernels: ModuleType, points: Array, norms: Array, memory: int) -> None:
        self._kernels, self._points, self._norms = kernels, points, norms
        self._rows = np.empty((min(len(points), memory // (4 * len(points))), len(points)), np.float32)
        self._place = np.full(len(points), -1)  # of each point's row
        self._count = 0

    def between(self, active: Numbers) -> NDArray[np.float32]:
        """Return the Gram matrix of the ``active`` points."""
        held = self._held(active)
        gram = np.empty((len(active), len(active)), np.float32)
        gram[held] = self._rows[np.ix_(self._place[active[held]], active)]
        gram[~held] = self._made(active[~held], active)
        return gram

    def subtract_margins(self, support: Numbers, weights: Array, residual: Array) -> None:
        """Subtract K(points, support) @ weights[support] from ``residual`` (M,)."""
        held = self._held(support)
        of_held, others = support[held], support[~held]
        self._kernels.subtract_rows(self._rows, self._place[of_held], weights[of_held], residual)
        self._kernels.subtract_margins(
            self._points, self._norms, self._points[others], self._norms[others], weights[others], residual
        )

    def _held(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Return a mask of the points whose values are held, after computing as many as fit."""
        new = numbers[self._place[numbers] < 0][: len(self._rows) - self._count]
        self._rows[self._count : self._count + len(new)] = self._made(new, slice(None))
        self._place[new] = np.arange(self._count, self._count + len(new))
        self._count += len(new)
        return np.asarray(self._place[numbers] >= 0)

    def _made(self, numbers: Numbers, columns: Numbers | slice) -> NDArray[np.float32]:
        """Return the kernel values between the points ``numbers`` and those of ``columns``."""
        others, norms = self._points[columns], self._norms[columns]
        made = np.empty((len(numbers), len(others)), np.float32)
        room = np.empty(TILE_ROWS * len(others))
        for first in range(0, len(numbers), TILE_ROWS):
            rows = numbers[first : first + TILE_ROWS]
            part = made[first : first + TILE_ROWS]
            self._kernels.fill(self._points[rows], self._norms[rows], others, norms, room, part, 0)
        return made


def _room(labels: Array, coef: Array, C: float) -> tuple[Array, Array]:
    """Return how far each coefficient may increase and decrease."""
    own = labels > 0
    return np.where(own, C - coef, -coef), np.where(own, coef, C + coef)
