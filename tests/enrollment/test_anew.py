"""Everybody enrolled anew from recordings, as if the store had been made in one go."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import EnrollmentRefusedError, InputError
from pipeline.evaluation import Trial
from pipeline.evaluation.calibrate import calibrate
from pipeline.scoring.trials import OWN, RECORDED
from pipeline.store.store import Store


@pytest.fixture(scope="module")
def grown(tmp_path_factory, recordings, voices, tiny) -> Path:
    """A store to which the second to fourth speakers came one by one; nobody has it open."""
    path = tmp_path_factory.mktemp("grown") / "s"
    for name in voices:
        enroll(path, {name: recordings[name]}, tiny)
    return path


@pytest.fixture
def path(grown, tmp_path) -> Path:
    """A copy of the grown store, free to be changed."""
    return Path(shutil.copy(grown, tmp_path / "s"))


def test_a_grown_store_becomes_that_of_one_enrollment(path, grown, store, recordings, voices):
    together, before = Store(store).load(), Store(grown).load()
    model = enroll(path, {name: recordings[name] for name in voices}, anew=True).model
    assert model.names == together.names
    assert {one.id for one in model.speakers}.isdisjoint(one.id for one in before.speakers)
    for made, expected, old in zip(model.arrays, together.arrays, before.arrays, strict=True):
        assert set(made) == set(expected)
        for name in expected:
            np.testing.assert_array_equal(made[name], expected[name], err_msg=name)
        assert not np.array_equal(made["supervector"], old["supervector"])
    np.testing.assert_array_equal(model.trials().scores["rpoao"], together.trials().scores["rpoao"])
    assert model.threshold("rpoao") == together.threshold("rpoao")
    assert model.revision == before.revision + 1
    Store(path).check()


def test_enrolling_anew_may_change_the_settings(path, recordings, voices, tiny_with):
    config = tiny_with("codebook.centroids=20")
    model = enroll(path, {name: recordings[name] for name in voices}, config, anew=True).model
    assert {one.centroids for one in model.speakers} == {20}


@pytest.mark.parametrize(
    "fewer", ["machines.cohort=all", "duplicate_audio.keep=false", 'machines.kinds=["supervector","one_class"]']
)
def test_enrolling_anew_keeps_no_array_of_earlier_settings(tmp_path, recordings, voices, tiny_with, fewer):
    path, everybody = tmp_path / "s", {name: recordings[name] for name in voices}
    enroll(path, {name: recordings[name] for name in voices[:3]}, tiny_with("machines.cohort=1"))
    system = "scoring.system=supervector_rival"
    model = enroll(path, everybody, tiny_with(system, fewer), anew=True).model
    fresh = enroll(tmp_path / "new", everybody, tiny_with(system, fewer)).model
    assert set(model.shared) == set(fresh.shared)
    assert [set(own) for own in model.arrays] == [set(own) for own in fresh.arrays]
    Store(path).check()
    assert remove_speaker(path, voices[0]).names == voices[1:]


def test_enrolling_anew_erases_own_trials(path, recordings, voices, demo):
    names = [f"{name}/{file.name}" for name in voices for file in (demo / "verify" / name).glob("*.flac")]
    trials = [Trial(claim, name, name.startswith(f"{claim}/")) for name in names for claim in voices]
    assert calibrate(path, trials, demo / "verify").model.fitted_to == OWN
    model = enroll(path, {name: recordings[name] for name in voices}, anew=True).model
    assert model.fitted_to == RECORDED
    assert model.trials(kind=OWN) is None


def test_nobody_is_lost_and_nobody_changes_roles(path, recordings, voices, tiny):
    before = path.read_bytes()
    three = {name: recordings[name] for name in voices[:3]}
    short = {**three, voices[3]: recordings[voices[3]][:1]}
    everybody = {name: recordings[name] for name in voices}
    for speakers, how, error, words in (
        (three, {}, InputError, f"none of '{voices[3]}'"),
        (short, {}, EnrollmentRefusedError, voices[3]),
        (everybody, {"role": "background"}, InputError, "enrolled as a speaker"),
        (everybody, {"add": True}, InputError, "not both"),
    ):
        with pytest.raises(error, match=words):
            enroll(path, speakers, anew=True, **how)
        assert path.read_bytes() == before
    fresh = enroll(path.with_name("new"), everybody, tiny, anew=True).model
    assert fresh.names == tuple(voices)
