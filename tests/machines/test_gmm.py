"""Adapted GMMs against Gaussian densities, scikit-learn's mixtures and Bayes' rule for a Gaussian's mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import supervector_data
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.stats import norm
from supervector_data import DIMENSION, SEEDS, as_sklearn

from pipeline.machines.gmm import AdaptedMixtures, component_groups, map_mean_offsets
from pipeline.machines.ubm import UniversalBackgroundModel


def space_of(seed: int, components: int = 5, apart: float = 1.0) -> UniversalBackgroundModel:
    """A mixture over standardised frames, its components about so far ``apart``."""
    space = supervector_data.space_of(seed, components=components)
    return replace(space, centre=np.zeros(DIMENSION), scale=np.ones(DIMENSION), means=apart * space.means)


def heard(space: UniversalBackgroundModel, seed: int, frames: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Frames (T, d) and the statistics of them, all equally loud."""
    x = np.random.default_rng(seed).normal(0.3, 1.5, (frames, DIMENSION))
    return x, space.statistics(*space.weighed(x, np.ones(frames)))


def offsets_of(
    space: UniversalBackgroundModel,
    statistics: np.ndarray,
    *groups: int,
    relevance: float = 4.0,
    group_relevance: float = 16.0,
) -> np.ndarray:
    levels = component_groups(space.means, groups)
    return map_mean_offsets(statistics, levels, relevance=relevance, group_relevance=group_relevance)


# Scores


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, speakers=st.integers(1, 4))
def test_a_score_is_the_mean_ratio_of_densities_with_the_means_moved_and_not(seed, speakers):
    space = space_of(seed)
    x, statistics = heard(space, seed)
    shifts = np.random.default_rng(seed).standard_normal((speakers, *space.means.shape)).astype(np.float32)
    share, spread = space.responsibilities(x), np.sqrt(space.variances)
    at_rest = norm.logpdf(x[:, None], space.means, spread).sum(axis=-1)
    expected = [
        (share * (norm.logpdf(x[:, None], space.means + shift * spread, spread).sum(axis=-1) - at_rest)).sum() / len(x)
        for shift in shifts.astype(float)
    ]
    machines = AdaptedMixtures((space,), shifts)
    np.testing.assert_allclose(machines.margins([statistics]), expected, atol=2e-5)
    # Of several segments at once, each has its own; a mean is no other where all frames weigh a millionth.
    again = machines.margins([np.stack((1e-6 * statistics, 0.0 * statistics))])
    np.testing.assert_allclose(again, [expected, np.zeros(speakers)], atol=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_where_sounds_are_far_apart_a_score_is_the_ratio_of_two_of_scikit_learns_mixtures(seed):
    """There, no frame leaves its component when the means move by less than the way to the next."""
    space = space_of(seed, components=4, apart=40.0)
    random = np.random.default_rng(seed)
    component = random.integers(0, 4, 300)
    x = space.means[component] + 1.2 * np.sqrt(space.variances[component]) * random.standard_normal((300, DIMENSION))
    shift = random.standard_normal(space.means.shape).astype(np.float32)
    moved = replace(space, means=space.means + shift * np.sqrt(space.variances))
    expected = (as_sklearn(moved).score_samples(x) - as_sklearn(space).score_samples(x)).mean()
    ratio = AdaptedMixtures((space,), shift[None]).margins([space.statistics(*space.weighed(x, np.ones(300)))])
    np.testing.assert_allclose(ratio, expected, atol=1e-5)


def test_a_model_that_did_not_move_and_a_segment_without_frames_score_nothing():
    space = space_of(0)
    _, statistics = heard(space, 1)
    offsets = np.random.default_rng(2).standard_normal((2, *space.means.shape)).astype(np.float32)
    np.testing.assert_array_equal(AdaptedMixtures((space,), 0 * offsets).margins([statistics]), 0.0)
    np.testing.assert_array_equal(AdaptedMixtures((space,), offsets).margins([0 * statistics]), 0.0)


# Adaptation


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, relevance=st.floats(0.1, 100.0))
def test_without_groups_a_mean_goes_to_where_bayes_rule_puts_it(seed, relevance):
    """Posterior mean of a Gaussian's mean: prior N(m, var / r), n frames with variance var."""
    space = space_of(seed)
    x, statistics = heard(space, seed)
    offsets = offsets_of(space, statistics, relevance=relevance)
    share = space.responsibilities(x)
    n = share.sum(axis=0)[:, None]
    precision = (relevance + n) / space.variances
    posterior = (relevance / space.variances * space.means + (share.T @ x) / space.variances) / precision
    expected = (posterior - space.means) / np.sqrt(space.variances)
    np.testing.assert_allclose(offsets, expected, atol=1e-5, rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_components_without_frames_follow_their_group_and_the_group_what_frames_it_has(seed):
    space = space_of(seed, components=8)
    groups = component_groups(space.means, (3, 1))[0]
    statistics = np.zeros((8, 1 + DIMENSION))
    only = int(np.random.default_rng(seed).integers(8))
    offset = np.random.default_rng(seed).standard_normal(DIMENSION)
    statistics[only] = np.r_[10.0, 10.0 * offset]
    offsets = offsets_of(space, statistics, 3, 1)
    everybody = 10 * offset / 26
    group = (10 * offset + 16 * everybody) / 26
    own = (10 * offset + 4 * group) / 14
    for k in range(8):
        expected = own if k == only else group if groups[k] == groups[only] else everybody
        np.testing.assert_allclose(offsets[k], expected, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, components=st.integers(2, 12), groups=st.sampled_from([(6, 2, 1), (4, 1), (3,), (1,)]))
def test_groups_are_wards_and_each_lies_in_one_of_the_next(seed, components, groups):
    space = space_of(seed, components)
    tree, members = linkage(space.means, "ward"), np.arange(components)
    for level, count in zip(component_groups(space.means, groups), groups, strict=True):
        members = level[members]
        expected = fcluster(tree, count, "maxclust")
        assert len(set(zip(members.tolist(), expected.tolist(), strict=True))) == len(set(expected.tolist()))
        assert len(np.unique(members)) == len(np.unique(expected)) == min(components, count)
        assert len(np.unique(level)) == level.max() + 1, "a group without members"


def test_with_much_speech_every_component_has_its_own_offset_and_with_none_there_is_none():
    space = space_of(3)
    _, statistics = heard(space, 4)
    own = statistics[:, 1:] / statistics[:, :1]
    np.testing.assert_allclose(offsets_of(space, 1e7 * statistics, 3, 1), own, atol=1e-3)
    np.testing.assert_array_equal(offsets_of(space, 0.0 * statistics, 3, 1), 0.0)


def test_one_component_is_a_group_of_its_own():
    space = space_of(0, components=1)
    _, statistics = heard(space, 1)
    assert offsets_of(space, statistics, 32, 8, 1).shape == (1, DIMENSION)
