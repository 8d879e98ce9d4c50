"""More recordings of enrolled speakers: the effect on what the store kept of them, and on everybody else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from populations import SYSTEMS

from pipeline.audio.corpus import Utterance
from pipeline.config import CodebookConfig
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.new_speakers import Earlier, NewSpeaker, Speech
from pipeline.errors import EnrollmentRefusedError, InputError, SpeakerExistsError
from pipeline.evaluation import Trial
from pipeline.evaluation.assess import assess
from pipeline.evaluation.calibrate import calibrate
from pipeline.evaluation.measure import measure
from pipeline.machines.branches import PITCH, SUPERVECTOR
from pipeline.machines.codebook import fit_codebook
from pipeline.scoring.trials import OWN
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Speaker
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier


@pytest.fixture(scope="module")
def few(tmp_path_factory, recordings, voices, tiny) -> SpeakerModel:
    """Four voices by their first four recordings each."""
    path = tmp_path_factory.mktemp("few") / "s"
    return enroll(path, {name: recordings[name][:4] for name in voices}, tiny).model


@pytest.fixture(scope="module")
def more(tmp_path_factory, few, recordings) -> SpeakerModel:
    """The same with the other eight recordings of dexter."""
    path = Path(shutil.copy(few.where, tmp_path_factory.mktemp("more") / "s"))
    return enroll(path, {"dexter": recordings["dexter"][4:]}, add=True).model


@pytest.fixture
def own(few, tmp_path) -> Path:
    """A copy of the store of four recordings each, free to be changed."""
    return Path(shutil.copy(few.where, tmp_path / "few.store"))


def named(model: SpeakerModel, name: str):
    return next((one, arrays) for one, arrays in zip(model.speakers, model.arrays, strict=True) if one.name == name)


def test_a_speaker_has_what_was_kept_and_what_was_added(few, more, recordings, tiny, tmp_path):
    (old, before), (new, after) = named(few, "dexter"), named(more, "dexter")
    # The same recordings under a name of their own, over the same background models.
    path = Path(shutil.copy(few.where, tmp_path / "s"))
    quality = tiny.checks.model_copy(update={"matches": "off"})
    apart = enroll(path, {"also dexter": recordings["dexter"][4:]}, quality=quality).model
    alone, added = named(apart, "also dexter")
    assert more.names == ("anna", "ivan", "lars", "dexter")
    assert (new.frames, new.utterances) == (old.frames + alone.frames, 12)
    assert new.seconds == pytest.approx(old.seconds + alone.seconds)
    assert new.centroids == 40
    assert after.keys() == before.keys()
    assert "condition.recorded" not in after  # without augmented versions there is nothing to tell it from
    for name in ("segments", "normalised.segments", "fingerprints"):
        np.testing.assert_array_equal(after[name], np.concatenate((before[name], added[name])), err_msg=name)
    share = alone.frames / new.frames
    for name in ("gmm", "normalised.gmm", PITCH.array):
        np.testing.assert_allclose(after[name], share * added[name] + (1 - share) * before[name], rtol=0, atol=1e-6)
    Store(more.where).check()


def test_machines_and_trials_of_the_others_stay_and_those_of_the_speaker_are_made_anew(few, more):
    places = {name: number for number, name in enumerate(few.names)}
    for number, name in enumerate(more.names[:3]):
        for array in ("centroids", "one_class"):
            np.testing.assert_array_equal(more.arrays[number][array], few.arrays[places[name]][array])
        for other, rival in enumerate(more.names):
            if rival == name:
                continue
            now, then = more.pairs.against(number)[other], few.pairs.against(places[name])[places[rival]]
            assert (now.bias == then.bias) == (rival != "dexter")
    (old, _), (new, _) = named(few, "dexter"), named(more, "dexter")
    before, after = few.trials(), more.trials()
    assert old.id not in {*after.claims.tolist(), *after.speakers.tolist(), *(one.id for one in more.speakers)}
    for column in ("claims", "speakers"):
        kept = getattr(after, column)[: len(before)]
        np.testing.assert_array_equal(np.where(kept == new.id, old.id, kept), getattr(before, column))
    assert set(after.speakers[len(before) :].tolist()) == {new.id}
    for system, scores in before.scores.items():
        np.testing.assert_array_equal(after.scores[system][: len(before)], scores)


def test_more_speech_of_everybody_costs_fewer_errors(few, own, recordings, voices, heard, demo):
    model = enroll(own, {name: recordings[name][4:] for name in voices}, add=True).model
    files = [
        (name, heard(name, n).relative_to(demo).as_posix()) for name in (*voices, "marta", "clara") for n in range(6)
    ]
    trials = [Trial(claim, path, claim == name) for name, path in files for claim in voices]

    def costs(of: SpeakerModel) -> np.ndarray:
        scored = assess(of, trials, demo).scores.items()
        metrics = [measure(scores, threshold=of.threshold(system), seed=0) for system, scores in scored]
        return np.array([(one.eer.rate, one.cllr) for one in metrics]).mean(axis=0)

    assert (costs(model) < 0.9 * costs(few)).all()


def test_old_centroids_weigh_as_the_frames_that_they_stand_for():
    rng = np.random.default_rng(3)
    old, new = rng.normal(0.0, 1.0, (600, 2)), rng.normal(8.0, 1.0, (200, 2))
    settings, kept = CodebookConfig(centroids=1), CodebookConfig(centroids=30)
    earlier = Earlier(Speaker(7, "ada", "speaker", 6.0, 600, 3, 30), {"centroids": fit_codebook(old, kept, seed=1)})
    vectors, weights = NewSpeaker("ada", Speech([[]], []), earlier=earlier).weighed(new)
    book = fit_codebook(vectors, settings, seed=1, weights=weights)
    everything = fit_codebook(np.concatenate([old, new]), settings, seed=1)
    assert np.abs(book - everything).max() < 0.3
    middle = fit_codebook(np.array([[0.0], [1.0], [4.0]]), settings, seed=1, weights=np.array([3.0, 1.0, 0.0]))
    assert middle == pytest.approx(0.25)


@pytest.mark.parametrize("how", ["add", "new"])
def test_other_names_are_enrolled_as_usual_and_without_add_a_taken_name_is_an_error(own, recordings, how):
    both = {name: recordings[name][4:8] for name in ("lars", "greta")}
    before = own.read_bytes()
    with pytest.raises(SpeakerExistsError, match="'lars'; add to them"):
        enroll(own, both)
    assert own.read_bytes() == before
    report = enroll(own, both | {"zoe": recordings["ivan"][:4]}, **{how: True})
    assert [name for name, _ in report.refused] == ["zoe"]  # nobody enrolled before is lost by that
    assert report.model.names == ("anna", "dexter", "ivan", "lars", "greta")
    assert [(one.name, one.utterances) for one in report.enrolled] == [("lars", 8), ("greta", 4)]


@pytest.mark.parametrize("count", [1, 2])
def test_recordings_are_added_to_the_only_speaker_and_to_each_of_two(tmp_path, recordings, voices, tiny, heard, count):
    names, path = voices[:count], tmp_path / "s"
    enroll(path, {name: recordings[name][:6] for name in names}, tiny)
    model = enroll(path, {name: recordings[name][6:] for name in names}, add=True).model
    assert model.names == names
    assert [one.utterances for one in model.speakers] == [12] * count
    for system in SYSTEMS:
        verifier = Verifier(model, names[0], system=system, decide_by=Threshold(0.0))
        assert np.isfinite(verifier.verify_file(heard(names[0])).score)
    Store(path).check()


def test_cohorts_and_pseudo_speakers_are_made_anew(tmp_path, recordings, tiny_with):
    path, names = tmp_path / "s", ("anna", "dexter", "ivan", "lars", "greta")
    settings = tiny_with("machines.cohort=2", "supervector.speeds_below=10", "supervector.max_segments=12")
    enroll(path, {name: recordings[name][:4] for name in names}, settings)
    model = enroll(path, {name: recordings[name][4:6] for name in ("dexter", "lars")}, add=True).model
    assert model.names == ("anna", "ivan", "greta", "dexter", "lars")
    assert model.cohort_table.nearest.shape == (5, 2)
    assert all(0 < len(part) <= 6 for parts in model.pseudo_segments() for part in parts)
    assert len({len(parts) for parts in model.pseudo_segments()}) == 1
    assert max(map(len, model.segments(SUPERVECTOR))) == 12
    Store(path).check()


def test_own_trials_and_versions_of_another_condition_stay(own, tmp_path, recordings, tiny_with, voices, heard, demo):
    files = [(name, heard(name, n).relative_to(demo).as_posix()) for name in voices for n in range(3)]
    trials = [Trial(claim, path, claim == name) for name, path in files for claim in voices]
    kept = calibrate(own, trials, demo).trials
    model = enroll(own, {"anna": recordings["anna"][4:]}, add=True).model
    own_trials = model.trials(kind=OWN)
    assert (own_trials.claims == named(model, "anna")[0].id).sum() == len(files)
    assert ((own_trials.claims == own_trials.speakers) == (kept.claims == kept.speakers)).all()
    assert model.fitted_to == OWN
    settings = tiny_with('augmentation.kinds=["telephone"]')
    before = enroll(tmp_path / "t", {name: recordings[name][:4] for name in voices[:2]}, settings).model
    after = enroll(tmp_path / "t", {"anna": recordings["anna"][4:6]}, add=True).model
    for name in ("condition.recorded", "condition.changed"):
        rows = len(named(before, "anna")[1][name])
        np.testing.assert_array_equal(named(after, "anna")[1][name][:rows], named(before, "anna")[1][name])


# What is refused


def test_recordings_that_are_refused_leave_everything_as_it_was(own, recordings, silence, few):
    before = own.read_bytes()
    for speakers, words in (
        ({"anna": [Utterance("anna", silence)], "greta": recordings["greta"]}, "'anna'.* speech found"),
        (
            {"anna": recordings["anna"][2:6]},
            r"2 of 4 recordings are duplicates of .* enrolled speaker 'anna'.* Added before. Leave these out",
        ),
        ({"anna": recordings["ivan"][:6], "greta": recordings["greta"]}, "enrolled speaker 'ivan'"),
    ):
        with pytest.raises(EnrollmentRefusedError, match=words):
            enroll(own, speakers, add=True)
        assert own.read_bytes() == before
    with pytest.raises(InputError, match=r"'anna' is enrolled as a speaker, but recordings .* to a background"):
        enroll(own, {"anna": recordings["anna"][4:]}, role="background", add=True)
    assert own.read_bytes() == before


def test_the_command_adds(inside, own, corpus_of, tmp_path):
    (tmp_path / "new" / "anna").mkdir(parents=True)
    for number in range(2):
        samples, rate = soundfile.read(sorted((corpus_of(f"all{number}", anna=12) / "anna").iterdir())[6 + number])
        soundfile.write(tmp_path / "new" / "anna" / f"{number}.wav", samples, rate)
    (table,) = inside("enroll", tmp_path / "new", "--store", own, "--add", "--json", "--jobs", 1).lines
    (enrolled,) = table["enrolled"]
    assert (enrolled["name"], enrolled["utterances"]) == ("anna", 6)
    assert table["refused"] == []


# A folder that has grown


def test_of_a_folder_that_has_grown_only_what_is_new_is_added(few, more, own, recordings, voices):
    """The store is the one that adding the new recordings by themselves gives."""
    folder = {name: recordings[name][: 12 if name == "dexter" else 4] for name in voices}
    report = enroll(own, folder, new=True)
    assert report.left_out == dict.fromkeys(voices, 4)
    assert [(one.name, one.utterances) for one in report.enrolled] == [("dexter", 12)]
    (mine, arrays), (other, expected) = named(report.model, "dexter"), named(more, "dexter")
    assert (mine.frames, report.model.names) == (other.frames, more.names)
    for name in expected:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
    Store(own).check()


def test_a_folder_with_nothing_new_changes_nothing(own, recordings, voices, silence):
    before = own.read_bytes()
    folder = {name: recordings[name][:4] for name in voices}
    report = enroll(own, {**folder, "anna": [*folder["anna"], Utterance("anna", silence)]}, new=True)
    assert report.left_out == {**dict.fromkeys(voices, 4), "anna": 5}
    assert (report.enrolled, report.refused, report.skipped) == ((), (), ())
    assert own.read_bytes() == before


def test_new_recordings_of_another_speaker_are_refused_all_the_same(own, recordings):
    before = own.read_bytes()
    with pytest.raises(EnrollmentRefusedError, match="enrolled speaker 'ivan'"):
        enroll(own, {"anna": [*recordings["anna"][:6], recordings["ivan"][0]]}, new=True)
    assert own.read_bytes() == before


def test_without_fingerprints_nothing_is_told_apart(tmp_path, recordings, tiny_with):
    folder = {name: recordings[name][:4] for name in ("anna", "ivan")}
    enroll(tmp_path / "s", folder, tiny_with("duplicate_audio.keep=false"))
    with pytest.raises(InputError, match=r"the store keeps none of 'anna' \(duplicate_audio.keep = false\)"):
        enroll(tmp_path / "s", folder, new=True)


def test_the_command_adds_what_is_new(inside, own, corpus_of, garbage):
    words = ("enroll", corpus_of(anna=6, ivan=4), "--store", own, "--new", "--jobs", 1)
    first = inside(*words)
    assert first.code == 0, first.err
    assert "left out, as they are enrolled already or have no speech: 4 of 'anna', 4 of 'ivan'\n" in first.err
    assert "1 enrolled, 0 refused" in first.out
    second = inside(*words)
    assert (second.code, second.out) == (0, f"nothing new to enroll -> {own}\n")
    shutil.copy(garbage, corpus_of("corpus") / "anna")
    third = inside(*words, "--json")
    assert (third.code, third.lines[0]["left_out"]) == (4, {"anna": 6, "ivan": 4})
    assert "1 files or folders not read" in third.err
