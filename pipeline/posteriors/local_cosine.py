"""Vapnik's posterior P(y = 1 | t, u) of a support vector machine: a cosine series whose coefficients depend on u.

Vapnik 1998, section 11.11, and Platt 1999, eq. 6: t is a row's position across the separating plane, a scaled margin,
and u its position along the plane, in all other directions of the kernel's space. ``CosineExpansion`` averages over u;
this does not.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.svm import SVC
from sklearn.utils.validation import validate_data

from pipeline.errors import FitError
from pipeline.posteriors.base import Array
from pipeline.posteriors.binary import AroundSVC, two_classes
from pipeline.posteriors.heldout import Method, heldout_rows
from pipeline.posteriors.nonparametric import CosineExpansion
from pipeline.posteriors.settings import check_settings

# Squared distances along the plane below this share of the rows' squared lengths are rounding errors, and set to 0.
ROUNDING = 1e-12


@dataclass(eq=False, repr=False)
class LocalCosineSVC(AroundSVC):
    """Binary ``SVC`` with P(positive | t, u) = a_0(u) + sum over n of a_n(u) cos(n t), clipped.

    The coefficients at u are those of ``CosineExpansion`` with training rows weighted by exp(-|u - u_i|^2 / (2 h^2)): a
    linear system for every row to predict, as Platt notes of Vapnik's method. Distances along the plane are

        |u - u'|^2 = |phi(x) - phi(x')|^2 - (g(x) - g(x'))^2 / |w|^2,   g = f - b,

    in the kernel's space, so that any named kernel of ``SVC`` can be used. Vapnik's own a_n(u) minimise a functional
    that neither source states in full; weights by a kernel estimate over u are this project's interpretation.

    Learned: ``classes_``, the later positive; ``machine_``; ``bandwidth_``.

    Costly for many rows: posteriors of m rows take m n kernel values and m systems of ``terms`` + 1 equations.

    Parameters
    ----------
    estimator : SVC, optional
        Left unfitted; ``SVC()`` if None.
    bandwidth : float, optional
        h, above 0; if None, the median of nonzero distances between rows. Infinity gives constant a_n, as in
        ``CosineExpansion``.
    terms, penalty
        As in ``CosineExpansion``.
    margins, folds
        Margins for fitting the cosines, see ``heldout``.
    """

    estimator: Any = None
    _: KW_ONLY
    bandwidth: float | None = None
    terms: int = 8
    penalty: float = 1e-4
    margins: Method = "kfold"
    folds: int = 3

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Train on X (n, d) and classes y (n,); raises ValueError as scikit-learn does.

        Raises FitError for a bandwidth out of range, for rows from which none can be taken, and as ``heldout_rows``.
        """
        check_settings(self)
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, place, _ = two_classes(y)
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise FitError(f"bandwidth: above 0 expected, got {self.bandwidth}")
        machine = SVC() if self.estimator is None else self.estimator
        rows, self._margins = heldout_rows(machine, X, place, method=self.margins, folds=self.folds)
        self.machine_ = clone(machine).fit(X, place)
        self._rows, self._positive = X[rows], place[rows] == 1
        alpha = self.machine_.dual_coef_[0]
        self._norm = math.sqrt(alpha @ self._kernel(self.machine_.support_vectors_) @ alpha)
        self.bandwidth_ = self._median_apart() if self.bandwidth is None else float(self.bandwidth)
        return self

    def _median_apart(self) -> float:
        """Return the median nonzero distance of training rows along the plane; raises FitError if there is none."""
        squares = self._along(self._rows)[np.triu_indices(len(self._rows), 1)]
        if not squares.any():
            raise FitError(
                "bandwidth: all rows are at one place along the plane, and there is no distance to take; give one, as"
                " infinity for cosines that are the same at every place"
            )
        return float(np.sqrt(np.median(squares[squares > 0.0])))

    def _along(self, X: Array) -> Array:
        """Return the squared distances (m, n), along the plane, of the rows of X from the training rows."""
        both = self._squares(X)[:, None] + self._squares(self._rows)
        apart = both - 2.0 * self._kernel(X, self._rows)
        across = [self.machine_.decision_function(rows) / self._norm for rows in (X, self._rows)]
        along = apart - (across[0][:, None] - across[1]) ** 2
        return np.asarray(np.where(along > ROUNDING * both, along, 0.0))

    def predict_proba(self, X: Any) -> Array:
        """Return the posteriors (n, 2) of ``classes_`` for the rows of X (n, d)."""
        margins = self.decision_function(X)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        exponents = self._along(rows) / (2.0 * self.bandwidth_**2)
        weights = np.exp(exponents.min(axis=1, keepdims=True) - exponents)
        positive = np.array([self._at(*row) for row in zip(margins, weights, strict=True)])
        return np.column_stack([1.0 - positive, positive])

    def _at(self, margin: float, weights: Array) -> float:
        """Return P(positive) at one margin, with the training rows' ``weights`` (n,)."""
        classes = [float(weights[side].sum()) for side in (self._positive, ~self._positive)]
        if min(classes) == 0.0:  # all weights of one class underflow
            weights = weights + np.finfo(np.float64).tiny
        local = CosineExpansion(terms=self.terms, penalty=self.penalty)
        return float(local.fit(self._margins, self._positive, weights).probability(margin))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class (n,) of the larger posterior."""
        positive = self.predict_proba(X)[:, 1] > 0.5
        return np.asarray(self.classes_[positive.astype(np.intp)])
