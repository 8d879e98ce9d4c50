"""Platt's sigmoid, fitted by the Levenberg-Marquardt algorithm of the appendix of his 1999 paper, as published.

Kept to reproduce published numbers. Its plain arithmetic may overflow, and the algorithm may stop short of the optimum
(Lin, Lin and Weng 2007 explain why); ``NewtonSigmoid`` fits the same sigmoid to the same targets without either fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipeline.errors import FitError
from pipeline.posteriors.base import Array, Flags, LinearLogOdds, WeightedTrials, trials_from

MAX_ITERATIONS = 100
FIRST_DAMPING = 1e-3
# From this damping on, steps are accepted unconditionally.
MAX_DAMPING = 1e6
TINY_GRADIENT = 1e-9
# Replaces log 0.
LOG_OF_ZERO = -200.0
# Larger exponents overflow a double.
LARGEST_EXPONENT = float(np.log(np.finfo(np.float64).max))


@dataclass(kw_only=True, eq=False)
class PlattSigmoid(LinearLogOdds):
    """P(positive | f) = 1 / (1 + exp(A f + B)), smoothed targets, Levenberg-Marquardt (Platt 1999, appendix).

    ``bug`` keeps the published mistake that Lin, Lin and Weng 2007, section 3.1, point out: the error that decides on a
    step uses the last trial's target for every trial. ``tolerance`` replaces the published stopping rules (a gradient
    of 1e-9, or three steps with almost no change) by a bound on both components of the gradient, as in section 4 of
    Lin, Lin and Weng. There are at most 100 iterations either way.

    Learned: ``A_``, ``B_``; ``iterations_``; ``objective_``, the true F(A_, B_) in nats, not the algorithm's own
    error; ``gradient_``, the larger magnitude of its two gradient components; ``overflows_``, exponentials too large
    for a double; ``log_zeros_``, logs of zero, each replaced by -200; ``converged_``, False after 100 iterations.

    Assumes log-odds linear in the margin. If margins nearly separate the classes, it can stop far from the optimum: use
    ``NewtonSigmoid`` for new work.
    """

    kind: ClassVar[str] = "platt"

    bug: bool = False
    tolerance: float | None = None

    def _check_settings(self) -> None:
        if self.tolerance is not None and self.tolerance < 0.0:
            raise FitError(f"platt: tolerance of at least 0 expected, got {self.tolerance}")

    def _fit(self, margins: Array, positive: Flags, weights: Array) -> None:
        trials = trials_from(margins, positive, weights)
        with np.errstate(over="ignore", invalid="ignore"):
            self._descend(trials)
        if not (np.isfinite(self.A_) and np.isfinite(self.B_)):
            raise FitError(
                f"Platt's algorithm: finite A and B expected, got {self.A_} and {self.B_}: the margins, up to"
                f" {np.abs(trials.margins).max():g}, are too large for its arithmetic; NewtonSigmoid fits them"
            )
        self.objective_ = trials.objective(self.A_, self.B_)
        slopes, _ = trials.slopes(self.A_, self.B_)
        self.gradient_ = float(max(abs(slopes @ trials.margins), abs(slopes.sum())))

    def _descend(self, trials: WeightedTrials) -> None:
        """Set A, B and the counters, following the published pseudo-code and its names."""
        f, w, t = trials.margins, trials.weights, trials.target
        n1, n0 = trials.positives, trials.negatives
        p, error, damping, steady = np.full_like(t, (n1 + 1.0) / (n1 + n0 + 2.0)), 1e300, FIRST_DAMPING, 0
        self.A_, self.B_ = trials.start
        self.iterations_ = self.overflows_ = self.log_zeros_ = 0
        self.converged_ = True
        for _ in range(MAX_ITERATIONS):
            d1, d2 = w * (p - t), w * (p * (1.0 - p))
            a, b, c, d, e = (float(x) for x in (f * f @ d2, d2.sum(), f @ d2, f @ d1, d1.sum()))
            if max(abs(d), abs(e)) < (TINY_GRADIENT if self.tolerance is None else self.tolerance):
                return
            A, B, before = self.A_, self.B_, error
            while True:
                det = (a + damping) * (b + damping) - c * c
                if det == 0.0:
                    damping *= 10.0
                    continue
                self.A_ = A + ((b + damping) * d - c * e) / det
                self.B_ = B + ((a + damping) * e - c * d) / det
                p, error = self._judged(trials)
                if error < before * (1.0 + 1e-7):
                    damping *= 0.1
                    break
                damping *= 10.0
                if damping >= MAX_DAMPING:
                    break
            self.iterations_ += 1
            change, scale = error - before, 0.5 * (error + before + 1.0)
            steady = steady + 1 if -1e-3 * scale < change < 1e-7 * scale else 0
            if steady == 3 and self.tolerance is None:
                return
        self.converged_ = False

    def _judged(self, trials: WeightedTrials) -> tuple[Array, float]:
        """Return p (n,) at A and B, and the error, by the published arithmetic; count its failures."""
        exponent = trials.margins * self.A_ + self.B_
        p = 1.0 / (1.0 + np.exp(exponent))
        self.overflows_ += int((exponent > LARGEST_EXPONENT).sum())
        self.log_zeros_ += int((p == 0.0).sum() + (p == 1.0).sum())
        log_p, log_q = (np.log(x, out=np.full_like(x, LOG_OF_ZERO), where=x != 0.0) for x in (p, 1.0 - p))
        t = trials.target[-1] if self.bug else trials.target
        return p, -float(trials.weights @ (t * log_p + (1.0 - t) * log_q))
