"""Isotonic posterior: the best rising function of the margin, by pooling adjacent violators."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, MarginPosterior, checked

Between = Literal["linear", "step"]


def smoothed_range(positive: Flags, weights: Array) -> tuple[float, float]:
    """Lowest and highest posterior that the trials can vouch for: 1 / (N- + 2) and (N+ + 1) / (N+ + 2).

    Platt 1999, eqs. 13 and 14; N+ and N- are the classes' weights.
    """
    positives, negatives = float(weights[positive].sum()), float(weights[~positive].sum())
    return 1.0 / (negatives + 2.0), (positives + 1.0) / (positives + 2.0)


class IsotonicPosterior(MarginPosterior):
    """P minimises sum w (P(f) - t)^2 over all functions that never fall, with Platt's smoothed targets t.

    Source: pool adjacent violators, Ayer and others 1955; Zadrozny and Elkan 2002 for classifiers. The targets are
    those of Platt 1999, eqs. 13 and 14: (N+ + 1) / (N+ + 2) for positives, 1 / (N- + 2) for negatives. As the fit
    moves with its targets, this is the plain fit to 1 and 0 brought linearly from [0, 1] to [t-, t+]: its pools are
    the same, none of them is certain, and the log-odds are finite. Trials with equal margins are one pool from the
    start.

    Margins (n,) of any finite size; P in [t-, t+]. P is constant within a pool. Between the largest margin of a pool
    and the smallest of the next, P runs linearly (``between`` "linear") or jumps half-way ("step"). Margins outside
    those of the trials get the P of the nearest end.

    Assumes only that more margin never means less chance. Do not use it with few trials (a hundred or so): it follows
    them closely, its ends rest on a few trials each, and a sigmoid does better (Niculescu-Mizil and Caruana 2005). It
    merges margins into ties, and fitted to margins the wrong way round it is one constant.
    """

    kind: ClassVar[str] = "isotonic"

    knots_: Array
    """Margins (m,) that begin or end a pool, rising strictly."""
    values_: Array
    """P (m,) at ``knots_``, never falling."""

    def __init__(self, between: Between = "linear") -> None:
        """``between`` pools P is "linear" in the margin, or a "step" half-way."""
        self.between = between

    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Learn the pools; see ``MarginPosterior.fit``. Raises FitError for an unknown ``between`` too."""
        from scipy.optimize import isotonic_regression  # slow to import

        if self.between not in ("linear", "step"):
            raise FitError(f"isotonic: between is 'linear' or 'step', got {self.between!r}")
        f, flags, w = checked(margins, positive, weights)
        levels, place = np.unique(f[w > 0], return_inverse=True)
        total = np.bincount(place, weights=w[w > 0])
        hits = np.bincount(place, weights=(w * flags)[w > 0])
        starts = isotonic_regression(hits / total, weights=total).blocks[:-1]
        # Counted again: sums of whole numbers are free of the rounding of running means.
        share = np.add.reduceat(hits, starts) / np.add.reduceat(total, starts)
        least, most = smoothed_range(flags, w)
        self._keep(levels[starts], levels[np.r_[starts[1:], len(levels)] - 1], least + (most - least) * share)
        return self

    def _keep(self, first: Array, last: Array, value: Array) -> None:
        """Pools with margins from ``first`` to ``last`` as knots; a pool of one margin is one knot."""
        edges, values = np.c_[first, last].ravel(), np.repeat(value, 2)
        kept = np.r_[True, np.diff(edges) > 0]
        self.knots_, self.values_ = edges[kept], values[kept]

    def probability(self, margins: ArrayLike) -> Array:
        """P(positive | margin) at ``margins``, any shape."""
        f = np.asarray(margins, dtype=float)
        if self.between == "linear":
            return np.asarray(np.interp(f, self.knots_, self.values_))
        halfway = self.knots_[:-1] / 2 + self.knots_[1:] / 2
        return np.asarray(self.values_[np.searchsorted(halfway, f)])

    def log_odds(self, margins: ArrayLike) -> Array:
        """Log-odds at ``margins``, any shape; finite."""
        return np.asarray(logit(self.probability(margins)))
