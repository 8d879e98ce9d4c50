"""Sequential test: a decision once the evidence suffices (Wald, Sequential tests of statistical hypotheses, 1945).

The claim is accepted once the log-likelihood ratio of the speech so far reaches log((1 - miss) / false_accept), and
rejected once it falls to log(miss / (1 - false_accept)): the error rates hold where the ratio is the true one.

Frames are dependent, within an utterance strongly: summing ratios frame by frame, or calibrating half a second of
speech as if it were two seconds, overstates the evidence. The ratio is therefore that of the running score *at its
length*, by a calibration fitted to prefixes of held-out trials (``HeldOutTrials.at_every_length``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from numbers import Real
from typing import Literal

from pipeline.errors import InputError, check_type

AtEnd = Literal["undecided", "fixed"]

# Speech between two checks of the ratio; more frequent ones gain nothing.
CHECK_SECONDS = 0.1
# No calibration is accurate for rarer errors, and the bounds for far rarer ones are not finite.
LEAST_RATE = 1e-9


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """A sequential test of given error rates.

    Parameters
    ----------
    miss, false_accept : float
        Error rates, shares of at least 1e-9 and below 0.5.
    at_end : {"undecided", "fixed"}
        A stream that ends before either bound is reached is undecided, or decided as without the test.

    Raises
    ------
    InputError
        For values out of range, and values that are not numbers.

    Examples
    --------
    >>> import pipeline
    >>> test = pipeline.SequentialTest(0.01, 0.01)
    >>> test.verdict(5.0), test.verdict(0.0), test.verdict(-5.0)
    (True, None, False)
    """

    miss: float = 0.005
    false_accept: float = 0.005
    at_end: AtEnd = "undecided"

    def __post_init__(self) -> None:
        for name, rate in (("miss", self.miss), ("false_accept", self.false_accept)):
            check_type(f"sequential test: {name}", rate, Real, "an error rate, such as 0.01,")
            if not LEAST_RATE <= rate < 0.5:
                raise InputError(
                    f"sequential test: the {name} rate must be at least {LEAST_RATE:g} and below 0.5,"
                    f" got {float(rate):g}"
                )
        if not isinstance(self.at_end, str) or self.at_end not in ("undecided", "fixed"):
            raise InputError(f"sequential test: at_end must be 'undecided' or 'fixed', got {self.at_end!r}")

    @property
    def accept_at(self) -> float:
        """Return the log-likelihood ratio, in nats, at and above which to accept."""
        return log((1.0 - self.miss) / self.false_accept)

    @property
    def reject_at(self) -> float:
        """Return the log-likelihood ratio, in nats, at and below which to reject."""
        return log(self.miss / (1.0 - self.false_accept))

    def verdict(self, llr: float) -> bool | None:
        """Return True to accept, False to reject, None to continue, by the log-likelihood ratio so far, in nats."""
        if llr >= self.accept_at:
            return True
        return False if llr <= self.reject_at else None


def check_frames(least: int, step_seconds: float) -> tuple[int, int]:
    """Return the frames of speech at the first check, at least ``least``, and between checks."""
    every = max(1, round(CHECK_SECONDS / step_seconds))
    return -(-least // every) * every, every
