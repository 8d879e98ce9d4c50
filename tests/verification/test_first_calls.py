"""First mistakes of library users: a typed error in one line that says what was expected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import AudioError, ConfigError, InputError, StoreMissingError

MISTAKES = {
    "a number as the model": (InputError, "its path was expected, got int", lambda _: pipeline.Verifier(3, "a")),
    "a rate as the policy": (InputError, r"a policy was expected", lambda v: again(v, decide_by=0.01)),
    "a policy's class": (InputError, "a policy was expected", lambda v: again(v, decide_by=pipeline.FalseAcceptRate)),
    "percent": (InputError, r"1 % is 0.01", lambda _: pipeline.FalseAcceptRate(1)),
    "a path as samples": (AudioError, "got str; a file is verified by verify_file", lambda v: v.verify("a.wav", 8000)),
    "bytes as samples": (AudioError, "got bytes", lambda v: v.verify(b"RIFF", 8000)),
    "nothing as samples": (AudioError, "got NoneType", lambda v: v.stream().push(None)),
    "rate and samples exchanged": (AudioError, "got ndarray; are rate and", lambda v: v.verify(8000, np.zeros(9))),
    "rate as text": (AudioError, "a number of Hz, got str", lambda v: v.stream("8000")),
    "rate in kHz": (AudioError, "a rate given in kHz", lambda v: v.verify(np.zeros(99), 8)),
    "samples as a file": (AudioError, r"got ndarray; .* verify\(samples, rate\)", lambda v: v.verify_file(np.zeros(9))),
    "channels first": (AudioError, "transpose an array", lambda v: v.verify(np.zeros((2, 99)), 8000)),
    "arrays enrolled": (InputError, "got str and ndarray", lambda _: pipeline.enroll("n", {"a": [np.zeros(9)]})),
    "an array enrolled": (InputError, "got str and float64", lambda _: pipeline.enroll("n", {"a": np.zeros(9)})),
    "None enrolled": (InputError, "got str and NoneType", lambda _: pipeline.enroll("n", {"a": None})),
    "a folder of files": (InputError, "got the folder .*; list", lambda v: pipeline.enroll("n", {"a": [folder_of(v)]})),
    "no files": (InputError, "got str and nothing", lambda _: pipeline.enroll("n", {"a": []})),
    "a list of files": (InputError, "a dictionary of names", lambda _: pipeline.enroll("n", ["a.wav"])),
    "a preset for settings": (ConfigError, "got str; pipeline.load", lambda _: pipeline.enroll("n", WAV, "lean")),
    "a table for settings": (ConfigError, "got dict; pipeline.load", lambda _: pipeline.enroll("n", WAV, {"seed": 1})),
    "a table to load": (ConfigError, "name of a preset was expected, got dict", lambda _: pipeline.load_config({})),
    "a number as the claim": (InputError, "claim: .* expected, got int", lambda v: pipeline.Verifier(v.model, 1)),
    "no claim": (InputError, "claim: .* expected, got NoneType", lambda v: pipeline.VerificationStream(v.model)),
    "systems": (InputError, "system: .* expected, got list", lambda v: again(v, system=["fused"])),
    "a path as the memory": (InputError, "memory: .* expected, got str", lambda v: again(v, memory="log")),
    "milliseconds as text": (InputError, "update_ms: .* expected, got str", lambda v: again(v, update_ms="9")),
    "candidates as text": (InputError, "best: .* expected, got str", lambda v: pipeline.Identifier(v.model, best="3")),
    "prior as text": (InputError, "nobody: .* expected, got str", lambda v: pipeline.Identifier(v.model, nobody="0")),
    "score as text": (InputError, "threshold: .*, got str", lambda v: pipeline.Identifier(v.model, threshold="0")),
    "file and name exchanged": (InputError, "'a.wav' and the name 'anna'", lambda v: stored(v).verify("a.wav", "anna")),
    "a rate verified": (InputError, "^rate: Verifier has no", lambda v: stored(v).verify("anna", "a.wav", rate=8)),
    "a score verified": (InputError, "; it has .*decide_by,", lambda v: stored(v).verify("anna", "a.wav", threshold=3)),
    "a claim identified": (InputError, "^claim: Identifier has", lambda v: stored(v).identify("a.wav", claim="anna")),
    "a score to a stream": (
        InputError, "^threshold: ", lambda v: pipeline.VerificationStream(v.model, "anna", threshold=3)
    ),
    "no store": (InputError, "store: .* expected, got NoneType", lambda _: pipeline.Store(None)),
    "a number as the store": (InputError, "store: .* expected, got int", lambda _: pipeline.enroll(3, WAV)),
    "share as text": (InputError, "unknown_impostors: .*, got str", lambda v: stored(v).load(unknown_impostors="0.5")),
    "a number removed": (InputError, "name: .*, got int", lambda v: pipeline.remove_speaker(v.model.where, 1)),
    "renamed to a number": (InputError, "new_name: .*, got int", lambda v: stored(v).rename(v.claim, 1)),
    "rate of a policy as text": (InputError, "rate: .* expected, got str", lambda _: pipeline.FalseAcceptRate("1 %")),
    "threshold as text": (InputError, "value: .* expected, got str", lambda _: pipeline.Threshold("0")),
    "a prior as the point": (InputError, "point: .* expected, got float", lambda _: pipeline.BayesCost(0.5)),
    "a rate as the test": (InputError, "test: .* expected, got float", lambda _: pipeline.Sequential(0.01)),
    "a number as the corpus": (InputError, "root: .* expected, got int", lambda _: pipeline.read_corpus(3)),
    "a number as the list": (InputError, "path: .* expected, got int", lambda _: pipeline.read_trials(3)),
    "a number as the trials": (InputError, "trials: .* expected, got int", lambda v: pipeline.assess(v.model, 3, ".")),
    "tuples as trials": (InputError, "trials: .*, got tuple", lambda v: pipeline.assess(v.model, [("a", "b")], ".")),
    "a missing list": (InputError, "own.txt: cannot read it", lambda v: pipeline.assess(v.model, "own.txt", ".")),
    "a number for overrides": (ConfigError, "overrides: .*, got int", lambda _: pipeline.load_config(overrides=3)),
    "a number as an override": (ConfigError, "override: .*, got int", lambda _: pipeline.load_config(overrides=[3])),
    "preset misspelt": (ConfigError, "neither a file nor a preset", lambda _: pipeline.load_config("defualt")),
}  # fmt: skip
WAV = {"anna": ["a.wav"]}


def again(verifier, **options) -> pipeline.Verifier:
    return pipeline.Verifier(verifier.model, verifier.claim, **options)


def folder_of(verifier) -> Path:
    return Path(verifier.model.where).parent


def stored(verifier) -> pipeline.Store:
    return pipeline.Store(verifier.model.where)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_call_has_an_answer(opened, mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error, words, call = MISTAKES[mistake]
    with pytest.raises(error, match=words) as caught:
        call(pipeline.Verifier(opened, "anna"))
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_store_or_its_path_stands_for_its_model(store, opened, heard):
    expected = pipeline.Verifier(opened, "anna").verify_file(heard("anna"))
    for model in (store, str(store), pipeline.Store(store)):
        assert pipeline.Verifier(model, "anna").verify_file(heard("anna")) == expected
        assert pipeline.Identifier(model, system="fused").model.revision == opened.revision
        assert pipeline.VerificationStream(model, "anna").verifier.model.names == opened.names


def test_a_name_is_in_a_model_and_in_its_store_if_it_can_be_claimed(copied):
    store = pipeline.Store(copied)
    store.rename("ivan", "jos\u00e9")
    for holder in (store, store.load()):
        for name in ("anna", "jos\u00e9", "jose\u0301"):
            assert name in holder
        for other in ("ivan", "Anna", "", "x" * 10**6, "\ud800", 3, None):
            assert other not in holder
    with pytest.raises(StoreMissingError):
        assert "anna" in pipeline.Store("nowhere.store")


def test_an_outcome_is_never_taken_for_true(opened, heard):
    store = pipeline.Store(opened.where)
    compared = pipeline.VoiceComparison(False, -2.0, 0.2, 0.4, -1.0, -3.0)
    for outcome in (store.verify("ivan", heard("anna")), store.identify(heard("anna")), compared):
        with pytest.raises(InputError, match=f"^{type(outcome).__name__}: it is neither true nor false"):
            bool(outcome)


def test_the_path_of_a_list_stands_for_its_trials(tmp_path, opened, heard):
    path = tmp_path / "trials.txt"
    path.write_text(f"anna {heard('anna')} target\nivan {heard('anna')} nontarget\n")
    scores = [
        pipeline.assess(opened, given, tmp_path, systems=["poao"]).scores["poao"].scores.tolist()
        for given in (pipeline.read_trials(path), path, str(path))
    ]
    assert scores[0] == scores[1] == scores[2]
    assert scores[0][0] > scores[0][1]


def test_a_preset_is_named_and_one_override_needs_no_list():
    assert pipeline.load_config("lean", "machines.C=2").machines.C == 2.0
    assert pipeline.load_config("lean").machines != pipeline.Config().machines


def test_numbers_of_other_libraries_are_numbers(opened):
    assert pipeline.FalseAcceptRate(np.float32(0.25)).rate == 0.25
    assert pipeline.Threshold(np.int64(2)).value == 2
    assert pipeline.Identifier(opened, best=np.int64(2), nobody=np.float32(0.5)).best == 2
