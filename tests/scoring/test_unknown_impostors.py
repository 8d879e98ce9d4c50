"""The share of unknown impostors among nontarget trials: given when a store is opened, or in its settings."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pipeline.enrollment.enroll import enroll
from pipeline.errors import InputError
from pipeline.metrics import equal_error_rate
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier


def test_a_share_given_at_opening_is_as_if_it_had_been_enrolled_with(
    store, recordings, voices, tiny_with, heard, tmp_path
):
    config = tiny_with("threshold.unknown_impostors=1.0")
    enroll(tmp_path / "set.store", {name: recordings[name] for name in voices}, config)
    there, given = Store(tmp_path / "set.store").load(), Store(store).load(unknown_impostors=1.0)
    assert there.unknown == given.unknown == 1.0
    for system in given.systems:
        assert given.threshold(system) == there.threshold(system)
    assert Verifier(given, "anna").verify_file(heard("lars")) == Verifier(there, "anna").verify_file(heard("lars"))


def test_it_changes_log_likelihood_ratios(store, heard):
    """Unknown impostors are harder to tell from a speaker than enrolled ones: a ratio that expects none is larger."""
    closed, mixed, outside = (
        Verifier(Store(store).load(unknown_impostors=share), "anna").verify_file(heard("anna"))
        for share in (0.0, 0.5, 1.0)
    )
    assert closed.score == mixed.score == outside.score  # this store's default system sums nothing
    assert min(closed.llr, outside.llr) < mixed.llr < max(closed.llr, outside.llr)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_thresholds_are_of_the_impostors_that_are_expected(share, store):
    opened = Store(store).load(unknown_impostors=share)
    trials = opened.trials()
    own = trials.claims == trials.speakers
    impostors = trials.unknown if share else ~own & ~trials.unknown
    scores = trials.scores["worst_rival"]
    assert opened.threshold("worst_rival") == equal_error_rate(scores[own], scores[impostors]).threshold
    assert not np.array_equal(scores[impostors], scores[~own])


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(store, wrong):
    with pytest.raises(InputError, match="unknown impostors"):
        Store(store).load(unknown_impostors=wrong)


def test_the_command_takes_it(run, store, heard):
    words = ("verify", store, "--claim", "anna", heard("anna"), "--json", "--unknown-impostors")
    outcome = json.loads(run(*words, 1).out)
    assert outcome["unknown_impostors"] == 1
    assert outcome["llr"] == Verifier(Store(store).load(unknown_impostors=1.0), "anna").verify_file(heard("anna")).llr
    assert run(*words, 2).code == 2
