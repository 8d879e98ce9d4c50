"""The condition of an utterance: as recorded at enrollment, or changed by another channel, a room or noise.

Channels add to the mean of cepstra, and noise narrows their spread. In both, utterances as recorded lie close together
with changed ones all around them, so no plane separates the two: an utterance is compared with the nearest enrollment
speech, and with the nearest augmented versions of it (Cover and Hart, Nearest neighbor pattern classification, 1967).
Fused scores weigh their parts accordingly (side information, as quality measures are in Ferrer, Burget, Plchot and
Scheffer, A unified approach for audio characterization and its application to speaker recognition, 2012).

A sound that is far from both, as music and noise are, is no evidence for anybody: the excess of its distance over that
of held-out speech is subtracted from its log-likelihood ratio. Changed speech that is farther than usual comes through
an unfamiliar condition, which happens to impostors more often than to claimants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Names of side information among the scores: the log-odds of a changed condition, also the name of its running sums,
# and the distance from enrollment speech.
CONDITION, DISTANCE = "condition", "distance"
SIDE_INFORMATION = (CONDITION, DISTANCE)

# Nearest vectors of either condition that count, and the most that are searched.
NEIGHBOURS, MOST_VECTORS = 10, 1000

# A distance is outlying if its logarithm exceeds the expected one by this many standard deviations, each taken to be at
# least the second number, since held-out utterances may be few.
OUTLYING_DEVIATIONS, LEAST_DEVIATION = 3.0, 0.15

# Standard deviations from what is expected at which a condition begins to be unfamiliar, and is fully so. A narrower
# ramp would spread the scores of one channel more than it says about the channel.
FAMILIAR_DEVIATIONS = (-2.0, 1.0)

# The smallest variance whose logarithm is taken, or that distances are divided by.
LEAST_VARIANCE = 1e-6


def condition_sums(frames: Array) -> Array:
    """Return T, the sum and the sum of squares of ``frames`` (T, d), as one array (1 + 2 d,)."""
    frames = frames.astype(np.float64, copy=False)
    return np.concatenate(([float(len(frames))], frames.sum(axis=0), (frames * frames).sum(axis=0)))


def condition_vector(sums: Array, statics: int) -> Array:
    """Return means and log standard deviations (statics + d,) of frames, from their ``sums`` (1 + 2 d,).

    Means are of the first ``statics`` of d features; those of the deltas after them are about zero in any condition.
    """
    mean, square = np.split(sums[1:] / sums[0], 2)
    return np.concatenate((mean[:statics], 0.5 * np.log(np.maximum(square - mean * mean, LEAST_VARIANCE))))


@dataclass(frozen=True, eq=False)
class ConditionClassifier:
    """Log-odds of a changed condition, from condition vectors of speech as ``recorded`` (n, e) and ``changed`` (m, e).

    Both are kept after multiplication by ``whitening`` (e, e), which makes squared distances those of Mahalanobis.
    """

    recorded: Array
    changed: Array
    whitening: Array

    def measure(self, sums: Array) -> dict[str, float]:
        """Return the ``SIDE_INFORMATION`` of an utterance with these ``condition_sums``, by name.

        With the mean squared distances d^2 to the nearest vectors of either condition, the uncalibrated log-odds of a
        changed one are (d_recorded^2 - d_changed^2) / 2, and the distance, in nats, is half the smaller d^2.
        """
        statics = len(self.whitening) - len(sums) // 2
        vector = condition_vector(sums, statics) @ self.whitening
        recorded, changed = map(partial(_nearness, vector), (self.recorded, self.changed), self._half_squares)
        return {CONDITION: changed - recorded, DISTANCE: float(0.5 * vector @ vector) - max(recorded, changed)}

    @cached_property
    def _half_squares(self) -> tuple[Array, Array]:
        """Return |v|^2 / 2 of the vectors of each condition."""
        recorded, changed = (0.5 * np.einsum("ij,ij->i", rows, rows) for rows in (self.recorded, self.changed))
        return recorded, changed


@dataclass(frozen=True, slots=True)
class DistanceLimit:
    """The distance from enrollment speech that utterances of T frames hardly ever exceed: (``least`` + ``more`` / T) F.

    The fewer the frames, the less certain their means and deviations. ``factor`` is F. T is at most ``most_frames``,
    since longer utterances were not measured.
    """

    least: float
    more: float
    factor: float
    most_frames: float

    @classmethod
    def of(cls, distances: Array, frames: Array) -> Self:
        """Fit the limit to ``distances`` (n,) of held-out utterances, or beginnings of them, of ``frames`` (n,).

        By least squares, twice: the second time with errors relative to the first fit, as distances vary by a factor.
        """
        from scipy.optimize import nnls  # slow to import

        distances = np.maximum(distances, LEAST_VARIANCE)
        design, expected = np.column_stack([np.ones(len(frames)), 1.0 / frames]), np.ones(len(frames))
        for _ in range(2):
            (least, more), _ = nnls(design / expected[:, None], distances / expected)
            expected = design @ (least, more)
        ratios = np.log(distances / expected)
        deviation = max(LEAST_DEVIATION, float(ratios.std()))
        outlying = max(OUTLYING_DEVIATIONS * LEAST_DEVIATION, float(ratios.mean()) + OUTLYING_DEVIATIONS * deviation)
        return cls(float(least), float(more), math.exp(outlying), float(frames.max()))

    def excess(self, distances: Array, frames: Array | float) -> Array:
        """Return how far ``distances`` exceed the limit for ``frames``, in nats; zero within it."""
        return np.asarray(np.maximum(distances - self.factor * self._expected(frames), 0.0))

    def unfamiliar(self, distances: Array, frames: Array | float) -> Array:
        """Return how unfamiliar conditions at these ``distances`` are, from 0 to 1.

        It rises with the logarithm of the distance, from two standard deviations below the expected one to one above.
        """
        deviation = math.log(self.factor) / OUTLYING_DEVIATIONS
        deviations = np.log(np.maximum(distances / self._expected(frames), np.finfo(np.float64).tiny)) / deviation
        return np.asarray(np.interp(deviations, FAMILIAR_DEVIATIONS, (0.0, 1.0)))

    def _expected(self, frames: Array | float) -> Array | float:
        """Return the fitted distance of utterances of so many ``frames``."""
        return self.least + self.more / np.minimum(frames, self.most_frames)


def _nearness(vector: Array, rows: Array, half_squares: Array) -> float:
    """Return the mean of -d^2 / 2 over the nearest of ``rows``, up to a term that depends on ``vector`` alone."""
    nearness = rows @ vector - half_squares
    count = min(NEIGHBOURS, len(rows))
    return float(np.partition(nearness, -count)[-count:].mean())


def train_conditions(recorded: Sequence[Array], changed: Sequence[Array]) -> ConditionClassifier | None:
    """Return the classifier by condition vectors (n, statics + d) of each speaker; None if either condition has none.

    Mahalanobis distances use the covariance of the recorded vectors plus its diagonal, which regularises it.
    """
    if not all(sum(map(len, parts)) for parts in (recorded, changed)):
        return None
    near, far = (_spread(np.concatenate(parts).astype(np.float64)) for parts in (recorded, changed))
    covariance = np.cov(near, rowvar=False, bias=True)
    independent = np.diag(np.maximum(np.diag(covariance), LEAST_VARIANCE))
    whitening = np.linalg.inv(np.linalg.cholesky(covariance + independent)).T
    return ConditionClassifier(near @ whitening, far @ whitening, whitening)


def _spread(rows: Array) -> Array:
    """Return at most ``MOST_VECTORS`` of the rows, evenly spaced."""
    count = min(len(rows), MOST_VECTORS)
    return rows[np.arange(count) * len(rows) // count]
