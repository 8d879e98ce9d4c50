"""The codebook of one speaker: k-means centroids of the speaker's feature vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.config import CodebookConfig

Array = NDArray[np.float64]

# Vectors that agree to this many decimals count as equal (a pure tone, a repeated recording).
DECIMALS = 6

# Another round follows where the squared moves of all centroids add up to more than this share of a feature's variance.
LEAST_MOVE = 1e-4

# Vectors whose distances to all centroids are computed at a time: as many as fit the second-level cache.
ROWS = 512


def fit_codebook(vectors: Array, settings: CodebookConfig, *, seed: int, weights: Array | None = None) -> Array:
    """Fit centroids (k, d) to ``vectors`` (T, d), k = ``settings.centroids`` or as many as there are distinct vectors.

    Vectors are weighted by ``weights`` (T,), equally by default. The same vectors and seed give the same centroids.
    """
    rounded = vectors.round(DECIMALS)
    # Nearly always, the first feature alone has enough distinct values; sorting whole vectors would take longer.
    if len(np.unique(rounded[:, 0])) <= settings.centroids:
        _, distinct = np.unique(rounded, axis=0, return_index=True)
        if len(distinct) <= settings.centroids:
            return vectors[distinct]
    weights = np.ones(len(vectors)) if weights is None else weights
    mean = vectors.mean(axis=0)
    centred = vectors - mean  # distances between short vectors have smaller rounding errors
    first = _spread_out(centred, weights, settings.centroids, np.random.RandomState(seed))
    return np.asarray(_k_means(centred, weights, first, settings.max_iterations) + mean)


def _k_means(vectors: Array, weights: Array, centroids: Array, rounds: int) -> Array:
    """Return ``centroids`` (k, d) after Lloyd's iterations over weighted ``vectors`` (T, d), ``rounds`` at most.

    This is scikit-learn's KMeans, which takes longer to import than one speaker's codebook takes to fit.
    """
    columns = np.ascontiguousarray((weights[:, None] * vectors).T)
    least = LEAST_MOVE * vectors.var(axis=0).mean()
    nearest = np.full(len(vectors), -1)
    for _ in range(rounds):
        before, nearest = nearest, _nearest(vectors, centroids)
        members = _with_members(vectors, weights, centroids, nearest)
        total = np.bincount(members, weights, len(centroids))
        sums = np.stack([np.bincount(members, column, len(centroids)) for column in columns], axis=1)
        moved = np.divide(sums, total[:, None], out=centroids.copy(), where=total[:, None] > 0.0)
        is_settled = np.array_equal(before, nearest) or ((moved - centroids) ** 2).sum() <= least
        centroids = moved
        if is_settled:
            break
    return centroids


def _nearest(vectors: Array, centroids: Array) -> NDArray[np.intp]:
    """Return the number (T,) of each vector's nearest centroid."""
    # |x - c|^2 / 2 = |x|^2 / 2 + |c|^2 / 2 - x . c, and the first term is the same for all centroids
    half = 0.5 * (centroids**2).sum(axis=1)
    parts = (vectors[row : row + ROWS] for row in range(0, len(vectors), ROWS))
    return np.concatenate([(half - part @ centroids.T).argmin(axis=1) for part in parts])


def _with_members(vectors: Array, weights: Array, centroids: Array, nearest: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return ``nearest`` (T,) with the vectors farthest from their centroids given to centroids that have none."""
    empty = np.flatnonzero(np.bincount(nearest, weights, len(centroids)) == 0.0)
    if not len(empty):
        return nearest
    members = nearest.copy()
    far = weights * ((vectors - centroids[nearest]) ** 2).sum(axis=1)
    members[far.argsort()[-len(empty) :]] = empty
    return members


def _spread_out(vectors: Array, weights: Array, count: int, random: np.random.RandomState) -> Array:
    """Choose ``count`` of the ``vectors`` (T, d) as first centroids: greedy k-means++.

    Each is the best of some tries, drawn with a probability proportional to the weighted squared distance from those
    chosen before (Arthur and Vassilvitskii, 2007).
    """
    norms = (vectors**2).sum(axis=1)
    tries = 2 + int(np.log(count))

    def distances(numbers: NDArray[np.intp]) -> Array:
        """Return the squared distances (n, T) of all vectors from these."""
        squared = norms[numbers, None] + norms - 2.0 * (vectors[numbers] @ vectors.T)
        return np.asarray(np.maximum(squared, 0.0))  # rounding may leave less

    chosen = np.array([random.choice(len(vectors), p=weights / weights.sum())])
    nearest = distances(chosen)[0]
    potential = nearest @ weights
    for _ in range(count - 1):
        drawn = np.searchsorted(np.cumsum(weights * nearest), random.uniform(size=tries) * potential)
        drawn = np.minimum(drawn, len(vectors) - 1)
        nearer = np.minimum(nearest, distances(drawn))
        potentials = nearer @ weights
        best = potentials.argmin()
        chosen, nearest, potential = np.append(chosen, drawn[best]), nearer[best], potentials[best]
    return np.asarray(vectors[chosen])
