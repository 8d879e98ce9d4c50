"""Generalised rates against the standard's formulas and against scores of minus infinity, and the sample-size rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import beta, binom
from trial_scores import SCORES

from pipeline.errors import MetricError
from pipeline.metrics import (
    ErrorRates,
    Unscored,
    equal_error_rate,
    error_curve,
    false_accept_at,
    false_reject_at,
    generalised_equal_error_rate,
    generalised_rates,
    rates_at,
    rule_of_thirty,
    rule_of_three,
)
from pipeline.metrics.sample_size import effective_trials, wilson_interval

COUNTS = st.integers(0, 20)
UNSCORED = st.builds(Unscored, COUNTS, COUNTS, COUNTS, COUNTS)


@given(SCORES, SCORES, UNSCORED, st.floats(-31, 31))
def test_generalised_rates_are_those_of_the_standard_and_of_claims_that_no_threshold_accepts(
    target, nontarget, unscored, threshold
):
    rates = rates_at(target, nontarget, threshold)
    counts = {"targets": len(target), "nontargets": len(nontarget)}
    general = generalised_rates(rates, unscored, **counts)
    fte = [
        unscored.nontarget_not_enrolled / (unscored.of_nontarget + len(nontarget)),
        unscored.target_not_enrolled / (unscored.of_target + len(target)),
    ]
    heard = unscored.nontarget + len(nontarget), unscored.target + len(target)
    fta = [unscored.nontarget / heard[0], unscored.target / heard[1]]
    assert general.false_accept == pytest.approx((1 - fte[0]) * (1 - fta[0]) * rates.false_accept, abs=1e-12)
    inner = fta[1] + (1 - fta[1]) * rates.false_reject
    assert general.false_reject == pytest.approx(fte[1] + (1 - fte[1]) * inner, abs=1e-12)
    never = np.append(target, [-100.0] * unscored.of_target), np.append(nontarget, [-100.0] * unscored.of_nontarget)
    by_count = rates_at(*never, threshold)
    assert general.false_accept == pytest.approx(by_count.false_accept, abs=1e-12)
    assert general.false_reject == pytest.approx(by_count.false_reject, abs=1e-12)


@given(SCORES, SCORES, UNSCORED)
def test_the_generalised_equal_error_rate_is_that_with_the_unscored_below_all_scores(target, nontarget, unscored):
    counts = {"targets": len(target), "nontargets": len(nontarget)}
    found = generalised_equal_error_rate(error_curve(target, nontarget), unscored, **counts)
    never = np.append(target, [-100.0] * unscored.of_target), np.append(nontarget, [-100.0] * unscored.of_nontarget)
    lost = unscored.of_target / never[0].size + unscored.of_nontarget / never[1].size
    assume(abs(lost - 1.0) > 1e-9)
    if lost > 1.0:
        assert found is None
    else:
        assert found.rate == pytest.approx(equal_error_rate(*never).rate, abs=1e-12)
        assert found.threshold > -100.0


def test_a_class_without_any_score_is_turned_away_whole():
    nobody = generalised_rates(ErrorRates(None, None), Unscored(target=3), targets=0, nontargets=0)
    assert nobody == ErrorRates(None, 1.0)
    with pytest.raises(MetricError, match="0 or more"):
        Unscored(target=-1)


@given(SCORES, SCORES, st.sampled_from([0.0, 1e-4, 0.01, 0.25, 0.5, 1.0]))
def test_rates_at_a_rate_are_the_best_of_all_thresholds(target, nontarget, rate):
    curve = error_curve(target, nontarget)
    every = [rates_at(target, nontarget, t) for t in [*target, *nontarget, np.inf]]
    assert false_reject_at(curve, rate) == min(at.false_reject for at in every if at.false_accept <= rate)
    assert false_accept_at(curve, rate) == min(at.false_accept for at in every if at.false_reject <= rate)
    with pytest.raises(MetricError, match="percent for a share"):
        false_reject_at(curve, 1.5)


@pytest.mark.parametrize("trials", [100, 300, 10_000])
def test_the_rule_of_three_is_the_exact_limit_of_no_errors(trials):
    # Clopper and Pearson's one-sided limit of 0 errors in n trials.
    assert rule_of_three(trials) == pytest.approx(beta.ppf(0.95, 1, trials), rel=0.02)


@pytest.mark.parametrize("trials", [3_000, 100_000])
def test_thirty_errors_show_a_rate_to_within_thirty_percent(trials):
    rate = rule_of_thirty(trials)
    assert rate * trials == pytest.approx(30)
    # Measured rates within 30 % of the true one, in nine of ten experiments.
    inside = binom.cdf(39, trials, rate) - binom.cdf(20, trials, rate)
    assert inside == pytest.approx(0.9, abs=0.02)
    assert rule_of_thirty(10) == rule_of_three(2) == 1.0
    with pytest.raises(MetricError, match="at least one trial"):
        rule_of_three(0)


def _crossed(rng: np.random.Generator, speakers: int, share: float) -> tuple[np.ndarray, list[np.ndarray]]:
    """Draw standard normal scores of everybody's 8 utterances claimed for all others, and the trials' groupings."""
    claims, of, _ = (axis.ravel() for axis in np.meshgrid(*map(np.arange, (speakers, speakers, 8)), indexing="ij"))
    claims, of = claims[claims != of], of[claims != of]
    groupings = [claims, of, claims * speakers + of]
    parts = [rng.standard_normal(1 + groups.max())[groups] for groups in groupings]
    noise = rng.standard_normal(len(claims))
    return np.sqrt(share / 4) * (parts[0] + parts[1] + np.sqrt(2) * parts[2]) + np.sqrt(1 - share) * noise, groupings


@pytest.mark.parametrize("speakers", [6, 20])
@pytest.mark.parametrize("rate", [0.002, 0.03])
def test_intervals_of_as_many_trials_as_correlated_ones_count_for_contain_the_rate(speakers, rate):
    rng, inside, naive = np.random.default_rng(0), [], []
    for _ in range(100):
        scores, groupings = _crossed(rng, speakers, share=0.6)
        errors = scores < ndtri(rate)
        for sizes, kept in ((effective_trials(scores, errors, groupings), inside), (len(errors), naive)):
            low, high = wilson_interval(np.array(errors.mean() * sizes), np.array(sizes), 0.95)
            kept.append(low <= rate <= high)
    assert np.mean(naive) < 0.95 <= np.mean(inside)


def test_independent_trials_count_as_they_are_and_equal_ones_as_one():
    scores, groups = np.random.default_rng(0).standard_normal(2000), np.arange(2000) // 8
    assert effective_trials(scores, scores < -2, [groups]) == pytest.approx(2000, rel=0.1)
    assert effective_trials(scores[groups], scores[groups] < -2, [groups]) == pytest.approx(250)
    for whole in (np.zeros(2000, dtype=int), np.arange(2000)):  # one group, and groups of one trial
        assert effective_trials(scores, scores < -2, [whole]) == pytest.approx(2000)
    assert effective_trials(np.ones(2000), np.zeros(2000, dtype=bool), [groups]) == pytest.approx(2000)
