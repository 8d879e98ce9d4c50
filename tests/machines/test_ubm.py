"""The universal background model against scikit-learn's mixtures: posteriors, statistics, fitting and loudness."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture
from supervector_data import DIMENSION, SEEDS, as_sklearn, frames_of, space_of

from pipeline.machines.ubm import (
    FRAMES_A_COMPONENT,
    VARIANCE_FLOOR,
    UniversalBackgroundModel,
    loudness,
    running_mean,
    train_ubm,
)

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


@given(distance=st.floats(0.0, 1e3), precision=st.sampled_from([np.float32, np.float64]))
def test_responsibilities_are_never_subnormal(distance, precision):
    share = space_of(1).responsibilities(np.array([[distance, -distance, distance]], dtype=precision))
    assert share.dtype == precision
    assert share.min() >= np.finfo(precision).tiny


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, count=st.integers(1, 30))
def test_statistics_are_sums_over_frames_of_scikit_learns_posteriors(seed, count):
    space, (frames, weights) = space_of(seed), frames_of(seed + 1, count)
    standard = (frames - space.centre) / space.scale
    share = as_sklearn(space).predict_proba(standard) * weights[:, None]
    offsets = (standard[:, None] - space.means) / np.sqrt(space.variances)
    expected = np.column_stack((share.sum(axis=0), (share[:, :, None] * offsets).sum(axis=0)))
    np.testing.assert_allclose(space.statistics(*space.weighed(frames, weights)), expected, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(space.statistics(*space.weighed(frames[:0], weights[:0])), 0.0)


def test_quiet_frames_of_an_hour_count_in_single_precision_too():
    space, (some, _) = space_of(2), frames_of(3, 400)
    standard = np.tile((some - space.centre) / space.scale, (1000, 1))
    share = np.full((len(standard), len(space.weights)), 4e-4)
    share[:10_000] = 1.0  # of which half the spacing of single precision is more than the later ones
    expected = space.statistics(standard, share)
    single = space.statistics(standard.astype(np.float32), share.astype(np.float32))
    np.testing.assert_allclose(single[:, 0], expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(single[:, 1:], expected[:, 1:], atol=1e-4 * expected[0, 0])


def statistics_of(
    space: UniversalBackgroundModel, frames: np.ndarray, below_peak: np.ndarray, cuts: list[int]
) -> np.ndarray:
    """Statistics of ``frames`` that come in blocks."""
    sums = None
    for start, end in pairwise([0, *sorted(cuts), len(frames)]):
        sums = space.running_sums(frames[start:end], below_peak[start:end], sums)
        sums.flags.writeable = False  # a stream may be asked what it would be with more frames
    return space.utterance_statistics(sums)


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
    np.testing.assert_allclose(statistics_of(space, frames, below_peak, cuts), expected, rtol=1e-9, atol=1e-9)


def test_the_mean_so_far_of_an_hour_in_single_precision_is_that_in_double():
    frames = np.random.default_rng(0).normal(3.0, 1.0, (360_000, 1)).astype(np.float32)
    expected = np.cumsum(frames.astype(np.float64), axis=0) / (8.0 + np.arange(1, len(frames) + 1))[:, None]
    np.testing.assert_allclose(running_mean(frames, 8.0), expected, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, channel=st.floats(-5.0, 5.0))
def test_a_constant_of_the_channel_is_gone_from_normalised_statistics_and_not_from_raw_ones(seed, channel):
    frames, below_peak = frames_of(seed, 40)[0], np.zeros(40)
    for prior, is_gone in ((1e-9, True), (np.inf, channel == 0.0)):
        space = replace(space_of(seed), mean_prior=prior)
        plain, shifted = (statistics_of(space, x, below_peak, [7]) for x in (frames, frames + channel))
        assert np.allclose(plain, shifted, atol=1e-5) == is_gone or abs(channel) < 1e-4


def test_an_offset_is_halved_where_there_are_as_many_frames_as_the_relevance():
    space = space_of(4, components=1, relevance=5.0)
    frame = space.centre + space.scale * (space.means[0] + 2.0 * np.sqrt(space.variances[0]))
    for count, believed in ((0, 0.0), (5, 0.5), (15, 0.75), (100_000, 1.0)):
        vector = space.vector(space.statistics(*space.weighed(np.repeat(frame[None], count, axis=0), np.ones(count))))
        np.testing.assert_allclose(vector, np.sqrt(2.0 * believed), atol=1e-3)
    mirrored = space.centre + space.scale * (space.means[0] - 2.0 * np.sqrt(space.variances[0]))
    one, other = (space.vector(space.statistics(*space.weighed(x[None], np.ones(1)))) for x in (frame, mirrored))
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
    vector = same.vector(same.statistics(*same.weighed(np.full((10, DIMENSION), 3.0), np.ones(10))))
    np.testing.assert_allclose(vector, 0.0, atol=1e-6)


def test_the_same_seed_fits_the_same_mixture_with_the_settings_it_was_given():
    frames, given = clusters(7), {"relevance": 2.0, "half_db": 9.0, "mean_prior": 50.0}
    one, other, another = (train_ubm(frames, components=8, seed=seed, **given) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.means, other.means)
    np.testing.assert_array_equal(one.variances, other.variances)
    assert not np.array_equal(one.means, another.means)
    assert {name: getattr(one, name) for name in given} == given


def test_of_many_frames_some_are_drawn_from_all_of_them(monkeypatch):
    monkeypatch.setattr("pipeline.machines.ubm.MIXTURE_FRAMES", 1000)
    frames = np.random.default_rng(0).standard_normal((6000, DIMENSION))
    frames[1200:] += 20.0
    weight = train_ubm(frames, components=2, relevance=2.0, seed=0).weights.min()
    # Of a thousand drawn at random, within four standard deviations; of all, exactly a fifth.
    assert 1e-5 < abs(weight - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 1000)


# Loudness.


@pytest.mark.parametrize("half_db", [10.0, 30.0])
def test_loudness_is_a_half_at_half_db_and_falls_like_a_logistic_curve(half_db):
    assert loudness(np.array([half_db]), half_db)[0] == 0.5
    below = np.linspace(0.0, 60.0, 50)
    weight = loudness(below, half_db)
    # The odds fall by a factor of e every three decibels.
    np.testing.assert_allclose(np.log(weight / (1 - weight)), (half_db - below) / 3.0, atol=1e-9)
