"""Wilson's interval of a share of independent trials, as how many of them trials count, and the rules of 3 and of 30.

The rules give the smallest error rates that so many trials can show (ISO/IEC 19795-1, annex B). Trials of one speaker
are not independent, so that they and the interval of all trials are optimistic; ``bootstrap_interval`` resamples
speakers.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError, check_type
from pipeline.metrics.curves import FloatArray, IntArray

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


def effective_trials(
    scores: FloatArray, errors: npt.NDArray[np.bool_], groupings: Sequence[npt.NDArray[np.integer]]
) -> float:
    """Return how many independent trials would show the rate of ``errors`` (n,) as well as these n trials do.

    Errors within a group of trials, such as those of one speaker, are correlated; ``groupings`` have each trial's group
    (n,). The number is n / (1 + sum over groupings of (m - 1) r), with Kish's design effect (Survey Sampling, 1965,
    section 5.4): m is the mean size of a trial's group, and r the correlation of errors. Few errors cannot show r. It
    is that of normal variables beyond a threshold, which correlate as the ``scores`` (n,) do by analysis of variance.
    """
    from scipy.special import ndtri, owens_t  # slow to import

    n = len(scores)
    rate = (np.count_nonzero(errors) + 1) / (n + 2)  # Laplace's rule of succession
    limit, effect = ndtri(rate), 1.0
    for grouping in groupings:
        _, places, sizes = np.unique(grouping, return_inverse=True, return_counts=True)
        share = _intraclass_correlation(scores, places, sizes)
        # Owen, Tables for computing bivariate normal probabilities, 1956: both of two variables beyond the limit
        both = rate - 2.0 * owens_t(limit, np.sqrt((1.0 - share) / (1.0 + share)))
        effect += ((sizes**2).sum() / n - 1.0) * (both - rate**2) / (rate * (1.0 - rate))
    return float(n / effect)


def _intraclass_correlation(scores: FloatArray, places: IntArray, sizes: IntArray) -> float:
    """Return the share of the variance that is between groups, at least 0: Shrout and Fleiss's ICC(1, 1), 1979."""
    n, groups = len(scores), len(sizes)
    if not 1 < groups < n:
        return 0.0
    means = np.bincount(places, scores) / sizes
    within = ((scores - means[places]) ** 2).sum() / (n - groups)
    between = (sizes * (means - scores.mean()) ** 2).sum() / (groups - 1)
    size = (n - (sizes**2).sum() / n) / (groups - 1)
    total = between + (size - 1.0) * within
    return float(max(0.0, between - within) / total) if total > 0.0 else 0.0


def _checked(trials: int) -> int:
    check_type("trials", trials, Integral, "a number of trials")
    if trials < 1:
        raise MetricError(f"an error rate needs at least one trial, got {trials}")
    return trials
