"""Penalised logistic regression with weights of which some may not be negative."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Largest slope of the loss where its minimum is taken to be reached, steps to it, and halvings of a step.
MOST_SLOPE, MOST_STEPS, MOST_HALVINGS = 1e-10, 100, 40
# Share of the decrease that the slope promises that a step must bring.
LEAST_SHARE = 1e-4


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
    over trials (n,) with s = 1 for ``target``, else -1. Each step goes towards the minimum within bounds of the
    parabola that touches the loss with its curvature (projected Newton).
    """
    from scipy.optimize import lsq_linear  # slow to import

    sign = np.where(target, 1.0, -1.0)
    rows, offsets = np.asfortranarray(sign[:, None] * design), sign * offset

    def loss(w: Array) -> tuple[float, Array]:
        """Return the loss, and s(-m) of each trial's margin m: both by exp(-|m|), which cannot overflow."""
        margin = rows @ w + offsets
        small = np.exp(-np.abs(margin))
        value = weight @ (np.log1p(small) - np.minimum(margin, 0.0)) + 0.5 * penalties @ (w * w)
        return float(value), np.where(margin >= 0.0, small, 1.0) / (1.0 + small)

    bounded = np.arange(len(penalties)) < positive
    w = np.where(bounded, 1.0, 0.0)
    value, misses = loss(w)
    for _ in range(MOST_STEPS):
        slope = penalties * w - rows.T @ (weight * misses)
        if np.abs(np.where(bounded & (w == 0.0), np.minimum(slope, 0.0), slope)).max() <= MOST_SLOPE:
            break
        curvature = rows.T @ ((weight * misses * (1.0 - misses))[:, None] * rows) + np.diag(penalties)
        root = np.linalg.cholesky(curvature).T
        goal = lsq_linear(root, -np.linalg.solve(root.T, slope), (np.where(bounded, -w, -np.inf), np.inf), "bvls").x
        for halving in range(MOST_HALVINGS):
            step = goal / 2**halving
            nearer = np.where(bounded, np.maximum(w + step, 0.0), w + step)
            new, its_misses = loss(nearer)
            if new <= value + LEAST_SHARE * (slope @ step):
                break
        else:
            break  # no step makes the loss less to machine precision
        w, value, misses = nearer, new, its_misses
    return w
