"""The kernel machine of regularised likelihood: against scikit-learn, scipy's optimum and its two solvers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import check_estimator

from pipeline.errors import FitError
from pipeline.posteriors import kernel_logistic
from pipeline.posteriors.kernel_logistic import KernelLogistic


def sample(rows: int = 120, columns: int = 8, seed: int = 3):
    """Rows of zeros and ones whose log-odds have a product in them, and classes named by words."""
    rng = np.random.default_rng(seed)
    X = (rng.random((rows, columns)) < 0.4).astype(float)
    odds = 2 * X[:, 0] * X[:, 1] + 1.5 * X[:, 2] - X[:, 3] - 0.8
    return X, np.where(rng.random(rows) < expit(odds), "yes", "no")


def logistic(C: float, X, y) -> LogisticRegression:
    return LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(X, y)


def quadratic_features(X, gamma: float, coef0: float):
    """Features whose inner product is (gamma x.z + coef0)^2, for rows of any numbers: all ordered pairs."""
    pairs = (X[:, :, None] * X[:, None, :]).reshape(len(X), -1)
    return np.hstack([gamma * pairs, np.sqrt(2 * gamma * coef0) * X])


@pytest.mark.parametrize("C", [0.01, 1.0, 300.0])
def test_linear_kernel_is_logistic_regression(C):
    X, y = sample()
    ours, theirs = KernelLogistic(C).fit(X, y), logistic(C, X, y)
    assert ours.decision_function(X) == pytest.approx(theirs.decision_function(X), abs=1e-6)
    assert list(ours.classes_) == ["no", "yes"]


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("coef0", [0.0, 0.5])
@pytest.mark.parametrize(("gram_rows", "shift"), [(0, 0.0), (3000, 0.0), (0, 0.3)])
def test_quadratic_kernel_is_logistic_regression_in_its_features(monkeypatch, layout, coef0, gram_rows, shift):
    monkeypatch.setattr(kernel_logistic, "GRAM_ROWS", gram_rows)
    X, y = sample()
    X, kernel = X - shift, {"gamma": 0.25, "coef0": coef0}
    ours = KernelLogistic(2.0, "poly", **kernel).fit(layout(X), y)
    features = quadratic_features(X, **kernel)
    theirs = logistic(2.0, features, y).decision_function(features)
    assert ours.decision_function(layout(X)) == pytest.approx(theirs, abs=1e-6)
    # Features other than 0 and 1 have more products.
    assert ours.explicit_ == (gram_rows == 0 and shift == 0.0)
    if ours.explicit_:
        with pytest.raises(FitError, match="features of 0 and 1"):
            ours.predict(layout(X + 0.5))


@pytest.mark.parametrize("C", [0.1, 5.0])
def test_rbf_machine_is_the_optimum_that_scipy_finds(C):
    X, y = sample(60)
    K, t = rbf_kernel(X, gamma=0.5), y == "yes"
    sign = np.where(t, 1.0, -1.0)

    def cost(v):
        h = K @ v[:-1]
        f = h + v[-1]
        pull = -C * sign * expit(-sign * f)
        return C * np.logaddexp(0, -sign * f).sum() + v[:-1] @ h / 2, np.r_[K @ pull + h, pull.sum()]

    best = minimize(cost, np.zeros(61), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000}).x
    ours = KernelLogistic(C, "rbf", gamma=0.5).fit(X, y)
    assert ours.decision_function(X) == pytest.approx(K @ best[:-1] + best[-1], abs=1e-6)
    assert cost(np.r_[ours.dual_coef_, ours.intercept_])[0] <= cost(best)[0] + 1e-10
    assert ours.predict_proba(X)[:, 1] == pytest.approx(expit(ours.decision_function(X)))


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf"])
@settings(max_examples=5, deadline=None)
@given(weights=st.lists(st.integers(0, 3), min_size=40, max_size=40))
def test_weights_are_repetitions(kernel, weights):
    X, y = sample(40)
    first = {name: int(np.argmax(y == name)) for name in ("yes", "no")}
    repeats = np.array(weights)
    repeats[list(first.values())] += 1
    machine = KernelLogistic(2.0, kernel, gamma=0.25)
    weighted = machine.fit(X, y, repeats).decision_function(X)
    assert weighted == pytest.approx(
        machine.fit(np.repeat(X, repeats, axis=0), np.repeat(y, repeats)).decision_function(X), abs=1e-6
    )


@pytest.mark.parametrize("C", [1e-6, 1e8])
def test_hardly_any_and_next_to_no_penalty_both_end(C):
    X, y = sample(60)
    ours = KernelLogistic(C, "rbf", gamma=1.0).fit(X, y)
    p = ours.predict_proba(X)
    assert np.isfinite(ours.decision_function(X)).all()
    assert ours.n_iter_ < ours.max_iter
    if C < 1:
        assert p[:, 1] == pytest.approx((y == "yes").mean(), abs=1e-3)
    else:
        _, place, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
        # Without a penalty every distinct row has its own share of the class.
        assert p[:, 1] == pytest.approx((np.bincount(place, y == "yes") / counts)[place], abs=1e-3)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_scikit_learns_own_checks(kernel):
    checks = check_estimator(KernelLogistic(kernel=kernel), on_skip=None)
    assert sum(check["status"] == "passed" for check in checks) > 40


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"kernel": "cubic"}, "kernel"),
        ({"C": 0.0}, "C and gamma"),
        ({"gamma": -1.0}, "C and gamma"),
    ],
)
def test_settings_out_of_range_are_refused(settings_, words):
    with pytest.raises(FitError, match=words):
        KernelLogistic(**settings_).fit(*sample())


@pytest.mark.parametrize(
    ("classes", "weights"),
    [(np.full(120, "a"), None), (np.arange(120) % 3, None), (np.arange(120) % 2, np.arange(120) % 2)],
)
def test_other_than_two_classes_are_refused(classes, weights):
    with pytest.raises(FitError, match="Only binary"):
        KernelLogistic().fit(sample()[0], classes, weights)
