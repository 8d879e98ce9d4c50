"""Confidence intervals by resampling, whole speakers at a time where their names are known.

Trials on one claimed speaker share that speaker's model, so they err together: resampling single trials
then gives an interval that is too narrow. A resample is held as counts over the original trials, which are
ranked once; a replicate of the error rate is two counts and two running sums, never another sort.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError
from pipeline.evaluation.curves import FloatArray, as_scores, crossing

Statistic = Literal["eer", "cllr"]
_Weights = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
_Draw = Callable[[np.random.Generator], _Weights]
_Replicate = Callable[[npt.NDArray[np.intp], npt.NDArray[np.intp]], float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval in the statistic's own unit; ``level`` is its nominal coverage."""

    low: float
    high: float
    level: float


def bootstrap_interval(
    target: npt.ArrayLike,
    nontarget: npt.ArrayLike,
    *,
    seed: int,
    statistic: Statistic = "eer",
    level: float = 0.95,
    samples: int = 200,
    target_speakers: npt.ArrayLike | None = None,
    nontarget_speakers: npt.ArrayLike | None = None,
) -> Interval:
    """Percentile bootstrap interval of the equal error rate (a share) or of Cllr (bits).

    Without speakers, targets and nontargets are resampled separately, trial by trial. With the claimed
    speaker of every trial, shapes (targets,) and (nontargets,), the speakers are resampled and bring all
    their trials of both classes along; a draw without any trial of one class is drawn again. The same seed
    gives the same interval. Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.

    Raises MetricError for speakers given for one class only, in the wrong number, or fewer than two; for a
    parameter out of range; and for scores as ``error_curve`` does.
    """
    if not 0.0 < level < 1.0:
        raise MetricError(f"the level must lie between 0 and 1, got {level}; percent for a share?")
    if samples < 2:
        raise MetricError(f"an interval needs at least 2 samples, got {samples}")
    if statistic not in _REPLICATES:
        raise MetricError(f"the statistic must be one of {', '.join(_REPLICATES)}, got {statistic!r}")
    targets, nontargets = as_scores(target, "target"), as_scores(nontarget, "nontarget")
    if target_speakers is None and nontarget_speakers is None:
        draw = _draw_trials(targets.size, nontargets.size)
    elif target_speakers is None or nontarget_speakers is None:
        raise MetricError("speakers must be given for both classes or for neither, got one")
    else:
        draw = _draw_speakers(
            _labels(target_speakers, targets.size, "target"),
            _labels(nontarget_speakers, nontargets.size, "nontarget"),
        )
    replicate = _REPLICATES[statistic](targets, nontargets)
    generator = np.random.default_rng(seed)
    values = [replicate(*draw(generator)) for _ in range(samples)]
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high), level)


def _labels(speakers: npt.ArrayLike, trials: int, side: str) -> npt.NDArray[np.generic]:
    labels = np.asarray(speakers)
    if labels.shape != (trials,):
        raise MetricError(f"{side} speakers must name one speaker a trial, shape ({trials},), got shape {labels.shape}")
    return labels


def _draw_trials(targets: int, nontargets: int) -> _Draw:
    def draw(generator: np.random.Generator) -> _Weights:
        return _counts(generator, targets), _counts(generator, nontargets)

    return draw


def _draw_speakers(target_speakers: npt.NDArray[np.generic], nontarget_speakers: npt.NDArray[np.generic]) -> _Draw:
    names, codes = np.unique(np.concatenate([target_speakers, nontarget_speakers]), return_inverse=True)
    if names.size < 2:
        raise MetricError("resampling speakers needs at least 2 of them, got 1: its spread would read as zero")
    of_target, of_nontarget = codes[: target_speakers.size], codes[target_speakers.size :]

    def draw(generator: np.random.Generator) -> _Weights:
        while True:
            counts = _counts(generator, names.size)
            weights = counts[of_target], counts[of_nontarget]
            if weights[0].any() and weights[1].any():
                return weights

    return draw


def _counts(generator: np.random.Generator, n: int) -> npt.NDArray[np.intp]:
    return np.bincount(generator.integers(n, size=n), minlength=n)


def _eer_replicate(targets: FloatArray, nontargets: FloatArray) -> _Replicate:
    scores, ranks = np.unique(np.concatenate([targets, nontargets]), return_inverse=True)
    of_target, of_nontarget = ranks[: targets.size], ranks[targets.size :]

    def rejected(rank: npt.NDArray[np.intp], weights: npt.NDArray[np.intp]) -> FloatArray:
        totals = np.zeros(scores.size + 1)
        np.cumsum(np.bincount(rank, weights=weights, minlength=scores.size), out=totals[1:])
        return totals

    def replicate(target_weights: npt.NDArray[np.intp], nontarget_weights: npt.NDArray[np.intp]) -> float:
        missed = rejected(of_target, target_weights)
        refused = rejected(of_nontarget, nontarget_weights)
        _, rate = crossing((refused[-1] - refused) / refused[-1], missed / missed[-1])
        return rate

    return replicate


def _cllr_replicate(targets: FloatArray, nontargets: FloatArray) -> _Replicate:
    miss, accept = np.logaddexp(0.0, -targets), np.logaddexp(0.0, nontargets)

    def replicate(target_weights: npt.NDArray[np.intp], nontarget_weights: npt.NDArray[np.intp]) -> float:
        mean_miss = miss @ target_weights / target_weights.sum()
        mean_accept = accept @ nontarget_weights / nontarget_weights.sum()
        return float(mean_miss + mean_accept) / (2.0 * math.log(2.0))

    return replicate


_REPLICATES: dict[str, Callable[[FloatArray, FloatArray], _Replicate]] = {
    "eer": _eer_replicate,
    "cllr": _cllr_replicate,
}
