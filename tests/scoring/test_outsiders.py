"""The share of unknown_impostors among false claims: given when a store is opened, or in its settings."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pipeline.enrollment.enroll import enroll
from pipeline.errors import InputError
from pipeline.metrics import equal_error_rate
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

VOICES = ("anna", "dexter", "ivan", "lars")


@pytest.fixture(scope="module", params=[0.0, 1.0])
def share(request) -> float:
    return request.param


def test_what_is_given_at_opening_is_as_if_it_had_been_enrolled_with(
    share, store, recordings, tiny_with, heard, tmp_path
):
    config = tiny_with(f"threshold.unknown_impostors={share}")
    enroll(tmp_path / "set.store", {name: recordings[name] for name in VOICES}, config)
    there, given = Store(tmp_path / "set.store").load(), Store(store).load(unknown_impostors=share)
    assert there.unknown == given.unknown == share
    for system in given.systems:
        assert given.threshold(system) == there.threshold(system)
    assert Verifier(given, "anna").verify_file(heard("lars")) == Verifier(there, "anna").verify_file(heard("lars"))


def test_it_changes_log_likelihood_ratios(store, heard):
    """Unknown impostors are harder to tell from a speaker than enrolled ones: a ratio that expects none is larger."""
    closed, mixed, outside = (
        Verifier(Store(store).load(unknown_impostors=share), "anna").verify_file(heard("anna"))
        for share in (0.0, 0.5, 1.0)
    )
    assert closed.llr is not None and mixed.llr is not None and outside.llr is not None
    assert closed.score == mixed.score == outside.score  # this store's default system sums nothing
    assert min(closed.llr, outside.llr) < mixed.llr < max(closed.llr, outside.llr)


def test_thresholds_are_of_the_false_claims_that_are_expected(share, store):
    opened = Store(store).load(unknown_impostors=share)
    trials = opened.trials()
    assert trials is not None
    own = trials.claims == trials.speakers
    false = trials.unknown if share else ~own & ~trials.unknown
    scores = trials.scores["worst_rival"]
    assert opened.threshold("worst_rival") == equal_error_rate(scores[own], scores[false]).threshold
    assert not np.array_equal(scores[false], scores[~own])


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(store, wrong):
    with pytest.raises(InputError, match="unknown impostors"):
        Store(store).load(unknown_impostors=wrong)


def test_the_command_takes_it(run, store, heard):
    told = [
        json.loads(run("verify", store, "--claim", "anna", "--unknown-impostors", share, heard("anna"), "--json").out)
        for share in (0, 1)
    ]
    assert [outcome["unknown_impostors"] for outcome in told] == [0, 1]
    assert told[0]["llr"] != told[1]["llr"]
    assert run("verify", store, "--claim", "anna", "--unknown-impostors", 2, heard("anna")).code == 2
