"""Public names with arguments of the wrong type: a typed error that names the argument, before any work."""

from __future__ import annotations

import pickle
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import AudioError, InputError, StoreSealError, VoiceclaimError
from pipeline.evaluation import Trial

KEY = b"sixteen bytes or more"
HUGE = 10**400
INPUTS = {
    "duplicates": lambda store: pipeline.Verifier(store, "anna", duplicates=np.array([True, False])),
    "update_ms": lambda store: pipeline.Verifier(store, "anna", update_ms=HUGE),
    "llr": lambda store: pipeline.Verifier(store, "anna").probability("2.0"),
    "nobody": lambda store: pipeline.Identifier(store, nobody=HUGE),
    "unknown_impostors": lambda store: pipeline.Store(store).load(unknown_impostors=HUGE),
    "store": lambda store: pipeline.check_store(None),
    "anchor": lambda store: pipeline.check_store(store, anchor=7),
    "config": lambda store: pipeline.SpeakerModel({"seed": 0}),
    "first": lambda store: pipeline.compare_voices(store, None, "call.wav"),
    "second": lambda store: pipeline.compare_voices(store, "call.wav", b"letter.wav"),
    "root": lambda store: pipeline.assess(store, [Trial("anna", "call.wav", True)], None),
    "otherwise": lambda _: pipeline.Sequential(otherwise=0.5),
    "rate": lambda _: pipeline.FalseAcceptRate(HUGE),
    "value": lambda _: pipeline.Threshold(HUGE),
    "workers": lambda store: pipeline.assess(store, [Trial("anna", "call.wav", True)], ".", workers=3),
    "speaker_pattern": lambda store: pipeline.read_corpus(store, speaker_pattern=3),
    "before_commit": lambda store: pipeline.Store(store, before_commit=3),
    "scores": lambda _: pipeline.measure([1.0, 2.0], threshold=None, seed=0),
}


@pytest.mark.parametrize("name", INPUTS)
def test_an_argument_of_the_wrong_type_is_named(name, store):
    with pytest.raises(InputError, match=rf"^{name}: .* was expected, got "):
        INPUTS[name](store)


def test_what_is_to_be_told_of_progress_and_cannot_be_called_is_refused_before_any_work(store, tmp_path):
    trials = [Trial("anna", "call.wav", True)]
    for work in (
        lambda: pipeline.assess(store, trials, ".", progress=3),
        lambda: pipeline.assess_pairs(store, trials, ".", progress=3),
        lambda: pipeline.calibrate(store, trials, ".", progress=3),
        lambda: pipeline.enroll(tmp_path / "s", {"anna": "call.wav"}, progress=3),
    ):
        with pytest.raises(InputError, match=r"^progress: a function was expected, got int$"):
            work()
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "options", [{"claim": "ivan"}, {"system": "poao"}, {"decide_by": pipeline.Threshold(0.0)}], ids=str
)
def test_a_verifier_is_streamed_as_it_is_or_not_at_all(options, store):
    verifier = pipeline.Verifier(store, "anna")
    with pytest.raises(InputError, match=f"a verifier of 'anna' takes no other claim .* got {next(iter(options))}; "):
        pipeline.VerificationStream(verifier, **options)
    assert pipeline.VerificationStream(verifier, "anna").verifier is verifier


def test_a_ratio_that_is_not_a_number_has_no_probability(store):
    verifier = pipeline.Verifier(store, "anna")
    for probability in (verifier.probability, verifier.probability_interval):
        with pytest.raises(InputError, match=r"^llr: a log-likelihood ratio was expected, got nan"):
            probability(float("nan"))


def test_samples_without_a_rate_are_not_taken_to_have_the_models(store, said):
    samples, _ = said
    for scored in (pipeline.Verifier(store, "anna").verify, pipeline.Identifier(store).identify):
        with pytest.raises(AudioError, match="the sampling rate must be a number of Hz, got NoneType"):
            scored(samples, None)


def test_channel_true_is_not_the_first_channel(store, heard):
    with pytest.raises(AudioError, match="numbered from 1, got channel True"):
        pipeline.Verifier(store, "anna").verify_file(heard("anna"), channel=True)


def test_files_that_cannot_be_decoded_as_they_are_given_name_the_way(store, heard, tmp_path):
    path, verifier = heard("anna"), pipeline.Verifier(store, "anna")
    with pytest.raises(AudioError, match=r"got bytes; .*io\.BytesIO"):
        verifier.verify_file(path.read_bytes())
    with path.open(encoding="latin-1") as text, pytest.raises(AudioError, match=r"got a text file; .*'rb'"):
        verifier.verify_file(text)
    with (
        (tmp_path / "new.wav").open("wb") as new,
        pytest.raises(AudioError, match=r"be open for reading \('rb'\)"),
    ):
        verifier.verify_file(new)
    with pytest.raises(AudioError, match=r"no such file; only a shell knows ~ .*expanduser"):
        verifier.verify_file("~/call.wav")


def test_workers_that_are_a_number_enroll_nobody(tmp_path):
    with pytest.raises(InputError, match=r"^workers: LocalThreads or DaskWorkers .* was expected, got int"):
        pipeline.enroll(tmp_path / "new", {"anna": ["call.wav"]}, workers=3)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "fields",
    [("anna", "call.wav", "nontarget"), ("anna", "call.wav", None), ("anna", Path("call.wav"), True), (3, "", True)],
)
def test_a_trial_of_other_types_is_refused_and_never_counted_as_target(fields, store):
    with pytest.raises(InputError, match=r"^trials: .* were expected in a Trial, got Trial\("):
        pipeline.assess(store, [Trial(*fields)], ".")


def test_a_store_is_handed_to_another_process(store):
    received = pickle.loads(pickle.dumps(pipeline.Store(store)))  # noqa: S301  (our own bytes)
    assert received.load().names == pipeline.Store(store).load().names


def test_a_sequential_test_in_place_of_its_remainder_is_refused():
    with pytest.raises(InputError, match="otherwise: a policy other than a sequential test"):
        pipeline.Sequential(otherwise=pipeline.Sequential())


@pytest.mark.parametrize("at_end", [None, np.zeros(2), ["fixed"]], ids=repr)
def test_an_end_of_a_sequential_test_that_is_no_name_is_refused(at_end):
    with pytest.raises(InputError, match="at_end must be 'undecided' or 'fixed'"):
        pipeline.SequentialTest(at_end=at_end)


@pytest.mark.parametrize("rate", [Fraction(3, 4), np.float32(0.75)])
def test_a_rate_of_any_number_that_is_out_of_range_is_printed(rate):
    for call in (lambda: pipeline.FalseAcceptRate(rate), lambda: pipeline.SequentialTest(rate)):
        with pytest.raises(InputError, match=re.escape("got 0.75")):
            call()


@pytest.mark.parametrize(
    "key", ["text of sixteen or more", 3, np.zeros(20), bytearray(20)], ids=["text", "number", "array", "bytearray"]
)
def test_a_key_that_is_no_bytes_is_refused_before_anything_is_written(key, copied):
    before = copied.read_bytes()
    for call in (
        lambda: pipeline.Store(copied, key=key),
        lambda: pipeline.check_store(copied, key=key),
        lambda: pipeline.seal_store(copied, key),
        lambda: pipeline.seal_store(copied, KEY, old_key=key),
    ):
        with pytest.raises(StoreSealError, match="a key of bytes was expected, got "):
            call()
    assert copied.read_bytes() == before


def test_a_key_that_would_open_no_store_seals_none(copied):
    for short in (b"", b"fifteen bytes ."):
        with pytest.raises(StoreSealError, match=f"at least 16 bytes, got {len(short)}"):
            pipeline.seal_store(copied, short)
    assert not pipeline.check_store(copied).sealed


@pytest.mark.parametrize("seed", [None, -1, 0.5, "0", True])
def test_a_seed_is_checked_where_nothing_is_drawn_too(seed, store, heard):
    found = pipeline.assess(store, [Trial("anna", heard("anna").name, True)], heard("anna").parent, systems="poao")
    with pytest.raises(VoiceclaimError, match="seed: a whole number of at least 0 was expected, got "):
        pipeline.measure(found.scores["poao"], threshold=None, seed=seed)


def test_a_scoring_system_that_there_is_not_is_named_with_those_that_there_are(store):
    model = pipeline.Store(store).load()
    for ask in (model.threshold, model.calibration):
        with pytest.raises(InputError, match="scoring system 'nope' is unknown; there are boar, poar, boao, poao, "):
            ask("nope")
