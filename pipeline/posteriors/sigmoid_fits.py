"""What the fitted sigmoids share: target probabilities, the objective they minimise, and log-odds linear in the margin.

The model is P(positive | f) = 1 / (1 + exp(A f + B)) (Platt 1999, eq. 9), so the log-odds are -(A f + B) and A is
negative where margins are informative. The objective is F(A, B) = -sum of t log p + (1 - t) log(1 - p) (Platt 1999,
eq. 11; Lin, Lin and Weng 2007, eq. 2), with a weight on each trial. No form here can overflow, take the log of zero
or lose 1 - p to cancellation (Lin, Lin and Weng 2007, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from pipeline.posteriors.base import Array, Flags, MarginPosterior, checked


class LinearLogOdds(MarginPosterior):
    """Posterior whose log-odds are -(``A_`` f + ``B_``)."""

    A_: float
    B_: float

    def log_odds(self, margins: ArrayLike) -> Array:
        """Log-odds of the positive class at ``margins``, any shape, in nats; infinite where too large for a float."""
        with np.errstate(over="ignore"):
            return np.asarray(-(self.A_ * np.asarray(margins, dtype=np.float64) + self.B_))


@dataclass(frozen=True, slots=True)
class Trials:
    """n weighted trials: ``margins``, ``target`` probabilities t, ``other`` = 1 - t, ``weights`` > 0, all (n,).

    ``positives`` and ``negatives`` are the weights of each class summed: N+ and N- of the papers.
    """

    margins: Array
    target: Array
    other: Array
    weights: Array
    positives: float
    negatives: float

    @property
    def start(self) -> tuple[float, float]:
        """The papers' first A and B: the smoothed log-odds of the classes, whatever the margin."""
        return 0.0, float(np.log((self.negatives + 1.0) / (self.positives + 1.0)))

    def objective(self, A: float, B: float) -> float:
        """F(A, B) in nats: eqs. 5 and 6 of Lin, Lin and Weng 2007, infinite where A f + B is no float."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = A * self.margins + B
            losses = np.log1p(np.exp(-np.abs(z))) + np.where(z >= 0.0, self.target, -self.other) * z
            total = float(self.weights @ losses)
        return total if np.isfinite(total) else np.inf

    def slopes(self, A: float, B: float) -> tuple[Array, Array]:
        """dF/dz and d2F/dz2 (n,) of every trial at z = A f + B, weighted: t - p and p (1 - p)."""
        z = A * self.margins + B
        p, q = expit(-z), expit(z)
        return self.weights * (self.target * q - self.other * p), self.weights * (p * q)

    def scaled(self, scale: float) -> Self:
        """The same trials with their margins divided by ``scale``."""
        return type(self)(self.margins / scale, self.target, self.other, self.weights, self.positives, self.negatives)


def trials_from(
    margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None, *, smoothed: bool = True
) -> Trials:
    """Trials of weight above 0 with their target probabilities.

    ``smoothed`` targets are (N+ + 1) / (N+ + 2) and 1 / (N- + 2) (Platt 1999, eqs. 13 and 14), with summed weights for
    the counts; the others are 1 and 0. Raises FitError as ``checked`` does.
    """
    f, flags, w = checked(margins, positive, weights)
    f, flags, w = f[w > 0], flags[w > 0], w[w > 0]
    n1, n0 = float(w[flags].sum()), float(w[~flags].sum())
    target, other = _targets(flags, n1, n0) if smoothed else (flags.astype(float), (~flags).astype(float))
    return Trials(f, target, other, w, n1, n0)


def _targets(flags: Flags, n1: float, n0: float) -> tuple[Array, Array]:
    target = np.where(flags, (n1 + 1.0) / (n1 + 2.0), 1.0 / (n0 + 2.0))
    other = np.where(flags, 1.0 / (n1 + 2.0), (n0 + 1.0) / (n0 + 2.0))
    return target, other
