"""Coupling rules: binary margins of many machines to one posterior per frame and claim (Xin, Wu and Pan 2002).

Notation of the paper: f_i one-vs-rest margin, f_ij pair margin, N speakers; p_i, r_ij and q_i are the binary posteriors
of the one-vs-rest, pair and one-class margins: s(margin) in the paper, s(slope * margin) here. Because r_ij + r_ji = 1,
the denominators of eqs. 13 and 16 need only the claim's own pair machines: eq. 13's is N (N - 1) / 2, and eq. 16's is
(N - 1) * sum_k q_k.

With only one speaker there are no competing speakers, and the one-class machine scores alone (``alone``). For claims
with cohorts (``machines.cohorts``), one-class margins have an axis (C,) for the claims and are those of the claim's
cohort, where the claim is at its slot.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.margins import Margins
from pipeline.posteriors.sigmoid import AnyFloat, FixedSigmoid, log_probability, log_sum_probability, probability


def boar(margins: Margins, _sigmoid: FixedSigmoid) -> AnyFloat:
    """Return 1 where the claim's one-vs-rest margin is positive, else 0; the sigmoid plays no part."""
    return np.asarray(_required(margins.one_vs_rest)[:, margins.slots] > 0, dtype=float)


def poar(margins: Margins, sigmoid: FixedSigmoid) -> AnyFloat:
    """Return the log of eq. 12: log p_i - log sum_j p_j."""
    log_odds = sigmoid.log_odds(_required(margins.one_vs_rest))
    return np.asarray(log_probability(log_odds[:, margins.slots]) - log_sum_probability(log_odds)[:, None])


def boao(margins: Margins, sigmoid: FixedSigmoid) -> AnyFloat:
    """Return (T, N) with 1 for the winner of the pairwise votes, else 0; needs the pair margins of every claim.

    Votes are signs of margins, independent of the sigmoid; a margin of exactly 0 gives half a vote to each. Ties go to
    the speaker with the larger sum of pair posteriors (eq. 13): the paper leaves this open, and the rule does not
    depend on the order of speakers.
    """
    pair = _required(margins.pair)
    votes = (pair > 0).sum(axis=-1) + 0.5 * (pair == 0).sum(axis=-1)  # with half a vote against itself
    best = votes == votes.max(axis=-1, keepdims=True)
    tied = np.flatnonzero(best.sum(axis=-1) > 1)
    if tied.size:
        support = probability(sigmoid.log_odds(pair[tied])).sum(axis=-1)
        support[~best[tied]] = -np.inf
        best[tied] = support == support.max(axis=-1, keepdims=True)
    return np.asarray(best, dtype=float)


def poao(margins: Margins, sigmoid: FixedSigmoid) -> AnyFloat:
    """Return the log of eq. 13: log sum_j r_ij - log(N (N - 1) / 2)."""
    log_odds = _pair_log_odds(margins, sigmoid)
    speakers = log_odds.shape[-1]
    return np.asarray(log_sum_probability(log_odds) - np.log(speakers * (speakers - 1) / 2))


def rpoao(margins: Margins, sigmoid: FixedSigmoid) -> AnyFloat:
    """Return the log of eqs. 13-16: log sum_j r_ij (q_i + q_j) - log((N - 1) sum_k q_k)."""
    log_odds = _pair_log_odds(margins, sigmoid)
    one_class = sigmoid.log_odds(_required(margins.one_class))
    log_q = log_probability(one_class)
    log_either = np.logaddexp(_own(log_q, margins.slots)[:, :, None], _by_claim(log_q))  # eq. 15
    numerator = log_sum_probability(log_odds, log_either)
    denominator = log_sum_probability(_by_claim(one_class)) + np.log(log_odds.shape[-1] - 1)
    return np.asarray(numerator - denominator)


def worst_rival(margins: Margins, sigmoid: FixedSigmoid) -> AnyFloat:
    """Return r_ij (T, C, N), to be averaged over frames before the minimum over competing speakers is taken."""
    return probability(_pair_log_odds(margins, sigmoid))


def refined_worst_rival(margins: Margins, sigmoid: FixedSigmoid) -> AnyFloat:
    """Return r'_ij = r_ij (q_i + q_j) (T, C, N), eq. 16 before the sum over competing speakers."""
    q = probability(sigmoid.log_odds(_required(margins.one_class)))
    return np.asarray(worst_rival(margins, sigmoid) * (_own(q, margins.slots)[:, :, None] + _by_claim(q)))


def alone(unit: Literal["mean", "log"], margins: Margins, sigmoid: FixedSigmoid) -> AnyFloat:
    """Return the claims' own one-class posteriors (T, C), or their logs: the fallback if there is only one speaker."""
    log_odds = _own(sigmoid.log_odds(_required(margins.one_class)), margins.slots)
    return log_probability(log_odds) if unit == "log" else probability(log_odds)


def _required(margins: AnyFloat | None) -> AnyFloat:
    if margins is None:
        raise AssertionError("a rule was given margins without a kind that it needs")
    return margins


def _pair_log_odds(margins: Margins, sigmoid: FixedSigmoid) -> AnyFloat:
    """Return the log-odds of r_ij (T, C, N), -inf where j is i."""
    log_odds = np.array(sigmoid.log_odds(_required(margins.pair)))
    log_odds[:, np.arange(len(margins.slots)), margins.slots] = -np.inf
    return log_odds


def _own(values: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
    """Return the claims' own values (T, C) from ``values`` (T, N), or (T, C, P) with cohorts."""
    return np.asarray(values[:, claims] if values.ndim == 2 else values[:, np.arange(len(claims)), claims])


def _by_claim(values: AnyFloat) -> AnyFloat:
    """Return ``values`` with an axis for the claims: (T, 1, N), or (T, C, P) as they are."""
    return values[:, None, :] if values.ndim == 2 else values
