"""The batched solver against LIBSVM, against known optima and against the conditions that define an optimum."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC, OneClassSVM

import pipeline
from pipeline.errors import FitError
from pipeline.machines import smo_kernels
from pipeline.machines.one_vs_rest import RestSolver
from pipeline.machines.pairs import PairMachine
from pipeline.machines.pool import Pool, rbf_kernel
from pipeline.machines.smo import TOLERANCE, PoolSolver, SpeakerMachine

# The last place of a float32 kernel value below one, in each of two margins, for each unit of the coefficients' sum.
ROUNDING = 1.2e-7


@dataclass(frozen=True)
class Problem:
    """Two speakers' points, kernel width and cost."""

    own: np.ndarray
    rival: np.ndarray
    sigma: float
    C: float

    @property
    def points(self) -> np.ndarray:
        return np.concatenate((self.own, self.rival))

    @property
    def labels(self) -> np.ndarray:
        return np.where(np.arange(len(self.points)) < len(self.own), 1.0, -1.0)

    @property
    def gram(self) -> np.ndarray:
        return rbf_kernel(self.points, self.points, self.sigma)

    def solved(self, **options: float) -> PairMachine:
        return next(PoolSolver(Pool.of([self.own, self.rival], self.sigma), **options).pairs([(0, 1)], C=self.C))[1]

    def libsvm(self, tolerance: float = TOLERANCE) -> tuple[np.ndarray, float, SVC]:
        """LIBSVM's signed coefficients and bias, and the machine itself."""
        machine = SVC(C=self.C, gamma=0.5 / self.sigma**2, tol=tolerance).fit(self.points, self.labels)
        coef = np.zeros(len(self.points))
        coef[machine.support_] = machine.dual_coef_[0]
        return coef, float(machine.intercept_[0]), machine

    def gap(self, coef: np.ndarray, bias: float) -> tuple[float, float]:
        """Dual objective, and what the primal one is above it; at the optimum nothing."""
        norm = coef @ self.gram @ coef
        slack = np.maximum(0.0, 1.0 - self.labels * (self.gram @ coef + bias)).sum()
        dual = np.abs(coef).sum() - 0.5 * norm
        return float(dual), float(0.5 * norm + self.C * slack - dual)


def signed(solution: PairMachine) -> np.ndarray:
    return np.concatenate((solution.own, -solution.rival))


def random_problem(seed: int, *, most: int = 60) -> Problem:
    """Return one of any shape: apart or not, unbalanced, with repeated points and points that both speakers have."""
    random = np.random.default_rng(seed)
    dimension, a, b = random.integers(1, 25), *random.integers(1, most, 2)
    own = 0.5 * random.standard_normal((a, dimension)) + random.choice([0.0, 0.3, 1.0, 3.0])
    rival = 0.5 * random.standard_normal((b, dimension))
    if seed % 5 == 0:
        own[random.integers(a, size=a // 2)] = own[0]
    if seed % 10 == 0:
        rival[: min(a, b) // 2 + 1] = own[: min(a, b) // 2 + 1]
    return Problem(own, rival, 10 ** random.uniform(-2, 2), 10 ** random.uniform(-2, 4))


def frames_of(problem: Problem, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(problem.points.shape)
    return np.concatenate((problem.points, problem.points + 0.2 * noise))


def assert_conditions(gradient: np.ndarray, coef: np.ndarray, upper: np.ndarray | float, labels: np.ndarray) -> None:
    """The optimality conditions: signed coefficients within bounds, and no two points that break them."""
    low, high = np.where(labels > 0, 0.0, -upper), np.where(labels > 0, upper, 0.0)
    assert (coef >= low).all() and (coef <= high).all()
    grow, shrink = gradient[coef < high], gradient[coef > low]
    stop = TOLERANCE + ROUNDING * np.abs(coef).sum()
    assert not len(grow) or not len(shrink) or grow.max() - shrink.min() < stop


def assert_optimal(gram: np.ndarray, labels: np.ndarray, coef: np.ndarray, C: float) -> None:
    """The soft-margin machine of ``labels`` over ``gram`` meets the conditions that define it."""
    assert abs(coef.sum()) <= 1e-12 * (1.0 + np.abs(coef).sum())
    assert_conditions(labels - gram @ coef, coef, C, labels)


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

SIZES = (40, 1, 17, 60, 25, 33, 40)


def codebooks() -> list[np.ndarray]:
    random = np.random.default_rng(8)
    return [0.4 * random.standard_normal(9) + 0.3 * random.standard_normal((size, 9)) for size in SIZES]


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


# Compilation.


def test_kernels_compile_where_nothing_can_be_kept_on_disk():
    """The source of this function is in no file, so numba has nowhere to cache it."""
    namespace: dict = {}
    exec("def twice(x):\n    return 2.0 * x\n", namespace)  # noqa: S102
    with pytest.raises(RuntimeError, match="cannot cache"):
        smo_kernels.njit("f8(f8)", cache=True)(namespace["twice"])
    assert smo_kernels.compiled("f8(f8)")(namespace["twice"])(21.0) == 42.0


def test_verifying_a_file_loads_no_library_that_it_does_not_need(store, heard):
    """Each of these takes a tenth of a second to a second to load."""
    code = (
        "import sys; from pipeline import Store, Verifier;"
        f" update = Verifier(Store({str(store)!r}).load(), 'anna').verify_file({str(heard('anna'))!r});"
        " slow = {'numba', 'scipy', 'sklearn', 'joblib', 'matplotlib', 'librosa', 'dask'};"
        " print(update.llr is not None, slow & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("True set()\n", "")


@pytest.mark.slow
def test_machines_are_trained_where_what_numba_compiles_cannot_be_kept(tmp_path):
    """Neither in the folder that is named for it, nor beside the code, nor in the user's own: files are in the way."""
    code = shutil.copytree(Path(pipeline.__file__).parent, tmp_path / "pipeline", ignore=lambda *_: ["__pycache__"])
    for name in ("named", "home", code / "machines" / "__pycache__"):
        (tmp_path / name).touch()
    away = {
        "NUMBA_CACHE_DIR": f"{tmp_path}/named/x",
        "HOME": f"{tmp_path}/home",
        "XDG_CACHE_HOME": f"{tmp_path}/home/x",
    }
    script = (
        "import numpy as np; from pipeline.machines.pool import Pool; from pipeline.machines.smo import PoolSolver;"
        "_, made, _ = next(PoolSolver(Pool.of([np.zeros((1, 1)), np.ones((1, 1))], 1.0)).pairs([(0, 1)], C=100.0));"
        "print(made.bias, made.own[0])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=os.environ | away, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    bias, coef = map(float, run.stdout.split())
    assert bias == pytest.approx(0.0, abs=1e-9)
    assert coef == pytest.approx(1.0 / (1.0 - np.exp(-0.5)), rel=1e-6)
    assert not list(tmp_path.rglob("*.nb[ci]"))
