"""Margins to fit posteriors to: who trained on what, and what that does to probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from pipeline.errors import FitError
from pipeline.posteriors.heldout import heldout_rows, margins_for
from pipeline.posteriors.newton import NewtonSigmoid


class Memory(ClassifierMixin, BaseEstimator):
    """Says 1 of rows whose first column it was trained on, and -1 of all others."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = np.unique(X[:, 0])
        return self

    def predict(self, X):
        return self.classes_[np.zeros(len(X), dtype=int)]

    def decision_function(self, X):
        return np.where(np.isin(X[:, 0], self.seen_), 1.0, -1.0)


NUMBERED = np.arange(90.0).reshape(-1, 1)
CLASSES = np.arange(90) % 3 == 0


def table(rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(rows, 5, flip_y=0.1, random_state=seed)


@pytest.mark.parametrize(
    ("how", "margin"), [({"method": "training"}, 1), *(({"method": "kfold", "folds": n}, -1) for n in (2, 3, 30))]
)
def test_margins_are_of_rows_that_the_machine_has_seen_in_training_and_not_in_cross_validation(how, margin):
    margins, positive = margins_for(Memory(), NUMBERED, CLASSES, **how)
    assert (margins == margin).all()
    np.testing.assert_array_equal(positive, CLASSES)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_held_out_margins_are_of_a_share_of_each_class_that_the_machine_has_not_seen(share):
    rows, margins = heldout_rows(Memory(), NUMBERED, CLASSES, method="holdout", share=share)
    assert (margins == -1).all()
    assert len(rows) == 90 * share
    assert (np.diff(rows) > 0).all()
    assert CLASSES[rows].sum() == 30 * share


def test_rows_of_a_group_are_never_on_both_sides():
    groups = np.repeat(np.arange(30), 3)
    copies = groups.reshape(-1, 1).astype(float)
    classes = groups % 2 == 0
    assert (margins_for(Memory(), copies, classes)[0] == 1).any()
    assert (margins_for(Memory(), copies, classes, groups=groups)[0] == -1).all()


@pytest.mark.parametrize("method", ["training", "holdout", "kfold"])
def test_each_margin_is_of_its_own_row_and_the_estimator_stays_as_it_was(method):
    X, y = table()
    machine = LinearSVC(C=0.1)
    rows, margins = heldout_rows(machine, X, y, method=method, share=0.4)
    with pytest.raises(NotFittedError):
        machine.predict(X)
    # Margins of machines trained on other thirds differ, but not by much.
    whole = LinearSVC(C=0.1).fit(X, y).decision_function(X)[rows]
    assert np.corrcoef(margins, whole)[0, 1] > 0.95
    assert np.array_equal(margins, whole) == (method == "training")


@pytest.mark.parametrize("labels", [(False, True), (-1, 1), (1, 2), ("female", "male")])
def test_the_later_label_in_sorted_order_is_the_positive_class(labels):
    X, y = table()
    named = np.array(labels)[y]
    margins, positive = margins_for(SVC(), X, named)
    np.testing.assert_array_equal(positive, y == 1)
    assert margins[positive].mean() > 0 > margins[~positive].mean()


def test_weights_reach_the_machine():
    X, y = table(120)
    w = np.random.default_rng(0).integers(1, 4, len(y))
    machine = LogisticRegression(tol=1e-8)
    weighted, _ = margins_for(machine, X, y, method="training", weights=w)
    repeated = machine.fit(np.repeat(X, w, axis=0), np.repeat(y, w)).decision_function(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-4)
    for method in ("holdout", "kfold"):
        plain, ones, some = (
            margins_for(machine, X, y, method=method, weights=weights)[0] for weights in (None, np.ones(120), w)
        )
        np.testing.assert_array_equal(ones, plain)
        assert np.abs(some - plain).max() > 1e-3


@pytest.mark.parametrize("method", ["training", "holdout", "kfold"])
def test_rows_may_be_sparse_or_text(method):
    X, y = table(90)
    dense = margins_for(LinearSVC(), X, y, method=method)[0]
    np.testing.assert_allclose(margins_for(LinearSVC(), csr_array(X), y, method=method)[0], dense, atol=1e-2)
    texts = [f"{'good' if k % 2 else 'bad'} word{k % 7}" for k in range(40)]
    model = make_pipeline(CountVectorizer(), LinearSVC())
    margins, positive = margins_for(model, texts, ["g" if k % 2 else "b" for k in range(40)], method=method)
    assert ((margins > 0) == positive).all()


@pytest.mark.parametrize("method", ["holdout", "kfold"])
def test_held_out_margins_cure_the_bias_that_platt_describes(method):
    # A steep kernel machine knows its own rows by heart: its margins there say nothing of new rows.
    X, y = make_classification(900, 8, n_informative=4, flip_y=0.25, random_state=1)
    machine = SVC(C=100.0, gamma=0.5).fit(X[:300], y[:300])
    fresh = machine.decision_function(X[300:])

    def loss(how: str) -> float:
        sigmoid = NewtonSigmoid().fit(*margins_for(machine, X[:300], y[:300], method=how))
        return log_loss(y[300:], sigmoid.probability(fresh))

    base_rate = log_loss(y[300:], np.full(600, y[:300].mean()))
    assert loss(method) < base_rate < loss("training")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "loo"}, "training, holdout or kfold"),
        ({"estimator": GaussianNB()}, "GaussianNB: a classifier with decision_function"),
        ({"y": np.arange(30) < 3, "folds": 4}, "from 2 to the rows of the smaller class, 3, expected, got 4"),
        ({"folds": 1}, "got 1"),
        ({"y": np.arange(30) % 3}, "3 labels"),
        ({"y": np.zeros(30)}, "1 labels"),
        ({"method": "holdout", "share": 0.0}, "cannot hold out a share"),
        ({"method": "holdout", "share": 1.5}, "cannot hold out a share"),
        ({"method": "holdout", "y": np.arange(30) < 1}, "cannot hold out a share"),
        ({"method": "holdout", "y": np.arange(30) < 2, "share": 0.1}, "both classes on both sides"),
        ({"method": "holdout", "groups": np.arange(30)}, "only for method 'kfold'"),
        ({"y": np.arange(30) < 5, "groups": np.arange(30) // 5, "folds": 3}, "both classes outside"),
    ],
)
def test_what_cannot_be_held_out_is_said(changes, message):
    asked = {"estimator": SVC(), "X": np.arange(60.0).reshape(30, 2), "y": np.arange(30) % 2, **changes}
    with pytest.raises(FitError, match=message):
        margins_for(asked.pop("estimator"), asked.pop("X"), asked.pop("y"), **asked)
