"""What errors cost: detection costs at named operating points, and the cost of log-likelihood ratios.

A detection cost is ``cost_miss * prior * FR + cost_false_accept * (1 - prior) * FA`` over that of the better of
accepting all and rejecting all, so that 1 is worth as much as not listening. The minimum takes the best threshold
that the trials at hand allow, and needs only an order; the actual cost takes the threshold that Bayes' rule
prescribes, and so needs scores that are log-likelihood ratios: natural logs, calibrated. The conventions of
``metrics`` hold here too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError
from pipeline.evaluation.curves import ErrorCurve, FloatArray, as_scores, error_curve, threshold_for
from pipeline.evaluation.pav import minimum_cllr


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """An application: ``prior`` is the probability of a true claim, in (0, 1); costs are positive and finite.

    Raises MetricError outside those ranges.
    """

    prior: float
    cost_miss: float = 1.0
    cost_false_accept: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.prior < 1.0:
            raise MetricError(f"the prior of a true claim must lie between 0 and 1, got {self.prior}")
        if not (0.0 < self.cost_miss < math.inf and 0.0 < self.cost_false_accept < math.inf):
            raise MetricError(f"costs must be positive and finite, got {self.cost_miss} and {self.cost_false_accept}")

    @property
    def log_odds(self) -> float:
        """Natural-log odds of a true claim that, with equal costs, would ask for the same decisions."""
        return math.log(self.cost_miss * self.prior) - math.log(self.cost_false_accept * (1.0 - self.prior))

    @property
    def threshold(self) -> float:
        """The log-likelihood ratio from which on accepting is the cheaper decision (Bayes' rule)."""
        return -self.log_odds

    def cost(self, false_accept: FloatArray, false_reject: FloatArray) -> FloatArray:
        """Normalised detection cost of error rates, shares of any one shape."""
        miss, accept = self.cost_miss * self.prior, self.cost_false_accept * (1.0 - self.prior)
        return (miss * false_reject + accept * false_accept) / min(miss, accept)


# "p05" is the point of the VoxSRC challenges, "nist08" that of NIST's evaluations up to 2008; at "p50" both error
# rates weigh alike, and "p01" is where false accepts cost most.
OPERATING_POINTS: Mapping[str, OperatingPoint] = MappingProxyType(
    {
        "p05": OperatingPoint(0.05),
        "p01": OperatingPoint(0.01),
        "p50": OperatingPoint(0.5),
        "nist08": OperatingPoint(0.01, cost_miss=10.0),
    }
)
MAIN_POINT = "p05"


@dataclass(frozen=True, slots=True)
class MinimumCost:
    """The lowest normalised detection cost that any threshold reaches, and a finite threshold that does."""

    cost: float
    threshold: float


def detection_cost(
    target: npt.ArrayLike,
    nontarget: npt.ArrayLike,
    *,
    prior: float,
    cost_miss: float = 1.0,
    cost_false_accept: float = 1.0,
) -> MinimumCost:
    """Minimum normalised detection cost (minDCF of the NIST speaker recognition evaluations), in [0, 1].

    ``prior`` is the probability of a true claim, in (0, 1); costs are positive. Among equally cheap thresholds
    the lowest is taken. Raises MetricError for parameters outside those ranges and for scores as ``error_curve``
    does.
    """
    point = OperatingPoint(prior, cost_miss, cost_false_accept)
    return _minimum(point, error_curve(target, nontarget))


def minimum_costs(
    target: npt.ArrayLike, nontarget: npt.ArrayLike, points: Mapping[str, OperatingPoint] = OPERATING_POINTS
) -> dict[str, float]:
    """``detection_cost`` at several operating points, sorting once."""
    return minimum_costs_of(error_curve(target, nontarget), points)


def minimum_costs_of(curve: ErrorCurve, points: Mapping[str, OperatingPoint] = OPERATING_POINTS) -> dict[str, float]:
    """``minimum_costs`` of the scores that ``curve`` was counted from. Takes O(steps) a point."""
    return {name: _minimum(point, curve).cost for name, point in points.items()}


def _minimum(point: OperatingPoint, curve: ErrorCurve) -> MinimumCost:
    costs = point.cost(curve.false_accept, curve.false_reject)
    k = int(np.argmin(costs))
    return MinimumCost(float(costs[k]), threshold_for(curve, k))


def actual_cost(
    target_llrs: npt.ArrayLike,
    nontarget_llrs: npt.ArrayLike,
    prior: float,
    cost_miss: float = 1.0,
    cost_false_accept: float = 1.0,
) -> float:
    """Normalised detection cost (actDCF) of deciding by log-likelihood ratios and Bayes' rule, 0 or more.

    A claim is accepted from the ratio ``log(cost_false_accept * (1 - prior) / (cost_miss * prior))`` on. More
    than 1 is worse than not listening. Parameters and errors are those of ``detection_cost``, which this never
    falls below. Takes O(n).
    """
    point = OperatingPoint(prior, cost_miss, cost_false_accept)
    targets, nontargets = as_scores(target_llrs, "target"), as_scores(nontarget_llrs, "nontarget")
    accepted = np.count_nonzero(nontargets >= point.threshold) / nontargets.size
    rejected = np.count_nonzero(targets < point.threshold) / targets.size
    return float(point.cost(np.array(accepted), np.array(rejected)))


def log_likelihood_ratio_cost(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> float:
    """Cllr in bits, 0 or more, of scores that are natural-log likelihood ratios.

    A system that always answers 0 costs 1 bit; more than that is worse than not listening. Unlike the
    other metrics here it judges calibration as well as order, so scores in any other unit give it no
    meaning. Brummer and du Preez, Application-independent evaluation of speaker detection, 2006. Raises
    MetricError as ``error_curve`` does.
    """
    targets, nontargets = as_scores(target, "target"), as_scores(nontarget, "nontarget")
    miss = np.logaddexp(0.0, -targets).mean()
    accept = np.logaddexp(0.0, nontargets).mean()
    return float(miss + accept) / (2.0 * math.log(2.0))


def calibration_loss(target_llrs: npt.ArrayLike, nontarget_llrs: npt.ArrayLike) -> float:
    """Bits that the best monotone calibration would save: Cllr less minimum Cllr, 0 or more but for rounding.

    Raises MetricError as ``error_curve`` does.
    """
    return log_likelihood_ratio_cost(target_llrs, nontarget_llrs) - minimum_cllr(target_llrs, nontarget_llrs)
