"""The classifier of conditions against scikit-learn's logistic regression, and ratios that are weighed by it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from pipeline.scoring.calibration import Calibrations, LogisticCalibration, SystemCalibration, limited, unlimited
from pipeline.scoring.conditions import (
    CONDITION,
    PENALTY,
    ConditionClassifier,
    condition_sums,
    condition_vector,
    train_conditions,
)
from pipeline.scoring.trials import HeldOutTrials

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, cut=st.integers(0, 50))
def test_sums_of_parts_add_up_to_the_mean_and_the_log_spread_of_all(seed, cut):
    frames = np.random.default_rng(seed).normal(2.0, 3.0, (50, 4))
    vector = condition_vector(condition_sums(frames[:cut]) + condition_sums(frames[cut:]), 3)
    expected = np.concatenate((frames.mean(axis=0)[:3], np.log(frames.std(axis=0))))
    np.testing.assert_allclose(vector, expected, atol=1e-9)


def test_a_feature_that_never_moves_has_a_finite_spread():
    assert np.isfinite(condition_vector(condition_sums(np.full((7, 3), 0.1)), 3)).all()


def rows_of(seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Overlapping rows (n, 6) of three speakers, as recorded and of changed conditions."""
    random = np.random.default_rng(seed)
    return tuple([random.normal(mean, 1.0, (count, 6)) for count in (9, 14, 5)] for mean in (0.0, 0.6))


@pytest.mark.parametrize("seed", range(5))
def test_classifier_is_scikit_learns_on_standardised_rows_with_balanced_classes(seed):
    recorded, changed = rows_of(seed)
    rows = np.concatenate([*recorded, *changed[:2]])
    is_changed = np.arange(len(rows)) >= 28
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    # Its loss is C times the sum over rows, and balanced weights sum to the number of rows.
    theirs = LogisticRegression(C=1.0 / (PENALTY * len(rows)), class_weight="balanced", tol=1e-10, max_iter=10_000)
    expected = theirs.fit(standard, is_changed).decision_function(standard)
    made = train_conditions(recorded, changed[:2])
    np.testing.assert_allclose(rows @ made.weights + made.offset, expected, atol=1e-4)


def test_one_class_alone_makes_no_classifier():
    recorded, changed = rows_of(0)
    assert train_conditions(recorded, []) is None
    assert train_conditions([np.empty((0, 6))], changed) is None


def trials_with(log_odds: np.ndarray, random: np.random.Generator) -> HeldOutTrials:
    """Utterances of these log-odds of a changed condition, each claimed for its speaker and for up to three others."""
    others = random.integers(0, 4, len(log_odds))
    utterance = np.repeat(np.arange(len(log_odds)), 1 + others)
    is_own = np.r_[True, utterance[1:] != utterance[:-1]]
    speakers = (utterance % 5).astype(np.uint64)
    count = len(utterance)
    return HeldOutTrials(
        claims=np.where(is_own, speakers, speakers + np.uint64(5)),
        speakers=speakers,
        population=np.full(count, 10),
        scores={CONDITION: log_odds[utterance]},
        frames=random.integers(50, 600, len(log_odds))[utterance],
        unknown=np.zeros(count, dtype=bool),
    )


def calibrated(trials: HeldOutTrials, calibration: LogisticCalibration) -> np.ndarray:
    """Calibrated log-odds of each utterance, once."""
    own = trials.where(trials.claims == trials.speakers)
    return calibration.llr(own.scores, own.frames.astype(float))


COUNTS, MEANS = st.tuples(*[st.integers(1, 40)] * 2), st.tuples(*[st.floats(-20.0, 20.0)] * 2)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, counts=COUNTS, means=MEANS, scale=st.floats(0.1, 9.0))
def test_calibrated_probabilities_of_a_changed_condition_average_to_a_half_as_both_weigh_alike(
    seed, counts, means, scale
):
    """Where the slope of the logistic loss is zero along the offset, which has no penalty, the two means sum to 1."""
    random = np.random.default_rng(seed)
    recorded, changed = (
        trials_with(random.normal(mean, scale, count), random) for mean, count in zip(means, counts, strict=True)
    )
    calibration = recorded.condition_calibration(changed)
    total = sum(expit(calibrated(trials, calibration)).mean() for trials in (recorded, changed))
    assert total == pytest.approx(1.0, abs=1e-6)
    assert calibration.weights[0] >= 0.0


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, spread=st.floats(1.0, 2.5), ratio=st.sampled_from([0.25, 1.0, 4.0]))
def test_log_odds_that_are_five_times_too_sure_come_back_to_a_fifth(seed, spread, ratio):
    """Gaussians of variance v around -v / 2 and v / 2 are the log-odds of their own classes, whatever the counts."""
    random, half = np.random.default_rng(seed), spread**2 / 2
    true = random.normal(-half, spread, 4000), random.normal(half, spread, round(ratio * 4000))
    recorded, changed = (trials_with(5.0 * log_odds, random) for log_odds in true)
    calibration = recorded.condition_calibration(changed)
    assert calibration.weights[0] == pytest.approx(0.2, rel=0.2)
    assert calibration.llr({CONDITION: 0.0}, calibration.usual_frames) == pytest.approx(0.0, abs=0.3)
    assert np.abs(calibrated(recorded, calibration) - true[0]).mean() < 0.3


def calibrations() -> Calibrations:
    recorded, changed = (
        (("all", LogisticCalibration(("supervector",), np.array([weight]), offset, 0.0, 100.0)),)
        for weight, offset in ((2.0, 1.0), (0.5, -3.0))
    )
    condition = LogisticCalibration((CONDITION,), np.array([2.0]), -1.0, 0.5, 100.0)
    other = SystemCalibration("supervector", changed)
    one = SystemCalibration("supervector", recorded, changed=other, condition=condition)
    return Calibrations({"supervector": one}, {}, ConditionClassifier(np.array([0.25, -1.5]), 0.75))


def test_the_ratio_goes_from_that_of_the_recorded_condition_to_that_of_the_changed_one():
    calibration = calibrations().whole["supervector"]
    for log_odds, share in ((-800.0, 0.0), (0.0, 0.5), (math.log(3.0), 0.75), (800.0, 1.0)):
        left = [np.log((0.98 * lr + 0.02) / (0.98 + 0.02 * lr)) for lr in np.exp((2.0 * 4.0 + 1.0, 0.5 * 4.0 - 3.0))]
        mean = np.exp((1.0 - share) * left[0] + share * left[1])
        expected = np.log((0.98 * mean - 0.02) / (0.98 - 0.02 * mean))
        scores = {"supervector": 4.0, CONDITION: (log_odds + 1.0) / 2.0}
        assert calibration.llr(scores, 100.0) == pytest.approx(expected)


def test_a_ratio_by_the_wrong_condition_does_not_outweigh_that_by_the_right_one():
    calibration = calibrations().whole["supervector"]
    # 99 to 1 for the changed condition, by which the speaker is right at 2 nats; as recorded, all but impossible.
    wrong = replace(
        calibration, ratio=(("all", LogisticCalibration(("supervector",), np.array([-100.0]), 0.0, 0.0, 1.0)),)
    )
    scores = {"supervector": 10.0, CONDITION: (math.log(99.0) + 1.0) / 2.0}
    assert 1.0 < wrong.llr(scores, 100.0) < 2.0


@given(llr=st.floats(-30.0, 30.0))
def test_a_limited_ratio_stays_in_its_bounds_and_gives_back_what_it_was_of(llr):
    assert abs(limited(np.array(llr))) <= math.log(49.0)
    assert unlimited(limited(np.array(llr))) == pytest.approx(llr, abs=1e-2 if abs(llr) > 20.0 else 1e-6)


def test_calibrations_by_condition_survive_json_and_need_their_classifier():
    made = calibrations()
    table = json.loads(json.dumps(made.as_json()))
    again = Calibrations.from_json(table)
    sums = condition_sums(np.array([[1.0], [4.0]]))
    assert again.condition.log_odds(sums) == made.condition.log_odds(sums)
    scores = {"supervector": np.array([0.3, -2.0]), CONDITION: np.array([0.4, -0.4])}
    before, after = (one.whole["supervector"].llr(scores, 70.0) for one in (made, again))
    np.testing.assert_array_equal(before, after)
    for broken in (None, {"weights": [math.nan], "offset": 0.0}, {"weights": [1.0]}):
        with pytest.raises((ValueError, KeyError)):
            Calibrations.from_json({**table, "condition": broken})
    with pytest.raises(KeyError):
        del table["whole"]["supervector"]["condition"]
        Calibrations.from_json(table)
