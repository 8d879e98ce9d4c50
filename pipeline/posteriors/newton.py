"""The sigmoid of Lin, Lin and Weng 2007: the optimum of Platt's objective, by Newton's method with backtracking."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import FitError
from pipeline.posteriors.base import Array
from pipeline.posteriors.sigmoid_fits import LinearLogOdds, Trials, trials_from

SMALL_SIGMA = 1e-12
SUFFICIENT = 1e-4
SMALLEST_STEP = 1e-10
# Sums of n terms are trusted to this many roundings of their largest possible value.
ROUNDINGS = 4 * float(np.finfo(np.float64).eps)
# And an objective never to be worse than to this share.
MOST_NOISE = 1e-10


class NewtonSigmoid(LinearLogOdds):
    """P(positive | f) = 1 / (1 + exp(A f + B)) at the minimum of F (Lin, Lin and Weng 2007, eq. 2, Algorithm 1).

    ``smoothed`` targets as Platt 1999, eqs. 13 and 14, or 1 and 0, for which separable margins have no optimum and the
    slope found is only where the gradient got small. ``sigma`` > 0 is added to the Hessian's diagonal, or, "dynamic",
    1e-12 only where all margins are equal (Theorem 1). ``tolerance`` >= 0: neither component of the gradient is larger
    at the end, rounding aside. ``max_iterations`` >= 1. ``scaled`` divides the margins by a power of two near their
    mean size first, so that their unit does not matter, and ends only where one more step cannot lower F by more than
    ``tolerance`` either: margins that hardly vary have small gradients everywhere. Without it, all is as published.

    Learned: ``A_``, ``B_``; ``iterations_``, the steps taken; ``backtracks_``, the halvings of them in all, and
    ``overflows_``, how many of them because F was too large for a double; ``objective_``, F in nats; ``gradient_``,
    the larger component of F's gradient in size, of scaled margins if so; ``converged_``.

    Assumes log-odds linear in the margin, of either sign. Where they are visibly not, isotonic regression or a
    histogram follow the data more closely given some hundreds of trials. Not for margins of the trials that trained
    the machine, unless it is linear and small (``margins_for`` says more). Margins that differ by less than 1e-7 of
    their size are taken for equal, because of ``sigma``. A fit costs O(n) an iteration, of which there are about ten.
    """

    kind: ClassVar[str] = "newton"

    def __init__(
        self,
        *,
        smoothed: bool = True,
        sigma: float | Literal["dynamic"] = SMALL_SIGMA,
        tolerance: float = 1e-5,
        max_iterations: int = 100,
        scaled: bool = True,
    ) -> None:
        self.smoothed = smoothed
        self.sigma = sigma
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.scaled = scaled

    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Fit to ``margins`` (n,), ``positive`` (n,) and ``weights`` (n,) >= 0, whose sums stand for N+ and N-.

        Raises FitError for data ``checked`` refuses and for settings out of range.
        """
        self._check_settings()
        trials = trials_from(margins, positive, weights, smoothed=self.smoothed)
        scale = _scale(trials) if self.scaled else 1.0
        trials = trials.scaled(scale)
        A, B = trials.start
        value = trials.objective(A, B)
        sigma, floor = self._sigma(trials), _rounding(trials)
        self.iterations_ = self.backtracks_ = self.overflows_ = 0
        while True:
            step = _newton_step(trials, A, B, sigma)
            noise = min(ROUNDINGS * value + float(floor @ np.abs([A, B])), MOST_NOISE * value)
            self.converged_ = self._is_done(step, floor, noise)
            if self.converged_ or self.iterations_ == self.max_iterations:
                break
            found = self._backtracked(trials, A, B, value + noise, step)
            if found is None:
                break
            A, B, value = found
            self.iterations_ += 1
        self.A_, self.B_, self.objective_ = A / scale, B, value
        self.gradient_ = float(np.abs(step.gradient).max())
        return self

    def _check_settings(self) -> None:
        if self.sigma != "dynamic" and not (isinstance(self.sigma, int | float) and 0.0 < self.sigma < np.inf):
            raise FitError(f"newton: sigma is 'dynamic' or a number above 0, got {self.sigma!r}")
        if not self.tolerance >= 0.0:
            raise FitError(f"newton: tolerance of at least 0 expected, got {self.tolerance}")
        if self.max_iterations < 1:
            raise FitError(f"newton: max_iterations of at least 1 expected, got {self.max_iterations}")

    def _sigma(self, trials: Trials) -> float:
        if self.sigma == "dynamic":
            return SMALL_SIGMA if np.ptp(trials.margins) == 0.0 else 0.0
        return self.sigma

    def _is_done(self, step: _Step, floor: Array, noise: float) -> bool:
        small = bool(np.all(np.abs(step.gradient) <= np.maximum(self.tolerance, floor)))
        return small and (not self.scaled or -step.slope <= max(self.tolerance, noise))

    def _backtracked(
        self, trials: Trials, A: float, B: float, value: float, step: _Step
    ) -> tuple[float, float, float] | None:
        """A, B and F after the step, halved until F is far enough below ``value``; None if no step of any use does.

        ``value`` is F with what rounding can add to it: near the optimum the decrease asked for is less than that.
        """
        dA, dB = step.direction
        size = 1.0
        while size >= SMALLEST_STEP:
            new_A, new_B = A + size * dA, B + size * dB
            found = trials.objective(new_A, new_B)
            if found <= value + SUFFICIENT * size * step.slope:
                return new_A, new_B, found
            self.overflows_ += int(found == np.inf)
            self.backtracks_ += 1
            size /= 2.0
        return None


@dataclass(frozen=True, slots=True)
class _Step:
    """Gradient of F (2,), the damped Newton direction, and F's slope along it, at most 0."""

    gradient: Array
    direction: tuple[float, float]
    slope: float


def _newton_step(trials: Trials, A: float, B: float, sigma: float) -> _Step:
    """Solve (H + sigma I) d = -gradient by elimination.

    With m the mean margin weighted by p (1 - p), h11 h22 - h21^2 is h22 times a sum of squares about m: nothing is
    subtracted, and equal margins of any size leave exactly what sigma adds.
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
    return _Step(np.array([g1, g2]), (dA, dB), min(g1 * dA + g2 * dB, 0.0))


def _rounding(trials: Trials) -> Array:
    """Size (2,) below which the gradient's components are rounding."""
    return ROUNDINGS * np.array([trials.weights @ np.abs(trials.margins), trials.weights.sum()])


def _scale(trials: Trials) -> float:
    """Power of two near the weighted mean size of the margins; 1 if they are all zero."""
    sizes = np.abs(trials.margins)
    largest = float(sizes.max())
    if largest == 0.0:
        return 1.0
    mean = largest * float(trials.weights @ (sizes / largest) / trials.weights.sum())
    # Within these bounds A / scale is a finite number too.
    return float(2.0 ** np.clip(frexp(mean)[1] - 1, -900, 1000))
