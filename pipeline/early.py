"""Early decisions: a sequential test on what has been heard so far, ended as soon as the evidence suffices.

Wald's sequential probability ratio test (Sequential tests of statistical hypotheses, 1945) accepts once the
log-likelihood ratio of all that was heard reaches log((1 - miss) / false_accept), and rejects once it falls to
log(miss / (1 - false_accept)). It holds those error rates where the ratio is the true one.

Frames of speech depend on each other, and those of one utterance share its speaker, line and mood: summing ratios frame
by frame, or believing a score over half a second as if it were over two, takes them for more evidence than they are. So
the ratio is that of the running score *at its length*: the calibration is fitted to the beginnings of held-out trials
(``HeldOutTrials.at_every_length``), and how fast evidence grows with speech is measured on the speakers of the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal

from pipeline.errors import InputError

AtEnd = Literal["undecided", "fixed"]

# Speech between two looks at the evidence; more of them would find the same evidence again.
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class EarlyRule:
    """A sequential test with the error rates ``miss`` and ``false_accept``, shares above 0 and below 0.5.

    ``at_end`` says what becomes of a stream that ends before either bound is reached: it stays ``undecided``, or is
    decided as it would be without the rule (``fixed``). Raises InputError.
    """

    miss: float = 0.005
    false_accept: float = 0.005
    at_end: AtEnd = "undecided"

    def __post_init__(self) -> None:
        for name, rate in (("miss", self.miss), ("false_accept", self.false_accept)):
            if not 0.0 < rate < 0.5:
                raise InputError(f"early decision: the {name} rate must be above 0 and below 0.5, got {rate:g}")
        if self.at_end not in ("undecided", "fixed"):
            raise InputError(f"early decision: at_end must be 'undecided' or 'fixed', got {self.at_end!r}")

    @property
    def accept_at(self) -> float:
        """Log-likelihood ratio, in nats, from which on a claim is accepted."""
        return log((1.0 - self.miss) / self.false_accept)

    @property
    def reject_at(self) -> float:
        """Log-likelihood ratio, in nats, down from which a claim is rejected."""
        return log(self.miss / (1.0 - self.false_accept))

    def verdict(self, llr: float) -> bool | None:
        """Whether a claim with this ratio is accepted; None while the evidence does not suffice."""
        if llr >= self.accept_at:
            return True
        return False if llr <= self.reject_at else None


def look_frames(least: int, step_seconds: float) -> tuple[int, int]:
    """Frames of speech at the first look at the evidence, not below ``least``, and from one look to the next."""
    every = max(1, round(LOOK_SECONDS / step_seconds))
    return -(-least // every) * every, every
