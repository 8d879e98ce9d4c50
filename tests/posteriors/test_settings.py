"""Posteriors and classifiers with settings and arrays of the wrong type: always a FitError that names them."""

from __future__ import annotations

import copy
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.svm import SVC

from pipeline import (
    ImpliedPosterior,
    OneVsRestPosteriorClassifier,
    PairwisePosteriorClassifier,
    make_posterior,
)
from pipeline.errors import ConfigError, FitError, UnfittedError
from pipeline.posteriors.estimators import POSTERIORS

MARGINS, CLASSES = np.linspace(-2.0, 2.0, 40), np.arange(40) % 3 == 0
ROWS, LABELS = (part[:100:5] for part in load_iris(return_X_y=True))
NO_SETTINGS = [[], {}, object(), b"x", "x", np.zeros(2), np.array(None), float("nan"), 10**400, 1j, int]
NO_NUMBERS = ["x", ["1", "2"], [None] * 40, {}, object(), 1j, [[1], [1, 2]], 10**400, np.ma.masked_less([1.0, 2.0], 2)]


def _name(value) -> str:
    return repr(value).partition(" at 0x")[0][:30]


SETTINGS = [(kind, field.name) for kind, made in POSTERIORS.items() for field in fields(made)]
CLASSIFIERS = [
    *((OneVsRestPosteriorClassifier, name) for name in ("estimator", "posterior", "margins", "folds", "share")),
    *((PairwisePosteriorClassifier, name) for name in ("coupling", "one_class", "n_jobs", "random_state")),
    *((ImpliedPosterior, name) for name in ("estimator", "machines", "weighting", "n_jobs")),
]


@pytest.mark.parametrize(("kind", "name"), SETTINGS)
@pytest.mark.parametrize("value", NO_SETTINGS, ids=_name)
def test_a_setting_of_a_posterior_of_the_wrong_type_is_named(kind, name, value):
    with pytest.raises(FitError, match=rf"^{name}: .* expected, got "):
        make_posterior(kind, **{name: value}).fit(MARGINS, CLASSES)


@pytest.mark.parametrize(("make", "name"), CLASSIFIERS)
@pytest.mark.parametrize("value", NO_SETTINGS, ids=_name)
def test_a_setting_of_a_classifier_of_the_wrong_type_is_named(make, name, value):
    with pytest.raises((FitError, ConfigError), match=rf"^{name}: "):
        make(**{name: value}).fit(ROWS, LABELS)


def test_a_class_in_place_of_an_estimator_is_named():
    with pytest.raises(FitError, match=r"^estimator: a scikit-learn estimator, as SVC\(\), expected, got <class"):
        ImpliedPosterior(SVC).fit(ROWS, LABELS)


@pytest.mark.parametrize("kind", POSTERIORS)
@pytest.mark.parametrize("values", NO_NUMBERS, ids=_name)
def test_margins_and_weights_that_are_no_numbers_are_refused(kind, values):
    fitted = make_posterior(kind).fit(MARGINS, CLASSES)
    for wrong in (
        lambda: fitted.probability(values),
        lambda: make_posterior(kind).fit(values, CLASSES),
        lambda: make_posterior(kind).fit(MARGINS, CLASSES, values),
    ):
        with pytest.raises(FitError, match=r"^(margins|weights): "):
            wrong()


@given(st.sampled_from(sorted(POSTERIORS)), st.sampled_from([np.float32, np.float64, np.float16]))
def test_settings_of_numpy_are_those_of_python(kind, number):
    plain = {field.name: getattr(make_posterior(kind), field.name) for field in fields(POSTERIORS[kind])}
    halves = {name: 0.5 for name, value in plain.items() if isinstance(value, float)}
    of_numpy = {name: number(value) for name, value in halves.items()}
    whole = {name: np.int64(value) for name, value in plain.items() if type(value) is int}
    expected = make_posterior(kind, **halves).fit(MARGINS, CLASSES).log_odds(MARGINS)
    assert make_posterior(kind, **of_numpy, **whole).fit(MARGINS, CLASSES).log_odds(MARGINS) == pytest.approx(expected)


@pytest.mark.parametrize("kind", POSTERIORS)
def test_a_posterior_that_is_not_fitted_says_so_and_can_be_copied(kind):
    posterior = make_posterior(kind)
    for same in (posterior, copy.copy(posterior), copy.deepcopy(posterior)):
        with pytest.raises(UnfittedError, match=r"fit\(margins, positive\) comes first"):
            same.probability([1.0])
        assert not hasattr(same, "nothing")
        assert same.fit(MARGINS, CLASSES).probability([1.0]).shape == (1,)


@pytest.mark.parametrize("kind", [None, 3, ["newton"], np.array(["newton"]), b"newton"], ids=_name)
def test_a_kind_that_is_no_name_is_refused(kind):
    with pytest.raises(ConfigError, match="posterior: kind is one of platt"):
        make_posterior(kind)


def test_wrong_settings_do_not_hinder_a_clone():
    assert clone(ImpliedPosterior(machines="many")).get_params()["machines"] == "many"
