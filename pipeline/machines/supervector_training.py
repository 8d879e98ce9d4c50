"""Supervector machines by regularised least squares, from the Gram matrix of everybody's segments.

One factorisation serves every speaker (Suykens and Vandewalle, Least squares support vector machine classifiers, 1999),
and rows are left out by its inverse: those of held-out utterances, and then a speaker's. With the inner products of
earlier rows at hand, only those of new rows are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import FitError
from pipeline.machines.supervectors import Vectors, unit
from pipeline.machines.workers import jobs_of

Array = NDArray[np.float64]
AnyFloat = NDArray[np.floating[Any]]

# Speakers whose machines without them are kept: their trials come one after another, on several threads.
MOST_LEFT_OUT = 8
# Refinements of the solution by its residual.
MENDINGS = 2
# Largest product of rounding, rows and 1 / ridge at which single precision is enough.
MOST_UNSURE = 1e-2
# Rows that are taken to double precision at a time.
ROWS = 512


@dataclass(frozen=True)
class Solution:
    """Machines as sums of training rows: u_s = (v_s - mean) / |v_s - mean|, machine n is the sum of dual_sn u_s.

    ``rows`` (S, D) are the v_s, ``scale`` (S,) their 1 / |v_s - mean|, ``dual`` (S, N). Sums are of the precision
    ``dtype``.
    """

    rows: Vectors
    mean: Array
    scale: Array
    dual: Array
    dtype: type[np.floating[Any]] = np.float32

    @cached_property
    def coef(self) -> Vectors:
        """Return the coefficients (D, N) of the machines, at the precision that they are stored in."""
        weights = self.dual * self.scale[:, None]
        coef = self.rows.T @ weights.astype(self.dtype)
        coef -= np.outer(self.mean, weights.sum(axis=0)).astype(self.dtype)
        return np.asarray(coef, dtype=np.float32)

    def margins(self, vectors: AnyFloat) -> Array:
        """Return the margins (n, N) of segments ``vectors`` (n, D)."""
        units = unit(vectors - self.mean).astype(np.float32)
        if "coef" in self.__dict__ or len(units) >= self.dual.shape[1]:
            return np.asarray(units @ self.coef, dtype=np.float64)
        kernel = (units @ self.rows.T - (units @ self.mean)[:, None]) * self.scale
        return np.asarray(kernel @ self.dual)


@dataclass(frozen=True)
class Known:
    """Inner products (k, k) of the training rows with the numbers ``rows`` (k,)."""

    rows: NDArray[np.intp]
    inner: Vectors


class SupervectorTraining:
    """Regularised least squares over the segments of N speakers.

    Minimises the sum over voices of the mean squared error on their segments, plus ``ridge`` |w|^2, so that a voice
    with much speech counts no more than one with little. Targets are 1 for a speaker's own segments and -1 / (V - 1)
    for those of the V - 1 other voices.

    Parameters
    ----------
    vectors : sequence of arrays (S_n, D)
        Supervectors, of half or single precision, of each speaker's segments.
    ridge : float
        Weight of the penalty.
    pseudo_speakers : sequence of sequences of arrays (S, D)
        Pseudo-speakers made of each speaker's voice: voices to tell the speakers from, without machines of their own.
    held_out : sequence of sequences of int
        How many of the last segments of each speaker, then of each pseudo-speaker, are of held-out utterances.
    known : Known, optional
        Inner products of rows, numbered speaker by speaker: segments, and then those of pseudo-speakers.
    jobs : int
        Threads. The same number gives the same bits.

    Raises
    ------
    FitError
        Where the Gram matrix and ridge are singular to double precision.
    """

    def __init__(
        self,
        vectors: Sequence[NDArray[Any]],
        *,
        ridge: float,
        pseudo_speakers: Sequence[Sequence[NDArray[Any]]] = (),
        held_out: Sequence[Sequence[int]] = (),
        known: Known | None = None,
        jobs: int = 1,
    ) -> None:
        parts = [[own, *made] for own, made in zip(vectors, pseudo_speakers or [()] * len(vectors), strict=True)]
        held = [
            counts or [0] * len(voices) for counts, voices in zip(held_out or [()] * len(parts), parts, strict=True)
        ]
        sizes = [[len(voice) for voice in voices] for voices in parts]
        self._spans = [slice(*span) for span in pairwise(np.cumsum([0, *map(sum, sizes)]).tolist())]
        counts = np.array([size for of_speaker in sizes for size in of_speaker])
        held_counts = [count for of_speaker in held for count in of_speaker]
        self._kept = np.concatenate(
            [np.arange(size) < size - count for size, count in zip(counts, held_counts, strict=True)]
        )
        self._jobs = jobs_of(jobs)
        # Weighting voices alike is a ridge of its own for each row: proportional to its voice's number of segments.
        self._ridge = ridge * np.repeat(counts, counts) / counts.mean()
        rows: Vectors = np.concatenate([voice for voices in parts for voice in voices], dtype=np.float32)
        mean, self.inner, scale, dual, self._factor = self._solved(rows, self._targets(vectors, len(counts)), known)
        self._all = Solution(rows, mean, scale, dual, self._factor.dtype.type)
        self._left_out: dict[int, Solution] = {}

    @property
    def mean(self) -> Array:
        """Return the mean (D,) of the training vectors."""
        return self._all.mean

    @property
    def coef(self) -> Vectors:
        """Return the coefficients (D, N) of the machines."""
        return self._all.coef

    def margins(self, vectors: AnyFloat) -> Array:
        """Return the margins (n, N) of segments ``vectors`` (n, D)."""
        return self._all.margins(vectors)

    @property
    def without_held_out(self) -> Solution:
        """Return the machines trained without the segments of held-out utterances.

        Centring, targets and the weights of voices are those of everything.
        """
        return self._reduced[0]

    def without(self, speaker: int) -> Solution:
        """Return the machines trained without held-out segments and ``speaker``, whose own machine means nothing.

        Pseudo-speakers made of the speaker's voice are left out, too.
        """
        made = self._left_out.get(speaker)
        if made is None:
            kept, inverse = self._reduced
            of_speaker = np.zeros(len(self._kept), dtype=bool)
            of_speaker[self._spans[speaker]] = True
            dual, _ = _left_out(kept.dual, inverse, of_speaker & self._kept)
            made = replace(kept, dual=dual)
            # A new dictionary, not a changed one: other threads may be reading.
            before = {} if len(self._left_out) >= MOST_LEFT_OUT else self._left_out
            self._left_out = before | {speaker: made}
        return made

    def _targets(self, vectors: Sequence[NDArray[Any]], voices: int) -> Array:
        """Return the targets (S, N), less their mean."""
        targets = np.full((len(self._kept), len(vectors)), -1.0 / max(1, voices - 1))
        for n, (span, own) in enumerate(zip(self._spans, vectors, strict=True)):
            targets[span.start : span.start + len(own), n] = 1.0
        return np.asarray(targets - targets.mean(axis=0))

    def _solved(
        self, rows: Vectors, targets: Array, known: Known | None
    ) -> tuple[Array, Vectors, Array, Array, AnyFloat]:
        """Return the mean of ``rows``, their inner products, scale and dual solution, and the Cholesky factor.

        The solution is that of (U U' + diag(ridge)) a = targets. In single precision, which takes half the time and
        memory, refined by the residual in double precision; by a small ridge, all in double precision.
        """
        from scipy.linalg import cho_solve, cholesky
        from threadpoolctl import threadpool_limits

        unsure = len(rows) * np.finfo(np.float32).eps / self._ridge.min()
        dtype = np.float32 if unsure <= MOST_UNSURE else np.float64
        with threadpool_limits(self._jobs, "blas"):
            inner = inner_products(rows.astype(dtype, copy=False), known if dtype is np.float32 else None)
            gram, scale = _centred(inner)
            gram[np.diag_indices_from(gram)] += self._ridge.astype(dtype)
            try:
                factor = cholesky(gram, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                raise FitError(
                    "supervector machines: the matrix of all segments is singular to machine precision;"
                    " raise supervector.ridge"
                ) from None
            dual, residual = np.zeros_like(targets), targets
            for _ in range(1 + MENDINGS):
                # a += inv(L L') (targets - (U U' + diag(ridge)) a)
                dual += cho_solve((factor, True), residual.astype(dtype), overwrite_b=True, check_finite=False)
                residual = targets - _product(gram, dual)
        return rows.mean(axis=0, dtype=np.float64), inner.astype(np.float32, copy=False), scale, dual, factor

    @cached_property
    def _reduced(self) -> tuple[Solution, AnyFloat]:
        """Return the solution without held-out rows, and the inverse without them: zero there.

        The factor is used up: ask for ``without_held_out`` before several threads ask for more.
        """
        from scipy.linalg import get_lapack_funcs
        from threadpoolctl import threadpool_limits

        with threadpool_limits(self._jobs, "blas"):
            invert = get_lapack_funcs("potri", (self._factor,))
            inverse, _ = invert(self._factor, lower=True, overwrite_c=True)
            inverse += np.tril(inverse, -1).T
            dual, inverse = _left_out(self._all.dual, inverse, ~self._kept, needs_inverse=True)
            return replace(self._all, dual=dual), inverse


def inner_products(rows: AnyFloat, known: Known | None = None) -> NDArray[Any]:
    """Return the inner products (S, S) of ``rows`` (S, D), of which some are ``known``."""
    if known is None or not len(known.rows):
        return np.asarray(rows @ rows.T)
    inner = np.empty((len(rows), len(rows)), dtype=rows.dtype)
    inner[np.ix_(known.rows, known.rows)] = known.inner
    new = np.setdiff1d(np.arange(len(rows)), known.rows)
    inner[new] = rows[new] @ rows.T
    inner[:, new] = inner[new].T
    return inner


def packed(inner: Vectors) -> Vectors:
    """Return the lower triangle of a symmetric matrix (S, S), row by row: (S (S + 1) / 2,)."""
    return np.concatenate([row[: number + 1] for number, row in enumerate(inner)])


def unpacked(triangle: Vectors) -> Vectors:
    """Return the symmetric matrix whose lower triangle was ``packed``."""
    size = round((np.sqrt(8.0 * len(triangle) + 1.0) - 1.0) / 2.0)
    full, first = np.empty((size, size), dtype=triangle.dtype), 0
    for number in range(size):
        full[number, : number + 1] = full[: number + 1, number] = triangle[first : first + number + 1]
        first += number + 1
    return full


def _centred(inner: NDArray[Any]) -> tuple[NDArray[Any], Array]:
    """Return the inner products U U' of rows less their mean, of length 1, and the scale 1 / |v - mean| of each.

    (v_s - m)'(v_t - m) = v_s'v_t - c_s - c_t + mean of c, where c_s = v_s'm is the mean of row s. Rows that are the
    mean to machine precision have the scale 0.
    """
    means = inner.mean(axis=1, dtype=np.float64)
    squares = np.diag(inner) - 2.0 * means + means.mean()
    least = 16.0 * np.finfo(inner.dtype).eps * np.diag(inner)
    scale = np.divide(1.0, np.sqrt(np.maximum(squares, 0.0)), out=np.zeros(len(inner)), where=squares > least)
    gram = np.empty_like(inner)
    for rows in _slices(len(inner)):
        block = inner[rows] - (means[rows, None] - means.mean()) - means
        gram[rows] = block * scale[rows, None] * scale
    return gram, scale


def _product(matrix: NDArray[Any], vectors: Array) -> Array:
    """Return ``matrix`` @ ``vectors`` in double precision."""
    return np.concatenate([matrix[rows].astype(np.float64) @ vectors for rows in _slices(len(matrix))])


def _left_out(
    dual: Array, inverse: NDArray[Any], rows: NDArray[np.bool_], *, needs_inverse: bool = False
) -> tuple[Array, NDArray[Any]]:
    """Return the ``dual`` solution (S, N) without ``rows``, where it is zero, and the inverse without them if asked.

    With B the rows' columns of the inverse and G their corner of it: a - B inv(G) a[rows], and inverse - B inv(G) B'.
    """
    out = np.flatnonzero(rows)
    if not len(out):
        return dual, inverse
    columns = inverse[:, out]
    corner = columns[out].astype(np.float64)
    left = dual - _product(columns, np.asarray(np.linalg.solve(corner, dual[out]), dtype=np.float64))
    left[out] = 0.0
    if needs_inverse:
        inverse = inverse - columns @ np.linalg.solve(corner, columns.T).astype(columns.dtype)
    return left, inverse


def _slices(size: int) -> list[slice]:
    return [slice(first, first + ROWS) for first in range(0, size, ROWS)]
