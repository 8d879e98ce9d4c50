"""Margins to fit a posterior to: those of the training rows, of rows held out, or of every row by cross-validation.

Platt 1999, section 2.2, says why it matters. Training brings a support vector machine's margins of its own rows to
exactly 1 and -1, or pushes them there, so that they are not distributed as those of new rows are, and a posterior
fitted to them is too sure of itself.

- ``training``: the margins of the rows that trained the machine. Valid for a linear machine with many more rows than
  columns and a small C, of which few rows are support vectors. A kernel machine gives them a severe bias.
- ``holdout``: a share of the rows is kept from the machine. Free of that bias, at the price of a posterior fitted to
  fewer rows; the machine that the posterior is for is best trained again on all rows.
- ``kfold``: every row's margin comes from a machine trained without its fold. Free of that bias too, with every row in
  use, for about 2.2 times the time in three folds. Its machines saw fewer rows than the final one, and their margins
  are pooled as if they were one machine's. Platt's choice, and the default.

Rows that are near copies of each other (frames of a recording) must stay together: give their ``groups``.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict, train_test_split

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags

Method = Literal["training", "holdout", "kfold"]
Rows = NDArray[np.intp]


def margins_for(
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
) -> tuple[Array, Flags]:
    """Margins (m,) and whether each is of the positive class (m,), in the order of the rows; see ``heldout_rows``."""
    rows, margins = heldout_rows(
        estimator, X, y, method=method, folds=folds, share=share, seed=seed, weights=weights, groups=groups
    )
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
) -> tuple[Rows, Array]:
    """Rows (m,) of X, rising, and the margins (m,) that clones of ``estimator`` give them, itself left as it is.

    ``estimator`` is any binary scikit-learn classifier with ``decision_function``. X is (n, d), of any type it takes.
    y (n,) has two labels; the later in sorted order is the positive class. m is n, but for ``method`` "holdout" about
    n ``share``, 0 < share < 1. ``folds`` >= 2 are for "kfold". Both divide each class in like shares, at random by
    ``seed``. ``weights`` (n,) are the machine's ``sample_weight``. Rows alike in ``groups`` (n,) share a fold.

    Raises FitError for labels that are not two, a method unknown, an estimator without ``decision_function``, a class
    with fewer rows than folds or too few to be on both sides of a hold-out or in two groups, and groups with another
    method than kfold.
    """
    labels = np.asarray(y)
    _check(estimator, labels, method, grouped=groups is not None)
    extra = {} if weights is None else {"sample_weight": np.asarray(weights, dtype=np.float64)}
    if method == "training":
        machine = clone(estimator).fit(X, labels, **extra)
        return np.arange(len(labels)), _margins(machine, X)
    if method == "holdout":
        return _holdout(estimator, X, labels, extra, share, seed)
    least = int(np.unique_counts(labels).counts.min())
    if not 2 <= folds <= least:
        raise FitError(f"folds: from 2 to the rows of the smaller class, {least}, expected, got {folds}")
    splitter = (StratifiedKFold if groups is None else StratifiedGroupKFold)(folds, shuffle=True, random_state=seed)
    splits = list(splitter.split(labels, labels, groups))
    if any(len(np.unique(labels[train])) < 2 for train, _ in splits):
        raise FitError(f"groups: rows of both classes outside every one of the {folds} folds expected")
    margins = cross_val_predict(estimator, X, labels, cv=splits, method="decision_function", params=extra)
    return np.arange(len(labels)), np.asarray(margins, dtype=np.float64)


def _holdout(
    estimator: Any, X: Any, labels: NDArray[Any], extra: dict[str, Array], share: float, seed: int
) -> tuple[Rows, Array]:
    rows = np.arange(len(labels))
    try:
        train, held, train_X, held_X = train_test_split(
            rows, X, test_size=float(share), stratify=labels, random_state=seed
        )
    except ValueError as error:
        raise FitError(f"holdout: cannot hold out a share of {share} of {len(rows)} rows: {error}") from None
    if len(np.unique(labels[train])) < 2 or len(np.unique(labels[held])) < 2:
        raise FitError(
            f"holdout: rows of both classes on both sides expected; share {share} of {len(rows)} rows gives none"
        )
    machine = clone(estimator).fit(train_X, labels[train], **{name: value[train] for name, value in extra.items()})
    order = np.argsort(held)
    return held[order], _margins(machine, held_X)[order]


def _margins(machine: Any, X: Any) -> Array:
    return np.asarray(machine.decision_function(X), dtype=np.float64)


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
