"""Multi-class posteriors from binary machines: scikit-learn's contract, known posteriors, the equations in loops."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, OneClassSVM
from sklearn.utils.estimator_checks import check_estimator

from pipeline.errors import ConfigError, FitError
from pipeline.posteriors import classifiers
from pipeline.posteriors.classifiers import OneVsRestPosteriorClassifier, PairwisePosteriorClassifier
from pipeline.posteriors.estimators import POSTERIORS
from pipeline.posteriors.heldout import margins_for
from pipeline.posteriors.newton import NewtonSigmoid


def refined(*args, **settings):
    """The pairwise classifier with one-class machines."""
    return PairwisePosteriorClassifier(*args, coupling="rpoao", one_class=OneClassSVM(nu=0.1, tol=1e-8), **settings)


BOTH = (OneVsRestPosteriorClassifier, PairwisePosteriorClassifier)
ALL = (*BOTH, refined)
COUPLINGS = ("poao", "rpoao", "hastie_tibshirani", "pkpd", "wu_lin_weng")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "posteriors.md"


@pytest.fixture(scope="module")
def clouds():
    """Four overlapping clouds in three dimensions: 160 rows to train on, 160 others."""
    X, y = make_blobs(320, 3, centers=4, cluster_std=3.0, random_state=4)
    return X[:160], y[:160], X[160:], y[160:]


# scikit-learn's contract


@pytest.mark.parametrize("classifier", [OneVsRestPosteriorClassifier(), PairwisePosteriorClassifier()], ids=repr)
def test_scikit_learns_own_checks(classifier):
    checks = check_estimator(classifier.set_params(posterior="fixed"), on_skip=None)
    # What is skipped needs pandas or another kind of arrays.
    assert {check["status"] for check in checks} <= {"passed", "skipped"}
    assert sum(check["status"] == "passed" for check in checks) > 50


def test_a_posterior_that_is_given_is_copied_with_its_settings(clouds):
    X, y, _, _ = clouds
    own = NewtonSigmoid(smoothed=False)
    fitted = PairwisePosteriorClassifier(posterior=own, random_state=1).fit(X, y)
    assert all(not posterior.smoothed and posterior.A_ < 0 for posterior in fitted.posteriors_)
    assert not hasattr(own, "A_")


# Posteriors that are known

# Rows are cells of a table, columns classes; entries are numbers of rows of that kind.
TABLE = np.array([[900, 60, 40], [300, 500, 200], [50, 800, 150], [100, 100, 800], [340, 330, 330], [5, 15, 980]])
POSTERIOR = TABLE / TABLE.sum(axis=1, keepdims=True)


def on_the_table(classifier):
    """Posteriors (6, 3) of a classifier that is given the table as weights, its cells as indicator columns."""
    cells = np.eye(len(TABLE))
    X, y = np.repeat(cells, 3, axis=0), np.tile(np.arange(3), len(TABLE))
    # An unpenalised logistic regression can follow any table: its margins are the log-odds themselves.
    classifier.set_params(estimator=LogisticRegression(C=1e6, tol=1e-8, max_iter=1000), margins="training")
    return classifier.fit(X, y, sample_weight=TABLE.ravel()).predict_proba(cells)


@pytest.mark.parametrize(
    "classifier",
    [
        OneVsRestPosteriorClassifier(),
        *(PairwisePosteriorClassifier(coupling=rule) for rule in ("hastie_tibshirani", "pkpd", "wu_lin_weng")),
    ],
    ids=repr,
)
@pytest.mark.parametrize("posterior", ["fixed", "newton", "platt", "isotonic"])
def test_posteriors_of_a_table_are_its_shares(classifier, posterior):
    # All but the fixed sigmoid are drawn a little towards even odds by their smoothed targets.
    result = on_the_table(clone(classifier).set_params(posterior=posterior))
    assert_allclose(result, POSTERIOR, atol=1e-4 if posterior == "fixed" else 3e-3)


def test_normal_classes_have_their_analytic_posteriors():
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [2.0, 0.0], [0.5, 1.5]])
    y = np.repeat([0, 1, 2], 1500)
    X = means[y] + rng.standard_normal((len(y), 2))
    truth = softmax(-0.5 * ((X[:, None] - means) ** 2).sum(axis=-1), axis=1)
    result = PairwisePosteriorClassifier(LinearDiscriminantAnalysis(), random_state=0).fit(X, y).predict_proba(X)
    assert np.abs(result - truth).mean() < 0.01
    # Twelve fitted numbers from 4500 rows cost about 12 / 9000 nats.
    assert np.sum(truth * np.log(truth / result), axis=1).mean() < 3e-3


@pytest.mark.parametrize("make", BOTH)
def test_two_classes_are_the_sigmoid_of_one_machine(make, clouds):
    X, y, others, _ = clouds
    y = np.where(y % 2, "odd", "even")
    fitted = make(SVC(gamma=0.1, tol=1e-8), margins="training").fit(X, y)
    machine = SVC(gamma=0.1, tol=1e-8).fit(X, y)
    posterior = NewtonSigmoid().fit(*margins_for(machine, X, y, method="training"))
    expected = expit(-(posterior.A_ * machine.decision_function(others) + posterior.B_))
    assert_allclose(fitted.predict_proba(others)[:, 1], expected, atol=1e-6)
    assert len(fitted.estimators_) == len(fitted.posteriors_) == 1


# The equations, in loops


def normalised(p):
    return p / p.sum(axis=1, keepdims=True)


def by_machine(machines, posteriors, X):
    """Posteriors (n,) of every machine in turn."""
    return [expit(g.log_odds(machine.decision_function(X))) for machine, g in zip(machines, posteriors, strict=True)]


@pytest.mark.parametrize("posterior", ["fixed", "newton", "two_gaussian"])
def test_eq_12(posterior, clouds):
    X, y, others, _ = clouds
    fitted = OneVsRestPosteriorClassifier(posterior=posterior, random_state=0).fit(X, y)
    p = np.stack(by_machine(fitted.estimators_, fitted.posteriors_, others), axis=1)
    assert_allclose(fitted.predict_proba(others), normalised(p), rtol=1e-10)


@pytest.mark.parametrize("posterior", ["fixed", "newton", "isotonic"])
def test_eqs_13_to_16(posterior, clouds):
    X, y, others, truth = clouds
    plain = PairwisePosteriorClassifier(posterior=posterior, coupling="poao", random_state=0).fit(X, y)
    r = np.zeros((len(others), 4, 4))
    for (i, j), p in zip(plain.pairs_, by_machine(plain.estimators_, plain.posteriors_, others), strict=True):
        r[:, i, j], r[:, j, i] = p, 1.0 - p
    assert_allclose(plain.predict_proba(others), normalised(r.sum(axis=2)), rtol=1e-10)
    fitted = clone(plain).set_params(coupling="rpoao").fit(X, y)
    q = np.stack(by_machine(fitted.one_class_estimators_, fitted.one_class_posteriors_, others), axis=1)
    assert_allclose(
        fitted.predict_proba(others), normalised((r * (q[:, :, None] + q[:, None, :])).sum(axis=2)), rtol=1e-10
    )
    if posterior == "newton":
        assert log_loss(truth, fitted.predict_proba(others)) < log_loss(truth, plain.predict_proba(others))


# scikit-learn's own machines


def test_pair_margins_are_those_of_the_one_vs_one_svc(clouds):
    X, y, others, _ = clouds
    native = SVC(gamma=0.1, tol=1e-9, decision_function_shape="ovo").fit(X, y)
    fitted = PairwisePosteriorClassifier(SVC(gamma=0.1, tol=1e-9), posterior="fixed").fit(X, y)
    margins = np.stack([machine.decision_function(others) for machine in fitted.estimators_], axis=1)
    assert fitted.pairs_ == list(combinations(range(4), 2))
    assert_allclose(margins, native.decision_function(others), atol=1e-6)


def test_fixed_sigmoids_leave_the_order_of_one_vs_rest(clouds):
    X, y, others, _ = clouds
    native = OneVsRestClassifier(SVC(gamma=0.1, tol=1e-9)).fit(X, y)
    fitted = OneVsRestPosteriorClassifier(SVC(gamma=0.1, tol=1e-9), posterior="fixed").fit(X, y)
    assert_array_equal(fitted.predict(others), native.decision_function(others).argmax(axis=1))


# What must not matter


@pytest.mark.parametrize("make", ALL)
def test_renamed_classes_are_permuted_columns(make, clouds):
    X, y, others, _ = clouds
    order = np.array([2, 0, 3, 1])
    plain = make(margins="training", estimator=SVC(tol=1e-8)).fit(X, y).predict_proba(others)
    renamed = make(margins="training", estimator=SVC(tol=1e-8)).fit(X, order[y]).predict_proba(others)
    assert_allclose(renamed[:, order], plain, atol=1e-4)


@pytest.mark.parametrize("make", ALL)
def test_neither_the_order_of_rows_nor_the_number_of_jobs_matters(make, clouds):
    X, y, others, _ = clouds
    order = np.random.default_rng(1).permutation(len(X))
    plain = make(random_state=0).fit(X, y).predict_proba(others)
    with parallel_config("threading"):
        shuffled = make(random_state=0, n_jobs=2).fit(X[order], y[order]).predict_proba(others)
    assert_array_equal(shuffled, plain)


@pytest.mark.parametrize("make", ALL)
def test_a_weight_of_two_is_the_row_twice_and_of_nought_no_row(make, clouds):
    X, y, others, _ = clouds
    weights = np.arange(len(X)) % 3
    weighted = make(random_state=0).fit(X, y, sample_weight=weights).predict_proba(others)
    repeated = make(random_state=0).fit(X.repeat(weights, axis=0), y.repeat(weights)).predict_proba(others)
    assert_array_equal(weighted, repeated)
    assert not np.allclose(weighted, make(random_state=0).fit(X, y).predict_proba(others), atol=1e-2)


@pytest.mark.parametrize("make", ALL)
def test_sparse_rows_are_as_good_as_dense(make, clouds):
    X, y, others, _ = clouds
    X, others = X * (X > 0), others * (others > 0)
    dense = make(SVC(gamma=0.1, tol=1e-8), margins="training").fit(X, y).predict_proba(others)
    sparse = make(SVC(gamma=0.1, tol=1e-8), margins="training").fit(csr_array(X), y).predict_proba(csr_array(others))
    assert_allclose(sparse, dense, atol=1e-5)


def test_blocks_of_rows_do_not_show(clouds, monkeypatch):
    X, y, others, _ = clouds
    fitted = PairwisePosteriorClassifier(posterior="fixed").fit(X, y)
    whole = fitted.predict_proba(others)
    monkeypatch.setattr(classifiers, "MAX_PAIRS", 16 * 7)
    assert_allclose(fitted.predict_proba(others), whole, rtol=1e-12)


# The edges


@pytest.mark.parametrize("make", ALL)
def test_classes_of_one_and_two_rows(make, clouds):
    X, y, others, _ = clouds
    few = np.r_[np.flatnonzero(y < 2), np.flatnonzero(y == 2)[:2], np.flatnonzero(y == 3)[:1]]
    fitted = make(random_state=0).fit(X[few], y[few]).predict_proba(others)
    assert fitted.shape == (160, 4)
    assert_allclose(fitted.sum(axis=1), 1.0, rtol=1e-12)
    # One row of a class vouches for no more than 2/3 of it.
    assert fitted[:, 3].max() < 0.7


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"posterior": "sigmoid"}, ConfigError, "one of platt, newton"),
        ({"posterior": 3}, FitError, "a kind or an estimator"),
        ({"margins": "loo"}, FitError, "training, holdout, kfold expected, got 'loo'"),
        ({"folds": 1}, FitError, "folds of 2 or more"),
        ({"share": 1.0}, FitError, "share in"),
        ({"estimator": RandomForestClassifier(2)}, FitError, "decision_function"),
    ],
)
def test_settings_out_of_range(make, settings, error, words, clouds):
    X, y, _, _ = clouds
    with pytest.raises(error, match=re.escape(words)):
        make(**settings).fit(X, y)


def test_errors_about_the_rows(clouds):
    X, y, _, _ = clouds
    with pytest.raises(FitError, match="got 1 class"):
        PairwisePosteriorClassifier().fit(X, np.ones(len(X)))
    with pytest.raises(FitError, match="got 1 class"):
        PairwisePosteriorClassifier().fit(X, y, sample_weight=y == 1)
    with pytest.raises(FitError, match="LinearDiscriminantAnalysis takes none"):
        OneVsRestPosteriorClassifier(LinearDiscriminantAnalysis()).fit(X, y, sample_weight=np.ones(len(X)))
    with pytest.raises(FitError, match="weights: finite numbers of at least 0"):
        OneVsRestPosteriorClassifier().fit(X, y, sample_weight=-np.ones(len(X)))
    with pytest.raises(FitError, match="coupling: one of poao"):
        PairwisePosteriorClassifier(coupling="eq13").fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        PairwisePosteriorClassifier().fit(np.where(X > 1, np.nan, X), y)


# The page


def test_the_page_has_every_kind_and_coupling():
    text = PAGE.read_text(encoding="utf-8")
    for name in ("fixed", "implied", *POSTERIORS, "poar", *COUPLINGS):
        assert f"`{name}`" in text, name
