"""Pitch histograms against numpy's histogram, the mean of a Dirichlet posterior and log-likelihoods by hand."""

from __future__ import annotations

import numpy as np
import pytest
from features.sounds import CHUNKS, cut
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import dirichlet

from pipeline.config import Config, PitchConfig
from pipeline.errors import ConfigError
from pipeline.features.pitch import HIGHEST_HZ, LOWEST_HZ
from pipeline.machines.pitch import PRIOR_FRAMES, PitchCounts, PitchHistograms

SEEDS = st.integers(0, 2**32 - 1)
SETTINGS = PitchConfig()
EDGES = np.linspace(np.log2(LOWEST_HZ), np.log2(HIGHEST_HZ), SETTINGS.bins + 1)


def spoken(random: np.random.Generator, hertz: float, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Return frames (T, 2) of somebody who speaks at about ``hertz``, and decibels below the loudest."""
    octaves = np.log2(hertz) + 0.15 * random.standard_normal(frames)
    return np.stack((octaves, random.uniform(0.0, 1.0, frames)), axis=1), random.uniform(0.0, 40.0, frames)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, sizes=CHUNKS, frames=st.integers(0, 400))
def test_counts_are_numpys_histogram_of_weighted_frames_in_any_chunks(seed, sizes, frames):
    vectors, below = spoken(np.random.default_rng(seed), 150.0, frames)
    weights = vectors[:, 1] / (1.0 + np.exp((below - SETTINGS.half_db) / 3.0))
    expected = np.histogram(vectors[:, 0], EDGES, weights=weights)[0]
    counts, sums = PitchCounts(SETTINGS), None
    for rows in cut(np.arange(frames), sizes):
        sums = counts.running_sums(vectors[rows], below[rows], sums)
    np.testing.assert_allclose(counts.utterance_statistics(sums), expected, rtol=1e-9, atol=1e-9)


def test_frequencies_out_of_range_count_as_the_lowest_and_the_highest():
    frames = np.array([[0.0, 1.0], [20.0, 1.0], [20.0, 1.0]])
    counts = PitchCounts(SETTINGS).running_sums(frames, np.zeros(3))
    assert counts[0] == pytest.approx(counts[-1] / 2)
    assert counts[0] > 0.9
    assert not counts[1:-1].any()


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, relevance=st.floats(0.1, 1000.0))
def test_a_histogram_is_the_mean_of_the_posterior_under_a_dirichlet_prior(seed, relevance):
    counts = np.zeros(SETTINGS.bins)
    counts[10:20] = np.random.default_rng(seed).uniform(0.0, 100.0, 10)
    neighbours = np.exp(-0.5 * np.arange(-3, 4) ** 2)
    smeared = sum(
        weight * np.roll(counts, step) for step, weight in zip(range(-3, 4), neighbours / neighbours.sum(), strict=True)
    )
    shares = PitchCounts(PitchConfig(relevance=relevance)).shares(counts)
    np.testing.assert_allclose(shares, dirichlet.mean(smeared + relevance / SETTINGS.bins), rtol=1e-5)


def test_margins_are_mean_log_likelihoods_and_nearly_nothing_with_few_voiced_frames():
    counts, random = PitchCounts(SETTINGS), np.random.default_rng(0)
    voices = [80.0, 120.0, 200.0, 300.0]
    shares = np.stack([counts.shares(counts.running_sums(*spoken(random, hertz, 2000))) for hertz in voices])
    machines = PitchHistograms((counts,), shares)
    for number, hertz in enumerate(voices):
        vectors, below = spoken(random, hertz, 200)
        own = counts.running_sums(vectors, below)
        margins = machines.margins([own])
        by_hand = [np.sum(own * np.log(row.astype(float))) / (own.sum() + PRIOR_FRAMES) for row in shares]
        np.testing.assert_allclose(margins, by_hand, rtol=1e-12)
        assert np.argmax(margins) == number
        few = machines.margins([counts.running_sums(vectors[:1], below[:1])])
        assert np.ptp(few) < 0.2 * np.ptp(margins)
    np.testing.assert_array_equal(machines.margins([counts.none]), 0.0)


def test_machines_over_pitches_need_the_analysis():
    with pytest.raises(ConfigError, match=r"machines.kinds has pitch, which needs features.pitch = true"):
        Config.model_validate({"features": {"pitch": False}})
