"""Gram matrices of many long rows, and their Cholesky factors, tile by tile on threads.

A matrix is a square array of which only the lower triangle is written, and the factor takes its place. Tiles have one
size and their sums one order, so that the number of threads changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from pipeline.threads import in_order, jobs_of

Matrix = NDArray[Any]

TILE = 512


def gram_matrix(rows: Matrix, *, dtype: Any, jobs: int = 1) -> Matrix:
    """Lower triangle of ``rows`` @ ``rows``.T (n, n) in the precision ``dtype``; nothing above the tiles is written."""
    gram = np.empty((len(rows), len(rows)), dtype)

    def fill(upper: slice) -> None:
        left = rows[upper].astype(dtype, copy=False)
        for tile in _tiles(upper.stop):
            np.matmul(left, rows[tile].astype(dtype, copy=False).T, out=gram[upper, tile])

    # The longest first: threads end together.
    _on_threads(fill, reversed(_tiles(len(rows))), jobs)
    return gram


def _tiles(count: int) -> list[slice]:
    return [slice(first, min(first + TILE, count)) for first in range(0, count, TILE)]


class CholeskyFactor:
    """L with L L^T = ``matrix`` (n, n), given and overwritten in its lower triangle.

    Raises numpy's LinAlgError for a matrix that is not positive definite in its own precision.
    """

    def __init__(self, matrix: Matrix, *, jobs: int = 1) -> None:
        self._factor = matrix
        self._tiles = _tiles(len(matrix))
        self._inverses: list[Matrix] = []
        for number, tile in enumerate(self._tiles):
            left = matrix[tile, : tile.start]
            corner = np.linalg.cholesky(matrix[tile, tile] - left @ left.T)
            matrix[tile, tile] = corner
            unit = np.eye(len(corner), dtype=corner.dtype)
            self._inverses.append(solve_triangular(corner, unit, lower=True, check_finite=False))
            _on_threads(partial(self._fill_below, tile), self._tiles[number + 1 :], jobs)

    def _fill_below(self, tile: slice, rows: slice) -> None:
        """The factor's ``rows`` in the columns of ``tile``, whose own corner is there already."""
        factor, before = self._factor, slice(0, tile.start)
        left = factor[rows, tile] - factor[rows, before] @ factor[tile, before].T
        factor[rows, tile] = left @ self._inverses[-1].T

    def forward(self, right: Matrix, *, first: int = 0) -> Matrix:
        """The solution (n, m) of L x = ``right`` (n, m), whose rows before ``first`` are known to be zero."""
        solved = np.zeros(right.shape, self._factor.dtype)
        start = first - first % TILE
        for tile, inverse in zip(self._tiles, self._inverses, strict=True):
            if tile.stop > first:
                known = self._factor[tile, start : tile.start] @ solved[start : tile.start]
                solved[tile] = inverse @ (right[tile] - known)
        return solved

    def backward(self, right: Matrix) -> Matrix:
        """The solution (n, m) of L^T x = ``right`` (n, m)."""
        solved = np.zeros(right.shape, self._factor.dtype)
        for tile, inverse in zip(reversed(self._tiles), reversed(self._inverses), strict=True):
            known = self._factor[tile.stop :, tile].T @ solved[tile.stop :]
            solved[tile] = inverse.T @ (right[tile] - known)
        return solved

    def solve(self, right: Matrix) -> Matrix:
        """The solution (n, m) of L L^T x = ``right`` (n, m)."""
        return self.backward(self.forward(right))


def _on_threads(function: Callable[[Any], None], tasks: Iterable[Any], jobs: int) -> None:
    for _ in in_order(function, tasks, jobs_of(jobs)):
        pass
