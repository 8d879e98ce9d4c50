"""One-vs-rest machines: optimal by active sets, from scratch or from those before, and what cannot be trained."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optima import Problem, assert_optimal, codebooks, rbf_kernel, signed

from pipeline.errors import FitError
from pipeline.machines.one_vs_rest import RestSolver
from pipeline.machines.pool import Pool
from pipeline.machines.smo import PoolSolver, SpeakerMachine

# One-vs-rest machines: active sets.


def crowd(seed: int, speakers: int = 12) -> list[np.ndarray]:
    """Many small speakers, most of them far from any given one."""
    random = np.random.default_rng(seed)
    return [
        random.standard_normal(6) + 0.3 * random.standard_normal((random.integers(1, 40), 6)) for _ in range(speakers)
    ]


def rest_machine(pool: Pool, speaker: int, *, C: float, **options: float) -> SpeakerMachine:
    return next(RestSolver(pool, **options).machines([speaker], C=C))


def assert_rest_optimal(pool: Pool, solution: SpeakerMachine, C: float) -> None:
    labels = np.where(pool.owner == solution.speaker, 1.0, -1.0)
    assert_optimal(rbf_kernel(pool.centroids, pool.centroids, pool.sigma), labels, solution.coef, C)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(-2.0, 2.0), st.floats(-2.0, 3.0))
def test_rest_machine_meets_the_optimality_conditions_over_the_whole_pool(seed, log_sigma, log_cost):
    pool = Pool.of(crowd(seed), 10**log_sigma)
    solution = rest_machine(pool, seed % 12, C=10**log_cost)
    assert_rest_optimal(pool, solution, 10**log_cost)


def test_an_active_set_leaves_most_of_the_pool_out():
    pool = Pool.of(crowd(4, speakers=80), 1.0)
    solution = rest_machine(pool, 7, C=10.0)
    assert solution.rounds > 1
    assert solution.active < len(pool.centroids) / 2
    assert_rest_optimal(pool, solution, 10.0)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(2, 11), st.floats(-1.0, 2.0))
def test_machines_of_a_pool_that_grew_go_on_to_the_optimum_from_those_of_before(seed, before, log_cost):
    books, C = crowd(seed), 10**log_cost
    first, pool = Pool.of(books[:before], 1.0), Pool.of(books, 1.0)
    known = np.stack([one.coef for one in RestSolver(first).machines(range(before), C=C)], axis=1)
    for solution in RestSolver(pool).machines(range(12), C=C, known=known):
        assert_rest_optimal(pool, solution, C)


def test_a_machine_that_needs_more_memory_is_libsvms():
    pool = Pool.of(crowd(4), 0.5)
    bounded, free = rest_machine(pool, 2, C=10.0, memory=1000), rest_machine(pool, 2, C=10.0)
    assert bounded.rounds == 0 < free.rounds
    assert_rest_optimal(pool, bounded, 10.0)
    np.testing.assert_allclose(bounded.coef, free.coef, atol=0.1)


def test_threads_change_no_bit_of_rest_machines():
    pool = Pool.of(crowd(6), 0.5)
    alone, shared = (list(RestSolver(pool, jobs=jobs).machines(range(12), C=10.0)) for jobs in (1, 3))
    assert [solution.speaker for solution in shared] == list(range(12))
    for first, second in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(first.coef, second.coef)
        assert first.bias == second.bias


def test_two_speakers_rest_machine_is_their_pair_machine():
    problem = Problem(*codebooks()[:1], *codebooks()[3:4], 0.5, 10.0)
    pair = problem.solved(tolerance=1e-8)
    rest = rest_machine(Pool.of([problem.own, problem.rival], 0.5), 0, C=10.0, tolerance=1e-8)
    np.testing.assert_allclose(rest.coef, signed(pair), atol=1e-5)
    assert rest.bias == pytest.approx(pair.bias, abs=1e-6)


# What cannot be trained.


def test_too_many_steps_is_an_error_that_names_the_machine():
    solver = PoolSolver(Pool.of(codebooks(), 0.5), step_limit=3)
    with pytest.raises(FitError, match=r"speakers 3 and 0, C = 10: .* after 3 steps"):
        list(solver.pairs([(3, 0)], C=10.0))
    with pytest.raises(FitError, match=r"speaker 3 alone, nu = 0\.5"):
        list(solver.one_class([3], nu=0.5))
    with pytest.raises(FitError, match=r"speaker 3 against the rest, C = 10: .* of 3 steps"):
        rest_machine(Pool.of(codebooks(), 0.5), 3, C=10.0, step_limit=3)


@pytest.mark.parametrize("solver", [PoolSolver, RestSolver])
def test_points_that_are_not_finite_are_refused(solver):
    with pytest.raises(FitError, match="finite"):
        solver(Pool.of([np.array([[0.0], [np.nan]]), np.zeros((1, 1))], 1.0))


def test_one_speaker_has_no_rest():
    with pytest.raises(FitError, match="two speakers or more, and the pool has 1"):
        RestSolver(Pool.of([np.zeros((2, 1))], 1.0))
