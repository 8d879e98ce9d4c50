"""One binary machine and the posterior of its margins, trained together on weighted rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import has_fit_parameter

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, MarginPosterior
from pipeline.posteriors.classics import LEAST_POSTERIOR
from pipeline.posteriors.heldout import Method, heldout_rows
from pipeline.posteriors.sigmoid import FixedSigmoid

AnyPosterior = MarginPosterior | FixedSigmoid

# A posterior of exactly 0 or 1 would leave a coupling rule with nothing to divide by.
MOST_LOG_ODDS = float(-np.log(LEAST_POSTERIOR))


@dataclass(frozen=True)
class Rows:
    """Rows ``X`` (n, d), dense or CSR, with their classes ``y`` (n,) and ``weights`` (n,) > 0, None for all 1."""

    X: Any
    y: NDArray[Any]
    weights: Array | None

    def of(self, chosen: Flags) -> Rows:
        """The ``chosen`` (n,) rows."""
        places = np.flatnonzero(chosen)
        return Rows(self.X[places], self.y[places], None if self.weights is None else self.weights[places])


@dataclass(frozen=True)
class Training:
    """What every machine of a classifier is trained with: copies of ``estimator`` and ``posterior``, which margins.

    ``method``, ``folds``, ``share`` and ``seed`` are those of ``heldout_rows``.
    """

    estimator: Any
    posterior: AnyPosterior
    method: Method
    folds: int
    share: float
    seed: int

    def fit(self, rows: Rows, positive: Flags) -> TrainedMachine:
        """Train on ``rows`` and their classes ``positive`` (n,).

        A class with fewer rows than folds lessens the number of folds; a single row cannot be held out at all, and
        leaves the training margins. Raises FitError as ``heldout_rows`` and the posterior do.
        """
        machine = fitted(self.estimator, rows.X, positive.astype(int), rows.weights)
        posterior = copy.deepcopy(self.posterior)
        if isinstance(posterior, MarginPosterior):
            places, margins = self._margins(machine, rows, positive)
            posterior.fit(margins, positive[places], None if rows.weights is None else rows.weights[places])
        return TrainedMachine(machine, posterior)

    def _margins(self, machine: Any, rows: Rows, positive: Flags) -> tuple[NDArray[np.intp], Array]:
        """Which rows (m,) the posterior is fitted to, and their margins (m,)."""
        few = int(min(positive.sum(), (~positive).sum()))
        if self.method == "training" or few < 2:
            return np.arange(len(positive)), machine_margins(machine, rows.X)
        return heldout_rows(
            self.estimator,
            rows.X,
            positive.astype(int),
            method=self.method,
            folds=min(self.folds, few),
            share=self.share,
            seed=self.seed,
            weights=rows.weights,
        )


@dataclass(frozen=True)
class TrainedMachine:
    """A fitted binary estimator and the fitted posterior of its margins."""

    machine: Any
    posterior: AnyPosterior

    def log_odds(self, X: Any) -> Array:
        """Log-odds of the positive class for rows X (n, d): (n,), no larger than ``MOST_LOG_ODDS`` in size."""
        log_odds = self.posterior.log_odds(machine_margins(self.machine, X))
        return np.asarray(np.clip(log_odds, -MOST_LOG_ODDS, MOST_LOG_ODDS))


class OneClassMachine(BaseEstimator):  # type: ignore[misc]
    """A one-class ``estimator`` in the clothes of a binary one: it learns from the positive rows and judges any."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: NDArray[Any], sample_weight: Array | None = None) -> Self:
        """Fit to the rows of X (n, d) whose y (n,) is 1."""
        self.classes_ = np.unique(y)
        own = np.flatnonzero(y)
        self.estimator_ = fitted(self.estimator, X[own], None, None if sample_weight is None else sample_weight[own])
        return self

    def decision_function(self, X: Any) -> Array:
        """Margins (n,), positive where the machine takes a row of X for one of its class."""
        return machine_margins(self.estimator_, X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The greater of the two classes where the margin is positive, (n,)."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])


def machine_margins(machine: Any, X: Any) -> Array:
    """Margins (n,) of a binary or one-class machine; raises FitError if it gives none or not one a row."""
    if not hasattr(machine, "decision_function"):
        raise FitError(f"{type(machine).__name__}: an estimator with decision_function expected")
    margins = np.asarray(machine.decision_function(X), dtype=np.float64)
    if margins.shape != (X.shape[0],):
        raise FitError(f"{type(machine).__name__}: one margin a row expected, got shape {margins.shape}")
    return margins


def fitted(estimator: Any, X: Any, y: NDArray[Any] | None, weights: Array | None) -> Any:
    """A fitted copy of ``estimator``, with ``weights`` if there are any."""
    copied = clone(estimator)
    return copied.fit(X, y) if weights is None else copied.fit(X, y, sample_weight=weights)


def takes_weights(estimator: Any) -> bool:
    """Whether ``estimator.fit`` has a ``sample_weight`` of its own."""
    return bool(has_fit_parameter(estimator, "sample_weight"))


def joined(X: Any, y: NDArray[Any], weights: Array | None) -> Rows:
    """The rows of weight above 0 of X (n, d), those equal to the bit and of one class as one, of their summed weight.

    So a row given twice and a row of weight 2 are the same, and no copy of a row is held out while another trains. The
    order is by class, then by content: neither it nor any split by a seed depends on the order of X.
    """
    weights = np.ones(len(y)) if weights is None else weights
    first: dict[tuple[Any, bytes], int] = {}
    total: dict[tuple[Any, bytes], float] = {}
    for place, key in enumerate(zip(y.tolist(), _contents(X), strict=True)):
        if weights[place] > 0.0:
            first.setdefault(key, place)
            total[key] = total.get(key, 0.0) + float(weights[place])
    order = sorted(first)
    places = np.array([first[key] for key in order], dtype=np.intp)
    summed = np.array([total[key] for key in order])
    return Rows(X[places], y[places], None if (summed == 1.0).all() else summed)


def _contents(X: Any) -> Iterator[bytes]:
    if not issparse(X):
        return (row.tobytes() for row in np.ascontiguousarray(X))
    X.sum_duplicates()
    ends = zip(X.indptr[:-1], X.indptr[1:], strict=True)
    return (X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in ends)
