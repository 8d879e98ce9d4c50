"""The universal background model: a Gaussian mixture over everybody's frames, and the statistics of speech under it.

Supervector machines and adapted GMMs use only a segment's zeroth- and first-order Baum-Welch statistics (Reynolds,
Quatieri and Dunn, Speaker verification using adapted Gaussian mixture models, 2000). They are sums over frames, so that
a stream keeps only (K, 1 + d) numbers.

A channel adds a constant to cepstra, which mean normalisation subtracts. The mean of few frames is drawn to zero:
m_T = sum x_t / (T + prior), the maximum a posteriori estimate under a normal prior worth ``prior`` frames. In a stream,
component posteriors at frame t are those of x_t - m_t. First-order statistics are linear in the frames, and are
converted to those of x_t - m_T when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[np.float64]
AnyFloat = NDArray[np.floating[Any]]
F = TypeVar("F", bound=np.floating[Any])

# Number of frames, drawn at random, that the mixture is fitted to; rounds of expectation-maximisation after k-means,
# and the frames processed at a time in these.
MIXTURE_FRAMES = 60_000
MIXTURE_ROUNDS = 6
EM_FRAMES = 1024
# Least variance of a component as a share of the feature's variance, and least average number of frames per component:
# a mixture that fits the first speakers too closely does not fit later ones.
VARIANCE_FLOOR = 0.02
FRAMES_A_COMPONENT = 150

# Least logarithm of a posterior relative to the largest in its frame: lower values would give subnormal numbers, which
# take a processor a hundred times as long.
LEAST_LOG_POSTERIOR = -60.0

# Far below ``half_db``, a frame's weight falls by a factor of e in this many dB.
LOUDNESS_DB = 3.0


@dataclass(frozen=True)
class UniversalBackgroundModel:
    """Universal background model: K diagonal Gaussians over standardised features.

    Attributes
    ----------
    centre, scale : arrays (d,)
        For standardising features: z = (x - centre) / scale.
    means, variances : arrays (K, d)
        Of the components, in standardised features.
    weights : array (K,)
        Priors of the components.
    relevance : float
        Relevance factor: number of frames at which a component's mean offset in a supervector has half its weight.
    half_db : float
        A frame this far below the loudest before it has half the weight; by default all have the same weight.
    mean_prior : float
        Number of zero frames counted into an utterance's mean; by default there is no mean normalisation.
    """

    centre: Array
    scale: Array
    means: Array
    variances: Array
    weights: Array
    relevance: float
    half_db: float = np.inf
    mean_prior: float = np.inf

    @property
    def dimension(self) -> int:
        """Return the length K d of a supervector."""
        return int(self.means.size)

    def running_sums(self, frames: Array, below_peak: Array, before: Array | None = None) -> Array:
        """Return the running sums (K + 1, 1 + d) after ``frames`` (T, d), ``below_peak`` dB (T,) under the loudest.

        Row k holds sum_t g_tk and sum_t g_tk z_t, with g_tk the weighted posterior of component k for the standardised
        frame z_t; the last row holds T and sum_t x_t. ``before`` are the sums so far.
        """
        sums = np.zeros((len(self.means) + 1, 1 + frames.shape[1])) if before is None else before.copy()
        normalised = frames - running_mean(frames, self.mean_prior, sums[-1, 0], sums[-1, 1:])
        standard, share = self.weighed(frames, loudness(below_peak, self.half_db), like=normalised)
        sums[:-1, 0] += share.sum(axis=0)
        sums[:-1, 1:] += share.T @ standard
        sums[-1, 0] += len(frames)
        sums[-1, 1:] += frames.sum(axis=0, dtype=np.float64)
        return sums

    def utterance_statistics(self, sums: Array) -> Array:
        """Return an utterance's statistics (K, 1 + d), less the mean of its frames, from its running ``sums``."""
        mean = sums[-1, 1:] / (sums[-1, 0] + self.mean_prior)
        return self._offsets(sums[:-1, :1], sums[:-1, 1:], mean / self.scale)

    def weighed(
        self, frames: Array, weights: Array, *, like: Array | None = None, dtype: DTypeLike = np.float64
    ) -> tuple[AnyFloat, AnyFloat]:
        """Return standardised frames (T, d) and posteriors (T, K) times ``weights`` (T,), for ``statistics``.

        Posteriors are computed for the frames ``like`` (T, d), by default ``frames``. ``dtype`` float32 takes a quarter
        of the time, and suffices for segments, which are stored in half precision.
        """
        standard = ((frames - self.centre) / self.scale).astype(dtype, copy=False)
        reference = standard if like is None else ((like - self.centre) / self.scale).astype(dtype, copy=False)
        posterior = self.responsibilities(reference)
        posterior *= weights[:, None].astype(dtype, copy=False)
        return standard, posterior

    def statistics(self, standard: AnyFloat, share: AnyFloat) -> AnyFloat:
        """Return the zeroth- and first-order statistics (K, 1 + d) of frames from ``weighed``, at their precision.

        With g_tk the weighted posterior of component k for frame t, row k holds n_k = sum_t g_tk and
        f_k = sum_t g_tk (z_t - mean_k) / deviation_k.
        """
        # In single precision, posteriors late in a long recording would be lost to rounding when added to their sum.
        occupancy = share.sum(axis=0, dtype=np.float64).astype(share.dtype, copy=False)
        return self._offsets(occupancy[:, None], share.T @ standard)

    def _offsets(self, occupancy: NDArray[F], sums: NDArray[F], mean: Array | float = 0.0) -> NDArray[F]:
        """Return statistics from ``occupancy`` (K, 1) and ``sums`` (K, d) of frames, less a ``mean``."""
        statistics = np.empty((len(self.means), 1 + self.means.shape[1]), dtype=sums.dtype)
        statistics[:, :1] = occupancy
        means, scale = (part.astype(sums.dtype, copy=False) for part in (self.means + mean, self._per_deviation))
        offsets = np.subtract(sums, occupancy * means, out=statistics[:, 1:])
        offsets *= scale
        return statistics

    def vector(self, statistics: NDArray[F]) -> NDArray[F]:
        """Return the supervector (K d,) of ``statistics``: signed roots of mean offsets.

        Offsets are f_k / (n_k + relevance), with f_k the first-order statistics: few frames give offsets near zero.
        Roots keep a few large offsets from dominating (power normalisation; Perronnin, Sanchez and Mensink, Improving
        the Fisher kernel for large-scale image classification, 2010).
        """
        offsets = (statistics[:, 1:] * (1.0 / (statistics[:, :1] + self.relevance))).ravel()
        roots = np.abs(offsets)
        return np.asarray(np.copysign(np.sqrt(roots, out=roots), offsets, out=roots))

    def responsibilities(self, standard: AnyFloat) -> AnyFloat:
        """Return the posterior (T, K) of each component for standardised frames (T, d), at their precision."""
        slopes, intercepts = (part.astype(standard.dtype, copy=False) for part in self._log_density)
        log = np.concatenate((standard, standard * standard), axis=1) @ slopes
        log += intercepts
        log -= log.max(axis=1, keepdims=True)
        np.maximum(log, LEAST_LOG_POSTERIOR, out=log)
        np.exp(log, out=log)
        log /= log.sum(axis=1, keepdims=True)
        return log

    @cached_property
    def _per_deviation(self) -> Array:
        """Return the inverse standard deviations (K, d)."""
        return np.asarray(1.0 / np.sqrt(self.variances))

    @cached_property
    def _log_density(self) -> tuple[Array, Array]:
        """Return the components' log density, weights included, up to a constant: slopes (2 d, K), intercepts (K,)."""
        precision = 1.0 / self.variances
        slopes = np.concatenate((self.means * precision, -0.5 * precision), axis=1).T
        intercepts = np.log(self.weights) - 0.5 * (self.means**2 * precision + np.log(self.variances)).sum(axis=1)
        return np.ascontiguousarray(slopes), intercepts


def train_ubm(
    frames: Array, *, components: int, relevance: float, seed: int, half_db: float = np.inf, mean_prior: float = np.inf
) -> UniversalBackgroundModel:
    """Train a universal background model by k-means and a few rounds of expectation-maximisation.

    Parameters
    ----------
    frames : array (T, d)
        Features of all speakers, less their mean where utterances are normalised.
    components : int
        Gaussians; fewer are fitted where frames are few.
    relevance, half_db, mean_prior : float
        See ``UniversalBackgroundModel``.
    seed : int
        The same frames and seed give the same model.
    """
    from sklearn.cluster import MiniBatchKMeans  # takes a second that scoring need not wait for

    centre, scale = frames.mean(axis=0), np.maximum(frames.std(axis=0), 1e-9)
    random = np.random.default_rng(seed)
    drawn = frames[random.permutation(len(frames))[:MIXTURE_FRAMES]]
    drawn = ((drawn - centre) / scale).astype(np.float32)
    count = max(1, min(components, len(frames) // FRAMES_A_COMPONENT))
    kmeans = MiniBatchKMeans(count, random_state=seed, n_init=1, batch_size=4096, max_iter=50).fit(drawn)
    means = np.asarray(kmeans.cluster_centers_, dtype=np.float64)
    weights = np.full(count, 1.0 / count)
    ubm = UniversalBackgroundModel(
        centre, scale, means, np.full_like(means, 0.5), weights, relevance, half_db, mean_prior
    )
    for _ in range(MIXTURE_ROUNDS):
        ubm = _updated(ubm, drawn)
    return ubm


def _updated(ubm: UniversalBackgroundModel, drawn: AnyFloat) -> UniversalBackgroundModel:
    """Return the model after one round of expectation-maximisation on standardised frames (T, d)."""
    count, first, second = np.full(len(ubm.weights), 1e-3), np.zeros(ubm.means.shape), np.zeros(ubm.means.shape)
    # A few frames at a time: their arrays stay in the processor's cache.
    for start in range(0, len(drawn), EM_FRAMES):
        part = drawn[start : start + EM_FRAMES]
        share = ubm.responsibilities(part)
        count += share.sum(axis=0)
        first += share.T @ part
        second += share.T @ (part * part)
    means = first / count[:, None]
    variances = np.maximum(second / count[:, None] - means * means, VARIANCE_FLOOR)
    return replace(ubm, means=means, variances=variances, weights=count / count.sum())


def running_mean(frames: Array, prior: float, count: float = 0.0, total: Array | float = 0.0) -> Array:
    """Return the running mean (T, d) of ``frames`` (T, d), with ``prior`` frames of zero counted in.

    ``count`` earlier frames have the sum ``total`` (d,).
    """
    return np.asarray(
        (np.cumsum(frames, axis=0, dtype=np.float64) + total) / (count + prior + np.arange(1, len(frames) + 1))[:, None]
    )


def loudness(below_peak: Array, half_db: float) -> Array:
    """Return weights (T,) in (0, 1) of frames ``below_peak`` dB (T,) under the loudest so far: one half at ``half_db``.

    In noise, the speaker still dominates loud frames.
    """
    return np.asarray(1.0 / (1.0 + np.exp((below_peak - half_db) / LOUDNESS_DB)))
