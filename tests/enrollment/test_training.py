"""Training on real recordings: in steps or at once, supervector machines, pseudo-speakers and augmented versions."""

from __future__ import annotations

import math
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import SMALL, assert_same, numbers_of
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from pipeline.audio.augmentation import has_version
from pipeline.audio.channels import telephone
from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.audio.files import read_samples
from pipeline.config import load_config
from pipeline.enrollment import heldout_scoring, holdout, speech
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.holdout import cut_of
from pipeline.enrollment.new_speakers import Speech
from pipeline.enrollment.removal import remove_speaker
from pipeline.enrollment.solving import SpeakerSegments, _known, evenly, solve, stored_segments
from pipeline.enrollment.speech import by_turns, read_speech
from pipeline.enrollment.training import Trainer
from pipeline.errors import ConfigError, InputError
from pipeline.features.frontend import read_features
from pipeline.features.stream import joined, joined_to
from pipeline.machines.branches import (
    GMM,
    NORMALISED_GMM,
    NORMALISED_SUPERVECTOR,
    PITCH,
    RAW,
    SUPERVECTOR,
    utterance_kinds_of,
)
from pipeline.machines.gmm import component_groups, map_mean_offsets
from pipeline.machines.gram import packed, unpacked
from pipeline.machines.margins import MarginScorer
from pipeline.machines.pitch import PitchCounts
from pipeline.machines.smo import TOLERANCE
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.supervectors import segments_of, unit
from pipeline.machines.ubm import loudness, running_mean, train_ubm
from pipeline.machines.workers import LocalThreads
from pipeline.scoring.trials import HELD_OUT, RECORDED
from pipeline.store.layout import CONDITIONS
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier

KEPT_AND_HELD = slice(0, 3), slice(3, 5)
OF_FRAMES = ("centroids", "one_class", "one_class_bias", "one_vs_rest", "one_vs_rest_bias", "own", "rival", "bias")


def assert_same_frame_machines(model: SpeakerModel, expected: SpeakerModel) -> None:
    """Machines over frames are the same bit for bit, but those against the rest: they go on from where they were."""
    ours, theirs = (
        {name: array for name, array in numbers_of(model).items() if name.rpartition(": ")[2] in OF_FRAMES}
        for model in (model, expected)
    )
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        tolerance = 5 * TOLERANCE if "one_vs_rest" in name else 0.0
        np.testing.assert_allclose(ours[name], array, rtol=0.0, atol=tolerance, err_msg=name)


def assert_near(model: SpeakerModel, expected: SpeakerModel) -> None:
    """Everything is the same but for the rounding of supervector machines solved on another number of threads."""
    ours, theirs = numbers_of(model), numbers_of(expected)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        solved = name.endswith("supervector") or "supervector" in name.rpartition(".")[-1]
        assert ours[name].dtype == array.dtype, name
        if solved:
            np.testing.assert_allclose(ours[name], array, atol=1e-4, err_msg=name)
        elif name.endswith(".inner"):
            np.testing.assert_allclose(ours[name], array, rtol=0.0, atol=rounding_of(array), err_msg=name)
        else:
            np.testing.assert_array_equal(ours[name], array, err_msg=name)


def rounding_of(inner: np.ndarray) -> float:
    """The spacing of single precision at the largest inner product: BLAS kernels sum in orders of their own."""
    return float(np.spacing(np.abs(inner).max()))


def assert_solved_from_what_is_stored(model: SpeakerModel) -> None:
    """Supervector machines are those of all segments in the store, whose inner products are kept."""
    for kind in utterance_kinds_of(model.config.machines.kinds):
        if kind.machine != "supervector":
            continue
        machines, ridge = model.utterance_machines(kind), kind.branch.settings(model.config).ridge
        has_pseudo = kind.branch is RAW and model.config.supervector.has_pseudo_speakers(len(model))
        voices = stored_segments(model, kind, has_pseudo=has_pseudo)
        with threadpool_limits(1):
            solver = SupervectorTraining(
                [voice.segments for voice in voices], ridge=ridge, pseudo_speakers=[voice.pseudo for voice in voices]
            )
        assert machines.coef.shape == (len(model), sum(ubm.dimension for ubm in machines.ubms))
        np.testing.assert_array_equal(machines.mean, solver.solution.mean)
        np.testing.assert_allclose(machines.coef, solver.solution.coef, atol=1e-6)
        inner = unpacked(model.shared[f"{kind.array}.inner"])
        np.testing.assert_allclose(inner, unpacked(solver.triangle), rtol=1e-5, atol=rounding_of(inner))
    assert np.abs(machines.coef).max() > 0


def test_the_same_seed_gives_the_same_bits_on_the_same_number_of_threads(store, tmp_path, recordings, voices, tiny):
    speakers = {name: recordings[name] for name in voices}
    two, again = (enroll(tmp_path / name, speakers, tiny, jobs=2).model for name in ("two", "again"))
    assert_same(again, two)
    assert_near(two, Store(store).load())


def test_steps_give_the_frame_machines_of_one_step_and_supervector_machines_in_the_first_space(
    store, tmp_path, recordings, voices, tiny
):
    first = enroll(tmp_path / "one by one", {name: recordings[name] for name in voices[:2]}, tiny).model
    shutil.copy(tmp_path / "one by one", tmp_path / "together")
    together = enroll(tmp_path / "together", {name: recordings[name] for name in voices[2:]}).model
    for name in voices[2:]:
        one_by_one = enroll(tmp_path / "one by one", {name: recordings[name]}).model
    for model in (first, together, one_by_one):
        assert_solved_from_what_is_stored(model)
        for name in ("centre", "scale", "means", "variances", "weights"):
            np.testing.assert_array_equal(
                getattr(model.ubm(SUPERVECTOR.backgrounds[0]), name),
                getattr(first.ubm(SUPERVECTOR.backgrounds[0]), name),
                err_msg=name,
            )
        for old, new in zip(first.segments(SUPERVECTOR), model.segments(SUPERVECTOR)[:2], strict=True):
            np.testing.assert_array_equal(new, old)
    for model in (together, one_by_one):
        assert_same_frame_machines(model, Store(store).load())
    ours, theirs = (model.utterance_machines(SUPERVECTOR) for model in (one_by_one, together))
    np.testing.assert_allclose(ours.coef, theirs.coef, atol=1e-6)
    np.testing.assert_array_equal(ours.mean, theirs.mean)


def test_the_stored_segments_are_those_of_the_recordings(store, recordings, voices, tiny):
    model, settings = Store(store).load(), tiny.supervector
    ubm = model.ubm(SUPERVECTOR.backgrounds[0])
    for name, segments in zip(voices, model.segments(SUPERVECTOR), strict=True):
        read = [read_features(utterance, tiny.features) for utterance in recordings[name]]
        cut, expected = cut_of(read, tiny), []
        # What was held out makes segments of its own, after those of the rest.
        for part, share in ((cut.kept(read), 0.8), (cut.held(read), 0.2)):
            weighed = [(one.of("supervector"), loudness(one.below_peak, settings.half_db)) for one in part]
            most = round(share * settings.max_segments)
            parts = segments_of(weighed, round(settings.segment_seconds / 0.01), most)
            expected += [ubm.vector(ubm.statistics(*ubm.weighed(*part))) for part in parts]
        # Half precision: 11 bits, of roots of sums in single precision, which versions of numpy round differently.
        offsets, theirs = (np.copysign(rows * rows, rows) for rows in (segments.astype(float), np.stack(expected)))
        np.testing.assert_allclose(offsets, theirs, rtol=2**-10, atol=1e-5)


def test_normalised_machines_and_gmms_are_made_of_joined_utterances_less_their_mean(store, recordings, voices, tiny):
    model, frames = Store(store).load(), tiny.threshold.trial_seconds / tiny.features.step_seconds
    read = [[read_features(one, tiny.features) for one in recordings[name]] for name in voices]
    cuts = [cut_of(its, tiny) for its in read]
    parts = [
        [joined_to(part, frames) for part in (cut.kept(its), cut.held(its))]
        for cut, its in zip(cuts, read, strict=True)
    ]
    size, most = round(tiny.normalised.segment_seconds / tiny.features.step_seconds), tiny.normalised.max_segments
    segments, statistics = [[] for _ in voices], {}
    for background in {**dict.fromkeys(NORMALISED_SUPERVECTOR.backgrounds), **dict.fromkeys(GMM.backgrounds)}:
        ubm, prior = model.ubm(background), background.branch.mean_prior(tiny)
        learnt = [block.of(background.analysis) for kept, _ in parts for block in kept]
        by_hand = train_ubm(
            np.concatenate([rows - running_mean(rows, prior) for rows in learnt]),
            components=32,
            relevance=background.settings(tiny).relevance,
            seed=tiny.seed,
        )
        np.testing.assert_allclose(ubm.means, by_hand.means, rtol=0, atol=1e-9)
        for number, its in enumerate(parts):
            vectors = []
            for blocks, share in zip(its, (0.8, 0.2), strict=True):
                weighed = []
                for block in blocks:
                    rows, weights = block.of(background.analysis), loudness(block.below_peak, ubm.half_db)
                    mean = running_mean(rows, prior)
                    weighed.append(ubm.weighed(rows - mean[-1], weights, like=rows - mean))
                    statistics[background, number] = statistics.get((background, number), 0.0) + ubm.statistics(
                        *weighed[-1]
                    )
                vectors += [ubm.vector(ubm.statistics(*one)) for one in segments_of(weighed, size, round(share * most))]
            if background in NORMALISED_SUPERVECTOR.backgrounds:
                segments[number].append(np.stack(vectors))
    for number, own in enumerate(model.arrays):
        ours, theirs = own["normalised.segments"].astype(float), np.concatenate(segments[number], axis=1)
        np.testing.assert_allclose(np.copysign(ours**2, ours), np.copysign(theirs**2, theirs), rtol=2**-9, atol=1e-5)
        for kind in (GMM, NORMALISED_GMM):
            groups = component_groups(model.ubm(kind.backgrounds[0]).means, tiny.gmm.groups)
            how = {"relevance": tiny.gmm.relevance, "group_relevance": tiny.gmm.group_relevance}
            expected = map_mean_offsets(statistics[kind.backgrounds[0], number], groups, **how)
            np.testing.assert_allclose(own[kind.array], expected, rtol=0, atol=1e-4)
        whole, pitches = joined(read[number]), PitchCounts(tiny.pitch)
        shares = pitches.shares(pitches.running_sums(whole.of("pitch"), whole.below_peak))
        np.testing.assert_allclose(own[PITCH.array], shares, rtol=1e-6)


def test_machines_that_score_held_out_utterances_were_not_trained_on_them(recordings, tiny_with):
    """They are the same arrays whatever was held out: each speaker's own last utterances, or another's."""
    config, workers = tiny_with('augmentation.kinds=["telephone"]'), LocalThreads(1)
    some = {name: recordings[name][:5] for name in ("anna", "ivan", "lars")}
    trainer = Trainer(config, SpeakerModel(config), "speaker", workers, lambda *_: None)
    voices, _ = read_speech(some, config, enrolled=0, workers=workers, progress=trainer.progress)
    kept, held = ([voice.speech.mapped(lambda its, part=part: its[part]) for voice in voices] for part in KEPT_AND_HELD)
    models = []
    for held_out in (held, held[::-1]):
        everything = [
            Speech([a + b for a, b in zip(first.versions, then.versions, strict=True)], [])
            for first, then in zip(kept, held_out, strict=True)
        ]
        spoken = [replace(voice, speech=speech) for voice, speech in zip(voices, everything, strict=True)]
        models.append(trainer.provisional(trainer.prepared(spoken, kept, held_out)).model)
    for its, ours, theirs in zip(kept, *(model.arrays for model in models), strict=True):
        windows = [len(block.vectors) // 200 for block in joined_to(its.versions[0], 200)]
        assert len(ours["condition.recorded"]) == sum(windows)
        assert {GMM.array, NORMALISED_GMM.array, PITCH.array, *CONDITIONS, "centroids", "one_vs_rest"} <= set(ours)
        assert ours.keys() == theirs.keys()
        for name, array in theirs.items():
            np.testing.assert_array_equal(ours[name], array, err_msg=name)


# Pseudo-speakers and augmented versions


@pytest.fixture(scope="module")
def enrolled_with(tmp_path_factory, recordings, voices, tiny_with):
    """enrolled_with(setting, ...): the session's four voices, enrolled once with some settings changed."""
    models: dict[tuple[str, ...], SpeakerModel] = {}

    def made(*overrides: str) -> SpeakerModel:
        if overrides not in models:
            path = tmp_path_factory.mktemp("with") / "s"
            models[overrides] = enroll(path, {n: recordings[n] for n in voices}, tiny_with(*overrides)).model
        return models[overrides]

    return made


PSEUDO = ("supervector.speeds_below=5", "supervector.max_segments=40")
AUGMENTED = ('augmentation.kinds=["telephone", "babble"]',)


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [(PSEUDO, SUPERVECTOR), (AUGMENTED, NORMALISED_SUPERVECTOR)],
    ids=["pseudo-speakers", "augmented"],
)
def test_pseudo_speakers_and_versions_change_one_kind_of_machine(store, enrolled_with, overrides, kind, voices, heard):
    model, plain = enrolled_with(*overrides), Store(store).load()
    assert_same_frame_machines(model, plain)
    for name in ("trials.score.rpoao", "trials.frames"):
        np.testing.assert_array_equal(model.shared[name], plain.shared[name], err_msg=name)
    for one in (SUPERVECTOR, NORMALISED_SUPERVECTOR):
        ours, theirs = (of.utterance_machines(one).coef for of in (model, plain))
        assert np.array_equal(ours, theirs) == (one is not kind)
    assert_solved_from_what_is_stored(model)
    for claim in voices:
        verifier = Verifier(model, claim, system=f"{kind.name}_rival")
        accepted = [name for name in voices if verifier.verify_file(heard(name)).decision == "accepted"]
        assert accepted == [claim]


def test_pseudo_speakers_of_a_voice_are_not_taken_for_it(enrolled_with):
    model = enrolled_with(*PSEUDO)
    machines = model.utterance_machines(SUPERVECTOR)
    for number, (own, pseudo) in enumerate(zip(model.segments(SUPERVECTOR), model.pseudo_segments(), strict=True)):
        assert len(own) <= 40
        assert [0 < len(voice) <= 20 for voice in pseudo] == [True, True]
        scores = [(unit(part - machines.mean) @ machines.coef.T)[:, number].mean() for part in (own, *pseudo)]
        assert scores[0] > 0.2
        assert max(scores[1:]) < 0


def test_many_speakers_need_no_pseudo_speakers_and_few_have_them_again(enrolled_with, recordings, tmp_path):
    few = enrolled_with(*PSEUDO)
    shutil.copy(few.where, tmp_path / "s")
    many = enroll(tmp_path / "s", {"greta": recordings["greta"]}).model
    assert [len(pseudo) for pseudo in many.pseudo_segments()] == [2, 2, 2, 2, 0]
    assert_solved_from_what_is_stored(many)
    again = remove_speaker(tmp_path / "s", "greta")
    assert_solved_from_what_is_stored(again)
    theirs = few.utterance_machines(SUPERVECTOR).coef
    np.testing.assert_allclose(again.utterance_machines(SUPERVECTOR).coef, theirs, rtol=0.0, atol=1e-7)


def test_voices_on_the_telephone_score_higher_after_an_enrollment_with_it(
    store, enrolled_with, voices, heard, tmp_path
):
    models, gains = (Store(store).load(), enrolled_with(*AUGMENTED)), []
    for name in voices:
        before, after = (Verifier(model, name, system="normalised_supervector_rival") for model in models)
        for n in range(3):
            samples, rate = read_samples(Utterance(name, heard(name, n)))
            soundfile.write(tmp_path / "call.wav", telephone(samples, rate), rate, subtype="FLOAT")
            gains.append(
                after.verify_file(tmp_path / "call.wav").score - before.verify_file(tmp_path / "call.wav").score
            )
    assert np.mean(gains) > 0.0
    assert np.median(gains) > 0.0


def test_augmentation_depends_on_neither_threads_nor_bad_files(corpus_of, tmp_path, tiny_with, garbage):
    root, settings = corpus_of(anna=4, ivan=4, lars=4), tiny_with('augmentation.kinds=["babble", "noise"]')
    clean = enroll(tmp_path / "clean", read_corpus(root).speakers, settings).model
    assert_near(enroll(tmp_path / "two", read_corpus(root).speakers, settings, jobs=2).model, clean)
    shutil.copy(garbage, root / "anna" / "zz broken.wav")
    report = enroll(tmp_path / "s", read_corpus(root).speakers, settings)
    assert [path for path, _ in report.skipped] == [root / "anna" / "zz broken.wav"]
    assert_same(report.model, clean)


def test_a_share_of_the_utterances_has_versions_and_the_others_keep_their_places(recordings, tiny_with):
    """In place of a version that was left out is an utterance without speech: a cut holds out the same of each kind."""
    settings = tiny_with('augmentation.kinds=["codec", "band", "coloured"]', "augmentation.share=0.25")
    speakers = {name: recordings[name] for name in ("anna", "ivan")}
    voices, _ = read_speech(speakers, settings, enrolled=0, workers=LocalThreads(1), progress=lambda *_: None)
    for voice in voices:
        recorded, *versions = voice.speech.versions
        count = len(speakers[voice.name])
        assert len(recorded) == count
        assert {block.vectors.shape[1] for block in recorded} == {settings.features.dimensions["frames"]}
        for which, version in enumerate(versions):
            speech = [len(block.vectors) > 0 for block in version]
            assert speech == [has_version(n, count, which=which, kinds=3, share=0.25) for n in range(count)]
            # No machine over frames reads a version.
            assert {block.vectors.shape[1] for block in version} == {settings.features.dimensions["supervector"]}
            for analysis in ("gmm", "normalised"):
                dimension = settings.features.dimensions[analysis]
                assert {block.of(analysis).shape[1] for block in version} == {dimension}


def test_of_many_speakers_some_versions_are_scored_by_turns_and_silence_is_no_utterance(recordings, silence, tiny_with):
    settings = tiny_with('augmentation.kinds=["codec", "band", "coloured"]')
    speakers = {name: [recordings[name][0], Utterance(name, silence)] for name in ("anna", "ivan")}
    voices, skipped = read_speech(speakers, settings, enrolled=200, workers=LocalThreads(1), progress=lambda *_: None)
    assert skipped == [(silence, "no speech was found in it")] * 2
    for number, voice in enumerate(voices, start=200):
        assert voice.counts[1] == 1
        assert voice.scored == by_turns(range(1, 4), 1, number)
        for which, (block,) in enumerate(voice.speech.versions[1:], start=1):
            assert len(block.vectors) > 0
            assert (len(block.of("pitch")) > 0) == (which in voice.scored)


def test_with_fewer_segments_than_versions_they_are_of_some_versions(enrolled_with):
    model = enrolled_with('augmentation.kinds=["codec", "coloured"]', "normalised.max_segments=2")
    # Two of what is kept, and one of what is held out.
    assert [len(rows) for rows in model.segments(NORMALISED_SUPERVECTOR)] == [3] * len(model)


def test_a_long_recording_takes_little_more_memory_than_a_minute_and_loses_no_speech(tmp_path, said, tiny_with):
    samples, rate = said
    config = tiny_with('augmentation.kinds=["room", "noise"]', "augmentation.share=1")
    made, peaks = [], []
    for minutes in (1, 5):
        long = np.random.default_rng(0).normal(0.0, 1e-5, 60 * minutes * rate)
        for minute in range(minutes):  # and in the middle of each a phrase
            long[(60 * minute + 30) * rate :][: len(samples)] += samples
        path = tmp_path / f"{minutes}.wav"
        soundfile.write(path, long, rate)
        tracemalloc.start()
        [voice], skipped = read_speech(
            {"anna": [Utterance("anna", path)]},
            config,
            enrolled=0,
            workers=LocalThreads(1),
            progress=lambda *_: None,
            measured=True,
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        made.append(voice)
        assert (skipped, len(voice.recordings), voice.counts[1]) == ([], 1, 1)
    assert peaks[1] < 2 * peaks[0]
    for minute, five in zip(made[0].speech.versions, made[1].speech.versions, strict=True):
        assert len(five[0].vectors) == pytest.approx(5 * len(minute[0].vectors), rel=0.05)


def test_a_share_costs_segments_of_its_kinds_and_nothing_else(store, enrolled_with, voices, heard):
    share = enrolled_with('augmentation.kinds=["codec", "coloured"]', "augmentation.share=0.3")
    whole = enrolled_with('augmentation.kinds=["codec", "coloured"]')
    plain = Store(store).load()
    assert_same_frame_machines(share, plain)
    assert_solved_from_what_is_stored(share)
    np.testing.assert_array_equal(share.shared["trials.frames"], plain.shared["trials.frames"])
    for some, most in zip(share.segments(NORMALISED_SUPERVECTOR), whole.segments(NORMALISED_SUPERVECTOR), strict=True):
        assert 0 < len(some) < len(most)
    accepted = [Verifier(share, name, system="supervector_rival").verify_file(heard(name)).decision for name in voices]
    assert accepted == ["accepted"] * len(voices)


def test_augmented_versions_are_made_without_pair_machines_too(tmp_path, recordings, tiny_with, heard):
    kinds = 'machines.kinds=["one_class", "supervector", "normalised_supervector"]'
    settings = tiny_with(kinds, *AUGMENTED, "scoring.system=fused")
    speakers = {name: recordings[name] for name in ("anna", "ivan", "lars")}
    model = enroll(tmp_path / "s", speakers, settings).model
    utterance = {"supervector", "supervector_rival", "normalised_supervector", "normalised_supervector_rival"}
    assert set(model.systems) == {*utterance, "fused"}
    assert model.calibrations.whole["fused"].changed.systems == model.calibrations.whole["fused"].systems
    assert "one_vs_rest" not in model.arrays[0]
    decisions = [Verifier(model, "anna").verify_file(heard(name)).decision for name in ("anna", "ivan")]
    assert decisions == ["accepted", "rejected"]


def test_one_vs_rest_machines_are_trained_when_a_system_reads_them_and_nobody_enrolled_them(
    tmp_path, recordings, tiny_with
):
    speakers = {name: recordings[name] for name in ("anna", "ivan", "lars")}
    kinds = 'machines.kinds=["one_vs_one", "one_class"]'
    model = enroll(tmp_path / "s", speakers, tiny_with(kinds, "scoring.system=rpoao")).model
    assert set(model.evaluated_systems) - set(model.systems) == {"boar", "poar"}
    with pytest.raises(InputError, match=r"'poar' needs machines that are not there"):
        Verifier(model, "anna", system="poar", decide_by=Threshold(0.0))
    assert "one_vs_rest" not in model.arrays[0]
    people, machines = model.population(["poar"]), model.config.machines
    frames = np.concatenate([people.pool.codebook(number)[:5] + 0.1 for number in range(3)])
    margins = MarginScorer(people, np.array([1]), frozenset({"one_vs_rest"}))(frames).one_vs_rest
    svm = SVC(C=machines.C, gamma=0.5 / machines.sigma**2, tol=1e-5).fit(people.pool.centroids, people.pool.owner == 1)
    np.testing.assert_allclose(margins[:, 1], svm.decision_function(frames), atol=5 * TOLERANCE)
    with pytest.raises(InputError, match="poar"):
        enroll(tmp_path / "t", speakers, tiny_with(kinds, "scoring.system=poar"))
    few = enroll(tmp_path / "u", speakers, tiny_with(kinds, "scoring.system=rpoao", "machines.cohort=1")).model
    assert not {"boao", "boar", "poar"} & set(few.evaluated_systems)


def test_with_many_speakers_segments_are_longer_and_held_out_trials_are_drawn(
    tmp_path, recordings, tiny_with, monkeypatch
):
    speakers = {name: recordings[name] for name in ("anna", "dexter", "ivan", "lars")}
    kinds = 'machines.kinds=["one_class", "supervector", "normalised_supervector"]'
    config = tiny_with(kinds, *AUGMENTED, "scoring.system=fused")
    whole = enroll(tmp_path / "whole", speakers, config).model
    monkeypatch.setattr(holdout, "MOST_OTHERS", 2)
    monkeypatch.setattr(heldout_scoring, "SPEAKERS_A_DRAW", 1)
    monkeypatch.setattr(speech, "ENOUGH_CHANGED", 4)
    some = enroll(tmp_path / "some", speakers, config).model
    for kind in HELD_OUT:
        ours, theirs = some.trials(kind=kind), whole.trials(kind=kind)
        assert set(ours.speakers.tolist()) == {one.id for one in some.speakers}
        own, others = (
            [
                np.count_nonzero(~trials.unknown & ((trials.claims == trials.speakers) == is_own))
                for trials in (ours, theirs)
            ]
            for is_own in (True, False)
        )
        assert own[0] == own[1] if kind == RECORDED else 0 < own[0] < own[1]
        assert others[1] == 3 * own[1]
        assert own[0] <= others[0] <= 2 * own[0]


@given(versions=st.integers(1, 9), most=st.integers(1, 9))
def test_by_turns_every_version_is_drawn_by_some_and_none_twice_by_one(versions, most):
    drawn = [by_turns(range(versions), most, number) for number in range(versions)]
    assert {len(set(some)) for some in drawn} == {len(some) for some in drawn} == {min(most, versions)}
    assert set().union(*drawn) == set(range(versions))


def test_where_room_is_short_segments_are_fewer_and_longer(tmp_path, recordings, tiny_with):
    speakers = {name: recordings[name] for name in ("anna", "dexter", "ivan", "lars")}
    settings = (
        'machines.kinds=["one_class", "supervector"]',
        "scoring.system=supervector",
        "supervector.speeds_below=0",
    )
    model = enroll(tmp_path / "s", speakers, tiny_with(*settings)).model
    most = min(map(len, model.segments(SUPERVECTOR))) // 2
    room = f"machines.gram_gib={4 * (4 * most + 0.5) ** 2 / 2**30!r}"
    some = enroll(tmp_path / "t", speakers, tiny_with(*settings, room)).model
    assert [len(rows) for rows in some.segments(SUPERVECTOR)] == [most] * 4
    pseudo = enroll(tmp_path / "u", speakers, tiny_with(*settings[:2], "supervector.speeds_below=5", room)).model
    rows = [len(part) for parts in pseudo.pseudo_segments() for part in parts]
    assert 3 * most < sum(map(len, pseudo.segments(SUPERVECTOR))) + sum(rows) <= 4 * most
    solver, _ = solve(stored_segments(some, SUPERVECTOR, has_pseudo=False), some.config, SUPERVECTOR)
    np.testing.assert_allclose(solver.solution.coef, [own["supervector"] for own in some.arrays], atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=2, max_size=6), room=st.integers(1, 120))
def test_a_gram_matrix_that_is_too_small_for_all_segments_thins_out_those_with_most(sizes, room):
    config = load_config(None, [f"machines.gram_gib={4 * (room + 0.5) ** 2 / 2**30!r}"])
    random = np.random.default_rng(0)
    segments = [random.normal(n, 0.5, (size, 8)).astype(np.float32) for n, size in enumerate(sizes)]
    voices = [SpeakerSegments(n, rows) for n, rows in enumerate(segments)]
    if room < len(sizes):
        with pytest.raises(ConfigError, match="gram_gib"):
            solve(voices, config, SUPERVECTOR)
        return
    cap = max(c for c in range(1, 31) if sum(min(c, size) for size in sizes) <= room)
    kept = [rows[evenly(len(rows), cap)] for rows in segments]
    expected = SupervectorTraining(kept, ridge=config.supervector.ridge)
    made, _ = solve(voices, config, SUPERVECTOR)
    np.testing.assert_array_equal(made.solution.mean, expected.solution.mean)
    assert [len(rows) for rows in kept] == [min(size, cap) for size in sizes]


@given(size=st.integers(1, 300), most=st.integers(1, 300))
def test_thinned_out_segments_are_spread_evenly_and_fewer_are_among_more(size, most):
    picked = evenly(size, most)
    assert len(picked) == min(size, most)
    assert set(picked) <= set(evenly(size, most + 1)) <= set(range(size))
    gaps = np.diff(np.concatenate([[-1], picked, [size]]))
    assert gaps.max() <= 4 * math.ceil(size / most)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 1, 2, 3, 9], [3, 1, 0, 2], [9, 0, 1, 2, 3], [2, 3], [0, 1], [9]])
def test_inner_products_that_are_kept_are_found_by_name_wherever_they_are(order):
    inner = np.arange(16, dtype=np.float32).reshape(4, 4)
    inner += inner.T
    of = np.array([7, 7, 8, 8, *[9] * 6], dtype=np.uint64)
    of_segments = np.arange(10, dtype=np.uint32) % 2
    of_segments[9] = 5
    begin = f"{SUPERVECTOR.array}.inner"
    kept = {begin: packed(inner), f"{begin}.speakers": of[:4], f"{begin}.segments": of_segments[:4]}
    known = _known(SpeakerModel(SMALL, shared=kept), SUPERVECTOR, of[order], of_segments[order])
    there = [place for place, number in enumerate(order) if number < 4]
    assert known.rows.tolist() == there
    assert known.inner.shape == (len(order), len(order))
    before = [order[place] for place in there]
    np.testing.assert_array_equal(known.inner[np.ix_(there, there)], inner[np.ix_(before, before)])
