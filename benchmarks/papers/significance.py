"""Significance of differences between two classifiers on the same test examples: McNemar and signed rank.

Platt (1999), section 3, compares error rates by the one and log likelihoods by the other, at p = 0.05.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import MetricError

EXACT_BELOW = 25
"""Examples that one of two classifiers alone gets wrong, below which McNemar's test is the exact binomial one."""


def mcnemar(wrong_a: ArrayLike, wrong_b: ArrayLike) -> float:
    """Return the two-sided P value for equal error rates; ``wrong_a`` and ``wrong_b`` (n,) flag errors.

    With n10 examples wrong by a alone and n01 by b alone: (|n01 - n10| - 1)^2 / (n01 + n10) against chi-square of one
    degree of freedom (Dietterich, Approximate statistical tests for comparing supervised classification learning
    algorithms, 1998), and exactly, by the binomial distribution, for fewer than 25 such examples. 1 where there is
    none. Raises MetricError for arrays that are not flags of the same examples.
    """
    from scipy.stats import binomtest, chi2

    a, b = np.asarray(wrong_a), np.asarray(wrong_b)
    if a.ndim != 1 or a.shape != b.shape or a.dtype != np.bool_ or b.dtype != np.bool_:
        raise MetricError(
            f"errors of two classifiers: a flag (bool) for each test example expected, got {a.dtype} {a.shape} and"
            f" {b.dtype} {b.shape}"
        )
    alone_a, alone_b = int((a & ~b).sum()), int((~a & b).sum())
    differing = alone_a + alone_b
    if differing == 0:
        return 1.0
    if differing < EXACT_BELOW:
        return float(binomtest(alone_a, differing, 0.5).pvalue)
    # The correction by one stops at zero: equal counts are no evidence at all.
    return float(chi2.sf(max(abs(alone_a - alone_b) - 1, 0) ** 2 / differing, df=1))


def wilcoxon(losses_a: ArrayLike, losses_b: ArrayLike) -> float:
    """Return the two-sided P value of Wilcoxon's signed rank test for losses (n,) of the same examples, such as -log p.

    By their ranks, it tests whether differences are centred on zero: being better on more examples counts more than
    being better by much. Equal losses carry no information and are left out; 1 where all are equal. Exact up to 50
    examples without ties, else by the normal approximation. Raises MetricError for losses that are not numbers of the
    same examples, or both infinite.
    """
    from scipy.stats import wilcoxon as signed_rank

    a, b = np.asarray(losses_a, dtype=np.float64), np.asarray(losses_b, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        differences = a - b if a.shape == b.shape else np.array([np.nan])
    if a.ndim != 1 or np.isnan(differences).any():
        raise MetricError(
            f"losses of two classifiers: a number for each test example expected, not both infinite, got {a.shape} and"
            f" {b.shape}"
        )
    differences = differences[differences != 0]
    return float(signed_rank(differences).pvalue) if differences.size else 1.0
