"""Problems for the batched solver, and the conditions that define an optimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import pairwise
from sklearn.svm import SVC

from pipeline.machines.pairs import PairMachine
from pipeline.machines.pool import Pool
from pipeline.machines.smo import TOLERANCE, PoolSolver

# The last place of a float32 kernel value below one, in each of two margins, for each unit of the coefficients' sum.
ROUNDING = 1.2e-7
SIZES = (40, 1, 17, 60, 25, 33, 40)


def rbf_kernel(x: np.ndarray, y: np.ndarray, sigma: float) -> np.ndarray:
    """scikit-learn's kernel matrix (n, m) between the rows of ``x`` and of ``y``, of width ``sigma``."""
    return pairwise.rbf_kernel(x, y, gamma=0.5 / sigma**2)


@dataclass(frozen=True)
class Problem:
    """Two speakers' points, kernel width and cost."""

    own: np.ndarray
    rival: np.ndarray
    sigma: float
    C: float

    @property
    def points(self) -> np.ndarray:
        return np.concatenate((self.own, self.rival))

    @property
    def labels(self) -> np.ndarray:
        return np.where(np.arange(len(self.points)) < len(self.own), 1.0, -1.0)

    @property
    def gram(self) -> np.ndarray:
        return rbf_kernel(self.points, self.points, self.sigma)

    def solved(self, **options: float) -> PairMachine:
        return next(PoolSolver(Pool.of([self.own, self.rival], self.sigma), **options).pairs([(0, 1)], C=self.C))[1]

    def libsvm(self, tolerance: float = TOLERANCE) -> tuple[np.ndarray, float, SVC]:
        """LIBSVM's signed coefficients and bias, and the machine itself."""
        machine = SVC(C=self.C, gamma=0.5 / self.sigma**2, tol=tolerance).fit(self.points, self.labels)
        coef = np.zeros(len(self.points))
        coef[machine.support_] = machine.dual_coef_[0]
        return coef, float(machine.intercept_[0]), machine

    def gap(self, coef: np.ndarray, bias: float) -> tuple[float, float]:
        """Dual objective, and what the primal one is above it; at the optimum nothing."""
        norm = coef @ self.gram @ coef
        slack = np.maximum(0.0, 1.0 - self.labels * (self.gram @ coef + bias)).sum()
        dual = np.abs(coef).sum() - 0.5 * norm
        return float(dual), float(0.5 * norm + self.C * slack - dual)


def signed(solution: PairMachine) -> np.ndarray:
    return np.concatenate((solution.own, -solution.rival))


def random_problem(seed: int, *, most: int = 60) -> Problem:
    """Return one of any shape: apart or not, unbalanced, with repeated points and points that both speakers have."""
    random = np.random.default_rng(seed)
    dimension, a, b = random.integers(1, 25), *random.integers(1, most, 2)
    own = 0.5 * random.standard_normal((a, dimension)) + random.choice([0.0, 0.3, 1.0, 3.0])
    rival = 0.5 * random.standard_normal((b, dimension))
    if seed % 5 == 0:
        own[random.integers(a, size=a // 2)] = own[0]
    if seed % 10 == 0:
        rival[: min(a, b) // 2 + 1] = own[: min(a, b) // 2 + 1]
    return Problem(own, rival, 10 ** random.uniform(-2, 2), 10 ** random.uniform(-2, 4))


def frames_of(problem: Problem, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(problem.points.shape)
    return np.concatenate((problem.points, problem.points + 0.2 * noise))


def assert_conditions(gradient: np.ndarray, coef: np.ndarray, upper: np.ndarray | float, labels: np.ndarray) -> None:
    """The optimality conditions: signed coefficients within bounds, and no two points that break them."""
    low, high = np.where(labels > 0, 0.0, -upper), np.where(labels > 0, upper, 0.0)
    assert (coef >= low).all() and (coef <= high).all()
    grow, shrink = gradient[coef < high], gradient[coef > low]
    stop = TOLERANCE + ROUNDING * np.abs(coef).sum()
    assert not len(grow) or not len(shrink) or grow.max() - shrink.min() < stop


def assert_optimal(gram: np.ndarray, labels: np.ndarray, coef: np.ndarray, C: float) -> None:
    """The soft-margin machine of ``labels`` over ``gram`` meets the conditions that define it."""
    assert abs(coef.sum()) <= 1e-12 * (1.0 + np.abs(coef).sum())
    assert_conditions(labels - gram @ coef, coef, C, labels)


def codebooks() -> list[np.ndarray]:
    random = np.random.default_rng(8)
    return [0.4 * random.standard_normal(9) + 0.3 * random.standard_normal((size, 9)) for size in SIZES]
