"""The classifier of conditions against scikit-learn's nearest neighbours, and ratios that are weighed by it."""

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
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from pipeline.scoring.calibration import LogisticCalibration, SystemCalibration
from pipeline.scoring.calibrations import Calibrations
from pipeline.scoring.conditions import (
    CONDITION,
    DISTANCE,
    LEAST_DEVIATION,
    MOST_VECTORS,
    NEIGHBOURS,
    OUTLYING_DEVIATIONS,
    DistanceLimit,
    condition_sums,
    condition_vector,
    train_conditions,
)
from pipeline.scoring.fitting import condition_calibration
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


def rows_of(seed: int, *counts: int, spread: float = 1.0) -> list[np.ndarray]:
    """Condition vectors (n, 6) of two statics and four spreads, of a speaker each."""
    random = np.random.default_rng(seed)
    return [random.normal(0.0, spread, (count, 6)) @ np.diag((0.1, 9.0, 1.0, 1.0, 1.0, 2.0)) for count in counts]


def utterances(vectors: np.ndarray) -> list[np.ndarray]:
    """Sums of two frames each whose means and log spreads are these."""
    mean, spread = np.pad(vectors[:, :2], ((0, 0), (0, 2))), np.exp(vectors[:, 2:])
    return [condition_sums(np.stack((m - s, m + s))) for m, s in zip(mean, spread, strict=True)]


@pytest.mark.parametrize("counts", [(9, 14, 40), (3, 1, 4)])
def test_log_odds_and_distances_are_those_of_scikit_learns_neighbours(counts):
    recorded, changed = rows_of(0, *counts, spread=0.3), rows_of(1, *counts[:2], spread=0.6)
    covariance = np.cov(np.concatenate(recorded), rowvar=False, bias=True)
    inverse = np.linalg.inv(covariance + np.diag(np.diag(covariance)))
    tried = rows_of(2, 30, spread=0.5)[0]
    squares = []
    for rows in map(np.concatenate, (recorded, changed)):
        of = NearestNeighbors(
            n_neighbors=min(NEIGHBOURS, len(rows)), metric="mahalanobis", metric_params={"VI": inverse}
        )
        squares.append((of.fit(rows).kneighbors(tried)[0] ** 2).mean(axis=1))
    made = train_conditions(recorded, changed)
    measured = [made.measure(sums) for sums in utterances(tried)]
    np.testing.assert_allclose([one[CONDITION] for one in measured], (squares[0] - squares[1]) / 2.0, atol=1e-9)
    np.testing.assert_allclose([one[DISTANCE] for one in measured], np.minimum(*squares) / 2.0, atol=1e-9)


def test_conditions_all_around_the_recorded_one_are_told_from_it_where_no_plane_parts_them():
    (inner,), (outer,) = rows_of(3, 300, spread=0.2), rows_of(4, 300, spread=0.6)
    made = train_conditions([inner[::2]], [outer[::2]])
    tried, is_changed = np.concatenate((inner[1::2], outer[1::2])), np.repeat([False, True], 150)
    plane = LogisticRegression().fit(np.concatenate((inner[::2], outer[::2])), is_changed)
    assert roc_auc_score(is_changed, plane.decision_function(tried)) < 0.7
    assert roc_auc_score(is_changed, [made.measure(sums)[CONDITION] for sums in utterances(tried)]) > 0.9


def test_of_many_vectors_an_even_share_is_searched():
    rows = np.repeat(np.arange(2.5 * MOST_VECTORS)[:, None], 6, axis=1)
    made = train_conditions([rows[:1000], rows[1000:]], rows_of(0, 20))
    kept = np.linalg.solve(made.whitening.T, made.recorded.T)[0]
    assert len(kept) == MOST_VECTORS
    np.testing.assert_allclose(np.diff(kept), 2.5, atol=0.51)
    assert kept[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("count", [1, 20])
def test_features_that_never_move_give_finite_log_odds(count):
    made = train_conditions([np.full((count, 6), 0.3)], [np.full((5, 6), 0.4)])
    near, far = (made.measure(sums)[CONDITION] for sums in utterances(np.full((2, 6), ((0.3,), (0.4,)))))
    assert np.isfinite((near, far)).all()
    assert near < 0.0 < far


FRAMES = st.lists(st.integers(30, 900), min_size=2, max_size=30).map(lambda some: np.array(some, dtype=float))


@given(frames=FRAMES, least=st.floats(0.5, 20.0), more=st.floats(0.0, 2000.0), longer=st.floats(1.0, 50.0))
def test_a_limit_is_that_of_distances_that_lie_on_its_curve(frames, least, more, longer):
    limit = DistanceLimit.of(least + more / frames, frames)
    factor = math.exp(OUTLYING_DEVIATIONS * LEAST_DEVIATION)
    expected = (least + more / frames) * factor
    np.testing.assert_allclose(limit.excess(expected, frames), 0.0, atol=1e-6 * expected.max())
    np.testing.assert_allclose(limit.excess(expected + 3.0, frames), 3.0, atol=1e-5 * expected.max())
    at_most = (least + more / frames.max()) * factor
    np.testing.assert_allclose(limit.excess(np.array(at_most + 1.0), longer * frames.max()), 1.0, atol=1e-5 * at_most)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, spread=st.floats(0.05, 0.5))
def test_hardly_any_other_utterance_of_the_same_speakers_exceeds_a_limit(seed, spread):
    random = np.random.default_rng(seed)
    frames = random.integers(50, 300, (2, 5000)).astype(float)
    first, second = (7.0 + 900.0 / frames) * np.exp(random.normal(0.0, spread, frames.shape))
    limit = DistanceLimit.of(first, frames[0])
    assert (limit.excess(second, frames[1]) > 0.0).mean() < 0.01


@given(
    distances=st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 3.0, 20.0, 1e6]), min_size=1, max_size=40),
    seed=SEEDS,
)
def test_a_limit_fitted_to_any_distances_can_be_stored_and_gives_finite_ratios(distances, seed):
    frames = np.random.default_rng(seed).integers(1, 900, len(distances)).astype(float)
    fitted = DistanceLimit.of(np.array(distances), frames)
    stored = Calibrations({"supervector": replace(calibrations().whole["supervector"], limit=fitted)}).as_json()
    again = Calibrations.from_json(json.loads(json.dumps(stored))).whole["supervector"].at(0.5, 8.0)
    assert again.limit == fitted
    for distance in (0.0, *distances):
        scores = {"supervector": 4.0, CONDITION: 3.0, DISTANCE: distance}
        assert np.isfinite(again.llr(scores, 50.0))


@given(deviations=st.floats(-6.0, 6.0), factor=st.floats(1.1, 5.0), frames=st.floats(20.0, 900.0))
def test_a_condition_is_unfamiliar_by_the_deviations_of_its_distance(deviations, factor, frames):
    limit = DistanceLimit(6.0, 300.0, factor, 500.0)
    expected = 6.0 + 300.0 / min(frames, 500.0)
    distance = expected * factor ** (deviations / OUTLYING_DEVIATIONS)
    share = limit.unfamiliar(np.array(distance), frames)
    assert share == pytest.approx(min(max((deviations + 2.0) / 3.0, 0.0), 1.0), abs=1e-9)
    assert limit.unfamiliar(np.array(0.0), frames) == 0.0


def test_one_class_alone_makes_no_classifier():
    assert train_conditions(rows_of(0, 3), []) is None
    assert train_conditions([np.empty((0, 6))], rows_of(0, 3)) is None


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
    calibration = condition_calibration(recorded, changed)
    total = sum(expit(calibrated(trials, calibration)).mean() for trials in (recorded, changed))
    assert total == pytest.approx(1.0, abs=1e-6)
    assert calibration.weights[0] >= 0.0


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, spread=st.floats(1.0, 2.5), ratio=st.sampled_from([0.25, 1.0, 4.0]))
def test_log_odds_that_are_five_times_too_sure_come_back_to_a_fifth(seed, spread, ratio):
    """Gaussians of variance v around -v / 2 and v / 2 are the log-odds of their own classes, whatever the counts."""
    random, half = np.random.default_rng(seed), spread**2 / 2
    true = random.normal(-half, spread, 20000), random.normal(half, spread, round(ratio * 20000))
    recorded, changed = (trials_with(5.0 * log_odds, random) for log_odds in true)
    calibration = condition_calibration(recorded, changed)
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
    limit = DistanceLimit(6.0, 300.0, 2.0, 500.0)  # 18 at 100 frames
    one = SystemCalibration("supervector", recorded, changed=other, condition=condition, limit=limit)
    return Calibrations({"supervector": one})


def test_the_ratio_goes_from_that_of_the_recorded_condition_to_that_of_the_changed_one():
    calibration = calibrations().whole["supervector"]
    for log_odds, share in ((-800.0, 0.0), (0.0, 0.5), (math.log(3.0), 0.75), (800.0, 1.0)):
        expected = (1.0 - share) * (2.0 * 4.0 + 1.0) + share * (0.5 * 4.0 - 3.0)
        scores = {"supervector": 4.0, CONDITION: (log_odds + 1.0) / 2.0}
        assert calibration.llr(scores, 100.0) == pytest.approx(expected)


@given(log_odds=st.floats(-30.0, 30.0), distance=st.floats(0.0, 100.0))
def test_what_is_too_far_from_enrollment_speech_is_subtracted_in_any_condition(log_odds, distance):
    calibration = calibrations().whole["supervector"]
    scores = {"supervector": 4.0, CONDITION: log_odds}
    ratio = calibration.llr(scores, 100.0)
    assert calibration.llr(scores | {DISTANCE: distance}, 100.0) == pytest.approx(ratio - max(0.0, distance - 18.0))


@given(log_odds=st.floats(-30.0, 30.0), distance=st.floats(0.0, 100.0), impostors=st.floats(1.0, 1000.0))
def test_changed_speech_by_an_unfamiliar_condition_is_an_impostors_so_many_times_as_likely(
    log_odds, distance, impostors
):
    known = calibrations().whole["supervector"]
    assumed = known.at(known.unknown_share, impostors)
    scores = {"supervector": 4.0, CONDITION: log_odds, DISTANCE: distance}
    changed = 1.0 / (1.0 + math.exp(1.0 - 2.0 * log_odds))
    unfamiliar = known.limit.unfamiliar(np.array(distance), 100.0)
    expected = known.llr(scores, 100.0) - changed * unfamiliar * math.log(impostors)
    assert assumed.llr(scores, 100.0) == pytest.approx(expected)
    assert assumed.llr(scores | {CONDITION: -800.0}, 100.0) == known.llr(scores | {CONDITION: -800.0}, 100.0)


@given(share=st.floats(0.0, 1.0))
def test_in_either_condition_a_claim_is_judged_against_the_same_impostors(share):
    fits = tuple(
        (origin, LogisticCalibration(("supervector",), np.array([1.0]), offset, 0.0, 100.0))
        for origin, offset in (("enrolled", 2.0), ("unknown", -1.0))
    )
    both = replace(calibrations().whole["supervector"], ratio=fits, changed=SystemCalibration("supervector", fits))
    expected = -math.log((1.0 - share) * math.exp(-6.0) + share * math.exp(-3.0))
    for log_odds in (-800.0, 800.0):
        assert both.at(share).llr({"supervector": 4.0, CONDITION: log_odds}, 100.0) == pytest.approx(expected)


def test_ratios_of_claims_are_shifted_as_those_of_the_condition_are():
    one = calibrations().whole["supervector"]
    shifted = replace(one, shifts={7: 1.5}, changed=replace(one.changed, shifts={7: 4.0, 8: 2.0}))
    for log_odds, shifts in ((-800.0, (1.5, 0.0, 0.0)), (800.0, (4.0, 2.0, 0.0))):
        scores = {"supervector": np.full(3, 4.0), CONDITION: np.full(3, log_odds)}
        ratios = one.llr(scores, 100.0)
        np.testing.assert_allclose(shifted.llr(scores, 100.0, (7, 8, 9)), ratios - shifts)
        np.testing.assert_array_equal(shifted.llr(scores, 100.0), ratios)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("usual_frames", 0.0),
        ("offset", math.inf),
        ("weights", [1.0, 2.0]),
        ("weights", []),
        ("systems", ["condition_"]),
        ("against", "everybody"),
    ],
)
def test_a_fit_that_is_none_is_not_read(field, value):
    table = calibrations().as_json()
    table["whole"]["supervector"]["ratio"][0][field] = value
    with pytest.raises(ValueError, match=r"must have finite weights, one a system|there is no system"):
        Calibrations.from_json(table)


def test_shifts_that_are_not_finite_are_not_read():
    table = calibrations().as_json()
    table["whole"]["supervector"]["shifts"] = {"7": math.nan}
    with pytest.raises(ValueError, match="finite shifts"):
        Calibrations.from_json(table)


@pytest.mark.parametrize(
    ("field", "value"), [("least", -1.0), ("factor", math.nan), ("factor", 1.0), ("most_frames", 0.0)]
)
def test_a_limit_that_is_none_is_not_read(field, value):
    table = calibrations().as_json()
    table["whole"]["supervector"]["limit"][field] = value
    with pytest.raises(ValueError, match="a limit of distances must have finite numbers"):
        Calibrations.from_json(table)


@pytest.mark.parametrize("limit", [5, "least", [1.0], {}, {"least": []}])
def test_a_limit_of_another_form_is_refused_as_other_calibrations_are(limit):
    table = calibrations().as_json()
    table["whole"]["supervector"]["limit"] = limit
    with pytest.raises((ValueError, KeyError, TypeError)):
        Calibrations.from_json(table)


def test_calibrations_by_condition_survive_json():
    made = calibrations()
    table = json.loads(json.dumps(made.as_json()))
    again = Calibrations.from_json(table)
    scores = {"supervector": np.array([0.3, -2.0]), CONDITION: np.array([0.4, -0.4]), DISTANCE: np.array([9.0, 80.0])}
    before, after = (one.whole["supervector"].llr(scores, 70.0) for one in (made, again))
    np.testing.assert_array_equal(before, after)
    with pytest.raises(KeyError):
        del table["whole"]["supervector"]["condition"]
        Calibrations.from_json(table)
