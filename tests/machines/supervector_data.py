"""Mixtures, frames and vectors of speakers, drawn at random, and what ridge regression makes of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from pipeline.machines.ubm import UniversalBackgroundModel

DIMENSION = 3
SEEDS = st.integers(0, 2**32 - 1)
COUNTS = st.lists(st.integers(1, 9), min_size=2, max_size=6).map(tuple).filter(lambda counts: sum(counts) > 3)


def space_of(seed: int, *, components: int = 4, relevance: float = 2.0) -> UniversalBackgroundModel:
    random = np.random.default_rng(seed)
    weights = random.uniform(0.2, 1.0, components)
    return UniversalBackgroundModel(
        centre=random.normal(0.0, 2.0, DIMENSION),
        scale=random.uniform(0.5, 3.0, DIMENSION),
        means=random.normal(0.0, 1.0, (components, DIMENSION)),
        variances=random.uniform(0.1, 2.0, (components, DIMENSION)),
        weights=weights / weights.sum(),
        relevance=relevance,
    )


def as_sklearn(space: UniversalBackgroundModel) -> GaussianMixture:
    """The same mixture over standardised frames."""
    mixture = GaussianMixture(len(space.weights), covariance_type="diag")
    mixture.weights_, mixture.means_ = space.weights, space.means
    mixture.covariances_, mixture.precisions_cholesky_ = space.variances, 1 / np.sqrt(space.variances)
    return mixture


def frames_of(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames (T, d) and their loudness (T,)."""
    random = np.random.default_rng(seed)
    return random.normal(0.0, 3.0, (count, DIMENSION)), random.uniform(0.0, 1.0, count)


def training_data(seed: int, counts: tuple[int, ...], dimension: int = 12) -> list[np.ndarray]:
    """Vectors (S_n, D) of each speaker around a mean of their own, in single precision as stores hold them."""
    random = np.random.default_rng(seed)
    return [
        (random.normal(0.0, 1.0, dimension) + 0.7 * random.standard_normal((count, dimension))).astype(np.float32)
        for count in counts
    ]


def normalised(vectors: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean (D,), centred unit rows (S, D) and owners (S,) of the training data."""
    stacked = np.concatenate(vectors).astype(np.float64)
    rows = stacked - stacked.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return stacked.mean(axis=0), rows, np.repeat(np.arange(len(vectors)), [len(part) for part in vectors])


def centred_targets(owners: np.ndarray, speakers: int) -> np.ndarray:
    """1 and -1 / (N - 1), less the mean of each column."""
    targets = np.where(owners[:, None] == np.arange(speakers), 1.0, -1.0 / (speakers - 1))
    return targets - targets.mean(axis=0)


def weights_of(owners: np.ndarray) -> np.ndarray:
    """Weight of a segment: the fewer a speaker has, the more each counts; one where all have equally many."""
    counts = np.bincount(owners)
    return counts.mean() / counts[owners]
