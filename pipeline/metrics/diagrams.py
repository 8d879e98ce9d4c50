"""Data of the calibration figures: Bayes error rates, reliability, histograms. No drawing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError, check_type
from pipeline.metrics.cllr import pool_counts
from pipeline.metrics.curves import FloatArray, IntArray, as_row, both_scores, rates_of, tied_counts
from pipeline.metrics.sample_size import wilson_interval

# Natural-log odds of a target trial, from 1 in 1100 to 1100 in 1: wider than any operating point here.
PRIOR_LOG_ODDS = np.linspace(-7.0, 7.0, 141)
_LARGEST_LOG_ODDS = 100.0


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Predicted probability and observed share of targets, in bins of the prediction; arrays of shape (bins,).

    ``predicted`` is the mean probability of a target in the bin, ``observed`` the share of targets with its Wilson
    interval from ``low`` to ``high`` at ``level``, and ``trials`` the count. Empty bins are left out.
    """

    predicted: FloatArray
    observed: FloatArray
    low: FloatArray
    high: FloatArray
    trials: IntArray
    level: float


def bayes_error_rates(
    target_llrs: npt.ArrayLike, nontarget_llrs: npt.ArrayLike, log_odds: npt.ArrayLike = PRIOR_LOG_ODDS
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the actual and the minimum detection cost over a range of priors, at equal costs of both errors.

    This is the normalised Bayes error-rate plot of Brummer and de Villiers, The BOSARIS Toolkit, 2013. Takes O(n log n)
    and O(priors log n).

    Parameters
    ----------
    target_llrs, nontarget_llrs : arrays, shapes (targets,) and (nontargets,)
        Log-likelihood ratios in nats.
    log_odds : array, shape (priors,)
        Log odds of a target trial, in nats, within 100 of zero. An operating point with unequal costs is found at its
        ``log_odds``.

    Returns
    -------
    log_odds : array, shape (priors,)
    actual : array, shape (priors,)
        Cost of Bayes decisions by the ratios; deciding by the prior alone costs 1.
    minimum : array, shape (priors,)
        Cost at the best threshold.

    Raises
    ------
    MetricError
        For log odds out of range and for scores as ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import bayes_error_rates
    >>> log_odds, actual, minimum = bayes_error_rates([-1.0, 3.0], [-3.0, -2.0], [0.0])
    >>> actual.tolist(), minimum.tolist()
    ([0.5], [0.0])
    """
    odds = as_row(log_odds, "log odds")
    if not (np.abs(odds) <= _LARGEST_LOG_ODDS).all():
        got = f"{odds.min():g} to {odds.max():g}"
        raise MetricError(f"log odds must lie within {_LARGEST_LOG_ODDS:g} of zero, got {got}")
    targets, nontargets = map(np.sort, both_scores(target_llrs, nontarget_llrs))
    # prior / min(prior, 1 - prior) and (1 - prior) / min(prior, 1 - prior), without the priors' rounding.
    miss, accept = np.exp(np.maximum(odds, 0.0)), np.exp(np.maximum(-odds, 0.0))
    rejected = np.searchsorted(targets, -odds, side="left") / targets.size
    accepted = (nontargets.size - np.searchsorted(nontargets, -odds, side="left")) / nontargets.size
    # At every prior, the minimum is at a corner of the ROC curve's convex hull.
    corner_accepted, corner_rejected = rates_of(*pool_counts(*tied_counts(targets, nontargets)[1:]))
    minimum = (np.outer(miss, corner_rejected) + np.outer(accept, corner_accepted)).min(axis=1)
    return odds, miss * rejected + accept * accepted, minimum


def reliability(
    target_llrs: npt.ArrayLike, nontarget_llrs: npt.ArrayLike, *, bins: int = 10, level: float = 0.95
) -> Reliability:
    """Return predicted probabilities of a target and observed shares, at the list's own share of targets as prior.

    The probability is the logistic function of the log-likelihood ratio plus the log odds of this prior. Wilson,
    Probable inference, the law of succession, and statistical inference, 1927.

    Parameters
    ----------
    target_llrs, nontarget_llrs : arrays, shapes (targets,) and (nontargets,)
        Log-likelihood ratios in nats.
    bins : int
        Number of bins of equal width in [0, 1].
    level : float
        Nominal coverage of the intervals, in (0, 1).

    Returns
    -------
    Reliability

    Raises
    ------
    MetricError
        For no bins, a level out of range, and scores as ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import reliability
    >>> reliability([1.0, 2.0, -1.0], [-2.0, -1.0, 1.0], bins=2).observed.round(2).tolist()
    [0.33, 0.67]
    """
    check_type("bins", bins, Integral, "a number of bins")
    check_type("level", level, Real, "a share, as 0.95,")
    if bins < 1 or not 0.0 < level < 1.0:
        raise MetricError(f"bins must be 1 or more and the level between 0 and 1, got {bins} and {level}")
    targets, nontargets = both_scores(target_llrs, nontarget_llrs)
    log_odds = math.log(targets.size / nontargets.size)
    probability = np.exp(-np.logaddexp(0.0, -np.concatenate([targets, nontargets]) - log_odds))
    bin_of = np.minimum((probability * bins).astype(np.intp), bins - 1)
    trials = np.bincount(bin_of, minlength=bins)
    filled = trials > 0
    hits = np.bincount(bin_of[: targets.size], minlength=bins)[filled]
    total = np.bincount(bin_of, weights=probability, minlength=bins)[filled]
    low, high = wilson_interval(hits, trials[filled], level)
    return Reliability(total / trials[filled], hits / trials[filled], low, high, trials[filled], level)


def score_histogram(
    target: npt.ArrayLike,
    nontarget: npt.ArrayLike,
    *,
    limits: tuple[float, float] | None = None,
    bins: int = 40,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Count scores in bins of equal width, which include their lower edge.

    Parameters
    ----------
    target, nontarget : arrays, shapes (targets,) and (nontargets,)
        Scores in any unit.
    limits : tuple of two floats, optional
        Outermost edges, by default the range of scores. Scores beyond these count in the outermost bins.
    bins : int
        Number of bins.

    Returns
    -------
    edges : array, shape (bins + 1,)
    of_target, of_nontarget : arrays, shape (bins,)
        Share of the trials of each class in each bin; those of a class sum to 1.

    Raises
    ------
    MetricError
        For no bins, limits that do not rise or are not finite, and scores as ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import score_histogram
    >>> score_histogram([1.0, 3.0], [0.0, 2.0], bins=2)[1].tolist()
    [0.5, 0.5]
    """
    targets, nontargets = both_scores(target, nontarget)
    both = np.concatenate([targets, nontargets])
    low, high = limits if limits is not None else (float(both.min()), float(both.max()))
    if limits is None and low == high:
        low, high = low - 0.5, high + 0.5
    check_type("bins", bins, Integral, "a number of bins")
    if bins < 1 or not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise MetricError(f"a histogram needs 1 bin or more and rising, finite limits, got {bins} and {low}, {high}")
    edges = np.linspace(low, high, bins + 1)
    shares = [np.histogram(np.clip(side, low, high), edges)[0] / side.size for side in (targets, nontargets)]
    return edges, shares[0], shares[1]
