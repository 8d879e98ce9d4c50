"""Error rates of scored trials, as pure functions of two score arrays.

Conventions
-----------
``target`` holds the scores of target trials and ``nontarget`` those of nontarget (impostor) trials: one-dimensional,
finite, in any unit; a higher score means that the claim is more likely true. A trial is accepted if its score is at or
above the threshold. FA, the false accept rate, is the share of nontarget trials accepted; FR, the false reject rate, is
the share of target trials rejected. Rates are shares in [0, 1], not percent. Trials are pooled over speakers.

No threshold separates equal scores, so the curve has one step for each distinct score. The equal error rate is where
linear interpolation between these steps gives FA = FR; it depends only on the order of the scores. The hull variant
(ROCCH-EER) uses the lower convex hull of the same points, and is never larger. By hand:

    targets {2, 3}, nontargets {0, 1}    0 by both
    all four tied                        0.5 by both
    targets {1, 3}, nontargets {0, 2}    0.5 interpolated, 0.25 by the hull

If any threshold between two scores would do, the middle of the gap is returned. A quantity that the scores do not
define raises MetricError; a missing class never counts as an error rate of zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError, check_type
from pipeline.metrics.curves import ErrorCurve, as_row, as_scores, check_curve, crossing, error_curve, threshold_for

# Points less than this far below a hull edge, as a rate, lie on it up to rounding.
_COLLINEAR = 1e-12


@dataclass(frozen=True, slots=True)
class EqualErrorRate:
    """The rate, a share, at which FA equals FR, and a finite threshold at which they are equal or cross."""

    rate: float
    threshold: float


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Both error rates, shares, at one threshold; None for a class without trials."""

    false_accept: float | None
    false_reject: float | None


def equal_error_rate(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> EqualErrorRate:
    """Return the interpolated equal error rate, in [0, 1], and its threshold.

    Parameters
    ----------
    target, nontarget : arrays (targets,) and (nontargets,)
        Scores; higher is more likely the claimed speaker.

    Returns
    -------
    EqualErrorRate
        If FA = FR at some threshold, ``threshold`` is the middle of the gap between scores where that holds: under
        perfect separation, halfway from the highest nontarget to the lowest target. Otherwise FA and FR cross at one
        score, tied or not, and ``threshold`` is that score: accepting it makes FA the larger, rejecting it FR.

    Raises
    ------
    MetricError
        As ``error_curve``.

    Examples
    --------
    >>> from pipeline import equal_error_rate
    >>> equal_error_rate([1.0, 3.0], [0.0, 2.0])
    EqualErrorRate(rate=0.5, threshold=1.5)
    """
    return equal_error_rate_of(error_curve(target, nontarget))


def equal_error_rate_of(curve: ErrorCurve) -> EqualErrorRate:
    """Return ``equal_error_rate`` for the scores of ``curve``. Takes O(steps)."""
    check_curve(curve)
    k, rate = crossing(curve.false_accept, curve.false_reject)
    if curve.false_accept[k] == curve.false_reject[k]:
        return EqualErrorRate(rate, threshold_for(curve, k))
    return EqualErrorRate(rate, float(curve.thresholds[k - 1]))


def equal_error_rate_hull_of(curve: ErrorCurve) -> float:
    """Return the equal error rate on the convex hull of the ROC curve (ROCCH-EER), in [0, 0.5].

    It is the error rate after the best monotone recalibration of the scores (Brummer and de Villiers, The BOSARIS
    Toolkit, 2013). A point on an edge of the hull means a random choice between two thresholds, so no single threshold
    is returned.
    """
    check_curve(curve)
    fa, fr = curve.false_accept, curve.false_reject
    # A chord across the diagonal FA = FR is narrowed down to one edge of the hull: the point farthest below the chord
    # is a corner of the hull, and replaces the end of the chord on the same side of the diagonal. Each pass is one
    # array operation.
    above, below = 0, fa.size - 1
    while below - above > 1:
        run, rise = fa[above] - fa[below], fr[below] - fr[above]
        inside = slice(above + 1, below)
        depth = rise * (fa[inside] - fa[above]) + run * (fr[inside] - fr[above])
        k = above + 1 + int(np.argmin(depth))
        if depth[k - above - 1] >= -_COLLINEAR * (run + rise):
            break
        if fa[k] >= fr[k]:
            above = k
        else:
            below = k
    excess, lack = float(fa[above] - fr[above]), float(fr[below] - fa[below])
    return float(fa[above]) - float(fa[above] - fa[below]) * excess / (excess + lack)


def rates_at(target: npt.ArrayLike, nontarget: npt.ArrayLike, threshold: float) -> ErrorRates:
    """Return FA and FR at one threshold.

    Parameters
    ----------
    target, nontarget : arrays, shapes (targets,) and (nontargets,)
        Scores; either class may be empty.
    threshold : float
        Lowest score that is accepted; it may be infinite.

    Returns
    -------
    ErrorRates

    Raises
    ------
    InputError, MetricError
        For a threshold that is NaN or not a number, and for scores that are not one-dimensional, numeric and finite.

    Examples
    --------
    >>> from pipeline.metrics import rates_at
    >>> rates_at([1.0, 3.0], [0.0, 2.0], 2.0)
    ErrorRates(false_accept=0.5, false_reject=0.5)
    """
    check_type("threshold", threshold, Real, "a score")
    if math.isnan(threshold):
        raise MetricError("the threshold must be a number, got nan")
    targets, nontargets = as_row(target, "target scores"), as_row(nontarget, "nontarget scores")
    return ErrorRates(
        false_accept=float(np.mean(nontargets >= threshold)) if nontargets.size else None,
        false_reject=float(np.mean(targets < threshold)) if targets.size else None,
    )


def false_reject_at(curve: ErrorCurve, false_accept: float) -> float:
    """Return the lowest FR of any threshold whose FA does not exceed ``false_accept``, a share in [0, 1].

    In the terms of ISO/IEC 19795-1, the FNMR at an FMR. Raises InputError unless ``false_accept`` is a number,
    MetricError unless it is a share.

    Examples
    --------
    >>> import pipeline
    >>> from pipeline.metrics import false_reject_at
    >>> false_reject_at(pipeline.error_curve([1.0, 3.0], [0.0, 2.0]), 0.01)
    0.5
    """
    check_curve(curve)
    check_share(false_accept, "false accept")
    return float(curve.false_reject[np.argmax(curve.false_accept <= false_accept)])


def false_accept_at(curve: ErrorCurve, false_reject: float) -> float:
    """Return the lowest FA of any threshold whose FR does not exceed ``false_reject``, a share: the FMR at an FNMR.

    Raises as ``false_reject_at``.
    """
    check_curve(curve)
    check_share(false_reject, "false reject")
    return float(curve.false_accept[np.flatnonzero(curve.false_reject <= false_reject)[-1]])


def check_share(rate: float, name: str) -> None:
    """Raise InputError unless ``rate`` is a number, MetricError unless it lies in [0, 1]."""
    check_type(f"{name} rate", rate, Real, "a share from 0 to 1")
    if not 0.0 <= rate <= 1.0:
        raise MetricError(f"a {name} rate must lie in [0, 1], got {rate}; percent for a share?")


def threshold_at_false_accept(
    nontarget: npt.ArrayLike, rate: float, *, weights: npt.NDArray[np.float64] | None = None
) -> float:
    """Return the lowest threshold whose FA does not exceed ``rate``, a share in [0, 1].

    That is the next float above the highest score to reject, or the lowest score if none is rejected.

    Parameters
    ----------
    nontarget : array, shape (n,)
        Scores in any unit.
    rate : float
        Share in [0, 1].
    weights : array, shape (n,), optional
        Weight of each trial, at least 0; by default all are equal.

    Returns
    -------
    float
        In the unit of the scores.

    Raises
    ------
    InputError, MetricError
        For a rate that is not a number, and for one outside [0, 1] and scores as ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import threshold_at_false_accept
    >>> round(threshold_at_false_accept([0.0, 1.0, 2.0, 3.0], 0.25), 6)
    2.0
    """
    check_share(rate, "false accept")
    scores = as_scores(nontarget, "nontarget")
    order = np.argsort(-scores, kind="stable")
    # Counts divided by their sum, the share that rates_at reports. Flooring rate * n could lose a trial to rounding.
    accepted = np.arange(1.0, scores.size + 1.0) if weights is None else np.cumsum(weights[order])
    permitted = int(np.searchsorted(accepted / accepted[-1], rate, side="right"))
    if permitted == scores.size:
        return float(scores.min())
    return float(np.nextafter(scores[order[permitted]], np.inf))
