"""The best monotone calibration of a set of scores, by pooling adjacent violators, and the Cllr it leaves.

Trials are sorted by score and neighbouring groups merged until the share of targets rises from group to group.
No other rising map of the scores costs less on these trials, whatever the prior and the costs, so what a system
loses against it is a fault of calibration and not of order. It is fitted to the very trials that it judges: a
yardstick, not a calibration to use. The boundaries between groups are the corners of the convex hull of the ROC
curve. Brummer and du Preez, Application-independent evaluation of speaker detection, 2006, and The PAV algorithm
optimizes binary proper scoring rules, 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.evaluation.curves import FloatArray, as_scores, tied_counts


@dataclass(frozen=True, slots=True, eq=False)
class PooledGroups:
    """Groups of trials in ascending order of score, as arrays of shape (groups,).

    ``targets`` and ``nontargets`` are counts, which may be those of a weighted sample. ``starts`` is the index
    of the first distinct score of each group.
    """

    targets: FloatArray
    nontargets: FloatArray
    starts: npt.NDArray[np.intp]

    @property
    def llrs(self) -> FloatArray:
        """Log-likelihood ratio of each group, logit of its share of targets less that of all; ends may be infinite."""
        with np.errstate(divide="ignore"):
            odds = np.log(self.targets) - np.log(self.nontargets)
        return np.asarray(odds - math.log(self.targets.sum() / self.nontargets.sum()), dtype=np.float64)

    @property
    def cllr(self) -> float:
        """Cllr in bits when every trial is answered with the ratio of its group."""
        llrs = self.llrs
        # A group of one class alone is answered by an infinite ratio, on the right side, which costs nothing.
        missed, accepted = self.targets > 0, self.nontargets > 0
        miss = self.targets[missed] @ np.logaddexp(0.0, -llrs[missed]) / self.targets.sum()
        accept = self.nontargets[accepted] @ np.logaddexp(0.0, llrs[accepted]) / self.nontargets.sum()
        return float(miss + accept) / (2.0 * math.log(2.0))


def pool_counts(targets: npt.ArrayLike, nontargets: npt.ArrayLike) -> PooledGroups:
    """Pool the counts of both classes at each distinct score, ascending; shapes (scores,), one total above 0 each.

    Trials that tie are one step from the start: nothing can order them. Takes O(scores).
    """
    from scipy.optimize import isotonic_regression  # slow to import, and seldom needed

    of_target, of_nontarget = np.asarray(targets, dtype=np.float64), np.asarray(nontargets, dtype=np.float64)
    drawn = _run_starts(of_target, of_nontarget)
    of_target, of_nontarget = np.add.reduceat(of_target, drawn), np.add.reduceat(of_nontarget, drawn)
    weights = of_target + of_nontarget
    starts = isotonic_regression(of_target / weights, weights=weights).blocks[:-1]
    # Counted again: sums of whole numbers, free of the rounding of the running means that found the groups.
    return PooledGroups(np.add.reduceat(of_target, starts), np.add.reduceat(of_nontarget, starts), drawn[starts])


def _run_starts(of_target: FloatArray, of_nontarget: FloatArray) -> npt.NDArray[np.intp]:
    """Where runs of scores with trials of one class alone begin, which end up in one group; others by themselves."""
    drawn = np.flatnonzero(of_target + of_nontarget)
    targets, nontargets = of_target[drawn] > 0, of_nontarget[drawn] > 0
    goes_on = (targets[1:] == targets[:-1]) & (nontargets[1:] == nontargets[:-1]) & (targets[1:] != nontargets[1:])
    return np.asarray(drawn[np.append(True, ~goes_on)])


def pav_llrs(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Log-likelihood ratios of the targets and of the nontargets after the best monotone calibration, nats.

    In the order given, shapes (targets,) and (nontargets,). Infinite below the lowest target and above the
    highest nontarget. Raises MetricError as ``error_curve`` does.
    """
    targets, nontargets = as_scores(target, "target"), as_scores(nontarget, "nontarget")
    scores, of_target, of_nontarget = tied_counts(targets, nontargets)
    groups = pool_counts(of_target, of_nontarget)
    lowest, llrs = scores[groups.starts], groups.llrs
    of = [llrs[np.searchsorted(lowest, side, side="right") - 1] for side in (targets, nontargets)]
    return of[0], of[1]


def minimum_cllr(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> float:
    """Cllr in bits, in [0, 1], after the best monotone calibration: what the order of the scores leaves to lose.

    Scores in any unit. By hand: targets {1, 3}, nontargets {0, 2} give groups {0}, {1, 2}, {3} with ratios -inf,
    0 and inf, and 0.5 bits. Raises MetricError as ``error_curve`` does.
    """
    _, of_target, of_nontarget = tied_counts(as_scores(target, "target"), as_scores(nontarget, "nontarget"))
    return pool_counts(of_target, of_nontarget).cllr
