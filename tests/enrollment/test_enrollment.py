"""Enrollment end to end on real recordings: who is enrolled, who is refused and why, and the store's record."""

from __future__ import annotations

import json
import shutil
import time
import unicodedata
from dataclasses import replace
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
import soundfile
from populations import SYSTEMS, assert_same, content

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import (
    ConfigError,
    InputError,
    NotEnoughSpeechError,
    SpeakerExistsError,
    UnknownSpeakerError,
)
from pipeline.features.frontend import read_features
from pipeline.scoring.rules import RULES, systems_of
from pipeline.store.export import export_speaker
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier


def assert_told_apart(model: SpeakerModel, own: str, others: tuple[str, ...], heard) -> None:
    """The verifier of ``own`` accepts that voice and rejects the ``others``."""
    verifier = Verifier(model, own)
    assert verifier.verify_file(heard(own)).decision == "accepted"
    assert {verifier.verify_file(heard(other)).decision for other in others} == {"rejected"}


# Who gets in


def test_bad_files_are_skipped_and_named_and_change_nothing_about_the_machines(corpus_of, tmp_path, tiny, garbage):
    root = corpus_of(anna=4, ivan=4)
    clean = enroll(tmp_path / "clean", read_corpus(root).speakers, tiny).model
    shutil.copy(garbage, root / "anna" / "00 broken.wav")
    shutil.copy(garbage, root / "ivan" / "gone.wav")
    (root / "ivan" / "zz empty.flac").write_bytes(b"")
    speakers = read_corpus(root).speakers
    (root / "ivan" / "gone.wav").unlink()  # after it was listed
    report = enroll(tmp_path / "s", speakers, tiny)
    reasons = dict(report.skipped)
    assert reasons.keys() == {
        root / "anna" / "00 broken.wav",
        root / "ivan" / "gone.wav",
        root / "ivan" / "zz empty.flac",
    }
    assert not any(str(path) in reason for path, reason in reasons.items())  # which is printed beside it
    assert [(s.name, s.utterances) for s in report.enrolled] == [("anna", 4), ("ivan", 4)]
    assert report.refused == ()
    assert_same(report.model, clean)


def test_speakers_with_too_little_speech_are_refused_with_what_was_found_and_needed(corpus_of, tmp_path, tiny, silence):
    root = corpus_of(anna=4, dexter=1)
    (root / "mute").mkdir()
    for n in range(10):
        shutil.copy(silence, root / "mute" / f"{n}.wav")
    report = enroll(tmp_path / "s", read_corpus(root).speakers, tiny)
    reasons = dict(report.refused)
    assert list(reasons) == ["dexter", "mute"]
    seconds = len(read_features(read_corpus(root).speakers["dexter"][0], tiny.features).vectors) * 0.01
    assert 0.5 < seconds < 3.0
    for name, spoken in (("dexter", seconds), ("mute", 0.0)):
        assert f"{name!r}" in reasons[name]
        assert f"{spoken:.2f} s of speech found" in reasons[name]
        assert "3.00 s needed" in reasons[name]
    assert report.model.names == ("anna",)


def test_a_speaker_of_whom_no_file_could_be_read_is_refused_with_the_first_file_and_why(
    corpus_of, tmp_path, tiny, garbage, silence
):
    root = corpus_of(anna=4, dexter=4)
    (root / "cut").mkdir()
    for name, file in (("a.wav", garbage), ("b.wav", silence), ("c.wav", garbage)):
        shutil.copy(file, root / "cut" / name)
    report = enroll(tmp_path / "s", read_corpus(root).speakers, tiny)
    ((name, reason),) = report.refused
    assert name == "cut"
    first = next(why for path, why in report.skipped if path == root / "cut" / "a.wav")
    assert reason == (
        f"speaker 'cut': 3 of the files cannot be used, the first: {root / 'cut' / 'a.wav'}: {first};"
        " 0.00 s of speech found, 3.00 s needed"
    )


def test_files_that_are_missing_are_the_first_that_is_said_of_an_enrollment_without_speech(tmp_path, tiny):
    missing = {name: [f"{name}/{number}.wav" for number in range(30)] for name in ("anna", "ivan")}
    with pytest.raises(NotEnoughSpeechError) as refused:
        enroll(tmp_path / "s", missing, tiny)
    assert str(refused.value) == (
        "speaker 'anna': 60 of the files cannot be used, the first: anna/0.wav: no such file; a mistyped or moved path?"
        " 0.00 s of speech found, 3.00 s needed; the same for 1 more speakers"
    )


def test_with_everybody_refused_nothing_is_made_and_a_store_stays_as_it_was(corpus_of, tmp_path, tiny, copied):
    speakers, before = read_corpus(corpus_of(greta=1, hugo=1)).speakers, content(copied)
    for path, config in ((tmp_path / "s", tiny), (copied, None)):
        with pytest.raises(NotEnoughSpeechError, match="'greta'") as caught:
            enroll(path, speakers, config)
        assert 0 < caught.value.seconds < caught.value.needed == 3.0
    assert content(copied) == before
    assert not (tmp_path / "s").exists()


def test_names_that_are_taken_and_no_names_at_all_are_refused_before_any_work(copied, recordings, tmp_path, tiny):
    before, work = content(copied), []
    speakers = {name: recordings[name] for name in ("hugo", "ivan", "anna")}
    with pytest.raises(SpeakerExistsError, match=r"'anna', 'ivan'"):
        enroll(copied, speakers, progress=lambda *step: work.append(step))
    assert work == []
    assert content(copied) == before
    with pytest.raises(InputError, match="no speakers"):
        enroll(tmp_path / "s", {}, tiny)
    assert not (tmp_path / "s").exists()


def test_names_are_checked_as_the_service_checks_them(copied, recordings, tmp_path, tiny):
    voice = recordings["dexter"]
    before = content(copied)
    for name, error in {"Anna": SpeakerExistsError, "\u0430nna": SpeakerExistsError, "an\u200bna": InputError}.items():
        with pytest.raises(error, match=r"anna|U\+200B"):
            enroll(copied, {name: voice}, tiny)
    with pytest.raises(SpeakerExistsError, match="'Zoe' looks like 'ZOE'"):
        enroll(tmp_path / "s", {"Zoe": voice, "ZOE": voice}, tiny)
    with pytest.raises(SpeakerExistsError, match="looks like 'anna'"):
        Store(copied).rename("ivan", "ANNA")
    assert content(copied) == before


def test_a_name_is_one_however_a_file_system_writes_its_accents(corpus_of, tmp_path, tiny, heard):
    decomposed = unicodedata.normalize("NFD", "Zoë")
    root = corpus_of(anna=4, ivan=4)
    (root / "ivan").rename(root / decomposed)
    model = enroll(tmp_path / "s", root, tiny).model
    assert model.names == ("Zoë", "anna")
    assert Verifier(model, decomposed).verify_file(heard("ivan")).decision == "accepted"
    assert model.speaker(decomposed).name == "Zoë"
    assert model.view_without(decomposed).names == ("anna",)
    assert json.loads(export_speaker(model, decomposed, tmp_path / "e.json").with_suffix(".json").read_text())
    assert Store(tmp_path / "s").rename(decomposed, "Zora").names == ("Zora", "anna")
    Store(tmp_path / "s").rename("Zora", decomposed)
    assert remove_speaker(tmp_path / "s", decomposed).names == ("anna",)
    (root / "Zoë").mkdir()
    shutil.copytree(root / decomposed, root / "Zoë", dirs_exist_ok=True)
    with pytest.raises(InputError, match=r"'Zoë' is there twice, .*; rename one of them"):
        enroll(tmp_path / "t", root, tiny)


def test_a_role_that_there_is_not_is_refused_and_nothing_changes(copied, recordings):
    before = content(copied)
    with pytest.raises(InputError, match="one of speaker, background was expected, got 'Background'"):
        enroll(copied, {"new": recordings["anna"]}, role="Background")
    assert content(copied) == before


def test_what_the_store_says_of_a_speaker_is_what_was_read(store, recordings, tiny):
    model = Store(store).load()
    for speaker in model.speakers:
        vectors = [read_features(utterance, tiny.features).vectors for utterance in recordings[speaker.name]]
        assert speaker.frames == sum(map(len, vectors))
        assert speaker.seconds == pytest.approx(0.01 * speaker.frames)
        assert (speaker.utterances, speaker.centroids) == (12, 40)


def test_fewer_frames_than_centroids_are_reported_and_enrolled(corpus_of, tmp_path, tiny_with):
    root = corpus_of(anna=2, ivan=12)
    report = enroll(tmp_path / "s", read_corpus(root).speakers, tiny_with("codebook.centroids=1000"))
    anna, ivan = report.enrolled
    assert [summary["short_of_centroids"] for summary in report.summaries] == [True, False]
    assert anna.centroids == anna.frames < 1000 == ivan.centroids < ivan.frames


def test_machines_are_counted_once_and_progress_adds_up_to_what_was_announced(corpus_of, tmp_path, tiny):
    done, totals = {}, {}

    def progress(stage: str, steps: int, total: int) -> None:
        done[stage] = done.get(stage, 0) + steps
        assert totals.setdefault(stage, total) == total

    report = enroll(tmp_path / "s", read_corpus(corpus_of(anna=5, ivan=4, lars=3)).speakers, tiny, progress=progress)
    assert done == totals
    assert done["reading"] == 12
    assert report.machines == 3 + 3 + 3  # one-class, pairs, one-vs-rest
    assert report.held_out_trials == len(report.model.trials()) >= 9


def test_one_speaker_on_many_threads_is_that_on_one_and_progress_comes_from_one_at_a_time(
    corpus_of, recordings, tmp_path, tiny
):
    path, added = tmp_path / "one", {"lars": recordings["lars"][:4]}
    enroll(path, read_corpus(corpus_of(anna=4, ivan=4, dexter=4)).speakers, tiny)
    other, busy, stages = Path(shutil.copy(path, tmp_path / "other")), Lock(), set()

    def progress(stage: str, _steps: int, _total: int) -> None:
        assert busy.acquire(blocking=False), stage
        time.sleep(0.01)
        stages.add(stage)
        busy.release()

    assert_same(
        enroll(other, added, jobs=4, progress=progress).model, enroll(path, added, progress=lambda *_: None).model
    )
    assert {"segments", "thresholds: machines", "training: machines"} <= stages


# Settings


def test_other_settings_than_the_stores_are_refused_with_the_section_that_differs(copied, recordings, tiny_with):
    before = content(copied)
    for change, section in (
        ("codebook.centroids=41", "codebook"),
        ("features.rate=6000", "features"),
        ("features.frame_ms=25", "features"),
        ("machines.C=11.0", "machines"),
        ("seed=1", "seed"),
        ("checks.noise=off", "checks"),
    ):
        with pytest.raises(ConfigError, match=rf"differ in {section}\)"):
            enroll(copied, {"hugo": recordings["hugo"]}, tiny_with(change))
    with pytest.raises(ConfigError, match="quality: a ChecksConfig was expected, got str"):
        enroll(copied, {"hugo": recordings["hugo"]}, quality="off")
    assert content(copied) == before


def test_the_memory_limit_is_for_supervector_machines_alone(tmp_path, recordings, tiny_with):
    speakers = {name: recordings[name][:3] for name in ("anna", "ivan")}
    with pytest.raises(ConfigError, match=r"machines\.gram_gib: 1e-09 GiB hold a Gram matrix of 0 segments"):
        enroll(tmp_path / "s", speakers, tiny_with("machines.gram_gib=1e-9"))
    kinds = 'machines.kinds=["one_vs_one", "one_class", "one_vs_rest"]'
    model = enroll(tmp_path / "s", speakers, tiny_with("machines.gram_gib=1e-9", kinds)).model
    assert {"boar", "poar", "refined_worst_rival"} <= set(model.systems)


# Background speakers


def test_background_speakers_count_as_others_do_and_nobody_can_claim_to_be_one(tmp_path, recordings, tiny, heard):
    path, more = tmp_path / "s", {name: recordings[name] for name in ("dexter", "lars")}
    enroll(path, {name: recordings[name] for name in ("anna", "ivan")}, tiny)
    shutil.copy(path, tmp_path / "front")
    alone = Verifier(Store(path).load(), "anna", system="poao").verify_file(heard("anna")).score
    mixed = enroll(path, more, role="background").model
    front = enroll(tmp_path / "front", more).model
    assert mixed.names == ("anna", "ivan")
    assert front.names == tuple(s.name for s in mixed.speakers) == ("anna", "ivan", "dexter", "lars")
    verifier = Verifier(mixed, "anna", system="poao", decide_by=Threshold(0.0))
    assert verifier.competing == 3
    assert verifier.verify_file(heard("anna")).score != alone
    with pytest.raises(UnknownSpeakerError) as caught:
        Verifier(mixed, "dexter")
    assert "dexter" not in caught.value.nearest
    with pytest.raises(SpeakerExistsError, match="dexter"):
        enroll(path, {"dexter": recordings["dexter"]})
    # Ratios of a sum are shifted by how many there are whom claims can name.
    for system in (name for name in SYSTEMS if not RULES[name].parts):
        here, there = (
            Verifier(model, "anna", system=system, decide_by=Threshold(0.0)).verify_file(heard("ivan"))
            for model in (mixed, front)
        )
        assert here.score == pytest.approx(there.score, abs=1e-9)


def test_a_background_may_be_enrolled_before_the_first_speakers(tmp_path, recordings, tiny, heard):
    path = tmp_path / "s"
    first = enroll(path, {name: recordings[name] for name in ("dexter", "lars")}, tiny, role="background")
    assert first.model.names == ()
    with pytest.raises(UnknownSpeakerError):
        Verifier(first.model, "dexter")
    alone = enroll(path, {"anna": recordings["anna"]}).model
    assert alone.names == ("anna",)
    assert_told_apart(alone, "anna", ("ivan", "lars"), heard)
    model = enroll(path, {"ivan": recordings["ivan"]}).model
    assert model.names == ("anna", "ivan")
    assert_told_apart(model, "anna", ("ivan", "lars"), heard)


# Recordings of unusual lengths


@pytest.mark.parametrize("kinds", ["supervector", "one_vs_one", "one_vs_rest", "gmm"])
def test_speakers_are_added_to_a_store_whatever_kinds_of_machines_it_has(tmp_path, recordings, tiny_with, heard, kinds):
    system = f"scoring.system={systems_of([kinds])[0]}"
    settings = tiny_with(f'machines.kinds=["one_class", "{kinds}"]', "machines.cohort=all", system)
    first = {name: recordings[name] for name in ("anna", "ivan")}
    enroll(tmp_path / "s", first, settings)
    model = enroll(tmp_path / "s", {"lars": recordings["lars"]}).model
    assert model.names == ("anna", "ivan", "lars")
    verifiers = [Verifier(model, name, decide_by=Threshold(0.0)) for name in ("lars", "anna")]
    own, other = (verifier.verify_file(heard("lars")).score for verifier in verifiers)
    assert own > other


def test_long_recordings_of_one_speaker_and_of_two_in_turn_are_enough(tmp_path, recordings, tiny, heard):
    parts = [soundfile.read(utterance.path)[0] for utterance in recordings["anna"]]
    soundfile.write(tmp_path / "long.wav", np.concatenate(parts), 8000)
    in_turn, speakers, at = [], {"ivan": [], "lars": []}, 0.0
    for name in ("ivan", "lars") * 4:
        samples = soundfile.read(recordings[name][len(speakers[name])].path)[0]
        end = at + len(samples) / 8000
        speakers[name].append(Utterance(name, tmp_path / "both.wav", at, end))
        in_turn.append(samples)
        at = end
    soundfile.write(tmp_path / "both.wav", np.concatenate(in_turn), 8000)
    speakers["anna"] = [Utterance("anna", tmp_path / "long.wav")]
    model = enroll(tmp_path / "s", speakers, tiny).model
    for name in speakers:
        assert_told_apart(model, name, tuple(speakers.keys() - {name}), heard)


def test_a_single_frame_of_speech_can_be_enrolled_where_the_settings_ask_for_no_more(tmp_path, recordings, tiny_with):
    settings = tiny_with("codebook.min_seconds=0", "scoring.min_seconds=0")
    one = recordings["anna"][0]
    parts = (replace(one, start=at / 100, end=at / 100 + 0.03) for at in range(20, 100))
    single = next(part for part in parts if len(read_features(part, settings.features).vectors) == 1)
    report = enroll(tmp_path / "s", {"anna": [single], "ivan": recordings["ivan"]}, settings)
    assert (report.enrolled[0].frames, report.enrolled[0].centroids) == (1, 1)
    assert Verifier(report.model, "ivan", decide_by=Threshold(0.0)).verify_file(one.path).score is not None
