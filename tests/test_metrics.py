"""Error rates against hand-worked cases, brute force, scikit-learn and theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull
from scipy.stats import norm
from sklearn.metrics import auc, roc_auc_score, roc_curve

from pipeline.errors import MetricError
from pipeline.evaluation import (
    ErrorRates,
    bootstrap_interval,
    detection_cost,
    equal_error_rate,
    equal_error_rate_hull,
    error_curve,
    log_likelihood_ratio_cost,
    rates_at,
    threshold_at_false_accept,
)
from pipeline.evaluation.bootstrap import _eer_replicate

# Few distinct values, so that ties are common.
TIED = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12)
FREE = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)
SCORES = TIED | FREE


def gaussians(distance: float, targets: int, nontargets: int, seed: int = 0):
    generator = np.random.default_rng(seed)
    return generator.normal(distance, 1, targets), generator.normal(0, 1, nontargets)


# Worked by hand.


@pytest.mark.parametrize(
    ("target", "nontarget", "rate", "hull", "threshold"),
    [
        ([2, 3], [0, 1], 0.0, 0.0, 1.5),
        ([5.0], [5.0], 0.5, 0.5, 5.0),
        ([2, 2, 2], [2, 2], 0.5, 0.5, 2.0),
        ([1, 3], [0, 2], 0.5, 0.25, 1.5),
        ([0.0], [1.0], 1.0, 0.5, 0.5),
        # FA, FR: (1, 0), (1/2, 0), (1/2, 1), (0, 1): FR leaps over FA at the only target.
        ([1.0], [0.0, 2.0], 0.5, 1 / 3, 1.0),
        # (1, 0), (1/2, 0), (0, 1/3), (0, 2/3), (0, 1): the tie at 1 is a chord that meets FA = FR at 1/5.
        ([1, 2, 3], [0, 1], 0.2, 0.2, 1.0),
        # One error of each kind among four of each.
        ([0.5, 4, 5, 6], [-3, -2, -1, 2], 0.25, 0.125, 1.25),
    ],
)
def test_equal_error_rate_by_hand(target, nontarget, rate, hull, threshold):
    found = equal_error_rate(target, nontarget)
    assert found.rate == pytest.approx(rate, abs=1e-15)
    assert found.threshold == pytest.approx(threshold)
    assert equal_error_rate_hull(target, nontarget) == pytest.approx(hull, abs=1e-15)


def test_curve_by_hand():
    curve = error_curve([1, 3, 3], [0, 1])
    assert curve.thresholds.tolist() == [0, 1, 3, np.inf]
    assert curve.false_accept.tolist() == [1, 0.5, 0, 0]
    assert curve.false_reject == pytest.approx([0, 0, 1 / 3, 1])


def test_negative_zero_ties_with_zero():
    assert error_curve([0.0], [-0.0]).thresholds.tolist() == [0.0, np.inf]
    assert equal_error_rate([0.0], [-0.0]).rate == 0.5


# Against other ways to the same number.


@given(SCORES, SCORES)
def test_curve_equals_counting(target, nontarget):
    curve = error_curve(target, nontarget)
    assert curve.thresholds.tolist() == [*sorted(set(target) | set(nontarget)), np.inf]
    for t, fa, fr in zip(curve.thresholds, curve.false_accept, curve.false_reject, strict=True):
        assert fa == sum(score >= t for score in nontarget) / len(nontarget)
        assert fr == sum(score < t for score in target) / len(target)
        assert rates_at(target, nontarget, t) == ErrorRates(fa, fr)


@given(SCORES, SCORES)
def test_curve_equals_scikit_learn(target, nontarget):
    curve = error_curve(target, nontarget)
    labels = [1] * len(target) + [0] * len(nontarget)
    fpr, tpr, thresholds = roc_curve(labels, target + nontarget, drop_intermediate=False)
    np.testing.assert_array_equal(curve.thresholds, thresholds[::-1])
    np.testing.assert_allclose(curve.false_accept, fpr[::-1], atol=1e-15)
    np.testing.assert_allclose(curve.false_reject, 1 - tpr[::-1], atol=1e-15)
    area = auc(curve.false_accept, 1 - curve.false_reject)
    assert area == pytest.approx(roc_auc_score(labels, target + nontarget))


@given(SCORES, SCORES)
def test_equal_error_rate_lies_on_the_polyline(target, nontarget):
    curve = error_curve(target, nontarget)
    rate = equal_error_rate(target, nontarget).rate
    points = np.column_stack([curve.false_accept, curve.false_reject])
    starts, ends = points[:-1], points[1:]
    along = np.clip(np.sum((rate - starts) * (ends - starts), axis=1) / np.sum((ends - starts) ** 2, axis=1), 0, 1)
    distances = np.linalg.norm(starts + along[:, None] * (ends - starts) - rate, axis=1)
    assert distances.min() < 1e-12


@given(SCORES, SCORES)
def test_hull_rate_equals_the_geometric_hull(target, nontarget):
    curve = error_curve(target, nontarget)
    # The corner (1, 1) closes the hull without touching its lower side.
    points = np.column_stack([np.append(curve.false_accept, 1), np.append(curve.false_reject, 1)])
    # Each facet says a.FA + b.FR + c <= 0 inside: on FA = FR = r that bounds r by -c / (a + b).
    planes = ConvexHull(points).equations
    slopes = planes[:, 0] + planes[:, 1]
    lower = slopes < -1e-12
    expected = np.max(-planes[lower, 2] / slopes[lower])
    assert equal_error_rate_hull(target, nontarget) == pytest.approx(expected, abs=1e-9)


# Laws.


@given(SCORES, SCORES)
def test_hull_never_exceeds_interpolation(target, nontarget):
    hull = equal_error_rate_hull(target, nontarget)
    assert 0 <= hull <= min(0.5, equal_error_rate(target, nontarget).rate) + 1e-12


@given(TIED, TIED)
def test_equal_error_rate_sees_only_the_order(target, nontarget):
    before = equal_error_rate(target, nontarget).rate
    for monotone in (lambda x: 3 * x - 7, np.exp, np.arctan, lambda x: x**3):
        assert equal_error_rate(monotone(np.array(target)), monotone(np.array(nontarget))).rate == before


@given(SCORES, SCORES)
def test_negating_and_swapping_changes_nothing(target, nontarget):
    mirrored = -np.array(nontarget), -np.array(target)
    assert equal_error_rate(*mirrored).rate == pytest.approx(equal_error_rate(target, nontarget).rate, abs=1e-12)
    assert equal_error_rate_hull(*mirrored) == pytest.approx(equal_error_rate_hull(target, nontarget), abs=1e-12)


@given(SCORES, SCORES, st.randoms())
def test_order_of_trials_does_not_matter(target, nontarget, random):
    before = equal_error_rate(target, nontarget)
    random.shuffle(target)
    random.shuffle(nontarget)
    assert equal_error_rate(target, nontarget) == before


@given(SCORES, SCORES)
def test_threshold_is_where_the_rates_change_places(target, nontarget):
    rate, threshold = (found := equal_error_rate(target, nontarget)).rate, found.threshold
    assert math.isfinite(threshold)
    at = rates_at(target, nontarget, threshold)
    above = rates_at(target, nontarget, np.nextafter(threshold, np.inf))
    assert at.false_accept >= rate - 1e-12 >= at.false_reject - 2e-12
    assert above.false_accept - 1e-12 <= rate <= above.false_reject + 1e-12 or at == above


def test_threshold_survives_scores_near_the_largest_and_the_closest_floats():
    largest = np.finfo(float).max
    assert equal_error_rate([largest], [largest / 2]).threshold == pytest.approx(0.75 * largest)
    neighbour = np.nextafter(1.0, 2.0)
    assert equal_error_rate([neighbour], [1.0]).threshold == neighbour


def test_gaussian_theory():
    for distance in (1.0, 2.0, 3.0):
        target, nontarget = gaussians(distance, 200_000, 200_000)
        expected = norm.cdf(-distance / 2)
        assert equal_error_rate(target, nontarget).rate == pytest.approx(expected, abs=0.002)
        assert equal_error_rate_hull(target, nontarget) == pytest.approx(expected, abs=0.002)
        assert equal_error_rate(target, nontarget).threshold == pytest.approx(distance / 2, abs=0.02)


# Operating points.


def test_rates_with_an_empty_side():
    assert rates_at([], [0.0, 1.0], 1.0) == ErrorRates(0.5, None)
    assert rates_at([0.0, 1.0], [], 1.0) == ErrorRates(None, 0.5)
    assert rates_at([0.0], [1.0], math.inf) == ErrorRates(0.0, 1.0)
    assert rates_at([0.0], [1.0], -math.inf) == ErrorRates(1.0, 0.0)


@given(SCORES, st.floats(0, 1))
def test_threshold_at_false_accept_is_the_lowest(nontarget, rate):
    threshold = threshold_at_false_accept(nontarget, rate)
    assert math.isfinite(threshold)
    assert rates_at([], nontarget, threshold).false_accept <= rate
    below = rates_at([], nontarget, np.nextafter(threshold, -np.inf)).false_accept
    assert below > rate or below == 1.0


def test_threshold_at_false_accept_by_hand():
    scores = [1, 2, 2, 3]
    assert threshold_at_false_accept(scores, 0.0) == np.nextafter(3, np.inf)
    assert threshold_at_false_accept(scores, 0.25) == np.nextafter(2, np.inf)
    assert threshold_at_false_accept(scores, 0.5) == np.nextafter(2, np.inf)
    assert threshold_at_false_accept(scores, 0.75) == np.nextafter(1, np.inf)
    assert threshold_at_false_accept(scores, 1.0) == 1.0


def test_threshold_at_false_accept_keeps_every_permitted_trial():
    # 0.29 * 100 is 28.999999999999996 in floating point; 29 accepts are permitted all the same.
    scores = np.arange(100.0)
    assert rates_at([], scores, threshold_at_false_accept(scores, 0.29)).false_accept == 0.29


@given(SCORES, SCORES, st.floats(0.001, 0.999), st.floats(0.1, 10), st.floats(0.1, 10))
def test_detection_cost_equals_trying_every_threshold(target, nontarget, prior, miss, accept):
    found = detection_cost(target, nontarget, prior=prior, cost_miss=miss, cost_false_accept=accept)

    def cost(threshold: float) -> float:
        rates = rates_at(target, nontarget, threshold)
        paid = miss * prior * rates.false_reject + accept * (1 - prior) * rates.false_accept
        return paid / min(miss * prior, accept * (1 - prior))

    assert found.cost == pytest.approx(min(map(cost, [*target, *nontarget, math.inf])))
    assert math.isfinite(found.threshold)
    assert cost(found.threshold) == pytest.approx(found.cost)
    assert 0 <= found.cost <= 1 + 1e-12


def test_detection_cost_by_hand():
    # At threshold 2: FR 1/2, FA 0. The costs are 0.1 * 0.5 over min(0.1, 0.9).
    assert detection_cost([0, 2], [0, 1], prior=0.1).cost == pytest.approx(0.5)
    assert detection_cost([0, 2], [0, 1], prior=0.1).threshold == 1.5
    assert detection_cost([2, 3], [0, 1], prior=0.01).cost == 0.0
    assert detection_cost([0.0], [1.0], prior=0.01).threshold == np.nextafter(1, np.inf)


# Cllr.


def test_cllr_of_silence_is_one_bit():
    assert log_likelihood_ratio_cost(np.zeros(3), np.zeros(7)) == pytest.approx(1.0, abs=1e-15)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=9), st.lists(st.floats(-30, 30), min_size=1, max_size=9))
def test_cllr_equals_its_formula(target, nontarget):
    miss = sum(math.log2(1 + math.exp(-s)) for s in target) / len(target)
    accept = sum(math.log2(1 + math.exp(s)) for s in nontarget) / len(nontarget)
    assert log_likelihood_ratio_cost(target, nontarget) == pytest.approx((miss + accept) / 2, abs=1e-12)


def test_cllr_neither_overflows_nor_loses_small_costs():
    assert log_likelihood_ratio_cost([-1e6], [1e6]) == pytest.approx(1e6 / math.log(2))
    assert log_likelihood_ratio_cost([1e6], [-1e6]) == 0.0
    assert log_likelihood_ratio_cost([50.0], [-50.0]) == pytest.approx(math.exp(-50) / math.log(2), rel=1e-9)


def test_cllr_is_lowest_for_the_true_likelihood_ratios():
    target, nontarget = gaussians(2.0, 20_000, 20_000)
    llr_target, llr_nontarget = 2 * target - 2, 2 * nontarget - 2  # log N(x; 2, 1) / N(x; 0, 1)
    best = log_likelihood_ratio_cost(llr_target, llr_nontarget)
    for scale, shift in ((0.5, 0), (2, 0), (1, 1), (1, -1)):
        assert log_likelihood_ratio_cost(scale * llr_target + shift, scale * llr_nontarget + shift) > best


# What the scores do not define.

FUNCTIONS = [
    error_curve,
    equal_error_rate,
    equal_error_rate_hull,
    log_likelihood_ratio_cost,
    lambda t, n: detection_cost(t, n, prior=0.5),
    lambda t, n: bootstrap_interval(t, n, seed=0),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("target", "nontarget", "words"),
    [
        ([], [1.0], "no target scores"),
        ([1.0], [], "no nontarget scores"),
        ([1.0, math.nan], [1.0], "target scores must be finite, got nan at index 1"),
        ([1.0], [-math.inf], "nontarget scores must be finite, got -inf at index 0"),
        ([[1.0]], [1.0], r"target scores must be one-dimensional, got shape \(1, 1\)"),
        (1.0, [1.0], "one-dimensional"),
        ([1.0], ["a"], "nontarget scores must be real numbers"),
        ([True], [1.0], "real numbers, got bool"),
        ([1j], [1.0], "real numbers, got complex"),
        ([[1.0], [1.0, 2.0]], [1.0], "target scores must form one array"),
    ],
)
def test_unusable_scores_are_refused_by_class(function, target, nontarget, words):
    with pytest.raises(MetricError, match=words):
        function(target, nontarget)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rates_at([1.0], [0.0], math.nan),
        lambda: threshold_at_false_accept([1.0], 5),
        lambda: threshold_at_false_accept([1.0], -0.1),
        lambda: threshold_at_false_accept([1.0], math.nan),
        lambda: threshold_at_false_accept([], 0.1),
        lambda: detection_cost([1.0], [0.0], prior=0.0),
        lambda: detection_cost([1.0], [0.0], prior=1.0),
        lambda: detection_cost([1.0], [0.0], prior=0.5, cost_miss=0),
        lambda: detection_cost([1.0], [0.0], prior=0.5, cost_false_accept=math.inf),
        lambda: bootstrap_interval([1.0], [0.0], seed=0, level=95),
        lambda: bootstrap_interval([1.0], [0.0], seed=0, samples=1),
        lambda: bootstrap_interval([1.0], [0.0], seed=0, statistic="auc"),
        lambda: bootstrap_interval([1.0], [0.0], seed=0, target_speakers=["a"]),
        lambda: bootstrap_interval([1.0], [0.0], seed=0, nontarget_speakers=["a"]),
        lambda: bootstrap_interval([1.0], [0.0], seed=0, target_speakers=["a", "b"], nontarget_speakers=["a"]),
        lambda: bootstrap_interval([1.0], [0.0], seed=0, target_speakers=["a"], nontarget_speakers=["a"]),
    ],
)
def test_parameters_out_of_range_are_refused(call):
    with pytest.raises(MetricError):
        call()


# Bootstrap.


@given(st.data())
def test_counted_replicate_equals_the_resample_spelt_out(data):
    target, nontarget = np.array(data.draw(SCORES)), np.array(data.draw(SCORES))

    def draw_weights(n: int):
        return np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any)))

    weights = draw_weights(target.size), draw_weights(nontarget.size)
    spelt_out = np.repeat(target, weights[0]), np.repeat(nontarget, weights[1])
    assert _eer_replicate(target, nontarget)(*weights) == pytest.approx(equal_error_rate(*spelt_out).rate, abs=1e-12)


def naive_interval(target, nontarget, samples, seed, statistic=lambda t, n: equal_error_rate(t, n).rate):
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(samples):
        drawn = generator.choice(target, len(target)), generator.choice(nontarget, len(nontarget))
        values.append(statistic(*drawn))
    return np.quantile(values, [0.025, 0.975])


@pytest.mark.parametrize("rounding", [0, 6])
def test_bootstrap_agrees_with_resampling_and_sorting_again(rounding):
    target, nontarget = (np.round(s, rounding) for s in gaussians(1.5, 60, 200))
    found = bootstrap_interval(target, nontarget, seed=1, samples=4000)
    expected = naive_interval(target, nontarget, 4000, 2)
    assert (found.low, found.high) == pytest.approx(expected, abs=0.012)
    found = bootstrap_interval(target, nontarget, seed=1, samples=4000, statistic="cllr")
    expected = naive_interval(target, nontarget, 4000, 2, log_likelihood_ratio_cost)
    assert (found.low, found.high) == pytest.approx(expected, abs=0.03)


def test_speaker_bootstrap_agrees_with_gathering_their_trials():
    generator = np.random.default_rng(5)
    names = np.array([f"s{k}" for k in range(12)])
    offsets = generator.normal(0, 1, 12)
    of_target, of_nontarget = np.repeat(np.arange(12), 5), np.repeat(np.arange(12), 20)
    target = generator.normal(2, 0.5, 60) + offsets[of_target]
    nontarget = generator.normal(0, 0.5, 240) + offsets[of_nontarget]
    found = bootstrap_interval(
        target,
        nontarget,
        seed=1,
        samples=3000,
        target_speakers=names[of_target],
        nontarget_speakers=names[of_nontarget],
    )
    values = []
    for _ in range(3000):
        drawn = generator.integers(12, size=12)
        values.append(
            equal_error_rate(
                np.concatenate([target[of_target == k] for k in drawn]),
                np.concatenate([nontarget[of_nontarget == k] for k in drawn]),
            ).rate
        )
    assert (found.low, found.high) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.012)
    # Speakers differ more than trials do here, so ignoring them claims too much.
    by_trial = bootstrap_interval(target, nontarget, seed=1, samples=3000)
    assert found.high - found.low > 1.25 * (by_trial.high - by_trial.low)


def test_bootstrap_covers_the_analytic_rate_about_as_often_as_it_says():
    truth = norm.cdf(-1.0)
    intervals = [
        bootstrap_interval(*gaussians(2.0, 80, 400, seed=k), seed=k, level=0.9, samples=100) for k in range(200)
    ]
    covered = np.mean([interval.low <= truth <= interval.high for interval in intervals])
    assert 0.82 <= covered <= 0.96


def test_bootstrap_is_reproducible_and_widens_with_the_level():
    target, nontarget = gaussians(1.5, 40, 100)
    found = bootstrap_interval(target, nontarget, seed=3)
    assert found == bootstrap_interval(target, nontarget, seed=3)
    assert found != bootstrap_interval(target, nontarget, seed=4)
    wider = bootstrap_interval(target, nontarget, seed=3, level=0.99)
    assert wider.low <= found.low < equal_error_rate(target, nontarget).rate < found.high <= wider.high
    assert wider.level == 0.99


def test_draws_without_one_class_are_drawn_again():
    # Half of all draws hold a single speaker, and with it a single class.
    found = bootstrap_interval(
        [1.0, 2.0], [0.0, 1.5], seed=0, target_speakers=["a", "a"], nontarget_speakers=["b", "b"]
    )
    assert found.low == found.high == equal_error_rate([1.0, 2.0], [0.0, 1.5]).rate


def test_perfect_separation_has_an_interval_of_zero():
    found = bootstrap_interval([3.0, 4.0], [0.0, 1.0], seed=0)
    assert (found.low, found.high) == (0.0, 0.0)
