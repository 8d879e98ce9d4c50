"""The classic pairwise couplings against their papers' own algorithms, written out, and optimality conditions."""

from __future__ import annotations

import decimal
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from pipeline.posteriors.pairwise_coupling import (
    MAX_STEPS,
    MIN_PAIR,
    hastie_tibshirani,
    pkpd,
    wu_lin_weng,
)

METHODS = {"hastie_tibshirani": hastie_tibshirani, "pkpd": pkpd, "wu_lin_weng": wu_lin_weng}
SEEDS = st.integers(0, 2**32 - 1)
SPEAKERS = st.integers(2, 8)
SCALES = st.sampled_from((0.3, 1.0, 3.0))
EXTREMES = (0.0, 1e-300, 40.0, 1e3, 1e30)

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def random_margins(seed: int, speakers: int, *, frames: int = 3, scale: float = 1.0) -> np.ndarray:
    """Antisymmetric margins (T, N, N) that no strengths explain."""
    upper = np.triu(np.random.default_rng(seed).standard_normal((frames, speakers, speakers)) * scale, 1)
    return upper - upper.transpose(0, 2, 1)


def random_r(seed: int, speakers: int, *, frames: int = 3, scale: float = 1.0) -> np.ndarray:
    return expit(random_margins(seed, speakers, frames=frames, scale=scale))


def bounded(r: np.ndarray) -> np.ndarray:
    return np.clip(r, MIN_PAIR, 1 - MIN_PAIR)


# The papers, literally, one frame at a time.


def literal_pkpd(r: np.ndarray) -> list[float]:
    """Price and others 1995 in fifty digits, then divided by the sum."""
    people = range(len(r))
    with decimal.localcontext(decimal.Context(prec=50)):
        exact = [[Decimal(float(value)) for value in row] for row in r]
        p = [1 / (sum(1 / exact[i][j] for j in people if j != i) - (len(r) - 2)) for i in people]
        return [float(one / sum(p)) for one in p]


def published_hastie_tibshirani(r: np.ndarray, sweeps: int = 100_000) -> np.ndarray:
    """Hastie and Tibshirani 1998, their algorithm with n_ij = 1: one speaker after the other, then again."""
    n = len(r)
    others = [[j for j in range(n) if j != i] for i in range(n)]
    p = np.array([2 * r[i, others[i]].sum() / (n * (n - 1)) for i in range(n)])
    for _ in range(sweeps):
        before = p.copy()
        for i in range(n):
            mu = p[i] / (p[i] + p[others[i]])
            p[i] *= r[i, others[i]].sum() / mu.sum()
            p /= p.sum()
        if np.abs(p / before - 1).max() < 1e-14:
            return p
    raise AssertionError(f"no convergence in {sweeps} sweeps")


def q_matrix(r: np.ndarray) -> np.ndarray:
    """Q of Wu, Lin and Weng 2004, entry by entry."""
    n = range(len(r))
    return np.array([[sum(r[s, i] ** 2 for s in n if s != i) if i == j else -r[j, i] * r[i, j] for j in n] for i in n])


def published_wu_lin_weng(r: np.ndarray, sweeps: int = 100_000) -> np.ndarray:
    """Wu, Lin and Weng 2004, their algorithm for the second approach, which is LIBSVM's, run until nothing moves."""
    n, q = len(r), q_matrix(r)
    p = np.full(n, 1 / n)
    for _ in range(sweeps):
        before = p.copy()
        for t in range(n):
            p[t] = (-sum(q[t, j] * p[j] for j in range(n) if j != t) + p @ q @ p) / q[t, t]
            p /= p.sum()
        if np.abs(p - before).max() < 1e-15:
            return p
    raise AssertionError(f"no convergence in {sweeps} sweeps")


@every_method
@settings(max_examples=30, deadline=None)
@given(logs=st.lists(st.floats(-6, 6), min_size=2, max_size=9))
def test_pairs_that_agree_give_back_their_probabilities(method, logs):
    p = np.exp(logs) / np.exp(logs).sum()
    r = p[:, None] / (p[:, None] + p[None, :])
    np.testing.assert_allclose(method(r[None])[0], p, rtol=1e-8)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, speakers=SPEAKERS, scale=st.sampled_from((0.3, 3.0, 40.0, 100.0)))
def test_pkpd_is_its_formula_in_fifty_digits(seed, speakers, scale):
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    np.testing.assert_allclose(pkpd(r[None])[0], literal_pkpd(r), rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, speakers=st.integers(2, 6), scale=st.sampled_from((0.3, 1.0, 1.5)))
def test_hastie_tibshirani_is_what_the_papers_sweeps_come_to(seed, speakers, scale):
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    np.testing.assert_allclose(hastie_tibshirani(r[None])[0], published_hastie_tibshirani(r), rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, speakers=SPEAKERS, scale=st.sampled_from((0.3, 1.0, 3.0, *EXTREMES)))
@example(seed=0, speakers=60, scale=1.0)
def test_hastie_tibshirani_fixed_point_equations_hold(seed, speakers, scale):
    r, others = random_r(seed, speakers, scale=scale), 1 - np.eye(speakers)
    p = hastie_tibshirani(r)
    mu = p[:, :, None] / (p[:, :, None] + p[:, None, :])
    # r_ij of 1e-7 are known to 1e-16, and their sums to a part in 1e9.
    rtol = 1e-12 if scale in (0.3, 1.0, 3.0) else 1e-8
    np.testing.assert_allclose((mu * others).sum(-1), (bounded(r) * others).sum(-1), rtol=rtol)


def test_hastie_tibshirani_is_done_before_its_limit_on_steps(monkeypatch):
    """The worst there is: everybody in one order, all pairs certain."""
    upper = np.triu(np.full((1, 60, 60), 1e6), 1)
    r = expit(upper - upper.transpose(0, 2, 1))
    result = hastie_tibshirani(r)
    monkeypatch.setattr("pipeline.posteriors.pairwise_coupling.MAX_STEPS", MAX_STEPS // 2)
    np.testing.assert_array_equal(hastie_tibshirani(r), result)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, speakers=st.integers(2, 6), scale=SCALES)
def test_wu_lin_weng_is_what_the_papers_iteration_comes_to(seed, speakers, scale):
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    np.testing.assert_allclose(wu_lin_weng(r[None])[0], published_wu_lin_weng(r), atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, speakers=SPEAKERS, scale=st.sampled_from((0.3, 3.0, 40.0, 1e3)))
def test_wu_lin_weng_meets_the_optimality_conditions_of_its_paper(seed, speakers, scale):
    """(Qp)_i = p'Qp for every i, and no p_i is negative."""
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    p, q = wu_lin_weng(r[None])[0], q_matrix(bounded(r))
    np.testing.assert_allclose(q @ p, p @ q @ p, atol=1e-14)
    # Row i of Q p = -b e with b <= 0: no p_i is far below the bound on r.
    assert (p >= 0.99 * MIN_PAIR * (1 - p) / (speakers - 1)).all()


@every_method
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, speakers=st.integers(1, 8), scale=st.sampled_from((0.3, 3.0, *EXTREMES)))
@example(seed=0, speakers=158, scale=1.0)
def test_every_row_is_a_distribution(method, seed, speakers, scale):
    p = method(random_r(seed, speakers, scale=scale))
    assert p.shape == (3, speakers)
    assert p.dtype == np.float64
    assert (p > 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)


@every_method
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, order=st.permutations(range(6)), scale=SCALES)
def test_permuting_the_speakers_permutes_their_probabilities(method, seed, order, scale):
    r, order = random_r(seed, 6, scale=scale), list(order)
    np.testing.assert_allclose(method(r[:, order][:, :, order]), method(r)[:, order], rtol=1e-9)


@every_method
def test_neither_the_diagonal_is_read_nor_the_input_changed(method):
    r = random_r(1, 5, scale=2.0)
    other = r.copy()
    other[:, np.arange(5), np.arange(5)] = np.array([0.0, 1.0, 0.3, 0.9, 0.5])
    kept = other.copy()
    np.testing.assert_array_equal(method(other), method(r))
    np.testing.assert_array_equal(other, kept)


@every_method
def test_certain_pairs_by_hand(method):
    margins = np.zeros((1, 5, 5))
    margins[0, 2], margins[0, :, 2] = 1e3, -1e3
    p = method(expit(margins))[0]
    assert p[2] == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(np.delete(p, 2), p[0], rtol=1e-6)
    # Speakers who beat each other in a circle share equally.
    margins = np.array([[0.0, 1e3, -1e3], [-1e3, 0.0, 1e3], [1e3, -1e3, 0.0]])
    np.testing.assert_allclose(method(expit(margins)[None])[0], 1 / 3, rtol=1e-12)


@pytest.mark.parametrize("method", [hastie_tibshirani, pkpd])
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, step=st.floats(0.1, 2.0))
def test_winning_a_pair_by_more_never_costs_the_winner(method, seed, step):
    margins = random_margins(seed, 5, frames=1)
    more = margins.copy()
    more[0, 1, 3], more[0, 3, 1] = margins[0, 1, 3] + step, margins[0, 3, 1] - step
    assert method(expit(more))[0, 1] > method(expit(margins))[0, 1]
