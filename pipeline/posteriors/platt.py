"""Platt's sigmoid, fitted by the Levenberg-Marquardt algorithm of the appendix of his 1999 paper, as published.

Kept to reproduce published numbers. Its plain arithmetic overflows and may stop short of the optimum (Lin, Lin and Weng
2007 explain why); ``NewtonSigmoid`` fits the same sigmoid to the same targets without either fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, LinearLogOdds, WeightedTrials, trials_from

MAX_ITERATIONS = 100
FIRST_DAMPING = 1e-3
# Steps are accepted unconditionally from this damping on.
MAX_DAMPING = 1e6
TINY_GRADIENT = 1e-9
# Replaces log 0.
LOG_OF_ZERO = -200.0
# Larger exponents overflow a double.
LARGEST_EXPONENT = float(np.log(np.finfo(np.float64).max))


@dataclass(kw_only=True, eq=False)
class PlattSigmoid(LinearLogOdds):
    """P(positive | f) = 1 / (1 + exp(A f + B)), smoothed targets, Levenberg-Marquardt (Platt 1999, appendix).

    ``bug`` keeps the published slip that Lin, Lin and Weng 2007, section 3.1, point out: the error that a step is
    judged by uses the last trial's target for every trial. ``tolerance`` replaces the published stopping rules (a
    gradient of 1e-9, or three steps of next to no change) by one: both components of the gradient below it, as in
    section 4 of Lin, Lin and Weng. At most 100 iterations either way.

    Learned: ``A_``, ``B_``; ``iterations_``; ``objective_``, the true F(A_, B_) in nats, not the algorithm's own
    error; ``gradient_``, the larger component of its gradient in size; ``overflows_``, exponentials too large for a
    double; ``log_zeros_``, logs of zero, each replaced by -200; ``converged_``, False after 100 iterations.

    Assumes log-odds linear in the margin. Not for new work: where margins nearly separate the classes it can stop far
    from the optimum; ``NewtonSigmoid`` does not.
    """

    kind: ClassVar[str] = "platt"

    bug: bool = False
    tolerance: float | None = None

    def _check_settings(self) -> None:
        """Accept all settings."""

    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
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


class _LevenbergMarquardt:
    """One run over ``trials``; attributes are the variables of the published pseudo-code."""

    def __init__(self, trials: WeightedTrials, *, bug: bool, tolerance: float | None) -> None:
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
        """Iterate; return True if a stopping rule was met, False if the iterations ran out."""
        steady = 0
        for _ in range(MAX_ITERATIONS):
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
        """Return the Hessian (a, c; c, b) and minus the gradient (d, e) at the current p."""
        f, w = self.trials.margins, self.trials.weights
        d1 = w * (self.p - self.trials.target)
        d2 = w * (self.p * (1.0 - self.p))
        return float(f * f @ d2), float(d2.sum()), float(f @ d2), float(f @ d1), float(d1.sum())

    def _step(self, a: float, b: float, c: float, d: float, e: float) -> float:
        """Move A and B, increasing the damping until the error does not rise; return the new error."""
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
            if self.damping >= MAX_DAMPING:
                return error

    def _judge(self) -> float:
        """Set p at the current A and B and return the error by the published arithmetic, counting its failures."""
        exponent = self.trials.margins * self.A + self.B
        self.p = 1.0 / (1.0 + np.exp(exponent))
        self.overflows += int((exponent > LARGEST_EXPONENT).sum())
        log_p, log_q = self._log(self.p), self._log(1.0 - self.p)
        return -float(self.trials.weights @ (self.judged * log_p + (1.0 - self.judged) * log_q))

    def _log(self, values: Array) -> Array:
        zero = values == 0.0
        self.log_zeros += int(zero.sum())
        return np.where(zero, LOG_OF_ZERO, np.log(np.where(zero, 1.0, values)))
