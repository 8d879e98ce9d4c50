"""The Cllr of the best straight line against scikit-learn's logistic regression, cases by hand, theory and bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from pipeline.errors import MetricError
from pipeline.metrics import affine_cllr, log_likelihood_ratio_cost, minimum_cllr

FREE = st.lists(st.floats(-30, 30), min_size=1, max_size=30)
TIED = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=30)


def gaussians(distance: float, targets: int, nontargets: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True log-likelihood ratios of unit Gaussians so far apart."""
    generator = np.random.default_rng(seed)
    mean = distance**2 / 2
    return generator.normal(mean, distance, targets), generator.normal(-mean, distance, nontargets)


@pytest.mark.parametrize("distance", [0.3, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("sizes", [(50, 50), (20, 900), (400, 100)])
def test_the_line_is_scikit_learns_logistic_regression_with_classes_that_weigh_alike(distance, sizes):
    target, nontarget = gaussians(distance, *sizes)
    scores, labels = np.concatenate((target, nontarget))[:, None], np.repeat([1, 0], sizes)
    fit = LogisticRegression(C=np.inf, class_weight="balanced", tol=1e-12, max_iter=10_000).fit(scores, labels)
    ratios = fit.decision_function(scores)
    expected = log_likelihood_ratio_cost(ratios[: sizes[0]], ratios[sizes[0] :])
    assert affine_cllr(target, nontarget) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("target", "nontarget", "bits"),
    [
        ([1.0], [0.0], 0.0),
        ([0.0, 5.0], [-1.0, -0.5], 0.0),
        ([0.0], [1.0], 1.0),
        ([0.0], [0.0], 1.0),
        ([2.0, 2.0], [1.0, 3.0], 1.0),
        # Two scores: a line through both gives each its own ratio, log 3 and -log 3, and costs what pooling does.
        ([1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], 0.75 * math.log2(4 / 3) + 0.25 * 2),
        # Between them a tie of everybody: an infinite slope leaves it at 0, worth a bit for half of the trials.
        ([0.0, 1.0], [-1.0, 0.0], 0.5),
    ],
)
def test_lines_by_hand(target, nontarget, bits):
    assert affine_cllr(target, nontarget) == pytest.approx(bits, abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(FREE | TIED, FREE | TIED)
def test_a_line_costs_at_least_what_pooling_does_and_at_most_what_is_there(target, nontarget):
    result = affine_cllr(target, nontarget)
    assert minimum_cllr(target, nontarget) - 1e-9 <= result <= 1.0
    assert result <= log_likelihood_ratio_cost(target, nontarget) + 1e-9


@settings(deadline=None, max_examples=50)
@given(TIED, TIED, st.sampled_from((1e-200, 1e-3, 1.0, 7.0, 1e200)), st.sampled_from((0.0, -3.0, 20.0)))
def test_units_and_origin_do_not_matter(target, nontarget, unit, origin):
    moved = ((np.array(side) + origin) * unit for side in (target, nontarget))
    assert affine_cllr(*moved) == pytest.approx(affine_cllr(target, nontarget), abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9), FREE)
def test_scores_of_any_size_have_a_line(target, nontarget):
    assert 0.0 <= affine_cllr(target, nontarget) <= 1.0


@pytest.mark.parametrize("distance", [1.0, 2.0, 3.0])
def test_true_ratios_have_nothing_to_gain_from_a_line(distance):
    target, nontarget = gaussians(distance, 100_000, 100_000)
    actual = log_likelihood_ratio_cost(target, nontarget)
    assert actual - 1e-4 < affine_cllr(target, nontarget) <= actual
    # Pooling, which has a step for every few trials to choose, gains where there is nothing to gain.
    assert minimum_cllr(target, nontarget) < affine_cllr(target, nontarget)


def test_of_few_trials_pooling_promises_what_no_line_could():
    target, nontarget = gaussians(5.0, 300, 9000, seed=1)
    assert minimum_cllr(target, nontarget) < 0.85 * affine_cllr(target, nontarget)


@pytest.mark.parametrize("target", [[], [math.nan], [math.inf]])
def test_what_is_no_score_is_refused(target):
    with pytest.raises(MetricError):
        affine_cllr(target, [0.0])
