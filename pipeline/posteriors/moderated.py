"""Moderated outputs: posteriors of a support vector machine averaged over the uncertainty of its weights.

After Kwok 1999 (Moderating the outputs of support vector machine classifiers), with MacKay's evidence framework: the
machine's objective is the negative log of a posterior over its weights, approximated by a normal distribution around
the solution, and a row's posterior is the mean over that distribution. Where training rows are sparse the margin is
uncertain, and the posterior moves towards one half; a function of only the margin cannot do this.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular
from scipy.special import expit
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.errors import FitError
from pipeline.posteriors.base import Array
from pipeline.posteriors.binary import AroundSVC, Kernel, two_classes
from pipeline.posteriors.settings import check_settings

# Rows with a curvature below this share of the largest are ignored.
NEGLIGIBLE = 1e-12
NODES = 64  # of the Gauss-Hermite rule


@dataclass(eq=False, repr=False)
class ModeratedSVC(AroundSVC):
    """Binary ``SVC`` f = h + b whose P(positive | x) is the mean of the likelihood over f ~ N(f(x), s^2(x)).

    With prior N(0, k) over h, the objective |h|^2 / 2 + C sum_i l(1 - y_i f(x_i)), y_i = 1 or -1, is a negative log
    posterior. l is the hinge loss; in place of its second derivative, which is 0 except at the corner, that of
    log(1 + exp(eta z)) / eta is used, which approaches l as ``eta`` grows. With d_i = C l''(1 - y_i f(x_i)) the
    variance of the margin is

        s^2(x) = k(x, x) - k_x' (K + D^-1)^-1 k_x,   D = diag(d),

    and P(positive | f) = exp(-C l(1 - f)) / (exp(-C l(1 - f)) + exp(-C l(1 + f))). The bias is that of the solution;
    the integral is computed by a Gauss-Hermite rule.

    Kernels as in ``KernelLogistic``. ``C`` > 0, ``eta`` > 0; ``gamma`` > 0, 1 / d if None. C and the kernel set the
    scale of the prior, which is not fitted (Kwok's second level of inference).

    Learned: ``classes_``, the later positive; ``machine_``, the fitted ``SVC``; ``X_fit_`` (m, d) and ``curvature_``
    (m,), the rows with a curvature. A fit costs O(m^3), a row O(m^2): suitable for some thousands of rows.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from pipeline.posteriors.moderated import ModeratedSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> near, far = ModeratedSVC().fit(X / X.std(axis=0), y).predict_proba([X[0] / X.std(axis=0), [1e3] * 30])
    >>> bool(near[0] > 0.8), bool(abs(far[0] - 0.5) < 0.2)
    (True, True)
    """

    C: float = 1.0
    kernel: Kernel = "rbf"
    _: KW_ONLY
    degree: int = 2
    gamma: float | None = None
    coef0: float = 1.0
    eta: float = 10.0

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Train on X (n, d) and classes y (n,); raises ValueError as scikit-learn does, FitError for settings."""
        check_settings(self)
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, place, _ = two_classes(y)
        self.gamma_ = 1.0 / X.shape[1] if self.gamma is None else float(self.gamma)
        if not (self.C > 0 and self.gamma_ > 0 and self.eta > 0):
            raise FitError(f"C, gamma and eta above 0 expected, got {self.C}, {self.gamma_} and {self.eta}")
        kernel = {"degree": self.degree, "gamma": self.gamma_, "coef0": self.coef0}
        self.machine_ = SVC(C=self.C, kernel=self.kernel, **kernel).fit(X, place)
        slack = 1.0 - (2 * place - 1) * self.machine_.decision_function(X)
        curvature = self.C * self.eta * expit(self.eta * slack) * expit(-self.eta * slack)
        used = curvature > NEGLIGIBLE * curvature.max()
        self.X_fit_, self.curvature_ = X[used], curvature[used]
        root = np.sqrt(self.curvature_)
        self._factor = cholesky(np.eye(len(root)) + root[:, None] * self._kernel(self.X_fit_) * root, lower=True)
        return self

    def margin_variance(self, X: Any) -> Array:
        """Return the variance (n,) of the margin of each row of X (n, d)."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        across = np.sqrt(self.curvature_)[:, None] * self._kernel(self.X_fit_, rows)
        explained = np.asarray((solve_triangular(self._factor, across, lower=True) ** 2).sum(axis=0))
        return np.asarray(np.maximum(self._squares(rows) - explained, 0.0))

    def predict_proba(self, X: Any) -> Array:
        """Return the posteriors (n, 2) of ``classes_`` for the rows of X (n, d)."""
        margins, spread = self.decision_function(X), np.sqrt(self.margin_variance(X))
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        likely = self.likelihood(margins[:, None] + spread[:, None] * nodes)
        positive = likely @ (weights / weights.sum())
        return np.column_stack([1.0 - positive, positive])

    def likelihood(self, margins: ArrayLike) -> Array:
        """Return P(positive | f) of ``margins``, any shape: what ``predict_proba`` averages."""
        f = np.asarray(margins, dtype=np.float64)
        return np.asarray(expit(self.C * (np.maximum(1.0 + f, 0.0) - np.maximum(1.0 - f, 0.0))))
