"""Kernel logistic regression: a kernel machine trained by regularised likelihood, whose margins are log-odds.

Platt 1999 compares it with the support vector machine and its sigmoid (eqs. 4 and 5, after Wahba). scikit-learn's
``LogisticRegression`` does the fit, on explicit features of the kernel or on those spanned by the kernel matrix.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import eigh
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.errors import FitError
from pipeline.posteriors.base import Array
from pipeline.posteriors.binary import BinaryClassifier, Kernel, two_classes
from pipeline.posteriors.settings import check_settings

# Up to this many rows, the kernel matrix of a quadratic kernel is faster than explicit features.
GRAM_ROWS = 3000
# Up to this many explicit features, scikit-learn's Newton solver is fast.
NEWTON_FEATURES = 500


@dataclass(eq=False, repr=False)
class KernelLogistic(BinaryClassifier):
    """Binary classifier f = h + b that minimises C sum_i w_i log(1 + exp(-y_i f(x_i))) + |h|^2 / 2, y_i = 1 or -1.

    Source: Platt 1999, eqs. 4 and 5; h is in the kernel's space and the bias b is free. C multiplies the sum of losses,
    as in scikit-learn's ``SVC`` and ``LogisticRegression``. P(positive | x) = s(f(x)), the second of ``classes_`` being
    positive: ``decision_function`` returns log-odds and needs no sigmoid.

    Kernels: "linear" x.z; "poly" (gamma x.z + coef0)^degree; "rbf" exp(-gamma |x - z|^2). X (n, d) is dense or
    sparse.

    It is solved in explicit features of the kernel if these are few: the d features of a linear kernel, and, for a
    quadratic kernel (degree 2, coef0 >= 0) over more than 3000 rows of only 0 and 1, the d (d + 1) / 2 features of

        (g x.z + c)^2 = (g^2 + 2 g c) sum_i x_i z_i + 2 g^2 sum_{i<j} x_i x_j z_i z_j + c^2,

    where x_i^2 = x_i, and c^2 has no effect since the bias is free. Otherwise the features are the rows of V sqrt(L),
    with the kernel matrix K = V L V', which give the same minimum. This takes a few n x n matrices and O(n^3) time per
    iteration, suitable for at most some thousands of rows, and every training row has a coefficient, so that machines
    are large.

    ``C`` > 0; ``gamma`` > 0, 1 / d if None; ``tol`` and ``max_iter`` are ``LogisticRegression``'s.

    Learned: ``classes_``, ``intercept_``, ``n_iter_``; ``explicit_``, if so ``coef_`` (features,), else ``dual_coef_``
    (n,) and ``X_fit_``.
    """

    C: float = 1.0
    kernel: Kernel = "linear"
    _: KW_ONLY
    degree: int = 2
    gamma: float | None = None
    coef0: float = 1.0
    tol: float = 1e-8
    max_iter: int = 200

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit by Newton's method, or by L-BFGS where there are many explicit features.

        Parameters
        ----------
        X : array or sparse matrix, shape (n, d)
            Rows of features.
        y : array, shape (n,)
            Two classes, the later in sorted order being positive.
        sample_weight : array, shape (n,), optional
            At least 0; a weight of 2 is the same as giving the row twice.

        Returns
        -------
        self

        Raises
        ------
        FitError
            For settings out of range, and unless there are two classes with a weight above 0.
        ValueError
            From scikit-learn, for invalid data.
        """
        check_settings(self)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        self.classes_, place, weights = two_classes(y, sample_weight)
        self.gamma_ = 1.0 / X.shape[1] if self.gamma is None else float(self.gamma)
        if not self.C > 0 or not self.gamma_ > 0:
            raise FitError(f"C and gamma above 0 expected, got {self.C} and {self.gamma_}")
        quadratic = self.kernel == "poly" and self.degree == 2 and self.coef0 >= 0 and X.shape[0] > GRAM_ROWS
        self.explicit_ = self.kernel == "linear" or (quadratic and _zeros_and_ones(X))
        if self.explicit_:
            features = self._features(X)
            self.coef_ = self._solve(features, place, weights, newton=features.shape[1] <= NEWTON_FEATURES)
            return self
        self.X_fit_ = X
        values, vectors = eigh(self._kernel(X, X))
        spanned = values > len(values) * np.finfo(np.float64).eps * values[-1]
        root = np.sqrt(values[spanned])
        # f = K a + b = V sqrt(L) c + b, so that a = V c / sqrt(L).
        coef = self._solve(vectors[:, spanned] * root, place, weights, newton=True)
        self.dual_coef_ = vectors[:, spanned] @ (coef / root)
        return self

    def _solve(self, features: Any, place: NDArray[np.intp], weights: Array, *, newton: bool) -> Array:
        """Return the coefficients of ``features``; sets ``intercept_`` and ``n_iter_``."""
        machine = LogisticRegression(
            C=self.C,
            solver="newton-cholesky" if newton else "lbfgs",
            tol=self.tol,
            max_iter=self.max_iter if newton else 100 * self.max_iter,
        ).fit(features, place, weights)
        self.intercept_, self.n_iter_ = float(machine.intercept_[0]), int(machine.n_iter_[0])
        return np.asarray(machine.coef_[0])

    def _features(self, X: Any) -> Any:
        """Return explicit features of rows X: X itself, or its columns and their products, scaled to the kernel."""
        if self.kernel == "linear":
            return X
        X = sparse.csr_matrix(X)
        pairs = PolynomialFeatures(2, interaction_only=True, include_bias=False).fit_transform(X)
        scales = np.full(pairs.shape[1], np.sqrt(2.0) * self.gamma_)
        scales[: X.shape[1]] = np.sqrt(self.gamma_ * (self.gamma_ + 2.0 * self.coef0))
        return pairs @ sparse.diags(scales)

    def _kernel(self, X: Any, Z: Any) -> Array:
        settings = {"gamma": self.gamma_, "degree": self.degree, "coef0": self.coef0}
        return np.asarray(pairwise_kernels(X, Z, metric=self.kernel, filter_params=True, **settings))

    def decision_function(self, X: Any) -> Array:
        """Return log-odds (m,) of the second class for rows X (m, d).

        Raises FitError for values other than 0 and 1 if ``fit`` had only these and used their products as features.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        if self.explicit_:
            if self.kernel == "poly" and not _zeros_and_ones(X):
                raise FitError("X: features of 0 and 1 expected, as in fit, got others")
            return np.asarray(self._features(X) @ self.coef_ + self.intercept_)
        return np.asarray(self._kernel(X, self.X_fit_) @ self.dual_coef_ + self.intercept_)

    def predict_proba(self, X: Any) -> Array:
        """Return probabilities (m, 2) of both ``classes_`` for rows X (m, d)."""
        log_odds = self.decision_function(X)
        return np.stack([expit(-log_odds), expit(log_odds)], axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _zeros_and_ones(X: Any) -> bool:
    values = X.data if sparse.issparse(X) else X
    return bool(np.isin(values, (0.0, 1.0)).all())
