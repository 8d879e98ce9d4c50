"""Platt's sigmoid, fitted by the Levenberg-Marquardt algorithm of the appendix of his 1999 paper, as published.

It is here to reproduce published numbers. Its plain arithmetic overflows and may stop short of the optimum, and Lin,
Lin and Weng 2007 explain why; ``NewtonSigmoid`` fits the same sigmoid to the same targets without either.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import FitError
from pipeline.posteriors.base import Array
from pipeline.posteriors.sigmoid_fits import LinearLogOdds, Trials, trials_from

MOST_ITERATIONS = 100
FIRST_DAMPING = 1e-3
# A step that needs more damping than this is taken as it is.
MOST_DAMPING = 1e6
TINY_GRADIENT = 1e-9
# Stands for the log of zero.
LOG_OF_ZERO = -200.0
# exp of more is no double.
LARGEST_EXPONENT = float(np.log(np.finfo(np.float64).max))


class PlattSigmoid(LinearLogOdds):
    """P(positive | f) = 1 / (1 + exp(A f + B)), smoothed targets, Levenberg-Marquardt (Platt 1999, appendix).

    ``bug`` keeps the published slip that Lin, Lin and Weng 2007, section 3.1, point out: the error that decides on a
    step takes every trial's target to be that of the last trial. Without it each trial has its own. ``tolerance``
    replaces the published ends (a gradient of 1e-9, or three steps of next to no change) by one: both components of
    the gradient smaller than this, as in section 4 of Lin, Lin and Weng. Either way after 100 iterations.

    Learned: ``A_``, ``B_``; ``iterations_``, the steps taken; ``objective_``, the true F(A_, B_) in nats, not the
    algorithm's own error; ``gradient_``, the larger component of its gradient in size; ``overflows_``, exponentials
    too large for a double; ``log_zeros_``, logs of zero, each taken for -200; ``converged_``, whether a rule stopped
    it before the 100 iterations.

    Assumes log-odds linear in the margin. Not for anything new: where margins nearly separate the classes it can stop
    far from the optimum, and ``NewtonSigmoid`` does not.
    """

    kind: ClassVar[str] = "platt"

    def __init__(self, *, bug: bool = False, tolerance: float | None = None) -> None:
        self.bug = bug
        self.tolerance = tolerance

    def fit(self, margins: ArrayLike, positive: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Fit to ``margins`` (n,), ``positive`` (n,) and ``weights`` (n,) >= 0, whose sums stand for N+ and N-.

        Raises FitError for data ``checked`` refuses, and where the algorithm ends at no finite numbers.
        """
        trials = trials_from(margins, positive, weights)
        with np.errstate(over="ignore", invalid="ignore"):
            run = _LevenbergMarquardt(trials, bug=self.bug, tolerance=self.tolerance)
            self.converged_ = run.descend()
        if not (np.isfinite(run.A) and np.isfinite(run.B)):
            raise FitError(
                f"Platt's algorithm: finite A and B expected, got {run.A} and {run.B}: the margins, up to"
                f" {np.abs(trials.margins).max():g}, are too large for its arithmetic; NewtonSigmoid fits them"
            )
        self.A_, self.B_ = run.A, run.B
        self.iterations_ = run.iterations
        self.overflows_, self.log_zeros_ = run.overflows, run.log_zeros
        self.objective_ = trials.objective(self.A_, self.B_)
        slopes, _ = trials.slopes(self.A_, self.B_)
        self.gradient_ = float(max(abs(slopes @ trials.margins), abs(slopes.sum())))
        return self


class _LevenbergMarquardt:
    """One run over ``trials``; the numbers that the published steps change are its attributes."""

    def __init__(self, trials: Trials, *, bug: bool, tolerance: float | None) -> None:
        self.trials = trials
        self.judged = np.full_like(trials.target, trials.target[-1]) if bug else trials.target
        self.tolerance = tolerance
        self.A, self.B = trials.start
        n1, n0 = trials.positives, trials.negatives
        self.p: Array = np.full_like(trials.target, (n1 + 1.0) / (n1 + n0 + 2.0))
        self.damping = FIRST_DAMPING
        self.error = 1e300
        self.iterations = self.overflows = self.log_zeros = 0

    def descend(self) -> bool:
        """Step until a rule says stop; whether one did before the iterations ran out."""
        steady = 0
        for _ in range(MOST_ITERATIONS):
            a, b, c, d, e = self._sums()
            if max(abs(d), abs(e)) < (TINY_GRADIENT if self.tolerance is None else self.tolerance):
                return True
            before = self.error
            self.error = self._step(a, b, c, d, e)
            self.iterations += 1
            change, scale = self.error - before, 0.5 * (self.error + before + 1.0)
            steady = steady + 1 if -1e-3 * scale < change < 1e-7 * scale else 0
            if steady == 3 and self.tolerance is None:
                return True
        return False

    def _sums(self) -> tuple[float, float, float, float, float]:
        """Hessian (a, c; c, b), and minus the gradient (d, e), at the current p."""
        f, w = self.trials.margins, self.trials.weights
        d1 = w * (self.p - self.trials.target)
        d2 = w * (self.p * (1.0 - self.p))
        return float(f * f @ d2), float(d2.sum()), float(f @ d2), float(f @ d1), float(d1.sum())

    def _step(self, a: float, b: float, c: float, d: float, e: float) -> float:
        """Move A and B, with as much damping as it takes for the error not to rise; the new error."""
        A, B = self.A, self.B
        while True:
            det = (a + self.damping) * (b + self.damping) - c * c
            if det == 0.0:
                self.damping *= 10.0
                continue
            self.A = A + ((b + self.damping) * d - c * e) / det
            self.B = B + ((a + self.damping) * e - c * d) / det
            error = self._judge()
            if error < self.error * (1.0 + 1e-7):
                self.damping *= 0.1
                return error
            self.damping *= 10.0
            if self.damping >= MOST_DAMPING:
                return error

    def _judge(self) -> float:
        """Error at the current A and B by the published arithmetic, which sets p and counts what goes wrong."""
        exponent = self.trials.margins * self.A + self.B
        self.p = 1.0 / (1.0 + np.exp(exponent))
        self.overflows += int((exponent > LARGEST_EXPONENT).sum())
        log_p, log_q = self._log(self.p), self._log(1.0 - self.p)
        return -float(self.trials.weights @ (self.judged * log_p + (1.0 - self.judged) * log_q))

    def _log(self, values: Array) -> Array:
        zero = values == 0.0
        self.log_zeros += int(zero.sum())
        return np.where(zero, LOG_OF_ZERO, np.log(np.where(zero, 1.0, values)))
