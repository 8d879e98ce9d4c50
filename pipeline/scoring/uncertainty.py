"""The uncertainty of log-likelihood ratios that are calibrated on few trials.

The ratio L of a fitted calibration is taken as the feature of one more logistic regression, a + b L, whose best fit is
a = 0, b = 1. The curvature of its likelihood there gives the covariance of a and b (Laplace's approximation, as in
MacKay 1992): with weights w_t p_t (1 - p_t) of the trials,

    inverse of [[sum of w p (1 - p) + 1 / s_a^2, sum of w p (1 - p) L], [the same, sum of w p (1 - p) L^2 + 1 / s_b^2]],

and so the standard deviation of a + b L at any L: small between the two classes, and growing beyond them. This is the
uncertainty due to the number of trials; a channel unlike theirs adds to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Prior standard deviations s_a of the offset a, in nats, about 0, and s_b of the slope b, about 1: without priors,
# separable trials would leave both unbounded.
OFFSET_SPREAD, SLOPE_SPREAD = 10.0, 1.0
DEVIATES = 1.959964  # bound the central 95 % of a normal distribution


@dataclass(frozen=True, slots=True)
class RatioUncertainty:
    """The variances of a and b, their covariance, and the number of target trials that they come from.

    Examples
    --------
    >>> import numpy as np
    >>> from pipeline.scoring.uncertainty import RatioUncertainty
    >>> few, many = (RatioUncertainty.of(np.full(n, 5.0), np.full(9 * n, -5.0), prior=0.05) for n in (10, 1000))
    >>> low, high = few.interval(5.0)
    >>> bool(low < many.interval(5.0)[0] < 5.0 < many.interval(5.0)[1] < high)
    True
    """

    offset: float
    slope: float
    both: float
    targets: int

    @classmethod
    def of(cls, target: Array, nontarget: Array, *, prior: float) -> Self:
        """Return the uncertainty, by ratios in nats of target and nontarget trials, (targets,) and (nontargets,).

        Trials are weighted as in the calibration: targets count as a share ``prior`` of all, but no nontarget trial
        counts for more than one.
        """
        weight = min(1.0, len(target) * (1.0 - prior) / prior / len(nontarget))
        ratios = np.concatenate([target, nontarget])
        p = 0.5 + 0.5 * np.tanh(0.5 * (ratios + math.log(len(target) / (weight * len(nontarget)))))
        w = p * (1.0 - p) * np.repeat([1.0, weight], [len(target), len(nontarget)])
        a = w.sum() + OFFSET_SPREAD**-2
        b = w @ ratios**2 + SLOPE_SPREAD**-2
        ab = w @ ratios
        area = a * b - ab * ab
        return cls(float(b / area), float(a / area), float(-ab / area), len(target))

    def deviation(self, llr: float) -> float:
        """Return the standard deviation, in nats, of a ratio."""
        return math.sqrt(max(0.0, self.offset + 2.0 * self.both * llr + self.slope * llr * llr))

    def interval(self, llr: float) -> tuple[float, float]:
        """Return the ends, in nats, of the 95 % interval of a ratio."""
        reach = DEVIATES * self.deviation(llr)
        return llr - reach, llr + reach
