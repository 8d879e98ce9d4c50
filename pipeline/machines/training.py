"""Train the three kinds of machine: plain coefficients over the pool, found by LIBSVM through scikit-learn.

Every problem is given to LIBSVM as kernel values cut from the pool's Gram matrix, so the kernel has one definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.svm import SVC, OneClassSVM

from pipeline.machines.pool import Pool, rbf_kernel

Array = NDArray[np.float64]
OneClassScale = Literal["schoelkopf", "libsvm"] | float
Result = TypeVar("Result")

CACHE_MIB = 500


@dataclass(frozen=True, slots=True)
class PairMachine:
    """One pair: margin = K(x, own centroids) @ own - K(x, rival centroids) @ rival + bias; own, rival >= 0."""

    own: Array
    rival: Array
    bias: float


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine: margin = K(x, centroids) @ coef + bias."""

    coef: Array
    bias: float


def train_pair(pool: Pool, own: int, rival: int, *, C: float) -> PairMachine:
    """Soft-margin SVM of speaker ``own`` (margin > 0) against ``rival``."""
    between = pool.gram(own, rival)
    gram = np.block([[pool.gram(own, own), between], [between.T, pool.gram(rival, rival)]])
    own_count = len(between)
    machine = _fit_binary(gram, np.arange(len(gram)) < own_count, C)
    return PairMachine(machine.coef[:own_count], -machine.coef[own_count:], machine.bias)


def train_one_vs_rest(pool: Pool, *, C: float, jobs: int = 1) -> list[Machine]:
    """One machine a speaker over the whole pool: that speaker's centroids (margin > 0) against everybody's.

    The M x M Gram matrix is held once, in float64, and every speaker's problem reads it. One speaker alone has no
    rest and so no machine.
    """
    if len(pool) < 2:
        return []
    gram = rbf_kernel(pool.centroids, pool.centroids, pool.sigma)
    tasks = ((gram, pool.owner == speaker, C) for speaker in range(len(pool)))
    return run_parallel(_fit_binary, tasks, jobs=jobs)


def train_one_class(pool: Pool, speaker: int, *, nu: float, scale: OneClassScale) -> Machine:
    """One-class SVM (Schoelkopf et al. 1999) of one speaker, its coefficients summing to what ``scale`` says.

    ``"schoelkopf"``: 1; ``"libsvm"``: nu * k for k centroids; a number: that number.
    """
    gram = pool.gram(speaker, speaker)
    with _trusted():
        svm = OneClassSVM(kernel="precomputed", nu=nu).fit(gram)
    coef = np.zeros(len(gram))
    coef[svm.support_] = svm.dual_coef_[0]
    factor = {"schoelkopf": 1.0, "libsvm": nu * len(gram)}.get(str(scale)) or float(scale)
    factor /= coef.sum()
    return Machine(coef * factor, float(svm.intercept_[0]) * factor)


def _fit_binary(gram: Array, positive: NDArray[np.bool_], C: float) -> Machine:
    # LIBSVM's cache holds its rows in float32; one larger than the problem costs time, not only memory.
    cache_mib = min(CACHE_MIB, 1 + 4 * gram.size / 2**20)
    with _trusted():
        svm = SVC(kernel="precomputed", C=C, cache_size=cache_mib).fit(gram, np.where(positive, 1, -1))
    coef = np.zeros(len(gram))
    coef[svm.support_] = svm.dual_coef_[0]
    return Machine(coef, float(svm.intercept_[0]))


def _trusted() -> Any:
    """Skip scikit-learn's input checks: thousands of small problems of our own making."""
    return config_context(assume_finite=True, skip_parameter_validation=True)


def run_parallel(function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], *, jobs: int) -> list[Result]:
    """Map ``function`` over argument tuples on ``jobs`` threads, in order (LIBSVM and BLAS let go of the GIL)."""
    return list(Parallel(n_jobs=jobs, backend="threading")(delayed(function)(*task) for task in tasks))
