"""Bases of the scikit-learn classifiers of two classes, and of those around a support vector machine."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, checked_weights

Kernel = Literal["linear", "poly", "rbf"]


class BinaryClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of two ``classes_``; the later in sorted order is positive."""

    classes_: NDArray[Any]

    @abstractmethod
    def decision_function(self, X: Any) -> Array:
        """Return margins or log-odds (n,) of the rows of X (n, d), positive on the side of the positive class."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class (n,) by the sign of ``decision_function`` at X (n, d); 0 gives the first class."""
        positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[positive.astype(np.intp)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class AroundSVC(BinaryClassifier):
    """A classifier from the margins of ``machine_``, a fitted ``SVC`` with a named kernel."""

    machine_: SVC

    def decision_function(self, X: Any) -> Array:
        """Return the machine's margins (n,)."""
        check_is_fitted(self)
        return np.asarray(self.machine_.decision_function(validate_data(self, X, reset=False, dtype=np.float64)))

    def _kernel(self, X: Array, Z: Array | None = None) -> Array:
        """Return the machine's kernel (m, n) between the rows of X (m, d) and Z (n, d), by default X itself."""
        machine = self.machine_
        settings = {"gamma": machine._gamma, "degree": machine.degree, "coef0": machine.coef0}
        return np.asarray(pairwise_kernels(X, Z, metric=machine.kernel, filter_params=True, **settings))

    def _squares(self, X: Array) -> Array:
        """Return k(x, x) (n,) for the rows of X (n, d)."""
        return np.array([self._kernel(row[None])[0, 0] for row in X])


def two_classes(y: ArrayLike, weights: ArrayLike | None = None) -> tuple[NDArray[Any], NDArray[np.intp], Array]:
    """Return the two classes of ``y`` (n,), in order, the class number of each row, and the weights (n,), by default 1.

    Raises FitError unless there are two, with weights above 0, and ValueError, as scikit-learn does, for invalid
    labels.
    """
    check_classification_targets(y)
    classes, place = np.unique(np.asarray(y), return_inverse=True)
    w = checked_weights(weights, len(place))
    weighty = len(np.unique(place[w > 0]))
    if len(classes) != 2 or weighty != 2:
        raise FitError(
            f"Only binary classification is supported; got {len(classes)} class(es), {weighty} with a weight above zero"
        )
    return classes, place, w
