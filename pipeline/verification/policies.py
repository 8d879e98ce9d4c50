"""Decision policies: how the score of a claim, or its log-likelihood ratio, becomes a decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal

from pipeline.errors import InputError, MetricError, check_type
from pipeline.metrics import OperatingPoint
from pipeline.scoring.calibration import Calibration
from pipeline.scoring.sequential import SequentialTest
from pipeline.store.model import SpeakerModel

MOST_FALSE_ACCEPTS = 0.5
Source = Literal["eer", "far", "given", "cost"]


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides one system's scores on one model.

    It compares the score with ``threshold``, or the log-likelihood ratio with ``llr_threshold``; the other one is None.
    With a sequential ``test``, a stream is decided as soon as the ratios by ``calibration`` suffice; the threshold
    decides only streams that end before that, and only if the test says so. ``prior`` is the prior probability of a
    target trial, None if the decision uses none.
    """

    source: Source
    prior: float | None = None
    threshold: float | None = None
    llr_threshold: float | None = None
    test: SequentialTest | None = None
    calibration: Calibration | None = None

    def accepts(self, score: float, llr: float | None) -> bool:
        """Decide on a whole utterance."""
        if self.threshold is not None:
            return score >= self.threshold
        if llr is None or self.llr_threshold is None:
            raise AssertionError("a claim is decided by a score or by a log-likelihood ratio, and there is neither")
        return llr >= self.llr_threshold


@dataclass(frozen=True, slots=True)
class DefaultThreshold:
    """Decide by the threshold of the model.

    Scores that are log-likelihood ratios, as those of ``fused`` are, are decided at the least expected cost for the
    prior and the costs of the settings; others at the equal error rate of the held-out trials, or of the user's own
    (``pipeline.calibrate``).

    Examples
    --------
    >>> import pipeline
    >>> model = pipeline.Store("speakers.store").load()
    >>> for system in ("fused", "rpoao"):
    ...     verifier = pipeline.Verifier(model, "anna", system=system, decide_by=pipeline.DefaultThreshold())
    ...     print(verifier.decider.source)
    cost
    eer
    """

    def decider(self, model: SpeakerModel, system: str) -> Decider:
        """Return the decider of scores of ``system`` on ``model``; raises MetricError where the trials are too few."""
        threshold = model.threshold(system)
        if model.scores_are_ratios(system):
            return Decider("cost", model.config.threshold.prior, threshold)
        return Decider("eer", threshold=threshold)


@dataclass(frozen=True, slots=True)
class FalseAcceptRate:
    """Decide by the threshold that accepts a share ``rate`` of the nontarget trials, held-out or your own.

    Parameters
    ----------
    rate : float
        Share of nontarget trials, above 0 and below 0.5.

    Raises
    ------
    InputError
        For a rate out of range, such as a percentage.

    Examples
    --------
    >>> import pipeline
    >>> model = pipeline.Store("speakers.store").load()
    >>> pipeline.Verifier(model, "anna", decide_by=pipeline.FalseAcceptRate(0.01)).decider.source
    'far'
    """

    rate: float

    def __post_init__(self) -> None:
        check_type("rate", self.rate, Real, "a false-accept rate, such as 0.01,")
        if not 0 < self.rate < MOST_FALSE_ACCEPTS:
            raise InputError(
                f"a false-accept rate is above 0 and below {MOST_FALSE_ACCEPTS}, got {float(self.rate):g} (1 % is 0.01)"
            )

    def decider(self, model: SpeakerModel, system: str) -> Decider:
        """Return the decider of scores of ``system`` on ``model``; raises MetricError where the trials are too few."""
        return Decider("far", threshold=model.threshold(system, false_accept=self.rate))


@dataclass(frozen=True, slots=True)
class Threshold:
    """Decide by a ``value`` of the score.

    Parameters
    ----------
    value : float
        Lowest score that is accepted, on the scale of the system.

    Raises
    ------
    InputError
        For a value that is not a number.

    Examples
    --------
    >>> import pipeline
    >>> model = pipeline.Store("speakers.store").load()
    >>> pipeline.Verifier(model, "anna", decide_by=pipeline.Threshold(0.5)).decider.threshold
    0.5
    """

    value: float

    def __post_init__(self) -> None:
        check_type("value", self.value, Real, "a score")
        if math.isnan(self.value):
            raise InputError("threshold: must be a number, got nan")

    def decider(self, _model: SpeakerModel, _system: str) -> Decider:
        """Return the decider of scores, of any model and system."""
        return Decider("given", threshold=float(self.value))  # a value of single precision would round scores


@dataclass(frozen=True, slots=True)
class BayesCost:
    """Decide by the log-likelihood ratio, at the least expected cost of an operating ``point``.

    Parameters
    ----------
    point : OperatingPoint
        Prior of a target trial, and the costs of the two errors.

    Raises
    ------
    InputError
        For a ``point`` that is not an OperatingPoint.

    Examples
    --------
    >>> import pipeline
    >>> policy = pipeline.BayesCost(pipeline.OperatingPoint(0.5, cost_false_accept=10.0))
    >>> verifier = pipeline.Verifier(pipeline.Store("speakers.store").load(), "anna", decide_by=policy)
    >>> round(verifier.decider.llr_threshold, 3)
    2.303
    """

    point: OperatingPoint

    def __post_init__(self) -> None:
        check_type("point", self.point, OperatingPoint, "an OperatingPoint(prior)")

    def decider(self, model: SpeakerModel, system: str) -> Decider:
        """Return the decider of scores of ``system`` on ``model``; raises MetricError without a calibration."""
        if model.calibration(system) is None:
            why = "nobody else is enrolled" if model.competing(system) == 0 else "the held-out trials are too few"
            raise MetricError(
                f"{model.where}: a prior and costs decide by log-likelihood ratios, and {why} to calibrate {system!r};"
                " give a threshold instead"
            )
        return Decider("cost", self.point.prior, llr_threshold=self.point.threshold)


@dataclass(frozen=True, slots=True)
class Sequential:
    """Decide as soon as the evidence suffices: Wald's sequential probability ratio test (``scoring.sequential``).

    Parameters
    ----------
    test : SequentialTest
        Error rates of the test.
    otherwise : Policy
        Decides streams that end before the test does, if the test has ``at_end="fixed"``.

    Raises
    ------
    InputError
        For a ``test`` of another type, and an ``otherwise`` that is not a policy, or is sequential.

    Examples
    --------
    >>> import pipeline
    >>> pipeline.Sequential(pipeline.SequentialTest(0.01, 0.01)).otherwise
    DefaultThreshold()
    """

    test: SequentialTest = field(default_factory=SequentialTest)
    otherwise: Policy = field(default_factory=DefaultThreshold)

    def __post_init__(self) -> None:
        check_type("test", self.test, SequentialTest, "a SequentialTest(miss, false_accept)")
        fixed = DefaultThreshold | FalseAcceptRate | Threshold | BayesCost
        check_type(
            "otherwise", self.otherwise, fixed, "a policy other than a sequential test, such as DefaultThreshold(),"
        )

    def decider(self, model: SpeakerModel, system: str) -> Decider:
        """Return the decider of scores of ``system`` on ``model``.

        Raises MetricError without a calibration over short speech, which is fitted for the settings' own system alone,
        and if ``otherwise`` does.
        """
        rest = self.otherwise.decider(model, system)
        return replace(rest, test=self.test, calibration=model.sequential_calibration(system))


Policy = DefaultThreshold | FalseAcceptRate | Threshold | BayesCost | Sequential
"""A way to decide; ``decider`` prepares it for a model and a system, or raises MetricError."""


def policy_of(
    *,
    threshold: float | None = None,
    false_accept: float | None = None,
    point: OperatingPoint | None = None,
    sequential: SequentialTest | None = None,
) -> Policy:
    """Return the one policy that is asked for, the default threshold if none is; raises InputError for several."""
    kinds: dict[Callable[[Any], Policy], Any] = {Threshold: threshold, FalseAcceptRate: false_accept, BayesCost: point}
    asked = [policy(value) for policy, value in kinds.items() if value is not None]
    if len(asked) > 1:
        raise InputError(
            "decisions follow one rule: a threshold, or a false-accept rate, or a prior and costs;"
            f" got {len(asked)} of them"
        )
    policy = asked[0] if asked else DefaultThreshold()
    return policy if sequential is None else Sequential(sequential, policy)
