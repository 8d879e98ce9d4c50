"""Supervector machines and the UBM against scikit-learn's mixtures and ridge regressions, and against slow loops."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.mixture import GaussianMixture

from pipeline.errors import FitError
from pipeline.machines.gram import Known, packed, unpacked
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.supervectors import SupervectorMachines, segments_of, unit
from pipeline.machines.ubm import (
    FRAMES_A_COMPONENT,
    VARIANCE_FLOOR,
    UniversalBackgroundModel,
    loudness,
    train_ubm,
)

DIMENSION = 3
SEEDS = st.integers(0, 2**32 - 1)


def space_of(seed: int, *, components: int = 4, relevance: float = 2.0) -> UniversalBackgroundModel:
    random = np.random.default_rng(seed)
    weights = random.uniform(0.2, 1.0, components)
    return UniversalBackgroundModel(
        centre=random.normal(0.0, 2.0, DIMENSION),
        scale=random.uniform(0.5, 3.0, DIMENSION),
        means=random.normal(0.0, 1.0, (components, DIMENSION)),
        variances=random.uniform(0.1, 2.0, (components, DIMENSION)),
        weights=weights / weights.sum(),
        relevance=relevance,
    )


def frames_of(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames (T, d) and their loudness (T,)."""
    random = np.random.default_rng(seed)
    return random.normal(0.0, 3.0, (count, DIMENSION)), random.uniform(0.0, 1.0, count)


def as_sklearn(space: UniversalBackgroundModel) -> GaussianMixture:
    """The same mixture over standardised frames."""
    mixture = GaussianMixture(len(space.weights), covariance_type="diag")
    mixture.weights_, mixture.means_ = space.weights, space.means
    mixture.covariances_, mixture.precisions_cholesky_ = space.variances, 1 / np.sqrt(space.variances)
    return mixture


def training_data(seed: int, counts: tuple[int, ...], dimension: int = 12) -> list[np.ndarray]:
    """Vectors (S_n, D) of each speaker around a mean of their own, in single precision as stores hold them."""
    random = np.random.default_rng(seed)
    return [
        (random.normal(0.0, 1.0, dimension) + 0.7 * random.standard_normal((count, dimension))).astype(np.float32)
        for count in counts
    ]


def normalised(vectors: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean (D,), centred unit rows (S, D) and owners (S,) of the training data."""
    stacked = np.concatenate(vectors).astype(np.float64)
    rows = stacked - stacked.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return stacked.mean(axis=0), rows, np.repeat(np.arange(len(vectors)), [len(part) for part in vectors])


def centred_targets(owners: np.ndarray, speakers: int) -> np.ndarray:
    """1 and -1 / (N - 1), less the mean of each column."""
    targets = np.where(owners[:, None] == np.arange(speakers), 1.0, -1.0 / (speakers - 1))
    return targets - targets.mean(axis=0)


# The mixture and the statistics of a segment.


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, components=st.integers(1, 6))
def test_responsibilities_are_scikit_learns_posteriors(seed, components):
    space = space_of(seed, components=components)
    standard = (frames_of(seed, 50)[0] - space.centre) / space.scale
    expected = as_sklearn(space).predict_proba(standard)
    np.testing.assert_allclose(space.responsibilities(standard), expected, rtol=1e-9, atol=1e-12)


def test_responsibilities_of_frames_far_from_every_component_are_finite_and_sum_to_one():
    share = space_of(1).responsibilities(np.array([[1e6, 0.0, 0.0], [0.0, -1e4, 1e4]]))
    np.testing.assert_allclose(share.sum(axis=1), 1.0, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, count=st.integers(1, 30))
def test_statistics_are_sums_over_frames_of_scikit_learns_posteriors(seed, count):
    space, (frames, weights) = space_of(seed), frames_of(seed + 1, count)
    standard = (frames - space.centre) / space.scale
    share = as_sklearn(space).predict_proba(standard) * weights[:, None]
    offsets = (standard[:, None] - space.means) / np.sqrt(space.variances)
    expected = np.column_stack((share.sum(axis=0), (share[:, :, None] * offsets).sum(axis=0)))
    np.testing.assert_allclose(space.statistics(frames, weights), expected, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(space.statistics(frames[:0], weights[:0]), 0.0)


def settled(space: UniversalBackgroundModel, frames: np.ndarray, below_peak: np.ndarray, cuts: list[int]) -> np.ndarray:
    """Statistics of ``frames`` that come in blocks."""
    sums = None
    for start, end in pairwise([0, *sorted(cuts), len(frames)]):
        sums = space.running(frames[start:end], below_peak[start:end], sums)
    return space.settled(sums)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, prior=st.floats(0.1, 200.0), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_normalised_statistics_are_less_the_mean_of_all_with_posteriors_by_the_mean_so_far(seed, prior, cuts):
    space, (frames, _) = replace(space_of(seed), half_db=9.0, mean_prior=prior), frames_of(seed + 1, 40)
    below_peak = np.random.default_rng(seed).uniform(0.0, 30.0, 40)
    so_far = np.stack([frames[: t + 1].sum(axis=0) / (t + 1 + prior) for t in range(40)])
    whole = frames.sum(axis=0) / (40 + prior)
    share = as_sklearn(space).predict_proba((frames - so_far - space.centre) / space.scale)
    share *= loudness(below_peak, 9.0)[:, None]
    offsets = ((frames - whole - space.centre) / space.scale)[:, None] - space.means
    expected = np.column_stack((share.sum(axis=0), np.einsum("tk,tkd->kd", share, offsets / np.sqrt(space.variances))))
    np.testing.assert_allclose(settled(space, frames, below_peak, cuts), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, channel=st.floats(-5.0, 5.0))
def test_a_constant_of_the_channel_is_gone_from_normalised_statistics_and_not_from_raw_ones(seed, channel):
    frames, below_peak = frames_of(seed, 40)[0], np.zeros(40)
    for prior, is_gone in ((1e-9, True), (np.inf, channel == 0.0)):
        space = replace(space_of(seed), mean_prior=prior)
        plain, shifted = (settled(space, x, below_peak, [7]) for x in (frames, frames + channel))
        assert np.allclose(plain, shifted, atol=1e-5) == is_gone or abs(channel) < 1e-4


def test_vector_believes_an_offset_by_half_at_as_many_frames_as_its_relevance():
    space = space_of(4, components=1, relevance=5.0)
    frame = space.centre + space.scale * (space.means[0] + 2.0 * np.sqrt(space.variances[0]))
    for count, believed in ((0, 0.0), (5, 0.5), (15, 0.75), (100_000, 1.0)):
        vector = space.vector(space.statistics(np.repeat(frame[None], count, axis=0), np.ones(count)))
        np.testing.assert_allclose(vector, np.sqrt(2.0 * believed), atol=1e-3)
    mirrored = space.centre + space.scale * (space.means[0] - 2.0 * np.sqrt(space.variances[0]))
    one, other = (space.vector(space.statistics(x[None], np.ones(1))) for x in (frame, mirrored))
    np.testing.assert_allclose(other, -one, atol=1e-12)
    assert space.dimension == vector.size == DIMENSION


def clusters(seed: int, count: int = 3000) -> np.ndarray:
    """Frames of three well separated sounds of different widths, features on different scales."""
    random = np.random.default_rng(seed)
    which = random.integers(0, 3, count)
    means = np.array([[0.0, 0.0, 0.0], [6.0, 0.0, -6.0], [0.0, 7.0, 6.0]])
    widths = np.array([0.9, 1.2, 1.5])
    return (means[which] + widths[which, None] * random.standard_normal((count, DIMENSION))) * [1.0, 10.0, 0.1] + 5.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fitted_mixture_is_as_likely_as_scikit_learns(seed):
    frames = clusters(seed)
    space = train_ubm(frames, components=3, relevance=2.0, seed=seed)
    standard = (frames - frames.mean(axis=0)) / frames.std(axis=0)
    theirs = GaussianMixture(3, covariance_type="diag", n_init=3, random_state=seed, reg_covar=0.0).fit(standard)
    ours = as_sklearn(space)
    assert ours.score(standard) == pytest.approx(theirs.score(standard), abs=0.01)
    np.testing.assert_allclose(np.sort(space.weights), np.sort(theirs.weights_), atol=0.01)
    np.testing.assert_allclose(space.centre, frames.mean(axis=0))
    np.testing.assert_allclose(space.scale, frames.std(axis=0))


def test_one_more_round_is_one_of_scikit_learns():
    frames = clusters(6)
    standard = (frames - frames.mean(axis=0)) / frames.std(axis=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.machines.ubm.MIXTURE_ROUNDS", 1)
        before = train_ubm(frames, components=5, relevance=2.0, seed=0)
        patch.setattr("pipeline.machines.ubm.MIXTURE_ROUNDS", 2)
        after = train_ubm(frames, components=5, relevance=2.0, seed=0)
    share = as_sklearn(before).predict_proba(standard)
    count = share.sum(axis=0)
    means = share.T @ standard / count[:, None]
    variances = np.stack([share[:, k] @ (standard - means[k]) ** 2 / count[k] for k in range(5)])
    np.testing.assert_allclose(after.means, means, atol=1e-4)
    np.testing.assert_allclose(after.variances, np.maximum(variances, VARIANCE_FLOOR), atol=1e-4)
    np.testing.assert_allclose(after.weights, count / count.sum(), atol=1e-5)


def test_few_frames_get_few_components_and_equal_ones_no_trouble():
    few = np.random.default_rng(0).standard_normal((3 * FRAMES_A_COMPONENT + 1, DIMENSION))
    assert len(train_ubm(few, components=64, relevance=2.0, seed=0).weights) == 3
    assert len(train_ubm(few[:5], components=64, relevance=2.0, seed=0).weights) == 1
    same = train_ubm(np.full((100, DIMENSION), 3.0), components=1, relevance=2.0, seed=0)
    vector = same.vector(same.statistics(np.full((10, DIMENSION), 3.0), np.ones(10)))
    np.testing.assert_allclose(vector, 0.0, atol=1e-6)


def test_the_same_seed_fits_the_same_mixture():
    frames = clusters(7)
    one, other = (train_ubm(frames, components=8, relevance=2.0, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.means, other.means)
    np.testing.assert_array_equal(one.variances, other.variances)


# Loudness.


@pytest.mark.parametrize("half_db", [10.0, 30.0])
def test_loudness_is_a_half_at_half_db_and_falls_like_a_logistic_curve(half_db):
    assert loudness(np.array([half_db]), half_db)[0] == 0.5
    below = np.linspace(0.0, 60.0, 50)
    weight = loudness(below, half_db)
    # The odds fall by a factor of e every three decibels.
    np.testing.assert_allclose(np.log(weight / (1 - weight)), (half_db - below) / 3.0, atol=1e-9)


# The machines.

COUNTS = st.lists(st.integers(1, 9), min_size=2, max_size=6).map(tuple).filter(lambda counts: sum(counts) > 3)


def weights_of(owners: np.ndarray) -> np.ndarray:
    """Weight of a segment: the fewer a speaker has, the more each counts; one where all have equally many."""
    counts = np.bincount(owners)
    return counts.mean() / counts[owners]


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, counts=COUNTS, ridge=st.sampled_from((0.3, 3.0)), dimension=st.sampled_from((12, 60)))
def test_margins_are_those_of_scikit_learns_weighted_ridge_regressions(seed, counts, ridge, dimension):
    vectors = training_data(seed, counts, dimension)
    mean, rows, owners = normalised(vectors)
    new = np.random.default_rng(seed).normal(0.0, 2.0, (5, dimension))
    training = SupervectorTraining(vectors, ridge=ridge)
    margins = training.margins(new)
    for theirs in (Ridge(alpha=ridge, fit_intercept=False), KernelRidge(alpha=ridge, kernel="linear")):
        theirs.fit(rows, centred_targets(owners, len(counts)), sample_weight=weights_of(owners))
        np.testing.assert_allclose(margins, theirs.predict(unit(new - mean)), atol=1e-5)
    np.testing.assert_allclose(training.mean, mean, atol=1e-6)
    # As their targets do, since the fit is linear in them.
    np.testing.assert_allclose(margins.sum(axis=1), 0.0, atol=1e-5)


def test_machines_give_the_margins_of_the_solver_they_come_from():
    space = space_of(8)
    spoken = [[frames_of(10 * n + s, 30)[0] + n for s in range(5)] for n in range(3)]
    vectors = [
        np.stack([space.vector(space.statistics(x, np.ones(30))) for x in part]).astype(np.float32) for part in spoken
    ]
    training = SupervectorTraining(vectors, ridge=1.0)
    machines = SupervectorMachines((space,), training.mean, training.coef)
    assert machines.coef.shape == (3, space.dimension)
    frames, weights = frames_of(99, 40)
    statistics = space.statistics(frames, weights)
    np.testing.assert_allclose(
        machines.margins([statistics]), training.margins(space.vector(statistics)[None])[0], atol=1e-5
    )


def test_a_segment_that_is_the_mean_of_all_has_margins_of_zero():
    space = space_of(3)
    statistics = space.statistics(*frames_of(5, 20))
    machines = SupervectorMachines((space,), space.vector(statistics), np.ones((2, space.dimension), np.float32))
    np.testing.assert_allclose(machines.margins([statistics]), 0.0, atol=1e-3)


def test_one_speaker_has_a_machine_that_says_nothing():
    training = SupervectorTraining(training_data(0, (5,)), ridge=1.0)
    np.testing.assert_allclose(training.margins(np.random.default_rng(1).standard_normal((3, 12))), 0.0, atol=1e-12)


# Leaving a speaker out.


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, counts=COUNTS.filter(lambda counts: len(counts) > 2), has_pseudo=st.booleans(), data=st.data())
def test_margins_without_a_speaker_are_those_of_training_again_on_the_others(seed, counts, has_pseudo, data):
    """Weighted ridge regression on the rows of the others alone; centring and targets are those of everybody."""
    vectors = training_data(seed, counts)
    made = [[part[:4] + 1.0] for part in vectors] if has_pseudo else []
    absent = data.draw(st.integers(0, len(counts) - 1))
    new = np.random.default_rng(seed).normal(0.0, 2.0, (5, 12))
    mean, rows, voices = normalised([*vectors, *(part for parts in made for part in parts)])
    kept = (voices % len(counts)) != absent
    targets = centred_targets(voices, int(voices.max()) + 1)[kept][:, : len(counts)]
    theirs = Ridge(alpha=2.0, fit_intercept=False).fit(rows[kept], targets, sample_weight=weights_of(voices)[kept])
    training = SupervectorTraining(vectors, ridge=2.0, pseudo_speakers=made)
    before, margins = training.margins(new), training.without(absent).margins(new)
    others = np.arange(len(counts)) != absent
    np.testing.assert_allclose(margins[:, others], theirs.predict(unit(new - mean))[:, others], atol=2e-5)
    np.testing.assert_array_equal(training.margins(new), before)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, counts=COUNTS.filter(lambda counts: len(counts) > 2 and min(counts) > 1), data=st.data())
def test_machines_without_held_out_segments_are_those_of_training_again_on_the_rest(seed, counts, data):
    vectors = training_data(seed, counts)
    held = [data.draw(st.integers(0, count - 1)) for count in counts]
    absent = data.draw(st.integers(0, len(counts) - 1))
    new = np.random.default_rng(seed).normal(0.0, 2.0, (len(counts) + 2, 12))
    mean, rows, owners = normalised(vectors)
    kept = np.concatenate([np.arange(size) < size - count for size, count in zip(counts, held, strict=True)])
    training = SupervectorTraining(vectors, ridge=2.0, held_out=[(count,) for count in held])
    for rest, made in ((kept, training.without_held_out), (kept & (owners != absent), training.without(absent))):
        theirs = Ridge(alpha=2.0, fit_intercept=False)
        targets = centred_targets(owners, len(counts))[rest]
        theirs.fit(rows[rest], targets, sample_weight=weights_of(owners)[rest])
        others = np.arange(len(counts)) != (absent if rest is not kept else -1)
        for some in (new[:1], new):  # by kernel values, and by coefficients
            expected = theirs.predict(unit(some - mean))[:, others]
            np.testing.assert_allclose(made.margins(some)[:, others], expected, atol=2e-5)
    parts = new[:2], new[2:], np.tile(new, (2, 1))  # the last by coefficients
    together = training.held_out_margins([absent, 0, absent], parts)
    for speaker, some, margins in zip((absent, 0, absent), parts, together, strict=True):
        for made, solution in zip(margins, (training.without_held_out, training.without(speaker)), strict=True):
            np.testing.assert_allclose(made, solution.margins(some), atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, counts=COUNTS, data=st.data())
def test_inner_products_that_are_known_are_not_needed_again(seed, counts, data):
    vectors = training_data(seed, counts)
    whole = SupervectorTraining(vectors, ridge=1.0)
    inner = unpacked(whole.triangle)
    np.testing.assert_array_equal(packed(inner), whole.triangle)
    np.testing.assert_array_equal(inner, inner.T)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, sum(counts) - 1)))), dtype=int)
    known = Known(rows, inner[np.ix_(rows, rows)])
    again = SupervectorTraining(vectors, ridge=1.0, known=known)
    np.testing.assert_allclose(unpacked(again.triangle), inner, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(again.coef, whole.coef, atol=1e-5)
    if len(rows):  # they are believed
        other = SupervectorTraining(vectors, ridge=1.0, known=Known(rows, 2.0 * known.inner))
        assert np.abs(other.triangle - whole.triangle).max() > 0.1


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, counts=COUNTS.filter(lambda counts: len(counts) > 2))
def test_pseudo_speakers_are_speakers_without_a_machine(seed, counts):
    vectors = training_data(seed, counts)
    made = [[part[:4] + 1.0, part[:2] - 1.0] for part in vectors]
    new = np.random.default_rng(seed).normal(0.0, 2.0, (5, 12))
    among = SupervectorTraining([*vectors, *(part for parts in made for part in parts)], ridge=2.0)
    margins = SupervectorTraining(vectors, ridge=2.0, pseudo_speakers=made).margins(new)
    np.testing.assert_allclose(margins, among.margins(new)[:, : len(counts)], atol=2e-5)


# Segments.


def numbered(sizes: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Utterances whose frames, and a tenth of whose loudness, are numbered through."""
    ends = np.cumsum([0, *sizes])
    parts = [np.arange(a, b, dtype=float) for a, b in pairwise(ends)]
    return [(np.stack((part, -part), axis=1), part / 10) for part in parts]


def unlimited(sizes: list[int], wanted: int) -> int:
    """No fewer segments than cutting and joining utterances of ``sizes`` would give without a limit."""
    long = [size for size in sizes if size >= 1.5 * wanted]
    windows = sum((size - wanted) // max(1, wanted // 2) + 1 for size in long)
    return windows + math.ceil((sum(sizes) - sum(long)) / wanted)


@settings(max_examples=150, deadline=None)
@given(sizes=st.lists(st.integers(1, 200), min_size=1, max_size=12), frames=st.integers(1, 80), most=st.integers(2, 50))
def test_segments_are_overlapping_runs_of_frames_of_about_the_length_asked_for(sizes, frames, most):
    wanted = max(frames, math.ceil(sum(sizes) / most))
    segments = segments_of(numbered(sizes), frames, most)
    of = np.repeat(np.arange(len(sizes)), sizes)
    for vectors, weights in segments:
        np.testing.assert_array_equal(vectors[:, 0] / 10, weights)
        np.testing.assert_array_equal(vectors[:, 1], -vectors[:, 0])
        numbers = vectors[:, 0].astype(int)
        # Where frames do not follow on each other, an utterance is left out whole.
        for a, b in pairwise(numbers):
            assert b == a + 1 or (b > a and of[a] != of[a + 1] and of[b] != of[b - 1])
    lengths = [len(vectors) for vectors, _ in segments]
    assert 1 <= len(lengths) <= most
    assert max(lengths) < 2.5 * wanted
    assert sum(length < wanted for length in lengths) <= 1
    assert len(lengths) == 1 or min(lengths) >= wanted / 2
    # Windows overlap by half; half of an odd length is rounded down, and then a frame may be in a third one.
    used = np.bincount(np.concatenate([vectors[:, 0].astype(int) for vectors, _ in segments]), minlength=sum(sizes))
    assert used.max() <= 2 + wanted % 2
    if unlimited(sizes, wanted) <= most:  # else some are left out on purpose
        # The end of a long utterance is shorter than a step; the last short ones may be shorter than half a segment.
        long = sum(size >= 1.5 * wanted for size in sizes)
        assert np.count_nonzero(used == 0) <= long * (max(1, wanted // 2) - 1) + wanted / 2


@pytest.mark.parametrize(
    ("sizes", "frames", "expected"),
    [
        ([10], 10, [(0, 10)]),
        ([14], 10, [(0, 14)]),  # too short to cut
        ([15], 10, [(0, 10), (5, 15)]),  # windows by half
        ([23], 10, [(0, 10), (5, 15), (10, 20)]),
        ([4, 4, 4, 4], 8, [(0, 8), (8, 16)]),
        ([4, 4, 3], 8, [(0, 8)]),  # less than half is left
        ([4, 4, 4], 8, [(0, 8), (8, 12)]),
        ([3], 10, [(0, 3)]),  # all there is
        ([50] * 40, 50, [(200 * n, 200 * (n + 1)) for n in range(10)]),  # longer ones, not more than ten
    ],
)
def test_segments_worked_by_hand(sizes, frames, expected):
    segments = segments_of(numbered(sizes), frames, 10)
    assert [(int(v[0, 0]), int(v[-1, 0]) + 1) for v, _ in segments] == expected


# The solution.


def test_same_number_of_threads_gives_the_same_bits_and_another_the_same_margins():
    vectors, new = training_data(2, (150, 250, 200), dimension=30), np.random.default_rng(0).standard_normal((4, 30))
    one, again, more = (SupervectorTraining(vectors, ridge=1.0, jobs=jobs) for jobs in (1, 1, 2))
    np.testing.assert_array_equal(one.margins(new), again.margins(new))
    np.testing.assert_array_equal(one.without(1).margins(new), again.without(1).margins(new))
    np.testing.assert_allclose(one.margins(new), more.margins(new), atol=1e-6)
    np.testing.assert_allclose(one.without(1).margins(new), more.without(1).margins(new), atol=1e-5)


@pytest.mark.parametrize("ridge", [1e-9, 1e-5, 1e-2, 100.0])
def test_any_ridge_that_a_solution_exists_for_is_solved_to_its_end(ridge):
    """Single precision cannot tell a small ridge from none."""
    vectors = training_data(4, (30, 20, 25), dimension=90)
    mean, rows, owners = normalised(vectors)
    system = rows @ rows.T + np.diag(ridge / weights_of(owners))
    dual = np.linalg.solve(system, centred_targets(owners, 3))
    margins = SupervectorTraining(vectors, ridge=ridge).margins(vectors[0].astype(float))
    np.testing.assert_allclose(margins, unit(vectors[0] - mean) @ rows.T @ dual, atol=2e-4)


def test_segments_that_repeat_without_a_ridge_are_an_error_that_names_it():
    with pytest.raises(FitError, match=r"supervector\.ridge"):
        SupervectorTraining([np.ones((4, 3), np.float32), -np.ones((4, 3), np.float32)], ridge=1e-300)
