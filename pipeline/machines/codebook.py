"""The codebook of one speaker: k-means centroids of the speaker's feature vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipeline.config import CodebookConfig

Array = NDArray[np.float64]

# Vectors that agree to this many decimals count as equal: k-means warns of duplicates (a pure tone, a repeated
# recording).
DECIMALS = 6


def fit_codebook(vectors: Array, settings: CodebookConfig, *, seed: int, weights: Array | None = None) -> Array:
    """Fit centroids (k, d) to ``vectors`` (T, d), k = ``settings.centroids`` or as many as there are distinct vectors.

    Vectors are weighted by ``weights`` (T,), equally by default. One k-means++ start, seeded, on one thread: the same
    vectors and seed give the same centroids.
    """
    from sklearn.cluster import KMeans  # slow to import: machines over utterances need not wait for it

    rounded = vectors.round(DECIMALS)
    # Nearly always, the first feature alone has enough distinct values; sorting whole vectors would take longer.
    if len(np.unique(rounded[:, 0])) <= settings.centroids:
        _, distinct = np.unique(rounded, axis=0, return_index=True)
        if len(distinct) <= settings.centroids:
            return vectors[distinct]
    means = KMeans(settings.centroids, n_init=1, max_iter=settings.max_iterations, random_state=seed)
    # OpenMP counts threads for each calling thread: a limit set outside does not reach a worker.
    with threadpool_limits(1):
        return np.asarray(means.fit(vectors, sample_weight=weights).cluster_centers_, dtype=np.float64)
