"""Histograms of the fundamental frequency: the share of a speaker's voiced speech at each pitch.

An utterance is scored by the mean log-likelihood of its voiced frames under a speaker's histogram. With little speech
of the speaker, the histogram is drawn to a uniform one: maximum a posteriori estimation under a Dirichlet prior, as for
the weights of an adapted GMM (Reynolds, Quatieri and Dunn 2000, eq. 11). Frames are weighted by their voicing and by
their level below the loudest before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.config import PitchConfig
from pipeline.features.pitch import HIGHEST_HZ, LOWEST_HZ
from pipeline.machines.ubm import Array, loudness

Shares = NDArray[np.float32]

# A speaker's counts are smoothed over neighbouring bins by a Gaussian with a standard deviation of one bin.
SMEARED = np.exp(-0.5 * np.arange(-3, 4) ** 2)
# Added to the number of voiced frames in the mean, so that scores of few frames stay near 0.
PRIOR_FRAMES = 15.0


@dataclass(frozen=True)
class PitchCounts:
    """Counts of voiced frames in bins of fundamental frequency, evenly spaced on a logarithmic scale.

    Takes the place of a background model, and has those of its methods that scoring calls.
    """

    settings: PitchConfig

    @property
    def none(self) -> Array:
        """Return the counts (B,) before any frame."""
        return np.zeros(self.settings.bins)

    def running_sums(self, frames: Array, below_peak: Array, before: Array | None = None) -> Array:
        """Return the counts (B,) after ``frames`` (T, 2), ``below_peak`` dB (T,) under the loudest.

        ``frames`` come from ``features.pitch.fundamental_frequency``; ``before`` are the counts so far.
        """
        low, high = np.log2(LOWEST_HZ), np.log2(HIGHEST_HZ)
        bins = self.settings.bins
        place = ((frames[:, 0] - low) * (bins / (high - low))).astype(np.int64)
        weights = frames[:, 1] * loudness(below_peak, self.settings.half_db)
        counts = np.bincount(np.clip(place, 0, bins - 1), weights=weights, minlength=bins)
        return np.asarray(counts if before is None else counts + before, dtype=np.float64)

    def utterance_statistics(self, counts: Array) -> Array:
        """Return the ``counts`` (B,) of an utterance, which need no correction."""
        return counts

    def shares(self, counts: Array) -> Shares:
        """Return a speaker's histogram (B,), as stored, from the ``counts`` (B,) of all the speaker's speech.

        (n_b + r / B) / (sum of n + r) with the relevance factor r.
        """
        smeared = np.convolve(counts, SMEARED / SMEARED.sum(), "same")
        relevance = self.settings.relevance
        return np.asarray((smeared + relevance / len(counts)) / (smeared.sum() + relevance), dtype=np.float32)


@dataclass(frozen=True)
class PitchHistograms:
    """Histograms of N speakers: ``shares`` (N, B) of voiced speech."""

    ubms: tuple[PitchCounts, ...]
    shares: Shares

    def margins(self, statistics: Sequence[Array]) -> Array:
        """Return mean log-likelihoods (N,), in nats per voiced frame, of an utterance from its one array of counts.

        For n utterances with counts (n, B), they are (n, N).
        """
        (counts,) = statistics
        return np.asarray(counts @ self._logarithms.T / (np.add.reduce(counts, axis=-1, keepdims=True) + PRIOR_FRAMES))

    @cached_property
    def _logarithms(self) -> Array:
        return np.log(self.shares.astype(np.float64))
