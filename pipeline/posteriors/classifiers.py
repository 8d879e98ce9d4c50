"""Scikit-learn classifiers: binary machines, a posterior of the margins of each, and a rule that couples them.

The rules are those of ``coupling.RULES``, a row of X being a frame. Two classes are one machine, whose posterior is
the answer under every rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import OneClassSVM

from pipeline.errors import FitError
from pipeline.machines.population import Margins
from pipeline.posteriors.base import Array, Flags
from pipeline.posteriors.classifier_base import PosteriorClassifier
from pipeline.posteriors.coupling import RULES
from pipeline.posteriors.heldout import Method
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.posteriors.trained import AnyPosterior, OneClassMachine, TrainedMachine, Training

Coupling = Literal["poao", "rpoao", "hastie_tibshirani", "pkpd", "wu_lin_weng"]

# The machines' own posteriors are applied before a rule sees the margins: log-odds pass it unchanged.
LOG_ODDS = FixedSigmoid()


class OneVsRestPosteriorClassifier(PosteriorClassifier):
    """P(class i | x) = p_i / sum over j of p_j: one machine a class against the rest, coupled by "poar".

    Source: Xin, Wu and Pan 2002, eq. 12, where p_i = s(f_i); here p_i is any posterior of the margin f_i.

    ``estimator``: a classifier with ``decision_function``; an RBF ``SVC`` if None. ``posterior``: a kind in
    ``kinds.POSTERIORS``, "fixed" for the paper's, or an estimator of them, of which every machine fits its own copy.
    ``margins`` it is fitted to, "training", "holdout" with its ``share``, or "kfold" with its ``folds``, as in
    ``heldout``; the machine itself is trained on all rows. A class with fewer rows than ``folds`` gets fewer folds, one
    with a single row, which cannot be held out, training margins.
    ``n_jobs``: machines trained side by side, by joblib. ``random_state`` divides the rows. Where the base takes
    weights, equal rows of a class are trained on as one of their summed weight (``trained.joined``).

    Learned: ``classes_`` (N,); ``estimators_`` and ``posteriors_``, one a class, or, for two classes, one in all,
    positive for the later class.

    Assumes that each p_i is a posterior; eq. 12 then only divides out what they fail to sum to 1. It has no such
    excuse where all p_i are small (a row unlike any class): the largest of them still gets nearly everything. Training
    costs N machines on all n rows: do not use it for many classes and rows with a machine that is not linear in n,
    where ``PairwisePosteriorClassifier`` costs less.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        posterior: str | AnyPosterior = "newton",
        margins: Method = "kfold",
        folds: int = 3,
        share: float = 0.3,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.posterior = posterior
        self.margins = margins
        self.folds = folds
        self.share = share
        self.n_jobs = n_jobs
        self.random_state = random_state

    @property
    def estimators_(self) -> list[Any]:
        """The fitted machines."""
        return [trained.machine for trained in self._trained]

    @property
    def posteriors_(self) -> list[AnyPosterior]:
        """Their fitted posteriors."""
        return [trained.posterior for trained in self._trained]

    def _tasks(self, training: Training, y: NDArray[np.intp]) -> list[tuple[Training, Flags, Flags]]:
        classes = range(len(self.classes_)) if len(self.classes_) > 2 else (1,)
        return [(training, np.full(len(y), True), y == own) for own in classes]

    def _log_posteriors(self, X: Any) -> Array:
        log_odds = np.stack([trained.log_odds(X) for trained in self._trained], axis=1)
        if len(self._trained) == 1:
            log_odds = np.concatenate([-log_odds, log_odds], axis=1)
        everybody = np.arange(len(self.classes_))
        return np.asarray(RULES["poar"].frame(Margins(everybody, one_vs_rest=log_odds), LOG_ODDS))


class PairwisePosteriorClassifier(PosteriorClassifier):
    """P(class i | x) from r_ij, the posteriors of one machine for every two classes, by a ``coupling`` rule.

    - "poao": sum over j of r_ij, normalised (Xin, Wu and Pan 2002, eq. 13). No class gets more than 2 / N: useful for
      its order, not as a probability.
    - "rpoao": the same of r_ij (q_i + q_j), q_i the posterior of a one-class machine (eqs. 14 to 16).
    - "hastie_tibshirani", "pkpd", "wu_lin_weng": see ``classics``.

    ``estimator``, ``posterior``, ``margins``, ``folds``, ``share``, ``n_jobs``, ``random_state``: as for
    ``OneVsRestPosteriorClassifier``. ``one_class``: the one-class machine of "rpoao", ``OneClassSVM(nu=0.1)`` if None;
    its posterior is fitted to its margins of the class's own rows, held out, and of all other rows.

    Learned: ``classes_`` (N,); ``pairs_``, the places (i, j) in it of each pair, i < j; ``estimators_`` and
    ``posteriors_`` in that order, positive for class i; ``one_class_estimators_`` and ``one_class_posteriors_``.

    Assumes that r_ij means something for rows of neither i nor j, which no pair machine has seen: the refinement and
    the classics are two ways to live with it. Do not use it where a class has a handful of rows, each pair's posterior
    being fitted to those of two classes only. N (N - 1) / 2 machines, each on the rows of two classes.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        posterior: str | AnyPosterior = "newton",
        coupling: Coupling = "wu_lin_weng",
        one_class: Any = None,
        margins: Method = "kfold",
        folds: int = 3,
        share: float = 0.3,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.posterior = posterior
        self.coupling = coupling
        self.one_class = one_class
        self.margins = margins
        self.folds = folds
        self.share = share
        self.n_jobs = n_jobs
        self.random_state = random_state

    @property
    def pairs_(self) -> list[tuple[int, int]]:
        """Places in ``classes_`` of the two classes of each pair machine."""
        return list(combinations(range(len(self.classes_)), 2))

    @property
    def estimators_(self) -> list[Any]:
        """The fitted pair machines."""
        return [trained.machine for trained in self._pair_machines]

    @property
    def posteriors_(self) -> list[AnyPosterior]:
        """The fitted posteriors of the pair machines."""
        return [trained.posterior for trained in self._pair_machines]

    @property
    def one_class_estimators_(self) -> list[Any]:
        """The fitted one-class machines, one a class; none but for "rpoao"."""
        return [trained.machine.estimator_ for trained in self._one_class_machines]

    @property
    def one_class_posteriors_(self) -> list[AnyPosterior]:
        """The fitted posteriors of the one-class machines."""
        return [trained.posterior for trained in self._one_class_machines]

    @property
    def _pair_machines(self) -> Sequence[TrainedMachine]:
        return self._trained[: len(self.pairs_)]

    @property
    def _one_class_machines(self) -> Sequence[TrainedMachine]:
        return self._trained[len(self.pairs_) :]

    def _alone(self) -> Any:
        return OneClassSVM(nu=0.1) if self.one_class is None else self.one_class

    def _bases(self) -> tuple[Any, ...]:
        return (self._base(), self._alone()) if self.coupling == "rpoao" else (self._base(),)

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.coupling not in get_args(Coupling):
            raise FitError(f"coupling: one of {', '.join(get_args(Coupling))} expected, got {self.coupling!r}")

    def _tasks(self, training: Training, y: NDArray[np.intp]) -> list[tuple[Training, Flags, Flags]]:
        tasks = [(training, (y == i) | (y == j), y == i) for i, j in self.pairs_]
        if self.coupling == "rpoao":
            alone = replace(training, estimator=OneClassMachine(self._alone()))
            tasks += [(alone, np.full(len(y), True), y == i) for i in range(len(self.classes_))]
        return tasks

    def _log_posteriors(self, X: Any) -> Array:
        speakers = len(self.classes_)
        pair = np.zeros((X.shape[0], speakers, speakers))
        for (i, j), trained in zip(self.pairs_, self._pair_machines, strict=True):
            pair[:, i, j] = trained.log_odds(X)
            pair[:, j, i] = -pair[:, i, j]
        alone = [trained.log_odds(X) for trained in self._one_class_machines]
        found = Margins(np.arange(speakers), pair=pair, one_class=np.stack(alone, axis=1) if alone else None)
        return np.asarray(RULES[self.coupling].frame(found, LOG_ODDS))
