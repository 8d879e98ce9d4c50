"""Supervector machines by regularised least squares, from the Gram matrix of everybody's segments.

With u_s the segments' supervectors, centred and scaled to length 1 (the rows of U), t_sn the targets of machine n, and
r_s a ridge for each segment, w_n minimises

    |w|^2 + sum over s of (t_sn - w . u_s)^2 / r_s,

so that w_n = sum over s of a_sn u_s with (U U' + diag(r)) a = t. One Cholesky factorisation serves all speakers
(Suykens and Vandewalle, Least squares support vector machine classifiers, 1999), and the inverse gives the solution
without some rows: those of held-out utterances, then also a speaker's. If inner products of earlier rows are kept, only
those of new rows are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import FitError
from pipeline.machines.gram import Array, Known, centred, inner_products, inverse_columns, packed, product
from pipeline.machines.half_precision import Rows
from pipeline.machines.lapack import AnyFloat, cholesky, cholesky_solve
from pipeline.machines.supervectors import Vectors, unit
from pipeline.machines.workers import in_order, jobs_of

# Most refinements of the solution; the residual that ends them, as a share of the largest target; and for about how
# many machines it is computed.
REFINEMENTS, RESIDUAL, MACHINES_CHECKED = 2, 1e-8, 16
# Single precision is used up to this product of machine epsilon, number of rows and 1 / ridge.
MOST_UNSURE = 1e-2


@dataclass(frozen=True)
class Solution:
    """Machines w_n = sum over s of dual_sn u_s, with u_s = (v_s - mean) / |v_s - mean|.

    ``rows`` (S, D) are the v_s, ``scale`` (S,) the 1 / |v_s - mean|, ``dual`` (S, N) the a_sn. Sums have the precision
    ``dtype``.
    """

    rows: Rows
    mean: Array
    scale: Array
    dual: Array
    dtype: type[np.floating[Any]] = np.float32

    @cached_property
    def coef(self) -> Vectors:
        """Return the coefficients (N, D) of the machines, at the precision at which they are stored."""
        return self.coefficients()

    def coefficients(self, jobs: int = 1) -> Vectors:
        """Return ``coef``, computed on ``jobs`` threads, whose number changes no bit."""
        jobs, weights = jobs_of(jobs), (self.dual * self.scale[:, None]).T
        totals, weights = weights.sum(axis=1), weights.astype(self.dtype)
        coef = np.empty((len(weights), len(self.mean)), dtype=np.float32)

        def fill(starts: Sequence[int]) -> None:
            for columns, rows in self.rows.by_columns(starts):
                coef[:, columns] = weights @ rows - np.outer(totals, self.mean[columns])

        for _ in in_order(fill, [self.rows.starts[first::jobs] for first in range(jobs)], jobs):
            pass
        return coef

    def margins(self, vectors: Sequence[AnyFloat], coef: Vectors | None = None) -> Array:
        """Return the margins (n, N) of segments ``vectors`` (n, D), by these machines or other ``coef`` (N, D)."""
        return np.asarray(self._units(vectors) @ (self.coef if coef is None else coef).T, dtype=np.float64)

    def kernel(self, vectors: Sequence[AnyFloat]) -> Array:
        """Return the inner products (n, S) of segments ``vectors`` (n, D) and the training rows, all of length 1."""
        units = self._units(vectors)
        kernel = np.zeros((len(units), len(self.rows)))
        for columns, rows in self.rows.by_columns():
            kernel += units[:, columns] @ rows.T
        return np.asarray((kernel - (units @ self.mean)[:, None]) * self.scale)

    def _units(self, vectors: Sequence[AnyFloat]) -> Vectors:
        """Return ``vectors`` (n, D), less the mean and scaled to length 1, in single precision."""
        units = np.empty((len(vectors), len(self.mean)), dtype=np.float32)
        for own, vector in zip(units, vectors, strict=True):
            own[:] = vector - self.mean
        return unit(units)


class SupervectorTraining:
    """Regularised least squares over the segments of N speakers, with V - N pseudo-speakers as further rivals.

    The ridge r_s is ``ridge`` times the number of segments of the speaker or pseudo-speaker, divided by the mean of
    these numbers, so that a speaker with much speech counts no more than one with little. Targets are 1 for a speaker's
    own segments and -1 / (V - 1) for others.

    Parameters
    ----------
    vectors : sequence of arrays (S_n, D)
        Supervectors of each speaker's segments, in half or single precision.
    ridge : float
        Weight of the penalty.
    pseudo_speakers : sequence of sequences of arrays (S, D)
        Pseudo-speakers made from each speaker's voice; they get no machines.
    held_out : sequence of sequences of int
        For each speaker: how many of the last segments of the speaker, then of each pseudo-speaker, are from held-out
        utterances. A speaker with an empty sequence cannot be left out; by default all can.
    known : Known, optional
        Inner products of rows, which are numbered speaker by speaker: segments, then those of pseudo-speakers.
    jobs : int
        Threads. The same number gives the same bits.

    Attributes
    ----------
    solution : Solution
        The machines, trained on everything.
    triangle : array (S (S + 1) / 2,)
        Inner products of all rows, ``packed``.

    Raises
    ------
    FitError
        If Gram matrix plus ridge is singular to double precision.
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
        held = held_out or [[0] * len(its) for its in parts]
        sizes = [list(map(len, its)) for its in parts]
        self._spans = [slice(*span) for span in pairwise(np.cumsum([0, *map(sum, sizes)]).tolist())]
        counts = np.array([size for of_speaker in sizes for size in of_speaker])
        held_counts = [n for counted, its in zip(held, parts, strict=True) for n in (counted or [0] * len(its))]
        self._kept = np.concatenate(
            [np.arange(size) < size - count for size, count in zip(counts, held_counts, strict=True)]
        )
        # Rows that can be left out: only their columns of the inverse are computed.
        self._leaving = np.flatnonzero(np.repeat([len(its) > 0 for its in held], [sum(its) for its in sizes]))
        self._jobs = jobs_of(jobs)
        self._ridge = ridge * np.repeat(counts, counts) / counts.mean()
        rows = Rows([part for its in parts for part in its])
        mean, inner, scale, dual, self._factor = self._solved(rows, self._targets(vectors, len(counts)), known)
        self.triangle = packed(inner)
        self.solution = Solution(rows, mean, scale, dual, self._factor.dtype.type)

    @property
    def without_held_out(self) -> Solution:
        """Return the machines trained without the segments of held-out utterances.

        The mean, targets and ridges stay those of all segments.
        """
        return self._reduced[0]

    def without(self, speaker: int) -> Solution:
        """Return the machines trained without held-out segments and ``speaker``, whose own machine is meaningless.

        Pseudo-speakers made from the speaker's voice are left out, too.
        """
        kept, columns = self._reduced
        return replace(kept, dual=_left_out(kept.dual, columns, self._leaving, self._rows_of(speaker)))

    def held_out_margins(
        self, speakers: Sequence[int], vectors: Sequence[Sequence[AnyFloat]]
    ) -> list[tuple[Array, Array]]:
        """Return each speaker's margins (n, N) of ``vectors`` (n, D), ``without_held_out`` and ``without`` the speaker.

        Computed from inner products with the training rows, for all speakers at once; for speakers with many vectors it
        is faster to compute the machines without each.
        """
        kept, columns = self._reduced
        apart = [len(its) >= 2 * kept.dual.shape[1] for its in vectors]
        together = [its for its, alone in zip(vectors, apart, strict=True) if not alone]
        kernel = kept.kernel([vector for its in together for vector in its]) if together else np.empty((0, 0))
        machines = self._machines_without([speaker for speaker, alone in zip(speakers, apart, strict=True) if alone])
        margins, first = [], 0
        for speaker, its, alone in zip(speakers, vectors, apart, strict=True):
            if alone:
                with_all, without = np.hsplit(kept.margins(its, np.concatenate([kept.coef, next(machines)])), 2)
                margins.append((with_all, without))
                continue
            own, gone = kernel[first : first + len(its)], self._rows_of(speaker)
            first += len(its)
            with_all = own @ kept.dual
            change = own @ columns[:, gone] @ _change(kept.dual, columns, self._leaving, gone)
            margins.append((with_all, with_all - change))
        return margins

    def _machines_without(self, speakers: Sequence[int]) -> Iterator[Vectors]:
        """Yield the coefficients (N, D) of the machines without each of ``speakers``, in one pass over the rows."""
        if speakers:
            duals = np.hstack([self.without(speaker).dual for speaker in speakers])
            yield from np.split(replace(self._reduced[0], dual=duals).coefficients(), len(speakers))

    def _rows_of(self, speaker: int) -> NDArray[np.bool_]:
        """Return a mask, over the rows that can be left out, of those of ``speaker`` that are not held out already."""
        span = self._spans[speaker]
        of_speaker = (self._leaving >= span.start) & (self._leaving < span.stop)
        return np.asarray(of_speaker & self._kept[self._leaving])

    def _targets(self, vectors: Sequence[NDArray[Any]], everybody: int) -> Array:
        """Return the targets (S, N), less their mean; ``everybody`` is V, pseudo-speakers counted."""
        targets = np.full((len(self._kept), len(vectors)), -1.0 / max(1, everybody - 1))
        for n, (span, own) in enumerate(zip(self._spans, vectors, strict=True)):
            targets[span.start : span.start + len(own), n] = 1.0
        return np.asarray(targets - targets.mean(axis=0))

    def _solved(self, rows: Rows, targets: Array, known: Known | None) -> tuple[Array, Vectors, Array, Array, AnyFloat]:
        """Return the mean of ``rows``, their inner products, scale and dual solution, and the Cholesky factor.

        The Gram matrix is factorised in single precision, in half the time and memory, and the solution refined by its
        residual in double precision; with a small ridge, everything is in double precision.
        """
        from threadpoolctl import threadpool_limits

        unsure = len(rows) * np.finfo(np.float32).eps / self._ridge.min()
        dtype = np.float32 if unsure <= MOST_UNSURE else np.float64
        with threadpool_limits(self._jobs, "blas"):
            inner, mean = inner_products(rows, known if dtype is np.float32 else None, dtype=dtype)
            gram, scale = centred(inner)
            gram[np.diag_indices_from(gram)] += self._ridge.astype(dtype)
            try:
                factor = cholesky(gram)
            except np.linalg.LinAlgError:
                raise FitError(
                    "machines over utterances: the matrix of all segments is singular to machine precision; raise the"
                    " ridge that these are trained by: supervector.ridge, normalised.ridge or embedding.ridge"
                ) from None
            dual = _refined(gram, factor, targets)
        return mean, inner.astype(np.float32, copy=False), scale, dual, factor

    @cached_property
    def _reduced(self) -> tuple[Solution, AnyFloat]:
        """Return the solution and the columns of the inverse without held-out rows, with zeros for these.

        The inverse without them is inverse - B inv(G) B', with B the columns of held-out rows and G the block of B at
        these rows. The factor is overwritten, so two threads must not compute this at once.
        """
        from threadpoolctl import threadpool_limits

        with threadpool_limits(self._jobs, "blas"):
            columns, held_out = inverse_columns(self._factor, self._leaving), ~self._kept[self._leaving]
            self._factor = np.empty((0, 0))
            dual = _left_out(self.solution.dual, columns, self._leaving, held_out)
            out, corner = columns[:, held_out], columns[np.ix_(self._leaving[held_out], np.flatnonzero(held_out))]
            change = np.linalg.solve(corner.astype(np.float64), out[self._leaving].T).astype(columns.dtype)
            columns -= out @ change
            return replace(self.solution, dual=dual), columns


def _refined(gram: AnyFloat, factor: AnyFloat, targets: Array) -> Array:
    """Solve ``gram`` a = ``targets`` by the Cholesky ``factor``, refined by the residual in double precision."""

    def solved(right: Array) -> Array:
        return np.asarray(cholesky_solve(factor, right), dtype=np.float64)

    dual, some = solved(targets), slice(None, None, max(1, targets.shape[1] // MACHINES_CHECKED))
    for _ in range(REFINEMENTS):
        dual += solved(targets - product(gram, dual))
        if np.abs(targets[:, some] - product(gram, dual[:, some])).max() <= RESIDUAL * np.abs(targets).max():
            break
    return dual


def _left_out(dual: Array, columns: AnyFloat, numbers: NDArray[np.intp], gone: NDArray[np.bool_]) -> Array:
    """Return the ``dual`` solution (S, N) without the rows ``numbers[gone]``, for which it is zero."""
    changed = dual - product(columns[:, gone], _change(dual, columns, numbers, gone))
    changed[numbers[gone]] = 0.0
    return changed


def _change(dual: Array, columns: AnyFloat, numbers: NDArray[np.intp], gone: NDArray[np.bool_]) -> Array:
    """Return inv(G) a[rows] (g, N), with a the ``dual`` solution and rows those of ``numbers`` (k,) that are ``gone``.

    With B their ``columns`` of the inverse and G the block of B at these rows, the solution without them is
    a - B inv(G) a[rows].
    """
    out = numbers[gone]
    return np.asarray(np.linalg.solve(columns[np.ix_(out, gone)].astype(np.float64), dual[out]), dtype=np.float64)
