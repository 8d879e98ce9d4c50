"""Cllr and its two minima against hand-worked cases, brute force, scikit-learn and theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from trial_scores import FREE, SCORES, TIED, true_llrs

from pipeline.metrics import (
    actual_cost,
    affine_cllr,
    bayes_error_rates,
    equal_error_rate_hull_of,
    error_curve,
    log_likelihood_ratio_cost,
    minimum_cllr,
)


@given(FREE, FREE)
def test_cllr_equals_its_formula(target, nontarget):
    miss = sum(math.log2(1 + math.exp(-s)) for s in target) / len(target)
    accept = sum(math.log2(1 + math.exp(s)) for s in nontarget) / len(nontarget)
    assert log_likelihood_ratio_cost(target, nontarget) == pytest.approx((miss + accept) / 2, abs=1e-12)


def test_cllr_neither_overflows_nor_loses_small_costs():
    assert log_likelihood_ratio_cost([-1e6], [1e6]) == pytest.approx(1e6 / math.log(2))
    assert log_likelihood_ratio_cost([1e6], [-1e6]) == 0.0
    assert log_likelihood_ratio_cost([50.0], [-50.0]) == pytest.approx(math.exp(-50) / math.log(2), rel=1e-9)


# Pooled adjacent violators.


@pytest.mark.parametrize(
    ("target", "nontarget", "bits"),
    [
        # Sorted 0n 1t 2n 3t: the middle two are out of order and share the ratio 0, one bit each; the ends are sure.
        ([1, 3], [0, 2], 0.5),
        # Perfect order costs nothing, wrong order and ties say nothing: one group.
        ([2, 3], [0, 1], 0.0),
        ([0.0], [1.0], 1.0),
        ([2, 2, 2], [2, 2], 1.0),
        # A tie is one step however it is listed: {1} holds 1 of 2 targets and 1 of 2 nontargets.
        ([1, 2], [1, 0], 0.5),
        # {1} holds a target, {2} one of each, {3} a target: the first two pool to 2 of 3 targets and the nontarget.
        ([1, 2, 3], [2], (2 / 3 * math.log2(1 + 3 / 2) + math.log2(1 + 2 / 3)) / 2),
    ],
)
def test_pooling_by_hand(target, nontarget, bits):
    assert minimum_cllr(target, nontarget) == pytest.approx(bits, abs=1e-15)


@given(SCORES, SCORES)
def test_pooling_equals_scikit_learns_isotonic_regression(target, nontarget):
    # Ranks, because scikit-learn takes scores for tied that differ by less than it resolves.
    scores = np.unique(target + nontarget, return_inverse=True)[1]
    labels = np.array([1.0] * len(target) + [0.0] * len(nontarget))
    posterior = IsotonicRegression(y_min=0, y_max=1).fit_transform(scores, labels)
    with np.errstate(divide="ignore"):
        ratios = np.log(posterior) - np.log(1 - posterior) - math.log(len(target) / len(nontarget))
    of_target, of_nontarget = np.split(np.clip(ratios, -50, 50), [len(target)])
    expected = log_likelihood_ratio_cost(of_target, of_nontarget)
    assert minimum_cllr(target, nontarget) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50)
@given(SCORES, SCORES)
def test_the_hull_rate_is_the_worst_error_that_pooled_ratios_leave(target, nontarget):
    # Brummer: the EER of the convex hull is the largest minimum Bayes error over all priors, found here on a grid.
    odds = np.linspace(-8, 8, 1601)
    _, _, minimum = bayes_error_rates(target, nontarget, odds)
    error = minimum * np.minimum(1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds)))
    hull = equal_error_rate_hull_of(error_curve(target, nontarget))
    assert hull - 4e-3 <= error.max() <= hull + 1e-12


def test_a_wrong_scale_or_offset_costs_calibration():
    target, nontarget = true_llrs(2.0, 20_000, 20_000)
    best = log_likelihood_ratio_cost(target, nontarget)
    for scale, shift in ((0.5, 0), (2, 0), (1, 1), (1, -1)):
        assert log_likelihood_ratio_cost(scale * target + shift, scale * nontarget + shift) > best
    shifted, lowest = (3 * target + 2, 3 * nontarget + 2), minimum_cllr(target, nontarget)
    assert log_likelihood_ratio_cost(*shifted) - lowest > 0.2 > 0.01 > best - lowest
    assert actual_cost(*shifted, 0.05) > 1 > actual_cost(target, nontarget, 0.05)


# Affine calibration.


@pytest.mark.parametrize("distance", [0.3, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("sizes", [(50, 50), (20, 900), (400, 100)])
def test_the_line_is_scikit_learns_logistic_regression_with_classes_that_weigh_alike(distance, sizes):
    target, nontarget = true_llrs(distance, *sizes)
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
@given(SCORES, SCORES)
def test_a_line_costs_at_least_what_pooling_does_and_at_most_what_is_there(target, nontarget):
    lowest, line = minimum_cllr(target, nontarget), affine_cllr(target, nontarget)
    actual = log_likelihood_ratio_cost(target, nontarget)
    assert -1e-12 <= lowest <= line + 1e-9
    assert line <= min(1.0, actual + 1e-9)


@settings(deadline=None, max_examples=50)
@given(TIED, TIED, st.sampled_from((1e-200, 1e-3, 1.0, 7.0, 1e200)), st.sampled_from((0.0, -3.0, 20.0)))
def test_units_and_origin_do_not_matter(target, nontarget, unit, origin):
    moved = ((np.array(side) + origin) * unit for side in (target, nontarget))
    assert affine_cllr(*moved) == pytest.approx(affine_cllr(target, nontarget), abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9), FREE)
def test_scores_of_any_size_have_a_line(target, nontarget):
    assert 0.0 <= affine_cllr(target, nontarget) <= 1.0
