"""The numbers behind the calibration figures, by hand and against published tables and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from trial_scores import true_llrs

from pipeline.metrics import bayes_error_rates, reliability, score_histogram

LLRS = st.lists(st.floats(-20, 20), min_size=1, max_size=30)


def test_wilson_interval_by_hand():
    # Newcombe, Two-sided confidence intervals for the single proportion, 1998: 81 of 263 and 0 of 20, 95 %.
    result = reliability([0.0] * 81, [0.0] * 182, bins=1)
    assert [round(float(x), 4) for x in (result.low[0], result.high[0])] == [0.2553, 0.3662]
    result = reliability([20.0], [-20.0] * 20, bins=2)
    assert [round(float(x), 4) for x in (result.low[0], result.high[0])] == [0.0, 0.1611]


def test_reliability_by_hand():
    # Two of four are targets, so the prior's log odds are 0 and the probabilities 0.9, 0.6, 0.4 and 0.9.
    result = reliability([math.log(9), math.log(1.5)], [math.log(2 / 3), math.log(9)], bins=5)
    assert result.predicted == pytest.approx([0.4, 0.6, 0.9])
    assert result.observed.tolist() == [0, 1, 0.5]
    assert result.trials.tolist() == [1, 1, 2]
    assert result.low[0] == 0
    assert result.high[1] == 1
    # With three nontargets to a target the ratio 1 means 1 in 4.
    result = reliability([0.0], [0.0, 0.0, 0.0])
    assert (result.predicted.tolist(), result.observed.tolist()) == ([pytest.approx(0.25)], [0.25])


@given(LLRS, LLRS)
def test_reliability_equals_scikit_learns_curve(target, nontarget):
    log_odds = math.log(len(target) / len(nontarget))
    probability = 1 / (1 + np.exp(-np.array(target + nontarget) - log_odds))
    # On the edge of a bin the two need not agree.
    assume(np.abs(probability * 8 - np.round(probability * 8)).min() > 1e-9)
    labels = [1] * len(target) + [0] * len(nontarget)
    observed, predicted = calibration_curve(labels, probability, n_bins=8)
    result = reliability(target, nontarget, bins=8)
    assert result.observed == pytest.approx(observed)
    assert result.predicted == pytest.approx(predicted)
    assert result.trials.sum() == len(labels)
    assert ((result.low <= result.observed) & (result.observed <= result.high)).all()


def test_reliability_of_true_ratios_is_the_diagonal():
    result = reliability(*true_llrs(2.0, 20_000, 60_000))
    assert np.abs(result.predicted - result.observed).max() < 0.04
    assert np.mean((result.low <= result.predicted) & (result.predicted <= result.high)) >= 0.8


def test_extreme_ratios_make_no_noise():
    result = reliability([1e5, -1e5], [1e5, -1e5])
    assert result.predicted.tolist() == [0, 1]
    _, actual, minimum = bayes_error_rates([1e5], [-1e5], [-100.0, 0.0, 100.0])
    assert actual.tolist() == minimum.tolist() == [0, 0, 0]


def test_bayes_error_by_hand():
    # At even odds FR 1/2 and FA 0; at odds of 3 to 1 the threshold is -log 3 and the nontarget is let in: weight 3
    # on misses of which there are none. Odds 1 to 3: the target at 1 is missed too, and not listening costs 1.
    _, actual, minimum = bayes_error_rates([-0.5, 1.0], [-1.0], [0.0, math.log(3), -math.log(3)])
    assert actual == pytest.approx([0.5, 1.0, 1.0])
    # Perfect order: some threshold always errs in nothing.
    assert minimum.tolist() == [0, 0, 0]


def test_histogram_by_hand():
    edges, of_target, of_nontarget = score_histogram([0, 1, 2, 4], [-5, 1, 9], limits=(0, 4), bins=4)
    assert edges.tolist() == [0, 1, 2, 3, 4]
    assert of_target.tolist() == [0.25, 0.25, 0.25, 0.25]
    # What lies beyond the limits counts in the outermost bins.
    assert of_nontarget == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    edges, of_target, of_nontarget = score_histogram([0, 4], [2, 1], bins=2)
    assert (edges.tolist(), of_target.tolist(), of_nontarget.tolist()) == ([0, 2, 4], [0.5, 0.5], [0.5, 0.5])


def test_histogram_of_a_single_value():
    edges, of_target, of_nontarget = score_histogram([2.0], [2.0], bins=2)
    assert edges.tolist() == [1.5, 2.0, 2.5]
    assert of_target.tolist() == of_nontarget.tolist() == [0, 1]
