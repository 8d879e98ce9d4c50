"""Segment machines: one linear machine a speaker over whole stretches of speech, all of them solved at once.

A stretch is described by how its frames lie within the population's own sounds. A mixture of K Gaussians, fitted to
everybody's frames, says which sound a frame is; the stretch's vector holds, for each sound, how far its frames lie from
the mean on average, drawn to zero where few frames were heard (the supervector of Campbell, Sturim and Reynolds,
Support vector machines using GMM supervectors for speaker verification, 2006; the relevance factor is that of Reynolds,
Quatieri and Dunn 2000). Less the population's mean and of unit length, it meets linear machines, one speaker against
the rest, trained by regularised least squares (Suykens and Vandewalle, Least squares support vector machine
classifiers, 1999): one factorisation of the Gram matrix of all stretches serves every speaker, and leaving a speaker
out of the training is one small solve more.

A stretch enters by its statistics alone, and those are sums over frames: a stream keeps (K, d + 1) numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.mixtures import SpeakerModels

Array = NDArray[np.float64]
Vectors = NDArray[np.float32]

# How many dB below the half point a weight takes to fall by a factor of e.
LOUDNESS_DB = 3.0

LEAST_LENGTH = 1e-12  # of a vector that is scaled to length 1


@dataclass(frozen=True)
class SegmentSpace:
    """The sounds of a population: K diagonal Gaussians over standardised features.

    ``centre`` and ``scale`` (d,) standardise; ``means`` and ``variances`` (K, d), ``weights`` (K,); ``relevance`` is
    the number of frames at which a sound's offset is believed by half.
    """

    centre: Array
    scale: Array
    means: Array
    variances: Array
    weights: Array
    relevance: float

    @property
    def dimension(self) -> int:
        """Length K * d of a stretch's vector."""
        return int(self.means.size)

    def statistics(self, frames: Array, loudness: Array, *, compiled: bool = False) -> Array:
        """Sums over ``frames`` (T, d) weighted by ``loudness`` (T,): occupancies and offsets, (K, 1 + d).

        ``compiled`` code makes exponentials in single precision, and loads numba.
        """
        standard = (frames - self.centre) / self.scale
        if compiled:
            return self._compiled_statistics(standard, loudness)
        share = self.responsibilities(standard) * loudness[:, None]
        occupancy = share.sum(axis=0)[:, None]
        sums = np.concatenate((occupancy, share.T @ standard), axis=1)
        offsets = sums[:, 1:]
        offsets -= occupancy * self.means
        offsets *= self._per_deviation
        return sums

    def vector(self, statistics: Array) -> Array:
        """Vector (K * d,) of a stretch: each sound's mean offset, drawn to zero where it was hardly heard."""
        return np.asarray((statistics[:, 1:] * (1.0 / (statistics[:, :1] + self.relevance))).ravel())

    def responsibilities(self, standard: Array) -> Array:
        """Posterior (T, K) of each component for standardised frames (T, d)."""
        slopes, intercepts = self._log_density
        log = np.concatenate((standard, standard * standard), axis=1) @ slopes
        log += intercepts
        log -= log.max(axis=1, keepdims=True)
        np.exp(log, out=log)
        log /= log.sum(axis=1, keepdims=True)
        return np.asarray(log)

    def _compiled_statistics(self, standard: Array, loudness: Array) -> Array:
        from pipeline.machines import segment_kernels

        slopes, intercepts = self._log_density
        log = np.concatenate((standard, standard * standard), axis=1) @ slopes
        segment_kernels.to_shares(log, intercepts, loudness)
        found = np.empty((len(self.means), 1 + standard.shape[1]))
        segment_kernels.sum_shares(log, standard, self.means, self._per_deviation, found)
        return found

    @cached_property
    def _per_deviation(self) -> Array:
        """One by standard deviations (K, d)."""
        return np.asarray(1.0 / np.sqrt(self.variances))

    @cached_property
    def _log_density(self) -> tuple[Array, Array]:
        """Log density of each weighted component, but for a constant: slopes (2 d, K) of x and x^2, intercepts (K,)."""
        precision = 1.0 / self.variances
        slopes = np.concatenate((self.means * precision, -0.5 * precision), axis=1).T
        intercepts = np.log(self.weights) - 0.5 * (self.means**2 * precision + np.log(self.variances)).sum(axis=1)
        return np.ascontiguousarray(slopes), intercepts


@dataclass(frozen=True)
class SegmentMachines:
    """Trained machines of N speakers: ``mean`` (D,) of the training vectors, ``coef`` (D, N).

    ``models`` are what the space's mixture was adapted to, speaker by speaker, where that was asked for.
    """

    space: SegmentSpace
    mean: Array
    coef: Array
    models: SpeakerModels | None = None

    def with_models(self, models: SpeakerModels | None) -> SegmentMachines:
        """The same machines and ``models``."""
        return replace(self, models=models)

    def margins(self, statistics: Array, *, compiled: bool = False) -> Array:
        """Margins (N,) of a stretch by its ``statistics``; near 1 for its speaker, -1 / (N - 1) for the others.

        Summed in single precision, as ``coef`` is stored: a stream asks often, and reads everybody's each time.
        ``compiled`` loads numba.
        """
        if compiled:
            from pipeline.machines import segment_kernels

            vector = np.empty(self.space.dimension, dtype=np.float32)
            length = segment_kernels.heard(statistics, self.space.relevance, self.mean, vector)
            return np.asarray((self._rows @ vector) / max(length, LEAST_LENGTH), dtype=np.float64)
        heard = unit(self.space.vector(statistics) - self.mean)
        return np.asarray(self._rows @ heard.astype(np.float32), dtype=np.float64)

    @cached_property
    def _rows(self) -> Vectors:
        return np.ascontiguousarray(self.coef.T, dtype=np.float32)


def unit(vectors: Array) -> Array:
    """``vectors`` (..., D) scaled to length 1; zero stays zero."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), LEAST_LENGTH))


def loudness(below_peak: Array, half_db: float) -> Array:
    """Weight (T,) in (0, 1) of frames ``below_peak`` dB (T,) under the loudest so far: a half at ``half_db``.

    Under noise the loud frames are the ones that the speaker still owns.
    """
    return np.asarray(1.0 / (1.0 + np.exp((below_peak - half_db) / LOUDNESS_DB)))
