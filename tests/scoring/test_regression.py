"""Weights of a logistic regression against scipy's minimisation and scikit-learn's, and what makes a minimum one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from pipeline.scoring.calibration import logistic_weights


def trials(seed: int, count: int, columns: int, apart: float):
    """Scores of ``columns`` systems and a constant; the farther ``apart``, the fewer errors: without one at 9."""
    random = np.random.default_rng(seed)
    target = random.random(count) < 0.4
    target[:2] = True, False
    scores = random.standard_normal((count, columns)) @ random.standard_normal((columns, columns))
    scores += apart * target[:, None] * random.choice([1.0, 1.0, -0.5], columns)
    design = np.concatenate((scores / scores.std(axis=0), np.ones((count, 1))), axis=1)
    weight = np.where(target, 0.05 / target.sum(), 0.95 / (~target).sum())
    return design, target, weight, np.full(count, np.log(0.05 / 0.95))


def loss_of(design, target, weight, offset, penalties):
    sign = np.where(target, 1.0, -1.0)

    def loss(w):
        margin = sign * (design @ w + offset)
        slope = -(design.T @ (weight * sign * expit(-margin))) + penalties * w
        return weight @ np.logaddexp(0.0, -margin) + 0.5 * penalties @ (w * w), slope

    return loss


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(2, 300),
    columns=st.integers(1, 6),
    apart=st.sampled_from([0.0, 1.0, 3.0, 9.0]),
    penalty=st.sampled_from([1e-6, 1e-4, 1e-2]),
)
def test_no_weights_are_better_and_none_can_move_downhill(seed, count, columns, apart, penalty):
    made = trials(seed, count, columns, apart)
    penalties = np.r_[np.full(columns, penalty), 0.0]
    found = logistic_weights(*made, penalties, positive=columns)
    loss = loss_of(*made, penalties)
    value, slope = loss(found)
    assert (found[:columns] >= 0.0).all()
    held = np.r_[found[:columns] == 0.0, False]
    assert np.abs(slope[~held]).max(initial=0.0) < 1e-8
    assert (slope[held] > -1e-8).all()
    start, bounds = np.r_[np.ones(columns), 0.0], [(0.0, None)] * columns + [(None, None)]
    theirs = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 1000, "ftol": 1e-13})
    assert value <= theirs.fun + 1e-10


@pytest.mark.parametrize("seed", range(5))
def test_without_bounds_it_is_scikit_learns_regression(seed):
    design, target, weight, _ = trials(seed, 400, 3, 1.0)
    found = logistic_weights(design, target, weight, np.zeros(400), np.array([0.02, 0.02, 0.02, 0.0]), positive=0)
    theirs = LogisticRegression(C=1.0 / 0.02, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
    theirs.fit(design[:, :-1], target, sample_weight=weight)
    np.testing.assert_allclose(found, np.r_[theirs.coef_[0], theirs.intercept_], atol=1e-6)


def test_a_score_that_points_the_wrong_way_has_no_weight():
    design, target, weight, offset = trials(1, 200, 1, 0.0)
    design = np.concatenate((-3.0 * target[:, None] + design[:, :1], design[:, 1:]), axis=1)
    found = logistic_weights(design, target, weight, offset, np.array([1e-4, 0.0]), positive=1)
    assert found[0] == 0.0
    # A constant alone says how likely a target is, which the offset has said already.
    assert found[1] == pytest.approx(0.0, abs=1e-9)
