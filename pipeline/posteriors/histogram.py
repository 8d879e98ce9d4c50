"""Histogram posterior: Bayes' rule with the margins of each class counted in bins."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, MarginPosterior, checked

Spacing = Literal["quantile", "uniform"]


class HistogramPosterior(MarginPosterior):
    """P by Bayes' rule from p(bin | class) = (n + s) / (N + s B): n of the class's N trials are in the bin, of B.

    Source: Platt 1999, eq. 7 over histograms, as the marks of its figure 2; s is Laplace's ``smoothing``. Priors are
    the classes' shares of the trials' weight. Bins hold equally many trials each (``spacing`` "quantile", fewer bins
    where trials tie) or are equally wide between the smallest and the largest margin ("uniform"). A margin on an edge
    belongs to the bin above it.

    Margins (n,) of any finite size; those beyond the outermost trials fall in the outermost bins. P in (0, 1), a step
    function; where a bin is empty of both classes it is near 0.5, the smoothing being all that is left. All margins
    equal: one bin, P is the share of positives.

    Assumes nothing of the shape, in exchange for many trials: several tens a bin. Do not use it where order or
    differences within a bin matter, nor as a monotone map, which it is not; it is the non-parametric yardstick that
    sigmoids are held against.
    """

    kind: ClassVar[str] = "histogram"

    edges_: Array
    """Margins (B - 1,) between the bins, rising strictly."""
    log_odds_: Array
    """Log-odds (B,) of the bins."""

    def __init__(self, bins: int = 20, spacing: Spacing = "quantile", smoothing: float = 1.0) -> None:
        """At most ``bins`` >= 1 bins, spaced as above; ``smoothing`` > 0 trials are added to each bin and class."""
        self.bins = bins
        self.spacing = spacing
        self.smoothing = smoothing

    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Learn bins and densities; see ``MarginPosterior.fit``. Raises FitError for settings out of range too."""
        self._check_settings()
        f, flags, w = checked(margins, positive, weights)
        self.edges_ = self._edges(f[w > 0], w[w > 0])
        place = np.asarray(np.searchsorted(self.edges_, f, side="right"), dtype=np.int_)
        self.log_odds_ = self._log_mass(place, w * flags) - self._log_mass(place, w * ~flags)
        self.log_odds_ += np.log(w[flags].sum()) - np.log(w[~flags].sum())
        return self

    def _check_settings(self) -> None:
        if self.spacing not in ("quantile", "uniform"):
            raise FitError(f"histogram: spacing is 'quantile' or 'uniform', got {self.spacing!r}")
        if self.bins < 1 or not self.smoothing > 0:
            raise FitError(
                f"histogram: at least one bin and smoothing above 0 expected, got {self.bins} and {self.smoothing}"
            )

    def _edges(self, f: Array, w: Array) -> Array:
        shares = np.arange(1, self.bins) / self.bins
        low, high = f.min(), f.max()
        if self.spacing == "uniform":
            found = low * (1.0 - shares) + high * shares
        else:
            found = np.quantile(f, shares, weights=w, method="inverted_cdf")
        # Edges at the smallest margin, or by rounding above the largest, would leave an outermost bin empty.
        return np.unique(found[(found > low) & (found <= high)])

    def _log_mass(self, place: NDArray[np.int_], w: Array) -> Array:
        """Log of the smoothed share (B,) of the class whose trials weigh ``w`` (n,)."""
        bins = len(self.edges_) + 1
        mass = np.bincount(place, weights=w, minlength=bins) + self.smoothing
        return np.asarray(np.log(mass / mass.sum()))

    def log_odds(self, margins: ArrayLike) -> Array:
        """Log-odds at ``margins``, any shape; finite."""
        return np.asarray(self.log_odds_[np.searchsorted(self.edges_, np.asarray(margins, dtype=float), side="right")])
