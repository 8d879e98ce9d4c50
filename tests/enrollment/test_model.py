"""A speaker model in memory: trained, extended, reduced and calibrated, and the same through a store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import SYSTEMS, assert_same, numbers_of
from threadpoolctl import threadpool_limits

from pipeline.config import Config
from pipeline.enrollment.enroll import enroll, train
from pipeline.enrollment.removal import remove_speaker, retrained_without
from pipeline.enrollment.speech import read_speech
from pipeline.enrollment.training import Trainer
from pipeline.errors import UnknownSpeakerError
from pipeline.machines.workers import LocalThreads
from pipeline.scoring.fitting import calibration_of
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier


def trained(config: Config, speakers: dict, known: SpeakerModel | None = None) -> SpeakerModel:
    """Train ``speakers`` in addition to those of ``known``, with no store anywhere."""
    known, workers = known or SpeakerModel(config), LocalThreads(1)
    trainer = Trainer(config, known, "speaker", workers, lambda *_: None)
    with threadpool_limits(1):
        voices, _ = read_speech(
            speakers,
            config,
            enrolled=len(known),
            workers=workers,
            progress=trainer.progress,
            measured=True,
        )
        return train(trainer, voices, config.checks)[0].calibrated()


def without(model: SpeakerModel, name: str) -> SpeakerModel:
    with threadpool_limits(1):
        return retrained_without(model, name)


@pytest.mark.parametrize(
    "overrides",
    [
        ["scoring.system=fused", "supervector.speeds_below=5"],
        ["machines.cohort=1", "scoring.system=refined_worst_rival"],
    ],
    ids=["pseudo-speakers", "cohorts"],
)
def test_a_model_extended_and_reduced_in_memory_is_the_one_of_a_store(
    tmp_path, recordings, voices, tiny_with, overrides
):
    config, path = tiny_with(*overrides), tmp_path / "s"
    first, more = ({name: recordings[name][:6] for name in names} for names in (voices[:2], voices[2:]))
    model = trained(config, first)
    assert_same(enroll(path, first, config).model, model)
    model = trained(config, more, model)
    assert_same(enroll(path, more).model, model)
    for gone in (voices[1], voices[3], voices[0]):
        model = without(model, gone)
        assert_same(remove_speaker(path, gone), model)


def test_a_model_survives_save_and_load_unchanged(tmp_path, recordings, voices, tiny_with, heard):
    model = trained(tiny_with("scoring.system=fused"), {name: recordings[name][:6] for name in voices[:3]})
    with Store(tmp_path / "s").writing() as transaction:
        saved = transaction.save(model)
    for stored in (saved, Store(tmp_path / "s").load()):
        assert_same(stored, model)
        assert [one.id for one in stored.speakers] == [one.id for one in model.speakers]
        for system in model.systems:
            assert stored.threshold(system) == model.threshold(system)
        ours, theirs = (Verifier(one, voices[0]).verify_file(heard(voices[1])) for one in (stored, model))
        assert ours == theirs


def test_a_view_without_a_speaker_is_not_trained_again_and_a_model_without_is(store, voices, heard):
    model = Store(store).load()
    view, again = model.view_without(voices[1]), without(model, voices[1])
    assert view.names == again.names == (voices[0], *voices[2:])
    for kept, number in enumerate((0, 2, 3)):
        for name in ("supervector", "one_vs_rest"):
            np.testing.assert_array_equal(view.arrays[kept][name], model.arrays[number][name])
            assert again.arrays[kept][name].tobytes() != model.arrays[number][name].tobytes()
        np.testing.assert_array_equal(again.arrays[kept]["centroids"], model.arrays[number]["centroids"])
    assert view.calibrations == model.calibrations != again.calibrations
    assert len(view.pairs.against(1)) == 2
    alone = Verifier(model.view_without(*voices[1:]), voices[0], decide_by=Threshold(0.1)).verify_file(heard(voices[0]))
    assert (alone.decision, alone.llr) == ("accepted", None)
    for remove in (model.view_without, lambda name: without(model, name)):
        with pytest.raises(UnknownSpeakerError, match="nobody at all"):
            remove("nobody at all")


def test_an_emptied_store_has_nothing_of_anybody_and_enrolls_anew(tmp_path, recordings, voices, tiny):
    path, later = tmp_path / "s", {name: recordings[name][:6] for name in voices[2:]}
    enroll(path, {name: recordings[name][:6] for name in voices[:2]}, tiny)
    remove_speaker(path, voices[0])
    empty = remove_speaker(path, voices[1])
    assert (empty.names, len(empty), len(empty.trials())) == ((), 0, 0)
    assert all(array.size == 0 for array in numbers_of(empty).values())
    assert empty.calibrations.whole == empty.calibrations.sequential == {}
    with pytest.raises(UnknownSpeakerError, match="nobody is enrolled"):
        Verifier(empty, voices[0])
    assert_same(enroll(path, later).model, enroll(tmp_path / "new", later, tiny).model)


@pytest.fixture(scope="module")
def fused(tmp_path_factory, recordings, voices, tiny_with) -> SpeakerModel:
    speakers = {name: recordings[name] for name in voices}
    return enroll(tmp_path_factory.mktemp("fused") / "s", speakers, tiny_with("scoring.system=fused")).model


@settings(deadline=None, max_examples=25)
@given(share=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0)), system=st.sampled_from(SYSTEMS))
def test_calibrations_at_any_share_mix_the_fits_against_each_origin(fused, share, system):
    """With r and u the likelihood ratios against enrolled and unknown impostors: 1 / ((1 - share) / r + share / u)."""
    trials, at = fused.trials(), replace(fused, unknown_share=share)
    frames, rows = trials.frames.astype(float), slice(None, None, 7)
    direct = calibration_of(trials, system)
    enrolled, unknown = (direct.at(one).llr(trials.scores, frames)[rows] for one in (0.0, 1.0))
    expected = -np.log((1 - share) * np.exp(-enrolled) + share * np.exp(-unknown))
    stored = at.calibration(system).llr(trials.scores, frames)[rows]
    np.testing.assert_allclose(stored, expected, rtol=1e-9, atol=1e-9)
