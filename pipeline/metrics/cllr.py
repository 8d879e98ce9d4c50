"""Cllr, the cost of log-likelihood ratios, and how much of it is due to calibration.

Conventions
-----------
Those of ``error_rates``. Log-likelihood ratios are natural logarithms, costs are in bits. Two minima show what
recalibration of the same trials could reach. Both are fitted to the trials that they evaluate, so they are yardsticks,
not calibrations to use:

- by pooling adjacent violators (PAV): trials are sorted by score and neighbouring groups merged until the share of
  targets rises from group to group. No other increasing map of the scores costs less, at any prior and any costs. The
  boundaries between groups are the corners of the convex hull of the ROC curve.
- by a straight line, with only a scale and an offset. PAV fits a step to every few trials, so that its minimum is
  optimistic if few scores overlap.

Cllr minus the affine minimum is what a better scale and offset would save; the affine minimum minus the PAV minimum is
the cost of the map not being a line. Brummer and du Preez, Application-independent evaluation of speaker detection,
2006, and The PAV algorithm optimizes binary proper scoring rules, 2013; Ferrer and Ramos, Evaluating posterior
probabilities: decision theory, proper scoring rules, and calibration, 2024.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pipeline.metrics.curves import FloatArray, IntArray, both_scores, tied_counts


def log_likelihood_ratio_cost(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> float:
    """Return Cllr, the cost of log-likelihood ratios, which includes both discrimination and calibration.

    Parameters
    ----------
    target, nontarget : arrays, shapes (targets,) and (nontargets,)
        Log-likelihood ratios in nats. For other scores, Cllr has no meaning.

    Returns
    -------
    float
        Bits, 0 or more. A system that always gives 0 costs 1 bit; a higher cost is worse than deciding by the prior
        alone.

    Raises
    ------
    MetricError
        As ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import log_likelihood_ratio_cost
    >>> round(log_likelihood_ratio_cost([2.0, 4.0], [-3.0, 0.0]), 3)
    0.32
    """
    targets, nontargets = both_scores(target, nontarget)
    # Cllr = (mean log2(1 + exp(-l)) over targets + mean log2(1 + exp(l)) over nontargets) / 2
    return in_bits(np.logaddexp(0.0, -targets).mean(), np.logaddexp(0.0, nontargets).mean())


def in_bits(miss: float, accept: float) -> float:
    """Return Cllr, in bits, by the mean cost in nats of a target and of a nontarget trial."""
    return float(miss + accept) / (2.0 * math.log(2.0))


def pool_counts(targets: npt.ArrayLike, nontargets: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the counts of targets and of nontargets in each group, ascending, shapes (groups,).

    The arguments are the counts at each distinct score, shapes (scores,), of two non-empty classes. Tied trials form
    one step from the start, since nothing orders them. Takes O(scores).
    """
    from scipy.optimize import isotonic_regression  # slow to import, and seldom needed

    of_target, of_nontarget = np.asarray(targets, dtype=np.float64), np.asarray(nontargets, dtype=np.float64)
    drawn = _run_starts(of_target, of_nontarget)
    of_target, of_nontarget = np.add.reduceat(of_target, drawn), np.add.reduceat(of_nontarget, drawn)
    weights = of_target + of_nontarget
    starts = isotonic_regression(of_target / weights, weights=weights).blocks[:-1]
    # Counted again, as exact sums of whole numbers: the running means that made the groups are rounded.
    return np.add.reduceat(of_target, starts), np.add.reduceat(of_nontarget, starts)


def pooled_cllr(targets: npt.ArrayLike, nontargets: npt.ArrayLike) -> float:
    """Return the minimum Cllr, in bits, from counts at each distinct score, as for ``pool_counts``."""
    of_target, of_nontarget = pool_counts(targets, nontargets)
    with np.errstate(divide="ignore"):
        # Log odds of a target in each group minus those over all trials.
        llrs = np.log(of_target) - np.log(of_nontarget) - math.log(of_target.sum() / of_nontarget.sum())
    # A group with only one class has an infinite ratio of the right sign, which costs nothing.
    missed, accepted = of_target > 0, of_nontarget > 0
    miss = of_target[missed] @ np.logaddexp(0.0, -llrs[missed]) / of_target.sum()
    accept = of_nontarget[accepted] @ np.logaddexp(0.0, llrs[accepted]) / of_nontarget.sum()
    return in_bits(miss, accept)


def _run_starts(of_target: FloatArray, of_nontarget: FloatArray) -> IntArray:
    """Return the starts of runs of scores with trials of only one class, which would be pooled anyway."""
    drawn = np.flatnonzero(of_target + of_nontarget)
    targets, nontargets = of_target[drawn] > 0, of_nontarget[drawn] > 0
    goes_on = (targets[1:] == targets[:-1]) & (nontargets[1:] == nontargets[:-1]) & (targets[1:] != nontargets[1:])
    return np.asarray(drawn[np.append(True, ~goes_on)])


def minimum_cllr(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> float:
    """Return Cllr after the best monotone calibration, which depends only on the order of scores.

    By hand: targets {1, 3}, nontargets {0, 2} give groups {0}, {1, 2}, {3} with ratios -inf, 0 and inf, and 0.5 bits.

    Parameters
    ----------
    target, nontarget : arrays, shapes (targets,) and (nontargets,)
        Scores in any unit.

    Returns
    -------
    float
        Bits, in [0, 1].

    Raises
    ------
    MetricError
        As ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import minimum_cllr
    >>> minimum_cllr([1.0, 3.0], [0.0, 2.0])
    0.5
    """
    _, of_target, of_nontarget = tied_counts(*both_scores(target, nontarget))
    return pooled_cllr(of_target, of_nontarget)


def affine_cllr(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> float:
    """Return the least Cllr over l = slope * score + offset with slope 0 or more.

    Parameters
    ----------
    target, nontarget : arrays, shapes (targets,) and (nontargets,)
        Scores in any unit.

    Returns
    -------
    float
        Bits, in [0, 1]: 0 if all targets score above all nontargets (the slope is unbounded), 1 if the best line would
        have a negative slope.

    Raises
    ------
    MetricError
        As ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import affine_cllr
    >>> round(affine_cllr([1.0, 3.0], [0.0, 2.0]), 3)
    0.847
    """
    targets, nontargets = both_scores(target, nontarget)
    if targets.min() > nontargets.max():
        return 0.0
    # Scaled first, so that no sum of large scores overflows.
    largest = max(float(np.abs(targets).max()), float(np.abs(nontargets).max())) or 1.0
    targets, nontargets = targets / largest, nontargets / largest
    middle = 0.5 * (targets.mean() + nontargets.mean())
    targets, nontargets = targets - middle, nontargets - middle
    spread = float(np.std(targets)) + float(np.std(nontargets))
    # At slope 0 the cost falls with the slope only if targets are higher on average.
    if targets.mean() <= nontargets.mean() or spread == 0.0:
        return 1.0
    return min(1.0, _least(targets / spread, nontargets / spread))


def _least(targets: FloatArray, nontargets: FloatArray) -> float:
    """Minimise over slope and offset; the cost is convex."""
    from scipy.optimize import minimize  # slow to import, and seldom needed
    from scipy.special import expit

    def cost(line: FloatArray) -> tuple[float, FloatArray]:
        slope, offset = line
        of_targets, of_nontargets = -(slope * targets + offset), slope * nontargets + offset
        value = np.logaddexp(0.0, of_targets).mean() + np.logaddexp(0.0, of_nontargets).mean()
        missed, accepted = expit(of_targets), expit(of_nontargets)
        by_slope = (accepted * nontargets).mean() - (missed * targets).mean()
        scale = 2.0 * math.log(2.0)
        return float(value) / scale, np.array([by_slope, accepted.mean() - missed.mean()]) / scale

    bounds = [(0.0, None), (None, None)]
    options = {"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-10}
    return float(minimize(cost, np.array([5.0, 0.0]), jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun)
