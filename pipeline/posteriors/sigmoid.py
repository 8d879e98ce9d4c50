"""Log-odds arithmetic and the fixed sigmoid: nothing here can overflow or take the log of zero.

A binary posterior is kept as its log-odds, log(p / (1 - p)); the probability is s(log-odds) = 1 / (1 + exp(-log-odds)).
numpy alone: importing ``scipy.special`` takes longer than verifying an utterance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyFloat = NDArray[Any]

# A sum of probabilities below this has lost digits to underflow, and is recomputed in logs.
UNDERFLOW = 1e-30


@dataclass(frozen=True, slots=True)
class FixedSigmoid:
    """p = s(slope * margin) for every machine (Xin 2002, eq. 10, at ``slope`` 1)."""

    slope: float = 1.0

    def log_odds(self, margins: AnyFloat) -> AnyFloat:
        """Return the log-odds of ``margins``, any shape."""
        return margins if self.slope == 1.0 else self.slope * margins


def probability(log_odds: AnyFloat) -> AnyFloat:
    """Return s(``log_odds``) in [0, 1]."""
    small = np.exp(-np.abs(log_odds))
    return np.asarray(np.where(log_odds >= 0.0, 1.0, small) / (1.0 + small))


def posterior(llr: float, prior: float) -> float:
    """Return the probability of a target trial, given its ``llr`` in nats and a ``prior`` in (0, 1)."""
    return float(probability(np.asarray(llr + math.log(prior) - math.log1p(-prior))))


def log_probability(log_odds: AnyFloat) -> AnyFloat:
    """Return log s(``log_odds``), exact for log-odds of any size."""
    return np.asarray(np.minimum(log_odds, 0.0) - np.log1p(np.exp(-np.abs(log_odds))))


def log_sum_probability(log_odds: AnyFloat, log_weight: AnyFloat | None = None) -> AnyFloat:
    """Return log(sum over the last axis of weight * s(log_odds)); ``log_weight`` broadcasts and defaults to 0.

    Sums of ordinary size are computed directly; the few that underflow are recomputed by log-sum-exp.
    """
    terms = probability(log_odds)
    if log_weight is not None:
        terms = terms * np.exp(log_weight)
    total = terms.sum(axis=-1)
    tiny = total < UNDERFLOW
    result = np.log(np.where(tiny, 1.0, total))
    if tiny.any():
        exact = log_probability(log_odds[tiny])
        if log_weight is not None:
            exact = exact + np.broadcast_to(log_weight, log_odds.shape)[tiny]
        result[tiny] = _log_sum(exact)
    return result


def _log_sum(logs: AnyFloat) -> AnyFloat:
    """Return log(sum over the last axis of exp(logs)); -inf where all are -inf."""
    largest = logs.max(axis=-1, initial=-np.inf)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(shift + np.log(np.exp(logs - shift[..., None]).sum(axis=-1)))
