"""GMM-supervector machines: one linear machine a speaker over whole segments of speech, all solved at once.

A segment's supervector holds, for each component of the universal background model, how far its frames lie from the
component's mean (Campbell, Sturim and Reynolds, Support vector machines using GMM supervectors for speaker
verification, 2006). Less the population's mean and of unit length, it is judged by linear machines, one speaker against
the rest, trained by regularised least squares (Suykens and Vandewalle, Least squares support vector machine
classifiers, 1999): one factorisation of the Gram matrix of all segments serves every speaker, and leaving a speaker
out of the training takes one small solve more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import FitError
from pipeline.machines.ubm import UniversalBackgroundModel
from pipeline.machines.workers import jobs_of

Array = NDArray[np.float64]
Vectors = NDArray[np.float32]
Segment = tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]
"""Two arrays with a row a frame."""

LEAST_LENGTH = 1e-12  # of a vector that is scaled to length 1
# Speakers whose machines without them are kept: their trials come one after another, on several threads.
MOST_LEFT_OUT = 8
# Refinements of the solution by its residual, and the largest residual allowed before the last.
MENDINGS = 2
MOST_RESIDUAL = 1e-5
# Rows that are taken to double precision at a time.
ROWS = 512


@dataclass(frozen=True)
class SupervectorMachines:
    """Supervector machines of N speakers over the background models ``ubms``.

    ``mean`` (D,) of the training vectors, ``coef`` (D, N).
    """

    ubms: tuple[UniversalBackgroundModel, ...]
    mean: Array
    coef: Array

    def margins(self, statistics: Sequence[Array]) -> Array:
        """Return the margins (N,) of a segment: near 1 for its speaker, -1 / (N - 1) for others.

        ``statistics`` (K, 1 + d) are those under each background model.

        Summed in single precision, as ``coef`` is stored: a stream asks often, and reads everybody's each time.
        """
        vector = unit(supervector(self.ubms, statistics) - self.mean)
        return np.asarray(self._rows @ vector.astype(np.float32), dtype=np.float64)

    @cached_property
    def _rows(self) -> Vectors:
        return np.ascontiguousarray(self.coef.T, dtype=np.float32)


class SupervectorTraining:
    """Regularised least squares over the segments of N speakers.

    Minimises the sum over voices of the mean squared error on their segments, plus ``ridge`` |w|^2, so that a voice
    with much speech counts no more than one with little. Targets are 1 for a speaker's own segments and -1 / (V - 1)
    for those of the V - 1 other voices.

    Parameters
    ----------
    vectors : sequence of arrays (S_n, D)
        Supervectors of each speaker's segments.
    ridge : float
        Weight of the penalty.
    pseudo_speakers : sequence of sequences of arrays (S, D)
        Pseudo-speakers made of each speaker's voice: voices to tell the speakers from, without machines of their own.
    jobs : int
        Threads. The same number gives the same bits.

    Raises
    ------
    FitError
        Where the Gram matrix and ridge are singular to double precision.
    """

    def __init__(
        self,
        vectors: Sequence[Vectors],
        *,
        ridge: float,
        pseudo_speakers: Sequence[Sequence[Vectors]] = (),
        jobs: int = 1,
    ) -> None:
        made = pseudo_speakers or [()] * len(vectors)
        # A speaker's rows stand together, pseudo-speakers' at their end: they are left out at once.
        voices = [part for own, parts in zip(vectors, made, strict=True) for part in (own, *parts)]
        ends = np.cumsum([0, *(len(own) + sum(map(len, parts)) for own, parts in zip(vectors, made, strict=True))])
        self._blocks = [slice(*span) for span in pairwise(ends.tolist())]
        counts = np.array([len(part) for part in voices])
        # Rows u_s = (v_s - mean) / |v_s - mean|
        self._unit = np.concatenate(voices).astype(np.float32, copy=False)
        self.mean = self._unit.mean(axis=0, dtype=np.float64)
        self._unit -= self.mean.astype(np.float32)
        self._unit /= np.maximum(np.linalg.norm(self._unit, axis=1, keepdims=True), LEAST_LENGTH)
        targets = np.full((len(self._unit), len(vectors)), -1.0 / max(1, len(voices) - 1))
        for n, own in enumerate(vectors):
            targets[ends[n] : ends[n] + len(own), n] = 1.0
        targets -= targets.mean(axis=0)
        # Weighting voices alike is a ridge of its own for each row: proportional to its voice's number of segments.
        self._ridge = ridge * np.repeat(counts, counts) / counts.mean()
        self._jobs = jobs_of(jobs)
        self._inverse: NDArray[Any] | None = None
        self._inverting = Lock()
        self._dual, self._factor = self._solved(targets)
        self._coef = self._primal(self._dual)
        self._left_out: dict[int, Array] = {}

    @property
    def coef(self) -> Vectors:
        """Return the coefficients (D, N) of the machines, at the precision that they are stored in."""
        return self._coef.astype(np.float32)

    def margins(self, vectors: Array) -> Array:
        """Return the margins (n, N) of segments ``vectors`` (n, D)."""
        return np.asarray(unit(vectors - self.mean) @ self._coef)

    def margins_without(self, speaker: int, vectors: Array) -> Array:
        """Return the margins (n, N) of ``vectors`` by machines trained without ``speaker``; that column means nothing.

        Pseudo-speakers made of the speaker's voice are left out, too. Exact: see ``_coef_without``.
        """
        coef = self._left_out.get(speaker)
        if coef is None:
            coef = self._coef_without(speaker)
            # A new dictionary, not a changed one: other threads may be reading.
            kept = {} if len(self._left_out) >= MOST_LEFT_OUT else self._left_out
            self._left_out = kept | {speaker: coef}
        return np.asarray(unit(vectors - self.mean) @ coef)

    def _solved(self, targets: Array) -> tuple[Array, NDArray[Any]]:
        """Return the dual solution a (S, N) of (U U' + diag(ridge)) a = ``targets``, and the matrix' Cholesky factor.

        In single precision, which takes half the time and memory, refined by the residual in double precision; where
        the matrix is too near to a singular one for that, in double precision.
        """
        from scipy.linalg import cho_factor, cho_solve, get_blas_funcs
        from threadpoolctl import threadpool_limits

        for dtype in (np.float32, np.float64):
            rows = self._unit.astype(dtype, copy=False)
            with threadpool_limits(self._jobs, "blas"):
                # In Fortran's order, which LAPACK overwrites in place; of a symmetric matrix BLAS fills one triangle.
                gram = get_blas_funcs("syrk", (rows,))(1.0, rows.T, trans=True, lower=True)
                gram[np.diag_indices_from(gram)] += self._ridge.astype(dtype)
                try:
                    factor, _ = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
                except np.linalg.LinAlgError:
                    continue
                dual, residual = np.zeros_like(targets), targets
                for _ in range(1 + MENDINGS):
                    # a += inv(L L') (targets - (U U' + diag(ridge)) a)
                    dual += cho_solve((factor, True), residual.astype(dtype), overwrite_b=True, check_finite=False)
                    residual = targets - self._applied(dual)
            if np.abs(residual).max() <= MOST_RESIDUAL or dtype is np.float64:
                return dual, factor
        raise FitError(
            "supervector machines: the matrix of all segments is singular to machine precision; raise supervector.ridge"
        )

    def _applied(self, dual: Array) -> Array:
        """Return (U U' + diag(ridge)) ``dual`` (S, N), in double precision."""
        primal, applied = self._primal(dual), np.empty_like(dual)
        for rows in self._slices():
            applied[rows] = self._unit[rows].astype(np.float64) @ primal
        return np.asarray(applied + self._ridge[:, None] * dual)

    def _primal(self, dual: Array) -> Array:
        """Return the coefficients U' ``dual`` (D, N)."""
        coef = np.zeros((self._unit.shape[1], dual.shape[1]))
        for rows in self._slices():
            coef += self._unit[rows].astype(np.float64).T @ dual[rows]
        return coef

    def _slices(self) -> list[slice]:
        return [slice(first, first + ROWS) for first in range(0, len(self._unit), ROWS)]

    def inverse(self) -> NDArray[Any]:
        """Return the inverse of the Gram matrix and ridge (S, S), its lower triangle, which replaces the factor.

        ``margins_without`` needs it; call this before it is used on several threads.
        """
        from scipy.linalg import get_lapack_funcs
        from threadpoolctl import threadpool_limits

        with self._inverting:
            if self._inverse is None:
                with threadpool_limits(self._jobs, "blas"):
                    potri = get_lapack_funcs("potri", (self._factor,))
                    self._inverse, _ = potri(self._factor, lower=True, overwrite_c=True)
            return self._inverse

    def _coef_without(self, speaker: int) -> Array:
        """Return the coefficients (D, N) of the solution without the rows of ``speaker``.

        With B the block's columns of the inverse, and G their rows in the block, the dual solution without the block
        is a - B inv(G) a[block], which is zero on the block.
        """
        inverse, block = self.inverse(), self._blocks[speaker]
        corner = np.tril(inverse[block, block])
        corner += np.tril(corner, -1).T
        columns = np.concatenate((inverse[block, : block.start].T, corner, inverse[block.stop :, block]))
        weights = np.linalg.solve(corner.astype(np.float64), self._dual[block])
        dual = columns @ weights.astype(columns.dtype)
        return np.asarray(self._coef - self._unit.T @ dual.astype(np.float32, copy=False))


def supervector(ubms: Sequence[UniversalBackgroundModel], statistics: Sequence[Array]) -> Array:
    """Return the supervector (D,) of a segment's ``statistics`` under each background model, end to end."""
    return np.concatenate([ubm.vector(its) for ubm, its in zip(ubms, statistics, strict=True)])


def segments_of(utterances: Sequence[Segment], frames: int, most: int) -> list[Segment]:
    """Cut and join ``utterances`` to segments of about ``frames`` frames, ``most`` of them at the most.

    Utterances shorter than that are joined to their followers; longer ones are cut into windows that overlap by half.
    Where that would make more than ``most``, segments are longer, and of those that still are too many some are left
    out, evenly.
    """
    total = sum(len(vectors) for vectors, _ in utterances)
    wanted = max(frames, -(-total // most))
    segments: list[Segment] = []
    waiting: list[Segment] = []
    for vectors, weights in utterances:
        if len(vectors) >= 1.5 * wanted:
            starts = range(0, len(vectors) - wanted + 1, max(1, wanted // 2))
            segments += [(vectors[s : s + wanted], weights[s : s + wanted]) for s in starts]
            continue
        waiting.append((vectors, weights))
        if sum(len(part) for part, _ in waiting) >= wanted:
            segments.append(_joined(waiting))
            waiting = []
    if waiting and (not segments or sum(len(part) for part, _ in waiting) >= wanted / 2):
        segments.append(_joined(waiting))
    if len(segments) <= most:
        return segments
    return [segments[n] for n in np.linspace(0, len(segments) - 1, most).round().astype(int)]


def _joined(parts: Sequence[Segment]) -> Segment:
    return np.concatenate([vectors for vectors, _ in parts]), np.concatenate([weights for _, weights in parts])


def unit(vectors: Array) -> Array:
    """Scale ``vectors`` (..., D) to length 1; zero stays zero."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), LEAST_LENGTH))
