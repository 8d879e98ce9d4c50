"""The experiments of Nalbantov and Ivanov 2020: their example in the plane, and German credit for one C and gamma."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import RepeatedStratifiedKFold, cross_validate
from sklearn.svm import SVC

from benchmarks.papers.tables import Table
from pipeline.posteriors.heldout import Method, margins_for
from pipeline.posteriors.implied import ImpliedPosterior, calibration_score
from pipeline.posteriors.newton import NewtonSigmoid

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Criterion = Literal["auc", "accuracy"]

FOLDS, REPEATS = 10, 3
PLATT_FOLDS = 3


@dataclass(frozen=True, eq=False)
class Halves:
    """Scaled rows (n, d) and classes (n,) of the first half, to train on, and of the second, to judge."""

    train: Array
    labels: Flags
    test: Array
    positive: Flags


@dataclass(frozen=True)
class Setting:
    """One C and gamma, and their cross-validated AUC and accuracy on the training half."""

    log2_c: int
    log2_gamma: int
    auc: float
    accuracy: float

    @property
    def machine(self) -> SVC:
        """Return the reference machine, untrained."""
        return SVC(C=2.0**self.log2_c, gamma=2.0**self.log2_gamma)


@dataclass(frozen=True, eq=False)
class Judged:
    """Margins of the reference machine and both posteriors (n,) on the test half; the machines' ``answers`` (n, L).

    ``platt`` is fitted to cross-validated margins, ``platt_trained`` to those of the rows that trained the machine.
    """

    margins: Array
    platt: Array
    platt_trained: Array
    implied: Array
    answers: Array

    @property
    def raw(self) -> Array:
        """Return the margins brought to [0, 1] by their least and largest on the test half, as in the paper."""
        return np.asarray((self.margins - self.margins.min()) / np.ptp(self.margins))

    def numbers(self, positive: Flags) -> dict[str, float]:
        """Return calibration scores, by the names here, and the AUCs "auc_platt" and "auc_implied"."""
        scored = ("raw", "platt", "platt_trained", "implied")
        return {name: calibration_score(getattr(self, name), positive) for name in scored} | {
            f"auc_{name}": float(roc_auc_score(positive, getattr(self, name))) for name in ("platt", "implied")
        }


@dataclass(frozen=True, eq=False)
class WorkedExample:
    """Section 4 in the plane: points ``rows`` (n, 2), the fitted machines, and two ``points`` (2, 2) to look at.

    ``answers`` (2, L) of the machines at the points and their ``weights`` (L,) of the positive class, rising.
    """

    rows: Array
    positive: Flags
    fitted: ImpliedPosterior
    points: Array
    weights: Array
    answers: Array
    posteriors: Array


def worked_example() -> WorkedExample:
    """Make two Gaussian classes of 20 points, nine linear machines, a point with crossed surfaces and one without.

    Of the nine machines those of weights 0.5, 0.8 and 0.9 call the first point positive, as in the paper's Fig. 7, and
    those of 0.8 and 0.9 the second, as in its Fig. 9. The paper's own points are not published.
    """
    rng = np.random.default_rng(232)
    negative = rng.multivariate_normal([-1, 0], [[1.0, 0.5], [0.5, 1.0]], 20)
    positive = rng.multivariate_normal([1, 0.5], [[1.0, -0.4], [-0.4, 0.8]], 20)
    rows, labels = np.concatenate([negative, positive]), np.repeat([False, True], 20)
    fitted = ImpliedPosterior(SVC(kernel="linear", C=10), machines=9).fit(rows, labels)
    points = np.array([[-0.175, -1.6], [-0.4, -0.55]])
    # Surfaces of a rising posterior are those of a falling weight.
    answers, weights = fitted.machine_answers(points)[:, ::-1], 1.0 - fitted.posteriors_[::-1]
    return WorkedExample(rows, labels, fitted, points, weights, answers, fitted.predict_proba(points)[:, 1])


@dataclass(frozen=True, eq=False)
class Crossing:
    """Two machines of the plane with crossing lines: ``rows`` (n, 2), and for each line its posterior by eq. 11.

    ``lines`` (2, 3) are a, b, c of a x + b y + c = 0, and ``at`` (2,) lies on both.
    """

    rows: Array
    positive: Flags
    weights: Array
    lines: Array
    at: Array

    @property
    def posteriors(self) -> Array:
        """Return posteriors (2,) of the positive class along the lines: two answers at one point."""
        return 1.0 - self.weights


def crossing() -> Crossing:
    """Make five points of each class, and machines that weigh the classes alike, and 4 to 1 at the same total of 15.

    The paper's points and its second weights are not published.
    """
    rng = np.random.default_rng(9)
    negative = rng.multivariate_normal([-1, 0], [[1.0, 0.5], [0.5, 1.0]], 5)
    positive = rng.multivariate_normal([1, 0.5], [[1.0, -0.4], [-0.4, 0.8]], 5)
    rows, labels = np.concatenate([negative, positive]), np.repeat([False, True], 5)
    weights, lines = np.array([0.5, 0.8]), []
    for weight in weights:
        machine = SVC(kernel="linear", C=1.0, class_weight={True: 3 * weight, False: 3 * (1 - weight)})
        machine.fit(rows, labels)
        lines.append([*machine.coef_[0], *machine.intercept_])
    made = np.array(lines)
    return Crossing(rows, labels, weights, made, np.linalg.solve(made[:, :2], -made[:, 2]))


def split(table: Table, scaler: Any) -> Halves:
    """Return the first half of the rows and the second, scaled by the first half's statistics."""
    half = len(table.y) // 2
    train, positive = scaler.fit_transform(table.X[:half]), table.y == 1
    return Halves(train, positive[:half], scaler.transform(table.X[half:]), positive[half:])


def search(half: Halves, at: tuple[int, int]) -> Setting:
    """Return AUC and accuracy at log2 C and log2 gamma, means of repeated cross-validation on the training half.

    The attributes are scaled once for all folds, which sees no class.
    """
    folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=REPEATS, random_state=0)
    machine = SVC(C=2.0 ** at[0], gamma=2.0 ** at[1])
    scores = cross_validate(machine, half.train, half.labels, cv=folds, scoring={"auc": "roc_auc", "acc": "accuracy"})
    return Setting(*at, float(scores["test_auc"].mean()), float(scores["test_acc"].mean()))


def best(settings: Sequence[Setting], criterion: Criterion) -> Setting:
    """Return the setting with the highest cross-validated criterion; among equals the smallest C, then gamma."""
    return min(settings, key=lambda s: (-round(getattr(s, criterion), 9), s.log2_c, s.log2_gamma))


def judge(half: Halves, setting: Setting, machines: int) -> Judged:
    """Train on the first half and predict the second."""
    margins = setting.machine.fit(half.train, half.labels).decision_function(half.test)
    methods: tuple[Method, ...] = ("kfold", "training")
    shown = (margins_for(setting.machine, half.train, half.labels, method=m, folds=PLATT_FOLDS) for m in methods)
    platt, trained = (NewtonSigmoid().fit(*of).probability(margins) for of in shown)
    fitted = ImpliedPosterior(setting.machine, machines=machines).fit(half.train, half.labels)
    return Judged(margins, platt, trained, fitted.predict_proba(half.test)[:, 1], fitted.machine_answers(half.test))
