"""Detection costs against hand-worked cases, brute force, scikit-learn and theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import det_curve
from trial_scores import SCORES, true_llrs

from pipeline.metrics import (
    MAIN_POINT,
    OPERATING_POINTS,
    OperatingPoint,
    actual_cost,
    bayes_error_rates,
    detection_cost,
    error_curve,
    log_likelihood_ratio_cost,
    minimum_cllr,
    minimum_costs_of,
    rates_at,
)

POINTS = st.builds(OperatingPoint, st.floats(0.001, 0.999), st.floats(0.1, 10), st.floats(0.1, 10))


def cost_at(point: OperatingPoint, false_accept: float, false_reject: float) -> float:
    """The normalised cost as the papers write it."""
    miss, accept = point.cost_miss * point.prior, point.cost_false_accept * (1 - point.prior)
    return (miss * false_reject + accept * false_accept) / min(miss, accept)


@given(SCORES, SCORES, POINTS)
def test_minimum_cost_is_reached_and_is_that_of_scikit_learns_curve(target, nontarget, point):
    lowest = detection_cost(
        target, nontarget, prior=point.prior, cost_miss=point.cost_miss, cost_false_accept=point.cost_false_accept
    )
    assert minimum_costs_of(error_curve(target, nontarget), {"it": point}) == {"it": lowest.cost}
    rates = rates_at(target, nontarget, lowest.threshold)
    assert math.isfinite(lowest.threshold)
    assert cost_at(point, rates.false_accept, rates.false_reject) == pytest.approx(lowest.cost)
    fpr, fnr, _ = det_curve([1] * len(target) + [0] * len(nontarget), target + nontarget)
    # scikit-learn leaves out the ends of the curve: accepting all and rejecting all, whose cost is 1 or more.
    assert lowest.cost == pytest.approx(min(1.0, cost_at(point, fpr, fnr).min()))


def test_detection_cost_by_hand():
    # At threshold 2: FR 1/2, FA 0. The costs are 0.1 * 0.5 over min(0.1, 0.9).
    assert detection_cost([0, 2], [0, 1], prior=0.1).cost == pytest.approx(0.5)
    assert detection_cost([0, 2], [0, 1], prior=0.1).threshold == 1.5
    assert detection_cost([2, 3], [0, 1], prior=0.01).cost == 0.0
    assert detection_cost([0.0], [1.0], prior=0.01).threshold == np.nextafter(1, np.inf)


def test_the_operating_points_are_those_of_the_evaluations_and_cannot_be_changed():
    table = {name: (p.prior, p.cost_miss, p.cost_false_accept) for name, p in OPERATING_POINTS.items()}
    assert table == {
        "p05": (0.05, 1, 1),
        "p01": (0.01, 1, 1),
        "p005": (0.005, 1, 1),
        "p50": (0.5, 1, 1),
        "nist08": (0.01, 10, 1),
    }
    assert MAIN_POINT in OPERATING_POINTS
    with pytest.raises(TypeError):
        OPERATING_POINTS["p05"] = OperatingPoint(0.5)
    with pytest.raises(AttributeError):
        OPERATING_POINTS["p05"].prior = 0.5


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
def test_actual_cost_is_that_at_the_papers_threshold_and_never_below_the_minimum(target, nontarget, point):
    actual = actual_cost(target, nontarget, point.prior, point.cost_miss, point.cost_false_accept)
    assert actual >= minimum_costs_of(error_curve(target, nontarget), {"it": point})["it"]
    rates = rates_at(target, nontarget, point.threshold)
    assert actual == pytest.approx(cost_at(point, rates.false_accept, rates.false_reject))
    papers = math.log(point.cost_false_accept * (1 - point.prior) / (point.cost_miss * point.prior))
    assert point.threshold == pytest.approx(papers, abs=1e-12)


@given(SCORES, SCORES)
def test_the_bayes_error_curve_passes_through_every_operating_point(target, nontarget):
    points = [*OPERATING_POINTS.values()]
    _, actual, minimum = bayes_error_rates(target, nontarget, [point.log_odds for point in points])
    for k, point in enumerate(points):
        parameters = point.prior, point.cost_miss, point.cost_false_accept
        assert minimum[k] == pytest.approx(
            minimum_costs_of(error_curve(target, nontarget), {"it": point})["it"], abs=1e-12
        )
        # Beside the threshold itself, where rounding may put a ratio on either side.
        if min(abs(np.array(target + nontarget) - point.threshold)) > 1e-9 or point.threshold == 0.0:
            assert actual[k] == pytest.approx(actual_cost(target, nontarget, *parameters))
    _, actual, minimum = bayes_error_rates(target, nontarget)
    assert (minimum <= actual + 1e-12).all()
    assert (minimum <= 1 + 1e-12).all()


# Theory: unit Gaussians a distance d apart, whose likelihood ratios are N(d^2 / 2, d^2) and N(-d^2 / 2, d^2).


@pytest.mark.parametrize("distance", [1.0, 2.0, 3.0])
def test_true_likelihood_ratios_of_gaussians(distance):
    target, nontarget = true_llrs(distance, 100_000, 100_000)
    mean, spread = distance**2 / 2, distance
    expected, _ = quad(lambda x: norm.pdf(x, mean, spread) * np.logaddexp(0, -x) / math.log(2), -40, 40, points=[mean])
    assert log_likelihood_ratio_cost(target, nontarget) == pytest.approx(expected, abs=0.005)
    assert 0 <= log_likelihood_ratio_cost(target, nontarget) - minimum_cllr(target, nontarget) < 0.002
    for point in OPERATING_POINTS.values():
        rates = norm.cdf((-point.threshold - mean) / spread), norm.cdf((point.threshold - mean) / spread)
        actual = actual_cost(target, nontarget, point.prior, point.cost_miss, point.cost_false_accept)
        # At a prior of 1 % a single false accept of these costs 0.001.
        assert actual == pytest.approx(cost_at(point, *rates), abs=0.03)
        lowest = minimum_costs_of(error_curve(target, nontarget), {"it": point})["it"]
        assert lowest <= actual <= lowest + 0.03
