"""Cosines whose coefficients depend on the place along the plane: against constant ones, and where places matter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from pipeline.errors import FitError
from pipeline.posteriors.heldout import margins_for
from pipeline.posteriors.local_cosine import LocalCosineSVC
from pipeline.posteriors.nonparametric import CosineExpansion


def sample(rows: int, seed: int):
    """Rows in the plane whose classes are told apart by x on the right (y > 0), and hardly on the left."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(rows, 2))
    truth = expit(np.where(X[:, 1] > 0, 6.0, 0.6) * X[:, 0])
    return X, rng.random(rows) < truth, truth


@pytest.mark.parametrize("machine", [SVC(kernel="linear"), SVC(gamma=0.5)])
def test_with_an_infinite_bandwidth_the_coefficients_are_constant(machine):
    X, y, _ = sample(200, 0)
    ours = LocalCosineSVC(machine, bandwidth=np.inf).fit(X, y)
    constant = CosineExpansion().fit(*margins_for(machine, X, y))
    new = sample(50, 1)[0]
    expected = constant.probability(machine.fit(X, y).decision_function(new))
    assert ours.predict_proba(new)[:, 1] == pytest.approx(expected, abs=1e-9)


def test_places_along_the_plane_of_a_linear_machine_are_the_projections():
    X, y, _ = sample(60, 2)
    ours = LocalCosineSVC(SVC(kernel="linear")).fit(X, y)
    w = ours.machine_.coef_[0] / np.linalg.norm(ours.machine_.coef_[0])
    u = X - np.outer(X @ w, w)
    assert ours._along(X) == pytest.approx(euclidean_distances(u) ** 2, abs=1e-9)


def test_a_posterior_that_depends_on_the_place_is_nearer_with_local_coefficients():
    X, y, _ = sample(800, 3)
    new, classes, truth = sample(2000, 4)
    machine = SVC(kernel="linear")
    local, constant = (
        LocalCosineSVC(machine, bandwidth=bandwidth, terms=4, penalty=1e-3).fit(X, y).predict_proba(new)[:, 1]
        for bandwidth in (0.7, np.inf)
    )
    assert np.abs(local - truth).mean() < 0.7 * np.abs(constant - truth).mean()
    assert log_loss(classes, local) < log_loss(classes, constant) - 0.03


def test_a_row_far_from_one_class_has_a_posterior_all_the_same():
    X, y, _ = sample(100, 5)
    p = LocalCosineSVC(SVC(kernel="linear"), bandwidth=1e-3).fit(X, y).predict_proba([[0.0, 1e3], *X[:5]])
    assert np.isfinite(p).all()
    assert ((p > 0) & (p < 1)).all()


def test_scikit_learns_own_checks_but_for_the_order_of_margins():
    reason = "posteriors are no function of the margin"
    failing = {"check_decision_proba_consistency": reason, "check_classifiers_train": reason}
    checks = check_estimator(LocalCosineSVC(), on_skip=None, expected_failed_checks=failing)
    assert sum(check["status"] == "passed" for check in checks) > 35
    with pytest.raises(FitError, match="bandwidth"):
        LocalCosineSVC(bandwidth=0.0).fit(*sample(20, 6)[:2])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_equal_rows_do_not_make_the_bandwidth_zero(kernel):
    X, y, _ = sample(40, 7)
    often = np.r_[np.repeat(X[:1], 100, axis=0), X]
    classes = np.r_[np.arange(100) % 2 == 0, y]
    ours = LocalCosineSVC(SVC(kernel=kernel)).fit(often, classes)
    assert 0.3 < ours.bandwidth_ < 3.0
    p = ours.predict_proba(X)
    assert ((p >= 0) & (p <= 1)).all()


def test_rows_at_one_place_along_the_plane_give_no_bandwidth():
    X, y, _ = sample(60, 8)
    line, machine = X[:, :1], SVC(kernel="linear")  # the plane of one feature is a point
    with pytest.raises(FitError, match="all rows are at one place"):
        LocalCosineSVC(machine).fit(line, y)
    p = LocalCosineSVC(machine, bandwidth=np.inf).fit(line, y).predict_proba(line)[:, 1]
    assert p == pytest.approx(LocalCosineSVC(machine, bandwidth=1e-3).fit(line, y).predict_proba(line)[:, 1])
