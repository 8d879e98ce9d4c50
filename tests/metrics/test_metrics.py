"""Error rates against hand-worked cases, brute force, scikit-learn and theory."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull
from scipy.stats import norm
from sklearn.metrics import roc_curve
from trial_scores import SCORES, TIED, gaussians

from pipeline.errors import InputError, MetricError
from pipeline.metrics import (
    ErrorRates,
    OperatingPoint,
    Unscored,
    actual_cost,
    affine_cllr,
    bayes_error_rates,
    bootstrap_interval,
    det_band,
    detection_cost,
    equal_error_rate,
    equal_error_rate_hull_of,
    equal_error_rate_of,
    error_curve,
    false_accept_at,
    false_reject_at,
    log_likelihood_ratio_cost,
    minimum_cllr,
    minimum_costs_of,
    rates_at,
    reliability,
    rule_of_three,
    score_histogram,
    threshold_at_false_accept,
)


def hull_rate(target, nontarget) -> float:
    return equal_error_rate_hull_of(error_curve(target, nontarget))


@pytest.mark.parametrize(
    ("target", "nontarget", "rate", "hull", "threshold"),
    [
        ([2, 3], [0, 1], 0.0, 0.0, 1.5),
        ([5.0], [5.0], 0.5, 0.5, 5.0),
        ([2, 2, 2], [2, 2], 0.5, 0.5, 2.0),
        ([1, 3], [0, 2], 0.5, 0.25, 1.5),
        ([-1, -3], [-4, -2], 0.5, 0.25, -2.5),
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
    result = equal_error_rate(target, nontarget)
    assert result.rate == pytest.approx(rate, abs=1e-15)
    assert result.threshold == pytest.approx(threshold)
    assert hull_rate(target, nontarget) == pytest.approx(hull, abs=1e-15)


def test_negative_zero_ties_with_zero():
    assert error_curve([0.0], [-0.0]).thresholds.tolist() == [0.0, np.inf]
    assert equal_error_rate([0.0], [-0.0]).rate == 0.5


@given(SCORES, SCORES)
def test_curve_equals_scikit_learn(target, nontarget):
    curve = error_curve(target, nontarget)
    labels = [1] * len(target) + [0] * len(nontarget)
    fpr, tpr, thresholds = roc_curve(labels, target + nontarget, drop_intermediate=False)
    np.testing.assert_array_equal(curve.thresholds, thresholds[::-1])
    np.testing.assert_allclose(curve.false_accept, fpr[::-1], atol=1e-15)
    np.testing.assert_allclose(curve.false_reject, 1 - tpr[::-1], atol=1e-15)
    for threshold, *rates in zip(curve.thresholds, curve.false_accept, curve.false_reject, strict=True):
        assert rates_at(target, nontarget, threshold) == ErrorRates(*rates)


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
    assert hull_rate(target, nontarget) == pytest.approx(expected, abs=1e-9)


@given(TIED, TIED)
def test_equal_error_rates_and_minima_see_only_the_order(target, nontarget):
    def minima(*scores):
        return equal_error_rate(*scores).rate, minimum_cllr(*scores), minimum_costs_of(error_curve(*scores))

    before = minima(target, nontarget)
    for monotone in (lambda x: 3 * x - 7, np.exp, np.arctan, lambda x: x**3):
        assert minima(monotone(np.array(target)), monotone(np.array(nontarget))) == before


@given(SCORES, SCORES)
def test_negating_and_swapping_changes_nothing(target, nontarget):
    mirrored = -np.array(nontarget), -np.array(target)
    assert equal_error_rate(*mirrored).rate == pytest.approx(equal_error_rate(target, nontarget).rate, abs=1e-12)
    assert hull_rate(*mirrored) == pytest.approx(hull_rate(target, nontarget), abs=1e-12)


@given(SCORES, SCORES)
def test_threshold_is_where_the_rates_change_places(target, nontarget):
    rate, threshold = (result := equal_error_rate(target, nontarget)).rate, result.threshold
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
        target, nontarget = gaussians(distance, 100_000, 100_000)
        expected = norm.cdf(-distance / 2)
        assert equal_error_rate(target, nontarget).rate == pytest.approx(expected, abs=0.003)
        assert hull_rate(target, nontarget) == pytest.approx(expected, abs=0.003)
        assert equal_error_rate(target, nontarget).threshold == pytest.approx(distance / 2, abs=0.02)


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


@given(SCORES, st.floats(0, 1), st.data())
def test_weights_of_trials_count_as_so_many_copies_of_them(nontarget, rate, data):
    copies = np.array(data.draw(st.lists(st.integers(1, 4), min_size=len(nontarget), max_size=len(nontarget))))
    weighed = threshold_at_false_accept(nontarget, rate, weights=copies.astype(float))
    assert weighed == threshold_at_false_accept(np.repeat(nontarget, copies), rate)


def test_threshold_at_false_accept_by_hand():
    scores = [1, 2, 2, 3]
    for rate, rejected in ((0.0, 3), (0.25, 2), (0.5, 2), (0.75, 1)):
        assert threshold_at_false_accept(scores, rate) == np.nextafter(rejected, np.inf)
    assert threshold_at_false_accept(scores, 1.0) == 1.0
    # 0.29 * 100 is 28.999999999999996 in floating point; 29 accepts are permitted all the same.
    assert rates_at([], range(100), threshold_at_false_accept(np.arange(100.0), 0.29)).false_accept == 0.29


# What the scores do not define.

FUNCTIONS = [
    error_curve,
    equal_error_rate,
    log_likelihood_ratio_cost,
    minimum_cllr,
    affine_cllr,
    lambda t, n: minimum_costs_of(error_curve(t, n)),
    bayes_error_rates,
    reliability,
    score_histogram,
    lambda t, n: detection_cost(t, n, prior=0.5),
    lambda t, n: actual_cost(t, n, 0.5),
    lambda t, n: bootstrap_interval(t, n, seed=0),
    lambda t, n: det_band(t, n, [0.1], seed=0),
]


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
        (np.ma.masked_invalid([1.0, math.nan]), [1.0], "target scores must not be masked"),
    ],
)
def test_unusable_scores_are_refused_by_class(target, nontarget, words):
    for function in FUNCTIONS:
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
        lambda: actual_cost([1.0], [0.0], 1.0),
        lambda: actual_cost([1.0], [0.0], 0.5, cost_miss=-1.0),
        lambda: OperatingPoint(math.nan),
        lambda: bayes_error_rates([1.0], [0.0], [101.0]),
        lambda: bayes_error_rates([1.0], [0.0], 0.0),
        lambda: reliability([1.0], [0.0], bins=0),
        lambda: reliability([1.0], [0.0], level=95),
        lambda: score_histogram([1.0], [0.0], bins=0),
        lambda: score_histogram([1.0], [0.0], limits=(1.0, 1.0)),
        lambda: score_histogram([1.0], [0.0], limits=(0.0, math.inf)),
        lambda: det_band([1.0], [0.0], [1.1], seed=0),
        lambda: det_band([1.0], [0.0], [math.nan], seed=0),
        lambda: det_band([1.0], [0.0], 0.5, seed=0),
        lambda: det_band([1.0], [0.0], [0.5], seed=0, level=95),
        lambda: det_band([1.0], [0.0], [0.5], seed=0, target_speakers=["a"]),
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


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("prior", lambda: OperatingPoint("0.05")),
        ("cost_miss", lambda: detection_cost([1.0], [0.0], prior=0.5, cost_miss=None)),
        ("prior", lambda: actual_cost([1.0], [0.0], "0.5")),
        ("threshold", lambda: rates_at([1.0], [0.0], None)),
        ("false accept rate", lambda: threshold_at_false_accept([1.0], "1%")),
        ("level", lambda: bootstrap_interval([1.0], [0.0], seed=0, level="95")),
        ("samples", lambda: bootstrap_interval([1.0], [0.0], seed=0, samples=10.5)),
        ("seed", lambda: bootstrap_interval([1.0], [0.0], seed=None)),
        ("seed", lambda: bootstrap_interval([1.0], [0.0], seed=0.5)),
        ("point", lambda: bootstrap_interval([1.0], [0.0], seed=0, point=0.5)),
        ("curve", lambda: false_reject_at([1.0, 2.0], 0.01)),
        ("curve", lambda: false_accept_at(None, 0.01)),
        ("curve", lambda: equal_error_rate_of("curve")),
        ("bins", lambda: reliability([1.0], [0.0], bins=2.5)),
        ("bins", lambda: score_histogram([1.0], [0.0], bins=None)),
        ("trials", lambda: rule_of_three("300")),
        ("nontarget", lambda: Unscored(nontarget=0.5)),
    ],
)
def test_parameters_that_are_no_numbers_are_refused_by_name(name, call):
    with pytest.raises(InputError, match=rf"^{name}: .* was expected, got (str|NoneType|float|list)$"):
        call()


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(10**400)], ids=["high", "low", "fraction"])
def test_numbers_beyond_floats_are_refused(value):
    for call in (lambda: OperatingPoint(0.5, value), lambda: rates_at([1.0], [0.0], value)):
        with pytest.raises(InputError, match="a number beyond what a float holds"):
            call()


def test_a_seed_below_zero_and_speakers_and_rates_that_are_no_rows_are_refused():
    with pytest.raises(InputError, match="seed: a whole number of at least 0 was expected, got -1"):
        bootstrap_interval([1.0], [0.0], seed=-1)
    with pytest.raises(MetricError, match="speakers must form one array"):
        bootstrap_interval([1.0, 2.0], [0.0], seed=0, target_speakers=["a", ["b"]], nontarget_speakers=["a"])
    with pytest.raises(MetricError, match="false accept rates must be real numbers"):
        det_band([1.0], [0.0], ["1%"], seed=0)
    with pytest.raises(MetricError, match="log odds must be finite"):
        bayes_error_rates([1.0], [0.0], [float("nan")])


def test_a_speaker_without_a_name_is_refused():
    names = {"target_speakers": np.array(["a", None]), "nontarget_speakers": ["a"]}
    with pytest.raises(MetricError, match=r"speakers must all be texts or all be numbers.* a missing name"):
        bootstrap_interval([1.0, 2.0], [0.0], seed=0, **names)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8, np.uint8, pa.array])
def test_scores_of_any_numbers_are_those_of_python(kind):
    target, nontarget = [3, 7, 7, 9], [0, 1, 7, 3, 2]
    assert equal_error_rate(kind(target), kind(nontarget)) == equal_error_rate(target, nontarget)
    assert OperatingPoint(np.float16(0.25), np.int8(2)).threshold == OperatingPoint(0.25, 2).threshold


@given(scores=st.lists(st.floats(-5, 5), min_size=2, max_size=30), data=st.data())
def test_labels_in_place_of_a_class_are_refused_on_either_side(scores, data):
    labels = data.draw(st.permutations([0, 1] + [1] * (len(scores) - 2)))
    for order in ((labels, scores), (scores, labels)):
        with pytest.raises(MetricError, match=r"labels, 0 and 1, and as many scores; give scores\[labels == 1\]"):
            equal_error_rate(*order)
    split = [[score for score, label in zip(scores, labels, strict=True) if label == kind] for kind in (1, 0)]
    assert 0.0 <= equal_error_rate(*split).rate <= 1.0
