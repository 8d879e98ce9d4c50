"""Intervals of log-likelihood ratios: how often they hold the true ratio, and the Hessian by differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from pipeline.scoring.uncertainty import OFFSET_SPREAD, SLOPE_SPREAD, RatioUncertainty

PRIOR = 0.05


def likelihood(a: float, b: float, target: np.ndarray, nontarget: np.ndarray, weight: float) -> float:
    """The negative log likelihood of the regression."""
    shift = np.log(len(target) / (weight * len(nontarget)))
    misses = np.logaddexp(0, -(a + b * target + shift)).sum()
    return misses + weight * np.logaddexp(0, a + b * nontarget + shift).sum()


def loss(a: float, b: float, *trials) -> float:
    """The same with the priors of both numbers."""
    return likelihood(a, b, *trials) + (a / OFFSET_SPREAD) ** 2 / 2 + ((b - 1) / SLOPE_SPREAD) ** 2 / 2


def weight_of(targets: int, nontargets: int) -> float:
    return min(1.0, targets * (1 - PRIOR) / PRIOR / nontargets)


@pytest.mark.parametrize("targets", [5, 40])
def test_the_covariance_is_the_inverse_of_the_numerical_hessian(targets):
    rng = np.random.default_rng(targets)
    target, nontarget = rng.normal(3, 2.4, targets), rng.normal(-3, 2.4, 20 * targets)
    found = RatioUncertainty.of(target, nontarget, prior=PRIOR)
    weight, step = weight_of(targets, 20 * targets), 1e-3
    hessian = np.empty((2, 2))
    for i, e in enumerate(np.eye(2) * step):
        for j, f in enumerate(np.eye(2) * step):
            corners = [(1, e + f), (-1, e - f), (-1, f - e), (1, -e - f)]
            hessian[i, j] = sum(s * loss(d[0], 1 + d[1], target, nontarget, weight) for s, d in corners) / (4 * step**2)
    covariance = np.linalg.inv(hessian)
    assert [found.offset, found.both, found.slope] == pytest.approx(
        [covariance[0, 0], covariance[0, 1], covariance[1, 1]], rel=1e-4
    )
    assert found.targets == targets


@pytest.mark.parametrize("targets", [20, 200])
def test_intervals_hold_the_true_ratio_about_as_often_as_they_say(targets):
    """Unit normal classes, 2.5 apart: their ratio is known, and a calibration is fitted to each draw of trials."""
    rng, distance, held = np.random.default_rng(0), 2.5, []
    for _ in range(150):
        target, nontarget = rng.normal(distance, 1, targets), rng.normal(0, 1, 10 * targets)
        weight = weight_of(targets, 10 * targets)
        a, b = minimize(lambda p, *of: likelihood(*p, *of), [0.0, 1.0], (target, nontarget, weight)).x
        uncertainty = RatioUncertainty.of(a + b * target, a + b * nontarget, prior=PRIOR)
        for score in (0.5, 1.25, 2.5, 3.5):
            low, high = uncertainty.interval(a + b * score)
            held.append(low <= distance * score - distance**2 / 2 <= high)
    assert 0.9 <= np.mean(held) <= 0.99


def test_more_trials_leave_less_doubt_and_ratios_beyond_them_more():
    few, many = (RatioUncertainty.of(np.linspace(1, 9, n), np.linspace(-9, 0, 20 * n), prior=PRIOR) for n in (10, 500))
    assert many.deviation(4.0) < few.deviation(4.0)
    assert many.deviation(2.0) < many.deviation(9.0) < many.deviation(30.0)
    alone = RatioUncertainty.of(np.array([4.0]), np.array([-4.0]), prior=PRIOR)
    assert alone.deviation(4.0) > 1.5
