"""`voiceclaim verify`: exit codes, what is printed and what decides, for files and for a pipe."""

from __future__ import annotations

import io
import json
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path

import hostile
import numpy as np
import pytest
import soundfile

from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

SETTINGS = tuple(f"--set={setting}" for setting in ("features.rate=8000", "codebook.min_seconds=3"))
VERDICT = {
    "claim", "file", "state", "decision", "score", "threshold", "system", "speech_seconds", "audio_seconds", "frames",
    "competing", "llr", "probability", "prior", "unknown_impostors", "llr_threshold", "threshold_source", "settled",
    "sequential_llr", "sequential_bounds", "duplicate_suspected", "revision", "warnings",
    "probability_interval",
}  # fmt: skip


def encoded(path: Path, kind: str, subtype: str, channels: int = 1) -> bytes:
    """A recording in another format."""
    samples, rate = soundfile.read(path, dtype="int16", always_2d=True)
    file = io.BytesIO()
    soundfile.write(file, np.repeat(samples, channels, axis=1), rate, format=kind, subtype=subtype, endian="LITTLE")
    return file.getvalue()


@pytest.fixture
def claim(store):
    """The command's words for anna's claim."""
    return "verify", store, "--claim", "anna"


# Files


def test_the_exit_code_is_the_outcome_and_each_file_has_its_line(inside, claim, heard, silence, garbage):
    true, false = heard("anna"), heard("ivan")
    for files, code in [
        ((true,), 0),
        ((false,), 1),
        ((silence,), 3),
        (("missing.wav",), 2),
        ((garbage,), 2),
        ((true, silence), 3),
        ((silence, false, true), 1),
        ((false, "missing.wav", silence, true), 2),
    ]:
        result = inside(*claim, *files)
        assert result.code == code
        broken = [file for file in files if file in ("missing.wav", garbage)]
        assert all(str(file) in result.err for file in broken)
        assert [line.partition(": ")[0].partition(" 'anna' ")[2] for line in result.out.splitlines()] == [
            str(file) for file in files if file not in broken
        ]


def test_verify_prints_a_line_of_json_a_file(run, claim, store, heard, silence):
    true, false = heard("anna"), heard("ivan")
    result = run(*claim, "--json", true, false, silence, "missing.wav")
    assert result.code == 2
    accepted, rejected, mute, missing = map(json.loads, result.out.splitlines())
    for reported, file, decision in (
        (accepted, true, "accepted"), (rejected, false, "rejected"), (mute, silence, "not_enough_speech"),
    ):  # fmt: skip
        assert reported.keys() == VERDICT
        assert (reported["claim"], reported["file"], reported["decision"]) == ("anna", str(file), decision)
        assert (reported["state"], reported["system"], reported["competing"]) == ("closed", "refined_worst_rival", 3)
    expected = Verifier(Store(store).load(), "anna")
    assert accepted["threshold"] == expected.decider.threshold
    assert accepted["score"] == pytest.approx(expected.verify_file(true).score, abs=1e-9)
    assert accepted["llr"] == pytest.approx(expected.verify_file(true).llr, abs=1e-6)
    assert rejected["llr"] < 0 < accepted["llr"]
    for reported in (accepted, rejected, mute):  # a threshold at the equal error rate rests on no prior
        assert (reported["prior"], reported["threshold_source"], reported["llr_threshold"]) == (None, "eer", None)
    assert (mute["score"], mute["llr"], mute["probability"]) == (None, None, None)
    assert (mute["speech_seconds"], mute["audio_seconds"]) == (0, 2.0)
    assert missing.keys() == {"claim", "file", "decision", "error"}
    assert missing["decision"] is None
    assert "missing.wav" in missing["error"]


def test_verify_prints_the_decision_beside_the_threshold_that_it_applies_to(inside, claim, heard, silence):
    file = heard("anna")
    for words in ((), ("--far", "0.1"), ("--prior", "0.5")):
        (reported,) = inside(*claim, *words, file, "--json").lines
        score, llr = f"score {reported['score']:.4f}", f"LLR {reported['llr']:.2f}"
        chance = ""
        if reported["threshold"] is None:
            chance = f", P {reported['probability']:.3f} at prior {reported['prior']:g}"
            llr += f" (threshold {reported['llr_threshold']:.2f})"
        else:
            score += f" (threshold {reported['threshold']:.4f})"
        # A synthesiser speaks a word the same way again.
        flag = ", a copy of known audio: duplicate suspected" if reported["duplicate_suspected"] else ""
        assert inside(*claim, *words, file).out == (
            f"accepted 'anna' {file}: {score}, {llr}{chance}, {reported['speech_seconds']:.2f} s of speech{flag}\n"
        )
    needed = "no score (0.5 s needed)"
    assert inside(*claim, silence).out == f"not enough speech 'anna' {silence}: {needed}, 0.00 s of speech\n"


def test_one_number_is_printed_once_where_scores_are_ratios(inside, claim, heard):
    (reported,) = inside(*claim, "--system", "fused", heard("anna"), "--json").lines
    line = inside(*claim, "--system", "fused", heard("anna")).out
    assert f": LLR {reported['score']:.2f} (threshold {reported['threshold']:.2f}), P " in line
    assert "score" not in line


def test_a_sequential_test_prints_its_bounds_in_place_of_a_threshold_that_decided_nothing(inside, claim, heard):
    words = (*claim, heard("anna"), "--sequential")
    for rates, bound in (("1e-9:1e-9", 20.72), ("0.4:0.4", 0.41)):
        (reported,) = inside(*words, rates, "--json").lines
        line = inside(*words, rates).out
        assert f"sequential LLR {reported['sequential_llr']:.2f} (bounds -{bound} and {bound})" in line
        assert "threshold" not in line
    assert "(threshold " in (fixed := inside(*words, "1e-9:1e-9", "--at-end", "fixed").out)
    assert "bounds" not in fixed


def test_the_threshold_and_the_false_accept_rate_decide(inside, claim, store, heard):
    for words, code in [
        (("--threshold", "2"), 1),
        (("--threshold", "-1"), 0),
        (("--system", "rpoao", "--threshold", "-1e9"), 0),
    ]:
        result = inside(*claim, "--json", *words, heard("anna"))
        assert result.code == code
        (reported,) = result.lines
        assert (reported["threshold"], reported["threshold_source"]) == (float(words[-1]), "given")
    (reported,) = inside(*claim, "--json", "--far", "0.01", heard("anna")).lines
    expected = Store(store).load().threshold("refined_worst_rival", false_accept=0.01)
    assert (reported["threshold"], reported["threshold_source"], reported["llr_threshold"]) == (expected, "far", None)
    assert inside(*claim, "--far", "0.1", heard("anna")).err == ""  # enough trials show it


@pytest.mark.parametrize("unknown", [None, "0"])
def test_a_false_accept_rate_of_two_speakers_says_nothing_of_people_who_are_not_enrolled(
    inside, corpus_of, heard, unknown
):
    assert inside("enroll", corpus_of(anna=3, ivan=3), "--store", "two", *SETTINGS).code == 0
    assumed = () if unknown is None else ("--unknown-impostors", unknown)
    verified = inside("verify", "two", "--claim", "anna", "--far", "0.4", *assumed, heard("anna"))
    assert verified.code == 0
    assert ("does not limit how often people who are not enrolled are accepted" in verified.err) == (unknown is None)


def test_a_prior_and_costs_decide_by_the_llr_that_bayes_rule_asks_for(inside, copied, heard):
    hostile.edit_config(copied, "threshold", prior=0.2, cost_miss=3.0, cost_false_accept=5.0)
    # What is not named is taken from the settings.
    for words, prior, ratio in [
        (("--prior", "0.5"), 0.5, 5 / 3),
        (("--cost-miss", "8"), 0.2, 4 * 5 / 8),
        (("--cost-false-accept", "6"), 0.2, 4 * 6 / 3),
        (("--prior", "0.1", "--cost-miss", "1", "--cost-false-accept", "2"), 0.1, 9 * 2),
        (("--system", "fused", "--prior", "0.75"), 0.75, 5 / 3 / 3),
    ]:
        result = inside("verify", copied, "--claim", "anna", "--json", *words, heard("anna"))
        (reported,) = result.lines
        assert reported["llr_threshold"] == pytest.approx(math.log(ratio), abs=1e-12)
        assert (reported["prior"], reported["threshold"], reported["threshold_source"]) == (prior, None, "cost")
        odds = math.exp(reported["llr"]) * prior / (1 - prior)
        assert reported["probability"] == pytest.approx(odds / (1 + odds))
        assert result.code == (0 if reported["llr"] >= reported["llr_threshold"] else 1)
        assert reported["system"] != "fused" or reported["score"] == reported["llr"]


def test_a_speaker_alone_has_no_llr_and_is_decided_on_by_a_given_threshold_only(inside, refused, corpus_of, heard):
    enrolled = inside("enroll", corpus_of(anna=3), "--store", "s", *SETTINGS)
    assert enrolled.code == 0
    assert "with one speaker in the store there is nobody to compare with" in enrolled.err
    assert "nobody else is enrolled" in refused("verify", "s", "--claim", "anna", "--prior", "0.5", heard("anna"))
    assert "enroll more speakers" in refused("verify", "s", "--claim", "anna", heard("anna"))
    alone = inside("verify", "s", "--claim", "anna", "--threshold", "0.1", "--json", heard("anna"))
    assert "only 'anna' is enrolled" in alone.err
    (verdict,) = alone.lines
    assert (verdict["competing"], verdict["llr"], verdict["probability"]) == (0, None, None)
    assert 0 < verdict["score"] <= 1


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("--far", "0.1", "--threshold", "0", "--cost-false-accept", "2"), "got 3 of them"),
        (("--prior", "nan"), "between 0 and 1"),
        (("--cost-miss", "0"), "positive"),
        (("--cost-miss", "inf"), "finite"),
        (("--far", "0"), "a false-accept rate is above 0"),
        (("--far", "nan"), "below 0.5"),
        (("--threshold", "nan"), "nan"),
        (("--sequential", "0.01"), "MISS:FALSE_ACCEPT"),
        (("--sequential", "0.9:0.1"), "sequential test"),
        (("--sequential", "0.01:0.01", "--at-end", "never"), "--at-end"),
    ],
)
def test_options_that_cannot_be_are_an_error(refused, claim, heard, words, reported):
    error = refused(*claim, *words, heard("anna"))
    assert reported in error
    assert "voiceclaim" in error


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close in another way")
def test_a_reader_that_goes_away_gets_no_traceback(command, claim, heard):
    words = [*command, *map(str, claim), *[str(heard("anna"))] * 20]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        reported = process.stderr.read().decode()
    assert process.returncode == 2
    assert reported == ""


# A pipe


@pytest.fixture
def piped(command, claim):
    """Anna's claim on a pipe as a running process, ended with the test if it hangs."""
    arguments = [*command, *map(str, claim), "-"]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        guard = threading.Timer(240, process.kill)
        guard.start()
        yield process
        guard.cancel()
        process.kill()


def test_a_pipe_is_reported_on_while_its_writer_is_still_writing(piped, store, heard):
    data = encoded(heard("anna"), "WAV", "PCM_16")
    piped.stdin.write(data[: len(data) // 2])
    first = json.loads(piped.stdout.readline())
    assert piped.poll() is None, "it ended before its writer"
    assert first.keys() == VERDICT
    assert 0.25 <= first["audio_seconds"] < 1.0
    assert first["state"] in {"not_enough_speech", "scoring"}
    rest, _ = piped.communicate(data[len(data) // 2 :])
    reported = [first, *map(json.loads, rest.splitlines())]
    assert piped.returncode == 0
    assert [update["state"] for update in reported].count("closed") == 1
    assert (reported[-1]["state"], reported[-1]["decision"]) == ("closed", "accepted")
    seconds_so_far = [update["audio_seconds"] for update in reported]
    assert seconds_so_far == sorted(seconds_so_far)
    assert len(reported) > 5
    expected = Verifier(Store(store).load(), "anna").verify_file(heard("anna"))
    assert reported[-1]["score"] == pytest.approx(expected.score, abs=1e-9)
    assert reported[-1]["audio_seconds"] == expected.audio_seconds


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_an_interrupted_pipe_ends_without_a_traceback_and_not_as_a_decision(piped, heard):
    data = encoded(heard("anna"), "WAV", "PCM_16")
    piped.stdin.write(data[: len(data) // 2])
    piped.stdout.readline()
    piped.send_signal(signal.SIGINT)
    _, reported = piped.communicate()
    assert piped.returncode == 130
    assert b"Traceback" not in reported


def test_a_pipe_with_too_little_speech_is_not_scored(inside, claim, heard):
    result = inside(*claim, "-", data=encoded(heard("anna"), "WAV", "PCM_16")[:4000])
    assert result.code == 3
    (reported,) = result.lines
    assert (reported["state"], reported["decision"], reported["score"]) == ("closed", "not_enough_speech", None)


@pytest.mark.parametrize(
    ("raw", "subtype", "channels", "speaker", "code"),
    [
        ("8000", "PCM_16", 1, "ivan", 1),
        ("8000:2:s16le", "PCM_16", 2, "anna", 0),
        ("8000:1:mulaw", "ULAW", 1, "anna", 0),
        ("8000::alaw", "ALAW", 1, "ivan", 1),
    ],
)
def test_raw_audio_is_verified_as_its_file_is(inside, claim, store, heard, raw, subtype, channels, speaker, code):
    result = inside(*claim, "--raw", raw, "-", data=encoded(heard(speaker), "RAW", subtype, channels))
    assert result.code == code
    expected = Verifier(Store(store).load(), "anna").verify_file(heard(speaker)).score
    # Eight bits a sample are another recording, if a similar one.
    assert result.lines[-1]["score"] == pytest.approx(expected, abs=1e-9 if subtype == "PCM_16" else 0.05)


def test_the_interval_sets_how_often_a_pipe_is_reported_on(inside, claim, heard):
    every = inside(*claim, "-", "--interval", "1", data=encoded(heard("anna"), "WAV", "PCM_16")).lines
    seconds = [update["audio_seconds"] for update in every[:-1]]
    assert np.all(np.diff([0.0, *seconds]) >= 1.0)
    assert len(seconds) == int(every[-1]["audio_seconds"])


def test_a_pipe_without_audio_and_a_raw_format_that_cannot_be_are_errors(refused, claim):
    assert refused(*claim, "-").startswith("voiceclaim: ")
    for raw in ("", "16k", "8000:x", "8000:1:mp3", "1", "²", "8000:1:s16le:9"):
        assert refused(*claim, "--raw", raw, "-", data=b"\0" * 32000)


def test_identifications_are_logged_with_a_channel_and_on_request_a_path(inside, claim, heard, tmp_path, garbage):
    store, log = claim[1], tmp_path / "calls.jsonl"
    words = ("identify", store, "--log", log)
    assert inside(*words, heard("ivan")).code == 0
    assert inside(*words, "--log-paths", heard("anna"), garbage).code == 2
    _, first, second, third = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert (first["event"], first["speaker"], "file" in first) == ("identify", "ivan", False)
    assert (second["speaker"], second["file"]) == ("anna", str(heard("anna")))
    assert (third["decision"], third["error"], third["file"]) == (None, "AudioError", str(garbage))
    assert "channel" not in third
    for command in (words, ("verify", store, "--claim", "anna", "--log", log)):
        assert inside(*command, "--channel", "2", heard("anna")).code == 2
        last = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
        assert (last["event"], last["error"], last["channel"]) == (command[0], "AudioError", 2)
    assert inside("audit", log).code == 0
