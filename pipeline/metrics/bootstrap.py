"""Bootstrap confidence intervals, resampling whole speakers where their names are given.

Trials on one claimed speaker share that speaker's model, and their errors are correlated: resampling single trials
gives an interval that is too narrow. A resample is represented by counts over the original trials, which are ranked
once: each replicate of a statistic needs two counts and two running sums, but no sorting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError, check_seed, check_type
from pipeline.metrics.cllr import in_bits, pooled_cllr
from pipeline.metrics.costs import MAIN_POINT, OPERATING_POINTS, OperatingPoint
from pipeline.metrics.curves import FloatArray, IntArray, as_row, both_scores, crossing, rates_of

Statistic = Literal["eer", "min_dcf", "cllr", "min_cllr"]
Replicate = Callable[[IntArray, IntArray], float]
"""A statistic as a function of how often each target and each nontarget was drawn, shapes (targets,), (nontargets,)."""

Draw = Callable[[np.random.Generator], tuple[IntArray, IntArray]]
"""One resample: how often each target and each nontarget was drawn."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval in the statistic's own unit; ``level`` is its nominal coverage."""

    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class DetBand:
    """Intervals of FR at given FA: three arrays of shares, shape (rates,).

    Coverage is pointwise: a whole curve lies inside with a probability below ``level``.
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
    """Return the percentile bootstrap interval of a statistic.

    Parameters
    ----------
    target, nontarget
        Scores, shapes (targets,) and (nontargets,).
    seed
        The same seed gives the same interval.
    statistic
        "eer" (a share), "min_dcf" (normalised), "cllr" (in bits; scores must be log-likelihood ratios) or "min_cllr"
        (in bits).
    level
        Nominal coverage, in (0, 1).
    samples
        Number of resamples, 2 or more.
    target_speakers, nontarget_speakers
        Claimed speaker of every trial: speakers are resampled with all their trials of both classes, and a draw that
        lacks one class is repeated. By default, the trials of each class are resampled one by one.
    point
        Operating point of "min_dcf".

    Returns
    -------
    Interval

    Raises
    ------
    MetricError
        If speakers are given for only one class, in the wrong number, in several types, or are fewer than two; for a
        parameter out of range; and for scores as ``error_curve``.
    InputError
        For a parameter that is not a number, and a seed below 0.

    References
    ----------
    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.

    Examples
    --------
    >>> from pipeline.metrics import bootstrap_interval
    >>> interval = bootstrap_interval([1.0, 2.5, 3.0], [0.0, 0.5, 2.0], seed=0)
    >>> 0.0 <= interval.low <= interval.high <= 1.0, interval.level
    (True, 0.95)
    """
    check_sampling(level, samples, seed)
    targets, nontargets = both_scores(target, nontarget)
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
    """Return the percentile bootstrap interval of FR at given FA.

    FR is interpolated linearly between the steps of the curve. These are the vertical bands of Macskassy and Provost,
    Confidence bands for ROC curves, 2004.

    Parameters
    ----------
    target, nontarget, seed, level, samples, target_speakers, nontarget_speakers
        As ``bootstrap_interval``.
    false_accept : array, shape (rates,)
        Shares in [0, 1].

    Returns
    -------
    DetBand

    Raises
    ------
    MetricError, InputError
        As ``bootstrap_interval``, and for a false accept rate outside [0, 1].

    Examples
    --------
    >>> from pipeline.metrics import det_band
    >>> band = det_band([1.0, 2.5, 3.0], [0.0, 0.5, 2.0], [0.1, 0.5], seed=0)
    >>> bool((band.low <= band.high).all()), band.low.shape
    (True, (2,))
    """
    check_sampling(level, samples, seed)
    rates = as_row(false_accept, "false accept rates")
    if not ((rates >= 0.0) & (rates <= 1.0)).all():
        got = f"{rates.min():g} to {rates.max():g}"
        raise MetricError(f"false accept rates must lie in [0, 1], got {got}; percent for shares?")
    targets, nontargets = both_scores(target, nontarget)
    draw = draws_of(targets.size, nontargets.size, target_speakers, nontarget_speakers)
    replicate = miss_rates_at(targets, nontargets, rates)
    generator = np.random.default_rng(seed)
    values = np.array([replicate(*draw(generator)) for _ in range(samples)])
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    return DetBand(rates, low, high, level)


def check_sampling(level: float, samples: int, seed: int) -> None:
    """Raise MetricError unless ``level`` is a share inside (0, 1) and there are at least 2 samples.

    Raises InputError unless both are numbers, and for a seed below 0.
    """
    check_seed(seed)
    check_type("level", level, Real, "a share, as 0.95,")
    check_type("samples", samples, Integral, "a number of resamples")
    if not 0.0 < level < 1.0:
        raise MetricError(f"the level must lie between 0 and 1, got {level}; percent for a share?")
    if samples < 2:
        raise MetricError(f"an interval needs at least 2 samples, got {samples}")


def replicate_of(statistic: str, targets: FloatArray, nontargets: FloatArray, point: OperatingPoint) -> Replicate:
    """Return the statistic as a function of counts; raises MetricError for an unknown name."""
    check_type("point", point, OperatingPoint, "an OperatingPoint(prior)")
    if not isinstance(statistic, str) or statistic not in get_args(Statistic):
        raise MetricError(f"the statistic must be one of {', '.join(get_args(Statistic))}, got {statistic!r}")
    if statistic == "cllr":
        return _cllr(targets, nontargets)
    count = _counter(targets, nontargets)
    of_counts: Callable[[FloatArray, FloatArray], float] = {
        "eer": lambda *counts: crossing(*rates_of(*counts))[1],
        "min_dcf": lambda *counts: float(point.cost(*rates_of(*counts)).min()),
        "min_cllr": pooled_cllr,
    }[statistic]
    return lambda *weights: of_counts(*count(*weights))


def interval_of(values: npt.ArrayLike, level: float) -> Interval:
    """Return the central interval that contains the share ``level`` of the replicates, shape (samples,)."""
    low, high = np.quantile(np.asarray(values), [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high), level)


def draws_of(
    targets: int,
    nontargets: int,
    target_speakers: npt.ArrayLike | None,
    nontarget_speakers: npt.ArrayLike | None,
) -> Draw:
    """Return the resampling of ``bootstrap_interval``; raises MetricError for speakers as described there."""
    if target_speakers is None and nontarget_speakers is None:
        return lambda generator: (_counts(generator, targets), _counts(generator, nontargets))
    if target_speakers is None or nontarget_speakers is None:
        raise MetricError("speakers must be given for both classes or for neither, got one")
    try:
        labels = np.asarray(target_speakers), np.asarray(nontarget_speakers)
    except ValueError as error:
        raise MetricError(f"speakers must form one array of names per class: {error}") from None
    for side, of, n in zip(("target", "nontarget"), labels, (targets, nontargets), strict=True):
        if of.shape != (n,):
            raise MetricError(f"{side} speakers must name one speaker per trial, shape ({n},), got shape {of.shape}")
    try:
        names, codes = np.unique(np.concatenate(labels), return_inverse=True)
    except TypeError as error:
        raise MetricError(
            f"speakers must all be texts or all be numbers: {error}; likely cause: a missing name"
        ) from error
    if names.size < 2:
        raise MetricError("resampling speakers needs at least 2 of them, got 1: the interval would have no width")

    def draw(generator: np.random.Generator) -> tuple[IntArray, IntArray]:
        while True:
            counts = _counts(generator, names.size)[codes]
            if counts[:targets].any() and counts[targets:].any():
                return counts[:targets], counts[targets:]

    return draw


def _counts(generator: np.random.Generator, n: int) -> IntArray:
    return np.bincount(generator.integers(n, size=n), minlength=n)


def _counter(
    targets: FloatArray, nontargets: FloatArray
) -> Callable[[IntArray, IntArray], tuple[FloatArray, FloatArray]]:
    """Rank the trials once; return a function from draws of each trial to both classes' counts at each score."""
    scores, ranks = np.unique(np.concatenate([targets, nontargets]), return_inverse=True)
    of_target, of_nontarget = ranks[: targets.size], ranks[targets.size :]

    def count(of: IntArray, weights: IntArray) -> FloatArray:
        return np.asarray(np.bincount(of, weights=weights, minlength=scores.size), dtype=np.float64)

    return lambda *weights: (count(of_target, weights[0]), count(of_nontarget, weights[1]))


def _cllr(targets: FloatArray, nontargets: FloatArray) -> Replicate:
    miss, accept = np.logaddexp(0.0, -targets), np.logaddexp(0.0, nontargets)
    return lambda of_targets, of_nontargets: in_bits(
        miss @ of_targets / of_targets.sum(), accept @ of_nontargets / of_nontargets.sum()
    )


def miss_rates_at(
    targets: FloatArray, nontargets: FloatArray, false_accept: FloatArray
) -> Callable[[IntArray, IntArray], FloatArray]:
    """Return FR at each FA of ``false_accept``, shape (rates,), as a function of counts; interpolated on the polyline.

    Where one FA has several FR, the lowest is taken.
    """
    count = _counter(targets, nontargets)

    def replicate(target_weights: IntArray, nontarget_weights: IntArray) -> FloatArray:
        accepted, rejected = rates_of(*count(target_weights, nontarget_weights))
        # First point at or below each rate; FA falls, so its negative is sorted.
        after = np.searchsorted(-accepted, -false_accept, side="left")
        before = np.maximum(after - 1, 0)
        drop = accepted[before] - accepted[after]
        along = np.divide(accepted[before] - false_accept, drop, out=np.ones_like(drop), where=drop > 0)
        return np.asarray(rejected[before] + along * (rejected[after] - rejected[before]), dtype=np.float64)

    return replicate
