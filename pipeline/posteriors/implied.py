"""Implied posteriors: the share of positive predictions in an ensemble of machines trained at many class weightings.

A machine trained with weight w on the positive class and 1 - w on the negative class has its decision surface where the
posterior, at the priors of the data, is 1 - w (Nalbantov and Ivanov, Tutorial on implied posterior probability for
SVMs, 2020, eqs. 9-12). Machines at the weights of a uniform grid bracket the posterior of any point; where surfaces
cross, the mean of the machines' predictions decides (eq. 13).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from joblib import Parallel
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, checked
from pipeline.posteriors.binary import BinaryClassifier, two_classes
from pipeline.posteriors.reweighted import Ensemble, ensemble_margins, train
from pipeline.posteriors.settings import check_base, check_settings

Weighting = Literal["equal_c", "fixed_total", "equal_n"]


def isotonic_on(posterior: ArrayLike, positive: ArrayLike) -> Array:
    """Return the isotonic regression (n,) of the classes ``positive`` (n,) on ``posterior`` (n,) for n trials.

    ``posterior`` is any score in [0, 1]; ``positive`` is 1 or True for positives, 0, -1 or False for the rest. Raises
    FitError for anything else.
    """
    p, flags, _ = checked(posterior, positive)
    if not p.size or p.min() < 0 or p.max() > 1:
        got = f"{p.min():g} to {p.max():g}" if p.size else "none"
        raise FitError(f"isotonic regression: at least one posterior, all in [0, 1], expected, got {got}")
    return np.asarray(IsotonicRegression().fit(p, flags.astype(np.float64)).predict(p))


def calibration_score(posterior: ArrayLike, positive: ArrayLike) -> float:
    """Return the mean |posterior - isotonic regression of the classes on it| over trials (section 5 of the paper).

    Arguments and errors as for ``isotonic_on``. The regression is fitted to the same trials. True posteriors of few
    trials therefore do not score 0, but a constant, the share of positives, does.

    Examples
    --------
    >>> from pipeline.posteriors.implied import calibration_score
    >>> round(calibration_score([0.2, 0.2, 0.9, 0.9], [0, 0, 1, 1]), 2)
    0.15
    """
    p = np.asarray(posterior, dtype=np.float64)
    return float(np.abs(p - isotonic_on(p, positive)).mean())


def class_weights(posteriors: Array, counts: Array, weighting: Weighting) -> Array:
    """Return weights (L, 2) of a negative and a positive trial for surfaces at ``posteriors`` (L,), each in (0, 1).

    ``counts`` (2,) are the numbers of trials of both classes. See ``ImpliedPosterior`` for ``weighting``.
    """
    share = np.stack([posteriors, 1.0 - posteriors], axis=1)
    if weighting == "equal_c":
        return np.asarray(2.0 * share)
    if weighting == "equal_n":
        return np.asarray(counts.sum() * share / counts)
    return np.asarray(counts.sum() * share / (share @ counts)[:, None])


@dataclass(eq=False, repr=False)
class ImpliedPosterior(BinaryClassifier):
    """Binary classifier whose posterior is the share of reweighted copies of ``estimator`` that predict positive.

    The k-th of L machines gives a positive trial the weight 2 (1 - p) and a negative one 2 p with p = k / (L + 1); its
    surface is where the posterior is p (eqs. 8-12 with equal C). Two fictitious machines, at p = 0 and 1, predict
    positive and negative everywhere. A point on a surface counts as half. The posterior (eq. 13) is therefore
    (1 + number of positive answers) / (L + 2), from 1 / (L + 2) to (L + 1) / (L + 2): 3 of 9 give 4 / 11.

    Learned: ``classes_`` (2,); ``posteriors_`` (L,) of the surfaces, ascending; ``class_weights_`` (L, 2), negative
    first.

    Assumes that the estimator's class of functions can follow the posterior; the result is not necessarily calibrated
    (``CalibratedClassifierCV(ImpliedPosterior(...), method="isotonic", ensemble=False)`` adds isotonic regression on
    held-out folds). Points beyond all surfaces get equal posteriors. Estimators without a penalty only reproduce their
    own posterior.

    Parameters
    ----------
    estimator : classifier, optional
        Takes ``sample_weight`` in ``fit``, or has a ``priors`` or ``class_weight`` setting; an RBF ``SVC`` if None. Its
        own class weights remain as factors. Put preprocessing before this classifier, not into ``estimator``.
    machines : int
        Number of machines, L.
    weighting : str
        Effective number of trials for unequal classes. "equal_c" (the paper's): as for equal classes, so that the
        middle machine is ``estimator`` itself; the total weight, and with it the strength of the penalty, changes with
        p. "fixed_total": both weights of a machine are scaled to a constant total, which without a penalty gives the
        same surfaces. "equal_n": the middle machine has equal effective numbers, and posteriors are those at equal
        priors.
    n_jobs : int, optional
        Threads; joblib's ``parallel_config`` can choose another backend.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pipeline import ImpliedPosterior
    >>> X, y = load_iris(return_X_y=True)
    >>> implied = ImpliedPosterior(machines=9).fit(X[:100], y[:100])
    >>> implied.machine_answers(X[:1]).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    >>> implied.predict_proba(X[:1]).round(2).tolist()  # 10 / 11 and 1 / 11
    [[0.91, 0.09]]
    """

    estimator: Any = None
    _: KW_ONLY
    machines: int = 99
    weighting: Weighting = "equal_c"
    n_jobs: int | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the machines.

        Parameters
        ----------
        X : array, shape (n, d)
            Rows of features.
        y : array, shape (n,)
            Two classes, the later in sorted order being positive.
        sample_weight : array, shape (n,), optional
            At least 0; a weight of 2 is the same as giving the trial twice.

        Returns
        -------
        self

        Raises
        ------
        FitError
            For settings out of range, anything but two classes, and an estimator that cannot be reweighted. It is a
            ValueError, which scikit-learn raises for invalid arrays.
        """
        check_settings(self)
        check_base("estimator", self.estimator)
        if self.machines < 1:
            raise FitError(f"machines: at least 1 expected, got {self.machines}")
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        self.classes_, positive, weight = two_classes(labels, sample_weight)
        self.posteriors_ = np.arange(1, self.machines + 1) / (self.machines + 1)
        counts = np.asarray(np.bincount(positive, weights=weight), dtype=np.float64)
        self.class_weights_ = class_weights(self.posteriors_, counts, self.weighting)
        estimator = SVC() if self.estimator is None else self.estimator
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads")
        used = weight > 0
        self.ensemble_: Ensemble = train(
            estimator, rows[used], labels[used], weight[used], self.class_weights_, parallel
        )
        return self

    def machine_margins(self, X: ArrayLike) -> Array:
        """Return margins (n, L) of all machines at ``X`` (n, d), in the order of ``posteriors_``."""
        check_is_fitted(self)
        return ensemble_margins(self.ensemble_, np.asarray(validate_data(self, X, reset=False, dtype=np.float64)))

    def machine_answers(self, X: ArrayLike) -> Array:
        """Return every machine's prediction (n, L) for ``X`` (n, d): 1 positive, 0 negative, 0.5 on its surface."""
        return np.asarray((1.0 + np.sign(self.machine_margins(X))) / 2.0)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return posteriors (n, 2) of ``classes_`` at ``X`` (n, d), eq. 13; rows sum to 1."""
        share = (1.0 + self.machine_answers(X).sum(axis=1)) / (len(self.posteriors_) + 2)
        return np.stack([1.0 - share, share], axis=1)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return log-odds (n,) of the positive class at ``X`` (n, d), in nats; 0 if predictions are split evenly."""
        yes = self.machine_answers(X).sum(axis=1)
        return np.asarray(np.log1p(yes) - np.log1p(len(self.posteriors_) - yes))
