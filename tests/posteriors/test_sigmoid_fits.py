"""The fitted sigmoids: optima found by another library, analytic cases, and data at the ends of arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize, root
from scipy.special import expit, logit
from sklearn.calibration import _SigmoidCalibration

from pipeline.errors import ConfigError, FitError
from pipeline.posteriors.base import MarginPosterior, checked, trials_from
from pipeline.posteriors.estimators import POSTERIORS, make_posterior
from pipeline.posteriors.newton import NewtonSigmoid
from pipeline.posteriors.platt import PlattSigmoid


def clouds(positives: int, negatives: int, apart: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    f = np.concatenate([rng.normal(apart, 1, positives), rng.normal(-apart, 1, negatives)])
    return f, np.arange(positives + negatives) < positives


DATA = {
    "overlapping": clouds(300, 700, 1.0),
    "hardly any difference": clouds(200, 200, 0.02),
    "the wrong way round": clouds(100, 150, -1.0),
    "separable": clouds(40, 60, 8.0),
    "three against many": clouds(3, 5000, 1.5),
    "many against one": clouds(5000, 1, 1.5),
    "far from zero": (clouds(50, 80, 1.0)[0] + 300.0, clouds(50, 80, 1.0)[1]),
    "one and one": (np.array([0.7, -0.2]), np.array([True, False])),
    "one and one the wrong way round": (np.array([-3.0, 4.0]), np.array([True, False])),
    "two values": (np.array([1.0, 1.0, -1.0, -1.0, -1.0]), np.array([True, False, True, False, False])),
}


def targets(y: np.ndarray, w: np.ndarray | None = None, *, smoothed: bool = True) -> np.ndarray:
    w = np.ones(len(y)) if w is None else w
    if not smoothed:
        return y.astype(float)
    return np.where(y, (w[y].sum() + 1) / (w[y].sum() + 2), 1 / (w[~y].sum() + 2))


def loss_at(A: float, B: float, f: np.ndarray, t: np.ndarray, w: np.ndarray | float = 1.0) -> float:
    z = A * f + B
    return float(np.sum(w * (t * np.logaddexp(0, z) + (1 - t) * np.logaddexp(0, -z))))


def optimum(
    f: np.ndarray, t: np.ndarray, w: np.ndarray | float = 1.0, unit: tuple[float, float] | None = None
) -> tuple[float, float]:
    """A and B by scipy: a trust region, then the root of the gradient, of margins brought to mean 0 and spread 1."""
    centre, spread = unit or (f.mean(), f.std())
    x = (f - centre) / spread

    def gradient(v: np.ndarray) -> np.ndarray:
        d = w * (t - expit(-(v[0] * x + v[1])))
        return np.array([x @ d, d.sum()])

    def hessian(v: np.ndarray) -> np.ndarray:
        z = v[0] * x + v[1]
        d = w * expit(z) * expit(-z)
        return np.array([[x * x @ d, x @ d], [x @ d, d.sum()]])

    near = minimize(lambda v: loss_at(v[0], v[1], x, t, w), [0, 0], jac=gradient, hess=hessian, method="trust-exact")
    result = root(gradient, near.x, jac=hessian, tol=1e-14).x
    return result[0] / spread, result[1] - result[0] * centre / spread


# The optimum


@pytest.mark.parametrize("sigma", [1e-12, "dynamic"])
@pytest.mark.parametrize("name", DATA)
def test_newton_ends_at_the_optimum_that_scipy_finds(name, sigma):
    f, y = DATA[name]
    t = targets(y)
    A, B = optimum(f, t)
    fitted = NewtonSigmoid(tolerance=1e-9, sigma=sigma).fit(f, y)
    assert fitted.converged_
    np.testing.assert_allclose(fitted.log_odds(f), -(A * f + B), rtol=1e-8, atol=1e-8)
    assert fitted.objective_ == pytest.approx(loss_at(A, B, f, t), rel=1e-12)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("name", DATA)
def test_the_papers_tolerance_is_enough_for_eight_digits_of_the_objective(name, scaled):
    f, y = DATA[name]
    fitted = NewtonSigmoid(scaled=scaled).fit(f, y)
    assert fitted.converged_
    assert fitted.iterations_ <= 20
    assert fitted.objective_ == pytest.approx(loss_at(*optimum(f, targets(y)), f, targets(y)), rel=1e-8)


@pytest.mark.parametrize("size", [1e6, 1e100, 1e-9, 1e-100])
@pytest.mark.parametrize("name", ["overlapping", "separable", "three against many", "one and one"])
def test_margins_of_any_size_have_the_optimum_of_margins_of_ordinary_size(name, size):
    f, y = DATA[name]
    A, B = optimum(f, targets(y))
    fitted = NewtonSigmoid(tolerance=1e-9).fit(f * size, y)
    assert fitted.converged_
    assert (fitted.A_ * size, fitted.B_) == pytest.approx((A, B), rel=1e-8, abs=1e-8)
    if name == "overlapping":
        assert NewtonSigmoid().fit(1e-5 * f - 1, y).objective_ == pytest.approx(fitted.objective_, rel=1e-8)


@pytest.mark.parametrize("name", ["overlapping", "the wrong way round", "separable", "one and one"])
def test_scikit_learn_fits_the_same_sigmoid(name):
    f, y = DATA[name]
    theirs = _SigmoidCalibration().fit(f, y)
    ours = NewtonSigmoid().fit(f, y)
    np.testing.assert_allclose(ours.probability(f), theirs.predict(f), atol=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.3, -7.0, 1e6, -1e12])
@pytest.mark.parametrize("estimator", [NewtonSigmoid(), NewtonSigmoid(sigma="dynamic"), PlattSigmoid()])
def test_equal_margins_get_the_mean_target(estimator, value):
    y = np.arange(20000) < 7
    fitted = estimator.fit(np.full(20000, value), y)
    assert fitted.log_odds(value) == pytest.approx(logit(targets(y).mean()), abs=1e-5)


def test_one_trial_of_each_class_by_hand():
    # Targets 2/3 and 1/3 at 1 and -1: the odds there are 2 and 1/2.
    for fitted in (NewtonSigmoid(tolerance=1e-12).fit([1, -1], [1, 0]), PlattSigmoid().fit([1, -1], [1, 0])):
        assert pytest.approx(-np.log(2)) == fitted.A_
        assert pytest.approx(0.0, abs=1e-9) == fitted.B_
        # Both losses are the entropy of 2/3.
        assert fitted.objective_ == pytest.approx(2 * (np.log(3) - 2 / 3 * np.log(2)))


@pytest.mark.parametrize("sigma", [1e-12, "dynamic"])
def test_a_slope_without_bounds_ends_where_doubles_end(sigma):
    f, y = DATA["separable"]
    settings = {"smoothed": False, "tolerance": 0.0, "max_iterations": 2000, "sigma": sigma}
    fitted = NewtonSigmoid(**settings).fit(f, y)
    assert np.isfinite([fitted.A_, fitted.B_]).all()
    assert 0 <= fitted.objective_ < 1e-9


@pytest.mark.parametrize("estimator", [NewtonSigmoid(tolerance=1e-10), PlattSigmoid(), PlattSigmoid(tolerance=1e-8)])
def test_a_weight_is_a_trial_repeated(estimator):
    f, y = clouds(30, 50, 0.5)
    w = np.random.default_rng(1).integers(0, 4, len(f))
    A, B = estimator.fit(f, y, w).A_, estimator.B_
    estimator.fit(np.repeat(f, w), np.repeat(y, w))
    assert pytest.approx((A, B), rel=1e-9) == (estimator.A_, estimator.B_)


@pytest.mark.parametrize("smoothed", [True, False])
def test_fractions_are_weights_too_with_either_targets(smoothed):
    f, y = clouds(30, 50, 0.5)
    w = np.random.default_rng(2).uniform(0.1, 3, len(f))
    fitted = NewtonSigmoid(tolerance=1e-10, smoothed=smoothed).fit(f, y, w)
    assert optimum(f, targets(y, w, smoothed=smoothed), w) == pytest.approx((fitted.A_, fitted.B_), rel=1e-8)


@st.composite
def trials(draw, most: float = 1e6):
    f = draw(arrays(float, st.integers(2, 30), elements=st.floats(-most, most, allow_subnormal=False)))
    y = draw(arrays(bool, len(f)))
    assume(y.any() and not y.all())
    return f, y


@given(trials(1e300))
@settings(deadline=None, max_examples=60)
def test_no_margins_make_newton_overflow_or_give_up(data):
    f, y = data
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        fitted, given_trials = NewtonSigmoid().fit(f, y), trials_from(*checked(f, y))
        start = given_trials.objective(*given_trials.start)
    assert np.isfinite([fitted.A_, fitted.B_, fitted.objective_]).all()
    assert fitted.objective_ <= start * (1 + 1e-12)
    assert not np.isnan(fitted.log_odds(f)).any()
    assert fitted.overflows_ == 0


@given(trials(1e3), st.integers(-40, 40))
@settings(deadline=None, max_examples=30)
def test_units_signs_and_names_of_the_classes_do_not_matter(data, power):
    f, y = np.where(abs(data[0]) < 1e-100, 0.0, data[0]), data[1]
    fitted, again = NewtonSigmoid().fit(f, y), NewtonSigmoid().fit(f * 2.0**power, y)
    assert (again.A_ * 2.0**power, again.B_) == (fitted.A_, fitted.B_)
    mirrored = NewtonSigmoid().fit(-f, y)
    assert (-mirrored.A_, mirrored.B_) == (fitted.A_, fitted.B_)
    other = NewtonSigmoid().fit(f, ~y)
    np.testing.assert_allclose(other.log_odds(f), -fitted.log_odds(f), rtol=1e-4, atol=1e-4)


# The objective's arithmetic


def test_the_objective_keeps_what_one_minus_p_would_lose():
    # The example of Lin, Lin and Weng 2007, section 3.1: f = 1, A = -64, B = 0, where 1 - p is 0 in doubles.
    result = trials_from(*checked([1.0, 1.0], [1, 0]), smoothed=False)
    first, second = result.slopes(-64.0, 0.0)
    assert 1.0 - expit(64.0) == 0.0
    assert first[0] == pytest.approx(np.exp(-64), rel=1e-12)
    assert second[0] == pytest.approx(np.exp(-64), rel=1e-12)
    assert result.objective(-64.0, 0.0) == pytest.approx(64.0)
    assert trials_from(*checked([1.0, -1e9], [1, 0]), smoothed=False).objective(-64.0, 0.0) == pytest.approx(
        np.exp(-64)
    )


def test_an_objective_too_large_for_a_double_is_infinite():
    assert trials_from(*checked([1e300, -1e300], [1, 0]), smoothed=False).objective(1e300, 0.0) == np.inf


@pytest.mark.parametrize("estimator", [NewtonSigmoid(), PlattSigmoid()])
def test_log_odds_keep_the_shape_and_are_never_nan(estimator):
    estimator.fit(*DATA["overlapping"])
    margins = np.array([[0.0, 1e308, -1e308], [5.0, -5.0, 1e-320]])
    assert estimator.log_odds(margins).shape == (2, 3)
    p = estimator.probability(margins)
    assert ((p >= 0) & (p <= 1)).all()
    assert (p[0, 1], p[0, 2]) == (1.0, 0.0)
    assert float(estimator.log_odds(0.0)) == -estimator.B_


# Platt's algorithm


@pytest.mark.parametrize("name", ["overlapping", "hardly any difference", "the wrong way round", "one and one"])
def test_platts_algorithm_finds_the_optimum_where_it_works(name):
    f, y = DATA[name]
    A, B = optimum(f, targets(y))
    fitted = PlattSigmoid(tolerance=1e-9).fit(f, y)
    assert fitted.converged_
    assert pytest.approx(A, rel=1e-6) == fitted.A_
    assert fitted.overflows_ == fitted.log_zeros_ == 0
    published = PlattSigmoid().fit(f, y)
    assert published.objective_ == pytest.approx(loss_at(A, B, f, targets(y)), rel=1e-6)


def test_platts_first_two_steps_by_hand():
    # f = 1 and -1 with targets 2/3 and 1/3: B stays 0, p is 1/2, the Hessian diagonal, damped by 0.001 and then 0.0001.
    first = -(1 / 3) / (0.5 + 1e-3)
    p = expit(-first)
    second = first + 2 * (p - 2 / 3) / (2 * p * (1 - p) + 1e-4)
    for tolerance, A, steps in ((0.02, first, 1), (0.002, second, 2)):
        fitted = PlattSigmoid(tolerance=tolerance).fit([1, -1], [1, 0])
        assert fitted.iterations_ == steps
        assert pytest.approx(A, rel=1e-12) == fitted.A_


def test_the_published_slip_makes_the_last_trial_decide():
    f, y = DATA["overlapping"]
    turned = np.r_[1 : len(f), 0]
    right, wrong = (
        [PlattSigmoid(bug=bug).fit(f[order], y[order]).objective_ for order in (slice(None), turned)]
        for bug in (False, True)
    )
    assert right[0] == pytest.approx(right[1], rel=1e-9)
    assert abs(wrong[0] - wrong[1]) > 0.01
    assert min(wrong) > right[0] + 1.0


def test_platts_algorithm_overflows_and_stops_short_where_newtons_does_not():
    y = np.arange(903) < 3
    f = np.where(y, 2.0, -1.0)
    platt, newton = PlattSigmoid().fit(f, y), NewtonSigmoid().fit(f, y)
    assert platt.overflows_ > 0
    assert platt.log_zeros_ >= platt.overflows_
    assert platt.objective_ > 4 * newton.objective_
    assert platt.gradient_ > 0.1 > 1e-5 > newton.gradient_
    # Newton's steps that overshoot are halved and counted.
    assert newton.backtracks_ > newton.overflows_ == 0


def test_platts_algorithm_adds_damping_until_the_hessian_is_no_longer_singular():
    # Weights so large that the first damping is lost beside them.
    fitted = PlattSigmoid().fit([1.0, 1.0], [1, 0], [2.0**60, 2.0**61])
    assert fitted.log_odds(1.0) == pytest.approx(-np.log(2))


def test_platts_algorithm_says_when_its_numbers_run_out():
    with pytest.raises(FitError, match="NewtonSigmoid fits them"):
        PlattSigmoid().fit([1e200, -1e200, 1e200], [1, 0, 0])
    assert np.isfinite(NewtonSigmoid().fit([1e200, -1e200, 1e200], [1, 0, 0]).A_)


@pytest.mark.parametrize("estimator", [NewtonSigmoid(), PlattSigmoid()])
@pytest.mark.parametrize(
    ("f", "y", "w", "message"),
    [
        ([1.0, 2.0], [1, 1], None, "both classes"),
        ([1.0, 2.0], [1, 0], [1.0, 0.0], "both classes"),
        ([1.0, np.inf], [1, 0], None, "finite"),
        ([1.0, 2.0], [1, 0], [1.0, -1.0], "at least 0"),
        ([1.0, 2.0], [1, 2], None, "classes"),
    ],
)
def test_data_that_cannot_be_fitted_are_refused(estimator, f, y, w, message):
    with pytest.raises(FitError, match=message):
        estimator.fit(f, y, w)


@pytest.mark.parametrize("setting", [{"sigma": 0.0}, {"sigma": "fixed"}, {"tolerance": -1.0}, {"max_iterations": 0}])
def test_settings_out_of_range_are_refused(setting):
    ((name, value),) = setting.items()
    with pytest.raises(FitError, match=f"{name}[: ].*got {value!r}"):
        NewtonSigmoid(**setting).fit([1, -1], [1, 0])


@pytest.mark.parametrize("kind", POSTERIORS)
def test_every_kind_is_made_by_name_and_learns(kind):
    estimator = make_posterior(kind)
    assert isinstance(estimator, MarginPosterior)
    assert estimator.kind == kind
    f, y = DATA["overlapping"]
    assert estimator.fit(f, y) is estimator
    low, high = estimator.probability([-1.5, 1.5])
    assert 0 < low < 0.5 < high < 1


def test_kinds_and_settings_that_do_not_exist_are_named():
    with pytest.raises(ConfigError, match=r"kind is one of platt, newton, .*got 'plat'"):
        make_posterior("plat")
    with pytest.raises(ConfigError, match="posterior 'newton': got an unexpected keyword argument 'slope'"):
        make_posterior("newton", slope=2)
