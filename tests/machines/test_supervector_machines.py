"""Supervector machines and their solution against scikit-learn's ridge regressions, and segments against slow loops."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from supervector_data import COUNTS, SEEDS, centred_targets, frames_of, normalised, space_of, training_data, weights_of

from pipeline.errors import FitError
from pipeline.machines.gram import Known, centred, unpacked
from pipeline.machines.lapack import cholesky
from pipeline.machines.supervector_training import MOST_UNSURE, SupervectorTraining, _refined
from pipeline.machines.supervectors import SupervectorMachines, segments_of, unit

# The machines.


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, counts=COUNTS, ridge=st.sampled_from((0.3, 3.0)), dimension=st.sampled_from((12, 60)))
def test_margins_are_those_of_scikit_learns_weighted_ridge_regressions(seed, counts, ridge, dimension):
    vectors = training_data(seed, counts, dimension)
    mean, rows, owners = normalised(vectors)
    new = np.random.default_rng(seed).normal(0.0, 2.0, (5, dimension))
    training = SupervectorTraining(vectors, ridge=ridge)
    margins = training.solution.margins(new)
    for theirs in (Ridge(alpha=ridge, fit_intercept=False), KernelRidge(alpha=ridge, kernel="linear")):
        theirs.fit(rows, centred_targets(owners, len(counts)), sample_weight=weights_of(owners))
        np.testing.assert_allclose(margins, theirs.predict(unit(new - mean)), atol=1e-5)
    np.testing.assert_allclose(training.solution.mean, mean, atol=1e-6)
    np.testing.assert_array_equal(training.solution.margins(training.solution.mean[None]), 0.0)
    # As their targets do, since the fit is linear in them.
    np.testing.assert_allclose(margins.sum(axis=1), 0.0, atol=1e-5)


def test_machines_give_the_margins_of_the_solver_they_come_from():
    space = space_of(8)
    spoken = [[frames_of(10 * n + s, 30)[0] + n for s in range(5)] for n in range(3)]
    vectors = [
        np.stack([space.vector(space.statistics(*space.weighed(x, np.ones(30)))) for x in part]).astype(np.float32)
        for part in spoken
    ]
    training = SupervectorTraining(vectors, ridge=1.0)
    machines = SupervectorMachines((space,), training.solution.mean, training.solution.coef)
    assert machines.coef.shape == (3, space.dimension)
    frames, weights = frames_of(99, 40)
    statistics = space.statistics(*space.weighed(frames, weights))
    np.testing.assert_allclose(
        machines.margins([statistics]), training.solution.margins(space.vector(statistics)[None])[0], atol=1e-5
    )


def test_a_segment_that_is_the_mean_of_all_has_margins_of_zero():
    space = space_of(3)
    statistics = space.statistics(*space.weighed(*frames_of(5, 20)))
    machines = SupervectorMachines((space,), space.vector(statistics), np.ones((2, space.dimension), np.float32))
    np.testing.assert_allclose(machines.margins([statistics]), 0.0, atol=1e-3)


def test_one_speaker_has_a_machine_that_says_nothing():
    training = SupervectorTraining(training_data(0, (5,)), ridge=1.0)
    np.testing.assert_allclose(
        training.solution.margins(np.random.default_rng(1).standard_normal((3, 12))), 0.0, atol=1e-12
    )


# Segments.


def numbered(sizes: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Utterances whose frames, and a tenth of whose loudness, are numbered through."""
    ends = np.cumsum([0, *sizes])
    parts = [np.arange(a, b, dtype=float) for a, b in pairwise(ends)]
    return [(np.stack((part, -part), axis=1), part / 10) for part in parts]


def unlimited(sizes: list[int], wanted: int) -> int:
    """No fewer segments than cutting and joining utterances of ``sizes`` would give without a limit."""
    long = [size for size in sizes if size >= 1.5 * wanted]
    windows = sum((size - wanted) // max(1, wanted // 2) + 1 for size in long)
    return windows + math.ceil((sum(sizes) - sum(long)) / wanted)


@settings(max_examples=150, deadline=None)
@given(sizes=st.lists(st.integers(1, 200), min_size=1, max_size=12), frames=st.integers(1, 80), most=st.integers(2, 50))
def test_segments_are_overlapping_runs_of_frames_of_about_the_length_asked_for(sizes, frames, most):
    wanted = max(frames, math.ceil(sum(sizes) / most))
    segments = segments_of(numbered(sizes), frames, most)
    of = np.repeat(np.arange(len(sizes)), sizes)
    for vectors, weights in segments:
        np.testing.assert_array_equal(vectors[:, 0] / 10, weights)
        np.testing.assert_array_equal(vectors[:, 1], -vectors[:, 0])
        numbers = vectors[:, 0].astype(int)
        # Where frames do not follow on each other, an utterance is left out whole.
        for a, b in pairwise(numbers):
            assert b == a + 1 or (b > a and of[a] != of[a + 1] and of[b] != of[b - 1])
    lengths = [len(vectors) for vectors, _ in segments]
    assert 1 <= len(lengths) <= most
    assert max(lengths) < 2.5 * wanted
    assert sum(length < wanted for length in lengths) <= 1
    assert len(lengths) == 1 or min(lengths) >= wanted / 2
    # Windows overlap by half; half of an odd length is rounded down, and then a frame may be in a third one.
    used = np.bincount(np.concatenate([vectors[:, 0].astype(int) for vectors, _ in segments]), minlength=sum(sizes))
    assert used.max() <= 2 + wanted % 2
    if unlimited(sizes, wanted) <= most:  # else some are left out on purpose
        # The end of a long utterance is shorter than a step; the last short ones may be shorter than half a segment.
        long = sum(size >= 1.5 * wanted for size in sizes)
        assert np.count_nonzero(used == 0) <= long * (max(1, wanted // 2) - 1) + wanted / 2


@pytest.mark.parametrize(
    ("sizes", "frames", "expected"),
    [
        ([10], 10, [(0, 10)]),
        ([14], 10, [(0, 14)]),  # too short to cut
        ([15], 10, [(0, 10), (5, 15)]),  # windows by half
        ([23], 10, [(0, 10), (5, 15), (10, 20)]),
        ([4, 4, 4, 4], 8, [(0, 8), (8, 16)]),
        ([4, 4, 3], 8, [(0, 8)]),  # less than half is left
        ([4, 4, 4], 8, [(0, 8), (8, 12)]),
        ([3], 10, [(0, 3)]),  # all there is
        ([50] * 40, 50, [(200 * n, 200 * (n + 1)) for n in range(10)]),  # longer ones, not more than ten
    ],
)
def test_segments_worked_by_hand(sizes, frames, expected):
    segments = segments_of(numbered(sizes), frames, 10)
    assert [(int(v[0, 0]), int(v[-1, 0]) + 1) for v, _ in segments] == expected


# The solution.


def test_same_number_of_threads_gives_the_same_bits_and_another_the_same_margins():
    vectors, new = training_data(2, (150, 250, 200), dimension=30), np.random.default_rng(0).standard_normal((4, 30))
    one, again, more = (SupervectorTraining(vectors, ridge=1.0, jobs=jobs) for jobs in (1, 1, 2))
    np.testing.assert_array_equal(one.solution.margins(new), again.solution.margins(new))
    np.testing.assert_array_equal(one.without(1).margins(new), again.without(1).margins(new))
    np.testing.assert_allclose(one.solution.margins(new), more.solution.margins(new), atol=1e-6)
    np.testing.assert_allclose(one.without(1).margins(new), more.without(1).margins(new), atol=1e-5)


def test_rows_are_scaled_as_long_as_they_can_be_told_from_their_mean():
    random = np.random.default_rng(0)
    rows = random.standard_normal((6, 40))
    moved = rows + 5e6 * unit(random.standard_normal(40))  # products to 16 places, of which 12 are the mean's
    gram, scale = centred(moved @ moved.T)
    expected = unit(rows - rows.mean(axis=0))
    np.testing.assert_allclose(gram, expected @ expected.T, atol=5e-3)
    np.testing.assert_allclose(scale, 1.0 / np.linalg.norm(rows - rows.mean(axis=0), axis=1), rtol=5e-3)
    # Those that are the mean, whose products rounding has put below it.
    for made in centred(np.array([[1.0, 1.0 + 2**-22], [1.0 + 2**-22, 1.0]], dtype=np.float32)):
        np.testing.assert_array_equal(made, 0.0)


@pytest.mark.parametrize("ridge", [1e-9, 1e-5, 1e-2, 100.0])
@pytest.mark.parametrize("dimension", [20, 90])
def test_any_ridge_that_a_solution_exists_for_is_solved_to_its_end(ridge, dimension):
    """Single precision cannot tell a small ridge from none."""
    vectors = training_data(4, (30, 20, 25), dimension)
    mean, rows, owners = normalised(vectors)
    system = rows @ rows.T + np.diag(ridge / weights_of(owners))
    dual = np.linalg.solve(system, centred_targets(owners, 3))
    training, some = SupervectorTraining(vectors, ridge=ridge), np.arange(40)
    # Products that are known to single precision make no solution worse.
    known = Known(some, unpacked(training.triangle))
    for one in (training, SupervectorTraining(vectors, ridge=ridge, known=known)):
        margins = one.solution.margins(vectors[0].astype(float))
        np.testing.assert_allclose(margins, unit(vectors[0] - mean) @ rows.T @ dual, atol=2e-4)


@pytest.mark.parametrize("dimension", [4, 300])
def test_the_least_ridge_of_single_precision_leaves_no_more_residual_than_is_allowed(dimension):
    rows = np.random.default_rng(0).standard_normal((300, dimension))
    gram, _ = centred((rows @ rows.T).astype(np.float32))
    gram += np.float32(len(rows) * np.finfo(np.float32).eps / MOST_UNSURE) * np.eye(len(rows), dtype=np.float32)
    targets = np.where(np.arange(300)[:, None] % 20 == np.arange(20), 0.95, -0.05)
    left = targets - gram.astype(np.float64) @ _refined(gram, cholesky(gram), targets)
    assert np.abs(left).max() <= 1e-8


def test_segments_that_repeat_without_a_ridge_are_an_error_that_names_it():
    with pytest.raises(FitError, match=r"supervector\.ridge, normalised\.ridge or embedding\.ridge"):
        SupervectorTraining([np.ones((4, 3), np.float32), -np.ones((4, 3), np.float32)], ridge=1e-300)
