"""Generalised error rates: trials without a score count as rejected claims.

After ISO/IEC 19795-1: with FTE the failure-to-enroll rate and FTA the failure-to-acquire rate of the probes,

    generalised FR = FTE + (1 - FTE) (FTA + (1 - FTA) FR)
    generalised FA = (1 - FTE) (1 - FTA) FA

FTE and FTA are shares of the trials of one class, target for FR and nontarget for FA, so that both lines cover all
trials of the list. A system that scores only easy audio improves FR and FA, but not the generalised rates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Integral

from pipeline.errors import MetricError, check_type
from pipeline.metrics.curves import ErrorCurve
from pipeline.metrics.error_rates import EqualErrorRate, ErrorRates, equal_error_rate_of


@dataclass(frozen=True, slots=True)
class Unscored:
    """Numbers of trials without a score.

    Parameters
    ----------
    target, nontarget : int
        Failures to acquire: trials on audio that could not be decoded or had too little speech.
    target_not_enrolled, nontarget_not_enrolled : int
        Failures to enroll: claims on people who could not be enrolled.

    Raises
    ------
    MetricError
        For a negative number.

    Examples
    --------
    >>> from pipeline.metrics import Unscored
    >>> Unscored(target=3, nontarget=5, target_not_enrolled=1).total
    9
    """

    target: int = 0
    nontarget: int = 0
    target_not_enrolled: int = 0
    nontarget_not_enrolled: int = 0

    def __post_init__(self) -> None:
        for one in fields(self):
            check_type(one.name, getattr(self, one.name), Integral, "a number of trials")
        if min(self.of_target, self.of_nontarget, self.target, self.nontarget) < 0:
            raise MetricError(f"numbers of unscored trials must be 0 or more, got {self}")

    @property
    def of_target(self) -> int:
        """Return the number of target trials without a score."""
        return self.target + self.target_not_enrolled

    @property
    def of_nontarget(self) -> int:
        """Return the number of nontarget trials without a score."""
        return self.nontarget + self.nontarget_not_enrolled

    @property
    def total(self) -> int:
        """Return the number of trials of both classes without a score."""
        return self.of_target + self.of_nontarget


def generalised_rates(rates: ErrorRates, unscored: Unscored, *, targets: int, nontargets: int) -> ErrorRates:
    """Return the error rates over all trials, from those over the trials with a score.

    A class without any score has a rate, too: all its claims count as rejected.

    Parameters
    ----------
    rates : ErrorRates
        Shares of the trials with a score.
    unscored : Unscored
        Numbers of trials without one.
    targets, nontargets : int
        Numbers of trials with one.

    Returns
    -------
    ErrorRates
        Shares of all trials; None for a class without any.

    Examples
    --------
    >>> from pipeline.metrics import ErrorRates, Unscored, generalised_rates
    >>> rates = generalised_rates(ErrorRates(0.1, 0.25), Unscored(target=20), targets=80, nontargets=100)
    >>> rates.false_accept, round(rates.false_reject, 9)
    (0.1, 0.4)
    """
    accepted, rejected = _kept(nontargets, unscored.of_nontarget), _kept(targets, unscored.of_target)
    return ErrorRates(
        None if accepted is None else accepted * (rates.false_accept or 0.0),
        None if rejected is None else 1.0 - rejected * (1.0 - (rates.false_reject or 0.0)),
    )


def generalised_equal_error_rate(
    curve: ErrorCurve, unscored: Unscored, *, targets: int, nontargets: int
) -> EqualErrorRate | None:
    """Return the equal error rate of the generalised rates; None if even accepting every score leaves FR above FA.

    ``curve`` covers the trials with a score; the other arguments are as for ``generalised_rates``.

    Examples
    --------
    >>> from pipeline import error_curve
    >>> from pipeline.metrics import Unscored, generalised_equal_error_rate
    >>> curve = error_curve([1.0, 3.0], [0.0, 2.0])
    >>> round(generalised_equal_error_rate(curve, Unscored(target=1), targets=2, nontargets=2).rate, 3)
    0.5
    """
    accepted, rejected = _kept(nontargets, unscored.of_nontarget), _kept(targets, unscored.of_target)
    if accepted is None or rejected is None or accepted <= 1.0 - rejected:
        return None
    false_accept, false_reject = accepted * curve.false_accept, 1.0 - rejected * (1.0 - curve.false_reject)
    return equal_error_rate_of(ErrorCurve(curve.thresholds, false_accept, false_reject))


def _kept(scored: int, unscored: int) -> float | None:
    """Return the share of the trials of a class that have a score; None without any trial."""
    return scored / (scored + unscored) if scored + unscored else None
