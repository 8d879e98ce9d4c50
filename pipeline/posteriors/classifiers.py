"""Scikit-learn classifiers: binary machines, a posterior of the margins of each, and a rule that couples these.

A row of X corresponds to a frame in ``coupling``. Two classes need only one machine, and every rule returns its
posterior.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import Any, Literal, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import SVC, OneClassSVM
from sklearn.utils import check_random_state, gen_batches, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from pipeline.errors import FitError
from pipeline.machines.margins import Margins
from pipeline.posteriors.base import Array, Flags, MarginPosterior, checked_weights
from pipeline.posteriors.coupling import poao, poar, rpoao
from pipeline.posteriors.estimators import make_posterior
from pipeline.posteriors.heldout import AnyPosterior, Method, OneClassMachine, clipped_log_odds, joined, train_machine
from pipeline.posteriors.pairwise_coupling import MIN_POSTERIOR, hastie_tibshirani, pkpd, wu_lin_weng
from pipeline.posteriors.settings import check_base, check_settings
from pipeline.posteriors.sigmoid import FixedSigmoid, probability

Coupling = Literal["poao", "rpoao", "hastie_tibshirani", "pkpd", "wu_lin_weng"]

CLASSICS = {"hastie_tibshirani": hastie_tibshirani, "pkpd": pkpd, "wu_lin_weng": wu_lin_weng}

# The rules receive log-odds in place of margins; slope 1 leaves these unchanged.
LOG_ODDS = FixedSigmoid()

# Pair posteriors held at once, 8 bytes each; the rules allocate a few arrays of this size.
MAX_PAIRS = 2_000_000


@dataclass(eq=False, repr=False)
class PosteriorClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of both classifiers; subclasses define the machines and the coupling of their log-odds."""

    estimator: Any = None
    _: KW_ONLY
    posterior: str | AnyPosterior = "newton"
    margins: Method = "kfold"
    folds: int = 3
    share: float = 0.3
    n_jobs: int | None = None
    random_state: Any = None

    @property
    def estimators_(self) -> list[Any]:
        """Return the fitted machines: of each class against the rest, or of each pair."""
        return [machine for machine, _ in self._coupled]

    @property
    def posteriors_(self) -> list[AnyPosterior]:
        """Return the fitted posteriors of ``estimators_``."""
        return [posterior for _, posterior in self._coupled]

    @property
    def _coupled(self) -> list[tuple[Any, AnyPosterior]]:
        return self._trained

    @abstractmethod
    def _tasks(self, y: NDArray[np.intp]) -> list[tuple[Any, Flags, Flags]]:
        """Return every machine's estimator and masks (n,) of its training rows and of its positive rows."""

    @abstractmethod
    def _log_posteriors(self, X: Any) -> Array:
        """Return log posteriors (n, N) of rows X (n, d)."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train every machine, and fit its posterior.

        Parameters
        ----------
        X : array or sparse matrix, shape (n, d)
            Rows of features.
        y : array, shape (n,)
            Classes, two or more, numbers or strings.
        sample_weight : array, shape (n,), optional
            At least 0, if the base takes weights; a weight of 2 is the same as giving the row twice.

        Returns
        -------
        self

        Raises
        ------
        FitError
            For settings out of range, fewer than two classes, weights that a base does not take, and trials that the
            posterior refuses. It is a ValueError, which scikit-learn raises for invalid arrays.
        """
        self._check_settings()
        rows, places, weights = self._rows(X, y, sample_weight)
        posterior = self.posterior
        if isinstance(posterior, str):
            posterior = FixedSigmoid() if posterior == "fixed" else make_posterior(posterior)
        elif not isinstance(posterior, MarginPosterior | FixedSigmoid):
            raise FitError(f"posterior: a kind or an estimator of margins expected, got {posterior!r}")
        seed = self._seed()
        settings = {"method": self.margins, "folds": self.folds, "share": self.share, "seed": seed}
        self._trained: list[tuple[Any, AnyPosterior]] = Parallel(n_jobs=self.n_jobs)(
            delayed(train_machine)(
                estimator,
                posterior,
                rows[np.flatnonzero(used)],
                positive[used],
                None if weights is None else weights[used],
                **settings,
            )
            for estimator, used, positive in self._tasks(places)
        )
        return self

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return log posteriors (n, N) of ``classes_`` for X (n, d), natural logs.

        Raises scikit-learn's NotFittedError before ``fit``, and ValueError for rows unlike those given to it.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, **self._accepted())
        block = max(1, MAX_PAIRS // len(self.classes_) ** 2)
        return np.concatenate([self._log_posteriors(rows[part]) for part in gen_batches(rows.shape[0], block)])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return posteriors (n, N) of ``classes_`` for X (n, d); rows sum to 1. Raises as ``predict_log_proba``."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class (n,) of the largest posterior for X (n, d); among equals, the first in ``classes_``."""
        largest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[largest])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trained")

    def __sklearn_tags__(self) -> Any:
        tags, base = super().__sklearn_tags__(), get_tags(self._base())
        tags.input_tags.sparse = base.input_tags.sparse
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        return tags

    def _seed(self) -> int:
        try:
            return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        except ValueError as error:
            raise FitError(f"random_state: {error}") from None

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
        check_settings(self)
        check_base("estimator", self.estimator)
        if self.folds < 2 or not 0.0 < self.share < 1.0:
            raise FitError(f"folds of 2 or more and a share in (0, 1) expected, got {self.folds} and {self.share}")

    def _rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray[np.intp], Array | None]:
        """Set ``classes_``; return the training rows, their class numbers in it, and their weights."""
        values, labels = validate_data(self, X, y, **self._accepted())
        check_classification_targets(labels)
        weights = checked_weights(sample_weight, len(labels))
        without = [type(base).__name__ for base in self._bases() if not has_fit_parameter(base, "sample_weight")]
        if without and sample_weight is not None:
            raise FitError(f"sample_weight: {' and '.join(without)} takes none")
        kept = np.flatnonzero(weights > 0)
        self.classes_, places = np.unique(labels[kept], return_inverse=True)
        if len(self.classes_) < 2:
            raise FitError(
                f"classes: rows of two or more needed, got {len(self.classes_)} class with a sample_weight above zero"
            )
        return (values, places, None) if without else joined(values[kept], places, weights[kept])


class OneVsRestPosteriorClassifier(PosteriorClassifier):
    """P(class i | x) = p_i / sum over j of p_j: one machine per class against the rest, coupled by ``coupling.poar``.

    Source: Xin, Wu and Pan 2002, eq. 12, where p_i = s(f_i); here p_i is any posterior of the margin f_i.

    If the base takes weights, equal rows of a class are joined into one with their summed weight (``joined``).
    Learned: ``classes_`` (N,); ``estimators_`` and ``posteriors_``, one per class, or only one for two classes,
    positive for the later class.

    Eq. 12 only normalises the p_i: if all are small (a row unlike any class), the largest may still come close to 1.
    Training costs N machines on all n rows; with many classes and rows ``PairwisePosteriorClassifier`` is cheaper.

    Parameters
    ----------
    estimator : classifier with ``decision_function``, optional
        An RBF ``SVC`` if None.
    posterior : str or estimator
        A kind in ``estimators.POSTERIORS``, "fixed" for the paper's, or an estimator, copied for every machine.
    margins, folds, share
        Margins for fitting the posterior, see ``heldout``; the machine is trained on all rows. A class with fewer rows
        than ``folds`` gets fewer folds, a class with a single row training margins.
    n_jobs : int, optional
        Machines trained in parallel, by joblib.
    random_state : int, optional
        Seed of the splits.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> from pipeline import OneVsRestPosteriorClassifier
    >>> OneVsRestPosteriorClassifier(random_state=0).fit(X, y).predict_proba(X[:1]).argmax()
    np.int64(0)
    """

    def _tasks(self, y: NDArray[np.intp]) -> list[tuple[Any, Flags, Flags]]:
        classes = range(len(self.classes_)) if len(self.classes_) > 2 else (1,)
        return [(self._base(), np.full(len(y), True), y == own) for own in classes]

    def _log_posteriors(self, X: Any) -> Array:
        log_odds = np.stack([clipped_log_odds(*trained, X) for trained in self._trained], axis=1)
        if len(self._trained) == 1:
            log_odds = np.concatenate([-log_odds, log_odds], axis=1)
        return np.asarray(poar(Margins(np.arange(len(self.classes_)), one_vs_rest=log_odds), LOG_ODDS))


@dataclass(eq=False, repr=False)
class PairwisePosteriorClassifier(PosteriorClassifier):
    """P(class i | x) from r_ij, the posteriors of one machine for every two classes, by a ``coupling`` rule.

    Learned: ``classes_`` (N,); ``pairs_``, the class numbers (i, j) of each pair, i < j; ``estimators_`` and
    ``posteriors_`` in the same order, positive for class i; ``one_class_estimators_`` and ``one_class_posteriors_``.

    For rows of neither class i nor j, r_ij is extrapolated: "rpoao" and the three classic rules are two remedies.
    Unsuitable for classes of a handful of rows. Training costs N (N - 1) / 2 machines, each on the rows of two classes.

    Parameters
    ----------
    estimator, posterior, margins, folds, share, n_jobs, random_state
        As ``OneVsRestPosteriorClassifier``.
    coupling : str
        Rule that makes posteriors of the N classes from the r_ij. "poao": sum over j of r_ij, normalised (Xin, Wu and
        Pan 2002, eq. 13). No class gets more than 2 / N: useful for ranking, not as a probability. "rpoao": the same
        with r_ij (q_i + q_j), where q_i is the posterior of a one-class machine (eqs. 14 to 16). "hastie_tibshirani",
        "pkpd", "wu_lin_weng": see ``pairwise_coupling``.
    one_class : one-class machine, optional
        For "rpoao"; ``OneClassSVM(nu=0.1)`` if None. Its posterior is fitted to held-out margins of the class's own
        rows and to margins of all other rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pipeline import PairwisePosteriorClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> PairwisePosteriorClassifier(random_state=0).fit(X, y).predict_proba(X[60:61]).argmax()
    np.int64(1)
    """

    _: KW_ONLY
    coupling: Coupling = "wu_lin_weng"
    one_class: Any = None

    @property
    def pairs_(self) -> list[tuple[int, int]]:
        """Return the two class numbers, in ``classes_``, of each pair machine."""
        return list(combinations(range(len(self.classes_)), 2))

    @property
    def _coupled(self) -> list[tuple[Any, AnyPosterior]]:
        return self._trained[: len(self.pairs_)]

    @property
    def one_class_estimators_(self) -> list[Any]:
        """Return the fitted one-class machines, one per class; only "rpoao" has any."""
        return [machine.estimator_ for machine, _ in self._trained[len(self.pairs_) :]]

    @property
    def one_class_posteriors_(self) -> list[AnyPosterior]:
        """Return the fitted posteriors of the one-class machines."""
        return [posterior for _, posterior in self._trained[len(self.pairs_) :]]

    def _bases(self) -> tuple[Any, ...]:
        one_class = OneClassSVM(nu=0.1) if self.one_class is None else self.one_class
        return (self._base(), one_class) if self.coupling == "rpoao" else (self._base(),)

    def _check_settings(self) -> None:
        super()._check_settings()
        check_base("one_class", self.one_class)

    def _tasks(self, y: NDArray[np.intp]) -> list[tuple[Any, Flags, Flags]]:
        base, *one_class = self._bases()
        tasks = [(base, (y == i) | (y == j), y == i) for i, j in self.pairs_]
        for own in one_class:
            tasks += [(OneClassMachine(own), np.full(len(y), True), y == i) for i in range(len(self.classes_))]
        return tasks

    def _log_posteriors(self, X: Any) -> Array:
        N, log_odds = len(self.classes_), [clipped_log_odds(*trained, X) for trained in self._trained]
        pair = np.zeros((X.shape[0], N, N))
        for (i, j), values in zip(self.pairs_, log_odds, strict=False):
            pair[:, i, j], pair[:, j, i] = values, -values
        if self.coupling in CLASSICS:
            p = CLASSICS[self.coupling](probability(pair))
            return np.asarray(np.log(np.maximum(p, MIN_POSTERIOR)))
        if self.coupling == "poao":
            return np.asarray(poao(Margins(np.arange(N), pair=pair), LOG_ODDS))
        one_class = np.stack(log_odds[len(self.pairs_) :], axis=1)
        return np.asarray(rpoao(Margins(np.arange(N), pair=pair, one_class=one_class), LOG_ODDS))
