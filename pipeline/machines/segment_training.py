"""Training of segment machines: the mixture, the stretches, and one solve for every speaker."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from sklearn.cluster import MiniBatchKMeans

from pipeline.machines.segments import SegmentMachines, SegmentSpace, Vectors, unit

Array = NDArray[np.float64]

# Frames that the mixture is fitted to, drawn at random; rounds of expectation-maximisation after k-means.
MIXTURE_FRAMES = 60_000
MIXTURE_ROUNDS = 6
# No component narrower than this share of a feature's variance, nor given fewer frames than this on average: a
# mixture that fits its first speakers too closely fails them once there are others.
VARIANCE_FLOOR = 0.02
FRAMES_A_COMPONENT = 150
# Speakers whose machines without them are kept: their trials come one after another, on several threads.
MOST_LEFT_OUT = 8


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
    share = space.responsibilities(drawn)
    count = share.sum(axis=0) + 1e-3
    means = share.T @ drawn / count[:, None]
    variances = np.maximum(share.T @ (drawn * drawn) / count[:, None] - means * means, VARIANCE_FLOOR)
    return SegmentSpace(space.centre, space.scale, means, variances, count / count.sum(), space.relevance)


class SegmentTraining:
    """Regularised least squares over the stretches of N speakers: ``vectors[n]`` (S_n, D) of speaker n.

    ``strangers[n]`` are voices made out of speaker n's, arrays (S, D): more voices to tell the speakers from, with no
    machine of their own. Minimises sum over voices of the mean squared error on their stretches plus ``ridge`` times
    |w|^2, so that a voice with much speech counts no more than one with little. Targets are 1 for a speaker's own
    stretches and -1 / (V - 1) for those of the V - 1 others, strangers among them.
    """

    def __init__(
        self, vectors: Sequence[Vectors], *, ridge: float, strangers: Sequence[Sequence[Vectors]] = ()
    ) -> None:
        made = [(n, part) for n, parts in enumerate(strangers) for part in parts]
        voices = [*vectors, *(part for _, part in made)]
        counts = np.array([len(part) for part in voices])
        voice = np.repeat(np.arange(len(voices)), counts)
        self._owner = np.array([*range(len(vectors)), *(n for n, _ in made)])[voice]
        stacked = np.concatenate(voices).astype(np.float32)
        self.mean = stacked.mean(axis=0, dtype=np.float64)
        stacked -= self.mean.astype(np.float32)
        stacked /= np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12)
        self._unit = stacked
        targets = np.full((len(stacked), len(vectors)), -1.0 / max(1, len(voices) - 1))
        own = voice < len(vectors)
        targets[own, voice[own]] = 1.0
        gram = (stacked @ stacked.T).astype(np.float64)
        gram[np.diag_indices_from(gram)] += ridge * counts[voice] / counts.mean()
        self._factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
        self._left_out: dict[int, Array] = {}
        self._dual: Array = cho_solve(self._factor, targets - targets.mean(axis=0), check_finite=False)

    def machines(self, space: SegmentSpace) -> SegmentMachines:
        """The machines, over ``space``, which the vectors were made in."""
        return SegmentMachines(space, self.mean, np.asarray(self._unit.T @ self._dual.astype(np.float32), dtype=float))

    def margins(self, vectors: Array) -> Array:
        """Margins (n, N) of stretches ``vectors`` (n, D)."""
        return np.asarray(self._products(vectors) @ self._dual)

    def margins_without(self, speaker: int, vectors: Array) -> Array:
        """Margins (n, N) of ``vectors`` by machines that never heard ``speaker``; that column means nothing.

        Strangers made out of the speaker's voice are left out with them.

        Exact, by elimination: the dual solution without a block of rows is the old one less the block's columns of
        the inverse times what undoes the block's own coefficients.
        """
        dual = self._left_out.get(speaker)
        if dual is None:
            dual = self._dual_without(speaker)
            # A new dictionary, not a changed one: other threads may be reading.
            kept = {} if len(self._left_out) >= MOST_LEFT_OUT else self._left_out
            self._left_out = kept | {speaker: dual}
        return np.asarray(self._products(vectors) @ dual)

    def _dual_without(self, speaker: int) -> Array:
        """The dual solution without the rows of ``speaker``, where it is 0."""
        block = np.flatnonzero(self._owner == speaker)
        pick = np.zeros((len(self._owner), len(block)))
        pick[block, np.arange(len(block))] = 1.0
        # With the Gram matrix L L^T, the block of its inverse is half^T half.
        half = solve_triangular(self._factor[0], pick, lower=True, check_finite=False, overwrite_b=True)
        undone = np.zeros_like(self._dual)
        undone[block] = np.linalg.solve(half.T @ half, self._dual[block])
        return np.asarray(self._dual - cho_solve(self._factor, undone, check_finite=False))

    def _products(self, vectors: Array) -> Array:
        return np.asarray(unit(vectors - self.mean).astype(np.float32) @ self._unit.T, dtype=np.float64)


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
