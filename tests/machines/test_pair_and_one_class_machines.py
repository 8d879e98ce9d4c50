"""Pair and one-class machines against LIBSVM, known optima and the conditions of an optimum, whatever the batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optima import (
    ROUNDING,
    SIZES,
    Problem,
    assert_conditions,
    assert_optimal,
    codebooks,
    frames_of,
    random_problem,
    rbf_kernel,
    signed,
)
from sklearn.svm import OneClassSVM

from pipeline.machines import smo_kernels
from pipeline.machines.pairs import PairMachine
from pipeline.machines.pool import Pool
from pipeline.machines.smo import TOLERANCE, PoolSolver, SpeakerMachine

# Pair machines.


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_pair_machine_meets_the_optimality_conditions(seed):
    problem = random_problem(seed, most=40)
    assert_optimal(problem.gram, problem.labels, signed(problem.solved()), problem.C)


@pytest.mark.parametrize("seed", range(40))
def test_pair_machine_is_as_near_the_optimum_as_libsvms(seed):
    problem = random_problem(seed, most=40)
    solution = problem.solved()
    coef, bias, machine = problem.libsvm()
    dual, gap = problem.gap(signed(solution), solution.bias)
    their_dual, their_gap = problem.gap(coef, bias)
    # Every point adds at most C times the tolerance to the gap.
    most = problem.C * len(problem.points) * TOLERANCE
    mass = np.abs(coef).sum()
    assert -1e-9 * (1 + mass) <= gap <= most + ROUNDING * mass**2
    assert abs(dual - their_dual) <= max(gap, their_gap) + 1e-9 * (1 + mass)
    # Two points within a gap of the optimum are that near in the machines' space, where K(x, x) = 1.
    frames = frames_of(problem, seed)
    ours = rbf_kernel(frames, problem.points, problem.sigma) @ signed(solution)
    theirs = machine.decision_function(frames) - bias
    assert np.abs(ours - theirs).max() <= np.sqrt(2 * gap + 1e-9) + np.sqrt(2 * their_gap + 1e-9)


def test_with_a_small_tolerance_the_coefficients_are_libsvms():
    random = np.random.default_rng(5)
    problem = Problem(random.standard_normal((80, 10)) + 0.3, random.standard_normal((50, 10)), 2.0, 3.0)
    solution, (coef, bias, _) = problem.solved(tolerance=1e-8), problem.libsvm(1e-8)
    np.testing.assert_allclose(signed(solution), coef, atol=2e-5)
    assert solution.bias == pytest.approx(bias, abs=2e-6)


@pytest.mark.parametrize("apart", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("C", [0.01, 1.0, 1e4])
def test_one_point_against_one_point(apart, C):
    """a = b maximise 2 a - a^2 (1 - K): a = 1 / (1 - K) or C, and the margin is 0 half way."""
    solution = Problem(np.array([[apart]]), np.array([[0.0]]), 1.0, C).solved()
    expected = min(C, 1.0 / -np.expm1(-0.5 * apart**2))
    assert solution.own == pytest.approx([expected], rel=2e-3)
    assert solution.rival == pytest.approx([expected], rel=2e-3)
    assert solution.bias == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (5, 5), (40, 3), (3, 40)])
def test_points_that_are_strangers_to_one_another(a, b):
    """K is the identity: own coefficients are 1 - bias, rivals' 1 + bias, and their sums are equal."""
    points = np.arange(a + b, dtype=float)[:, None]
    solution = Problem(points[:a], points[a:], 1e-3, 10.0).solved()
    bias = (a - b) / (a + b)
    np.testing.assert_allclose(solution.own, 1 - bias, atol=TOLERANCE)
    np.testing.assert_allclose(solution.rival, 1 + bias, atol=TOLERANCE)
    assert solution.bias == pytest.approx(bias, abs=TOLERANCE)


@pytest.mark.parametrize(("a", "b"), [(7, 7), (1, 30), (30, 1)])
@pytest.mark.parametrize("C", [0.01, 10.0, 1e4])
def test_points_that_are_all_the_same(a, b, C):
    """Nothing tells the speakers apart: the fewer points are all at the bound, and the bias takes the larger side."""
    points = np.ones((a + b, 3))
    problem = Problem(points[:a], points[a:], 0.5, C)
    solution = problem.solved()
    assert_optimal(problem.gram, problem.labels, signed(solution), C)
    fewer = solution.own if a <= b else solution.rival
    np.testing.assert_array_equal(fewer, C)
    assert solution.bias == pytest.approx(np.sign(a - b), abs=1e-9)


def test_flat_kernel_ends():
    random = np.random.default_rng(1)
    problem = Problem(random.standard_normal((50, 5)), random.standard_normal((40, 5)), 1e6, 1e4)
    assert_optimal(problem.gram, problem.labels, signed(problem.solved()), problem.C)


def test_bias_is_the_mean_of_free_residuals_or_the_middle_of_the_rest():
    residual, up, down = np.array([0.3, 9.0, 0.5, -9.0]), np.array([1.0, 0.0, 2.0, 3.0]), np.array([2.0, 3.0, 1.0, 0.0])
    assert smo_kernels.bias_of(residual, up, down) == pytest.approx(0.4, abs=1e-15)
    up, down = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0])
    assert smo_kernels.bias_of(residual, up, down) == pytest.approx((0.5 - 9.0) / 2, abs=1e-15)


# One-class machines.


def one_class(points: np.ndarray, sigma: float, nu: float, **options: float) -> SpeakerMachine:
    return next(PoolSolver(Pool.of([points], sigma), **options).one_class([0], nu=nu))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from((0.01, 1.0, 3.0, 40.0)))
def test_kernel_values_are_numpys_exponentials(seed, spread):
    """To the rounding of the exponent in single precision; those that would be smaller than exp(-87) are exp(-87)."""
    random = np.random.default_rng(seed)
    x, y = spread * random.standard_normal((7, 5)), spread * random.standard_normal((300, 5))
    norms = [0.5 * (points * points).sum(axis=1) for points in (x, y)]
    gram = np.zeros((7, 300), np.float32)
    smo_kernels.fill(x, norms[0], y, norms[1], np.empty(7 * 300), gram, 0)
    exponent = np.minimum(x @ y.T - norms[0][:, None] - norms[1], 0.0)
    np.testing.assert_allclose(gram, np.exp(np.maximum(exponent, -87.0)), rtol=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1.0))
def test_one_class_machine_meets_the_optimality_conditions(seed, nu):
    problem = random_problem(seed)
    points, sigma = problem.points, problem.sigma
    solution = one_class(points, sigma, nu)
    coef = solution.coef
    assert coef.sum() == pytest.approx(nu * len(points), rel=1e-12)
    gradient = -rbf_kernel(points, points, sigma) @ coef
    assert_conditions(gradient, coef, 1.0, np.ones(len(coef)))
    # Schoelkopf's proposition: nu bounds the share of outliers, and is bounded by that of support vectors.
    assert np.mean(solution.bias - gradient < -TOLERANCE - ROUNDING * coef.sum()) <= nu
    assert np.mean(coef > 0.0) >= nu - 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_one_class_margins_are_libsvms(seed):
    problem, nu = random_problem(seed), np.random.default_rng(seed).uniform(0.02, 1.0)
    points, frames = problem.points, frames_of(problem, seed)
    machine = OneClassSVM(nu=nu, gamma=0.5 / problem.sigma**2).fit(points)
    solution = one_class(points, problem.sigma, nu)
    ours = rbf_kernel(frames, points, problem.sigma) @ solution.coef + solution.bias
    np.testing.assert_allclose(ours, machine.decision_function(frames), atol=1e-2)


# Batches: what a machine may depend on.


def same(first: PairMachine, second: PairMachine) -> bool:
    coef = np.array_equal(first.own, second.own) and np.array_equal(first.rival, second.rival)
    return coef and first.bias == second.bias


PAIRS = [(own, rival) for own in range(len(SIZES)) for rival in range(own)] * 4  # more than one batch


@pytest.mark.parametrize(
    "options", [{"jobs": 2}, {"jobs": 3}, {"memory": 0}, {"memory": 4 * (1600 + 1 + 289)}, {"among": {0, 3}}]
)
def test_threads_and_memory_change_no_bit(options):
    pool, speakers = Pool.of(codebooks(), 0.5), range(len(SIZES))
    plain, solver = PoolSolver(pool), PoolSolver(pool, **options)
    for pair, first, second in zip(PAIRS, plain.pairs(PAIRS, C=10.0), solver.pairs(PAIRS, C=10.0), strict=True):
        assert first[0] == second[0] == pair
        assert same(first[1], second[1]) and first[2] == second[2]
    for first, second in zip(plain.one_class(speakers, nu=0.2), solver.one_class(speakers, nu=0.2), strict=True):
        assert first.bias == second.bias
        np.testing.assert_array_equal(first.coef, second.coef)


def test_a_pair_beside_others_in_its_pool_or_not_has_the_same_machine():
    books = codebooks()
    for (own, rival), machine, _ in PoolSolver(Pool.of(books, 0.5)).pairs(PAIRS[:21], C=10.0):
        assert same(machine, Problem(books[own], books[rival], 0.5, 10.0).solved())
        few = Pool.of([book if n in (own, rival) else book[:0] for n, book in enumerate(books)], 0.5)
        assert same(machine, next(PoolSolver(few).pairs([(own, rival)], C=10.0))[1])


def test_machines_come_as_they_are_asked_for():
    def endless():
        while True:
            yield from PAIRS

    for jobs in (1, 2):
        solutions = PoolSolver(Pool.of(codebooks(), 0.5), jobs=jobs).pairs(endless(), C=1.0)
        assert next(solutions)[0] == (1, 0)
        solutions.close()


def test_kernel_values_are_at_most_one_and_margins_are_sums_of_all_of_them():
    random = np.random.default_rng(0)
    x, coef = random.standard_normal((500, 4)), random.standard_normal(500)
    far, gram = 1e5 * x, np.empty((500, 500), np.float32)  # where exponents are rounded by more than an ulp of one
    lengths, far_lengths = (0.5 * (points * points).sum(axis=1) for points in (x, far))
    smo_kernels.fill(far, far_lengths, far, far_lengths, np.empty(gram.size), gram, 0)
    assert gram.max() <= 1.0
    residual = np.zeros(500)
    smo_kernels.subtract_margins(x, lengths, x, lengths, coef, residual)
    np.testing.assert_allclose(-residual, rbf_kernel(x, x, 1.0) @ coef, atol=1e-5)
