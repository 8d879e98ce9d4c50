"""Intervals by resampling: counted replicates against resamples spelt out, and coverage against theory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from score_rows import ScoreRow, scores_from
from trial_scores import SCORES, gaussians

from pipeline.errors import InputError, MetricError
from pipeline.evaluation import SystemScores, paired_bootstrap
from pipeline.metrics import (
    MAIN_POINT,
    OPERATING_POINTS,
    bootstrap_interval,
    det_band,
    detection_cost,
    equal_error_rate,
    error_curve,
    log_likelihood_ratio_cost,
    minimum_cllr,
    minimum_costs_of,
)
from pipeline.metrics.bootstrap import miss_rates_at, replicate_of

DIRECT = {
    "eer": lambda t, n: equal_error_rate(t, n).rate,
    "min_dcf": lambda t, n: detection_cost(t, n, prior=OPERATING_POINTS[MAIN_POINT].prior).cost,
    "cllr": log_likelihood_ratio_cost,
    "min_cllr": minimum_cllr,
}


def drawn_weights(data, n: int):
    return np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any)))


@pytest.mark.parametrize("statistic", DIRECT)
@settings(max_examples=50)
@given(st.data())
def test_counted_replicate_equals_the_resample_spelt_out(statistic, data):
    target, nontarget = np.array(data.draw(SCORES)), np.array(data.draw(SCORES))
    weights = drawn_weights(data, target.size), drawn_weights(data, nontarget.size)
    spelt_out = np.repeat(target, weights[0]), np.repeat(nontarget, weights[1])
    for point in OPERATING_POINTS.values():
        result = replicate_of(statistic, target, nontarget, point)(*weights)
        lowest = minimum_costs_of(error_curve(*spelt_out), {"it": point})["it"]
        direct = lowest if statistic == "min_dcf" else DIRECT[statistic](*spelt_out)
        assert result == pytest.approx(direct, rel=1e-9, abs=1e-12)


def miss_rate(target, nontarget, rate: float) -> float:
    """FR at one FA by walking along the curve."""
    curve = error_curve(target, nontarget)
    for k, accepted in enumerate(curve.false_accept):
        if accepted == rate:
            return curve.false_reject[k]
        if accepted < rate:
            before = curve.false_accept[k - 1], curve.false_reject[k - 1]
            along = (before[0] - rate) / (before[0] - accepted)
            return before[1] + along * (curve.false_reject[k] - before[1])
    raise AssertionError


@settings(max_examples=50)
@given(st.data(), st.lists(st.floats(0, 1) | st.sampled_from([0, 0.25, 0.5, 1]), min_size=1, max_size=5))
def test_counted_miss_rates_equal_those_of_the_resample_spelt_out(data, rates):
    target, nontarget = np.array(data.draw(SCORES)), np.array(data.draw(SCORES))
    weights = drawn_weights(data, target.size), drawn_weights(data, nontarget.size)
    spelt_out = np.repeat(target, weights[0]), np.repeat(nontarget, weights[1])
    result = miss_rates_at(target, nontarget, np.array(rates))(*weights)
    assert result == pytest.approx([miss_rate(*spelt_out, rate) for rate in rates], abs=1e-12)


# Intervals.


def speakers_who_differ() -> tuple[tuple[np.ndarray, ...], dict[str, np.ndarray]]:
    """Scores of 12 speakers with 5 target and 20 nontarget trials each, and whose they are."""
    generator = np.random.default_rng(5)
    offsets = generator.normal(0, 1, 12)
    of_target, of_nontarget = np.repeat(np.arange(12), 5), np.repeat(np.arange(12), 20)
    scores = generator.normal(2, 0.5, 60) + offsets[of_target], generator.normal(0, 0.5, 240) + offsets[of_nontarget]
    return scores, {"target_speakers": of_target, "nontarget_speakers": of_nontarget}


def test_speaker_bootstrap_agrees_with_gathering_their_trials():
    scores, speakers = speakers_who_differ()
    result = bootstrap_interval(*scores, seed=1, samples=1500, **speakers)
    generator, values = np.random.default_rng(6), []
    for _ in range(1500):
        drawn = generator.integers(12, size=12)
        gathered = (
            np.concatenate([side[of == k] for k in drawn]) for side, of in zip(scores, speakers.values(), strict=True)
        )
        values.append(equal_error_rate(*gathered).rate)
    assert (result.low, result.high) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.02)
    # Speakers differ more than trials do here, so ignoring them claims too much.
    by_trial = bootstrap_interval(*scores, seed=1, samples=1500)
    assert result.high - result.low > 1.25 * (by_trial.high - by_trial.low)
    bands = [det_band(*scores, [0.1, 0.3], seed=1, **of) for of in (speakers, {})]
    assert np.mean(bands[0].high - bands[0].low) > 1.2 * np.mean(bands[1].high - bands[1].low)


def test_intervals_and_bands_cover_the_analytic_rates_about_as_often_as_they_say():
    rates = np.array([0.05, 0.2])
    truth, missed = norm.cdf(-1.0), norm.cdf(norm.isf(rates) - 2.0)
    covered = []
    for k in range(150):
        scores, asked = gaussians(2.0, 80, 400, seed=k), {"seed": k, "level": 0.9, "samples": 100}
        interval, band = bootstrap_interval(*scores, **asked), det_band(*scores, rates, **asked)
        covered.append([interval.low <= truth <= interval.high, *((band.low <= missed) & (missed <= band.high))])
    shares = np.mean(covered, axis=0)
    assert ((shares >= 0.8) & (shares <= 0.97)).all()


def test_a_band_has_both_ends_of_the_curve():
    band = det_band([2.0, 3.0], [0.0, 1.0], [0.0, 1.0], seed=0, samples=20)
    assert band.low.tolist() == band.high.tolist() == [0.0, 0.0]


def test_bootstrap_is_reproducible_and_widens_with_the_level():
    target, nontarget = gaussians(1.5, 40, 100)
    result = bootstrap_interval(target, nontarget, seed=3)
    assert result == bootstrap_interval(target, nontarget, seed=3)
    assert result != bootstrap_interval(target, nontarget, seed=4)
    wider = bootstrap_interval(target, nontarget, seed=3, level=0.99)
    assert wider.low <= result.low < equal_error_rate(target, nontarget).rate < result.high <= wider.high
    assert wider.level == 0.99


def test_draws_without_one_class_are_drawn_again():
    # Half of all draws hold a single speaker, and with it a single class.
    result = bootstrap_interval(
        [1.0, 2.0], [0.0, 1.5], seed=0, target_speakers=["a", "a"], nontarget_speakers=["b", "b"]
    )
    assert result.low == result.high == equal_error_rate([1.0, 2.0], [0.0, 1.5]).rate


# Two systems on the same trials.


def system(target, nontarget, *, names=12, llr=None, order=None) -> SystemScores:
    """Scores of trials whose speakers take turns; ``order`` lists them otherwise, ``llr`` calibrates them."""
    rows = [
        ScoreRow("A", f"s{k % names}", f"{side}{k}", float(score), side == "t", None if llr is None else llr * score)
        for side, scores in (("t", target), ("n", nontarget))
        for k, score in enumerate(scores)
    ]
    return scores_from(rows if order is None else [rows[k] for k in order])


@pytest.mark.parametrize("statistic", DIRECT)
def test_paired_difference_agrees_with_gathering_the_same_speakers_trials_twice(statistic):
    first = gaussians(1.5, 60, 240)
    noise = gaussians(0.0, 60, 240, seed=3)
    second = tuple(side + 0.7 * extra for side, extra in zip(first, noise, strict=True))
    result = paired_bootstrap(
        system(*first, llr=1.0), system(*second, llr=1.0), seed=1, statistic=statistic, samples=1000
    )
    value = DIRECT[statistic]
    assert (result.first, result.second) == pytest.approx((value(*first), value(*second)), abs=1e-12)
    assert result.difference == pytest.approx(value(*second) - value(*first), abs=1e-12)
    generator = np.random.default_rng(2)
    of = np.arange(60) % 12, np.arange(240) % 12
    differences = []
    for _ in range(1000):
        drawn = generator.integers(12, size=12)
        at = [np.concatenate([np.flatnonzero(side == k) for k in drawn]) for side in of]
        one, other = ([side[its] for side, its in zip(pair, at, strict=True)] for pair in (first, second))
        differences.append(value(*other) - value(*one))
    expected = np.quantile(differences, [0.025, 0.975])
    assert (result.interval.low, result.interval.high) == pytest.approx(expected, abs=0.02)
    assert result.share_below_zero == pytest.approx(np.mean(np.array(differences) < 0), abs=0.06)


def test_a_system_does_not_differ_from_itself_in_another_order_or_unit():
    target, nontarget = gaussians(1.5, 30, 90)
    other = system(3 * target + 1, 3 * nontarget + 1, order=np.random.default_rng(0).permutation(120))
    result = paired_bootstrap(system(target, nontarget), other, seed=1)
    assert (result.difference, result.interval.low, result.interval.high, result.share_below_zero) == (0, 0, 0, 0)
    assert (result.n_target, result.n_nontarget, result.unmatched) == (30, 90, 0)


def test_only_trials_that_both_scored_count_and_repeats_pair_up():
    rows = [
        ScoreRow("A", *trial)
        for trial in (
            ("a", "1", 3.0, True),
            ("a", "1", 1.0, True),
            ("a", "2", 0.0, False),
            ("b", "2", 4.0, True),
            ("b", "1", 2.0, False),
            ("b", "3", 9.0, False),
        )
    ]
    # The other system lacks the last row and one of the repeats, and has a trial of its own.
    rest = [rows[4], rows[0], rows[3], rows[2], ScoreRow("A", "b", "4", -9.0, True)]
    result = paired_bootstrap(scores_from(rows), scores_from(rest), seed=1)
    assert (result.n_target, result.n_nontarget, result.unmatched) == (2, 2, 3)
    # Targets {3, 4}, nontargets {0, 2} for both: the repeat with score 1 has no partner.
    assert result.first == result.second == 0.0


def test_systems_that_cannot_be_compared_are_refused():
    one = system(*gaussians(1.5, 30, 90))
    elsewhere = SystemScores(one.speakers, one.speakers, one.scores, one.is_target)
    for other, keywords, words in (
        (elsewhere, {}, "no target scores"),
        (one, {"statistic": "cllr"}, "log-likelihood ratios"),
        (one, {"statistic": "auc"}, "statistic must be one of"),
        (one, {"samples": 1}, "at least 2 samples"),
        (one, {"level": 95}, "level"),
    ):
        with pytest.raises(MetricError, match=words):
            paired_bootstrap(one, other, seed=0, **keywords)
    for sides, parameter in (((one, {}), "second"), ((None, one), "first")):
        with pytest.raises(InputError, match=f"^{parameter}: the scores of one system.* was expected"):
            paired_bootstrap(*sides, seed=0)
    single = system([1.0, 2.0], [0.0], names=1)
    with pytest.raises(MetricError, match="at least 2"):
        paired_bootstrap(single, single, seed=0)
