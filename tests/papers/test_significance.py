"""McNemar's test and the signed rank test against hand-worked, published and enumerated values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.significance import mcnemar, wilcoxon
from pipeline.errors import MetricError


def flags(alone_a: int, alone_b: int, both: int = 7, neither: int = 11) -> tuple[np.ndarray, np.ndarray]:
    a = np.repeat([True, False, True, False], [alone_a, alone_b, both, neither])
    b = np.repeat([False, True, True, False], [alone_a, alone_b, both, neither])
    return a, b


@pytest.mark.parametrize(
    ("alone_a", "alone_b", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (6, 1, 2 * (1 + 7) / 2**7),
        (0, 8, 2 / 2**8),
        (10, 2, 2 * (1 + 12 + 66) / 2**12),
        (12, 12, 1.0),
    ],
)
def test_few_differing_examples_are_judged_by_the_binomial_distribution(alone_a, alone_b, p):
    assert mcnemar(*flags(alone_a, alone_b)) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(("alone_a", "alone_b"), [(86, 150), (30, 10), (20, 20), (1000, 1001), (25, 0)])
def test_many_are_judged_by_chi_square_with_its_correction(alone_a, alone_b):
    statistic = max(abs(alone_a - alone_b) - 1, 0) ** 2 / (alone_a + alone_b)
    # Chi-square of one degree of freedom is the square of a normal deviate.
    assert mcnemar(*flags(alone_a, alone_b)) == pytest.approx(math.erfc(math.sqrt(statistic / 2)), rel=1e-9)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 20), st.integers(0, 20))
def test_only_the_differing_examples_count_and_neither_classifier_comes_first(alone_a, alone_b, both, neither):
    a, b = flags(alone_a, alone_b, both, neither)
    p = mcnemar(a, b)
    assert 0 < p <= 1
    assert mcnemar(b, a) == pytest.approx(p, rel=1e-12)
    assert mcnemar(*flags(alone_a, alone_b)) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(
    ("a", "b"),
    [([True], [True, False]), ([[True]], [[False]]), ([1, 0], [0, 1]), ([0.5, 0.2], [0.1, 0.3])],
)
def test_what_is_no_pair_of_flags_is_refused(a, b):
    with pytest.raises(MetricError, match="a flag"):
        mcnemar(a, b)


# Hollander and Wolfe, Nonparametric statistical methods, 1973: depression scores before and after treatment.
BEFORE = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
AFTER = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]


def test_the_published_example_of_the_signed_rank_test():
    assert wilcoxon(BEFORE, AFTER) == pytest.approx(2 * 0.01953125, abs=1e-12)  # published one-sided, at sum 40


def test_equal_losses_say_nothing():
    assert wilcoxon(AFTER, AFTER) == wilcoxon([], []) == 1.0
    padded = wilcoxon(np.append(BEFORE, [0.5] * 40), np.append(AFTER, [0.5] * 40))
    assert padded == pytest.approx(wilcoxon(BEFORE, AFTER), abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b"), [([1.0], [1.0, 2.0]), ([np.inf], [np.inf]), ([np.nan], [0.0]), ([[1.0]], [[2.0]]), ([1.0, 2.0], 0.5)]
)
def test_what_is_no_pair_of_losses_is_refused(a, b):
    with pytest.raises(MetricError, match="a number for each"):
        wilcoxon(a, b)
