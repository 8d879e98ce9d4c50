"""Gaussian margins: posteriors by Bayes' rule from a normal density for each class, with one variance or two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, MarginPosterior, as_numbers

Crossing = Literal["zero", "bayes"]


@dataclass(eq=False)
class TiedGaussian(MarginPosterior):
    """P = s(slope (f - point)), slope = (m1 - m0) / v: Gaussian classes with means m1 and m0 and one variance v.

    Source: Hastie and Tibshirani 1998, as described in Platt 1999, section 1.1. v is the maximum likelihood estimate
    within the classes. ``crossing`` sets where P is 0.5: "zero", as published, at f = 0; "bayes" where the densities
    and the priors put it. ``floor`` in (0, 1) is the least standard deviation, as a share of that of all margins:
    without it, a class of equal margins would have an unbounded density.

    P is in (0, 1), up to rounding, and falls with f if m1 < m0. If all margins are equal, P is 0.5 ("zero") or the
    share of positives ("bayes") everywhere. Learned: ``slope_`` and ``offset_`` of the log-odds.

    Assumes normal margins of equal variance and, with "zero", a machine with the right threshold. Rarely suitable for
    SVM margins, whose densities have kinks at -1 and 1 and unequal widths: ``NewtonSigmoid`` fits them better.
    """

    kind: ClassVar[str] = "tied_gaussian"

    crossing: Crossing = "zero"
    floor: float = 1e-2

    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
        unit, (m1, v1, n1), (m0, v0, n0), least = _moments(margins, positive, weights, self.floor)
        variance = max((n1 * v1 + n0 * v0) / (n1 + n0), least)
        slope = (m1 - m0) / variance if variance > 0.0 else 0.0
        bayes = np.log(n1) - np.log(n0) - slope * (m1 + m0) / 2.0
        self.slope_ = slope / unit
        self.offset_ = float(bayes) if self.crossing == "bayes" else 0.0

    def log_odds(self, margins: ArrayLike) -> Array:
        """Return slope f + offset at ``margins``, any shape."""
        with np.errstate(over="ignore"):
            return np.asarray(self.slope_ * as_numbers(margins) + self.offset_)


@dataclass(eq=False)
class TwoGaussian(MarginPosterior):
    """P = 1 / (1 + exp(a f^2 + b f + c)): Gaussian classes, each with its own mean and variance.

    Source: Platt 1999, eqs. 7 and 8; maximum likelihood estimates. ``floor`` as for ``TiedGaussian``. P is NOT monotone
    in f: the wider Gaussian wins far out on both sides. If all margins are equal, P is the share of positives
    everywhere.

    Assumes normal margins. Unsuitable if the order of margins must be kept, for margins far from those of the fit, and
    for SVM margins, which are far from normal (Platt's figure 1). For comparison only.
    """

    kind: ClassVar[str] = "two_gaussian"

    floor: float = 1e-2

    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
        self.unit_, (m1, v1, n1), (m0, v0, n0), least = _moments(margins, positive, weights, self.floor)
        prior = float(np.log(n1) - np.log(n0))
        v1, v0 = max(v1, least), max(v0, least)
        if v1 == 0.0 or v0 == 0.0:
            self.scaled_ = (0.0, 0.0, prior)
            return
        square = 0.5 / v0 - 0.5 / v1
        constant = 0.5 * (m0 * m0 / v0 - m1 * m1 / v1 + np.log(v0) - np.log(v1))
        self.scaled_ = (square, m1 / v1 - m0 / v0, float(constant) + prior)

    def log_odds(self, margins: ArrayLike) -> Array:
        """Return the log-odds, a quadratic, at ``margins``, any shape."""
        a, b, c = self.scaled_
        with np.errstate(over="ignore"):
            z = as_numbers(margins) / self.unit_
            # In this order, infinities of opposite sign are never added.
            return np.asarray((a * z + b) * z + c)


def _moments(
    margins: Array, positive: Flags, weights: Array, floor: float
) -> tuple[float, tuple[float, float, float], tuple[float, float, float], float]:
    """Return the unit, (mean, variance, weight) of positives and of negatives, and the least variance allowed.

    Moments are those of margins / unit, with the unit the largest margin: neither tiny nor huge margins lose digits.
    The least variance is 0 only if all margins are equal. Raises FitError for a ``floor`` out of range.
    """
    if not 0.0 < floor < 1.0:
        raise FitError(f"floor: above 0 and below 1 expected, got {floor}")
    unit = float(np.abs(margins).max()) or 1.0
    z = margins / unit

    def moments(w: Array) -> tuple[float, float, float]:
        count = float(w.sum())
        # Relative to one trial, so that equal margins have exactly their value as mean and a variance of 0.
        start = z[np.argmax(w > 0)]
        mean = start + float(w @ (z - start)) / count
        return mean, float(w @ (z - mean) ** 2) / count, count

    return unit, moments(weights * positive), moments(weights * ~positive), floor**2 * moments(weights)[1]
