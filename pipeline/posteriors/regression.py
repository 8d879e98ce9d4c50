"""Logistic regression of a few weights, some of which may not be negative, by Newton's method.

Newton's steps among the weights that are free, projected onto those allowed, and halved until the loss falls
(Bertsekas, Projected Newton methods for optimization problems with simple constraints, 1982). The loss is convex, so
that where no weight can move downhill it is least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Of the gradient, whose scale is that of trials whose weights sum to 1; and how many steps may be taken, and halved.
TOLERANCE = 1e-10
MOST_STEPS, MOST_HALVINGS = 200, 60
# Of the fall that a step's slope promises, what it has to bring.
SUFFICIENT = 1e-4
# Weights this near to 0 that would fall below it are set to it; and what keeps trials without an error solvable.
NEAR, LEAST_CURVATURE = 1e-6, 1e-13


def logistic_weights(
    design: Array, target: NDArray[np.bool_], weight: Array, offset: Array, penalties: Array, *, positive: int
) -> Array:
    """Weights (d,) w that minimise the sum of ``weight`` log(1 + exp(-s (``design`` w + ``offset``))), and a penalty.

    ``design`` (n, d), ``target`` (n,) makes s = 1, else -1, ``weight`` (n,) and ``offset`` (n,) of trials; the penalty
    is half the sum of ``penalties`` (d,) w^2. The first ``positive`` of the weights are 0 or more.
    """
    sign = np.where(target, 1.0, -1.0)
    bounded = np.arange(design.shape[1]) < positive

    def loss(w: Array) -> float:
        return float(weight @ np.logaddexp(0.0, -sign * (design @ w + offset)) + 0.5 * penalties @ (w * w))

    w = np.where(bounded, 1.0, 0.0)
    value = loss(w)
    for _ in range(MOST_STEPS):
        # s(-margin) of each trial, however large the margin.
        wrong = 0.5 - 0.5 * np.tanh(0.5 * sign * (design @ w + offset))
        gradient = penalties * w - design.T @ (weight * sign * wrong)
        held = bounded & (w <= NEAR) & (gradient > 0.0)
        if np.abs(gradient[~held]).max(initial=0.0) <= TOLERANCE and not w[held].any():
            break
        curvature = (design.T * (weight * wrong * (1.0 - wrong))) @ design + np.diag(penalties + LEAST_CURVATURE)
        step = w.copy()  # of those held, to 0
        step[~held] = np.linalg.solve(curvature[np.ix_(~held, ~held)], gradient[~held])
        for halvings in range(MOST_HALVINGS):
            moved = w - 0.5**halvings * step
            moved[bounded] = np.maximum(moved[bounded], 0.0)
            found = loss(moved)
            if found <= value - SUFFICIENT * gradient @ (w - moved):
                break
        if not found < value:
            break  # what is left of the gradient is rounding
        w, value = moved, found
    return w
