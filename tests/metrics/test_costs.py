"""Detection costs and costs of likelihood ratios against hand-worked cases, brute force, scikit-learn and theory."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import det_curve

from pipeline.metrics import (
    MAIN_POINT,
    OPERATING_POINTS,
    OperatingPoint,
    actual_cost,
    bayes_error_rates,
    calibration_loss,
    detection_cost,
    equal_error_rate,
    equal_error_rate_hull,
    log_likelihood_ratio_cost,
    minimum_cllr,
    minimum_costs,
    pav_llrs,
    rates_at,
)

# Few distinct values, so that ties are common.
TIED = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12)
FREE = st.lists(st.floats(-30, 30), min_size=1, max_size=12)
SCORES = TIED | FREE
POINTS = st.builds(OperatingPoint, st.floats(0.001, 0.999), st.floats(0.1, 10), st.floats(0.1, 10))


def gaussians(distance: float, targets: int, nontargets: int, seed: int = 0):
    generator = np.random.default_rng(seed)
    return generator.normal(distance, 1, targets), generator.normal(0, 1, nontargets)


def true_llrs(distance: float, targets: int, nontargets: int, seed: int = 0):
    """Scores of two unit Gaussians as their own likelihood ratios: log N(x; d, 1) / N(x; 0, 1) = d x - d^2 / 2."""
    return tuple(distance * x - distance**2 / 2 for x in gaussians(distance, targets, nontargets, seed))


# Detection costs.


@given(SCORES, SCORES, POINTS)
def test_detection_cost_equals_trying_every_threshold(target, nontarget, point):
    prior, miss, accept = point.prior, point.cost_miss, point.cost_false_accept
    result = detection_cost(target, nontarget, prior=prior, cost_miss=miss, cost_false_accept=accept)

    def cost(threshold: float) -> float:
        rates = rates_at(target, nontarget, threshold)
        paid = miss * prior * rates.false_reject + accept * (1 - prior) * rates.false_accept
        return paid / min(miss * prior, accept * (1 - prior))

    assert result.cost == pytest.approx(min(map(cost, [*target, *nontarget, math.inf])))
    assert math.isfinite(result.threshold)
    assert cost(result.threshold) == pytest.approx(result.cost)
    assert 0 <= result.cost <= 1 + 1e-12
    assert minimum_costs(target, nontarget, {"it": point}) == {"it": result.cost}


def test_detection_cost_by_hand():
    # At threshold 2: FR 1/2, FA 0. The costs are 0.1 * 0.5 over min(0.1, 0.9).
    assert detection_cost([0, 2], [0, 1], prior=0.1).cost == pytest.approx(0.5)
    assert detection_cost([0, 2], [0, 1], prior=0.1).threshold == 1.5
    assert detection_cost([2, 3], [0, 1], prior=0.01).cost == 0.0
    assert detection_cost([0.0], [1.0], prior=0.01).threshold == np.nextafter(1, np.inf)


@given(SCORES, SCORES, POINTS)
def test_minimum_cost_equals_that_of_scikit_learns_curve(target, nontarget, point):
    labels = [1] * len(target) + [0] * len(nontarget)
    fpr, fnr, _ = det_curve(labels, target + nontarget)
    # scikit-learn leaves out the ends of the curve: accepting all and rejecting all, whose cost is 1 or more.
    miss, accept = point.cost_miss * point.prior, point.cost_false_accept * (1 - point.prior)
    expected = min(1.0, np.min(miss * fnr + accept * fpr) / min(miss, accept))
    assert minimum_costs(target, nontarget, {"it": point})["it"] == pytest.approx(expected)


def test_the_operating_points_are_those_of_the_evaluations_and_cannot_be_changed():
    table = {name: (p.prior, p.cost_miss, p.cost_false_accept) for name, p in OPERATING_POINTS.items()}
    assert table == {"p05": (0.05, 1, 1), "p01": (0.01, 1, 1), "p50": (0.5, 1, 1), "nist08": (0.01, 10, 1)}
    assert MAIN_POINT in OPERATING_POINTS
    with pytest.raises(TypeError):
        OPERATING_POINTS["p05"] = OperatingPoint(0.5)
    with pytest.raises(AttributeError):
        OPERATING_POINTS["p05"].prior = 0.5


def test_bayes_thresholds_by_hand():
    assert OPERATING_POINTS["p50"].threshold == 0.0
    assert OPERATING_POINTS["p05"].threshold == pytest.approx(math.log(19))
    assert OPERATING_POINTS["p01"].threshold == pytest.approx(math.log(99))
    assert OPERATING_POINTS["nist08"].threshold == pytest.approx(math.log(9.9))


def test_actual_cost_by_hand():
    # The threshold is 0: one of two targets is missed, one of four nontargets accepted; 0.25 + 0.125 over 0.5.
    assert actual_cost([-1, 2], [-3, -2, -1, 0.5], 0.5) == pytest.approx(0.75)
    # From log 19 = 2.944 on claims are accepted: both targets are missed, and not listening costs the same.
    assert actual_cost([-1, 2], [-3, -2, -1, 0.5], 0.05) == pytest.approx(1.0)
    # 10 * 0.01 * 1/2 over min(0.1, 0.99).
    assert actual_cost([2.2, 2.3], [-3.0], 0.01, 10, 1) == pytest.approx(0.5)
    # A ratio at the threshold is accepted. Believing the wrong one costs (1 - p) / p.
    assert actual_cost([0.0], [-1.0], 0.5) == 0.0
    assert actual_cost([9.0], [9.0], 0.01) == pytest.approx(99)


@given(SCORES, SCORES, POINTS)
def test_actual_cost_is_never_below_the_minimum(target, nontarget, point):
    parameters = point.prior, point.cost_miss, point.cost_false_accept
    actual = actual_cost(target, nontarget, *parameters)
    assert actual >= minimum_costs(target, nontarget, {"it": point})["it"]
    # By the definition, at the threshold as the papers write it.
    rates = rates_at(target, nontarget, point.threshold)
    paid = point.cost_miss * point.prior * rates.false_reject
    paid += point.cost_false_accept * (1 - point.prior) * rates.false_accept
    floor = min(point.cost_miss * point.prior, point.cost_false_accept * (1 - point.prior))
    assert actual == pytest.approx(paid / floor)
    papers = math.log(point.cost_false_accept * (1 - point.prior) / (point.cost_miss * point.prior))
    assert point.threshold == pytest.approx(papers, abs=1e-12)


@given(SCORES, SCORES)
def test_the_bayes_error_curve_passes_through_every_operating_point(target, nontarget):
    points = [*OPERATING_POINTS.values()]
    _, actual, minimum = bayes_error_rates(target, nontarget, [point.log_odds for point in points])
    for k, point in enumerate(points):
        parameters = point.prior, point.cost_miss, point.cost_false_accept
        assert minimum[k] == pytest.approx(minimum_costs(target, nontarget, {"it": point})["it"], abs=1e-12)
        # Beside the threshold itself, where rounding may put a ratio on either side.
        if min(abs(np.array(target + nontarget) - point.threshold)) > 1e-9 or point.threshold == 0.0:
            assert actual[k] == pytest.approx(actual_cost(target, nontarget, *parameters))
    _, actual, minimum = bayes_error_rates(target, nontarget)
    assert (minimum <= actual + 1e-12).all()
    assert (minimum <= 1 + 1e-12).all()


# Cllr.


def test_cllr_of_silence_is_one_bit():
    assert log_likelihood_ratio_cost(np.zeros(3), np.zeros(7)) == pytest.approx(1.0, abs=1e-15)


@given(FREE, FREE)
def test_cllr_equals_its_formula(target, nontarget):
    miss = sum(math.log2(1 + math.exp(-s)) for s in target) / len(target)
    accept = sum(math.log2(1 + math.exp(s)) for s in nontarget) / len(nontarget)
    assert log_likelihood_ratio_cost(target, nontarget) == pytest.approx((miss + accept) / 2, abs=1e-12)


def test_cllr_neither_overflows_nor_loses_small_costs():
    assert log_likelihood_ratio_cost([-1e6], [1e6]) == pytest.approx(1e6 / math.log(2))
    assert log_likelihood_ratio_cost([1e6], [-1e6]) == 0.0
    assert log_likelihood_ratio_cost([50.0], [-50.0]) == pytest.approx(math.exp(-50) / math.log(2), rel=1e-9)


def test_cllr_is_lowest_for_the_true_likelihood_ratios():
    target, nontarget = true_llrs(2.0, 20_000, 20_000)
    best = log_likelihood_ratio_cost(target, nontarget)
    for scale, shift in ((0.5, 0), (2, 0), (1, 1), (1, -1)):
        assert log_likelihood_ratio_cost(scale * target + shift, scale * nontarget + shift) > best


# Pooled adjacent violators.


@pytest.mark.parametrize(
    ("target", "nontarget", "target_llrs", "nontarget_llrs", "bits"),
    [
        # Sorted 0n 1t 2n 3t: the middle two are out of order and share the ratio 0, one bit each; the ends are sure.
        ([1, 3], [0, 2], [0, math.inf], [-math.inf, 0], 0.5),
        # Perfect order costs nothing, wrong order and ties say nothing: one group.
        ([2, 3], [0, 1], [math.inf] * 2, [-math.inf] * 2, 0.0),
        ([0.0], [1.0], [0.0], [0.0], 1.0),
        ([2, 2, 2], [2, 2], [0] * 3, [0] * 2, 1.0),
        # A tie is one step however it is listed: {1} holds 1 of 2 targets and 1 of 2 nontargets.
        ([1, 2], [1, 0], [0, math.inf], [0, -math.inf], 0.5),
        # {1} holds a target, {2} one of each, {3} a target: the first two pool to 2 of 3 targets and the nontarget.
        (
            [1, 2, 3],
            [2],
            [math.log(2 / 3), math.log(2 / 3), math.inf],
            [math.log(2 / 3)],
            (2 / 3 * math.log2(1 + 3 / 2) + math.log2(1 + 2 / 3)) / 2,
        ),
    ],
)
def test_pooling_by_hand(target, nontarget, target_llrs, nontarget_llrs, bits):
    result = pav_llrs(target, nontarget)
    assert result[0] == pytest.approx(target_llrs, abs=1e-15)
    assert result[1] == pytest.approx(nontarget_llrs, abs=1e-15)
    assert minimum_cllr(target, nontarget) == pytest.approx(bits, abs=1e-15)


@given(SCORES, SCORES)
def test_pooling_equals_scikit_learns_isotonic_regression(target, nontarget):
    # Ranks, because scikit-learn takes scores for tied that differ by less than it resolves.
    scores = np.unique(target + nontarget, return_inverse=True)[1]
    labels = np.array([1.0] * len(target) + [0.0] * len(nontarget))
    posterior = IsotonicRegression(y_min=0, y_max=1).fit_transform(scores, labels)
    prior = len(target) / len(scores)
    with np.errstate(divide="ignore"):
        expected = np.log(posterior) - np.log(1 - posterior) - math.log(prior / (1 - prior))
    np.testing.assert_allclose(np.concatenate(pav_llrs(target, nontarget)), expected, atol=1e-9)


@given(
    st.lists(st.integers(0, 5).map(float), min_size=1, max_size=12),
    st.lists(st.integers(0, 5).map(float), min_size=1, max_size=12),
)
def test_no_rising_grouping_of_the_scores_costs_less(target, nontarget):
    distinct = sorted(set(target) | set(nontarget))
    costs = []
    for cuts in (c for n in range(len(distinct)) for c in combinations(range(1, len(distinct)), n)):
        group = np.searchsorted(np.array(distinct)[list(cuts)], distinct, side="right")
        of = dict(zip(distinct, group, strict=True))
        hits = np.bincount([of[s] for s in target], minlength=len(cuts) + 1)
        misses = np.bincount([of[s] for s in nontarget], minlength=len(cuts) + 1)
        if (np.diff(hits / (hits + misses)) < 0).any():
            continue
        # Cllr of a group of h targets and m nontargets answered by its own ratio, written as an entropy.
        odds = (hits / len(target)), (misses / len(nontarget))
        bits = [p * math.log2((p + q) / p) for p, q in zip(*odds, strict=True) if p > 0]
        bits += [q * math.log2((p + q) / q) for p, q in zip(*odds, strict=True) if q > 0]
        costs.append(sum(bits) / 2)
    assert minimum_cllr(target, nontarget) == pytest.approx(min(costs), abs=1e-12)


@given(SCORES, SCORES)
def test_cllr_is_never_below_its_minimum(target, nontarget):
    lowest = minimum_cllr(target, nontarget)
    assert -1e-12 <= lowest <= 1 + 1e-12
    assert calibration_loss(target, nontarget) >= -1e-12
    expected = log_likelihood_ratio_cost(target, nontarget) - lowest
    assert calibration_loss(target, nontarget) == pytest.approx(expected, abs=1e-12)


@given(TIED, TIED)
def test_minima_see_only_the_order(target, nontarget):
    before = minimum_cllr(target, nontarget), minimum_costs(target, nontarget)
    for monotone in (lambda x: 3 * x - 7, np.exp, np.arctan, lambda x: x**3):
        mapped = monotone(np.array(target)), monotone(np.array(nontarget))
        assert (minimum_cllr(*mapped), minimum_costs(*mapped)) == before


@given(SCORES, SCORES)
def test_pooled_ratios_are_calibrated_and_rise_with_the_score(target, nontarget):
    result = pav_llrs(target, nontarget)
    order = np.argsort(target + nontarget, kind="stable")
    pooled = np.concatenate(result)[order]
    assert (pooled[1:] >= pooled[:-1] - 1e-9).all()
    # Calibrating what is calibrated changes nothing. Ratios stand in for infinite ones that the function refuses.
    finite = [np.clip(side, -50, 50) for side in result]
    for once, twice in zip(finite, pav_llrs(*finite), strict=True):
        np.testing.assert_allclose(np.clip(twice, -50, 50), once, atol=1e-9)
    assert log_likelihood_ratio_cost(*finite) == pytest.approx(minimum_cllr(target, nontarget), abs=1e-12)


@given(SCORES, SCORES)
def test_the_hull_rate_is_the_worst_error_that_pooled_ratios_leave(target, nontarget):
    # Brummer: the EER of the convex hull is the largest minimum Bayes error over all priors, found here on a grid.
    odds = np.linspace(-8, 8, 3201)
    _, _, minimum = bayes_error_rates(target, nontarget, odds)
    error = minimum * np.minimum(1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds)))
    assert error.max() == pytest.approx(equal_error_rate_hull(target, nontarget), abs=2e-3)
    assert error.max() <= equal_error_rate_hull(target, nontarget) + 1e-12


# Theory: unit Gaussians a distance d apart, whose likelihood ratios are N(d^2 / 2, d^2) and N(-d^2 / 2, d^2).


@pytest.mark.parametrize("distance", [1.0, 2.0, 3.0])
def test_true_likelihood_ratios_of_gaussians(distance):
    target, nontarget = true_llrs(distance, 100_000, 100_000)
    assert equal_error_rate(target, nontarget).rate == pytest.approx(norm.cdf(-distance / 2), abs=0.003)
    mean, spread = distance**2 / 2, distance
    expected, _ = quad(lambda x: norm.pdf(x, mean, spread) * np.logaddexp(0, -x) / math.log(2), -40, 40, points=[mean])
    assert log_likelihood_ratio_cost(target, nontarget) == pytest.approx(expected, abs=0.005)
    assert 0 <= calibration_loss(target, nontarget) < 0.002
    for point in OPERATING_POINTS.values():
        parameters = point.prior, point.cost_miss, point.cost_false_accept
        rates = norm.cdf((point.threshold - mean) / spread), norm.cdf((-point.threshold - mean) / spread)
        miss, accept = point.cost_miss * point.prior, point.cost_false_accept * (1 - point.prior)
        cost = (miss * rates[0] + accept * rates[1]) / min(miss, accept)
        # At a prior of 1 % a single false accept of these costs 0.001.
        assert actual_cost(target, nontarget, *parameters) == pytest.approx(cost, abs=0.03)
        lowest = minimum_costs(target, nontarget, {"it": point})["it"]
        assert lowest <= actual_cost(target, nontarget, *parameters) <= lowest + 0.03


def test_a_wrong_scale_costs_calibration_and_leaves_the_minima():
    target, nontarget = true_llrs(2.0, 20_000, 20_000)
    shifted = 3 * target + 2, 3 * nontarget + 2
    assert minimum_cllr(*shifted) == minimum_cllr(target, nontarget)
    assert minimum_costs(*shifted) == minimum_costs(target, nontarget)
    assert calibration_loss(*shifted) > 0.2 > 0.01 > calibration_loss(target, nontarget)
    assert actual_cost(*shifted, 0.05) > 1 > actual_cost(target, nontarget, 0.05)
