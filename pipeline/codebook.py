"""The codebook of one speaker: k-means centroids of their feature vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from pipeline.config import CodebookConfig

Array = NDArray[np.float64]

# Vectors that differ less are one sound to k-means (a pure tone, a repeated recording): it would split hairs, and warn.
DECIMALS = 6


def fit_codebook(vectors: Array, settings: CodebookConfig, *, seed: int) -> Array:
    """Centroids (k, d) of ``vectors`` (T, d), k = ``settings.centroids`` or the number of distinct vectors if fewer.

    One k-means++ start, seeded, on one thread: the same vectors and seed give the same centroids.
    """
    rounded = vectors.round(DECIMALS)
    # Nearly always the first feature alone tells enough of them apart, without sorting whole vectors.
    if len(np.unique(rounded[:, 0])) <= settings.centroids:
        _, distinct = np.unique(rounded, axis=0, return_index=True)
        if len(distinct) <= settings.centroids:
            return vectors[distinct]
    means = KMeans(settings.centroids, n_init=1, max_iter=settings.max_iterations, random_state=seed)
    # OpenMP counts threads for each calling thread: a limit set outside does not reach a worker.
    with threadpool_limits(1):
        return np.asarray(means.fit(vectors).cluster_centers_, dtype=np.float64)
