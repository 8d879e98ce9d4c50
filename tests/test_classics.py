"""The classic pairwise couplings against their papers' own algorithms, written out here, and scipy's minimisers."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from functools import cache
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import expit, xlogy

from pipeline.config import MachineConfig, MachineKind, System, parse_config
from pipeline.enrollment import enroll
from pipeline.errors import SystemUnavailableError
from pipeline.features.stream import FeatureBlock
from pipeline.machines.assembly import train_population
from pipeline.machines.pool import Pool
from pipeline.machines.population import Margins, Population
from pipeline.posteriors.classics import (
    LEAST_PAIR,
    LEAST_POSTERIOR,
    MOST_STEPS,
    _newton_step,
    hastie_tibshirani,
    log_posterior,
    pkpd,
    wu_lin_weng,
)
from pipeline.posteriors.coupling import RULES, systems_of
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring import ClaimScorer, ScoringSettings
from pipeline.store import SpeakerStore
from pipeline.updates import Decision
from pipeline.verification import Verifier

METHODS = {"hastie_tibshirani": hastie_tibshirani, "pkpd": pkpd, "wu_lin_weng": wu_lin_weng}
KINDS = ("one_vs_one", "one_class", "one_vs_rest")
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


def chain(speakers: int, margin: float) -> np.ndarray:
    """r (1, N, N) of speakers in one order of rank, each beating all those after them by ``margin``."""
    upper = np.triu(np.full((1, speakers, speakers), margin), 1)
    return expit(upper - upper.transpose(0, 2, 1))


def bounded(r: np.ndarray) -> np.ndarray:
    return np.clip(r, LEAST_PAIR, 1 - LEAST_PAIR)


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
    n = len(r)
    q = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            q[i, j] = -r[j, i] * r[i, j] if i != j else sum(r[s, i] ** 2 for s in range(n) if s != i)
    return q


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


# Where the pairs agree.


@every_method
@settings(max_examples=60, deadline=None)
@given(logs=st.lists(st.floats(-6, 6), min_size=2, max_size=9))
def test_pairs_that_agree_give_back_their_probabilities(method, logs):
    p = np.exp(logs) / np.exp(logs).sum()
    r = p[:, None] / (p[:, None] + p[None, :])
    np.testing.assert_allclose(method(r[None])[0], p, rtol=1e-8)


@every_method
def test_equal_speakers_share_equally(method):
    np.testing.assert_allclose(method(np.full((2, 7, 7), 0.5)), 1 / 7, rtol=1e-13)


@every_method
@settings(max_examples=30, deadline=None)
@given(st.floats(LEAST_PAIR, 1 - LEAST_PAIR))
def test_of_two_speakers_the_probability_is_that_of_the_pair(method, first):
    r = np.array([[[0.5, first], [1 - first, 0.5]]])
    np.testing.assert_allclose(method(r)[0], [first, 1 - first], rtol=5e-8, atol=1e-15)


@every_method
def test_one_speaker_is_certain(method):
    np.testing.assert_array_equal(method(np.full((3, 1, 1), 0.5)), np.ones((3, 1)))


# Where they do not.


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, speakers=SPEAKERS, scale=st.sampled_from((0.3, 3.0, 40.0, 100.0)))
def test_pkpd_is_its_formula_in_fifty_digits(seed, speakers, scale):
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    np.testing.assert_allclose(pkpd(r[None])[0], literal_pkpd(r), rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, speakers=st.integers(2, 6), scale=st.sampled_from((0.3, 1.0, 1.5)))
def test_hastie_tibshirani_is_what_the_papers_sweeps_come_to(seed, speakers, scale):
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    np.testing.assert_allclose(hastie_tibshirani(r[None])[0], published_hastie_tibshirani(r), rtol=1e-9)


def divergence(strengths: np.ndarray, r: np.ndarray) -> float:
    """KL of r from mu over the pairs, with mu_ij = p_i / (p_i + p_j) and p the exponentials of ``strengths``."""
    total = 0.0
    for i, j in combinations(range(len(r)), 2):
        mu = expit(strengths[i] - strengths[j])
        total += xlogy(r[i, j], r[i, j] / mu) + xlogy(r[j, i], r[j, i] / (1 - mu))
    return total


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, speakers=st.integers(2, 6), scale=SCALES)
def test_hastie_tibshirani_is_where_scipy_finds_the_least_divergence(seed, speakers, scale):
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    found = np.log(hastie_tibshirani(r[None])[0])
    # scipy differentiates numerically, and so comes within about 1e-5.
    least = minimize(divergence, np.zeros(speakers), args=(r,), method="BFGS", options={"gtol": 1e-8})
    assert divergence(found, r) <= least.fun + 1e-12
    np.testing.assert_allclose(found - found.mean(), least.x - least.x.mean(), atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, speakers=SPEAKERS, scale=SCALES)
def test_a_step_lowers_the_divergence_from_anywhere(seed, speakers, scale):
    """Whole Newton steps do not: from strengths this far out most of them land higher."""
    r = random_r(seed, speakers, frames=1, scale=scale)
    strengths = 4.0 * np.random.default_rng(seed).standard_normal((1, speakers))
    step = _newton_step(r, strengths)
    assert divergence((strengths + step)[0], r[0]) < divergence(strengths[0], r[0])


def assert_sums_of_mu_are_those_of_r(r: np.ndarray, rtol: float) -> None:
    p, others = hastie_tibshirani(r), 1 - np.eye(r.shape[-1])
    mu = p[:, :, None] / (p[:, :, None] + p[:, None, :])
    np.testing.assert_allclose((mu * others).sum(-1), (bounded(r) * others).sum(-1), rtol=rtol)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, speakers=SPEAKERS, scale=SCALES)
@example(seed=0, speakers=60, scale=1.0)
def test_hastie_tibshirani_fixed_point_equations_hold(seed, speakers, scale):
    assert_sums_of_mu_are_those_of_r(random_r(seed, speakers, scale=scale), 1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, speakers=SPEAKERS, scale=st.sampled_from(EXTREMES))
def test_hastie_tibshirani_fixed_point_equations_hold_of_certain_pairs_too(seed, speakers, scale):
    # r_ij of 1e-7 are known to 1e-16, and their sums to a part in 1e9.
    assert_sums_of_mu_are_those_of_r(random_r(seed, speakers, scale=scale), 1e-8)


@pytest.mark.parametrize(("speakers", "margin"), [(3, 3.0), (20, 16.0), (30, 1e3)])
def test_hastie_tibshirani_fixed_point_equations_hold_of_speakers_in_one_order(speakers, margin):
    assert_sums_of_mu_are_those_of_r(chain(speakers, margin), 1e-8)


@pytest.mark.parametrize("margin", [1e3, 1e6])
def test_hastie_tibshirani_is_done_before_its_limit_on_steps(monkeypatch, margin):
    """The worst there is: everybody in one order, all pairs certain."""
    r = chain(60, margin)
    found = hastie_tibshirani(r)
    monkeypatch.setattr("pipeline.posteriors.classics.MOST_STEPS", MOST_STEPS // 2)
    np.testing.assert_array_equal(hastie_tibshirani(r), found)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, speakers=st.integers(2, 6), scale=SCALES)
def test_wu_lin_weng_is_what_the_papers_iteration_comes_to(seed, speakers, scale):
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    np.testing.assert_allclose(wu_lin_weng(r[None])[0], published_wu_lin_weng(r), atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, speakers=st.integers(2, 6), scale=SCALES)
def test_wu_lin_weng_is_where_scipy_finds_the_least_on_the_simplex(seed, speakers, scale):
    r = random_r(seed, speakers, frames=1, scale=scale)[0]

    def objective(p: np.ndarray) -> float:
        return sum((r[j, i] * p[i] - r[i, j] * p[j]) ** 2 for i, j in combinations(range(speakers), 2))

    found = wu_lin_weng(r[None])[0]
    least = minimize(
        objective,
        np.full(speakers, 1 / speakers),
        method="SLSQP",
        bounds=[(0, 1)] * speakers,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert objective(found) <= least.fun + 1e-12
    np.testing.assert_allclose(found, least.x, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, speakers=SPEAKERS, scale=st.sampled_from((0.3, 3.0, 40.0, 1e3)))
def test_wu_lin_weng_meets_the_optimality_conditions_of_its_paper(seed, speakers, scale):
    """(Qp)_i = p'Qp for every i, and no p_i is negative."""
    r = random_r(seed, speakers, frames=1, scale=scale)[0]
    p, q = wu_lin_weng(r[None])[0], q_matrix(bounded(r))
    np.testing.assert_allclose(q @ p, p @ q @ p, atol=1e-14)
    # Row i of Q p = -b e with b <= 0: no p_i is far below the bound on r.
    assert (p >= 0.99 * LEAST_PAIR * (1 - p) / (speakers - 1)).all()


def test_the_three_methods_differ_where_the_pairs_do_not_agree():
    r = random_r(0, 4, frames=1, scale=2.0)
    for one, other in combinations(METHODS.values(), 2):
        assert np.abs(one(r) - other(r)).max() > 1e-3


# What all have in common.


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
@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, order=st.permutations(range(6)), scale=SCALES)
def test_permuting_the_speakers_permutes_their_probabilities(method, seed, order, scale):
    r, order = random_r(seed, 6, scale=scale), list(order)
    np.testing.assert_allclose(method(r[:, order][:, :, order]), method(r)[:, order], rtol=1e-9)


@every_method
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, scale=st.sampled_from((0.3, 3.0, 40.0)))
def test_frames_do_not_know_of_each_other(method, seed, scale):
    r = random_r(seed, 5, frames=7, scale=scale)
    found = method(r)
    for t in range(7):
        np.testing.assert_allclose(found[t], method(r[[t]])[0], rtol=1e-13)


@every_method
def test_no_frames_give_no_rows(method):
    assert method(np.empty((0, 4, 4))).shape == (0, 4)


@every_method
def test_neither_the_diagonal_is_read_nor_the_input_changed(method):
    r = random_r(1, 5, scale=2.0)
    other = r.copy()
    other[:, np.arange(5), np.arange(5)] = np.array([0.0, 1.0, 0.3, 0.9, 0.5])
    kept = other.copy()
    np.testing.assert_array_equal(method(other), method(r))
    np.testing.assert_array_equal(other, kept)


@every_method
def test_winner_of_every_pair_is_nearly_certain_and_the_losers_are_equal(method):
    margins = np.zeros((1, 5, 5))
    margins[0, 2], margins[0, :, 2] = 1e3, -1e3
    p = method(expit(margins))[0]
    assert p[2] == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(np.delete(p, 2), p[0], rtol=1e-6)


@every_method
def test_certain_speakers_who_beat_each_other_in_a_circle_share_equally(method):
    margins = np.array([[0.0, 1e3, -1e3], [-1e3, 0.0, 1e3], [1e3, -1e3, 0.0]])
    np.testing.assert_allclose(method(expit(margins)[None])[0], 1 / 3, rtol=1e-12)


def with_a_clearer_win(margins: np.ndarray, step: float) -> np.ndarray:
    """The same margins, but speaker 1 beats speaker 3 by ``step`` more."""
    more = margins.copy()
    more[0, 1, 3] += step
    more[0, 3, 1] -= step
    return more


@pytest.mark.parametrize("method", [hastie_tibshirani, pkpd])
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, step=st.floats(0.1, 2.0))
def test_winning_a_pair_by_more_never_costs_the_winner(method, seed, step):
    margins = random_margins(seed, 5, frames=1)
    assert method(expit(with_a_clearer_win(margins, step)))[0, 1] > method(expit(margins))[0, 1]


def test_wu_lin_weng_can_cost_the_winner_and_so_does_the_papers_iteration():
    margins = random_margins(76, 5, frames=1)
    before, after = expit(margins)[0], expit(with_a_clearer_win(margins, 1.0))[0]
    assert published_wu_lin_weng(after)[1] < published_wu_lin_weng(before)[1] - 1e-4
    assert wu_lin_weng(after[None])[0, 1] < wu_lin_weng(before[None])[0, 1] - 1e-4


def test_log_posterior_has_a_floor():
    np.testing.assert_allclose(
        log_posterior(np.array([1.0, 0.25, 1e-300])), [0.0, math.log(0.25), -690.7755], rtol=1e-6
    )
    np.testing.assert_array_equal(log_posterior(np.array([0.0, -1e-18])), np.log(LEAST_POSTERIOR))


# As scoring rules.


def of_pairs(margins: np.ndarray) -> Margins:
    return Margins(np.arange(margins.shape[-1]), margins)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, slope=st.sampled_from((0.5, 1.0, 2.0)))
def test_rule_is_the_log_of_the_methods_probability(name, seed, slope):
    margins = random_margins(seed, 5)
    found = RULES[name].frame(of_pairs(margins), FixedSigmoid(slope))
    np.testing.assert_allclose(np.exp(found), METHODS[name](expit(slope * margins)), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", EXTREMES)
def test_rule_is_finite_on_margins_of_any_size(name, dtype, scale):
    for speakers in (2, 3, 9, 40):
        margins = random_margins(speakers, speakers, scale=scale).astype(dtype)
        found = RULES[name].frame(of_pairs(margins), FixedSigmoid())
        assert (found >= np.log(LEAST_POSTERIOR)).all()
        assert (found <= 1e-12).all()


@pytest.mark.parametrize("name", METHODS)
def test_rule_of_margins_in_single_precision_is_close(name):
    margins = random_margins(3, 9, scale=2.0)
    single = RULES[name].frame(of_pairs(margins.astype("float32")), FixedSigmoid())
    np.testing.assert_allclose(single, RULES[name].frame(of_pairs(margins), FixedSigmoid()), atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_rules_are_for_comparison_and_want_every_claim(name):
    rule = RULES[name]
    assert rule.every_claim
    assert rule.comparison
    assert rule.needs == {"one_vs_one"}
    assert rule.alone == "log"
    assert not rule.binary


def test_only_the_classics_are_for_comparison():
    assert {name for name, rule in RULES.items() if rule.comparison} == set(METHODS)


def test_systems_are_without_comparisons_unless_asked_for_by_name():
    assert not set(systems_of(KINDS)) & set(METHODS)
    assert systems_of(KINDS, asked=("pkpd",)) == (*systems_of(KINDS), "pkpd")
    assert systems_of(get_args(MachineKind), asked=METHODS) == tuple(RULES)
    assert "pkpd" not in systems_of(("one_class", "one_vs_rest"), asked=("pkpd",))


def test_settings_know_every_rule():
    assert get_args(System) == tuple(RULES)
    for name in METHODS:
        assert parse_config({"scoring": {"system": name}}, source="here").scoring.system == name


# In a scorer.


@cache
def population(speakers: int) -> Population:
    generator = np.random.default_rng(0)
    books = [generator.normal(0.3 * n, 0.4, (9 + 3 * n, 5)) for n in range(speakers)]
    return train_population(Pool.of(books, 0.5), MachineConfig(sigma=0.5, nu=0.2))


def speech(frames: int) -> np.ndarray:
    return np.random.default_rng(1).normal(0.4, 0.5, (frames, 5))


def scores(speakers: int, claims: list[int], *blocks: np.ndarray, dtype: str = "float64") -> dict[str, np.ndarray]:
    running = ClaimScorer(population(speakers), claims, METHODS, ScoringSettings(FixedSigmoid(), dtype)).start()
    for block in blocks:
        running.push(FeatureBlock(block, len(block), np.zeros(len(block))))
    return running.scores()


def literal_r(people: Population, x: np.ndarray) -> np.ndarray:
    """r (T, N, N) of the frames ``x``, each pair machine from its own coefficients."""
    pool, everybody = people.pool, range(len(people))
    kernel = np.exp(-cdist(x, pool.centroids, "sqeuclidean") / (2 * pool.sigma**2))
    r = np.full((len(x), len(people), len(people)), 0.5)
    for i, j in combinations(everybody, 2):
        margin = kernel[:, pool.rows(i)] @ people.pairs.rows(i)[:, j]
        margin -= kernel[:, pool.rows(j)] @ people.pairs.rows(j)[:, i]
        margin += people.pairs.bias(np.array([i]))[0, j]
        r[:, i, j], r[:, j, i] = 1 / (1 + np.exp(-margin)), 1 / (1 + np.exp(margin))
    return r


@pytest.mark.parametrize("speakers", [2, 3, 5])
def test_utterance_scores_are_mean_logs_of_what_the_papers_algorithms_give(speakers):
    x = speech(25)
    r = literal_r(population(speakers), x)
    found = scores(speakers, list(range(speakers)), x)
    literal = {
        "hastie_tibshirani": published_hastie_tibshirani,
        "pkpd": literal_pkpd,
        "wu_lin_weng": published_wu_lin_weng,
    }
    for name, algorithm in literal.items():
        expected = np.log([algorithm(frame) for frame in r]).mean(axis=0)
        np.testing.assert_allclose(found[name], expected, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_any_chunks_and_any_claims_give_the_same_scores(dtype):
    x = speech(300)
    everybody = scores(5, [0, 1, 2, 3, 4], x, dtype=dtype)
    some = scores(5, [3, 1], x[:1], x[1:40], x[40:], dtype=dtype)
    for name, values in some.items():
        np.testing.assert_allclose(values, everybody[name][[3, 1]], atol=1e-9 if dtype == "float64" else 1e-5)
    double = scores(5, [3, 1], x)
    for name, values in some.items():
        np.testing.assert_allclose(values, double[name], atol=1e-4)


def test_with_two_speakers_the_three_score_alike_and_with_one_by_the_one_class_machine():
    x = speech(30)
    found = scores(2, [0, 1], x)
    expected = np.log(literal_r(population(2), x)).mean(axis=0)
    alone = scores(1, [0], x)
    for name in METHODS:
        np.testing.assert_allclose(found[name], [expected[0, 1], expected[1, 0]], atol=1e-9)
        np.testing.assert_array_equal(alone[name], alone["pkpd"])
    assert alone["pkpd"][0] < 0


# In a store.


def test_store_offers_no_comparison_but_accepts_one_by_name(store):
    opened = SpeakerStore.open(store)
    for name in METHODS:
        assert name not in opened.systems
        assert opened.check_system(name) == name


def test_store_without_pair_machines_has_no_comparisons(tmp_path, recordings, tiny):
    machines = tiny.machines.model_copy(update={"kinds": ("one_class", "one_vs_rest")})
    scoring = tiny.scoring.model_copy(update={"system": "poar"})
    config = tiny.model_copy(update={"machines": machines, "scoring": scoring})
    enrolled = enroll(tmp_path / "s", {name: recordings[name] for name in ("anna", "ivan")}, config).store
    for name in METHODS:
        with pytest.raises(SystemUnavailableError, match="has none of"):
            enrolled.check_system(name)


def test_unknown_system_is_still_unknown(store):
    with pytest.raises(SystemUnavailableError, match="is unknown"):
        SpeakerStore.open(store).check_system("pkdp")


@pytest.mark.parametrize("name", METHODS)
def test_enrolled_voices_are_told_apart(store, heard, name):
    opened = SpeakerStore.open(store)
    verifier = Verifier(opened, "anna", system=name, threshold=-math.log(len(opened.speakers)))
    assert verifier.verify_file(heard("anna")).decision is Decision.ACCEPTED
    assert verifier.verify_file(heard("ivan")).decision is Decision.REJECTED
