"""Ensembles of machines that differ in the weights of their two classes, for ``implied``.

The Gram matrix of an SVC and the kernel values of the points to predict are computed once for all machines.
"""

from __future__ import annotations

from collections.abc import Callable
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
from pipeline.posteriors.base import Array

# A Gram matrix of this many rows takes 200 MB; beyond, each machine computes the kernel values it needs.
SHARED_ROWS = 5000
_KERNELS = ("linear", "poly", "rbf", "sigmoid")


Ensemble = list[Any] | tuple[dict[str, Any], Array, Array, Array]
"""Machines trained separately, or over one pool: kernel, support vectors (S, d), coefficients (S, L), offsets."""


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
    """Return margins (n,), or numbers of the same sign, from the best method that ``machine`` has."""
    if hasattr(machine, "decision_function"):
        return np.asarray(machine.decision_function(rows), dtype=np.float64)
    if hasattr(machine, "predict_proba"):
        return np.asarray(machine.predict_proba(rows)[:, 1] - 0.5)
    return np.where(machine.predict(rows) == machine.classes_[1], 0.5, -0.5)


def train(
    estimator: Any, rows: Array, labels: NDArray[Any], weight: Array, by_class: Array, parallel: Parallel
) -> Ensemble:
    """Return machines like ``estimator`` with the class weights ``by_class`` (L, 2), negative class first.

    They are trained on ``rows`` (n, d) with two ``labels`` (n,), the later in sorted order being positive, and
    ``weight`` (n,) above 0. The machines of an SVC with a built-in kernel share one Gram matrix, up to ``SHARED_ROWS``
    rows. Raises FitError for an estimator that cannot be reweighted, and for class_weight "balanced", which would undo
    the given weights.
    """
    own = getattr(estimator, "class_weight", None)
    if isinstance(own, str):
        raise FitError(f'estimator: class_weight={own!r} undoes the weights; use weighting="equal_n"')
    if type(estimator) is SVC and estimator.kernel in _KERNELS and len(rows) <= SHARED_ROWS:
        return _train_on_one_gram(estimator, rows, labels, weight, by_class, parallel)
    fit = _lever(estimator, rows, labels, weight)
    return list(parallel(delayed(fit)(clone(estimator), of_class) for of_class in by_class))


def _kernel_of(machine: SVC, rows: Array) -> dict[str, Any]:
    """Return the kernel's settings for ``pairwise_kernels``; gamma as SVC documents it."""
    gamma = machine.gamma
    if gamma == "scale":
        spread = rows.shape[1] * rows.var()
        gamma = 1.0 / spread if spread else 1.0
    elif gamma == "auto":
        gamma = 1.0 / rows.shape[1]
    return {"metric": machine.kernel, "gamma": gamma, "degree": machine.degree, "coef0": machine.coef0}


def _train_on_one_gram(
    estimator: SVC, rows: Array, labels: NDArray[Any], weight: Array, by_class: Array, parallel: Parallel
) -> Ensemble:
    kernel = _kernel_of(estimator, rows)
    gram = pairwise_kernels(rows, filter_params=True, **kernel)
    positive = np.unique(labels, return_inverse=True)[1]

    def one(of_class: Array) -> tuple[NDArray[np.intp], Array, float]:
        machine = clone(estimator).set_params(kernel="precomputed")
        with config_context(assume_finite=True):  # the Gram matrix need not be checked L times
            machine.fit(gram, labels, sample_weight=weight * of_class[positive])
        return machine.support_, machine.dual_coef_[0], machine.intercept_[0]

    trained = parallel(delayed(one)(of_class) for of_class in by_class)
    coefficients = np.zeros((len(gram), len(trained)))
    for k, (support, coefficient, _) in enumerate(trained):
        coefficients[support, k] = coefficient
    used = np.flatnonzero(coefficients.any(axis=1))
    return kernel, rows[used], coefficients[used], np.array([offset for _, _, offset in trained])


def _lever(estimator: Any, rows: Array, labels: NDArray[Any], weight: Array) -> Callable[[Any, Array], Any]:
    """Return a function that fits a machine with class weights (2,), in the first way that ``estimator`` supports."""
    classes, positive = np.unique(labels, return_inverse=True)
    settings = estimator.get_params(deep=False)
    if has_fit_parameter(estimator, "sample_weight"):
        return lambda machine, of_class: machine.fit(rows, labels, sample_weight=weight * of_class[positive])
    if np.ptp(weight) > 0:
        raise FitError(f"sample_weight: {type(estimator).__name__} takes none")
    if "priors" in settings:
        own = np.bincount(positive) if settings["priors"] is None else np.asarray(settings["priors"], dtype=np.float64)
        return lambda machine, of_class: machine.set_params(priors=own * of_class / (own * of_class).sum()).fit(
            rows, labels
        )
    if "class_weight" in settings:
        factors = settings["class_weight"] or {}
        return lambda machine, of_class: machine.set_params(
            class_weight={c: factors.get(c, 1.0) * w for c, w in zip(classes, of_class, strict=True)}
        ).fit(rows, labels)
    raise FitError(
        f"estimator: {type(estimator).__name__} takes neither sample_weight nor priors nor class_weight;"
        " in a pipeline, wrap only the last step"
    )
