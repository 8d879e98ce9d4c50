"""Statistics of a resample that is held as counts over the original trials.

The trials are ranked once; each replicate is then two counts and two running sums, never another sort. A factory
takes the scores of both classes and an operating point, and gives a function from the counts of the targets and
of the nontargets, shapes (targets,) and (nontargets,), to the statistic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from pipeline.evaluation.costs import OperatingPoint
from pipeline.evaluation.curves import FloatArray, IntArray, crossing
from pipeline.evaluation.pav import pool_counts

Statistic = Literal["eer", "min_dcf", "cllr", "min_cllr"]
Replicate = Callable[[IntArray, IntArray], float]
ArrayReplicate = Callable[[IntArray, IntArray], FloatArray]


class _Ranked:
    """Trials of both classes, ranked together; ties share a rank."""

    def __init__(self, targets: FloatArray, nontargets: FloatArray) -> None:
        scores, ranks = np.unique(np.concatenate([targets, nontargets]), return_inverse=True)
        self.size = scores.size
        self.of_target, self.of_nontarget = ranks[: targets.size], ranks[targets.size :]

    def counts(self, target_weights: IntArray, nontarget_weights: IntArray) -> tuple[FloatArray, FloatArray]:
        """Targets and nontargets drawn at each distinct score, shapes (scores,)."""
        return self._count(self.of_target, target_weights), self._count(self.of_nontarget, nontarget_weights)

    def _count(self, ranks: IntArray, weights: IntArray) -> FloatArray:
        return np.asarray(np.bincount(ranks, weights=weights, minlength=self.size), dtype=np.float64)

    def rates(self, target_weights: IntArray, nontarget_weights: IntArray) -> tuple[FloatArray, FloatArray]:
        """FA and FR at each distinct score and beyond the highest, shapes (scores + 1,)."""
        missed, refused = (_running(counts) for counts in self.counts(target_weights, nontarget_weights))
        return (refused[-1] - refused) / refused[-1], missed / missed[-1]


def _running(counts: FloatArray) -> FloatArray:
    totals = np.zeros(counts.size + 1)
    np.cumsum(counts, out=totals[1:])
    return totals


def _eer(targets: FloatArray, nontargets: FloatArray, _: OperatingPoint) -> Replicate:
    ranked = _Ranked(targets, nontargets)
    return lambda *weights: crossing(*ranked.rates(*weights))[1]


def _min_dcf(targets: FloatArray, nontargets: FloatArray, point: OperatingPoint) -> Replicate:
    ranked = _Ranked(targets, nontargets)
    return lambda *weights: float(point.cost(*ranked.rates(*weights)).min())


def _min_cllr(targets: FloatArray, nontargets: FloatArray, _: OperatingPoint) -> Replicate:
    ranked = _Ranked(targets, nontargets)
    return lambda *weights: pool_counts(*ranked.counts(*weights)).cllr


def _cllr(targets: FloatArray, nontargets: FloatArray, _: OperatingPoint) -> Replicate:
    miss, accept = np.logaddexp(0.0, -targets), np.logaddexp(0.0, nontargets)

    def replicate(target_weights: IntArray, nontarget_weights: IntArray) -> float:
        mean_miss = miss @ target_weights / target_weights.sum()
        mean_accept = accept @ nontarget_weights / nontarget_weights.sum()
        return float(mean_miss + mean_accept) / (2.0 * math.log(2.0))

    return replicate


STATISTICS: Mapping[str, Callable[[FloatArray, FloatArray, OperatingPoint], Replicate]] = {
    "eer": _eer,
    "min_dcf": _min_dcf,
    "cllr": _cllr,
    "min_cllr": _min_cllr,
}


def miss_rates_at(targets: FloatArray, nontargets: FloatArray, false_accept: FloatArray) -> ArrayReplicate:
    """Replicates of FR at each FA of ``false_accept``, shape (rates,), on the polyline through the steps.

    Where one FA has several FR, the lowest: that of the highest threshold which reaches it from above.
    """
    ranked = _Ranked(targets, nontargets)

    def replicate(target_weights: IntArray, nontarget_weights: IntArray) -> FloatArray:
        accepted, rejected = ranked.rates(target_weights, nontarget_weights)
        # First point at or below each rate; FA falls, so its negative is sorted.
        after = np.searchsorted(-accepted, -false_accept, side="left")
        before = np.maximum(after - 1, 0)
        drop = accepted[before] - accepted[after]
        along = np.divide(accepted[before] - false_accept, drop, out=np.ones_like(drop), where=drop > 0)
        return np.asarray(rejected[before] + along * (rejected[after] - rejected[before]), dtype=np.float64)

    return replicate
