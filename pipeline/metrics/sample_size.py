"""The smallest error rates that independent trials can show: the rules of 3 and of 30 (ISO/IEC 19795-1, annex B).

Trials of one speaker are not independent, so that both rules are optimistic; ``bootstrap_interval`` resamples speakers.
"""

from __future__ import annotations

from numbers import Integral

from pipeline.errors import MetricError, check_type

ERRORS_NEEDED = 30


def rule_of_three(trials: int) -> float:
    """Return the upper 95 % limit of an error rate, a share, if ``trials`` showed no error: 3 / trials.

    Raises MetricError for no trials.

    Examples
    --------
    >>> from pipeline.metrics import rule_of_three
    >>> rule_of_three(300)
    0.01
    """
    return min(1.0, 3.0 / _checked(trials))


def rule_of_thirty(trials: int) -> float:
    """Return the smallest error rate, a share, that ``trials`` can measure reliably: 30 / trials, at most 1.

    With 30 errors or more, the true rate is within 30 % of the measured one, with 90 % confidence (Doddington 1998).
    Raises MetricError for no trials.

    Examples
    --------
    >>> from pipeline.metrics import rule_of_thirty
    >>> rule_of_thirty(300)
    0.1
    """
    return min(1.0, ERRORS_NEEDED / _checked(trials))


def _checked(trials: int) -> int:
    check_type("trials", trials, Integral, "a number of trials")
    if trials < 1:
        raise MetricError(f"an error rate needs at least one trial, got {trials}")
    return trials
