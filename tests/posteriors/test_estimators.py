"""Gaussian, cosine, isotonic and histogram posteriors: against analytic cases, other libraries and what must hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit
from scipy.stats import norm
from sklearn.isotonic import IsotonicRegression

from pipeline.errors import FitError
from pipeline.posteriors.gaussian import TiedGaussian, TwoGaussian
from pipeline.posteriors.nonparametric import CosineExpansion, HistogramPosterior, IsotonicPosterior

SYMMETRIC = {
    "tied, crossing at zero": TiedGaussian(),
    "tied, Bayes": TiedGaussian("bayes"),
    "two Gaussians": TwoGaussian(),
    "isotonic": IsotonicPosterior(),
    "cosine": CosineExpansion(),
}
ALL = SYMMETRIC | {
    "isotonic steps": IsotonicPosterior("step"),
    "histogram": HistogramPosterior(bins=5),
}
EVERY = pytest.mark.parametrize("estimator", ALL.values(), ids=ALL)


@st.composite
def trials(draw):
    """Margins of a few distinct values with ties, classes with one of each at least, and whole weights."""
    size = draw(st.integers(2, 30))
    margins = draw(arrays(float, size, elements=st.integers(-40, 40).map(lambda k: k / 8)))
    positive = draw(arrays(bool, size))
    positive[:2] = True, False
    weights = draw(arrays(float, size, elements=st.integers(0, 4).map(float)))
    weights[:2] += 1.0
    return margins, positive, weights


def drawn(size: int = 50_000, share: float = 0.3, spread: tuple[float, float] = (1.0, 1.0)):
    """Margins of normal classes with means 1 and -1.5."""
    rng = np.random.default_rng(7)
    positive = rng.random(size) < share
    return np.where(positive, rng.normal(1.0, spread[0], size), rng.normal(-1.5, spread[1], size)), positive


def bayes(x, share, spread=(1.0, 1.0)):
    return np.log(share / (1 - share)) + norm.logpdf(x, 1.0, spread[0]) - norm.logpdf(x, -1.5, spread[1])


# Gaussians


def test_two_gaussians_are_bayes_rule_with_the_densities_of_maximum_likelihood():
    f = np.array([0.5, 2.0, 3.5, -1.0, -2.0, 0.0, -0.5])
    positive = np.array([1, 1, 1, 0, 0, 0, 0])
    (m1, s1), (m0, s0) = norm.fit(f[:3]), norm.fit(f[3:])
    x = np.linspace(-5, 5, 21)
    expected = np.log(3 / 4) + norm.logpdf(x, m1, s1) - norm.logpdf(x, m0, s0)
    assert TwoGaussian().fit(f, positive).log_odds(x) == pytest.approx(expected, abs=1e-12)


def test_tied_gaussian_by_hand():
    # Means 3 and -1; deviations 1, 1 and 2, 2: variance (1 + 1 + 4 + 4) / 4.
    f, positive = [2.0, 4.0, 1.0, -3.0], [1, 1, -1, -1]
    published = TiedGaussian().fit(f, positive)
    assert published.slope_ == pytest.approx(4 / 2.5)
    assert published.probability([0.0, 1.0]) == pytest.approx([0.5, expit(1.6)])
    # Equal priors: even odds half-way between the means.
    assert TiedGaussian("bayes").fit(f, positive).log_odds([1.0, 2.0]) == pytest.approx([0.0, 1.6], abs=1e-12)


def test_classes_without_spread_are_kept_from_certainty_by_the_floor():
    # Spread of all four margins is 1, so the floor of 1 % is a variance of 1e-4.
    fitted = TiedGaussian().fit([1.0, 1.0, -1.0, -1.0], [1, 1, 0, 0])
    assert fitted.slope_ == pytest.approx(2 / 1e-4)
    assert TiedGaussian(floor=0.5).fit([1.0, 1.0, -1.0, -1.0], [1, 1, 0, 0]).slope_ == pytest.approx(2 / 0.25)


# Isotonic


def test_isotonic_by_hand():
    # Shares 0, 1, 0, 1, 1 of margins 1 to 5: the second and third violate and pool to 1/2.
    f, positive = [1.0, 2.0, 3.0, 4.0, 5.0], [0, 1, 0, 1, 1]
    low, high = 1 / 4, 4 / 5  # 3 positives, 2 negatives
    middle = (low + high) / 2
    fitted = IsotonicPosterior().fit(f, positive)
    assert fitted.probability(f) == pytest.approx([low, middle, middle, high, high])
    assert fitted.probability([-9.0, 1.5, 2.5, 3.75, 99.0]) == pytest.approx(
        [low, (low + middle) / 2, middle, middle + 0.75 * (high - middle), high]
    )
    stepped = IsotonicPosterior("step").fit(f, positive)
    assert stepped.probability([-9.0, 1.4, 1.6, 3.4, 3.6, 99.0]) == pytest.approx(
        [low, low, middle, middle, high, high]
    )


@settings(max_examples=30, deadline=None)
@given(trials())
def test_isotonic_is_scikit_learns_brought_to_the_smoothed_range(data):
    margins, positive, weights = data
    used = weights > 0
    theirs = IsotonicRegression(out_of_bounds="clip").fit(margins[used], positive[used], weights[used])
    n1, n0 = weights[positive].sum(), weights[~positive].sum()
    low, high = 1 / (n0 + 2), (n1 + 1) / (n1 + 2)
    x = np.linspace(-6, 6, 97)
    ours = IsotonicPosterior().fit(margins, positive, weights)
    assert ours.probability(x) == pytest.approx(low + (high - low) * theirs.predict(x), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(trials())
def test_isotonic_never_falls(data):
    x = np.linspace(-6, 6, 97)
    for between in ("linear", "step"):
        assert (np.diff(IsotonicPosterior(between).fit(*data).log_odds(x)) >= -1e-12).all()


# Histogram


def test_histogram_by_hand():
    # Split at the median: 1 of 5 positives below, 2 of 2 negatives; masses (1 + 1, 4 + 1) / 7 and (2 + 1, 0 + 1) / 4.
    f = [-1.0, 1.0, 0.0, 1.0, 2.0, -0.5, -1.0]
    fitted = HistogramPosterior(2).fit(f, [1, 1, 1, 1, 1, 0, 0])
    odds = np.array([(2 / 7) / (3 / 4), (5 / 7) / (1 / 4)]) * 5 / 2
    assert fitted.edges_ == pytest.approx([0.0])
    assert fitted.probability([-9.0, -0.1, 0.0, 9.0]) == pytest.approx((odds / (1 + odds))[[0, 0, 1, 1]])


def test_quantile_bins_hold_equally_many_trials():
    f = np.random.default_rng(0).permutation(100) ** 3.0
    fitted = HistogramPosterior(5).fit(f, f > 1000)
    assert np.bincount(np.searchsorted(fitted.edges_, f, side="right")) == pytest.approx(20, abs=1)


@pytest.mark.parametrize(
    ("estimator", "within"),
    [(HistogramPosterior(200), 0.06), (IsotonicPosterior(), 0.06), (CosineExpansion(12, 1e-7), 0.02)],
)
def test_free_shapes_come_close_to_the_posterior_of_gaussians(estimator, within):
    x = np.linspace(-2, 1.5, 8)
    assert estimator.fit(*drawn()).probability(x) == pytest.approx(expit(bayes(x, 0.3)), abs=within)


# Cosines


def exact_trials(posterior, levels=41):
    """Each margin once in either class, weighted so that the share of positives is the posterior exactly."""
    f = np.linspace(-3.0, 5.0, levels)
    p = posterior(np.pi * (f + 3) / 8)
    return np.r_[f, f], np.r_[np.ones(levels), np.zeros(levels)], 1000 * np.r_[p, 1 - p]


def test_cosines_find_a_posterior_that_is_a_sum_of_cosines():
    truth = np.array([0.5, -0.3, 0.05, 0.02])
    data = exact_trials(lambda t: np.cos(np.outer(t, np.arange(4))) @ truth)
    fitted = CosineExpansion(5, penalty=0.0).fit(*data)
    assert fitted.coefficients_ == pytest.approx([*truth, 0, 0], abs=1e-12)
    assert fitted.probability([1.0]) == pytest.approx(0.5 - 0.05)
    assert fitted.limits_ == (-3.0, 5.0)


def test_cosines_minimise_their_regularised_squared_error():
    f, positive = drawn(300)
    fitted = CosineExpansion(6, penalty=1e-3).fit(f, positive)

    def cost(coefficients):
        t = np.pi * (f - f.min()) / np.ptp(f)
        error = np.cos(np.outer(t, np.arange(7))) @ coefficients - positive
        return np.mean(error**2) + 1e-3 * np.sum(np.arange(7) ** 4 * coefficients**2)

    least = cost(fitted.coefficients_)
    for direction in np.vstack([np.eye(7), -np.eye(7)]):
        for step in (1e-4, 1e-2, 1.0):
            assert cost(fitted.coefficients_ + step * direction) > least


def test_cosines_leave_the_range_of_probabilities_and_are_clipped():
    fitted = CosineExpansion(3, penalty=0.0).fit(*exact_trials(lambda t: (t > np.pi / 2).astype(float)))
    x = np.linspace(-3, 5, 200)
    assert fitted.expansion(x).min() < 0
    assert fitted.expansion(x).max() > 1
    low, high = fitted.range_
    assert 0 < low < high < 1
    assert (fitted.probability(x).min(), fitted.probability(x).max()) == (low, high)


# What must hold for every one


@EVERY
@settings(max_examples=20, deadline=None)
@given(trials(), st.data())
def test_weights_are_repetitions(estimator, data, shuffled):
    margins, positive, weights = data
    repeated = np.repeat(np.arange(len(margins)), weights.astype(int))
    order = shuffled.draw(st.permutations(repeated))
    x = np.linspace(-6, 6, 25)
    weighted = estimator.fit(margins, positive, weights).log_odds(x)
    expected = estimator.fit(margins[order], positive[order]).log_odds(x)
    assert weighted == pytest.approx(expected, rel=1e-9, abs=1e-9 + 1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("estimator", SYMMETRIC.values(), ids=SYMMETRIC)
@settings(max_examples=30, deadline=None)
@given(trials())
def test_swapping_classes_and_signs_swaps_the_posterior(estimator, data):
    margins, positive, weights = data
    x = np.linspace(-6, 6, 25)
    there = estimator.fit(margins, positive, weights).log_odds(x)
    back = estimator.fit(-margins, ~positive, weights).log_odds(-x)
    assert there == pytest.approx(-back, rel=1e-9, abs=1e-9 + 1e-12 * np.abs(back).max())


@EVERY
@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_log_odds_are_defined_for_margins_of_any_size(estimator, scale):
    f, positive = drawn(200)
    fitted = estimator.fit(scale * f, positive)
    # Inside the trials' margins and far beyond.
    inside = fitted.log_odds(scale * np.linspace(-4, 4, 9))
    assert np.isfinite(inside).all()
    assert inside == pytest.approx(estimator.fit(f, positive).log_odds(np.linspace(-4, 4, 9)), rel=1e-6, abs=1e-6)
    beyond = fitted.log_odds([1e12, -1e12, 1.7e308, -1.7e308, 0.0, 5e-324])
    assert not np.isnan(beyond).any()
    assert scale < 1e-6 or np.isfinite(beyond[:2]).all()


@EVERY
def test_a_margin_that_is_not_a_number_has_no_posterior(estimator):
    fitted = estimator.fit(*drawn(200))
    for answer in (fitted.log_odds, fitted.probability):
        assert np.isnan(answer([0.5, np.nan, -0.5])).tolist() == [False, True, False]
        assert np.isnan(answer(np.nan))


@EVERY
@pytest.mark.parametrize("value", [0.0, 3.0, -1e12])
def test_equal_margins_say_nothing_beyond_the_shares_of_the_classes(estimator, value):
    p = estimator.fit(np.full(40, value), np.arange(40) < 10).probability([value, value + 1.0, 0.0])
    expected = 0.5 if estimator is ALL["tied, crossing at zero"] else 0.25
    # Isotonic shares are those of smoothed targets, histograms' of smoothed counts.
    assert p == pytest.approx(expected, abs=0.05)


@EVERY
def test_one_trial_of_each_class_is_enough_and_is_put_in_order(estimator):
    p = estimator.fit([2.0, -1.0], [1, 0]).probability([-1.0, 2.0])
    assert np.isfinite(estimator.log_odds([-1e12, -1.0, 2.0, 1e12])).all()
    assert p[0] < p[1]


@EVERY
def test_probabilities_are_those_of_the_log_odds_for_arrays_of_any_shape(estimator):
    fitted = estimator.fit(*drawn(200))
    x = np.linspace(-4, 4, 24).reshape(2, 3, 4)
    assert fitted.log_odds(x).shape == (2, 3, 4)
    assert fitted.probability(x) == pytest.approx(expit(fitted.log_odds(x)))
    assert fitted.log_odds(0.5).shape == ()


@pytest.mark.parametrize(
    "estimator",
    [
        TiedGaussian("half"),  # type: ignore[arg-type]
        TiedGaussian(floor=0.0),
        TwoGaussian(floor=1.0),
        IsotonicPosterior("spline"),  # type: ignore[arg-type]
        HistogramPosterior(0),
        HistogramPosterior(smoothing=0.0),
        HistogramPosterior(smoothing=np.inf),
        CosineExpansion(-1),
        CosineExpansion(penalty=-1.0),
        CosineExpansion(penalty=np.inf),
    ],
)
def test_settings_out_of_range_are_refused(estimator):
    with pytest.raises(FitError, match=r"expected|is '"):
        estimator.fit([2.0, -1.0], [1, 0])
