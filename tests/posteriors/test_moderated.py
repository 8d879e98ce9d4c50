"""Moderated outputs against Bayesian linear regression, a normal integral and scikit-learn's checks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import log_loss
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from pipeline.errors import FitError
from pipeline.posteriors.moderated import ModeratedSVC


def sample(rows: int = 60, seed: int = 0):
    """Two normal classes in the plane, one apart from the other by two."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    return rng.normal(size=(rows, 2)) + 2.0 * y[:, None] * [1, 0], np.where(y == 1, "yes", "no")


@pytest.mark.parametrize("eta", [1.0, 10.0])
@pytest.mark.parametrize("C", [0.1, 3.0])
def test_the_variance_of_a_linear_machine_is_that_of_its_weights(C, eta):
    X, y = sample()
    ours = ModeratedSVC(C, "linear", eta=eta).fit(X, y)
    # In the weights themselves: precision I + sum of d_i x_i x_i', d_i the curvature of the smoothed hinge.
    slack = 1 - np.where(y == "yes", 1, -1) * ours.decision_function(X)
    step = 1e-4
    smooth = [np.logaddexp(0, eta * (slack + k * step)) / eta for k in (-1, 0, 1)]
    d = C * (smooth[0] - 2 * smooth[1] + smooth[2]) / step**2
    covariance = np.linalg.inv(np.eye(2) + (X.T * d) @ X)
    rows = np.random.default_rng(1).normal(size=(9, 2)) * 3
    assert ours.margin_variance(rows) == pytest.approx(np.einsum("ni,ij,nj->n", rows, covariance, rows), rel=1e-4)


def test_the_machine_is_scikit_learns():
    X, y = sample()
    ours, theirs = ModeratedSVC(2.0, gamma=0.5).fit(X, y), SVC(C=2.0, gamma=0.5).fit(X, y)
    assert ours.decision_function(X) == pytest.approx(theirs.decision_function(X))
    assert (ours.predict(X) == theirs.predict(X)).all()


@pytest.mark.parametrize("C", [0.5, 2.0])
def test_a_posterior_is_the_likelihood_averaged_over_the_normal_margin(C):
    X, y = sample()
    ours = ModeratedSVC(C).fit(X, y)

    def hinge(f, t):
        return np.exp(-C * max(0.0, 1 - t * f))

    for row, found in zip(X[:6], ours.predict_proba(X[:6])[:, 1], strict=True):
        mean, spread = ours.decision_function([row])[0], np.sqrt(ours.margin_variance([row])[0])
        likely = quad(
            lambda f, m=mean, s=spread: norm.pdf(f, m, s) * hinge(f, 1) / (hinge(f, 1) + hinge(f, -1)),
            *(mean - 9 * spread, mean + 9 * spread),
            points=[p for p in (-1, 0, 1) if abs(p - mean) < 9 * spread],
        )[0]
        assert found == pytest.approx(likely, abs=2e-4)


def test_a_sure_machine_that_is_never_wrong_has_the_normal_integral_of_its_margin():
    # With a large C the likelihood is a step at 0, and P is the share of the normal margin above it.
    X, y = sample()
    ours = ModeratedSVC(1e6, "linear", eta=1e-6).fit(X, y)
    rows = X[:20]
    z = ours.decision_function(rows) / np.sqrt(ours.margin_variance(rows))
    assert ours.predict_proba(rows)[:, 1] == pytest.approx(norm.cdf(z), abs=0.1)


def test_posteriors_go_to_one_half_away_from_the_training_rows_and_err_less_than_without_moderation():
    X, y = sample(40)
    new, truth = sample(4000, seed=5)
    ours = ModeratedSVC(10.0, gamma=1.0).fit(X, y)
    assert ours.margin_variance([[99.0, 99.0]])[0] == pytest.approx(1.0)  # that of the prior
    near = ours.margin_variance(X).max()
    assert near < 1.0
    plain = ours.likelihood(ours.decision_function(new))
    moderated = ours.predict_proba(new)[:, 1]
    assert (np.abs(moderated - 0.5) <= np.abs(plain - 0.5) + 0.02).all()
    assert log_loss(truth == "yes", moderated) < log_loss(truth == "yes", plain)
    assert expit(2 * 10.0 * 0.3) == pytest.approx(ours.likelihood(0.3))


def test_unusable_settings_are_refused():
    X, y = sample(8)
    for settings, words in (({"C": 0.0}, "above 0"), ({"eta": -1.0}, "above 0"), ({"kernel": "cosine"}, "kernel")):
        with pytest.raises(FitError, match=words):
            ModeratedSVC(**settings).fit(X, y)
    with pytest.raises(FitError, match="Only binary"):
        ModeratedSVC().fit(X, np.arange(8) % 3)


def test_scikit_learns_own_checks_but_for_the_order_of_margins():
    # Two rows of one margin may have different variances: posteriors have an order of their own.
    reason = {"check_decision_proba_consistency": "posteriors are no function of the margin"}
    checks = check_estimator(ModeratedSVC(), on_skip=None, expected_failed_checks=reason)
    assert sum(check["status"] == "passed" for check in checks) > 40
