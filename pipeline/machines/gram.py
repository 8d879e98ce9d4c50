"""Matrices of inner products of many long rows: computed, packed as triangles, centred and inverted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.half_precision import Rows, Vectors
from pipeline.machines.lapack import AnyFloat, cholesky_solve

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]

# Rows that are handled at a time.
ROWS = 512
# For a greater share of columns, the whole inverse is computed: single columns take three times as long.
SHARE_OF_COLUMNS = 1 / 3


@dataclass(frozen=True)
class Known:
    """Inner products (S, S) of training rows, filled in only between the rows numbered ``rows`` (k,)."""

    rows: Numbers
    inner: Vectors


def inner_products(rows: Rows, known: Known | None, *, dtype: type[np.floating[Any]]) -> tuple[AnyFloat, Array]:
    """Return the inner products (S, S) of ``rows`` (S, D), some of them ``known``, and the mean (D,) of all rows.

    Products are summed in precision ``dtype``, in one pass over the rows that also gives the mean. The ``known`` array
    is completed and returned.
    """
    from scipy.linalg import get_blas_funcs

    size, mean = len(rows), np.empty(rows.shape[1])
    if known is None or not len(known.rows):
        # Stored by columns for BLAS, this is the lower triangle; its transpose has contiguous rows.
        lower = np.zeros((size, size), dtype=dtype, order="F")
        for columns, some in rows.by_columns():
            some.mean(axis=0, dtype=np.float64, out=mean[columns])
            add_product = get_blas_funcs("syrk", (lower,))
            lower = add_product(
                1.0, some.astype(dtype, copy=False).T, beta=1.0, c=lower, trans=1, lower=1, overwrite_c=1
            )
        return np.asarray(mirrored(lower).T), mean
    new = np.setdiff1d(np.arange(size), known.rows)
    products = np.zeros((len(new), size), dtype=dtype)
    picked = rows.picked(new)
    for columns, some in rows.by_columns():
        some.mean(axis=0, dtype=np.float64, out=mean[columns])
        products += picked[:, columns] @ some.T
    inner = known.inner
    inner[new] = products
    inner[:, new] = products.T
    return inner, mean


def square(numbers: Numbers) -> tuple[Any, Any]:
    """Return an index of the rows and columns in ascending ``numbers``: slices if these are consecutive."""
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
        span = slice(int(numbers[0]), int(numbers[-1]) + 1)
        return span, span
    rows, columns = np.ix_(numbers, numbers)
    return rows, columns


def packed(inner: Vectors) -> Vectors:
    """Return the lower triangle of a symmetric matrix (S, S), row by row: (S (S + 1) / 2,)."""
    return np.concatenate([row[: number + 1] for number, row in enumerate(inner)])


def unpacked(triangle: Vectors, size: int | None = None) -> Vectors:
    """Return the symmetric matrix from its ``packed`` lower triangle, with room for ``size`` rows and columns."""
    known, first = round((np.sqrt(8.0 * len(triangle) + 1.0) - 1.0) / 2.0), 0
    full = np.empty((size or known, size or known), dtype=triangle.dtype)
    for number in range(known):
        full[number, : number + 1] = triangle[first : first + number + 1]
        first += number + 1
    mirrored(full[:known, :known])
    return full


def mirrored(lower: NDArray[Any]) -> NDArray[Any]:
    """Fill the upper triangle of ``lower`` from its lower one, in place, and return it."""
    for rows in slices(len(lower)):
        corner = lower[rows, rows]
        corner[:] = np.tril(corner) + np.tril(corner, -1).T
        lower[rows, rows.stop :] = lower[rows.stop :, rows].T
    return lower


def centred(inner: AnyFloat) -> tuple[AnyFloat, Array]:
    """Return the inner products U U' of centred rows scaled to length 1, and the scale 1 / |v - mean| of each row.

    (v_s - m)'(v_t - m) = v_s'v_t - c_s - c_t + mean of c, where c_s = v_s'm is the mean of row s. Rows that equal the
    mean to machine precision have the scale 0.
    """
    means = inner.mean(axis=1, dtype=np.float64)
    squares = np.diag(inner) - 2.0 * means + means.mean()
    least = 16.0 * np.finfo(inner.dtype).eps * np.diag(inner)
    scale = np.divide(1.0, np.sqrt(np.maximum(squares, 0.0)), out=np.zeros(len(inner)), where=squares > least)
    gram = np.empty_like(inner)
    of_rows, of_columns, factors = (one.astype(inner.dtype) for one in (means - means.mean(), means, scale))
    for rows in slices(len(inner)):
        block = np.subtract(inner[rows], of_rows[rows, None], out=gram[rows])
        block -= of_columns
        block *= factors[rows, None]
        block *= factors
    return gram, scale


def product(matrix: AnyFloat, vectors: Array) -> Array:
    """Return ``matrix`` @ ``vectors`` in double precision."""
    return np.concatenate([matrix[rows].astype(np.float64) @ vectors for rows in slices(len(matrix))])


def inverse_columns(factor: AnyFloat, numbers: Numbers) -> AnyFloat:
    """Return the columns ``numbers`` (k,) of the inverse of L L', with L the lower triangle of ``factor``: (S, k).

    The factor is overwritten.
    """
    from scipy.linalg import get_lapack_funcs

    size = len(factor)
    if len(numbers) <= SHARE_OF_COLUMNS * size:
        columns = np.zeros((size, len(numbers)), dtype=factor.dtype)
        columns[numbers, np.arange(len(numbers))] = 1.0
        return cholesky_solve(factor, columns)
    inverse, _ = get_lapack_funcs("potri", (factor,))(factor.T, lower=False, overwrite_c=True)
    return np.asarray(mirrored(inverse.T)[:, numbers] if len(numbers) < size else mirrored(inverse.T))


def slices(size: int) -> list[slice]:
    """Return slices that cover ``size`` rows, a block at a time."""
    return [slice(first, min(first + ROWS, size)) for first in range(0, size, ROWS)]
