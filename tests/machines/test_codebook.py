"""Codebooks against scikit-learn's and scipy's k-means, and where the centroids are known."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pipeline.config import CodebookConfig
from pipeline.machines.codebook import fit_codebook


def codebook(vectors: np.ndarray, centroids: int, seed: int = 0) -> np.ndarray:
    return fit_codebook(vectors, CodebookConfig(centroids=centroids), seed=seed)


def spread(vectors: np.ndarray, centroids: np.ndarray) -> float:
    """Sum of squared distances to the nearest centroid."""
    return float(cdist(vectors, centroids, "sqeuclidean").min(axis=1).sum())


def test_same_vectors_and_seed_give_the_same_codebook_and_another_seed_another():
    vectors = np.random.default_rng(0).standard_normal((600, 8))
    first = codebook(vectors, 20, seed=3)
    np.testing.assert_array_equal(first, codebook(vectors.copy(), 20, seed=3))
    assert not np.array_equal(first, codebook(vectors, 20, seed=4))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), centroids=st.integers(1, 30), rounds=st.sampled_from([1, 3, 300]))
def test_codebook_is_scikit_learns_of_weighted_vectors_by_one_start_and_so_many_rounds(seed, centroids, rounds):
    random = np.random.default_rng(seed)
    vectors, weights = random.standard_normal((200, 5)), random.uniform(0.1, 1.0, 200)
    configuration = CodebookConfig(centroids=centroids, max_iterations=rounds)
    book = fit_codebook(vectors, configuration, seed=7, weights=weights)
    reference = KMeans(centroids, n_init=1, max_iter=rounds, random_state=7).fit(vectors, sample_weight=weights)
    np.testing.assert_allclose(book, reference.cluster_centers_, rtol=0, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), centroids=st.integers(1, 30))
def test_codebook_is_no_worse_than_scikit_learns_run_to_its_own_end(seed, centroids):
    vectors = np.random.default_rng(seed).standard_normal((200, 5))
    book = codebook(vectors, centroids, seed=7)
    reference = KMeans(centroids, n_init=1, random_state=7).fit(vectors)
    assert book.shape == (centroids, 5)
    assert spread(vectors, book) <= reference.inertia_ * (1 + 1e-3)


def test_codebook_is_as_good_as_scipys_best_of_several():
    vectors = np.random.default_rng(1).standard_normal((500, 4))
    others = [spread(vectors, kmeans2(vectors, 16, minit="++", rng=seed)[0]) for seed in range(10)]
    assert spread(vectors, codebook(vectors, 16)) < 1.05 * min(others)


def test_codebook_of_far_apart_clusters_is_their_means():
    generator = np.random.default_rng(2)
    places = 1e3 * generator.standard_normal((12, 6))
    clusters = [place + 0.01 * generator.standard_normal((size, 6)) for size, place in enumerate(places, start=2)]
    means = np.array([cluster.mean(axis=0) for cluster in clusters])
    nearest = cdist(means, codebook(np.concatenate(clusters), 12))
    assert sorted(nearest.argmin(axis=1)) == list(range(12))
    assert nearest.min(axis=1).max() < 1e-9


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), distinct=st.integers(1, 12), repeats=st.integers(1, 5))
def test_few_distinct_vectors_are_all_kept(seed, distinct, repeats):
    vectors = np.random.default_rng(seed).standard_normal((distinct, 3))
    book = codebook(np.repeat(vectors, repeats, axis=0), 12)
    np.testing.assert_array_equal(book, np.unique(vectors, axis=0))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_vectors_that_repeat_often_make_no_duplicate_or_empty_centroids(seed):
    grid = np.random.default_rng(seed).integers(0, 3, (300, 3)).astype(float)
    book = codebook(grid, 20)
    assert np.isfinite(book).all()
    assert len(np.unique(book, axis=0)) == len(book) == 20


def test_nearly_equal_vectors_count_once_and_nobody_is_warned():
    rng = np.random.default_rng(0)
    centres, noise = rng.standard_normal((5, 4)), rng.standard_normal((250, 4))
    book = codebook(np.repeat(centres, 50, axis=0) + 1e-9 * noise, 20)
    np.testing.assert_allclose(book[np.argsort(book[:, 0])], centres[np.argsort(centres[:, 0])], atol=1e-6)
    assert len(codebook(np.repeat(centres, 50, axis=0) + 1e-4 * noise, 20)) == 20
