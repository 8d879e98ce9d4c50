"""Penalised logistic regression against scikit-learn's, and against the conditions of a minimum within bounds."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from pipeline.scoring.regression import MANY, logistic_weights


def trials(
    seed: int, size: int, width: int, apart: float, share: float = 0.3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Design (n, d + 1) with a constant last, targets (n,) and weights (n,); targets lie ``apart`` in each column."""
    random = np.random.default_rng(seed)
    target = random.random(size) < share
    target[:2] = True, False
    columns = random.standard_normal((size, width)) + apart * target[:, None] * random.normal(0.3, 1.0, width)
    weight = np.where(target, 0.5 / target.sum(), 0.5 / (~target).sum())
    return np.column_stack([columns, np.ones(size)]), target, weight


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 9999), size=st.integers(4, 300), width=st.integers(1, 6), apart=st.floats(0.0, 50.0))
def test_weights_are_those_of_scikit_learn(seed, size, width, apart):
    design, target, weight = trials(seed, size, width, apart)
    penalties = np.r_[np.full(width, 0.05), 0.0]
    made = logistic_weights(design, target, weight, 0.0, penalties, positive=0)
    theirs = LogisticRegression(C=20.0, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    theirs.fit(design[:, :-1], target, sample_weight=weight)
    np.testing.assert_allclose(made, np.r_[theirs.coef_[0], theirs.intercept_], rtol=1e-5, atol=1e-5)


@settings(max_examples=100, deadline=None)
@example(
    seed=172, size=27, width=5, apart=30.0, offset=7.0, expected=-0.5, penalty=1.0
)  # between a little damping and much
@example(  # less than rounding
    seed=1172, size=4, width=6, apart=23.966526203993215, offset=-2.96875, expected=-3.0, penalty=1.0
)
@given(
    seed=st.integers(0, 9999),
    size=st.integers(2, 300),
    width=st.integers(1, 6),
    apart=st.floats(0.0, 50.0),
    offset=st.floats(-8.0, 8.0),
    expected=st.floats(-3.0, 3.0),
    penalty=st.sampled_from([1e-4, 1e-2, 1.0]),
)
def test_no_slope_leads_down_within_the_bounds(seed, size, width, apart, offset, expected, penalty):
    design, target, weight = trials(seed, size, width, apart)
    penalties = np.r_[np.full(width, penalty / target.sum()), 0.0]
    w = logistic_weights(design, target, weight, offset, penalties, positive=width, expected=expected)
    assert (w[:width] >= 0.0).all()
    sign = np.where(target, 1.0, -1.0)
    margin = sign * (design @ w + offset)
    slope = penalties * (w - expected) - design.T @ (weight * sign * np.exp(-np.logaddexp(0.0, margin)))
    at_bound = np.r_[w[:width] == 0.0, False]
    assert np.abs(slope[~at_bound]).max() < 1e-8
    assert (slope[at_bound] > -1e-8).all()


@settings(max_examples=30, deadline=None)
@example(seed=0, size=MANY + 1, width=3, apart=1.0, offset=0.0, share=0.0)
@given(
    seed=st.integers(0, 9999),
    size=st.integers(MANY + 1, 19 * MANY),
    width=st.integers(1, 6),
    apart=st.floats(0.0, 50.0),
    offset=st.floats(-8.0, 8.0),
    share=st.sampled_from([0.0, 0.001, 0.03, 0.5]),
)
def test_the_minimum_of_many_trials_is_that_without_a_start_of_few(seed, size, width, apart, offset, share):
    design, target, weight = trials(seed, size, width, apart, share)
    penalties = np.r_[np.full(width, 0.05), 0.0]
    offsets = np.linspace(0.0, offset, size)
    fit = partial(logistic_weights, design, target, weight, offsets, penalties, positive=width)
    made = fit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.scoring.regression.MANY", 20 * MANY)
        np.testing.assert_allclose(made, fit(), rtol=1e-5, atol=1e-5)
