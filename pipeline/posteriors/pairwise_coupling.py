"""The classic pairwise couplings: probabilities of every pair of classes to one probability per class.

All three read r (T, N, N) for T rows and N classes: r_ij in [0, 1] is the probability of i against j, and
r_ij + r_ji = 1; the diagonal is never read. They return p (T, N), rows summing to 1, in double precision. Where a p
with r_ij = p_i / (p_i + p_j) for every pair exists, all three return it; they differ in how they reconcile pairs that
contradict each other. A row costs O(N^2) (``pkpd``) or O(N^3) (the other two); memory is a few arrays of the size of r.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.posteriors.sigmoid import AnyFloat, probability

Array = NDArray[np.float64]

# Least distance of r from 0 and 1 in methods without a solution at 0 and 1; LIBSVM's own bound.
MIN_PAIR = 1e-7

# Smallest probability before a log: -690.8 nats.
MIN_POSTERIOR = 1e-300

# Hastie and Tibshirani: a row has converged when no log(p_i / p_j) changes by this much. Newton's method squares the
# error, which leaves about 1e-14.
SMALL_STEP = 1e-7
# About ten are usual; 158 classes in a strict ranking, with every r at its bound, take 289.
MAX_STEPS = 500


def pkpd(r: AnyFloat) -> Array:
    """Return p_i proportional to 1 / (sum over j != i of 1 / r_ij - (N - 2)).

    Price, Knerr, Personnaz and Dreyfus 1995, Pairwise neural network classifiers with probabilistic outputs; their p
    sum to 1 only if the pairs agree, so they are divided by their sum here. r is bounded only where 1 / r would
    overflow (``MIN_POSTERIOR``).
    """
    inverse = 1.0 / np.maximum(np.asarray(r, dtype=np.float64), MIN_POSTERIOR)
    # The bracket is 1 + sum of (1 / r_ij - 1), free of cancellation.
    odds_against = (inverse - 1.0) * _off_diagonal(r.shape[-1])
    p = 1.0 / (1.0 + odds_against.sum(axis=-1))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def wu_lin_weng(r: AnyFloat) -> Array:
    """Return the p that minimises the sum over pairs of (r_ji p_i - r_ij p_j)^2.

    Wu, Lin and Weng 2004, Probability estimates for multi-class classification by pairwise coupling, second approach
    (LIBSVM's): min 2 p'Qp with Q_ii = sum over s != i of r_si^2 and Q_ij = -r_ji r_ij. The N + 1 linear equations,
    Q p + b e = 0 and e'p = 1, are solved directly, to about 1e-15 in p; by their theorem no p_i is negative if r is
    neither 0 nor 1 (r is kept ``MIN_PAIR`` from both). Unlike with the other two methods, a class that wins a pair more
    clearly can get a smaller p.
    """
    N = r.shape[-1]
    against = _bounded(r) * _off_diagonal(N)
    own = np.arange(N)
    system = np.zeros((len(r), N + 1, N + 1))
    system[:, :N, :N] = -against * against.transpose(0, 2, 1)
    system[:, own, own] = (against * against).sum(axis=1)
    system[:, :N, N] = system[:, N, :N] = 1.0
    right = np.zeros((len(r), N + 1, 1))
    right[:, N] = 1.0
    return np.asarray(np.linalg.solve(system, right)[:, :N, 0])


def hastie_tibshirani(r: AnyFloat) -> Array:
    """Return the p whose mu_ij = p_i / (p_i + p_j) minimise the sum over pairs of the divergence KL(r_ij, mu_ij).

    Hastie and Tibshirani 1998, Classification by pairwise coupling, all pairs of equal weight (n_ij = 1). At the unique
    minimum sum_j mu_ij = sum_j r_ij for every i. The divergence is convex in log p, and is minimised by damped Newton
    steps in log p; the paper's own sweeps, p_i <- p_i sum_j r_ij / sum_j mu_ij, have the same limit but need thousands
    of iterations if one class is far above the others. r is kept ``MIN_PAIR`` from 0 and 1, where there is no minimum.
    """
    r = _bounded(r)
    log_p = np.zeros(r.shape[:2])
    unfinished = np.arange(len(r))
    for _ in range(MAX_STEPS):
        step = _newton_step(r[unfinished], log_p[unfinished])
        log_p[unfinished] += step
        unfinished = unfinished[np.ptp(step, axis=-1) >= SMALL_STEP]
        if not unfinished.size:
            break
    p = np.exp(log_p - log_p.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def _newton_step(r: Array, log_p: Array) -> Array:
    """Return the damped Newton step (T, N) in log p; every step lowers the divergence.

    Along a direction d the divergence is a sum of logistic losses, whose third derivative is at most M = max d - min d
    times the second. A share log(1 + M) / M of the Newton step therefore always descends without a line search, and
    approaches the full step near the minimum (Sun and Tran-Dinh 2019, Generalized self-concordant functions,
    case nu = 2).
    """
    N = r.shape[-1]
    others, own = _off_diagonal(N), np.arange(N)
    mu = probability(log_p[:, :, None] - log_p[:, None, :])
    downhill = ((r - mu) * others).sum(axis=-1)
    weights = mu * (1.0 - mu) * others
    # log p is defined up to a constant; the 1 / N fixes its sum and changes nothing else.
    curvature = 1.0 / N - weights
    curvature[:, own, own] += weights.sum(axis=-1)
    direction = np.linalg.solve(curvature, downhill[:, :, None])[:, :, 0]
    spread = np.ptp(direction, axis=-1, keepdims=True)
    share = np.divide(np.log1p(spread), spread, out=np.ones_like(spread), where=spread > 0)
    return np.asarray(share * direction)


def _bounded(r: AnyFloat) -> Array:
    return np.clip(np.asarray(r, dtype=np.float64), MIN_PAIR, 1.0 - MIN_PAIR)


def _off_diagonal(N: int) -> Array:
    """Return (N, N) ones with a zero diagonal."""
    return np.asarray(1.0 - np.eye(N))
