"""False accept and false reject rates against the threshold; conventions as in ``error_rates``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError, check_type

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class ErrorCurve:
    """Both error rates at every distinct threshold; three arrays of shape (steps + 1,).

    ``thresholds`` has the distinct scores, ascending, and then +inf. ``false_accept`` falls from 1 to 0,
    ``false_reject`` rises from 0 to 1; both are shares. Point k applies to every threshold above ``thresholds[k - 1]``,
    up to and including ``thresholds[k]``.
    """

    thresholds: FloatArray
    false_accept: FloatArray
    false_reject: FloatArray


def error_curve(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> ErrorCurve:
    """Return the false accept and false reject rates at each distinct score.

    Parameters
    ----------
    target, nontarget : arrays (targets,) and (nontargets,)
        Scores in any finite unit; higher is more likely the claimed speaker.

    Returns
    -------
    ErrorCurve

    Raises
    ------
    MetricError
        For scores that are not one-dimensional, numeric and finite, for an empty class, and for labels in place of
        scores.

    Examples
    --------
    >>> import pipeline
    >>> pipeline.error_curve([1.0, 3.0], [0.0, 2.0]).false_accept.tolist()
    [1.0, 0.5, 0.5, 0.0, 0.0]
    """
    targets, nontargets = both_scores(target, nontarget)
    _check_no_labels(np.asarray(target), np.asarray(nontarget))
    scores, of_target, of_nontarget = tied_counts(targets, nontargets)
    return ErrorCurve(np.append(scores, np.inf), *rates_of(of_target, of_nontarget))


def _check_no_labels(*classes: npt.NDArray[Any]) -> None:
    """Raise MetricError if one class holds labels, 0 and 1, as many as there are scores in the other."""
    for labels, scores in (classes, classes[::-1]):
        if (
            labels.dtype.kind in "iu"
            and scores.dtype.kind == "f"
            and labels.shape == scores.shape
            and np.array_equal(np.unique(labels), [0, 1])
        ):
            raise MetricError(
                f"scores of target and of nontarget trials were expected, got {len(labels)} labels, 0 and 1, and as"
                " many scores; give scores[labels == 1] and scores[labels == 0]"
            )


def tied_counts(targets: FloatArray, nontargets: FloatArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the distinct scores, ascending, and the counts of targets and nontargets at each, shapes (scores,).

    Both classes are as returned by ``as_scores``. Takes O(n log n).
    """
    scores = np.concatenate([targets, nontargets])
    scores.sort()
    first = np.append(True, scores[1:] != scores[:-1])
    starts = np.flatnonzero(first)
    scores = scores[first]
    of_all = np.diff(starts, append=first.size)
    # Only the smaller class is looked up, sorted for memory locality.
    fewer = np.sort(min(targets, nontargets, key=len))
    of_fewer = np.bincount(np.searchsorted(scores, fewer), minlength=scores.size)
    others = np.subtract(of_all, of_fewer, out=of_all)
    return (scores, of_fewer, others) if targets.size <= nontargets.size else (scores, others, of_fewer)


def rates_of(of_target: npt.NDArray[Any], of_nontarget: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Return FA and FR at each score, and above the highest, from the counts at each; shapes (scores + 1,)."""
    rejected, refused = _running_totals(of_target), _running_totals(of_nontarget)
    total = refused[-1]
    return np.subtract(total, refused, out=refused) / total, rejected / rejected[-1]


def _running_totals(counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sums of the first 0, 1, 2 ... counts, shape (counts + 1,)."""
    totals = np.zeros(counts.size + 1, dtype=counts.dtype)
    np.cumsum(counts, out=totals[1:])
    return totals


def both_scores(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the scores of both classes, each as ``as_scores`` does."""
    return as_scores(target, "target"), as_scores(nontarget, "nontarget")


def as_scores(values: npt.ArrayLike, side: str) -> FloatArray:
    """Return the scores of one class as ``as_row`` does; raises MetricError, naming the class, if there are none."""
    scores = as_row(values, f"{side} scores")
    if not scores.size:
        raise MetricError(
            f"no {side} scores: an error rate needs at least one trial of each class, got none;"
            f" likely cause: the list holds no {side} trials, or none of them could be scored"
        )
    return scores


def as_row(values: npt.ArrayLike, what: str) -> FloatArray:
    """Return one-dimensional numbers as float64; ``what`` names them in the MetricError."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise MetricError(f"{what} must form one array of numbers: {error}") from error
    if np.ma.is_masked(values):
        raise MetricError(f"{what} must not be masked, got a masked array; a failed trial? Take its compressed()")
    if array.ndim != 1:
        raise MetricError(f"{what} must be one-dimensional, got shape {array.shape}")
    if array.size and array.dtype.kind not in "fiu":
        raise MetricError(f"{what} must be real numbers, got {array.dtype}")
    # Adding zero turns -0.0 into 0.0, so that the two tie in sorting and hashing.
    numbers = array.astype(np.float64) + 0.0
    if not np.isfinite(numbers).all():
        at = int(np.argmin(np.isfinite(numbers)))
        raise MetricError(f"{what} must be finite, got {numbers[at]} at index {at}; a failed trial?")
    return numbers


def check_curve(curve: ErrorCurve) -> None:
    """Raise InputError unless ``curve`` is an ErrorCurve."""
    check_type("curve", curve, ErrorCurve, "an ErrorCurve, as error_curve(target, nontarget),")


def crossing(false_accept: FloatArray, false_reject: FloatArray) -> tuple[int, float]:
    """Return the first point k at which FA does not exceed FR, and the rate where the interpolated curve has FA = FR.

    The rates must run from FA 1, FR 0 to FA 0, FR 1, as those of an ErrorCurve do; repeated points are fine.
    """
    k = int(np.argmax(false_accept <= false_reject))
    excess = float(false_accept[k - 1] - false_reject[k - 1])
    lack = float(false_reject[k] - false_accept[k])
    if lack == 0.0:
        return k, float(false_accept[k])
    drop = float(false_accept[k - 1] - false_accept[k])
    return k, float(false_accept[k - 1]) - drop * excess / (excess + lack)


def threshold_for(curve: ErrorCurve, k: int) -> float:
    """Return a finite threshold that realises point k of the curve, midway between its neighbouring scores."""
    upper = float(curve.thresholds[k])
    if k == 0:
        return upper
    lower = float(curve.thresholds[k - 1])
    if upper == np.inf:
        return float(np.nextafter(lower, np.inf))
    middle = lower / 2 + upper / 2  # the sum of two large scores would overflow
    return middle if lower < middle else upper
