"""The sigmoid of Lin, Lin and Weng 2007: the optimum of Platt's objective, by Newton's method with backtracking."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import frexp
from typing import ClassVar, Literal

import numpy as np

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, LinearLogOdds, WeightedTrials, trials_from

SMALL_SIGMA = 1e-12
SUFFICIENT = 1e-4
SMALLEST_STEP = 1e-10
# Assumed relative rounding error of a sum, and its largest value for the objective.
ROUNDINGS = 4 * float(np.finfo(np.float64).eps)
MAX_NOISE = 1e-10


@dataclass(kw_only=True, eq=False)
class NewtonSigmoid(LinearLogOdds):
    """P(positive | f) = 1 / (1 + exp(A f + B)) at the minimum of F (Lin, Lin and Weng 2007, eq. 2, Algorithm 1).

    Learned: ``A_``, ``B_``; ``iterations_``; ``backtracks_``, the number of halvings, and ``overflows_``, those because
    F overflowed; ``objective_``, F in nats; ``gradient_``, the larger magnitude of F's two gradient components, for
    scaled margins if ``scaled``; ``converged_``.

    Assumes log-odds linear in the margin, with a slope of either sign; otherwise isotonic regression or a histogram
    fits better, given some hundreds of trials. Unsuitable for margins of the machine's own training trials (see
    ``heldout``). Because of ``sigma``, margins that differ by less than 1e-7 of their size count as equal.

    Parameters
    ----------
    smoothed : bool
        Use the targets of Platt 1999, eqs. 13 and 14; otherwise 1 and 0, with which separable margins have no optimum.
    sigma : float or "dynamic"
        Above 0, added to the Hessian's diagonal; "dynamic" adds 1e-12 only if all margins are equal (Theorem 1).
    tolerance : float
        At least 0; bound on both components of the final gradient, apart from rounding.
    max_iterations : int
        At least 1; about ten are usual, each O(n).
    scaled : bool
        First divide the margins by a power of two near their mean size, and stop only if one more step cannot lower F
        by more than ``tolerance`` either (margins that hardly vary have small gradients everywhere). False is the
        algorithm as published.
    """

    kind: ClassVar[str] = "newton"

    smoothed: bool = True
    sigma: float | Literal["dynamic"] = SMALL_SIGMA
    tolerance: float = 1e-5
    max_iterations: int = 100
    scaled: bool = True

    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
        trials = trials_from(margins, positive, weights, smoothed=self.smoothed)
        scale = _scale(trials) if self.scaled else 1.0
        trials = replace(trials, margins=trials.margins / scale)
        A, B = trials.start
        value = trials.objective(A, B)
        sigma = self.sigma
        if sigma == "dynamic":
            sigma = SMALL_SIGMA if np.ptp(trials.margins) == 0.0 else 0.0
        # Below this size the gradient's components are rounding error.
        floor = ROUNDINGS * np.array([trials.weights @ np.abs(trials.margins), trials.weights.sum()])
        self.iterations_ = self.backtracks_ = self.overflows_ = 0
        while True:
            gradient, direction, slope = _newton_step(trials, A, B, sigma)
            noise = min(ROUNDINGS * value + float(floor @ np.abs([A, B])), MAX_NOISE * value)
            self.converged_ = bool(np.all(np.abs(gradient) <= np.maximum(self.tolerance, floor)))
            self.converged_ &= not self.scaled or -slope <= max(self.tolerance, noise)
            if self.converged_ or self.iterations_ == self.max_iterations:
                break
            moved = self._backtracked(trials, A, B, value + noise, direction, slope)
            if moved is None:
                break
            A, B, value = moved
            self.iterations_ += 1
        self.A_, self.B_, self.objective_ = A / scale, B, value
        self.gradient_ = float(np.abs(gradient).max())

    def _check_settings(self) -> None:
        if self.sigma != "dynamic" and not 0.0 < self.sigma < np.inf:
            raise FitError(f"newton: sigma is 'dynamic' or a number above 0, got {self.sigma!r}")
        if not self.tolerance >= 0.0:
            raise FitError(f"newton: tolerance of at least 0 expected, got {self.tolerance}")
        if self.max_iterations < 1:
            raise FitError(f"newton: max_iterations of at least 1 expected, got {self.max_iterations}")

    def _backtracked(
        self, trials: WeightedTrials, A: float, B: float, value: float, direction: Array, slope: float
    ) -> tuple[float, float, float] | None:
        """Return A, B and F after the step, halved until F is sufficiently below ``value``; None if no step suffices.

        ``value`` is F plus its rounding error, which near the optimum exceeds the required decrease.
        """
        dA, dB = direction.tolist()
        size = 1.0
        while size >= SMALLEST_STEP:
            new_A, new_B = A + size * dA, B + size * dB
            new_value = trials.objective(new_A, new_B)
            if new_value <= value + SUFFICIENT * size * slope:  # Armijo's condition
                return new_A, new_B, new_value
            self.overflows_ += int(new_value == np.inf)
            self.backtracks_ += 1
            size /= 2.0
        return None


def _newton_step(trials: WeightedTrials, A: float, B: float, sigma: float) -> tuple[Array, Array, float]:
    """Return the gradient (2,), the direction d (2,), (H + sigma I) d = -gradient, and F's slope along it, at most 0.

    With m the mean margin weighted by p (1 - p), h11 h22 - h21^2 is h22 times a sum of squares about m: nothing
    cancels, and for equal margins of any size exactly the sigma terms remain.
    """
    f = trials.margins
    d1, d2 = trials.slopes(A, B)
    g1, g2 = float(f @ d1), float(d1.sum())
    h21, h22 = float(f @ d2), float(d2.sum())
    m = h21 / h22 if h22 > 0.0 else 0.0
    about = f - m
    spread = float(about * about @ d2)
    det = (h22 + sigma) * (spread + sigma) + m * h21 * sigma
    if det > 0.0:
        dA = -(h22 * float(about @ d1) + sigma * g1) / det
        dB = -(g2 + h21 * dA) / (h22 + sigma)
    else:  # no curvature left in double precision
        dA, dB = -g1, -g2
    return np.array([g1, g2]), np.array([dA, dB]), min(g1 * dA + g2 * dB, 0.0)


def _scale(trials: WeightedTrials) -> float:
    """Return a power of two near the weighted mean size of the margins; 1 if all are zero."""
    sizes = np.abs(trials.margins)
    largest = float(sizes.max())
    if largest == 0.0:
        return 1.0
    mean = largest * float(trials.weights @ (sizes / largest) / trials.weights.sum())
    # Within these bounds A / scale remains finite.
    return float(2.0 ** np.clip(frexp(mean)[1] - 1, -900, 1000))
