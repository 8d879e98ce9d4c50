"""Penalised logistic regression, with some weights bounded below by 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Largest slope of the loss at which its minimum counts as reached, and the largest number of steps towards it.
MOST_SLOPE, MOST_STEPS = 1e-10, 200
# Least decrease by a step, as a share of what the slope predicts, and rounding error of the loss, as a share of it:
# near the minimum the decrease is smaller than this error.
LEAST_SHARE, ROUNDING = 1e-4, 1e-15
# Least damping of a step, and the factors by which damping grows after a refused step and shrinks after an accepted
# one. The latter is the smaller, or damping would alternate between too much and too little.
LEAST_DAMPING, MORE_DAMPING, LESS_DAMPING = 1e-9, 10.0, 4.0
# A smaller weight with the bound 0 is a rounding error, and is set to 0.
LEAST_WEIGHT = 1e-12
# With more nontarget trials than MANY, the steps begin at the minimum over the target trials and one in EVERY of the
# others, which is near.
MANY, EVERY = 4000, 7


def logistic_weights(
    design: Array,
    target: NDArray[np.bool_],
    weight: Array,
    offset: Array | float,
    penalties: Array,
    *,
    positive: int,
    expected: Array | float = 0.0,
) -> Array:
    """Return the weights w (d,) that minimise a penalised, weighted logistic loss, the first ``positive`` of them >= 0.

    With s_t = 1 for ``target`` trials, else -1, and x_t the rows of ``design`` (n, d), the loss is

        sum over t of weight_t log(1 + exp(-s_t (x_t . w + offset_t)))
            + sum over k of penalty_k (w_k - expected_k)^2 / 2.

    Newton's steps within the bounds are damped as by Levenberg and Marquardt, with the greatest curvature that the loss
    can have, so that enough damping makes every step decrease it.
    """
    from scipy.optimize import lsq_linear  # slow to import

    bounded = np.arange(len(penalties)) < positive
    w = np.where(bounded, 1.0, 0.0)
    others = np.flatnonzero(~target)
    if len(others) > MANY:
        some = np.r_[np.flatnonzero(target), others[::EVERY]]
        weighed = np.where(target, 1.0, EVERY) * weight
        few = design[some], target[some], weighed[some], np.broadcast_to(offset, len(target))[some]
        w = logistic_weights(*few, penalties, positive=positive, expected=expected)
    sign = np.where(target, 1.0, -1.0)
    rows, offsets = np.asfortranarray(sign[:, None] * design), sign * offset

    def loss(w: Array) -> tuple[float, Array]:
        """Return the loss, and s(-m) of each trial's margin m: both by exp(-|m|), which cannot overflow."""
        margin = rows @ w + offsets
        small = np.exp(-np.abs(margin))
        value = weight @ (np.log1p(small) - np.minimum(margin, 0.0)) + 0.5 * penalties @ (w - expected) ** 2
        return float(value), np.where(margin >= 0.0, small, 1.0) / (1.0 + small)

    most_curvature = rows.T @ (0.25 * weight[:, None] * rows) + np.diag(penalties)
    damping = LEAST_DAMPING
    value, misses = loss(w)
    for _ in range(MOST_STEPS):
        slope = penalties * (w - expected) - rows.T @ (weight * misses)
        if np.abs(np.where(bounded & (w == 0.0), np.minimum(slope, 0.0), slope)).max() <= MOST_SLOPE:
            break
        curvature = rows.T @ ((weight * misses * (1.0 - misses))[:, None] * rows) + np.diag(penalties)
        root = np.linalg.cholesky(curvature + damping * most_curvature).T
        within = np.where(bounded, -w, -np.inf), np.inf
        step = lsq_linear(root, -np.linalg.solve(root.T, slope), within, method="bvls").x
        nearer = w + step
        nearer[bounded & (nearer < LEAST_WEIGHT)] = 0.0
        new, its_misses = loss(nearer)
        if new <= value * (1.0 + ROUNDING) + LEAST_SHARE * (slope @ (nearer - w)):
            w, value, misses = nearer, new, its_misses
            damping = max(LEAST_DAMPING, damping / LESS_DAMPING)
        elif damping < 1.0:
            damping *= MORE_DAMPING
        else:
            break  # no step decreases the loss at machine precision
    return w
