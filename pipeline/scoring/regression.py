"""Penalised logistic regression with weights of which some may not be negative."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Largest slope of the loss where its minimum is taken to be reached, and runs of the minimiser until it is.
MOST_SLOPE, RESTARTS = 1e-9, 5


def logistic_weights(
    design: Array,
    target: NDArray[np.bool_],
    weight: Array,
    offset: Array | float,
    penalties: Array,
    *,
    positive: int,
) -> Array:
    """Return the weights (d,) w that minimise a penalised, weighted logistic loss, the first ``positive`` of them >= 0.

    The loss is the sum of ``weight`` log(1 + exp(-s (``design`` w + ``offset``))) + half the sum of ``penalties`` w^2,
    over trials (n,) with s = 1 for ``target``, else -1.
    """
    from scipy.optimize import minimize  # slow to import

    sign = np.where(target, 1.0, -1.0)

    def loss(w: Array) -> tuple[float, Array]:
        margin = sign * (design @ w + offset)
        # d/dm log(1 + exp(-m)) = -s(-m), by tanh free of overflow.
        slope = weight * sign * (0.5 * np.tanh(0.5 * margin) - 0.5)
        value = weight @ np.logaddexp(0.0, -margin) + 0.5 * penalties @ (w * w)
        return float(value), design.T @ slope + penalties * w

    bounds = [(0.0, None)] * positive + [(None, None)] * (design.shape[1] - positive)
    start = np.repeat([1.0, 0.0], [positive, design.shape[1] - positive])
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 30}
    for _ in range(RESTARTS):
        solution = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        start, slope = np.asarray(solution.x), np.asarray(solution.jac)
        slope[:positive][start[:positive] == 0.0] = np.minimum(slope[:positive][start[:positive] == 0.0], 0.0)
        if np.abs(slope).max() <= MOST_SLOPE:
            break  # otherwise a line search was given up: begin again from there, with no memory of curvatures
    return start
