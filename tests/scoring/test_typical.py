"""Ratios typical of a claimant: shrunk means against simulated claimants, and what the shifts of a store change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.scoring.typical import Typicality, expected


def drawn(
    claimants: int, each: int, *, between: float, within: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means of claimants around 8, and ratios and claimants of ``each`` trials of theirs."""
    rng = np.random.default_rng(seed)
    means = rng.normal(8.0, between, claimants)
    claims = np.repeat(np.arange(claimants), each).astype(np.uint64)
    return means, rng.normal(means[claims.astype(int)], within), claims


def test_another_trial_falls_short_as_often_as_the_normal_model_says():
    means, ratios, claims = drawn(4000, 6, between=2.0, within=1.5, seed=1)
    found = expected(ratios, claims)
    rng = np.random.default_rng(2)
    for deviations, share in ((1.0, 0.15866), (2.0, 0.02275)):  # of the standard normal distribution
        least = np.array([found[claim][0] - deviations * found[claim][1] for claim in range(4000)])
        assert np.mean(rng.normal(means, 1.5) < least) == pytest.approx(share, rel=0.15)


def test_a_claimant_of_few_trials_is_taken_for_one_like_the_others():
    _, ratios, claims = drawn(50, 8, between=0.5, within=3.0, seed=3)
    with_another = np.r_[ratios, 20.0], np.r_[claims, np.uint64(50)]
    mean, _ = expected(*with_another)[50]
    assert mean < 12.0  # one utterance of 20 says little where utterances differ by 3


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=40), st.integers(0, 100), st.integers(0, 10))
def test_shifts_are_finite_and_never_raise_a_ratio(values, speakers, claimants):
    claims = np.arange(len(values), dtype=np.uint64) % np.uint64(claimants + 1)
    shifts = Typicality(0.4, speakers).shifts(np.array(values), claims)
    assert all(np.isfinite(shift) and shift > 0 for shift in shifts.values())
    assert set(shifts) <= set(claims.tolist())


@pytest.mark.parametrize(
    ("speakers", "deviations", "share"), [(1, 0.65, 1.0), (4, 1.85, 4**-0.15), (7, 3.05, 7**-0.15)]
)
def test_the_least_typical_ratio_is_at_the_threshold(speakers, deviations, share):
    ratios, claims = np.array([9.0, 11.0, 10.0, 12.0, 8.0, 10.0, 9.5, 10.5]), np.zeros(8, dtype=np.uint64)
    shift = Typicality(0.4, speakers).shifts(ratios, claims)[0]
    mean, spread = expected(ratios, claims)[0]
    assert mean == pytest.approx(10.0)
    assert spread == pytest.approx(ratios.std(ddof=1) * np.sqrt(1 + 1 / 8))  # of the predictive distribution
    assert share * (mean - deviations * spread) - shift == pytest.approx(0.4)


def test_with_many_speakers_impostors_decide():
    _, ratios, claims = drawn(30, 6, between=1.0, within=2.5, seed=4)
    assert Typicality(0.4, 1).shifts(ratios, claims)
    assert not Typicality(0.4, 30).shifts(ratios, claims)
