"""All machines of a population as coefficient blocks over the pool, and their margins on frames.

The kernel tile (T, k) between the frames and each speaker's centroids is made once and meets one coefficient block. As
many speakers' tiles as stay in a core's cache are made at a time, so nothing larger is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.pool import Pool, Precision
from pipeline.machines.rivals import MachineSource, RivalTable
from pipeline.machines.segments import SegmentMachines

Array = NDArray[np.float64]
AnyFloat = NDArray[Any]

# Of kernel values held at a time, which stay in the cache of a core.
TILE_BYTES = 2**20
# Columns of coefficients from which on a multiple of eight pays.
WIDE = 16
# And up to which compiled code sums each by itself in less time than a matrix product takes.
NARROW = 4


class PairSource(Protocol):
    """The N (N - 1) / 2 pair machines, wherever they are kept.

    With w[m, j] >= 0 the coefficient of centroid m in the machine of its owner against speaker j,
    f_ij(x) = sum over i's centroids of w[m, j] K(x, m) - sum over j's of w[m, i] K(x, m) + b[i, j].

    Families of L reweighted machines (``machines.implied``) have an axis of length L after those named here.
    """

    def rows(self, speaker: int) -> Array:
        """W (k, N) of one speaker's centroids against each other speaker, 0 against themself."""

    def columns(self, claims: NDArray[np.int64]) -> Array:
        """W (M, C) of every centroid against each of the claims."""

    def bias(self, claims: NDArray[np.int64]) -> Array:
        """B (C, N), antisymmetric, of the claims against each speaker."""


@dataclass(frozen=True)
class PairBlock:
    """Pair machines in memory: ``weights[i]`` (k_i, N) and ``biases`` (N, N); families have one more axis (L,)."""

    weights: tuple[Array, ...]
    biases: Array

    def rows(self, speaker: int) -> Array:
        """See PairSource."""
        return self.weights[speaker]

    def columns(self, claims: NDArray[np.int64]) -> Array:
        """See PairSource."""
        return np.concatenate([weights[:, claims] for weights in self.weights])

    def bias(self, claims: NDArray[np.int64]) -> Array:
        """See PairSource."""
        return self.biases[claims]


@dataclass(frozen=True)
class Population:
    """A pool of N speakers with the machines trained over it; kinds that were not trained are None.

    ``one_class_coef`` (M,) and ``one_class_bias`` (N,): each speaker's own machine on its own rows.
    ``segments`` judge whole stretches of speech, not frames, and have no part in the pool.
    ``one_vs_rest_coef`` (M, N) and ``one_vs_rest_bias`` (N,): column n is speaker n against everybody else. Families
    of reweighted machines have one more axis (L,). Where pair machines are kept against the hardest rivals alone,
    ``rival_machines`` stand in for ``pairs`` and claims are scored in panels (``machines.panels``); ``rivals`` says who
    they are, None for a part of such a population.
    """

    pool: Pool
    pairs: PairSource | None = None
    one_class_coef: Array | None = None
    one_class_bias: Array | None = None
    one_vs_rest_coef: Array | None = None
    one_vs_rest_bias: Array | None = None
    segments: SegmentMachines | None = None
    rivals: RivalTable | None = None
    rival_machines: MachineSource | None = None

    def __len__(self) -> int:
        return len(self.pool)

    def with_segments(self, segments: SegmentMachines) -> Population:
        """The same machines and ``segments``."""
        return replace(self, segments=segments)


@dataclass(frozen=True)
class Margins:
    """Margins of T frames for C claims among N speakers; kinds that were not asked for are None.

    ``claims`` (C,) speaker numbers; ``pair`` (T, C, N) f_ij of claim i against j, 0 where j is i itself;
    ``one_class`` (T, N); ``one_vs_rest`` (T, N). The margin of a family of reweighted machines is the log-odds of the
    share of them that say positive (``share_log_odds``).
    """

    claims: NDArray[np.int64]
    pair: AnyFloat | None = None
    one_class: AnyFloat | None = None
    one_vs_rest: AnyFloat | None = None

    def select(self, claims: NDArray[np.int64]) -> Margins:
        """The same frames for a subset of the claims."""
        if self.pair is None or np.array_equal(claims, self.claims):
            return Margins(claims, self.pair, self.one_class, self.one_vs_rest)
        slots = [int(np.flatnonzero(self.claims == claim)[0]) for claim in claims]
        return Margins(claims, self.pair[:, slots], self.one_class, self.one_vs_rest)


class MarginScorer:
    """Margins of the machines that ``claims`` need, for blocks of frames.

    ``claims`` are speaker numbers, ``kinds`` a subset of {"one_vs_one", "one_class", "one_vs_rest"}, ``dtype`` names a
    ``Precision`` (margins of mixed agree to 1e-5 with those of float64, of float32 to 1e-3), ``compiled`` or not.
    ``machines`` is the length L of families, else 1.
    """

    def __init__(
        self,
        population: Population,
        claims: NDArray[np.int64],
        kinds: frozenset[str],
        *,
        dtype: str = "float64",
        compiled: bool = False,
    ) -> None:
        self.claims = np.asarray(claims, dtype=np.int64)
        self._precision = Precision.named(dtype, compiled=compiled)
        self.dtype = self._precision.sums
        self._population = population
        self._kinds = kinds
        pool = population.pool
        # |x - y|^2 loses digits far from the origin, which float32 cannot spare.
        self._centre = pool.centroids.mean(axis=0)
        self._slots = {int(claim): np.flatnonzero(self.claims == claim) for claim in self.claims}
        paired = population.pairs if "one_vs_one" in kinds else None
        self._biases = Margins(
            claims=self.claims,
            pair=None if paired is None else np.asarray(paired.bias(self.claims), dtype=self.dtype),
            one_class=self._bias("one_class", population.one_class_bias),
            one_vs_rest=self._bias("one_vs_rest", population.one_vs_rest_bias),
        )
        axes = [(self._biases.pair, 2), (self._biases.one_vs_rest, 1)]
        self.machines = max([1, *(bias.shape[-1] for bias, least in axes if bias is not None and bias.ndim > least)])
        # A claimed speaker's own products serve the rivals' side too, so that identification makes each product once.
        self._everybody = len(self._slots) == len(pool)
        columns = None if paired is None or self._everybody else paired.columns(self.claims)
        self._size = self._precision.columns(max((len(pool.codebook(n)) for n in range(len(pool))), default=0))
        # Batches of small products in one call: the calls of a loop over speakers would cost more than a short chunk.
        sides = np.zeros((len(pool), pool.centroids.shape[1] + 2, self._size), self._precision.products)
        self._own: dict[int, AnyFloat] = {}
        coefficients = [self._load(n, sides[n], columns) for n in range(len(pool))]
        self._kernel_sides = self._precision.laid_out(sides)
        width = coefficients[0].shape[1]
        # Speakers short of centroids have rows of zeros, which add nothing. Nor do columns of zeros, with which a wide
        # product is made in less time.
        wide = width if width < WIDE else -(-width // 8) * 8
        self._shared = np.zeros((len(pool), self._size, wide), dtype=self.dtype)
        for n, block in enumerate(coefficients):
            self._shared[n, : len(block), :width] = block
        self._narrow: AnyFloat | None = None
        if self._precision.kernels is not None and width <= NARROW and not self._everybody:
            self._narrow = np.ascontiguousarray(self._shared.transpose(0, 2, 1))
        self._claimed = np.array(sorted(self._own), dtype=np.int64)

    def _bias(self, kind: str, bias: Array | None) -> AnyFloat | None:
        return None if bias is None or kind not in self._kinds else np.asarray(bias, dtype=self.dtype)

    def _load(self, n: int, side: AnyFloat, columns: Array | None) -> AnyFloat:
        """Put speaker n's centroids into the kernel product's ``side``, and give the coefficients (k, ...) it meets."""
        population, rows = self._population, self._population.pool.rows(n)
        y = (population.pool.centroids[rows] - self._centre) / population.pool.sigma
        side[:-2, : len(y)] = y.T
        side[-2, : len(y)] = 1.0
        side[-1, : len(y)] = -0.5 * (y * y).sum(1)
        blocks = []
        if self._biases.pair is not None and population.pairs is not None and n in self._slots:
            own = population.pairs.rows(n).reshape(len(y), -1)
            if self._everybody:
                blocks.append(own)
            else:
                self._own[n] = np.ascontiguousarray(own, dtype=self.dtype)
        if columns is not None:
            against = -columns[rows].reshape(len(y), -1)
            blocks.append(np.zeros_like(against) if n in self._slots else against)
        if "one_class" in self._kinds and population.one_class_coef is not None:
            blocks.append(population.one_class_coef[rows, None])
        if "one_vs_rest" in self._kinds and population.one_vs_rest_coef is not None:
            blocks.append(population.one_vs_rest_coef[rows].reshape(len(y), -1))
        return np.concatenate(blocks, axis=1) if blocks else np.zeros((len(y), 0))

    def __call__(self, features: Array) -> Margins:
        """Margins of ``features`` (T, d)."""
        frames = kernel_frames(features, self._centre, self._population.pool.sigma, self._precision.products)
        margins = self._start(len(frames))
        if self._narrow is None:
            self._multiply(margins, frames)
        else:
            products, values = self._precision.kernel_sums(frames, self._kernel_sides, self._narrow, self._claimed)
            own = dict(zip(self._own, values.astype(self.dtype, copy=False), strict=True))
            self._add(margins, slice(0, len(products)), products, own)
        return _of_families(margins)

    def _multiply(self, margins: Margins, frames: AnyFloat) -> None:
        """Add what kernel values make of all coefficients in matrix products, those of some speakers at a time."""
        speakers, size = len(self._kernel_sides), self._size
        group = max(1, min(speakers, TILE_BYTES // max(1, len(frames) * size * frames.itemsize)))
        scratch = np.empty((group, len(frames), size), dtype=frames.dtype)
        for first in range(0, speakers, group):
            several = slice(first, min(first + group, speakers))
            tiles = scratch[: several.stop - first]
            kernel = self._precision.kernel_values(frames, self._kernel_sides[several], tiles)
            kernel = kernel.astype(self.dtype, copy=False)
            claimed = self._slots.keys() & range(several.start, several.stop)
            own = {n: kernel[n - first] for n in claimed}
            self._add(margins, several, np.matmul(kernel, self._shared[several]), own)

    def _start(self, frames: int) -> Margins:
        """The biases, of every frame."""

        def repeated(bias: AnyFloat | None) -> AnyFloat | None:
            if bias is None:
                return None
            margins = np.empty((frames, *bias.shape), dtype=bias.dtype)
            margins[:] = bias
            return margins

        biases = self._biases
        return Margins(self.claims, repeated(biases.pair), repeated(biases.one_class), repeated(biases.one_vs_rest))

    def _add(self, margins: Margins, several: slice, products: AnyFloat, own: Mapping[int, AnyFloat]) -> None:
        """Add what ``several`` speakers' centroids contribute to every margin.

        ``products`` (n, T, w) are what their kernel values make of the shared coefficients; ``own`` are the kernel
        values (T, k) of those who are claimed.
        """
        column = 0
        if margins.pair is not None:
            column = self._add_pairs(margins.pair, several, products, own)
        if margins.one_class is not None:
            margins.one_class[:, several] += products[:, :, column].T
            column += 1
        if margins.one_vs_rest is not None:
            width = math.prod(margins.one_vs_rest.shape[1:])
            rest = products[:, :, column : column + width].sum(axis=0)
            margins.one_vs_rest[:] += rest.reshape(margins.one_vs_rest.shape)

    def _add_pairs(self, pair: AnyFloat, several: slice, products: AnyFloat, own: Mapping[int, AnyFloat]) -> int:
        """Add to the pair margins (T, C, N); the number of columns of ``products`` that were theirs."""
        frames, claims, speakers, *family = pair.shape
        columns: int = math.prod((speakers if self._everybody else claims, *family))
        if not self._everybody:
            against = products[:, :, :columns].reshape(len(products), frames, claims, *family)
            pair[:, :, several] += against.transpose(1, 2, 0, *range(3, against.ndim))
        for n, kernel in own.items():
            met = products[n - several.start, :, :columns] if self._everybody else self._met(n, kernel)
            met = met.reshape(frames, speakers, *family)
            pair[:, :, n] -= met[:, self.claims]
            for slot in self._slots[n].tolist():
                pair[:, slot] += met
        return columns

    def _met(self, n: int, kernel: AnyFloat) -> AnyFloat:
        """What speaker n's kernel values (T, k) make of their own coefficients."""
        return np.asarray(kernel[:, : len(self._own[n])] @ self._own[n])


def kernel_frames(features: Array, centre: Array, sigma: float, kind: np.dtype[Any]) -> AnyFloat:
    """Rows (T, d + 2) of the kernel's product, of ``features`` (T, d) less the pool's ``centre`` (``Precision``)."""
    # Of the features' own class: products are timed by one that counts them (benchmarks/speed/gemm.py).
    frames = np.empty_like(features, shape=(len(features), features.shape[1] + 2), dtype=kind)
    x = (features - centre) / sigma
    frames[:, :-2] = x
    frames[:, -2] = -0.5 * np.einsum("td,td->t", x, x)
    frames[:, -1] = 1.0
    return frames


def _of_families(margins: Margins) -> Margins:
    """``margins`` with the axis of every family reduced to one number."""
    pair, rest = margins.pair, margins.one_vs_rest
    if pair is not None and pair.ndim > 3:
        margins = replace(margins, pair=share_log_odds(pair))
    if rest is not None and rest.ndim > 2:
        margins = replace(margins, one_vs_rest=share_log_odds(rest))
    return margins


def share_log_odds(margins: AnyFloat) -> AnyFloat:
    """Log-odds (...) of (1 + number of ``margins`` (..., L) above 0) / (L + 2); a margin of 0 counts half.

    Nalbantov and Ivanov 2020, eq. 13: the machines and two fictitious ones, one of which always says positive.
    """
    positive = (margins > 0).sum(axis=-1) + 0.5 * (margins == 0).sum(axis=-1)
    log_odds = np.log1p(positive) - np.log1p(margins.shape[-1] - positive)
    return np.asarray(log_odds, dtype=margins.dtype)
