"""Margins of a population's machines on frames: one kernel value per frame and centroid, then matrix products.

With K_n (T, k_n) the kernel values between T frames and the centroids of speaker n, and w_nj (k_n,) the coefficients of
these centroids in the pair machine of n and j, the pair margin of speaker i against j is

    f_ij = K_i w_ij - K_j w_ji + b_ij.

Each product K_n w_nj is computed once and shared by all claims that need it: one claim among N speakers takes 2 (N - 1)
products, identification among all N (N - 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import StoreFormatError
from pipeline.machines.cohorts import Cohorts, CohortTable
from pipeline.machines.gmm import AdaptedMixtures
from pipeline.machines.pairs import PairSource
from pipeline.machines.pitch import PitchHistograms
from pipeline.machines.pool import Array, Pool, fill_kernel, precision_of
from pipeline.machines.supervectors import SupervectorMachines

AnyFloat = NDArray[Any]
Numbers = NDArray[np.int64]
UtteranceMachines = SupervectorMachines | AdaptedMixtures | PitchHistograms
"""Everybody's machines of one kind over whole utterances."""

# Size of the kernel values held at a time, which stay in the cache of a core.
TILE_BYTES = 2**20
# Speakers with at most this many columns are multiplied together in one call: for a short chunk, a loop over speakers
# would cost more than the products.
NARROW = 8


@dataclass(frozen=True)
class Population:
    """A pool of N speakers with the machines trained over it; kinds without training are None.

    Attributes
    ----------
    pool : Pool
        Centroids, M in all.
    one_class_coef, one_class_bias : arrays (M,) and (N,)
        One-class machine of each speaker, over the speaker's own centroids.
    pairs : PairSource
        Machines of one speaker against another; with a ``cohort_table``, of some pairs only.
    one_vs_rest_coef, one_vs_rest_bias : arrays (M, N) and (N,)
        Column n is the machine of speaker n against everybody else.
    utterance : mapping
        Machines over whole utterances, outside the pool, by their kind (``machines.branches``).
    cohort_table : CohortTable
        The cohort of each speaker, unless claims are judged among everybody.
    numbers : array (N,)
        For part of a larger population, the speakers' numbers in the whole, as in ``utterance``.
    """

    pool: Pool
    one_class_coef: Array
    one_class_bias: Array
    pairs: PairSource | None = None
    one_vs_rest_coef: Array | None = None
    one_vs_rest_bias: Array | None = None
    utterance: Mapping[str, UtteranceMachines] = field(default_factory=dict)
    cohort_table: CohortTable | None = None
    numbers: Numbers | None = None

    def __len__(self) -> int:
        return len(self.pool)

    def cohorts(self, claims: Numbers) -> Cohorts:
        """Return the cohorts of ``claims`` (C,): those of the table, or everybody."""
        if self.cohort_table is None:
            return Cohorts.of_everybody(claims, len(self))
        return Cohorts.of(claims, self.cohort_table.nearest[claims])


@dataclass(frozen=True)
class Margins:
    """Margins of T frames for C claims, each in a cohort of P; kinds that were not requested are None.

    ``slots`` (C,) are the claims' positions in their cohorts, which are the speaker numbers if cohorts are everybody.
    ``pair`` (T, C, P) are f_ij of claim i against each member j, 0 against itself; ``one_class`` (T, C, P), or (T, N)
    if all cohorts are everybody; ``one_vs_rest`` (T, N).
    """

    slots: Numbers
    pair: AnyFloat | None = None
    one_class: AnyFloat | None = None
    one_vs_rest: AnyFloat | None = None

    def select(self, slots: Numbers) -> Margins:
        """Return the same frames for a subset of the claims."""
        if self.pair is None or np.array_equal(slots, self.slots):
            return Margins(slots, self.pair, self.one_class, self.one_vs_rest)
        chosen = [int(np.flatnonzero(self.slots == slot)[0]) for slot in slots]
        return Margins(slots, self.pair[:, chosen], self.one_class, self.one_vs_rest)


class MarginScorer:
    """Computes margins, on blocks of frames, of the machines that judge each claim within its cohort.

    Parameters
    ----------
    population : Population
        Machines of N speakers.
    claims : array (C,)
        Speaker numbers, in any order, repeated or not.
    kinds : frozenset
        Margins to compute, of "one_vs_one", "one_class" and "one_vs_rest".
    cohorts : Cohorts, optional
        Cohorts of the claims; everybody by default.
    dtype : str
        "float64", "mixed" or "float32" (``precision_of``). Margins agree with those of "float64" to 1e-5 for "mixed"
        and to 1e-3 for "float32".

    Raises
    ------
    StoreFormatError
        If there is no machine between a claim and a member of its cohort.
    """

    def __init__(
        self,
        population: Population,
        claims: Numbers,
        kinds: frozenset[str],
        cohorts: Cohorts | None = None,
        *,
        dtype: str = "float64",
    ) -> None:
        cohorts = Cohorts.of_everybody(claims, len(population)) if cohorts is None else cohorts
        pool = population.pool
        self._sums, self._exponentials = precision_of(dtype)
        self._sigma = pool.sigma
        self._slots = cohorts.slots
        # Far from the origin |x - y|^2 loses more digits than float32 can spare.
        self._centre = pool.centroids.mean(axis=0)
        self._rest_coef = self._typed(population.one_vs_rest_coef if "one_vs_rest" in kinds else None)
        self._rest_bias = self._typed(population.one_vs_rest_bias if "one_vs_rest" in kinds else None)
        among_all = cohorts.members.shape[1] == len(pool) or self._rest_coef is not None
        speakers = np.arange(len(pool)) if among_all else cohorts.speakers
        self._rows = [pool.rows(n) for n in speakers.tolist()]
        self._size = max((rows.stop - rows.start for rows in self._rows), default=0)
        self._sides = self._kernel_sides(pool)

        pairs = population.pairs if "one_vs_one" in kinds else None
        weights, biases = _pair_weights(pairs, len(pool), cohorts)
        blocks = [list(weights[n].values()) for n in speakers.tolist()]
        if "one_class" in kinds:
            for block, rows in zip(blocks, self._rows, strict=True):
                block.append(population.one_class_coef[rows])
        firsts = np.zeros(len(pool), dtype=np.int64)
        firsts[speakers] = self._lay_out(blocks)

        self._pair_bias = self._typed(biases)
        if pairs is not None:
            self._own_columns, self._rival_columns = self._pair_columns(weights, cohorts, firsts)
        self._one_class_bias = None
        if "one_class" in kinds:
            # The last of each speaker's columns. Where cohorts are everybody, all claims share (T, N) margins.
            last = firsts + np.array([len(of) for of in weights])
            members = cohorts.members if cohorts.members.shape[1] < len(pool) else np.arange(len(pool))
            self._one_class_columns: Numbers = last[members]
            self._one_class_bias = self._typed(population.one_class_bias[members])

    def _typed(self, array: Array | None) -> AnyFloat | None:
        return None if array is None else np.asarray(array, dtype=self._sums)

    def _kernel_sides(self, pool: Pool) -> AnyFloat:
        """Return the centroids' side (n, d + 2, k) of the kernel's exponent, see ``fill_kernel``."""
        sides = np.zeros((len(self._rows), pool.centroids.shape[1] + 2, self._size), self._sums)
        for side, rows in zip(sides, self._rows, strict=True):
            y = (pool.centroids[rows] - self._centre) / pool.sigma
            side[:-2, : len(y)] = y.T
            side[-2, : len(y)] = 1.0
            side[-1, : len(y)] = -0.5 * (y * y).sum(1)
        return sides

    def _lay_out(self, blocks: list[list[Array]]) -> list[int]:
        """Assign a column to each product K_n w, and return the first column of each speaker's ``blocks``.

        Columns of narrow blocks, padded to one width, come first, then those of wide blocks; the last column is zero.
        Codebooks shorter than the longest are padded with zero coefficients.
        """
        sums, widths = self._sums, [len(block) for block in blocks]
        self._width = max((width for width in widths if width <= NARROW), default=0)
        self._narrow = np.zeros((len(blocks), self._width, self._size), dtype=sums)
        self._wide: dict[int, tuple[slice, AnyFloat]] = {}
        firsts, end = [], len(blocks) * self._width
        for n, block in enumerate(blocks):
            matrix, first = self._narrow[n], n * self._width
            if len(block) > NARROW:
                # Padded with zero rows to a multiple of eight, for which BLAS is faster.
                matrix, first = np.zeros((-(-len(block) // 8) * 8, self._size), dtype=sums), end
                end += len(matrix)
                self._wide[n] = slice(first, end), matrix
            for row, coefficients in zip(matrix, block, strict=False):
                row[: len(coefficients)] = coefficients
            firsts.append(first)
        self._columns = end + 1
        return firsts

    def _pair_columns(
        self, weights: list[dict[int, Array]], cohorts: Cohorts, firsts: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Return the columns (C, P) of K_i w_ij and of K_j w_ji; a claim against itself has the column of zeros."""
        places = [{other: place for place, other in enumerate(of)} for of in weights]
        own, rival = (np.full(cohorts.members.shape, self._columns - 1) for _ in range(2))
        for slot, (claim, members) in enumerate(zip(cohorts.claims.tolist(), cohorts.members.tolist(), strict=True)):
            for place, member in enumerate(members):
                if member != claim:
                    own[slot, place] = firsts[claim] + places[claim][member]
                    rival[slot, place] = firsts[member] + places[member][claim]
        return own, rival

    def __call__(self, features: Array) -> Margins:
        """Return the margins of ``features`` (T, d)."""
        frames = kernel_frames(features, self._centre, self._sigma, self._sums)
        products = np.empty((len(frames), self._columns), dtype=self._sums)
        products[:, -1] = 0.0
        narrow = products[:, : len(self._rows) * self._width].reshape(len(frames), len(self._rows), self._width)
        rest = None if self._rest_bias is None else np.repeat(self._rest_bias[None], len(frames), axis=0)
        for several, kernel in self._kernel_tiles(frames):
            if self._width:
                # K_n w of every column w of the narrow blocks
                np.matmul(kernel, self._narrow[several].transpose(0, 2, 1), out=narrow[:, several].transpose(1, 0, 2))
            for n, tile in enumerate(kernel, start=several.start):
                if n in self._wide:
                    columns, matrix = self._wide[n]
                    np.matmul(tile, matrix.T, out=products[:, columns])
                if rest is not None and self._rest_coef is not None:
                    coef = self._rest_coef[self._rows[n]]
                    rest += tile[:, : len(coef)] @ coef
        return self._gathered(products, rest)

    def _kernel_tiles(self, frames: AnyFloat) -> Iterator[tuple[slice, AnyFloat]]:
        """Yield kernel values (n, T, k) between ``frames`` and the centroids of a few speakers at a time."""
        count = len(self._sides)
        group = max(1, min(count, TILE_BYTES // max(1, len(frames) * self._size * frames.itemsize)))
        scratch = np.empty((group, len(frames), self._size), dtype=frames.dtype)
        for first in range(0, count, group):
            several = slice(first, min(first + group, count))
            tiles = scratch[: several.stop - first]
            yield several, fill_kernel(frames, self._sides[several], tiles, self._exponentials)

    def _gathered(self, products: AnyFloat, rest: AnyFloat | None) -> Margins:
        pair, one_class = None, None
        if self._pair_bias is not None:
            # f_ij = K_i w_ij - K_j w_ji + b_ij
            pair = np.take(products, self._own_columns, axis=1)
            pair -= np.take(products, self._rival_columns, axis=1)
            pair += self._pair_bias
        if self._one_class_bias is not None:
            one_class = np.take(products, self._one_class_columns, axis=1) + self._one_class_bias
        return Margins(self._slots, pair, one_class, rest)


def kernel_frames(features: Array, centre: Array, sigma: float, kind: np.dtype[Any]) -> AnyFloat:
    """Return the frames' side (T, d + 2) of the kernel's exponent, from ``features`` (T, d) less ``centre``."""
    # Keeps the class of the features: a benchmark counts products by a subclass (benchmarks/speed/gemm.py).
    frames = np.empty_like(features, shape=(len(features), features.shape[1] + 2), dtype=kind)
    x = (features - centre) / sigma
    frames[:, :-2] = x
    frames[:, -2] = -0.5 * np.einsum("td,td->t", x, x)
    frames[:, -1] = 1.0
    return frames


def _pair_weights(
    pairs: PairSource | None, speakers: int, cohorts: Cohorts
) -> tuple[list[dict[int, Array]], Array | None]:
    """Return the w_nj that claims need, by n and j, and b_ij (C, P); no weights and None without ``pairs``."""
    weights: list[dict[int, Array]] = [{} for _ in range(speakers)]
    if pairs is None:
        return weights, None
    biases = np.zeros(cohorts.members.shape)
    for slot, (claim, members) in enumerate(zip(cohorts.claims.tolist(), cohorts.members.tolist(), strict=True)):
        machines = pairs.against(claim)
        for place, member in enumerate(members):
            if member == claim:
                continue
            if member not in machines:
                raise StoreFormatError(
                    f"there is no pair machine of speakers {claim} and {member}, and one is in the other's cohort;"
                    " files of two stores mixed, or a view (view_without) of a store with cohorts?"
                )
            machine = machines[member]
            weights[claim][member], weights[member][claim] = machine.own, machine.rival
            biases[slot, place] = machine.bias
    return weights, biases
