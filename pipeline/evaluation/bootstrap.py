"""Confidence intervals by resampling, whole speakers at a time where their names are known.

Trials on one claimed speaker share that speaker's model, so they err together: resampling single trials
then gives an interval that is too narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError
from pipeline.evaluation.costs import MAIN_POINT, OPERATING_POINTS, OperatingPoint
from pipeline.evaluation.curves import FloatArray, IntArray, as_scores
from pipeline.evaluation.replicates import STATISTICS, Replicate, Statistic, miss_rates_at

Draw = Callable[[np.random.Generator], tuple[IntArray, IntArray]]
"""One resample: how often each target and each nontarget is in it, shapes (targets,) and (nontargets,)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval in the statistic's own unit; ``level`` is its nominal coverage."""

    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class DetBand:
    """An interval of FR at each of some FA: three arrays of shares, shape (rates,).

    It holds point by point: that a whole curve lies inside is less likely than ``level``.
    """

    false_accept: FloatArray
    low: FloatArray
    high: FloatArray
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
    point: OperatingPoint = OPERATING_POINTS[MAIN_POINT],
) -> Interval:
    """Percentile bootstrap interval of a statistic.

    ``statistic`` is "eer" (a share), "min_dcf" (normalised, at ``point``), "cllr" (bits, of scores that are
    log-likelihood ratios) or "min_cllr" (bits).

    Without speakers, targets and nontargets are resampled separately, trial by trial. With the claimed
    speaker of every trial, shapes (targets,) and (nontargets,), the speakers are resampled and bring all
    their trials of both classes along; a draw without any trial of one class is drawn again. The same seed
    gives the same interval. Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.

    Raises MetricError for speakers given for one class only, in the wrong number, or fewer than two; for a
    parameter out of range; and for scores as ``error_curve`` does.
    """
    check_sampling(level, samples)
    targets, nontargets = as_scores(target, "target"), as_scores(nontarget, "nontarget")
    draw = draws_of(targets.size, nontargets.size, target_speakers, nontarget_speakers)
    replicate = replicate_of(statistic, targets, nontargets, point)
    generator = np.random.default_rng(seed)
    return interval_of([replicate(*draw(generator)) for _ in range(samples)], level)


def det_band(
    target: npt.ArrayLike,
    nontarget: npt.ArrayLike,
    false_accept: npt.ArrayLike,
    *,
    seed: int,
    level: float = 0.95,
    samples: int = 200,
    target_speakers: npt.ArrayLike | None = None,
    nontarget_speakers: npt.ArrayLike | None = None,
) -> DetBand:
    """Percentile bootstrap interval of FR at each FA of ``false_accept``, shares in [0, 1], shape (rates,).

    FR is read off the polyline through the steps of the curve. Resampling and errors are those of
    ``bootstrap_interval``; raises MetricError for a false accept rate outside [0, 1] too. The vertical bands of
    Macskassy and Provost, Confidence bands for ROC curves, 2004.
    """
    check_sampling(level, samples)
    rates = np.asarray(false_accept, dtype=np.float64)
    if rates.ndim != 1 or not ((rates >= 0.0) & (rates <= 1.0)).all():
        raise MetricError("false accept rates must form one row of shares in [0, 1]; percent for shares?")
    targets, nontargets = as_scores(target, "target"), as_scores(nontarget, "nontarget")
    draw = draws_of(targets.size, nontargets.size, target_speakers, nontarget_speakers)
    replicate = miss_rates_at(targets, nontargets, rates)
    generator = np.random.default_rng(seed)
    values = np.array([replicate(*draw(generator)) for _ in range(samples)])
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    return DetBand(rates, low, high, level)


def check_sampling(level: float, samples: int) -> None:
    """Raise MetricError unless ``level`` is a share inside (0, 1) and there are at least 2 samples."""
    if not 0.0 < level < 1.0:
        raise MetricError(f"the level must lie between 0 and 1, got {level}; percent for a share?")
    if samples < 2:
        raise MetricError(f"an interval needs at least 2 samples, got {samples}")


def replicate_of(statistic: str, targets: FloatArray, nontargets: FloatArray, point: OperatingPoint) -> Replicate:
    """The statistic as a function of counts; raises MetricError for a name that is none."""
    if statistic not in STATISTICS:
        raise MetricError(f"the statistic must be one of {', '.join(STATISTICS)}, got {statistic!r}")
    return STATISTICS[statistic](targets, nontargets, point)


def interval_of(values: npt.ArrayLike, level: float) -> Interval:
    """The middle ``level`` of the replicates, shape (samples,)."""
    low, high = np.quantile(np.asarray(values), [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high), level)


def draws_of(
    targets: int,
    nontargets: int,
    target_speakers: npt.ArrayLike | None,
    nontarget_speakers: npt.ArrayLike | None,
) -> Draw:
    """How ``bootstrap_interval`` resamples that many trials; raises MetricError for speakers as it does."""
    if target_speakers is None and nontarget_speakers is None:
        return lambda generator: (_counts(generator, targets), _counts(generator, nontargets))
    if target_speakers is None or nontarget_speakers is None:
        raise MetricError("speakers must be given for both classes or for neither, got one")
    return _draw_speakers(
        _labels(target_speakers, targets, "target"), _labels(nontarget_speakers, nontargets, "nontarget")
    )


def _labels(speakers: npt.ArrayLike, trials: int, side: str) -> npt.NDArray[np.generic]:
    labels = np.asarray(speakers)
    if labels.shape != (trials,):
        raise MetricError(f"{side} speakers must name one speaker a trial, shape ({trials},), got shape {labels.shape}")
    return labels


def _draw_speakers(target_speakers: npt.NDArray[np.generic], nontarget_speakers: npt.NDArray[np.generic]) -> Draw:
    names, codes = np.unique(np.concatenate([target_speakers, nontarget_speakers]), return_inverse=True)
    if names.size < 2:
        raise MetricError("resampling speakers needs at least 2 of them, got 1: its spread would read as zero")
    of_target, of_nontarget = codes[: target_speakers.size], codes[target_speakers.size :]

    def draw(generator: np.random.Generator) -> tuple[IntArray, IntArray]:
        while True:
            counts = _counts(generator, names.size)
            weights = counts[of_target], counts[of_nontarget]
            if weights[0].any() and weights[1].any():
                return weights

    return draw


def _counts(generator: np.random.Generator, n: int) -> IntArray:
    return np.bincount(generator.integers(n, size=n), minlength=n)
