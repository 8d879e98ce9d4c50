"""Training of segment machines: the mixture, the stretches, and one solve for every speaker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

from pipeline.errors import FitError
from pipeline.machines.cholesky import CholeskyFactor, gram_matrix
from pipeline.machines.segments import SegmentMachines, SegmentSpace, Vectors, unit

Array = NDArray[np.float64]

# Frames that the mixture is fitted to, drawn at random; rounds of expectation-maximisation after k-means.
MIXTURE_FRAMES = 60_000
MIXTURE_ROUNDS = 6
EM_FRAMES = 1024
# No component narrower than this share of a feature's variance, nor given fewer frames than this on average: a
# mixture that fits its first speakers too closely fails them once there are others.
VARIANCE_FLOOR = 0.02
FRAMES_A_COMPONENT = 150
# Speakers whose machines without them are kept: their trials come one after another, on several threads.
MOST_LEFT_OUT = 8
# Times that the solution is mended by its residual, and the most that may be left before the last.
MENDINGS = 2
MOST_RESIDUAL = 1e-5
# Rows that are taken to double precision at a time.
ROWS = 512


def fit_space(frames: Array, *, components: int, relevance: float, seed: int) -> SegmentSpace:
    """Fit a mixture to ``frames`` (T, d) by k-means and a few rounds of EM; fewer components where frames are few."""
    centre, scale = frames.mean(axis=0), np.maximum(frames.std(axis=0), 1e-9)
    random = np.random.default_rng(seed)
    drawn = frames[random.permutation(len(frames))[:MIXTURE_FRAMES]]
    drawn = (drawn - centre) / scale
    count = max(1, min(components, len(frames) // FRAMES_A_COMPONENT))
    kmeans = MiniBatchKMeans(count, random_state=seed, n_init=1, batch_size=4096, max_iter=50).fit(drawn)
    means = np.asarray(kmeans.cluster_centers_, dtype=np.float64)
    space = SegmentSpace(centre, scale, means, np.full_like(means, 0.5), np.full(count, 1.0 / count), relevance)
    for _ in range(MIXTURE_ROUNDS):
        space = _updated(space, drawn)
    return space


def _updated(space: SegmentSpace, drawn: Array) -> SegmentSpace:
    """One round of expectation-maximisation on standardised frames (T, d)."""
    count, first, second = np.full(len(space.weights), 1e-3), np.zeros(space.means.shape), np.zeros(space.means.shape)
    # A few frames at a time: what is made of them stays in the processor's cache.
    for start in range(0, len(drawn), EM_FRAMES):
        part = drawn[start : start + EM_FRAMES]
        share = space.responsibilities(part)
        count += share.sum(axis=0)
        first += share.T @ part
        second += share.T @ (part * part)
    means = first / count[:, None]
    variances = np.maximum(second / count[:, None] - means * means, VARIANCE_FLOOR)
    return SegmentSpace(space.centre, space.scale, means, variances, count / count.sum(), space.relevance)


class SegmentTraining:
    """Regularised least squares over the stretches of N speakers: ``vectors[n]`` (S_n, D) of speaker n.

    ``strangers[n]`` are voices made out of speaker n's, arrays (S, D): more voices to tell the speakers from, with no
    machine of their own. Minimises sum over voices of the mean squared error on their stretches plus ``ridge`` times
    |w|^2, so that a voice with much speech counts no more than one with little. Targets are 1 for a speaker's own
    stretches and -1 / (V - 1) for those of the V - 1 others, strangers among them.
    """

    def __init__(
        self,
        vectors: Sequence[Vectors],
        *,
        ridge: float,
        strangers: Sequence[Sequence[Vectors]] = (),
        jobs: int = 1,
    ) -> None:
        made = strangers or [()] * len(vectors)
        # A speaker's rows stand together, those of the strangers made of them at the end: they are left out at once.
        voices = [part for own, parts in zip(vectors, made, strict=True) for part in (own, *parts)]
        ends = np.cumsum([0, *(len(own) + sum(map(len, parts)) for own, parts in zip(vectors, made, strict=True))])
        self._blocks = [slice(*span) for span in pairwise(ends.tolist())]
        counts = np.array([len(part) for part in voices])
        self._unit = np.concatenate(voices).astype(np.float32, copy=False)
        self.mean = self._unit.mean(axis=0, dtype=np.float64)
        self._unit -= self.mean.astype(np.float32)
        self._unit /= np.maximum(np.linalg.norm(self._unit, axis=1, keepdims=True), 1e-12)
        targets = np.full((len(self._unit), len(vectors)), -1.0 / max(1, len(voices) - 1))
        for n, own in enumerate(vectors):
            targets[ends[n] : ends[n] + len(own), n] = 1.0
        targets -= targets.mean(axis=0)
        self._ridge = ridge * np.repeat(counts, counts) / counts.mean()
        self._jobs = jobs
        self._dual, self._factor = self._solved(targets)
        self._coef = self._primal(self._dual)
        self._left_out: dict[int, Array] = {}

    def machines(self, space: SegmentSpace) -> SegmentMachines:
        """The machines, over ``space``, which the vectors were made in, at the precision that they are stored in."""
        return SegmentMachines(space, self.mean, self._coef.astype(np.float32).astype(np.float64))

    def margins(self, vectors: Array) -> Array:
        """Margins (n, N) of stretches ``vectors`` (n, D)."""
        return np.asarray(unit(vectors - self.mean) @ self._coef)

    def margins_without(self, speaker: int, vectors: Array) -> Array:
        """Margins (n, N) of ``vectors`` by machines that never heard ``speaker``; that column means nothing.

        Strangers made out of the speaker's voice are left out with them.

        Exact, by elimination: the dual solution without a block of rows is the old one less the block's columns of
        the inverse times what undoes the block's own coefficients.
        """
        coef = self._left_out.get(speaker)
        if coef is None:
            coef = self._coef_without(speaker)
            # A new dictionary, not a changed one: other threads may be reading.
            kept = {} if len(self._left_out) >= MOST_LEFT_OUT else self._left_out
            self._left_out = kept | {speaker: coef}
        return np.asarray(unit(vectors - self.mean) @ coef)

    def _solved(self, targets: Array) -> tuple[Array, CholeskyFactor]:
        """The dual solution for ``targets`` (S, N), and the factor of the Gram matrix and ridge.

        In single precision, which takes half the time and memory, and mended by the residual in double precision;
        where the matrix is too near to a singular one for that, in double precision.
        """
        for dtype in (np.float32, np.float64):
            gram = gram_matrix(self._unit, dtype=dtype, jobs=self._jobs)
            gram[np.diag_indices_from(gram)] += self._ridge.astype(dtype)
            try:
                factor = CholeskyFactor(gram, jobs=self._jobs)
            except np.linalg.LinAlgError:
                continue
            dual = factor.solve(targets.astype(dtype)).astype(np.float64)
            for _ in range(MENDINGS):
                residual = targets - self._applied(dual)
                dual += factor.solve(residual.astype(dtype))
            if np.abs(residual).max() <= MOST_RESIDUAL or dtype is np.float64:
                return dual, factor
        raise FitError(
            "segment machines: the matrix of all stretches is singular to machine precision; raise segments.ridge"
        )

    def _applied(self, dual: Array) -> Array:
        """The Gram matrix and ridge times ``dual`` (S, N), in double precision."""
        primal = self._primal(dual)
        found = np.empty_like(dual)
        for rows in self._slices():
            found[rows] = self._unit[rows].astype(np.float64) @ primal
        return np.asarray(found + self._ridge[:, None] * dual)

    def _primal(self, dual: Array) -> Array:
        """Coefficients (D, N) of the vectors' features from ``dual`` (S, N), those of the rows."""
        coef = np.zeros((self._unit.shape[1], dual.shape[1]))
        for rows in self._slices():
            coef += self._unit[rows].astype(np.float64).T @ dual[rows]
        return coef

    def _slices(self) -> list[slice]:
        return [slice(first, first + ROWS) for first in range(0, len(self._unit), ROWS)]

    def _coef_without(self, speaker: int) -> Array:
        """Coefficients (D, N) of the solution without the rows of ``speaker``."""
        block = self._blocks[speaker]
        pick = np.zeros((len(self._unit), block.stop - block.start), dtype=np.float32)
        pick[block] = np.eye(pick.shape[1], dtype=np.float32)
        # With the Gram matrix L L^T, the block of its inverse is half^T half.
        half = self._factor.forward(pick, first=block.start)
        undone = np.linalg.solve((half.T @ half).astype(np.float64), self._dual[block])
        dual = self._factor.backward(half @ undone.astype(half.dtype))
        return np.asarray(self._coef - self._unit.T @ dual.astype(np.float32, copy=False))


def stretches(utterances: Sequence[tuple[Array, Array]], frames: int, most: int) -> list[tuple[Array, Array]]:
    """Cut and join ``utterances``, pairs of vectors (T, d) and loudness (T,), to stretches of about ``frames`` frames.

    Utterances shorter than that are joined to their followers; longer ones are cut into windows that overlap by half.
    Where that would make more than ``most``, stretches are longer, and of those that still are too many some are left
    out, evenly.
    """
    total = sum(len(vectors) for vectors, _ in utterances)
    wanted = max(frames, -(-total // most))
    found: list[tuple[Array, Array]] = []
    waiting: list[tuple[Array, Array]] = []
    for vectors, loudness in utterances:
        if len(vectors) >= 1.5 * wanted:
            starts = range(0, len(vectors) - wanted + 1, max(1, wanted // 2))
            found += [(vectors[s : s + wanted], loudness[s : s + wanted]) for s in starts]
            continue
        waiting.append((vectors, loudness))
        if sum(len(part) for part, _ in waiting) >= wanted:
            found.append(_joined(waiting))
            waiting = []
    if waiting and (not found or sum(len(part) for part, _ in waiting) >= wanted / 2):
        found.append(_joined(waiting))
    if len(found) <= most:
        return found
    return [found[n] for n in np.linspace(0, len(found) - 1, most).round().astype(int)]


def _joined(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    return np.concatenate([vectors for vectors, _ in parts]), np.concatenate([loudness for _, loudness in parts])
