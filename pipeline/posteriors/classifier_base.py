"""What the scikit-learn classifiers of ``classifiers`` share: rows in, machines side by side, log posteriors out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self, get_args

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import SVC
from sklearn.utils import check_random_state, gen_batches, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, MarginPosterior, checked
from pipeline.posteriors.heldout import Method
from pipeline.posteriors.kinds import make_posterior
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.posteriors.trained import AnyPosterior, Rows, TrainedMachine, Training, joined, takes_weights

# Pair posteriors held at once: 8 bytes each, and the rules make a few arrays of that size.
MOST_PAIRS = 2_000_000


class PosteriorClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of both: subclasses say which machines there are and how their log-odds become posteriors."""

    estimator: Any
    posterior: str | AnyPosterior
    margins: Method
    folds: int
    share: float
    n_jobs: int | None
    random_state: Any

    @abstractmethod
    def _tasks(self, training: Training, y: NDArray[np.intp]) -> list[tuple[Training, Flags, Flags]]:
        """Of every machine: how it is trained, the rows (n,) it is trained on, and which rows (n,) are positive."""

    @abstractmethod
    def _log_posteriors(self, X: Any) -> Array:
        """Log posteriors (n, N) of rows X (n, d)."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on X (n, d), dense or sparse, and the classes ``y`` (n,), two or more, numbers or strings.

        ``sample_weight`` (n,) >= 0, if the base takes weights: a weight of 2 is the row given twice. Raises FitError,
        a ValueError, for settings out of range, for fewer than two classes, for weights that a base does not take, and
        as ``Training.fit`` does; ValueError for arrays that scikit-learn refuses.
        """
        self._check_settings()
        rows = self._rows(X, y, sample_weight)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        posterior = _posterior(self.posterior)
        training = Training(self._base(), posterior, self.margins, self.folds, self.share, seed)
        self._trained: list[TrainedMachine] = Parallel(n_jobs=self.n_jobs)(
            delayed(how.fit)(rows.of(used), positive[used]) for how, used, positive in self._tasks(training, rows.y)
        )
        return self

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Log posteriors (n, N) of ``classes_`` for X (n, d), natural logs."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, **self._accepted())
        block = max(1, MOST_PAIRS // len(self.classes_) ** 2)
        return np.concatenate([self._log_posteriors(rows[part]) for part in gen_batches(rows.shape[0], block)])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Posteriors (n, N) of ``classes_`` for X (n, d); rows sum to 1."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classes (n,) of the largest posterior; of equal ones, the first in ``classes_``."""
        largest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[largest])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trained")

    def __sklearn_tags__(self) -> Any:
        tags, base = super().__sklearn_tags__(), get_tags(self._base())
        tags.input_tags.sparse = base.input_tags.sparse
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        return tags

    def _base(self) -> Any:
        return SVC() if self.estimator is None else self.estimator

    def _bases(self) -> tuple[Any, ...]:
        return (self._base(),)

    def _accepted(self) -> dict[str, Any]:
        tags = get_tags(self).input_tags
        return {
            "accept_sparse": "csr" if tags.sparse else False,
            "ensure_all_finite": "allow-nan" if tags.allow_nan else True,
        }

    def _check_settings(self) -> None:
        if self.margins not in get_args(Method):
            raise FitError(f"margins: one of {', '.join(get_args(Method))} expected, got {self.margins!r}")
        if self.folds < 2 or not 0.0 < self.share < 1.0:
            raise FitError(f"folds of 2 or more and a share in (0, 1) expected, got {self.folds} and {self.share}")

    def _rows(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Rows:
        """The rows to train on, classes as places in ``classes_``, which is set."""
        values, labels = validate_data(self, X, y, **self._accepted())
        check_classification_targets(labels)
        _, _, weights = checked(np.zeros(len(labels)), np.zeros(len(labels)), sample_weight, both=False)
        without = [type(base).__name__ for base in self._bases() if not takes_weights(base)]
        if without and sample_weight is not None:
            raise FitError(f"sample_weight: {' and '.join(without)} takes none")
        self.classes_, places = np.unique(labels[weights > 0], return_inverse=True)
        if len(self.classes_) < 2:
            raise FitError(
                f"classes: rows of two or more needed, got {len(self.classes_)} class with a sample_weight above zero"
            )
        y_places = np.zeros(len(labels), dtype=np.intp)
        y_places[weights > 0] = places
        return Rows(values, y_places, None) if without else joined(values, y_places, weights)


def _posterior(posterior: str | AnyPosterior) -> AnyPosterior:
    """The estimator that ``posterior`` names, or is; raises FitError for anything else and as ``make_posterior``."""
    if isinstance(posterior, MarginPosterior | FixedSigmoid):
        return posterior
    if not isinstance(posterior, str):
        raise FitError(f"posterior: a kind or an estimator of margins expected, got {posterior!r}")
    return FixedSigmoid() if posterior == "fixed" else make_posterior(posterior)
