"""Cholesky factors and solutions against SciPy's, and other threads beside them."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from pipeline.machines.lapack import cholesky, cholesky_solve


def positive_definite(size: int, dtype: type, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((size, size + 3))
    return (rows @ rows.T + size * np.eye(size)).astype(dtype)


@given(
    seed=st.integers(0, 9999),
    size=st.integers(1, 60),
    columns=st.integers(0, 9),
    dtype=st.sampled_from([np.float32, np.float64]),
    by_columns=st.booleans(),
)
def test_factors_and_solutions_are_scipys(seed, size, columns, dtype, by_columns):
    matrix = positive_definite(size, dtype, seed)
    right = np.random.default_rng(seed).standard_normal((size, columns)).astype(dtype)
    given_matrix = np.asfortranarray(matrix) if by_columns else matrix
    factor = cholesky(given_matrix)
    few = 50 * np.finfo(dtype).eps
    np.testing.assert_allclose(np.tril(factor), linalg.cholesky(matrix, lower=True), rtol=few, atol=few * size)
    assert factor.dtype == dtype
    np.testing.assert_array_equal(given_matrix, matrix)
    made = cholesky_solve(factor, right)
    assert made.shape == right.shape
    np.testing.assert_allclose(matrix @ made, right, rtol=few, atol=few * size)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("diagonal", [[-1.0, 2.0, 1.0], [1.0, 2.0, -1.0], [0.0]])
def test_a_matrix_that_has_no_factor_is_an_error(dtype, diagonal):
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cholesky(np.diag(diagonal).astype(dtype))


def test_other_threads_run_meanwhile():
    matrix = positive_definite(2500, np.float32)
    cholesky(matrix[:2, :2])
    ends, started = [], threading.Event()

    def factorise() -> None:
        started.set()
        cholesky(matrix)
        ends.append(time.perf_counter())

    thread = threading.Thread(target=factorise)
    thread.start()
    started.wait()
    longest, last = 0.0, time.perf_counter()
    begun = last
    while not ends:
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    thread.join()
    assert longest < 0.5 * (ends[0] - begun)  # SciPy's own: all of it
