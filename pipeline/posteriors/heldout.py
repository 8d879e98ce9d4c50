"""Margins for fitting a posterior, from training rows, held-out rows or cross-validation, and machines with posteriors.

Training drives the margins of a support vector machine's own rows to 1 and -1 or beyond: a posterior fitted to them is
overconfident on new rows (Platt 1999, section 2.2).

- ``training``: margins of the training rows. Only for a linear machine with many more rows than columns and a small C.
- ``holdout``: margins of a share of the rows, not used to train the machine. Unbiased, but fewer; afterwards it is best
  to train the machine again on all rows.
- ``kfold``: margins of every row from a machine trained without its fold. Unbiased, and uses every row, but takes about
  2.2 times as long with three folds, and pools margins of slightly different machines. Platt's choice; the default.

Rows that are near copies of each other (frames of a recording) must stay in one fold: give their ``groups``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict, train_test_split

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, MarginPosterior
from pipeline.posteriors.pairwise_coupling import MIN_POSTERIOR
from pipeline.posteriors.sigmoid import FixedSigmoid

Method = Literal["training", "holdout", "kfold"]
Places = NDArray[np.intp]
AnyPosterior = MarginPosterior | FixedSigmoid

# A posterior of exactly 0 or 1 would make a coupling rule divide by zero.
MAX_LOG_ODDS = float(-np.log(MIN_POSTERIOR))


def margins_for(estimator: Any, X: Any, y: ArrayLike, **settings: Any) -> tuple[Array, Flags]:
    """Return margins of held-out rows, for fitting a posterior, and their classes.

    Parameters
    ----------
    estimator : classifier with ``decision_function``
        Left unfitted.
    X, y : arrays, shapes (n, d) and (n,)
        Rows of any type that the estimator takes, and two labels; the later in sorted order is positive.
    settings
        Those of ``heldout_rows``: method, folds, share, seed, weights and groups.

    Returns
    -------
    margins : array, shape (m,)
    positive : array, shape (m,)
        True for the positive class.

    Raises
    ------
    FitError
        As ``heldout_rows``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from pipeline import make_posterior
    >>> from pipeline.posteriors.heldout import margins_for
    >>> X, y = load_iris(return_X_y=True)
    >>> margins, positive = margins_for(SVC(), X[50:], y[50:])
    >>> low, high = make_posterior("newton").fit(margins, positive).probability([-1.0, 1.0])
    >>> bool(low < 0.1), bool(high > 0.9)
    (True, True)
    """
    rows, margins = heldout_rows(estimator, X, y, **settings)
    labels = np.asarray(y)
    return margins, labels[rows] == np.unique(labels)[1]


def heldout_rows(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    method: Method = "kfold",
    folds: int = 3,
    share: float = 0.3,
    seed: int = 0,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> tuple[Places, Array]:
    """Return ascending numbers (m,) of rows of X, and the margins (m,) that clones of ``estimator`` give these rows.

    Parameters
    ----------
    estimator
        Binary scikit-learn classifier with ``decision_function``; left unfitted.
    X, y
        (n, d), of any type that the estimator takes, and (n,) of two labels; the later in sorted order is positive.
    method
        Origin of the margins, see the module; m is n, or about n ``share`` for "holdout".
    folds, share, seed
        2 or more for "kfold", in (0, 1) for "holdout"; both splits are stratified, at random by ``seed``.
    weights
        (n,), the machine's ``sample_weight``.
    groups
        (n,), for "kfold": rows of one group share a fold.

    Raises
    ------
    FitError
        Unless there are two labels, and for an unknown method, an estimator without ``decision_function``, a class too
        small for the split, and groups with another method than kfold.
    """
    labels = np.asarray(y)
    _check(estimator, labels, method, grouped=groups is not None)
    extra = {} if weights is None else {"sample_weight": np.asarray(weights, dtype=np.float64)}
    places = np.arange(len(labels))
    if method == "training":
        return places, machine_margins(clone(estimator).fit(X, labels, **extra), X)
    if method == "holdout":
        return _holdout(estimator, X, labels, extra, share, seed)
    smaller = int(np.unique_counts(labels).counts.min())
    if not 2 <= folds <= smaller:
        raise FitError(f"folds: from 2 to the rows of the smaller class, {smaller}, expected, got {folds}")
    splitter = (StratifiedKFold if groups is None else StratifiedGroupKFold)(folds, shuffle=True, random_state=seed)
    splits = list(splitter.split(labels, labels, groups))
    if any(len(np.unique(labels[train])) < 2 for train, _ in splits):
        raise FitError(f"groups: rows of both classes outside every one of the {folds} folds expected")
    margins = cross_val_predict(estimator, X, labels, cv=splits, method="decision_function", params=extra)
    return places, np.asarray(margins, dtype=np.float64)


def _holdout(
    estimator: Any, X: Any, labels: NDArray[Any], extra: dict[str, Array], share: float, seed: int
) -> tuple[Places, Array]:
    try:
        train, held, train_X, held_X = train_test_split(
            np.arange(len(labels)), X, test_size=float(share), stratify=labels, random_state=seed
        )
    except ValueError as error:
        raise FitError(f"holdout: cannot hold out a share of {share} of {len(labels)} rows: {error}") from None
    if len(np.unique(labels[train])) < 2 or len(np.unique(labels[held])) < 2:
        raise FitError(
            f"holdout: rows of both classes on both sides expected; share {share} of {len(labels)} rows gives none"
        )
    machine = clone(estimator).fit(train_X, labels[train], **{name: value[train] for name, value in extra.items()})
    order = np.argsort(held)
    return held[order], machine_margins(machine, held_X)[order]


def _check(estimator: Any, labels: NDArray[Any], method: str, *, grouped: bool) -> None:
    if method not in ("training", "holdout", "kfold"):
        raise FitError(f"method: training, holdout or kfold expected, got {method!r}")
    if grouped and method != "kfold":
        raise FitError(f"groups: only for method 'kfold', got {method!r}")
    if not hasattr(estimator, "decision_function"):
        raise FitError(f"{type(estimator).__name__}: a classifier with decision_function expected")
    if labels.ndim != 1 or len(np.unique(labels)) != 2:
        raise FitError(
            f"y: one of two labels a row expected, got shape {labels.shape}, {len(np.unique(labels))} labels"
        )


def train_machine(
    estimator: Any, posterior: AnyPosterior, X: Any, positive: Flags, weights: Array | None, **settings: Any
) -> tuple[Any, AnyPosterior]:
    """Return a machine trained on rows X (n, d), and a posterior fitted to held-out margins.

    ``settings`` are ``heldout_rows``'s method, folds, share and seed. A class with fewer rows than folds gets fewer
    folds, a class with a single row training margins. Raises FitError as ``heldout_rows`` and the posterior do.
    """
    y = positive.astype(int)
    machine = fitted(estimator, X, y, weights)
    posterior = copy.deepcopy(posterior)
    if isinstance(posterior, FixedSigmoid):
        return machine, posterior
    smaller = int(min(positive.sum(), (~positive).sum()))
    if settings["method"] == "training" or smaller < 2:
        places, margins = np.arange(len(y)), machine_margins(machine, X)
    else:
        settings["folds"] = min(settings["folds"], smaller)
        places, margins = heldout_rows(estimator, X, y, weights=weights, **settings)
    posterior.fit(margins, positive[places], None if weights is None else weights[places])
    return machine, posterior


def clipped_log_odds(machine: Any, posterior: AnyPosterior, X: Any) -> Array:
    """Return log-odds (n,) of the positive class for rows X (n, d), clipped to ``MAX_LOG_ODDS``."""
    return np.asarray(np.clip(posterior.log_odds(machine_margins(machine, X)), -MAX_LOG_ODDS, MAX_LOG_ODDS))


@dataclass(eq=False, repr=False)
class OneClassMachine(BaseEstimator):  # type: ignore[misc]
    """A one-class ``estimator`` with the interface of a binary one: it is fitted to the positive rows only."""

    estimator: Any

    def fit(self, X: Any, y: NDArray[Any], sample_weight: Array | None = None) -> Self:
        """Fit to the rows of X (n, d) whose y (n,) is 1."""
        self.classes_ = np.unique(y)
        own = np.flatnonzero(y)
        self.estimator_ = fitted(self.estimator, X[own], None, None if sample_weight is None else sample_weight[own])
        return self

    def decision_function(self, X: Any) -> Array:
        """Return margins (n,), positive where a row of X is accepted."""
        return machine_margins(self.estimator_, X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class (n,), the later one if the margin is positive; ``cross_val_predict`` requires the method."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])


def machine_margins(machine: Any, X: Any) -> Array:
    """Return margins (n,) of a binary or one-class machine; raises FitError unless there is one per row."""
    if not hasattr(machine, "decision_function"):
        raise FitError(f"{type(machine).__name__}: an estimator with decision_function expected")
    margins = np.asarray(machine.decision_function(X), dtype=np.float64)
    if margins.shape != (X.shape[0] if hasattr(X, "shape") else len(X),):
        raise FitError(f"{type(machine).__name__}: one margin a row expected, got shape {margins.shape}")
    return margins


def fitted(estimator: Any, X: Any, y: NDArray[Any] | None, weights: Array | None) -> Any:
    """Return a fitted copy of ``estimator``, with ``weights`` if there are any."""
    return clone(estimator).fit(X, y, **({} if weights is None else {"sample_weight": weights}))


def joined(X: Any, y: NDArray[Any], weights: Array) -> tuple[Any, NDArray[Any], Array | None]:
    """Return rows, classes and weights (None if all 1), with identical rows of a class joined into one.

    A row given twice then equals a row of weight 2, rows of weight 0 are left out, and no row is held out while a copy
    of it is trained on. Rows are ordered by class, then by content: random splits do not depend on the order of X.
    """
    first: dict[tuple[Any, bytes], tuple[int, float]] = {}
    for place, key in enumerate(zip(y.tolist(), _contents(X), strict=True)):
        if weights[place] > 0.0:
            kept, total = first.get(key, (place, 0.0))
            first[key] = kept, total + float(weights[place])
    places, totals = zip(*(first[key] for key in sorted(first)), strict=True)
    order, summed = np.array(places, dtype=np.intp), np.array(totals)
    return X[order], y[order], None if (summed == 1.0).all() else summed


def _contents(X: Any) -> Iterator[bytes]:
    """Yield each row's bytes."""
    if not issparse(X):
        return (row.tobytes() for row in np.ascontiguousarray(X))
    X.sum_duplicates()
    ends = zip(X.indptr[:-1], X.indptr[1:], strict=True)
    return (X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in ends)
