"""The condition of an utterance: as recorded at enrollment, or changed by another channel, a room or noise.

Channels add to the mean of cepstra, and noise narrows their spread. A logistic classifier of both says how likely an
utterance is to be of a changed condition; fused scores weigh their parts accordingly (side information, as quality
measures are in Ferrer, Burget, Plchot and Scheffer, A unified approach for audio characterization and its application
to speaker recognition, 2012). It is trained on enrollment speech against augmented versions of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.scoring.regression import logistic_weights

Array = NDArray[np.float64]

# Log-odds of a changed condition are kept under this name among the scores, and sums for them among the sums.
CONDITION = "condition"

# Penalty on the squared weights, and the smallest variance whose logarithm is taken.
PENALTY, LEAST_VARIANCE = 1e-2, 1e-6


def condition_sums(frames: Array) -> Array:
    """Return T, the sum and the sum of squares of ``frames`` (T, d), as one array (1 + 2 d,)."""
    return np.concatenate(([float(len(frames))], frames.sum(axis=0), (frames * frames).sum(axis=0)))


def condition_vector(sums: Array, statics: int) -> Array:
    """Return means and log standard deviations (statics + d,) of the frames that ``sums`` (1 + 2 d,) are of.

    The first ``statics`` of d features have a mean; that of the deltas behind them is about zero in any condition.
    """
    mean, square = np.split(sums[1:] / sums[0], 2)
    return np.concatenate((mean[:statics], 0.5 * np.log(np.maximum(square - mean * mean, LEAST_VARIANCE))))


@dataclass(frozen=True)
class ConditionClassifier:
    """Log-odds of a changed condition: ``weights`` (statics + d,) times the condition vector, plus ``offset``."""

    weights: Array
    offset: float

    def log_odds(self, sums: Array) -> float:
        """Return the log-odds that an utterance with these ``condition_sums`` is of a changed condition."""
        vector = condition_vector(sums, len(self.weights) - len(sums) // 2)
        return float(vector @ self.weights) + self.offset


def train_conditions(recorded: Sequence[Array], changed: Sequence[Array]) -> ConditionClassifier | None:
    """Train the classifier on condition vectors (n, statics + d) of each speaker, both classes weighing alike.

    Returns None without rows of both.
    """
    counts = [sum(map(len, parts)) for parts in (recorded, changed)]
    if not all(counts):
        return None
    rows = np.concatenate([*recorded, *changed]).astype(np.float64)
    is_changed = np.repeat([False, True], counts)
    centre, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
    design = np.column_stack(((rows - centre) / scale, np.ones(len(rows))))
    weight = 0.5 / np.where(is_changed, counts[1], counts[0])
    penalties = np.r_[np.full(rows.shape[1], PENALTY), 0.0]
    solution = logistic_weights(design, is_changed, weight, 0.0, penalties, positive=0)
    weights = solution[:-1] / scale
    return ConditionClassifier(weights, float(solution[-1] - weights @ centre))
