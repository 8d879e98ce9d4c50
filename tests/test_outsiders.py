"""The share of outsiders among false claims: given when a store is opened, or in its settings."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pipeline.enrollment import enroll
from pipeline.errors import InputError
from pipeline.evaluation import equal_error_rate
from pipeline.store import SpeakerStore
from pipeline.verification import Verifier

VOICES = ("anna", "dexter", "ivan", "lars")


@pytest.fixture(scope="module", params=[0.0, 1.0])
def share(request) -> float:
    return request.param


def test_what_is_given_at_opening_is_as_if_it_had_been_enrolled_with(
    share, store, recordings, tiny_with, heard, tmp_path
):
    config = tiny_with(f"threshold.outsiders={share}")
    enroll(tmp_path / "set.store", {name: recordings[name] for name in VOICES}, config)
    there, given = SpeakerStore.open(tmp_path / "set.store"), SpeakerStore.open(store, outsiders=share)
    assert there.outsiders == given.outsiders == share
    for system in given.systems:
        assert given.threshold(system) == there.threshold(system)
    assert Verifier(given, "anna").verify_file(heard("lars")) == Verifier(there, "anna").verify_file(heard("lars"))


def test_it_changes_log_likelihood_ratios(store, heard):
    """Held out, outsiders are harder to tell from a speaker than rivals are: a ratio that expects none is larger."""
    closed, mixed, outside = (
        Verifier(SpeakerStore.open(store, outsiders=share), "anna").verify_file(heard("anna"))
        for share in (0.0, 0.5, 1.0)
    )
    assert closed.llr is not None and mixed.llr is not None and outside.llr is not None
    assert closed.score == mixed.score == outside.score  # this store's default system sums nothing
    assert min(closed.llr, outside.llr) < mixed.llr < max(closed.llr, outside.llr)


def test_thresholds_are_of_the_false_claims_that_are_expected(share, store):
    opened = SpeakerStore.open(store, outsiders=share)
    trials = opened.trials
    assert trials is not None
    own = trials.claims == trials.speakers
    false = trials.outsider if share else ~own & ~trials.outsider
    scores = trials.scores["worst_rival"]
    assert opened.threshold("worst_rival") == equal_error_rate(scores[own], scores[false]).threshold
    assert not np.array_equal(scores[false], scores[~own])


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(store, wrong):
    with pytest.raises(InputError, match="outsiders"):
        SpeakerStore.open(store, outsiders=wrong)


def test_the_command_takes_it(run, store, heard):
    told = [
        json.loads(run("verify", store, "--claim", "anna", "--outsiders", share, heard("anna"), "--json").out)
        for share in (0, 1)
    ]
    assert [outcome["outsiders"] for outcome in told] == [0, 1]
    assert told[0]["llr"] != told[1]["llr"]
    assert run("verify", store, "--claim", "anna", "--outsiders", 2, heard("anna")).code == 2
