"""Families of machines for implied posteriors: every machine of two classes trained L times, its classes reweighted.

Machine l of L gives the positive class the share 1 - l / (L + 1) of the total weight, so that its surface is where the
posterior at even odds is l / (L + 1); whatever the classes' sizes, the total stays the number of centroids (Nalbantov
and Ivanov, Tutorial on implied posterior probability for SVMs, 2020, eqs. 8-12). The share of machines that say
positive, two fictitious ones at 0 and 1 among them, is the posterior (eq. 13).

A family is kept as arrays with one more axis, of length L, than a single machine has; it costs L times the training,
the memory and the scoring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.svm import SVC

from pipeline.machines.pool import Pool, rbf_kernel
from pipeline.threads import run_parallel

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairFamily:
    """Margins = K(x, own centroids) @ ``own`` (k, L) - K(x, rival centroids) @ ``rival`` (k', L) + ``bias`` (L,)."""

    own: Array
    rival: Array
    bias: Array


@dataclass(frozen=True, slots=True)
class Family:
    """Margins = K(x, centroids) @ ``coef`` (M, L) + ``bias`` (L,)."""

    coef: Array
    bias: Array


def balances(machines: int, positives: int, negatives: int) -> Array:
    """Weights (L, 2) of each positive and each negative trial for ``machines`` L; every row weighs n trials in all."""
    posterior = np.arange(1, machines + 1) / (machines + 1)
    total = positives + negatives
    return np.stack([total * (1.0 - posterior) / positives, total * posterior / negatives], axis=1)


def train_pair_family(pool: Pool, own: int, rival: int, *, C: float, machines: int) -> PairFamily:
    """``machines`` reweighted soft-margin SVMs of speaker ``own`` (margin > 0) against ``rival``."""
    between = pool.gram(own, rival)
    gram = np.block([[pool.gram(own, own), between], [between.T, pool.gram(rival, rival)]])
    count = len(between)
    family = _fit_family(gram, np.arange(len(gram)) < count, C, machines)
    return PairFamily(family.coef[:count], -family.coef[count:], family.bias)


def train_rest_families(pool: Pool, *, C: float, machines: int, jobs: int = 1) -> list[Family]:
    """A family a speaker over the whole pool: that speaker's centroids (margin > 0) against everybody's.

    One speaker alone has no rest and so no family.
    """
    if len(pool) < 2:
        return []
    gram = rbf_kernel(pool.centroids, pool.centroids, pool.sigma)
    tasks = ((gram, pool.owner == speaker, C, machines) for speaker in range(len(pool)))
    return run_parallel(_fit_family, tasks, jobs=jobs)


def _fit_family(gram: Array, positive: NDArray[np.bool_], C: float, machines: int) -> Family:
    coef, bias = np.zeros((len(gram), machines)), np.zeros(machines)
    weights = balances(machines, int(positive.sum()), int((~positive).sum()))
    labels = np.where(positive, 1, -1)
    for number, (for_positive, for_negative) in enumerate(weights.tolist()):
        with config_context(assume_finite=True, skip_parameter_validation=True):
            svm = SVC(kernel="precomputed", C=C, class_weight={1: for_positive, -1: for_negative}).fit(gram, labels)
        coef[svm.support_, number] = svm.dual_coef_[0]
        bias[number] = svm.intercept_[0]
    return Family(coef, bias)


def family_gib(speakers: int, centroids: int, machines: int, kinds: Any) -> float:
    """GiB that the families' coefficients take, pair and one-vs-rest ones alike: L numbers a centroid and speaker."""
    sets = len({"one_vs_one", "one_vs_rest"} & set(kinds))
    return 8 * sets * machines * centroids * speakers**2 / 2**30
