"""Ensembles of machines that differ in the weights of their two classes, for ``implied``.

Shared work is done once: the Gram matrix of an SVC and the kernel values of the points to predict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC
from sklearn.utils import gen_batches
from sklearn.utils.validation import has_fit_parameter

from pipeline.errors import FitError

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# A Gram matrix of this many rows takes 200 MB; beyond, each machine computes the kernel values it needs.
SHARED_ROWS = 5000
_KERNELS = ("linear", "poly", "rbf", "sigmoid")


@dataclass(frozen=True, eq=False)
class TrainingRows:
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
        """Classes (n,) as given: the keys of the estimator's own class_weight."""
        return np.asarray(self.classes[self.positive])


Ensemble = list[Any] | tuple[dict[str, Any], Array, Array, Array]
"""Machines trained separately, or those over one pool: kernel, support vectors (S, d), coefficients (S, L), offsets."""


def ensemble_margins(ensemble: Ensemble, rows: Array) -> Array:
    """Return margins (n, L) at ``rows`` (n, d): one kernel matrix and one product, 5000 rows at a time, if shared."""
    if isinstance(ensemble, list):
        return np.stack([_margin(machine, rows) for machine in ensemble], axis=1)
    kernel, support, coefficients, offsets = ensemble
    margins = np.empty((len(rows), len(offsets)))
    for part in gen_batches(len(rows), SHARED_ROWS):
        margins[part] = pairwise_kernels(rows[part], support, filter_params=True, **kernel) @ coefficients + offsets
    return margins


def _margin(machine: Any, rows: Array) -> Array:
    """Return margins (n,), of which only the sign matters, by the best method that ``machine`` has."""
    if hasattr(machine, "decision_function"):
        return np.asarray(machine.decision_function(rows), dtype=np.float64)
    if hasattr(machine, "predict_proba"):
        return np.asarray(machine.predict_proba(rows)[:, 1] - 0.5)
    return np.where(machine.predict(rows) == machine.classes_[1], 0.5, -0.5)


def kernel_can_be_shared(estimator: Any, trials: TrainingRows) -> bool:
    """Return True for an SVC with a kernel of its own and at most ``SHARED_ROWS`` trials."""
    return type(estimator) is SVC and estimator.kernel in _KERNELS and len(trials.rows) <= SHARED_ROWS


def _kernel_of(machine: SVC, rows: Array) -> dict[str, Any]:
    """Return the kernel's settings for ``pairwise_kernels``; gamma as SVC documents it."""
    gamma = machine.gamma
    if gamma == "scale":
        spread = rows.shape[1] * rows.var()
        gamma = 1.0 / spread if spread else 1.0
    elif gamma == "auto":
        gamma = 1.0 / rows.shape[1]
    return {"metric": machine.kernel, "gamma": gamma, "degree": machine.degree, "coef0": machine.coef0}


def refuse_balanced(estimator: Any) -> None:
    """Raise FitError for class_weight "balanced", which would undo the given weights."""
    own = getattr(estimator, "class_weight", None)
    if isinstance(own, str):
        raise FitError(f'estimator: class_weight={own!r} undoes the weights; use weighting="equal_n"')


def train_on_one_gram(estimator: SVC, trials: TrainingRows, by_class: Array, parallel: Parallel) -> Ensemble:
    """Return machines like ``estimator`` with the weights ``by_class`` (L, 2), from one Gram matrix."""
    kernel = _kernel_of(estimator, trials.rows)
    gram = pairwise_kernels(trials.rows, filter_params=True, **kernel)
    labels = trials.labels

    def train(of_class: Array) -> tuple[Index, Array, float]:
        machine = clone(estimator).set_params(kernel="precomputed")
        with config_context(assume_finite=True):  # the Gram matrix need not be checked L times
            machine.fit(gram, labels, sample_weight=trials.weight * of_class[trials.positive])
        return machine.support_, machine.dual_coef_[0], machine.intercept_[0]

    trained = parallel(delayed(train)(of_class) for of_class in by_class)
    coefficients = np.zeros((len(gram), len(trained)))
    for k, (support, coefficient, _) in enumerate(trained):
        coefficients[support, k] = coefficient
    used = np.flatnonzero(coefficients.any(axis=1))
    offsets = np.array([offset for _, _, offset in trained])
    return kernel, trials.rows[used], coefficients[used], offsets


def train_apart(estimator: Any, trials: TrainingRows, by_class: Array, parallel: Parallel) -> Ensemble:
    """Return machines like ``estimator`` with the weights ``by_class`` (L, 2), each trained on its own.

    Raises FitError for an estimator that cannot be reweighted.
    """
    fit = _lever(estimator, trials)
    return list(parallel(delayed(fit)(clone(estimator), of_class) for of_class in by_class))


def _lever(estimator: Any, trials: TrainingRows) -> Callable[[Any, Array], Any]:
    """Return a function that fits a machine with class weights (2,), by the first means that ``estimator`` has."""
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
