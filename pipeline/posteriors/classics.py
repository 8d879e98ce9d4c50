"""The classic pairwise couplings: probabilities of every pair of speakers to one probability a speaker, for comparison.

All three read r (T, N, N) for T frames and N speakers: r_ij in [0, 1] is the probability of i against j, and
r_ij + r_ji = 1. The diagonal is never read. They give p (T, N), whose rows sum to 1, each frame on its own, in double
precision. Where there is a p with r_ij = p_i / (p_i + p_j) for every pair, all three give it; they differ in how they
settle pairs that contradict each other. With two speakers p_1 is r_12, with one it is 1.

Every speaker's pairs are needed for one claim, so a frame costs O(N^2) (``pkpd``) or O(N^3) (the other two). Memory is
a few arrays of the size of r: callers bound T.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.posteriors.sigmoid import probability

Array = NDArray[np.float64]
AnyFloat = NDArray[Any]

# r is kept this far from 0 and 1 where a method has no answer at 0 and 1 themselves; LIBSVM's own bound.
LEAST_PAIR = 1e-7

# No probability is taken to be smaller before its log: -690.8 nats.
LEAST_POSTERIOR = 1e-300

# Hastie and Tibshirani: a frame is done when its log(p_i / p_j) all moved by less than this. Newton's method squares
# what is missing, so about 1e-14 is left.
SMALL_STEP = 1e-7
# Ten or so are usual; 158 speakers in one order of rank, every r at its bound, take 289.
MOST_STEPS = 500


def pkpd(r: AnyFloat) -> Array:
    """p_i in proportion to 1 / (sum over j != i of 1 / r_ij - (N - 2)).

    Price, Knerr, Personnaz and Dreyfus 1995, Pairwise neural network classifiers with probabilistic outputs; their p
    sum to 1 only where the pairs agree, and are divided by their sum here. Any r will do: it is kept from 0 only as
    far as 1 / r is finite (``LEAST_POSTERIOR``).
    """
    speakers = r.shape[-1]
    inverse = 1.0 / np.maximum(np.asarray(r, dtype=np.float64), LEAST_POSTERIOR)
    # The bracket is 1 + sum of (1 / r_ij - 1), which has no large terms to cancel.
    odds_against = (inverse - 1.0) * _others(speakers)
    p = 1.0 / (1.0 + odds_against.sum(axis=-1))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def wu_lin_weng(r: AnyFloat) -> Array:
    """The p that minimises the sum over pairs of (r_ji p_i - r_ij p_j)^2.

    Wu, Lin and Weng 2004, Probability estimates for multi-class classification by pairwise coupling, second approach
    (LIBSVM's): min 2 p'Qp with Q_ii = sum over s != i of r_si^2 and Q_ij = -r_ji r_ij. Their linear system of N + 1
    equations, Q p + b e = 0 and e'p = 1, is solved directly; that no p_i is negative is their theorem, for r other
    than 0 and 1 (kept ``LEAST_PAIR`` from them). The system's rounding leaves errors of about 1e-15 in p. Unlike with
    the other two, a speaker who wins a pair more clearly can end with a smaller p.
    """
    speakers = r.shape[-1]
    against = _bounded(r) * _others(speakers)
    own = np.arange(speakers)
    system = np.zeros((len(r), speakers + 1, speakers + 1))
    system[:, :speakers, :speakers] = -against * against.transpose(0, 2, 1)
    system[:, own, own] = (against * against).sum(axis=1)
    system[:, :speakers, speakers] = system[:, speakers, :speakers] = 1.0
    right = np.zeros((len(r), speakers + 1, 1))
    right[:, speakers] = 1.0
    return np.asarray(np.linalg.solve(system, right)[:, :speakers, 0])


def hastie_tibshirani(r: AnyFloat) -> Array:
    """The p whose mu_ij = p_i / (p_i + p_j) are closest to r: least sum over pairs of the divergence KL(r_ij, mu_ij).

    Hastie and Tibshirani 1998, Classification by pairwise coupling, all pairs of equal weight (n_ij = 1). At the only
    minimum sum_j mu_ij = sum_j r_ij for every i. It is found in the strengths log p, where the divergence is convex,
    by damped Newton steps and not by the paper's own sweeps, p_i <- p_i sum_j r_ij / sum_j mu_ij: they come to the
    same p, but where one speaker is far above the others thousands of sweeps do not.

    A frame is done when a step changes no log(p_i / p_j) by ``SMALL_STEP``, or after ``MOST_STEPS``. There is no
    minimum where r is 0 or 1, so r is kept ``LEAST_PAIR`` from them.
    """
    r = _bounded(r)
    strengths = np.zeros(r.shape[:2])
    unfinished = np.arange(len(r))
    for _ in range(MOST_STEPS):
        step = _newton_step(r[unfinished], strengths[unfinished])
        strengths[unfinished] += step
        unfinished = unfinished[np.ptp(step, axis=-1) >= SMALL_STEP]
        if not unfinished.size:
            break
    likely = np.exp(strengths - strengths.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(likely / likely.sum(axis=-1, keepdims=True))


def log_posterior(p: AnyFloat) -> Array:
    """Natural log of p, any shape; p below ``LEAST_POSTERIOR`` counts as that, so that nothing is below -690.8."""
    return np.asarray(np.log(np.maximum(p, LEAST_POSTERIOR)))


def _newton_step(r: Array, strengths: Array) -> Array:
    """What to add to the strengths (T, N); the divergence falls with every step.

    Along a direction d the divergence is a sum of logistic losses, whose third derivative is at most M = max d - min d
    times the second. log(1 + M) / M of the Newton step then always descends and no search is needed, and it becomes
    the whole step near the minimum (Sun and Tran-Dinh 2019, Generalized self-concordant functions, case nu = 2). From
    equal strengths whole steps were never seen to climb, and are fewer where all is certain; but nothing proves them.
    """
    speakers = r.shape[-1]
    others, own = _others(speakers), np.arange(speakers)
    mu = probability(strengths[:, :, None] - strengths[:, None, :])
    downhill = ((r - mu) * others).sum(axis=-1)
    weights = mu * (1.0 - mu) * others
    # Strengths are defined up to a constant; the 1 / N fixes their sum and changes nothing else.
    curvature = 1.0 / speakers - weights
    curvature[:, own, own] += weights.sum(axis=-1)
    direction = np.linalg.solve(curvature, downhill[:, :, None])[:, :, 0]
    spread = np.ptp(direction, axis=-1, keepdims=True)
    share = np.divide(np.log1p(spread), spread, out=np.ones_like(spread), where=spread > 0)
    return np.asarray(share * direction)


def _bounded(r: AnyFloat) -> Array:
    return np.clip(np.asarray(r, dtype=np.float64), LEAST_PAIR, 1.0 - LEAST_PAIR)


def _others(speakers: int) -> Array:
    """(N, N) of 1 but 0 on the diagonal."""
    return np.asarray(1.0 - np.eye(speakers))
