"""Gaussian margins: posteriors by Bayes' rule from a normal density of each class, of one variance or of two.

Hastie and Tibshirani 1998, Classification by pairwise coupling, as Platt 1999 tells it in section 1.1; eqs. 7 and 8 of
Platt. Both learn in units in which the largest margin is 1, so that neither tiny nor huge margins lose digits, and keep
each standard deviation at ``floor`` times the spread of all margins or above. Without a floor, a class whose margins
are all equal would have a density without bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, MarginPosterior, checked

Crossing = Literal["zero", "bayes"]


@dataclass(frozen=True, slots=True)
class ClassMoments:
    """What Gaussians need of the margins z = f / ``unit``: mean and variance of each class, weights of the trials.

    ``least`` is the floor of a variance; it is 0 only when all margins are equal.
    """

    unit: float
    means: tuple[float, float]
    variances: tuple[float, float]
    counts: tuple[float, float]
    least: float

    @property
    def prior_log_odds(self) -> float:
        """Log of the positive over the negative trials' weight."""
        return float(np.log(self.counts[0]) - np.log(self.counts[1]))


def class_moments(margins: Array, positive: Flags, weights: Array, floor: float) -> ClassMoments:
    """Moments of checked ``margins`` (n,), maximum likelihood; positive class first. ``floor`` in (0, 1)."""
    unit = float(np.abs(margins).max()) or 1.0
    z = margins / unit

    def moments(w: Array) -> tuple[float, float, float]:
        count = float(w.sum())
        # From the first trial on: equal margins have their own value as mean, and a variance of exactly 0.
        start = z[np.argmax(w > 0)]
        mean = start + float(w @ (z - start)) / count
        return mean, float(w @ (z - mean) ** 2) / count, count

    (m1, v1, n1), (m0, v0, n0) = moments(weights * positive), moments(weights * ~positive)
    return ClassMoments(unit, (m1, m0), (v1, v0), (n1, n0), floor**2 * moments(weights)[1])


class TiedGaussian(MarginPosterior):
    """P = s(slope (f - point)), slope = (m1 - m0) / v: Gaussian classes with means m1 and m0 and one variance v.

    Source: Hastie and Tibshirani 1998, as described in Platt 1999, section 1.1. v is the maximum likelihood estimate
    within the classes. ``crossing`` says where P is 0.5: "zero", as published, moves the sigmoid so that this is at
    f = 0; "bayes" leaves it where the two densities and the priors (the classes' shares of the trials) put it.

    Margins (n,) of any finite size, on any scale; P in (0, 1), up to rounding, falls with f if m1 < m0. All margins
    equal: P is 0.5 ("zero") or the share of positives ("bayes") everywhere.

    Assumes normal margins, equally wide in both classes, and with "zero" a machine whose threshold is right as it
    stands. Do not use it where these are known to fail: SVM margins have kinks at -1 and 1 and unequal spreads, and
    two fitted numbers (``NewtonSigmoid``) follow the classes' true odds better than one variance does. With a handful
    of trials v is badly known, and where each class has one margin it is the floor alone.
    """

    kind: ClassVar[str] = "tied_gaussian"

    slope_: float
    """Log-odds gained by a unit of margin."""
    offset_: float
    """Log-odds at f = 0; 0 for crossing "zero"."""

    def __init__(self, crossing: Crossing = "zero", floor: float = 1e-2) -> None:
        """``crossing`` as above; ``floor`` in (0, 1), of standard deviations as a share of all margins' spread."""
        self.crossing = crossing
        self.floor = floor

    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Learn slope and offset; see ``MarginPosterior.fit``. Raises FitError for settings out of range too."""
        if self.crossing not in ("zero", "bayes"):
            raise FitError(f"tied_gaussian: crossing is 'zero' or 'bayes', got {self.crossing!r}")
        found = class_moments(*checked(margins, positive, weights), _share(self.floor, self.kind))
        (m1, m0), (v1, v0), (n1, n0) = found.means, found.variances, found.counts
        variance = max((n1 * v1 + n0 * v0) / (n1 + n0), found.least)
        slope = (m1 - m0) / variance if variance > 0.0 else 0.0
        self.slope_ = slope / found.unit
        bayes = found.prior_log_odds - slope * (m1 + m0) / 2.0
        self.offset_ = bayes if self.crossing == "bayes" else 0.0
        return self

    def log_odds(self, margins: ArrayLike) -> Array:
        """Log-odds at ``margins``, any shape: slope f + offset."""
        with np.errstate(over="ignore"):
            return np.asarray(self.slope_ * np.asarray(margins, dtype=float) + self.offset_)

    @property
    def quadratic_(self) -> tuple[float, float, float]:
        """(a, b, c) of the log-odds a f^2 + b f + c; a is 0."""
        return 0.0, self.slope_, self.offset_


class TwoGaussian(MarginPosterior):
    """P = 1 / (1 + exp(a f^2 + b f + c)): Gaussian classes, each with its own mean and variance.

    Source: Platt 1999, eqs. 7 and 8. Means and variances are the maximum likelihood estimates; the priors are the
    classes' shares of the trials' weight. ``quadratic_`` has the signs of log-odds, opposite to those of eq. 8.

    Margins (n,) of any finite size; P in [0, 1]. P is NOT monotone in f: the class with the wider Gaussian wins far
    out on both sides, so that a margin deep inside one class can be given to the other. All margins equal: P is the
    share of positives everywhere.

    Assumes normal margins. Do not use it where order must survive (ranking, thresholds), nor where margins far from
    the training ones can occur, nor on SVM margins, which are far from normal (Platt's figure 1): it is here to be
    compared with.
    """

    kind: ClassVar[str] = "two_gaussian"

    def __init__(self, floor: float = 1e-2) -> None:
        """``floor`` in (0, 1), of standard deviations as a share of all margins' spread."""
        self.floor = floor

    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Learn both Gaussians; see ``MarginPosterior.fit``. Raises FitError for settings out of range too."""
        found = class_moments(*checked(margins, positive, weights), _share(self.floor, self.kind))
        self.unit_ = found.unit
        (m1, m0), (v1, v0) = found.means, (max(v, found.least) for v in found.variances)
        if found.least == 0.0 or v1 == 0.0 or v0 == 0.0:
            self.scaled_ = (0.0, 0.0, found.prior_log_odds)
            return self
        square = 0.5 / v0 - 0.5 / v1
        constant = 0.5 * (m0 * m0 / v0 - m1 * m1 / v1 + np.log(v0) - np.log(v1))
        self.scaled_ = (square, m1 / v1 - m0 / v0, float(constant) + found.prior_log_odds)
        return self

    def log_odds(self, margins: ArrayLike) -> Array:
        """Log-odds at ``margins``, any shape: a quadratic."""
        a, b, c = self.scaled_
        with np.errstate(over="ignore"):
            z = np.asarray(margins, dtype=float) / self.unit_
            # In this order no infinity ever meets one of the other sign.
            return np.asarray((a * z + b) * z + c)

    @property
    def quadratic_(self) -> tuple[float, float, float]:
        """(a, b, c) of the log-odds a f^2 + b f + c."""
        a, b, c = self.scaled_
        return a / self.unit_**2, b / self.unit_, c


def _share(floor: float, kind: str) -> float:
    if not 0.0 < floor < 1.0:
        raise FitError(f"{kind}: floor above 0 and below 1 expected, got {floor}")
    return floor
