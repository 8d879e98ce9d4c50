"""Non-parametric posteriors of single margins: histograms, isotonic regression, sums of cosines.

Priors are always the classes' shares of the trials' total weight. Margins may have any finite size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, MarginPosterior, as_numbers, smoothed_range

Between = Literal["linear", "step"]


@dataclass(eq=False)
class HistogramPosterior(MarginPosterior):
    """P by Bayes' rule from p(bin | class) = (n + s) / (N + s B), with n of the class's N trials in the bin, one of B.

    Source: Platt 1999, eq. 7 over histograms (the marks of its figure 2); s is Laplace's ``smoothing`` > 0. There are
    up to ``bins`` bins with equal numbers of trials, fewer if trials tie. A margin on an edge belongs to the bin above,
    margins beyond the outermost trials to the outermost bins. If all margins are equal, there is one bin, and P is the
    share of positives.
    Learned: ``edges_`` (B - 1,), ``log_odds_`` (B,).

    Assumes no shape, and needs several tens of trials a bin. Not monotone; for comparison with other kinds.
    """

    kind: ClassVar[str] = "histogram"

    bins: int = 20
    smoothing: float = 1.0

    def _check_settings(self) -> None:
        if self.bins < 1 or not 0.0 < self.smoothing < np.inf:
            raise FitError(
                f"histogram: bins and smoothing above 0, finite, expected, got {self.bins} and {self.smoothing}"
            )

    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
        shares = np.arange(1, self.bins) / self.bins
        edges = np.unique(np.quantile(margins, shares, weights=weights, method="inverted_cdf"))
        # An edge at the smallest margin would leave the first bin empty.
        self.edges_ = edges[edges > margins.min()]
        place = np.asarray(np.searchsorted(self.edges_, margins, side="right"), dtype=np.int_)
        prior = np.log(weights[positive].sum()) - np.log(weights[~positive].sum())
        ratio = self._log_mass(place, weights * positive) - self._log_mass(place, weights * ~positive)
        self.log_odds_ = ratio + prior

    def _log_mass(self, place: NDArray[np.int_], w: Array) -> Array:
        """Return the log of the smoothed share (B,) of a class whose trials have weights ``w`` (n,)."""
        mass = np.bincount(place, weights=w, minlength=len(self.edges_) + 1) + self.smoothing
        return np.asarray(np.log(mass / mass.sum()))

    def log_odds(self, margins: ArrayLike) -> Array:
        """Return the log-odds at ``margins``, any shape; finite, but NaN for NaN."""
        f = as_numbers(margins)
        return np.where(np.isnan(f), np.nan, self.log_odds_[np.searchsorted(self.edges_, f, side="right")])


@dataclass(eq=False)
class IsotonicPosterior(MarginPosterior):
    """P minimises sum w (P(f) - t)^2 over all non-decreasing functions, with Platt's smoothed targets t.

    Source: pool adjacent violators, Ayer and others 1955; Zadrozny and Elkan 2002. Since the fit is equivariant, the
    plain fit to 1 and 0 is mapped linearly to ``smoothed_range``, so that log-odds are finite. Between margins P is
    linear (``between`` "linear") or jumps half-way ("step"); beyond the trials it is constant.

    Learned: ``knots_`` (m,), strictly increasing margins, and ``values_`` (m,), P at each, non-decreasing.

    Assumes only a monotone P. Overfits with only a hundred trials or so (Niculescu-Mizil and Caruana 2005). Different
    margins may get equal posteriors.
    """

    kind: ClassVar[str] = "isotonic"

    between: Between = "linear"

    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
        from scipy.optimize import isotonic_regression  # slow to import

        self.knots_, place = np.unique(margins, return_inverse=True)
        total = np.bincount(place, weights=weights)
        hits = np.bincount(place, weights=weights * positive)
        low, high = smoothed_range(positive, weights)
        self.values_ = low + (high - low) * np.clip(isotonic_regression(hits / total, weights=total).x, 0.0, 1.0)

    def probability(self, margins: ArrayLike) -> Array:
        """Return P(positive | margin) at ``margins``, any shape."""
        f = as_numbers(margins)
        if self.between == "linear":
            return np.asarray(np.interp(f, self.knots_, self.values_))
        halfway = self.knots_[:-1] / 2 + self.knots_[1:] / 2
        return np.where(np.isnan(f), np.nan, self.values_[np.searchsorted(halfway, f)])


@dataclass(eq=False)
class CosineExpansion(MarginPosterior):
    """P = a_0 + sum over n = 1..N of a_n cos(n t), clipped, with t the margin mapped to [0, pi].

    Source: Platt 1999, eq. 6 (Vapnik 1998, section 11.11), but with constant a_n: margins do not determine an input's
    position along the separating plane. The a_n minimise

        mean of w (P(t) - y)^2 + penalty * sum of n^4 a_n^2,  y = 1 for positives, else 0,

    a linear system of ``terms`` + 1 equations; the second term is proportional to the integral of P''^2. The sum
    (``expansion``) may leave [0, 1] and need not be monotone; it is clipped to Platt's range (``smoothed_range``).
    Margins outside the training range count as its nearest end. If all margins are equal, P is the share of positives.

    Learned: ``coefficients_`` (N + 1,), ``limits_`` (margins at t = 0 and pi), ``range_`` (lowest and highest P).

    Assumes a smooth posterior, flat at both ends. Unsuitable if P must be monotone, or if an outlier stretches the
    range.
    """

    kind: ClassVar[str] = "cosine"

    terms: int = 8
    penalty: float = 1e-4

    def _check_settings(self) -> None:
        if self.terms < 0 or not 0.0 <= self.penalty < np.inf:
            raise FitError(
                f"cosine: terms and penalty of at least 0, finite, expected, got {self.terms} and {self.penalty}"
            )

    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
        self.limits_ = (float(margins.min()), float(margins.max()))
        self.range_ = smoothed_range(positive, weights)
        columns = self._cosines(margins)
        share = weights / weights.sum()
        system = (columns.T * share) @ columns + np.diag(self.penalty * np.arange(self.terms + 1.0) ** 4)
        # Minimum-norm solution: without a penalty, few margins have many solutions.
        self.coefficients_ = np.linalg.lstsq(system, columns.T @ (share * positive), rcond=None)[0]

    def _cosines(self, margins: Array) -> Array:
        """Return cos(n t), n = 0..N, on a new last axis."""
        low, high = self.limits_
        # Halved, so that the width of the range cannot overflow.
        width = high / 2 - low / 2
        t = np.pi * (np.clip(margins, low, high) / 2 - low / 2) / width if width > 0 else np.zeros(margins.shape)
        return np.asarray(np.cos(t[..., None] * np.arange(self.terms + 1)))

    def expansion(self, margins: ArrayLike) -> Array:
        """Return the unclipped sum of cosines at ``margins``, any shape."""
        return np.asarray(self._cosines(as_numbers(margins)) @ self.coefficients_)

    def probability(self, margins: ArrayLike) -> Array:
        """Return P(positive | margin) at ``margins``, any shape."""
        return np.asarray(np.clip(self.expansion(margins), *self.range_))
