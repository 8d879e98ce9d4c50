"""Detection costs (DCF) at named operating points.

Conventions
-----------
Those of ``error_rates``. The normalised detection cost is

    (m * FR + a * FA) / min(m, a)  with  m = cost_miss * prior,  a = cost_false_accept * (1 - prior)

so that 1 is the cost of accepting all trials or rejecting all, whichever is cheaper. The minimum (minDCF) uses the best
threshold for these trials and depends only on the order of scores; the actual cost (actDCF) uses the Bayes threshold,
and so needs calibrated log-likelihood ratios, in nats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError, check_type
from pipeline.metrics.curves import ErrorCurve, FloatArray, both_scores, check_curve, error_curve, threshold_for


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Application: the prior of a target trial and the costs of both errors.

    Parameters
    ----------
    prior : float
        Probability of a target trial, in (0, 1).
    cost_miss, cost_false_accept : float
        Costs of the two errors, positive and finite.

    Raises
    ------
    MetricError
        For values outside those ranges.
    InputError
        For a value that is not a number.

    Examples
    --------
    >>> import pipeline
    >>> point = pipeline.OperatingPoint(0.05)
    >>> round(point.threshold, 3)  # log-likelihood ratio, in nats
    2.944
    >>> import numpy as np
    >>> point.cost(np.array([0.01, 0.1]), np.array([0.2, 0.0])).round(2).tolist()
    [0.39, 1.9]
    """

    prior: float
    cost_miss: float = 1.0
    cost_false_accept: float = 1.0

    def __post_init__(self) -> None:
        for one in fields(self):
            check_type(one.name, getattr(self, one.name), Real, "a number")
        if not 0.0 < self.prior < 1.0:
            raise MetricError(f"the prior of a target trial must lie between 0 and 1, got {self.prior}")
        if not (0.0 < self.cost_miss < math.inf and 0.0 < self.cost_false_accept < math.inf):
            raise MetricError(f"costs must be positive and finite, got {self.cost_miss} and {self.cost_false_accept}")

    @property
    def log_odds(self) -> float:
        """Return the log-odds of a target trial, in nats, that give the same decisions if the costs are equal."""
        return math.log(self.cost_miss * self.prior) - math.log(self.cost_false_accept * (1.0 - self.prior))

    @property
    def threshold(self) -> float:
        """Return the Bayes threshold: the lowest log-likelihood ratio, in nats, to accept."""
        return 0.0 - self.log_odds

    def cost(self, false_accept: FloatArray, false_reject: FloatArray) -> FloatArray:
        """Return the normalised detection cost of error rates.

        Parameters
        ----------
        false_accept, false_reject : arrays of one shape
            Error rates, shares.

        Returns
        -------
        array of that shape
            The cost relative to the cheaper of accepting all trials and rejecting all.
        """
        miss, accept = self.cost_miss * self.prior, self.cost_false_accept * (1.0 - self.prior)
        return (miss * false_reject + accept * false_accept) / min(miss, accept)


# "p05" is the point of VoxSRC, of NIST's SRE20 and SRE21 and of the video parts of SRE18 and SRE19; "p01" and "p005"
# are those of SRE16 and of the telephone parts of SRE18 and SRE19; "nist08" is that of SRE08 and before; "p50" gives
# both errors the same weight.
OPERATING_POINTS: Mapping[str, OperatingPoint] = MappingProxyType(
    {
        "p05": OperatingPoint(0.05),
        "p01": OperatingPoint(0.01),
        "p005": OperatingPoint(0.005),
        "p50": OperatingPoint(0.5),
        "nist08": OperatingPoint(0.01, cost_miss=10.0),
    }
)
MAIN_POINT = "p05"

# Primary costs of NIST's evaluations that are means over operating points.
MEAN_COSTS: Mapping[str, tuple[str, ...]] = MappingProxyType({"sre16": ("p01", "p005")})


@dataclass(frozen=True, slots=True)
class MinimumCost:
    """The lowest normalised detection cost over all thresholds, and a finite threshold that reaches it."""

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
    """Return the minimum normalised detection cost (minDCF of NIST's evaluations), in [0, 1], and its threshold.

    Parameters
    ----------
    target, nontarget : arrays (targets,) and (nontargets,)
        Scores; higher is more likely the claimed speaker.
    prior, cost_miss, cost_false_accept : float
        Operating point, see ``OperatingPoint``.

    Returns
    -------
    MinimumCost
        Among equally cheap thresholds, the lowest.

    Raises
    ------
    MetricError
        As ``OperatingPoint`` and ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import detection_cost
    >>> detection_cost([0.0, 2.0], [0.0, 1.0], prior=0.1)
    MinimumCost(cost=0.5, threshold=1.5)
    """
    point = OperatingPoint(prior, cost_miss, cost_false_accept)
    return _minimum(point, error_curve(target, nontarget))


def minimum_costs_of(curve: ErrorCurve, points: Mapping[str, OperatingPoint] = OPERATING_POINTS) -> dict[str, float]:
    """Return ``detection_cost`` for the scores of ``curve`` at several operating points. Takes O(steps) per point."""
    return {name: _minimum(point, curve).cost for name, point in points.items()}


def _minimum(point: OperatingPoint, curve: ErrorCurve) -> MinimumCost:
    check_curve(curve)
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
    """Return the normalised detection cost (actDCF) of deciding by log-likelihood ratios and Bayes' rule.

    Parameters
    ----------
    target_llrs, nontarget_llrs : arrays (targets,) and (nontargets,)
        Log-likelihood ratios in nats; a trial is accepted at or above the operating point's ``threshold``.
    prior, cost_miss, cost_false_accept : float
        Operating point, see ``OperatingPoint``.

    Returns
    -------
    float
        At least ``detection_cost`` of the same trials.

    Raises
    ------
    MetricError
        As ``OperatingPoint`` and ``error_curve``.

    Examples
    --------
    >>> from pipeline.metrics import actual_cost
    >>> actual_cost([-1.0, 2.0], [-3.0, -2.0, -1.0, 0.5], prior=0.5)
    0.75
    """
    point = OperatingPoint(prior, cost_miss, cost_false_accept)
    targets, nontargets = both_scores(target_llrs, nontarget_llrs)
    accepted = np.count_nonzero(nontargets >= point.threshold) / nontargets.size
    rejected = np.count_nonzero(targets < point.threshold) / targets.size
    return float(point.cost(np.array(accepted), np.array(rejected)))
