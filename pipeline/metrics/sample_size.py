"""Wilson's interval of a share of independent trials, and the rules of 3 and of 30.

The rules give the smallest error rates that so many trials can show (ISO/IEC 19795-1, annex B). Trials of one speaker
are not independent, so that all three are optimistic; ``bootstrap_interval`` resamples speakers.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError, check_type
from pipeline.metrics.curves import FloatArray

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


def wilson_interval(
    counts: npt.NDArray[np.integer], trials: npt.NDArray[np.integer], level: float
) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's interval, from the first array to the second, of the shares ``counts`` / ``trials``.

    ``scipy.stats.binomtest`` gives the same, and takes half a second to import.
    """
    from scipy.special import ndtri  # slow to import

    share, z = counts / trials, ndtri(0.5 + 0.5 * level)
    # Newcombe, Two-sided confidence intervals for the single proportion, 1998, method 3
    around = 2.0 * (trials + z**2)
    middle = (2.0 * trials * share + z**2) / around
    half = z / around * np.sqrt(4.0 * trials * share * (1.0 - share) + z**2)
    return np.where(counts == 0, 0.0, middle - half), np.where(counts == trials, 1.0, middle + half)


def _checked(trials: int) -> int:
    check_type("trials", trials, Integral, "a number of trials")
    if trials < 1:
        raise MetricError(f"an error rate needs at least one trial, got {trials}")
    return trials
