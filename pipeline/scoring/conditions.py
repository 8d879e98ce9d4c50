"""The condition of an utterance: as recorded at enrollment, or changed by another channel, a room or noise.

Channels add to the mean of cepstra, and noise narrows their spread. In both, utterances as recorded lie close together
and changed ones all around them, so that no plane parts them: an utterance is compared with the nearest of either
among enrollment speech and augmented versions of it (Cover and Hart, Nearest neighbor pattern classification, 1967).
Fused scores weigh their parts accordingly (side information, as quality measures are in Ferrer, Burget, Plchot and
Scheffer, A unified approach for audio characterization and its application to speaker recognition, 2012).

A sound that is far from both, as music and noise are, is no evidence for anybody: the excess of its distance over that
of held-out speech is subtracted from its log-likelihood ratio. Changed speech that is farther than usual comes by an
unfamiliar condition, as that of an impostor does more often than that of a claimant.
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

# Names among the scores: that of the log-odds of a changed condition, under which running sums are kept too, and that
# of the distance from enrollment speech.
CONDITION, DISTANCE = "condition", "distance"
SIDE_INFORMATION = (CONDITION, DISTANCE)

# Nearest vectors of either condition that count, and the most that are searched.
NEIGHBOURS, MOST_VECTORS = 10, 1000

# Distances are outlying from so many standard deviations of their logarithm above what is expected. This deviation is
# taken to be at least the second number, since held-out utterances may be few.
OUTLYING_DEVIATIONS, LEAST_DEVIATION = 3.0, 0.15

# Standard deviations from what is expected at which a condition begins to be unfamiliar, and is fully so. A narrower
# ramp would add to the spread of scores by one channel more than it tells about the channel.
FAMILIAR_DEVIATIONS = (-2.0, 1.0)

# The smallest variance whose logarithm is taken, or that distances are divided by.
LEAST_VARIANCE = 1e-6


def condition_sums(frames: Array) -> Array:
    """Return T, the sum and the sum of squares of ``frames`` (T, d), as one array (1 + 2 d,)."""
    frames = frames.astype(np.float64, copy=False)
    return np.concatenate(([float(len(frames))], frames.sum(axis=0), (frames * frames).sum(axis=0)))


def condition_vector(sums: Array, statics: int) -> Array:
    """Return means and log standard deviations (statics + d,) of the frames that ``sums`` (1 + 2 d,) are of.

    The first ``statics`` of d features have a mean; that of the deltas behind them is about zero in any condition.
    """
    mean, square = np.split(sums[1:] / sums[0], 2)
    return np.concatenate((mean[:statics], 0.5 * np.log(np.maximum(square - mean * mean, LEAST_VARIANCE))))


@dataclass(frozen=True, eq=False)
class ConditionClassifier:
    """Log-odds of a changed condition by condition vectors of speech as ``recorded`` (n, e) and ``changed`` (m, e).

    Both are kept after multiplication by ``whitening`` (e, e), which makes squared distances those of Mahalanobis.
    """

    recorded: Array
    changed: Array
    whitening: Array

    def measure(self, sums: Array) -> dict[str, float]:
        """Return the ``SIDE_INFORMATION`` of an utterance with these ``condition_sums``, by name.

        The uncalibrated log-odds of a changed condition are half of what the squared distance d^2 to the nearest
        recorded vectors exceeds that to the nearest changed ones; the distance, in nats, is half of the lesser one.
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

    The fewer frames, the less certain are their means and deviations. ``factor`` is F. More than ``most_frames`` count
    as so many: longer utterances were not measured.
    """

    least: float
    more: float
    factor: float
    most_frames: float

    @classmethod
    def of(cls, distances: Array, frames: Array) -> Self:
        """Fit the limit to ``distances`` (n,) of held-out utterances, or beginnings of them, of ``frames`` (n,).

        By least squares, with errors relative to a first fit without: distances vary by a factor.
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

        The logarithm of the distance counts: from two standard deviations below what is expected to one above.
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
    """Return the classifier by condition vectors (n, statics + d) of each speaker; None without any of either.

    Mahalanobis distances are by the covariance of the recorded vectors plus its diagonal, which regularises it.
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
