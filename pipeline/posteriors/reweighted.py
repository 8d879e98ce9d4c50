"""Families of machines that differ in the weights of their two classes, trained side by side.

What the machines of a family share is computed once: the Gram matrix of an SVC, and the kernel values of the points
to predict; or a machine starts from its neighbour's solution.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC
from sklearn.utils import gen_batches
from sklearn.utils.validation import has_fit_parameter

from pipeline.errors import FitError

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# A Gram matrix of this many rows takes 200 MB; beyond, each machine computes the kernel values it needs.
SHARED_ROWS = 5000
# Warm starts run along stretches of the grid. Their number is fixed, so that the answer does not depend on n_jobs.
WARM_CHAINS = 8
_KERNELS = ("linear", "poly", "rbf", "sigmoid")


@dataclass(frozen=True, eq=False)
class Trials:
    """``rows`` (n, d), their place ``positive`` (n,), 0 or 1, in ``classes`` (2,), and ``weight`` (n,) above 0."""

    rows: Array
    positive: Index
    weight: Array
    classes: NDArray[Any]

    @property
    def counts(self) -> Array:
        """Effective numbers (2,) of negatives and positives."""
        return np.asarray(np.bincount(self.positive, weights=self.weight))

    @property
    def labels(self) -> NDArray[Any]:
        """Classes (n,) as they were given, which a class_weight of the estimator's own goes by."""
        return np.asarray(self.classes[self.positive])


@dataclass(frozen=True, eq=False)
class KernelFamily:
    """Machines over one pool of support vectors (S, d): ``coefficients`` (S, L) and ``offsets`` (L,)."""

    kernel: dict[str, Any]
    support: Array
    coefficients: Array
    offsets: Array

    def margins(self, rows: Array) -> Array:
        """Margins (n, L) at ``rows`` (n, d): one kernel matrix and one product, a few thousand rows at a time."""
        margins = np.empty((len(rows), len(self.offsets)))
        for part in gen_batches(len(rows), SHARED_ROWS):
            values = pairwise_kernels(rows[part], self.support, filter_params=True, **self.kernel)
            margins[part] = values @ self.coefficients + self.offsets
        return margins


@dataclass(frozen=True, eq=False)
class Family:
    """Machines that share nothing."""

    machines: list[Any]

    def margins(self, rows: Array) -> Array:
        """Margins (n, L) at ``rows`` (n, d)."""
        return np.stack([_margin(machine, rows) for machine in self.machines], axis=1)


def _margin(machine: Any, rows: Array) -> Array:
    """Margins (n,), of which only the sign matters, by the best means that ``machine`` has."""
    if hasattr(machine, "decision_function"):
        return np.asarray(machine.decision_function(rows), dtype=np.float64)
    if hasattr(machine, "predict_proba"):
        return np.asarray(machine.predict_proba(rows)[:, 1] - 0.5)
    return np.where(machine.predict(rows) == machine.classes_[1], 0.5, -0.5)


def kernel_can_be_shared(estimator: Any, trials: Trials) -> bool:
    """Whether ``train_on_one_gram`` will do: an SVC with one of its own kernels, and few enough trials."""
    return type(estimator) is SVC and estimator.kernel in _KERNELS and len(trials.rows) <= SHARED_ROWS


def _kernel_of(machine: SVC, rows: Array) -> dict[str, Any]:
    """The settings of the kernel for ``pairwise_kernels``; gamma as SVC documents it."""
    gamma = machine.gamma
    if gamma == "scale":
        spread = rows.shape[1] * rows.var()
        gamma = 1.0 / spread if spread else 1.0
    elif gamma == "auto":
        gamma = 1.0 / rows.shape[1]
    return {"metric": machine.kernel, "gamma": gamma, "degree": machine.degree, "coef0": machine.coef0}


def refuse_balanced(estimator: Any) -> None:
    """Raise FitError for a class_weight of "balanced": worked out from the weights given, it would undo them."""
    own = getattr(estimator, "class_weight", None)
    if isinstance(own, str):
        raise FitError(f'estimator: class_weight={own!r} undoes the weights; use weighting="equal_n"')


def train_on_one_gram(estimator: SVC, trials: Trials, by_class: Array, parallel: Parallel) -> KernelFamily:
    """Machines like ``estimator`` with the weights ``by_class`` (L, 2), from one Gram matrix."""
    kernel = _kernel_of(estimator, trials.rows)
    gram = pairwise_kernels(trials.rows, filter_params=True, **kernel)
    labels = trials.labels

    def train(of_class: Array) -> tuple[Index, Array, float]:
        machine = clone(estimator).set_params(kernel="precomputed")
        with config_context(assume_finite=True):  # of a Gram matrix that is checked L times over
            machine.fit(gram, labels, sample_weight=trials.weight * of_class[trials.positive])
        return machine.support_, machine.dual_coef_[0], machine.intercept_[0]

    trained = parallel(delayed(train)(of_class) for of_class in by_class)
    coefficients = np.zeros((len(gram), len(trained)))
    for k, (support, coefficient, _) in enumerate(trained):
        coefficients[support, k] = coefficient
    used = np.flatnonzero(coefficients.any(axis=1))
    offsets = np.array([offset for _, _, offset in trained])
    return KernelFamily(kernel, trials.rows[used], coefficients[used], offsets)


def train_apart(estimator: Any, trials: Trials, by_class: Array, parallel: Parallel, warm: bool) -> Family:
    """Machines like ``estimator`` with the weights ``by_class`` (L, 2), each trained on its own.

    ``warm`` has logistic regressions start from their neighbour's solution, along stretches of the grid. Raises
    FitError for an estimator that cannot be reweighted.
    """
    fit = _lever(estimator, trials)
    warm = warm and isinstance(estimator, LogisticRegression)

    def train(chain: Array) -> list[Any]:
        machines: list[Any] = []
        for of_class in chain:
            machine = copy.deepcopy(machines[-1]) if machines else clone(estimator)
            fit(machine.set_params(warm_start=True) if warm else machine, of_class)
            machines.append(machine)
        return machines

    chains = np.array_split(by_class, min(WARM_CHAINS if warm else len(by_class), len(by_class)))
    trained = parallel(delayed(train)(chain) for chain in chains)
    return Family([machine for chain in trained for machine in chain])


def _lever(estimator: Any, trials: Trials) -> Callable[[Any, Array], Any]:
    """How to train a machine like ``estimator`` with the weights (2,) of the classes: the first way that it has."""
    rows, labels, positive, weight = trials.rows, trials.labels, trials.positive, trials.weight
    settings = estimator.get_params(deep=False)
    if has_fit_parameter(estimator, "sample_weight"):
        return lambda machine, of_class: machine.fit(rows, labels, sample_weight=weight * of_class[positive])
    if np.ptp(weight) > 0:
        raise FitError(f"sample_weight: {type(estimator).__name__} takes none")
    if "priors" in settings:
        prior = trials.counts if settings["priors"] is None else np.asarray(settings["priors"], dtype=np.float64)
        return lambda machine, of_class: machine.set_params(priors=_scaled(prior * of_class)).fit(rows, labels)
    if "class_weight" in settings:
        own = settings["class_weight"] or {}
        return lambda machine, of_class: machine.set_params(
            class_weight={c: own.get(c, 1.0) * w for c, w in zip(trials.classes, of_class, strict=True)}
        ).fit(rows, labels)
    raise FitError(
        f"estimator: {type(estimator).__name__} takes neither sample_weight nor priors nor class_weight;"
        " of a pipeline, wrap the last step alone"
    )


def _scaled(prior: Array) -> Array:
    return np.asarray(prior / prior.sum())
