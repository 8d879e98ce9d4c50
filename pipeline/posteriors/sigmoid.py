"""Margins to log-odds, and the arithmetic of log-odds: nothing here can overflow or take the log of zero.

A binary posterior is kept as its log-odds, log(p / (1 - p)); the probability is s(log-odds) = 1 / (1 + exp(-log-odds)).
What ``scipy.special`` has of this takes longer to import than an utterance takes to be verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import PosteriorConfig

AnyFloat = NDArray[Any]

# Below this a sum of probabilities has lost digits to underflow, and the slow exact way takes over.
UNDERFLOW = 1e-30


@dataclass(frozen=True, slots=True)
class FixedSigmoid:
    """p = s(slope * margin): Xin 2002, eq. 10, when ``slope`` is 1; of every machine of every kind alike."""

    slope: float = 1.0

    def log_odds(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds of ``margins``, any shape."""
        return margins if self.slope == 1.0 else self.slope * margins

    def pair(self, margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:  # noqa: ARG002
        """Log-odds (T, C, N) of pair margins: see ``coupling.Posterior``."""
        return self.log_odds(margins)

    def one_class(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds (T, N) of one-class margins."""
        return self.log_odds(margins)

    def one_vs_rest(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds (T, N) of one-vs-rest margins."""
        return self.log_odds(margins)


@dataclass(frozen=True, slots=True)
class ImpliedShare:
    """Posteriors of implied machines, whose margins are log-odds already; one-class margins take s(slope * margin).

    Reweighted machines see their two classes at even odds on average, so one-vs-rest log-odds are brought to the prior
    1 / N (``at_prior``). A one-class machine has no second class to reweight.
    """

    slope: float = 1.0

    def pair(self, margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:  # noqa: ARG002
        """Log-odds (T, C, N): the margins. See ``coupling.Posterior``."""
        return margins

    def one_class(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds (T, N) of one-class margins."""
        return np.asarray(self.slope * margins)

    def one_vs_rest(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds (T, N) of one-vs-rest margins, at the prior 1 / N."""
        return at_prior(margins)


def at_prior(log_odds: AnyFloat) -> AnyFloat:
    """Log-odds (..., N) at even odds, brought to the odds of one speaker of N taken at random: 1 to N - 1."""
    return np.asarray(log_odds - log_odds.dtype.type(np.log(max(1, log_odds.shape[-1] - 1))))


def probability(log_odds: AnyFloat) -> AnyFloat:
    """Probability in [0, 1] of each of ``log_odds``."""
    small = np.exp(-np.abs(log_odds))
    return np.asarray(np.where(log_odds >= 0.0, 1.0, small) / (1.0 + small))


def log_probability(log_odds: AnyFloat) -> AnyFloat:
    """Log of the probability, exact for log-odds of any size."""
    return np.asarray(np.minimum(log_odds, 0.0) - np.log1p(np.exp(-np.abs(log_odds))))


def log_sum_probability(log_odds: AnyFloat, log_weight: AnyFloat | None = None) -> AnyFloat:
    """log(sum over the last axis of weight * s(log_odds)); ``log_weight`` broadcasts and defaults to 0.

    Sums of ordinary size are taken directly; the few that underflow are taken again by log-sum-exp.
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
    """log(sum over the last axis of exp(logs)); of nothing but -inf, -inf."""
    largest = logs.max(axis=-1, initial=-np.inf)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(shift + np.log(np.exp(logs - shift[..., None]).sum(axis=-1)))


def posterior_from(settings: PosteriorConfig) -> FixedSigmoid | ImpliedShare:
    """The posteriors of ``settings`` that take no fitting: s(slope * margin) but for implied machines."""
    return ImpliedShare(settings.slope) if settings.kind == "implied" else FixedSigmoid(settings.slope)
