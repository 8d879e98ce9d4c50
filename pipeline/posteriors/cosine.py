"""Cosine expansion: the posterior as a short sum of cosines of the margin, Vapnik's method for support vector machines.

Platt 1999 gives the form (eq. 6) but not the regularised functional, which is eq. 7.93 of Vapnik's Statistical
Learning Theory. The one here is stated in ``CosineExpansion``.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, MarginPosterior, checked
from pipeline.posteriors.isotonic import smoothed_range


class CosineExpansion(MarginPosterior):
    """P = a_0 + sum over n = 1..N of a_n cos(n t), t the margin brought to [0, pi]; clipped.

    Source: Platt 1999, eq. 6 (Vapnik 1998, section 11.11). In full the coefficients depend on u, the place of the
    input along the separating plane, and are solved for anew for every input; margins alone know no u, so the a_n here
    are constants, averages over u. They minimise

        mean of w (P(t) - y)^2 + penalty * sum of n^4 a_n^2,  y = 1 for positives, else 0,

    the second term being in proportion to the integral of P''^2. That is a linear system of N + 1 equations. The
    smallest training margin is t = 0 and the largest pi.

    Nothing keeps the sum between 0 and 1 nor makes it rise with the margin. It is clipped to Platt's smoothed range,
    from 1 / (N- + 2) to (N+ + 1) / (N+ + 2) (``smoothed_range``), so that the log-odds are finite. ``expansion`` gives
    the sum as it is. Margins (n,) of any finite size; those outside the training range count as its nearest end.
    All margins equal: P is the share of positives.

    Assumes a smooth posterior, flat at both ends of the range (every cosine is). Do not use it where posteriors must be
    monotone or where a single far margin can stretch the range and leave all others in one corner of it.
    """

    kind: ClassVar[str] = "cosine"

    coefficients_: Array
    """a_0, ..., a_N: (N + 1,)."""
    limits_: tuple[float, float]
    """Margins at t = 0 and t = pi."""
    range_: tuple[float, float]
    """Lowest and highest P."""

    def __init__(self, terms: int = 8, penalty: float = 1e-4) -> None:
        """``terms`` N >= 0 cosines beside the constant; ``penalty`` >= 0 on those that bend."""
        self.terms = terms
        self.penalty = penalty

    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Learn the coefficients; see ``MarginPosterior.fit``. Raises FitError for settings out of range too."""
        if self.terms < 0 or not self.penalty >= 0:
            raise FitError(f"cosine: terms and penalty of at least 0 expected, got {self.terms} and {self.penalty}")
        f, flags, w = checked(margins, positive, weights)
        self.limits_ = (float(f[w > 0].min()), float(f[w > 0].max()))
        self.range_ = smoothed_range(flags, w)
        columns = self._cosines(f)
        share = w / w.sum()
        system = (columns.T * share) @ columns + np.diag(self.penalty * np.arange(self.terms + 1.0) ** 4)
        # Least squares: without a penalty and with few margins there are many solutions, and this is the smallest.
        self.coefficients_ = np.linalg.lstsq(system, columns.T @ (share * flags), rcond=None)[0]
        return self

    def _cosines(self, margins: Array) -> Array:
        """cos(n t) for n = 0..N on a new last axis."""
        low, high = self.limits_
        # Halves, so that the width of the range cannot overflow.
        width = high / 2 - low / 2
        t = np.pi * (np.clip(margins, low, high) / 2 - low / 2) / width if width > 0 else np.zeros(margins.shape)
        return np.asarray(np.cos(t[..., None] * np.arange(self.terms + 1)))

    def expansion(self, margins: ArrayLike) -> Array:
        """The sum of cosines at ``margins``, any shape: it may leave [0, 1]."""
        return np.asarray(self._cosines(np.asarray(margins, dtype=float)) @ self.coefficients_)

    def probability(self, margins: ArrayLike) -> Array:
        """P(positive | margin) at ``margins``, any shape: the clipped sum."""
        return np.asarray(np.clip(self.expansion(margins), *self.range_))

    def log_odds(self, margins: ArrayLike) -> Array:
        """Log-odds at ``margins``, any shape; finite."""
        return np.asarray(logit(self.probability(margins)))
