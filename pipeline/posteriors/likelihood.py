"""A kernel machine trained by regularised likelihood: kernel logistic regression, whose margins are log-odds.

What Platt 1999 compares the support vector machine and its sigmoid with (eqs. 4 and 5, after Wahba). Kernels with few
enough explicit features are left to scikit-learn's logistic regression; the others are solved by Newton's method on
the kernel matrix (iteratively reweighted least squares), here.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, log_expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

Array = NDArray[np.float64]
Kernel = Literal["linear", "poly", "rbf", "precomputed"]
Solver = Literal["auto", "features", "gram"]

# Up to so many rows the kernel matrix of a quadratic kernel is the quicker way.
GRAM_ROWS = 3000
# Up to so many features scikit-learn's Newton solver, which is the exact one, is quick.
CHOLESKY_FEATURES = 500
# Armijo's share of the expected decrease, and the shortest step.
SUFFICIENT = 1e-4
LEAST_STEP = 1e-10


class KernelLogistic(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Binary classifier f = h + b that minimises C sum_i w_i log(1 + exp(-y_i f(x_i))) + |h|^2 / 2, y_i = 1 or -1.

    Source: Platt 1999, eqs. 4 and 5; h is in the space of the kernel and the bias b is free. C multiplies the sum of
    losses, as in scikit-learn's ``SVC`` and ``LogisticRegression``. P(positive | x) = s(f(x)), the second of
    ``classes_`` being positive, so ``decision_function`` gives log-odds and needs no sigmoid on top.

    Kernels: "linear" x.z; "poly" (gamma x.z + coef0)^degree; "rbf" exp(-gamma |x - z|^2); "precomputed" takes the
    kernel matrix for X, (n, n) in ``fit`` and (m, n) afterwards. X (n, d) is dense, or sparse but for "precomputed".

    Solvers: "features" works in the explicit features of the kernel, "gram" on its matrix; both have the same minimum.
    Linear kernels have d features. A quadratic kernel (degree 2, coef0 >= 0) over features that are all 0 or 1 has
    d (d + 1) / 2, few of which are 1 in sparse rows: since x_i^2 = x_i,

        (g x.z + c)^2 = (g^2 + 2 g c) sum_i x_i z_i + 2 g^2 sum_{i<j} x_i x_j z_i z_j + c^2,

    and c^2 changes nothing beside a free bias. "auto" takes the features of linear kernels, and of quadratic ones over
    such data with more than 3000 rows.

    Learned: ``classes_``, ``intercept_``; ``coef_`` (features,) or, with "gram", ``dual_coef_`` (n,) and ``X_fit_``;
    ``n_iter_``, Newton steps or the iterations of scikit-learn's solver; ``solver_``, the one taken.

    Assumes that log-odds are well described by the kernel's functions. Do not use it where machines must be small:
    every training row has a coefficient, so that scoring costs a kernel each. "gram" takes memory for a few n x n
    matrices and time of n^3 a step: not for more than some thousands of rows.
    """

    def __init__(
        self,
        C: float = 1.0,
        kernel: Kernel = "linear",
        *,
        degree: int = 2,
        gamma: float | None = None,
        coef0: float = 1.0,
        solver: Solver = "auto",
        tol: float = 1e-8,
        max_iter: int = 200,
    ) -> None:
        """``C`` > 0; ``gamma`` > 0, 1 / d if None; ``tol`` on the slopes at the end, for "gram" as in ``_newton``."""
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from X (n, d), classes y (n,) and weights (n,) >= 0; a weight of 2 is a row given twice.

        Raises ValueError, as scikit-learn has it, for data or settings that cannot be used, and for other than two
        classes with a weight above 0.
        """
        X, y = validate_data(self, X, y, accept_sparse=self._sparse(), dtype=np.float64)
        check_classification_targets(y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_, place = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2 or not all(weights[place == k].sum() > 0 for k in (0, 1)):
            raise ValueError(
                "Only binary classification is supported, and rows of both classes with a weight above 0;"
                f" got {len(self.classes_)} class{'es' if len(self.classes_) != 1 else ''}"
            )
        self.gamma_ = 1.0 / X.shape[1] if self.gamma is None else float(self.gamma)
        self.solver_ = self._solver_for(X)
        if self.solver_ == "features":
            self._fit_features(X, place, weights)
        else:
            self._fit_gram(X, place == 1, weights)
        return self

    def _sparse(self) -> str | bool:
        return False if self.kernel == "precomputed" else "csr"

    def _solver_for(self, X: Any) -> str:
        if self.kernel not in ("linear", "poly", "rbf", "precomputed"):
            raise ValueError(f"kernel: linear, poly, rbf or precomputed expected, got {self.kernel!r}")
        if not self.C > 0 or not self.gamma_ > 0:
            raise ValueError(f"C and gamma above 0 expected, got {self.C} and {self.gamma_}")
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(f"Precomputed matrix must be a square matrix, got {X.shape}")
        quadratic = self.kernel == "poly" and self.degree == 2 and self.coef0 >= 0 and _zeros_and_ones(X)
        if self.solver == "features" and not (quadratic or self.kernel == "linear"):
            raise ValueError("solver features: a linear kernel, or a quadratic one over features of 0 and 1, expected")
        if self.solver != "auto":
            return str(self.solver)
        return "features" if self.kernel == "linear" or (quadratic and X.shape[0] > GRAM_ROWS) else "gram"

    def _fit_features(self, X: Any, place: NDArray[np.intp], weights: Array) -> None:
        features = self._features(X)
        exact = features.shape[1] <= CHOLESKY_FEATURES
        machine = LogisticRegression(
            C=self.C,
            solver="newton-cholesky" if exact else "lbfgs",
            tol=self.tol,
            max_iter=self.max_iter if exact else 100 * self.max_iter,
        ).fit(features, place, weights)
        self.coef_, self.intercept_ = machine.coef_[0], float(machine.intercept_[0])
        self.n_iter_ = int(machine.n_iter_[0])

    def _features(self, X: Any) -> Any:
        """Explicit features of rows X: X itself, or all of X and its pairs, scaled to give the quadratic kernel."""
        if self.kernel == "linear":
            return X
        X = sparse.csr_matrix(X)
        pairs = PolynomialFeatures(2, interaction_only=True, include_bias=False).fit_transform(X)
        scales = np.full(pairs.shape[1], np.sqrt(2.0) * self.gamma_)
        scales[: X.shape[1]] = np.sqrt(self.gamma_ * (self.gamma_ + 2.0 * self.coef0))
        return pairs @ sparse.diags(scales)

    def _fit_gram(self, X: Any, positive: NDArray[np.bool_], weights: Array) -> None:
        self.X_fit_ = None if self.kernel == "precomputed" else X
        K = np.asarray(X) if self.kernel == "precomputed" else self._kernel(X, X)
        found = _newton(K, positive, self.C * weights, self.tol, self.max_iter)
        self.dual_coef_, self.intercept_, self.n_iter_ = found

    def _kernel(self, X: Any, Z: Any) -> Array:
        settings = {"gamma": self.gamma_, "degree": self.degree, "coef0": self.coef0}
        return np.asarray(pairwise_kernels(X, Z, metric=self.kernel, filter_params=True, **settings))

    def decision_function(self, X: Any) -> Array:
        """Log-odds (m,) of the second class for rows X (m, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=self._sparse(), dtype=np.float64, reset=False)
        if self.solver_ == "features":
            if self.kernel == "poly" and not _zeros_and_ones(X):
                raise ValueError("this machine was fitted to features of 0 and 1, and others were given")
            return np.asarray(self._features(X) @ self.coef_ + self.intercept_)
        K = X if self.kernel == "precomputed" else self._kernel(X, self.X_fit_)
        return np.asarray(K @ self.dual_coef_ + self.intercept_)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (m, 2) of both ``classes_`` for rows X (m, d)."""
        log_odds = self.decision_function(X)
        return np.stack([expit(-log_odds), expit(log_odds)], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class (m,) with the larger probability for rows X (m, d); the first of them at even odds."""
        check_is_fitted(self)
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know: two classes only, sparse rows unless they are kernels."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _zeros_and_ones(X: Any) -> bool:
    values = X.data if sparse.issparse(X) else X
    return bool(np.isin(values, (0.0, 1.0)).all())


def _newton(K: Array, positive: NDArray[np.bool_], C: Array, tol: float, max_iter: int) -> tuple[Array, float, int]:
    """Coefficients a (n,), bias and steps that minimise sum C log(1 + exp(-y f)) + a'Ka / 2 with f = K a + b.

    ``C`` (n,) is already weighted. At the minimum a = C (t - p) with t = 1 for positives, else 0, and sum a = 0: it
    has been reached when both hold within ``tol`` of the largest of C (t - p). A step that raises the objective is
    halved until it does not; steps too small to change it are the end as well.
    """
    y = np.where(positive, 1.0, -1.0)
    a, f, b = np.zeros(len(y)), np.zeros(len(y)), 0.0

    def objective(a: Array, f: Array, b: float) -> float:
        return float(-C @ log_expit(y * f) + 0.5 * a @ (f - b))

    for steps in range(max_iter):
        slope = C * y * expit(-y * f)
        if max(np.abs(slope - a).max(), abs(slope.sum())) <= tol * np.abs(slope).max():
            return a, b, steps
        to_a, to_b = _newton_target(K, f, slope, C * expit(f) * expit(-f))
        da, db = to_a - a, to_b - b
        df = K @ da + db
        value, fall = objective(a, f, b), float(a @ (df - db) - slope @ df)
        step = 1.0
        while objective(a + step * da, f + step * df, b + step * db) > value + SUFFICIENT * step * fall:
            step /= 2
            if step < LEAST_STEP:
                return a, b, steps
        a, f, b = a + step * da, f + step * df, b + step * db
    return a, b, max_iter


def _newton_target(K: Array, f: Array, slope: Array, curvature: Array) -> tuple[Array, float]:
    """Coefficients (n,) and bias that a whole Newton step from outputs f leads to.

    They solve (I + W K) a = W (f - b) + slope, sum a = 0, with W the curvature; I + sqrt(W) K sqrt(W), which is
    factored, is well conditioned however small W is (Rasmussen and Williams 2006, section 3.4.3).
    """
    root = np.sqrt(curvature)
    system = root[:, None] * K * root
    system[np.diag_indices_from(system)] += 1.0
    right = np.stack([curvature * f + slope, curvature], axis=1)
    solved = right - root[:, None] * cho_solve(cho_factor(system, lower=True), root[:, None] * (K @ right))
    free, per_bias = solved.T
    bias = float(free.sum() / per_bias.sum())
    return np.asarray(free - bias * per_bias), bias
