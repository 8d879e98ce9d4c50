"""Implied posteriors: the worked example, estimators whose own posterior is known, weights, symmetry, calibration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from benchmarks.papers.implied2020_credit import worked_example
from pipeline.errors import FitError
from pipeline.posteriors.implied import ImpliedPosterior, calibration_score, class_weights


def gaussians(positives: int, negatives: int, *, seed: int = 0, apart: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Two unit Gaussians in the plane, their means 2 ``apart`` from each other; the negatives come first."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(negatives + positives, 2))
    y = np.repeat([0, 1], [negatives, positives])
    X[:, 0] += apart * (2 * y - 1)
    return X, y


X, Y = gaussians(60, 90)


def posterior(estimator, X=X, y=Y, at=X, **options) -> np.ndarray:
    return ImpliedPosterior(estimator, **options).fit(X, y).predict_proba(at)[:, 1]


# The paper's example


def test_the_worked_example_counts_as_published():
    example = worked_example()
    np.testing.assert_allclose(example.weights, np.arange(1, 10) / 10)
    crossed, plain = example.answers
    assert example.weights[crossed == 1] == pytest.approx([0.5, 0.8, 0.9])
    assert example.weights[plain == 1] == pytest.approx([0.8, 0.9])
    assert example.posteriors == pytest.approx([4 / 11, 3 / 11])


def test_a_point_on_every_surface_counts_half_for_each():
    # Two points in mirror positions and a C that never binds: every machine has its surface in the middle.
    fitted = ImpliedPosterior(SVC(kernel="linear", C=100.0), machines=3).fit([[-1.0], [1.0]], [0, 1])
    np.testing.assert_array_equal(fitted.machine_answers([[0.0]]), [[0.5, 0.5, 0.5]])
    np.testing.assert_array_equal(fitted.predict_proba([[0.0]]), [[0.5, 0.5]])
    assert fitted.decision_function([[0.0]]) == [0.0]
    np.testing.assert_allclose(fitted.predict_proba([[-9.0], [9.0]])[:, 1], [1 / 5, 4 / 5])


# Estimators without a penalty: the implied posterior is their own


@pytest.mark.parametrize("machines", [1, 49])
@pytest.mark.parametrize("estimator", [GaussianNB(), LinearDiscriminantAnalysis()])
def test_without_a_penalty_it_is_the_estimators_own_posterior_rounded_to_the_grid(estimator, machines):
    own = estimator.fit(X, Y).predict_proba(X)[:, 1]
    expected = np.ceil(own * (machines + 1)) / (machines + 2)
    for weighting in ("equal_c", "fixed_total"):
        np.testing.assert_allclose(posterior(estimator, machines=machines, weighting=weighting), expected)


@pytest.mark.parametrize(
    ("estimator", "weighting", "expected"),
    [
        (GaussianNB(), "equal_n", GaussianNB(priors=[0.5, 0.5])),
        (LinearDiscriminantAnalysis(), "equal_n", LinearDiscriminantAnalysis(priors=[0.5, 0.5])),
        (LinearDiscriminantAnalysis(priors=[0.2, 0.8]), "equal_c", LinearDiscriminantAnalysis(priors=[0.2, 0.8])),
    ],
)
def test_equal_n_gives_posteriors_at_equal_priors_and_own_priors_are_kept(estimator, weighting, expected):
    own = expected.fit(X, Y).predict_proba(X)[:, 1]
    np.testing.assert_allclose(posterior(estimator, weighting=weighting), np.ceil(own * 100) / 101)


def test_a_logistic_regression_that_holds_gives_its_own_posterior_and_the_true_one():
    rows, classes = gaussians(1000, 2000)
    at = np.column_stack([np.linspace(-2.5, 2.5, 41), np.zeros(41)])
    model = LogisticRegression(C=1e6)
    implied = posterior(model, rows, classes, at, machines=49)
    likelihood = norm.pdf(at[:, 0], 1), norm.pdf(at[:, 0], -1)
    true = likelihood[0] / (likelihood[0] + 2 * likelihood[1])
    assert np.abs(implied - model.fit(rows, classes).predict_proba(at)[:, 1]).mean() < 0.02
    assert np.abs(implied - true).mean() < 0.03


# Weights


@pytest.mark.parametrize("weighting", ["equal_c", "fixed_total", "equal_n"])
def test_the_effective_number_of_trials_is_fixed(weighting):
    grid = np.arange(1, 20) / 20
    even = class_weights(grid, np.array([40.0, 40.0]), weighting)
    np.testing.assert_allclose(even @ [40, 40], 80)
    np.testing.assert_allclose(even, 2 * np.column_stack([grid, 1 - grid]))
    counts = np.array([30.0, 10.0])
    uneven = class_weights(grid, counts, weighting)
    if weighting != "equal_c":
        np.testing.assert_allclose(uneven @ counts, 40)
    np.testing.assert_allclose(uneven[9], [2 / 3, 2] if weighting == "equal_n" else [1, 1])


@pytest.mark.parametrize("machine", [
    SVC(C=3.0, gamma=0.4, tol=1e-7),
    SVC(C=3.0, gamma="auto", tol=1e-7),
    SVC(kernel="linear", C=0.5, tol=1e-7),
    SVC(kernel="poly", degree=2, coef0=1.0, gamma=0.3, tol=1e-7),
    SVC(C=3.0, gamma=0.4, tol=1e-7, class_weight={"no": 0.5, "yes": 1.5}),
], ids=str)  # fmt: skip
def test_machines_over_one_gram_matrix_are_those_trained_apart(machine):
    labels = np.array(["no", "yes"])[Y]
    shared = ImpliedPosterior(machine, machines=7).fit(X, labels)
    for k, margins in enumerate(shared.machine_margins(X).T):
        # Eq. 12: an estimator of unequal C+ and C- is itself the middle machine.
        weights = np.where(Y, 2 - (k + 1) / 4, (k + 1) / 4)
        apart = machine.fit(X, labels, sample_weight=weights).decision_function(X)
        np.testing.assert_allclose(margins, apart, atol=1e-4)


@pytest.mark.parametrize("estimator", [LogisticRegression(tol=1e-8), SVC(gamma=0.5, tol=1e-7), GaussianNB()])
def test_weights_are_repeated_trials(estimator):
    times = np.random.default_rng(1).integers(0, 4, len(Y))
    weighted = ImpliedPosterior(estimator, machines=19, weighting="equal_n").fit(X, Y, sample_weight=times)
    rows, classes = np.repeat(X, times, axis=0), np.repeat(Y, times)
    repeated = ImpliedPosterior(estimator, machines=19, weighting="equal_n").fit(rows, classes)
    # GaussianNB's smoothing alone looks at rows, not at weights.
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)


class ByClassWeight(LogisticRegression):
    """A classifier whose one way to be reweighted is class_weight."""

    def fit(self, X, y):
        return super().fit(X, y)


class Terse(ClassifierMixin, BaseEstimator):
    """A classifier that says its class and nothing else."""

    def fit(self, X, y, sample_weight=None):
        self.model_ = LogisticRegression().fit(X, y, sample_weight)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)


@pytest.mark.parametrize("estimator", [ByClassWeight(), Terse()])
def test_every_way_to_weigh_and_to_answer_gives_the_same(estimator):
    labels = np.array(["a", "b"])[Y]
    result = posterior(estimator, y=labels, machines=9)
    np.testing.assert_array_equal(result, posterior(LogisticRegression(), y=labels, machines=9, n_jobs=2))


# Properties


@given(arrays(float, (12, 2), elements=st.floats(-3, 3, width=16)), st.integers(1, 11), st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_posteriors_are_shares_between_the_fictitious_machines(rows, positives, machines):
    fitted = ImpliedPosterior(SVC(), machines=machines).fit(rows, np.arange(12) < positives)
    p = fitted.predict_proba(rows)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert p.min() >= 1 / (machines + 2) - 1e-12
    shares = p[:, 1] * 2 * (machines + 2)
    np.testing.assert_allclose(shares, np.round(shares), atol=1e-9)
    np.testing.assert_allclose(fitted.decision_function(rows), np.log(p[:, 1] / p[:, 0]), atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(rows), fitted.decision_function(rows) > 0)


@pytest.mark.parametrize("weighting", ["equal_c", "fixed_total", "equal_n"])
@pytest.mark.parametrize("estimator", [SVC(C=2.0, tol=1e-8), LogisticRegression(tol=1e-8)])
def test_swapping_the_classes_swaps_the_posteriors(estimator, weighting):
    options = {"machines": 20, "weighting": weighting}
    np.testing.assert_allclose(posterior(estimator, **options), 1 - posterior(estimator, y=1 - Y, **options))


def test_scikit_learn_takes_it_for_an_estimator_of_its_own():
    result = check_estimator(ImpliedPosterior(machines=3), on_skip=None)
    assert sum(check["status"] == "passed" for check in result) > 50


# Calibration


@pytest.mark.parametrize(("scores", "classes", "expected"), [
    ([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1], 0.15),  # regression: 0, 1/2, 1/2, 1
    ([0.8, 0.2], [0, 1], 0.3),  # wrong way round: 1/2, 1/2
    ([0.0, 1.0, 1.0], [0, 1, 1], 0.0),
    ([0.3] * 10, [1] * 3 + [0] * 7, 0.0),
    ([0.5, 0.5, 0.9], [0, 1, 1], 0.1 / 3),  # a tie is one step, 1/2
    ([0.25], [-1], 0.25),
])  # fmt: skip
def test_calibration_scores_by_hand(scores, classes, expected):
    assert calibration_score(scores, classes) == pytest.approx(expected)


@pytest.mark.parametrize(("scores", "classes"), [
    ([], []), ([0.5, 1.1], [0, 1]), ([-0.1], [1]), ([np.nan], [1]), ([0.5], [2]), ([0.5, 0.5], [1]),
])  # fmt: skip
def test_a_calibration_score_of_anything_but_posteriors_is_refused(scores, classes):
    with pytest.raises(FitError):
        calibration_score(scores, classes)


# Refusals


@pytest.mark.parametrize(("options", "words"), [
    ({"machines": 0}, "machines: at least 1"),
    ({"weighting": "even"}, "weighting: one of equal_c"),
    ({"estimator": SVC(class_weight="balanced")}, "undoes the weights"),
    ({"estimator": make_pipeline(StandardScaler(), SVC())}, "in a pipeline"),
    ({"estimator": KNeighborsClassifier()}, "neither sample_weight nor priors nor class_weight"),
])  # fmt: skip
def test_settings_that_cannot_work_are_refused(options, words):
    with pytest.raises(FitError, match=words) as refused:
        ImpliedPosterior(**options).fit(X, Y)
    assert isinstance(refused.value, ValueError)


def test_weights_that_the_estimator_cannot_take_are_refused():
    with pytest.raises(FitError, match="LinearDiscriminantAnalysis takes none"):
        ImpliedPosterior(LinearDiscriminantAnalysis()).fit(X, Y, sample_weight=1.0 + Y)
    with pytest.raises(FitError, match="above zero"):
        ImpliedPosterior(SVC()).fit(X, Y, sample_weight=1.0 * Y)
