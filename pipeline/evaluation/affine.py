"""The best straight line through a set of scores, and the Cllr it leaves: what calibration by one line could reach.

Pooling (``pav``) fits a step to every few trials, so where few scores overlap its minimum says little of what any
calibration could have known: of 300 targets with two among the nontargets it bets everything on the other 298. A line
has two numbers to choose. Beside each other the two minima tell the parts of Cllr: what a better offset and scale would
save (Cllr less this), and what the shape costs (this less the minimum by pooling). Fitted to the very trials that it
judges, it is a yardstick as well. After Ferrer and Ramos, Evaluating posterior probabilities: decision theory, proper
scoring rules, and calibration, 2024.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pipeline.evaluation.curves import FloatArray, as_scores


def affine_cllr(target: npt.ArrayLike, nontarget: npt.ArrayLike) -> float:
    """Least Cllr in bits, in [0, 1], of log-likelihood ratios that rise along a straight line with the scores.

    Scores in any unit. Where all targets lie above all nontargets a line may be as steep as it likes, and 0 is what it
    comes down to; where a falling line would be best, a level one costs 1. Raises MetricError as ``error_curve`` does.
    """
    targets, nontargets = as_scores(target, "target"), as_scores(nontarget, "nontarget")
    if targets.min() > nontargets.max():
        return 0.0
    # Of any size, without a sum that overflows.
    largest = max(float(np.abs(targets).max()), float(np.abs(nontargets).max())) or 1.0
    targets, nontargets = targets / largest, nontargets / largest
    middle = 0.5 * (targets.mean() + nontargets.mean())
    targets, nontargets = targets - middle, nontargets - middle
    spread = float(np.std(targets)) + float(np.std(nontargets))
    # The cost falls with a slope from level on only where targets lie higher on average.
    if targets.mean() <= nontargets.mean() or spread == 0.0:
        return 1.0
    return min(1.0, _least(targets / spread, nontargets / spread))


def _least(targets: FloatArray, nontargets: FloatArray) -> float:
    """The minimum over slope and offset; convex, so that any descent finds it."""
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
