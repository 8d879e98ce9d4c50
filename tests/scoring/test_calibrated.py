"""Logistic calibration against scikit-learn's regression, and against score distributions whose ratios are known."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import SYSTEMS
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from pipeline.errors import MetricError
from pipeline.metrics import equal_error_rate, log_likelihood_ratio_cost, minimum_cllr
from pipeline.scoring.calibration import (
    ENROLLED_PENALTY,
    PENALTY,
    SHARE_FLOOR,
    UNKNOWN_PENALTY,
    LogisticCalibration,
    MixtureCalibration,
    fit_calibration,
    linked,
)
from pipeline.scoring.conditions import CONDITION, DISTANCE
from pipeline.scoring.fitting import CHANGED_SHARE, calibration_of, fit_system, fit_threshold
from pipeline.scoring.rules import RULES
from pipeline.scoring.trials import NOBODY, HeldOutTrials
from pipeline.scoring.typical import Typicality

PARTS = ("supervector_rival", "gmm_rival", "worst_rival")
SEEDS = st.integers(0, 2**32 - 1)

Trials = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


def trials_of(seed: int, hits: int = 60, misses: int = 300) -> Trials:
    """Overlapping scores of three systems, frames and classes; every system tells something of its own."""
    random = np.random.default_rng(seed)
    target = np.arange(hits + misses) < hits
    scores = {
        "supervector_rival": random.normal(np.where(target, 0.5, -0.3), 0.6),
        "gmm_rival": random.normal(np.where(target, 0.4, 0.0), 0.5),
        "worst_rival": expit(random.normal(np.where(target, 1.0, -0.5), 1.5)),
    }
    return scores, random.uniform(50, 600, len(target)), target


def slow_fit(
    systems: tuple[str, ...], trials: Trials, *, prior: float, penalty: float
) -> tuple[np.ndarray, float, float]:
    """scikit-learn's weights, offset and duration weight, over the scores as they are."""
    scores, frames, target = trials
    x = np.stack([linked(name, scores[name]) for name in systems], axis=1)
    design = np.concatenate(
        ((x - x.mean(axis=0)) / x.std(axis=0), np.log(frames / np.exp(np.log(frames).mean()))[:, None]), axis=1
    )
    weight = np.where(target, prior / target.sum(), (1 - prior) / (~target).sum())
    model = LogisticRegression(C=target.sum() / penalty, tol=1e-10, max_iter=10_000)
    model.fit(design, target, sample_weight=weight)
    weights = model.coef_[0, :-1] / x.std(axis=0)
    # The regression gives log posterior odds; the ratio is less by the prior's.
    offset = model.intercept_[0] - logit(prior) - weights @ x.mean(axis=0)
    return weights, float(offset), float(model.coef_[0, -1])


def fit_one(scores: np.ndarray, target: np.ndarray, *, prior: float = 0.5) -> LogisticCalibration:
    """The calibration of one score over 200 frames of speech."""
    return fit_calibration(("gmm_rival",), {"gmm_rival": scores}, np.full(len(scores), 200.0), target, prior=prior)


# The fit.


@pytest.mark.parametrize("systems", [("worst_rival",), PARTS])
@pytest.mark.parametrize(("prior", "penalty"), [(0.05, 0.1), (0.5, 3.0), (0.01, 1.0)])
def test_fit_is_scikit_learns_where_no_weight_is_held_at_zero(systems, prior, penalty):
    trials = trials_of(1)
    weights, offset, duration = slow_fit(systems, trials, prior=prior, penalty=penalty)
    assert (weights > 0).all()
    fit = fit_calibration(systems, *trials, prior=prior, penalty=penalty)
    assert fit.systems == systems
    np.testing.assert_allclose(fit.weights, weights, rtol=2e-3, atol=1e-4)
    assert fit.offset == pytest.approx(offset, abs=2e-3)
    assert fit.duration == pytest.approx(duration, abs=2e-3)


def test_score_that_misleads_is_left_out_and_the_rest_fitted_as_if_without_it():
    scores, frames, target = trials_of(2)
    scores["gmm_rival"] = -scores["gmm_rival"]
    fit = fit_calibration(("supervector_rival", "gmm_rival"), scores, frames, target, prior=0.1)
    without = fit_calibration(("supervector_rival",), scores, frames, target, prior=0.1)
    assert fit.weights[1] == 0
    assert fit.weights[0] == pytest.approx(without.weights[0], rel=1e-3)
    assert fit.offset == pytest.approx(without.offset, abs=2e-3)


@given(seed=SEEDS, expected=st.lists(st.floats(0.0, 5.0), min_size=len(PARTS), max_size=len(PARTS)))
@settings(max_examples=20, deadline=None)
def test_the_penalty_pulls_weights_towards_expected_ones(seed, expected):
    trials = trials_of(seed)
    about = dict(zip(PARTS, expected, strict=True))
    free, weak, strong = (
        fit_calibration(PARTS, *trials, prior=0.05, penalty=penalty, expected=about) for penalty in (1e-6, 1.0, 1e6)
    )
    np.testing.assert_allclose(strong.weights, expected, atol=1e-3)
    spread = [linked(name, trials[0][name]).std() for name in PARTS]
    far, nearer, nearest = (
        np.linalg.norm([*(fit.weights - expected) * spread, fit.duration]) for fit in (free, weak, strong)
    )
    assert far >= nearer - 1e-6
    assert nearer >= nearest - 1e-6
    own = dict(zip(PARTS, free.weights.tolist(), strict=True))
    same = fit_calibration(PARTS, *trials, prior=0.05, penalty=1e-6, expected=own)
    np.testing.assert_allclose(same.weights, free.weights, rtol=1e-2, atol=1e-2)


def in_two_conditions() -> tuple[HeldOutTrials, HeldOutTrials]:
    """Trials as recorded and of a changed condition, with what tells them apart."""
    conditions = held_out(4), held_out(5)
    for number, made in enumerate(conditions):
        own, random = made.claims == made.speakers, np.random.default_rng(9 + number)
        made.scores["pitch_rival"] = np.random.default_rng(number).normal(np.where(own, 1.0, -1.0), 0.3 + number)
        made.scores[CONDITION] = random.normal(2.0 * number - 1.0, 1.0, len(own))
        made.scores[DISTANCE] = random.uniform(3.0, 9.0, len(own))
    return conditions


def test_weights_as_recorded_are_fitted_about_a_share_of_those_of_changed_conditions():
    recorded, changed = in_two_conditions()
    fit = fit_system("fused", (recorded, 10), changed=changed)
    own = recorded.claims == recorded.speakers
    for (origin, one), (same, other) in zip(fit.weights, fit.changed.weights, strict=True):
        assert origin == same
        kept = recorded.where(own | (recorded.unknown if origin == "unknown" else ~own & ~recorded.unknown))
        trials = kept.scores, kept.frames.astype(float), kept.claims == kept.speakers
        about = dict(zip(other.systems, CHANGED_SHARE * other.weights, strict=True))
        direct = fit_calibration(one.systems, *trials, prior=0.05, expected=about)
        np.testing.assert_allclose(one.weights, direct.weights, rtol=1e-9)
        assert not np.allclose(one.weights, fit_calibration(one.systems, *trials, prior=0.05).weights, rtol=1e-3)


def test_prefixes_as_long_as_their_utterances_change_no_fit_but_for_shifts():
    """Every utterance is there twice, and each time counts by half."""
    recorded, changed = in_two_conditions()
    typical, frames = Typicality(0.4, 1), recorded.frames.astype(float)
    whole = fit_system("fused", (recorded, 10), changed=changed, typical=typical)
    assert min(whole.shifts.values(), default=0.0) > 0.0
    assert min(whole.changed.shifts.values(), default=0.0) > 0.0
    recorded, changed = (dataclasses.replace(made, prefixes={10**6: dict(made.scores)}) for made in (recorded, changed))
    every = fit_system("fused", (recorded, 10), changed=changed, typical=typical, at_every_length=True)
    assert not every.shifts
    assert not every.changed.shifts
    assert dataclasses.astuple(every.limit) == pytest.approx(dataclasses.astuple(whole.limit))
    for first, second in ((every, whole), (every.changed, whole.changed), (every.condition, whole.condition)):
        made = (one.llr(recorded.scores, frames) for one in (first, second))
        np.testing.assert_allclose(*made, atol=1e-6)


def test_only_sums_have_a_limit_of_distances():
    recorded, changed = in_two_conditions()
    assert fit_system("gmm_rival", (recorded, 10), changed=changed).limit is None
    assert fit_system("fused", (recorded, 10), changed=changed).limit is not None


@pytest.mark.parametrize("hits", [1, 3, 30, 300])
def test_separable_trials_give_finite_ratios_of_the_order_of_the_number_of_targets(hits):
    target = np.arange(4 * hits) < hits
    llr = fit_one(np.where(target, 1.0, -1.0), target).llr({"gmm_rival": np.array([1.0, -1.0])}, 200.0)
    assert np.isfinite(llr).all()
    assert llr[0] > 0 > llr[1]
    # A penalty of a tenth a target lets the odds grow about ten times as fast as the targets, no faster.
    assert math.exp(llr[0]) < 30 * (hits + 1)


def test_scores_that_are_all_the_same_say_nothing():
    fit = fit_one(np.full(40, 0.3), np.arange(40) < 10, prior=0.05)
    np.testing.assert_allclose(fit.llr({"gmm_rival": np.array([0.3])}, 200.0), 0.0, atol=1e-4)


@pytest.mark.parametrize("target", [np.zeros(5, dtype=bool), np.ones(5, dtype=bool), np.empty(0, dtype=bool)])
def test_trials_of_one_class_are_an_error(target):
    with pytest.raises(MetricError, match="both classes"):
        fit_one(np.zeros(len(target)), target)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_ratios_do_not_depend_on_the_scale_of_a_score(seed, scale, shift):
    scores, frames, target = trials_of(seed)
    other = {"gmm_rival": scale * scores["gmm_rival"] + shift}
    one = fit_calibration(("gmm_rival",), scores, frames, target, prior=0.1).llr(scores, frames)
    np.testing.assert_allclose(
        fit_calibration(("gmm_rival",), other, frames, target, prior=0.1).llr(other, frames), one, atol=5e-3
    )


# What comes out, where the truth is known.


def gaussians(seed: int, count: int, *, mean: float, deviation: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores of targets and of nontargets."""
    random = np.random.default_rng(seed)
    return random.normal(mean, deviation, count), random.normal(-mean / 2, deviation, count)


@pytest.mark.parametrize("prior", [0.2, 0.5])
@pytest.mark.parametrize(("mean", "deviation"), [(0.4, 0.5), (2.0, 1.5)])
def test_ratios_of_gaussian_scores_are_those_of_their_densities(mean, deviation, prior):
    scores = np.concatenate(gaussians(3, 20_000, mean=mean, deviation=deviation))
    fit = fit_one(scores, np.arange(40_000) < 20_000, prior=prior)
    # log N(s; m, d) - log N(s; -m / 2, d) is linear in s.
    assert fit.weights[0] == pytest.approx(1.5 * mean / deviation**2, rel=0.05)
    assert fit.offset == pytest.approx(-0.375 * mean**2 / deviation**2, abs=0.05)
    s = np.linspace(-1.0, 2.0, 7) * mean
    expected = norm.logpdf(s, mean, deviation) - norm.logpdf(s, -mean / 2, deviation)
    np.testing.assert_allclose(fit.llr({"gmm_rival": s}, 200.0), expected, atol=0.15)


def test_cost_of_calibrated_gaussian_scores_is_close_to_the_least_there_is():
    fitted, new = (gaussians(seed, 5000, mean=0.4, deviation=0.3) for seed in (5, 6))
    fit = fit_one(np.concatenate(fitted), np.arange(10_000) < 5000)
    target, nontarget = (fit.llr({"gmm_rival": side}, 200.0) for side in new)
    least = minimum_cllr(*new)
    assert least <= log_likelihood_ratio_cost(target, nontarget) < least + 0.01
    # Of the scores as they are, it is far higher.
    assert log_likelihood_ratio_cost(*new) > least + 0.1


@pytest.mark.parametrize("slope", [-0.5, 0.0, 0.8])
def test_weight_of_duration_is_found_where_ratios_grow_with_its_log(slope):
    random = np.random.default_rng(7)
    frames = np.exp(random.uniform(math.log(50), math.log(1000), 40_000))
    scores = {"gmm_rival": random.normal(0.0, 1.0, 40_000)}
    log_odds = 1.7 * scores["gmm_rival"] + slope * np.log(frames / 300.0) - 1.0
    target = random.random(40_000) < expit(log_odds)
    fit = fit_calibration(("gmm_rival",), scores, frames, target, prior=0.5)
    assert fit.duration == pytest.approx(slope, abs=0.06)
    assert fit.weights[0] == pytest.approx(1.7, abs=0.06)
    assert fit.usual_frames == pytest.approx(np.exp(np.log(frames).mean()))
    # Posterior odds are those of the sample's own share of targets times the ratio.
    s = {"gmm_rival": np.array([-1.0, 0.0, 2.0])}
    expected = 1.7 * s["gmm_rival"] + slope * np.log(600 / 300) - 1.0 - logit(target.mean())
    np.testing.assert_allclose(fit.llr(s, 600.0), expected, atol=0.12)


# The ratio itself.


def test_ratio_is_its_formula():
    made = LogisticCalibration(("gmm_rival", "worst_rival"), np.array([2.0, 0.5]), -1.0, 0.3, 200.0)
    scores = {"gmm_rival": np.array([[0.1, 0.2]]), "worst_rival": np.array([[0.25, 0.9]])}
    expected = [
        [-1.0 + 0.3 * math.log(0.5) + 2 * f + 0.5 * math.log(r / (1 - r)) for f, r in ((0.1, 0.25), (0.2, 0.9))]
    ]
    np.testing.assert_allclose(made.llr(scores, 100), expected, rtol=1e-12)
    at = made.llr({name: values[0] for name, values in scores.items()}, np.array([100.0, 400.0]))
    np.testing.assert_allclose(at, [expected[0][0], expected[0][1] + 0.3 * math.log(4)], rtol=1e-12)


@pytest.mark.parametrize("system", [name for name in SYSTEMS if not RULES[name].parts])
def test_link_is_the_log_odds_of_what_has_bounds_and_leaves_the_rest(system):
    top = RULES[system].top
    if top is None:
        values = np.array([-1e3, -2.0, 0.0, 3.0])
        np.testing.assert_array_equal(linked(system, values), values)
        return
    share = np.array([0.0, 1e-9, 0.2, 0.5, 0.9, 1.0])
    log_odds = linked(system, top * share)
    np.testing.assert_allclose(log_odds[2:5], logit(share[2:5]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(log_odds[[0, 1, 5]], logit([SHARE_FLOOR, SHARE_FLOOR, 1 - SHARE_FLOOR]), rtol=1e-9)


# Impostors of several origins.


def test_ratio_against_two_origins_is_that_of_their_mixed_densities():
    """Normal scores of one width: each origin's ratio is linear in the score, and the mixture's density is at hand."""
    means, shares = (-3.0, -0.5), (0.7, 0.3)
    kinds = tuple(LogisticCalibration(("gmm_rival",), np.array([1.0 - m]), (m**2 - 1.0) / 2, 0.0, 100.0) for m in means)
    score = np.linspace(-6.0, 6.0, 50)
    density = sum(share * norm.pdf(score, m) for share, m in zip(shares, means, strict=True))
    ratio = MixtureCalibration(kinds, shares).llr({"gmm_rival": score}, 100.0)
    np.testing.assert_allclose(ratio, norm.logpdf(score, 1.0) - np.log(density), rtol=1e-9)


# From held-out trials.


def held_out(seed: int) -> HeldOutTrials:
    scores, frames, target = trials_of(seed)
    count = np.arange(len(target), dtype=np.uint64)
    return HeldOutTrials(
        claims=count,
        speakers=np.where(target, count, count + 1),
        population=np.full(len(target), 10),
        scores=scores,
        frames=frames.astype(np.int64),
        unknown=~target & (count % 2 == 0),
    )


def against_each_origin(
    made: HeldOutTrials, scores: dict[str, np.ndarray], share: float, penalties: tuple[float, float]
) -> np.ndarray:
    """Ratios against enrolled and unknown impostors, each a fit of its own, as the inverse of their mean inverse."""
    frames, own = made.frames.astype(float), made.claims == made.speakers
    inverse = np.zeros(len(own))
    origins = ((1.0 - share, ~own & ~made.unknown), (share, made.unknown))
    for (weight, false), penalty in zip(origins, penalties, strict=True):
        kept = own | false
        of_kept = {name: values[kept] for name, values in scores.items()}
        fitted = fit_calibration(tuple(scores), of_kept, frames[kept], own[kept], prior=0.05, penalty=penalty)
        inverse += weight * np.exp(-fitted.llr(scores, frames))
    return -np.log(inverse)


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_trials_weigh_the_parts_of_a_sum_once_and_then_judge_the_sum_against_each_origin(share):
    made = held_out(4)
    fused = calibration_of(made, "fused").at(share)
    assert fused.systems == PARTS
    sums = against_each_origin(made, made.scores, 0.5, (PENALTY, PENALTY))
    # Ten speakers: unknown impostors spread 1.3 times as widely about their mean.
    spread = np.where(made.unknown, sums + 0.3 * (sums - sums[made.unknown].mean()), sums)
    expected = against_each_origin(made, {"fused": spread}, share, (ENROLLED_PENALTY, UNKNOWN_PENALTY))
    known = ~made.unknown
    np.testing.assert_allclose(fused.llr(made.scores, made.frames)[known], expected[known], atol=1e-6)
    alone = calibration_of(made, "gmm_rival").at(share)
    assert alone.systems == ("gmm_rival",)
    expected = against_each_origin(made, {"gmm_rival": made.scores["gmm_rival"]}, share, (PENALTY, PENALTY))
    np.testing.assert_allclose(alone.llr(made.scores, made.frames), expected, atol=1e-9)


@given(shares=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), seed=st.integers(0, 5))
@settings(max_examples=8, deadline=None)
def test_the_share_of_unknown_impostors_moves_ratios_and_changes_no_order(shares, seed):
    made = held_out(seed)
    frames = np.full(len(made), 200.0)
    first, second = (calibration_of(made, "fused").at(share).llr(made.scores, frames) for share in shares)
    order = np.argsort(first)
    assert (np.diff(second[order]) >= -1e-9 * np.abs(second[order][1:])).all()


def test_a_sum_weighs_the_parts_that_trials_have_beyond_those_it_needs():
    made = held_out(4)
    own = made.claims == made.speakers
    better = np.random.default_rng(0).normal(np.where(own, 2.0, -2.0), 1.0)
    with_models = dataclasses.replace(made, scores={**made.scores, "normalised_supervector": better})
    for trials, systems in ((made, PARTS), (with_models, (*PARTS, "normalised_supervector"))):
        fused = calibration_of(trials, "fused").at(0.0)
        assert fused.systems == systems
        assert np.isfinite(fit_threshold(trials, "fused", population=10, calibration=fused))
    raised = fused.llr({**with_models.scores, "normalised_supervector": better + 1.0}, made.frames)
    assert (raised > fused.llr(with_models.scores, made.frames)).all()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_trials_of_one_origin_alone_count_whatever_share_was_asked_for(share):
    made = dataclasses.replace(held_out(4), unknown=np.zeros(360, dtype=bool))
    own = made.claims == made.speakers
    expected = fit_calibration(("gmm_rival",), made.scores, made.frames.astype(float), own, prior=0.05)
    fit = calibration_of(made, "gmm_rival").at(share)
    np.testing.assert_allclose(fit.llr(made.scores, 100.0), expected.llr(made.scores, 100.0), atol=1e-9)


def test_sum_of_systems_without_a_part_is_an_error_that_names_it():
    made = held_out(4)
    del made.scores["supervector_rival"]
    with pytest.raises(MetricError, match="supervector_rival"):
        calibration_of(made, "fused")
    with pytest.raises(MetricError, match="'fused'"):
        fit_threshold(made, "fused", population=10, calibration=None)


def test_threshold_of_a_sum_of_systems_is_a_ratio_at_the_equal_error_rate():
    made = held_out(5)
    own = made.claims == made.speakers
    calibration = calibration_of(made, "fused").at(0.5)
    as_made = calibration.llr(made.scores, made.frames.astype(float))
    # Ten speakers: unknown impostors spread 1.3 times as widely about their mean, except the user's own.
    llrs = np.where(made.unknown, as_made + 0.3 * (as_made - as_made[made.unknown].mean()), as_made)
    by_nobody = dataclasses.replace(made, speakers=np.where(made.unknown, np.uint64(NOBODY), made.speakers))
    for trials, ratios in ((made, llrs), (by_nobody, as_made)):
        threshold = fit_threshold(trials, "fused", population=10, calibration=calibration)
        assert threshold == pytest.approx(equal_error_rate(ratios[own], ratios[~own]).threshold)
        rate = fit_threshold(trials, "fused", population=10, calibration=calibration, false_accept=0.05)
        assert 0.03 < np.mean(ratios[~own] >= rate) <= 0.05


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_of_a_false_accept_rate_unknown_impostors_make_up_their_share(share):
    made = held_out(5)
    scores, known = made.scores["gmm_rival"], (made.claims != made.speakers) & ~made.unknown
    lowest = fit_threshold(made, "gmm_rival", population=10, false_accept=0.0503, unknown_share=share)
    accepted, more = (
        share * np.mean(scores[made.unknown] >= threshold) + (1.0 - share) * np.mean(scores[known] >= threshold)
        for threshold in (lowest, np.nextafter(lowest, -np.inf))
    )
    assert accepted <= 0.0503 < more
