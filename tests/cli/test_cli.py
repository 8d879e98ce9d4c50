"""The command as a user runs it: processes of their own, real audio, exit codes, what is printed and written."""

from __future__ import annotations

import importlib.metadata
import io
import json
import math
import signal
import subprocess
import sys
import threading
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import hostile
import numpy as np
import pytest
import soundfile
from html_outline import check_accessible, check_self_contained

import pipeline
from pipeline.config import parse_config
from pipeline.evaluation import read_scores
from pipeline.scoring.rules import RULES
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

SETTINGS = tuple(f"--set={setting}" for setting in ("features.rate=8000", "codebook.min_seconds=3"))
COMMANDS = (
    "enroll", "record", "verify", "evaluate", "plot", "compare", "convert", "speakers", "demo",
    "audit", "serve", "seal",
)  # fmt: skip
VERDICT = {
    "claim", "file", "state", "decision", "score", "threshold", "system", "speech_seconds", "audio_seconds", "frames",
    "competing", "llr", "probability", "prior", "unknown_impostors", "llr_threshold", "threshold_source", "settled",
    "sequential_llr", "sequential_bounds", "duplicate_suspected", "revision",
}  # fmt: skip
SYSTEMS = set(RULES)
FIGURES = ("fa_fr_one_vs_rest", "fa_fr_one_vs_one", "fa_fr_worst_rival", "det", "det_interval", "score_histogram")
OF_CALIBRATION = ("reliability", "bayes_error")


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") and path.stat().st_size > 5000


def svg_text(path: Path) -> str:
    """All text of an SVG picture, which must be well-formed."""
    root = ET.parse(path).getroot()  # noqa: S314  (a file of our own making)
    assert root.tag.endswith("svg")
    return " ".join(" ".join(root.itertext()).split())


def wav_of(path: Path) -> bytes:
    """A recording as the bytes of a 16-bit WAV file."""
    samples, rate = soundfile.read(path, dtype="int16")
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def raw_of(path: Path, subtype: str, channels: int = 1) -> bytes:
    samples, rate = soundfile.read(path, dtype="int16", always_2d=True)
    file = io.BytesIO()
    both = np.repeat(samples, channels, axis=1)
    soundfile.write(file, both, rate, format="RAW", subtype=subtype, endian="LITTLE")
    return file.getvalue()


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_has_an_example_that_starts_it(run, name):
    result = run(name, "--help")
    assert result.code == 0
    assert f"Example: voiceclaim {name}" in " ".join(result.out.split())


def test_help_lists_every_command_and_what_the_exit_codes_say(run):
    result = run("--help")
    assert result.code == 0
    listed = [line.split()[0] for line in result.out.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed == list(COMMANDS)
    text = " ".join(result.out.split())
    assert "0 done or accepted, 1 rejected, 2 an error, 3 not enough speech" in text


def test_the_installed_command_starts_the_command_line():
    entries = importlib.metadata.entry_points(group="console_scripts", name="voiceclaim")
    assert {entry.value for entry in entries} == {"pipeline.cli.main:main"}


def test_no_words_show_the_help_and_an_unknown_command_is_an_error(run):
    bare, unknown = run(), run("frobnicate")
    assert "Usage:" in bare.out + bare.err
    assert unknown.code == 2
    assert "frobnicate" in unknown.err
    assert run("-h").out == run("--help").out
    assert run("--version").out == f"voiceclaim {pipeline.__version__}\n"


# Enroll


def test_enroll_tells_in_json_who_was_enrolled_refused_and_skipped(run, corpus_of, tmp_path, garbage, silence):
    root = corpus_of(anna=4, dexter=1, ivan=4)
    (root / "ivan" / "broken.wav").write_bytes(garbage.read_bytes())
    (root / "ivan" / "memo.m4a").write_bytes(garbage.read_bytes())
    (root / "ivan" / ".DS_Store").touch()
    result = run("enroll", root, "--store", "s", *SETTINGS, "--set", "codebook.centroids=30",
                 "--jobs", 2, "--json")  # fmt: skip
    assert result.code == 0
    assert result.err == ""
    (reported,) = lines(result.out)
    assert reported.keys() == {
        "store", "enrolled", "refused", "skipped", "warnings", "machines", "held_out_trials", "elapsed_seconds",
    }  # fmt: skip
    assert reported["store"] == "s"
    assert [speaker["name"] for speaker in reported["enrolled"]] == ["anna", "ivan"]
    for speaker in reported["enrolled"]:
        assert speaker.keys() == {"name", "utterances", "seconds", "frames", "centroids", "short_of_centroids"}
        assert (speaker["utterances"], speaker["centroids"], speaker["short_of_centroids"]) == (4, 30, False)
        assert speaker["seconds"] == pytest.approx(0.01 * speaker["frames"])
    assert [entry["name"] for entry in reported["refused"]] == ["dexter"]
    assert "3.00 s needed" in reported["refused"][0]["reason"]
    assert [entry["file"] for entry in reported["skipped"]] == [
        str(root / "ivan" / name) for name in ("memo.m4a", "broken.wav")
    ]
    assert reported["machines"] == 2 + 1 + 2
    assert reported["held_out_trials"] > 0
    assert reported["elapsed_seconds"] > 0
    stored = Store(tmp_path / "s").load()
    assert stored.names == ("anna", "ivan")
    assert (stored.config.features.rate, stored.config.codebook.centroids) == (8000, 30)


def test_enroll_tells_in_words_what_it_left_out_on_the_error_output(run, corpus_of, garbage):
    root = corpus_of(anna=4, dexter=1, ivan=4)
    (root / "ivan" / "broken.wav").write_bytes(garbage.read_bytes())
    result = run("enroll", root, "--store", "s", *SETTINGS, "--set", "codebook.centroids=2000")
    assert result.code == 0
    assert "broken.wav" in result.err
    assert "'dexter'" in result.err
    assert "2 enrolled, 1 refused, 1 files skipped" in result.out
    assert result.out.count("(few)") == 2  # nobody has 2000 frames


def test_enroll_takes_settings_by_name_and_only_the_speakers_asked_for(run, demo, tmp_path):
    words = ("--config", "xin2002", "--set", "codebook.centroids=20", "--only", "a*", "--only", "lars")
    result = run("enroll", demo / "enroll", "--store", "s", *words)
    assert result.code == 0
    stored = Store(tmp_path / "s").load()
    assert stored.names == ("anna", "lars")
    assert (stored.config.features.kind, stored.config.scoring.system) == ("lpc", "rpoao")
    more = run("enroll", demo / "enroll", "--store", "s", "--only", "ivan", "--background")
    assert more.code == 0
    assert Store(tmp_path / "s").load().names == ("anna", "lars")
    assert len(Store(tmp_path / "s").load().speakers) == 3


def test_enrolling_somebody_twice_is_an_error_and_changes_nothing(run, demo, copied):
    before = copied.read_bytes()
    result = run("enroll", demo / "enroll", "--store", copied, "--only", "anna")
    assert (result.code, result.out) == (2, "")
    assert "'anna'" in result.err
    assert copied.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--set", "codebook.centroid=3"), "codebook.centroid: there is no such setting"),
        (("--config", "xin1999"), "xin1999"),
        (("--only", "zz*"), "zz*"),
        (("--backend", "dask"), "--scheduler"),
        (("--check", "noise"), "CHECK=off|warn|refuse"),
    ],
)
def test_mistakes_at_enrollment_are_errors_that_leave_no_store(run, demo, tmp_path, words, reason):
    result = run("enroll", demo / "enroll", "--store", "s", *words)
    assert (result.code, result.out) == (2, "")
    assert reason in result.err
    assert not (tmp_path / "s").exists()


def test_a_corpus_of_too_little_speech_has_its_own_exit_code(run, corpus_of, tmp_path):
    result = run("enroll", corpus_of(anna=1), "--store", "s", *SETTINGS)
    assert (result.code, result.out) == (3, "")
    assert "3.00 s needed" in result.err
    assert not (tmp_path / "s").exists()


def test_a_folder_that_is_no_corpus_is_an_error(run, tmp_path):
    result = run("enroll", "nowhere", "--store", "s")
    assert (result.code, result.out) == (2, "")
    assert "nowhere" in result.err


# Verify files


def test_the_exit_code_says_what_became_of_the_claim(run, store, heard, silence, garbage):
    claim = ("verify", store, "--claim", "anna")
    true, false = heard("anna"), heard("ivan")
    assert (result := run(*claim, true)).code == 0
    assert "'anna' accepted" in result.out
    assert (result := run(*claim, false)).code == 1
    assert "'anna' rejected" in result.out
    assert (result := run(*claim, silence)).code == 3
    assert result.out == f"{silence}: 'anna' not enough speech, no score, 0.00 s of speech\n"
    for broken in ("missing.wav", garbage):
        assert (result := run(*claim, broken)).code == 2
        assert str(broken) in result.err
        assert result.out == ""


def test_of_several_files_the_worst_outcome_is_the_exit_code_and_each_has_its_line(run, store, heard, silence):
    claim = ("verify", store, "--claim", "anna")
    true, false = heard("anna"), heard("ivan")
    for files, code in [
        ((true, silence), 3),
        ((silence, false, true), 1),
        ((false, "missing.wav", silence, true), 2),
    ]:
        result = run(*claim, *files)
        assert result.code == code
        assert [line.partition(": ")[0] for line in result.out.splitlines()] == [
            str(file) for file in files if file != "missing.wav"
        ]


def test_verify_tells_in_json_one_line_a_file(run, store, heard, silence):
    true, false = heard("anna"), heard("ivan")
    result = run("verify", store, "--claim", "anna", "--json", true, false, silence, "missing.wav")
    assert result.code == 2
    accepted, rejected, mute, missing = lines(result.out)
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
    prior = expected.model.config.threshold.prior
    for reported in (accepted, rejected):
        odds = math.exp(reported["llr"]) * prior / (1 - prior)
        assert reported["probability"] == pytest.approx(odds / (1 + odds))
    for reported in (accepted, rejected, mute):
        assert (reported["prior"], reported["threshold_source"], reported["llr_threshold"]) == (prior, "eer", None)
    assert (mute["score"], mute["llr"], mute["probability"]) == (None, None, None)
    assert mute["speech_seconds"] == 0
    assert mute["audio_seconds"] == 2.0
    assert missing.keys() == {"claim", "file", "decision", "error"}
    assert missing["decision"] is None
    assert "missing.wav" in missing["error"]


def test_verify_tells_in_words_what_it_heard_and_what_decided(run, store, heard):
    file = heard("anna")
    for words in ((), ("--far", "0.1"), ("--prior", "0.5")):
        claim = ("verify", store, "--claim", "anna", *words, file)
        (reported,) = lines(run(*claim, "--json").out)
        score, llr = f"score {reported['score']:.4f}", f"LLR {reported['llr']:.2f}"
        if reported["threshold"] is None:
            llr += f" (threshold {reported['llr_threshold']:.2f})"
        else:
            score += f" (threshold {reported['threshold']:.4f})"
        assert run(*claim).out == (
            f"{file}: 'anna' accepted, {score}, {llr}, P {reported['probability']:.3f} at prior {reported['prior']:g},"
            f" {reported['speech_seconds']:.2f} s of speech\n"
        )


def test_an_unknown_claim_names_the_nearest_on_the_error_output(run, store, heard):
    result = run("verify", store, "--claim", "Ana", heard("anna"))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("voiceclaim: ")
    assert "'Ana'" in result.err
    assert "'anna'" in result.err


def test_the_threshold_and_the_false_accept_rate_decide(run, store, heard):
    claim = ("verify", store, "--claim", "anna", "--json")
    for words, code in [
        (("--threshold", "2"), 1),
        (("--threshold", "-1"), 0),
        (("--system", "rpoao", "--threshold", "-1e9"), 0),
    ]:
        result = run(*claim, *words, heard("anna"))
        assert result.code == code
        (reported,) = lines(result.out)
        assert (reported["threshold"], reported["threshold_source"]) == (float(words[-1]), "given")
    (reported,) = lines(run(*claim, "--far", "0.01", heard("anna")).out)
    expected = Store(store).load().threshold("refined_worst_rival", false_accept=0.01)
    assert (reported["threshold"], reported["threshold_source"], reported["llr_threshold"]) == (expected, "far", None)


def test_a_prior_and_costs_decide_by_the_llr_that_bayes_rule_asks_for(run, copied, heard):
    hostile.edit_config(copied, "threshold", prior=0.2, cost_miss=3.0, cost_false_accept=5.0)
    # What is not named is taken from the settings.
    for words, prior, ratio in [
        (("--prior", "0.5"), 0.5, 5 / 3),
        (("--cost-miss", "8"), 0.2, 4 * 5 / 8),
        (("--cost-false-accept", "6"), 0.2, 4 * 6 / 3),
        (("--prior", "0.1", "--cost-miss", "1", "--cost-false-accept", "2"), 0.1, 9 * 2),
        (("--system", "fused", "--prior", "0.75"), 0.75, 5 / 3 / 3),
    ]:
        result = run("verify", copied, "--claim", "anna", "--json", *words, heard("anna"))
        (reported,) = lines(result.out)
        assert reported["llr_threshold"] == pytest.approx(math.log(ratio), abs=1e-12)
        assert (reported["prior"], reported["threshold"], reported["threshold_source"]) == (prior, None, "cost")
        odds = math.exp(reported["llr"]) * prior / (1 - prior)
        assert reported["probability"] == pytest.approx(odds / (1 + odds))
        assert result.code == (0 if reported["llr"] >= reported["llr_threshold"] else 1)
        assert reported["system"] != "fused" or reported["score"] == reported["llr"]


def test_a_speaker_alone_has_no_llr_and_cannot_be_decided_on_by_cost(run, corpus_of, heard):
    assert run("enroll", corpus_of(anna=5), "--store", "s", *SETTINGS, "--json").code == 0
    result = run("verify", "s", "--claim", "anna", "--prior", "0.5", heard("anna"))
    assert (result.code, result.out) == (2, "")
    assert "nobody else is enrolled" in result.err
    alone = run("verify", "s", "--claim", "anna", "--json", heard("anna"))
    assert "only 'anna' is enrolled" in alone.err
    (verdict,) = lines(alone.out)
    assert (verdict["competing"], verdict["llr"], verdict["probability"]) == (0, None, None)
    assert 0 < verdict["score"] <= 1


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("--threshold", "0.5", "--far", "0.1"), "got 2 of them"),
        (("--threshold", "0.5", "--prior", "0.1"), "got 2 of them"),
        (("--far", "0.1", "--cost-miss", "2"), "got 2 of them"),
        (("--far", "0.1", "--threshold", "0", "--cost-false-accept", "2"), "got 3 of them"),
        (("--prior", "0"), "between 0 and 1"),
        (("--prior", "1"), "between 0 and 1"),
        (("--prior", "nan"), "between 0 and 1"),
        (("--cost-miss", "0"), "positive"),
        (("--cost-false-accept", "-1"), "positive"),
        (("--cost-miss", "inf"), "finite"),
        (("--far", "2"), "[0, 1]"),
        (("--far", "nan"), "[0, 1]"),
        (("--threshold", "high"), "--threshold"),
        (("--threshold", "nan"), "nan"),
        (("--system", "oracle"), "oracle"),
    ],
)
def test_options_that_cannot_be_are_an_error(run, store, heard, words, reported):
    result = run("verify", store, "--claim", "anna", *words, heard("anna"))
    assert (result.code, result.out) == (2, "")
    assert reported in result.err


def test_no_store_and_a_damaged_store_are_an_error(run, copied, heard):
    result = run("verify", "nowhere.store", "--claim", "anna", heard("anna"))
    assert (result.code, result.out) == (2, "")
    assert "nowhere.store" in result.err
    copied.write_bytes(copied.read_bytes()[: copied.stat().st_size // 2])
    result = run("verify", copied, "--claim", "anna", heard("anna"))
    assert (result.code, result.out) == (2, "")
    assert copied.name in result.err


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close in another way")
def test_a_reader_that_goes_away_is_not_told_a_traceback(command, store, heard):
    words = [*command, "verify", str(store), "--claim", "anna", *[str(heard("anna"))] * 20]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        reported = process.stderr.read().decode()
    assert process.returncode == 2
    assert reported == ""


# Verify a pipe


@pytest.fixture
def piped(command, store):
    """piped(*words): anna's claim on a pipe as a running process, ended with the test if it hangs."""
    started = []

    def start(*words: object) -> subprocess.Popen:
        arguments = [*command, "verify", str(store), "--claim", "anna", "-", *map(str, words)]
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        guard = threading.Timer(60, process.kill)
        guard.start()
        started.append((process, guard))
        return process

    yield start
    for process, guard in started:
        guard.cancel()
        process.kill()
        process.communicate()


def test_a_pipe_is_told_about_while_its_writer_is_still_writing(piped, store, heard):
    data = wav_of(heard("anna"))
    process = piped()
    process.stdin.write(data[: len(data) // 2])
    first = json.loads(process.stdout.readline())
    assert process.poll() is None, "it ended before its writer"
    assert first.keys() == VERDICT
    assert 0.25 <= first["audio_seconds"] < 1.0
    assert first["state"] in {"not_enough_speech", "scoring"}
    rest, _ = process.communicate(data[len(data) // 2 :])
    reported = [first, *map(json.loads, rest.splitlines())]
    assert process.returncode == 0
    assert [update["state"] for update in reported].count("closed") == 1
    assert reported[-1]["state"] == "closed"
    assert reported[-1]["decision"] == "accepted"
    seconds_so_far = [update["audio_seconds"] for update in reported]
    assert seconds_so_far == sorted(seconds_so_far)
    assert len(reported) > 5
    expected = Verifier(Store(store).load(), "anna").verify_file(heard("anna"))
    assert reported[-1]["score"] == pytest.approx(expected.score, abs=1e-9)
    assert reported[-1]["audio_seconds"] == expected.audio_seconds


def test_a_pipe_that_has_not_said_enough_is_not_scored(run, store, heard):
    result = run("verify", store, "--claim", "anna", "-", data=wav_of(heard("anna"))[:4000])
    assert result.code == 3
    (reported,) = lines(result.out)
    assert (reported["state"], reported["decision"], reported["score"]) == ("closed", "not_enough_speech", None)


@pytest.mark.parametrize(
    ("raw", "subtype", "channels", "speaker", "code"),
    [
        ("8000", "PCM_16", 1, "anna", 0),
        ("8000", "PCM_16", 1, "ivan", 1),
        ("8000:2:s16le", "PCM_16", 2, "anna", 0),
        ("8000:1:mulaw", "ULAW", 1, "anna", 0),
        ("8000::alaw", "ALAW", 1, "ivan", 1),
    ],
)
def test_raw_audio_is_verified_as_its_file_is(run, store, heard, raw, subtype, channels, speaker, code):
    data = raw_of(heard(speaker), subtype, channels)
    result = run("verify", store, "--claim", "anna", "--raw", raw, "-", data=data)
    assert result.code == code
    expected = Verifier(Store(store).load(), "anna").verify_file(heard(speaker)).score
    # Eight bits a sample are another recording, if a similar one.
    assert lines(result.out)[-1]["score"] == pytest.approx(expected, abs=1e-9 if subtype == "PCM_16" else 0.05)


def test_the_interval_sets_how_often_a_pipe_is_told_about(run, store, heard):
    data = wav_of(heard("anna"))
    every = lines(run("verify", store, "--claim", "anna", "-", "--interval", "1", data=data).out)
    seconds = [update["audio_seconds"] for update in every[:-1]]
    assert np.all(np.diff([0.0, *seconds]) >= 1.0)
    assert len(seconds) == int(every[-1]["audio_seconds"])


@pytest.mark.parametrize("data", [b"", b"hello, this is no audio at all" * 50])
def test_a_pipe_that_carries_no_audio_is_an_error(run, store, data):
    result = run("verify", store, "--claim", "anna", "-", data=data)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("voiceclaim: ")


@pytest.mark.parametrize("raw", ["", "16k", "8000:x", "8000:1:mp3", "1", "²", "8000:1:s16le:9"])
def test_a_raw_format_that_cannot_be_is_an_error(run, store, raw):
    result = run("verify", store, "--claim", "anna", "--raw", raw, "-", data=b"\0" * 32000)
    assert (result.code, result.out) == (2, "")
    assert result.err


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_an_interrupted_pipe_ends_without_a_traceback_and_not_as_a_decision(piped, heard):
    process = piped()
    data = wav_of(heard("anna"))
    process.stdin.write(data[: len(data) // 2])
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in reported


# Evaluate and plot


@pytest.fixture(scope="module")
def trial_lines(voices, heard, demo) -> list[tuple[str, str, bool]]:
    """Claims for four voices on two files of each and of a stranger."""
    return [
        (claim, heard(speaker, n).relative_to(demo).as_posix(), claim == speaker)
        for speaker in (*voices, "marta")
        for n in range(2)
        for claim in voices
    ]


@pytest.fixture(scope="module")
def evaluated(run_in, store, demo, trial_lines, silence, tmp_path_factory):
    """The folder, result and list of an evaluation of every system, with three trials that cannot be scored."""
    folder = tmp_path_factory.mktemp("evaluated")
    failing = [("anna", str(silence), False), ("ivan", str(silence), False), ("anna", "verify/missing.flac", True)]
    text = "".join(
        f"{claim} {path} {'target' if own else 'nontarget'}\n" for claim, path, own in [*trial_lines, *failing]
    )
    (folder / "kaldi.txt").write_text(f"# claims\n\n{text}", encoding="utf-8")
    result = run_in(folder, "evaluate", store, "kaldi.txt", "--root", demo, "--out", "results", "--json")
    return folder / "results", result


def test_evaluate_writes_every_score_with_its_trial(evaluated, store, demo, trial_lines):
    folder, result = evaluated
    assert result.code == 0
    scores = read_scores(folder / "scores.txt")
    assert set(scores) == SYSTEMS
    opened = Store(store).load()
    for system, outcome in scores.items():
        assert [*zip(outcome.speakers, outcome.paths, outcome.is_target.tolist(), strict=True)] == trial_lines
        verifier = Verifier(opened, "dexter", system=system)
        at = next(n for n, line in enumerate(trial_lines) if line[0] == "dexter")
        assert outcome.scores[at] == pytest.approx(verifier.verify_file(demo / trial_lines[at][1]).score, abs=1e-9)


def test_evaluate_writes_the_documented_metrics_and_prints_the_same(evaluated, store, trial_lines):
    folder, result = evaluated
    table = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert table == json.loads(result.out)
    assert table["default_system"] == "refined_worst_rival"
    assert set(table["systems"]) == SYSTEMS
    scores, opened = read_scores(folder / "scores.txt"), Store(store).load()
    for system, outcome in table["systems"].items():
        assert outcome.keys() >= {"eer_percent", "threshold", "n_target", "n_nontarget", "n_failed"}
        assert outcome["n_target"] == sum(own for _, _, own in trial_lines) == 8
        assert outcome["n_nontarget"] == sum(not own for _, _, own in trial_lines) == 32
        assert outcome["n_failed"] == 3
        low, high = outcome["eer_interval_percent"]
        assert 0 <= low <= outcome["eer_percent"] <= high <= 100
        # At the threshold of the equal error rate both rates are within a trial of it.
        target, nontarget = scores[system].target, scores[system].nontarget
        assert abs(100 * np.mean(nontarget >= outcome["threshold"]) - outcome["eer_percent"]) <= 100 / 8
        assert abs(100 * np.mean(target < outcome["threshold"]) - outcome["eer_percent"]) <= 100 / 8
        assert outcome["store_threshold"] == pytest.approx(opened.threshold(system), rel=1e-9)  # fused: a fit
        assert outcome["false_accept_percent"] == pytest.approx(100 * np.mean(nontarget >= outcome["store_threshold"]))
        assert outcome["false_reject_percent"] == pytest.approx(100 * np.mean(target < outcome["store_threshold"]))


def test_evaluate_names_the_files_that_it_could_not_score(evaluated, silence):
    _, result = evaluated
    assert f"not scored (2 trials): {silence}: 0.00 s of speech found" in result.err
    assert "not scored (1 trials)" in result.err
    assert "missing.flac" in result.err


@pytest.mark.parametrize("name", FIGURES)
def test_evaluate_draws_each_figure_for_screen_and_for_print(evaluated, name):
    folder, _ = evaluated
    assert is_png(folder / f"{name}.png")
    text = svg_text(folder / f"{name}.svg")
    drawn = {"fa_fr_one_vs_rest": "poar", "fa_fr_one_vs_one": "rpoao", "det": "boao"}.get(name, "worst_rival")
    assert drawn in text


def test_evaluate_draws_calibration_only_where_there_is_one_and_writes_nothing_else(evaluated):
    folder, _ = evaluated
    calibrated = read_scores(folder / "scores.txt")["refined_worst_rival"].llrs is not None
    names = FIGURES + (OF_CALIBRATION if calibrated else ())
    figures = {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")}
    assert {path.name for path in folder.iterdir()} == figures | {"scores.txt", "metrics.json", "report.html"}


def test_evaluate_writes_a_page_that_can_be_sent(evaluated, store, demo, silence):
    folder, _ = evaluated
    outline = check_self_contained((folder / "report.html").read_text(encoding="utf-8"))
    check_accessible(outline)
    assert {row[0].removesuffix(" (default)") for row in outline.table("Error rates and costs")[1:]} == SYSTEMS
    facts = dict(outline.table("The list")[1:])
    assert facts["Command"] == f"voiceclaim evaluate {store} kaldi.txt --root {demo} --out results --json"
    assert (facts["Trial list"], facts["Speakers enrolled"], facts["Files"]) == ("kaldi.txt", "4", "12")
    assert (facts["Target trials scored"], facts["Nontarget trials scored"], facts["Trials without a score"]) == (
        "8",
        "32",
        "3",
    )
    assert "Date" not in facts
    lost = {row[0]: row[1] for row in outline.table("Their trials count")[1:]}
    assert lost == {str(silence): "2", "verify/missing.flac": "1"}
    settings = parse_config(tomllib.loads(outline.all("pre")[0].text), source="report.html")
    assert settings == Store(store).load().config


def test_the_page_has_a_date_where_one_is_given(run, store, demo, trial_lines, tmp_path):
    text = "".join(f"{int(own)} {claim} {path}\n" for claim, path, own in trial_lines[:8])
    (tmp_path / "trials.txt").write_text(text, encoding="utf-8")
    words = ("--root", demo, "--out", "out", "--systems", "poar", "--date", "1 May <2026>")
    assert run("evaluate", store, "trials.txt", *words).code == 0
    outline = check_self_contained((tmp_path / "out/report.html").read_text(encoding="utf-8"))
    assert dict(outline.table("The list")[1:])["Date"] == "1 May <2026>"


def test_both_list_formats_give_the_same_scores_whatever_the_threads(
    evaluated, run, store, demo, trial_lines, tmp_path
):
    text = "".join(f"{int(own)} {claim} {path}\n" for claim, path, own in trial_lines)
    (tmp_path / "voxceleb.txt").write_text(text, encoding="utf-8")
    result = run("evaluate", store, "voxceleb.txt", "--root", demo, "--out", "out", "--systems", "poar, rpoao", "-j", 1)
    assert result.code == 0
    ours, theirs = read_scores(tmp_path / "out/scores.txt"), read_scores(evaluated[0] / "scores.txt")
    assert list(ours) == ["poar", "rpoao"]
    for system, outcome in ours.items():
        np.testing.assert_allclose(outcome.scores, theirs[system].scores, rtol=0, atol=1e-12)
    table = json.loads((tmp_path / "out/metrics.json").read_text(encoding="utf-8"))
    assert table["default_system"] in {"poar", "rpoao"}
    assert all(system in result.out for system in ours)
    assert "metrics.json" in result.out


def test_paths_are_relative_to_the_list_where_no_folder_is_named(run, store, heard, tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "a.flac").write_bytes(heard("anna").read_bytes())
    (tmp_path / "lists" / "trials.txt").write_text("anna a.flac target\nivan a.flac nontarget\n", encoding="utf-8")
    result = run("evaluate", store, "lists/trials.txt", "--out", "out", "--systems", "poar", "--json")
    assert result.code == 0
    assert json.loads(result.out)["systems"]["poar"]["n_failed"] == 0


def test_a_list_of_one_class_gives_no_eer_and_draws_nothing(run, store, demo, trial_lines, tmp_path):
    text = "".join(f"{claim} {path} nontarget\n" for claim, path, own in trial_lines if not own)
    (tmp_path / "trials.txt").write_text(text, encoding="utf-8")
    words = ("evaluate", store, "trials.txt", "--root", demo, "--out", "out", "--systems", "poar")
    result = run(*words)
    assert result.code == 0
    assert [line.split()[:2] for line in result.out.splitlines() if line.startswith("poar")] == [["poar", "*"]]
    outcome = json.loads((tmp_path / "out/metrics.json").read_text(encoding="utf-8"))["systems"]["poar"]
    for key in ("eer_percent", "eer_interval_percent", "threshold", "false_reject_percent"):
        assert outcome[key] is None
    assert 0 <= outcome["false_accept_percent"] <= 100
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"scores.txt", "metrics.json", "report.html"}


@pytest.mark.parametrize(
    ("words", "text", "reported"),
    [
        ((), "anna x.flac maybe\n", "line 1"),
        ((), "marta verify/marta/27_83_75.flac target\n", "'marta'"),
        ((), "anna missing.flac target\n", "missing.flac"),
        (("--systems", ","), "anna verify/anna/25_96_34.flac target\n", "system"),
        (("--out", "trials.txt"), "anna verify/anna/25_96_34.flac target\n", "trials.txt"),
    ],
)
def test_an_evaluation_that_cannot_be_is_an_error(run, store, demo, tmp_path, words, text, reported):
    (tmp_path / "trials.txt").write_text(text, encoding="utf-8")
    result = run("evaluate", store, "trials.txt", "--root", demo, "--out", "out", *words)
    assert (result.code, result.out) == (2, "")
    assert reported in result.err
    assert (tmp_path / "trials.txt").read_text(encoding="utf-8") == text


def test_plot_lays_evaluations_over_each_other(run, evaluated, tmp_path):
    folder, _ = evaluated
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for file in ("scores.txt", "metrics.json"):
            (tmp_path / name / file).write_bytes((folder / file).read_bytes())
    result = run("plot", "first", "second", "--out", "both.png")
    assert result.code == 0
    assert is_png(tmp_path / "both.png")
    result = run("plot", "first", "second", "--out", "both.svg", "--systems", "poar,rpoao")
    assert result.code == 0
    assert "both.svg" in result.out
    text = svg_text(tmp_path / "both.svg")
    for label in ("first: poar", "first: rpoao", "second: poar", "second: rpoao"):
        assert label in text
    assert "refined_worst_rival" not in text


def test_compare_sets_evaluations_side_by_side(run, evaluated, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for file in ("scores.txt", "metrics.json"):
            (tmp_path / name / file).write_bytes((evaluated[0] / file).read_bytes())
    result = run("compare", "first", "second", "--out", "both")
    assert result.code == 0
    assert "first: refined_worst_rival" in result.out
    assert "difference from first" in result.out
    names = {"compare.json", "compare.html", "compare_det.png", "compare_det.svg"}
    assert {path.name for path in (tmp_path / "both").iterdir()} == names
    assert all(name in result.out for name in names)
    check_accessible(check_self_contained((tmp_path / "both/compare.html").read_text(encoding="utf-8")))
    table = json.loads((tmp_path / "both/compare.json").read_text(encoding="utf-8"))
    assert table["differences"][0]["eer_percent"]["ci95"] == [0, 0]
    metrics = json.loads((evaluated[0] / "metrics.json").read_text(encoding="utf-8"))
    reported = json.loads(run("compare", "second", "first", "--system", "poar", "--json").out)
    for entry in reported["evaluations"]:
        # The same seed as the store's, and so the same intervals as in the evaluation.
        for key in ("eer_percent", "eer_percent_ci95", "min_dcf", "min_cllr"):
            assert entry[key] == metrics["systems"]["poar"][key]
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second", "both"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("plot", "results", "--out", "x.png", "--systems", "oracle"), "oracle"),
        (("plot", "results", "--out", "no/such/folder/x.png"), "x.png"),
        (("compare", "results"), "two evaluation folders"),
        (("compare", "results", "nowhere"), "nowhere"),
        (("compare", "results", "results", "--system", "oracle"), "oracle"),
        (("compare", "results", "results", "--out", "kaldi.txt"), "kaldi.txt"),
    ],
)
def test_a_plot_or_comparison_that_is_impossible_is_an_error(run_in, evaluated, words, reason):
    result = run_in(evaluated[0].parent, *words)
    assert (result.code, result.out) == (2, "")
    assert reason in result.err


# Speakers


def test_speakers_lists_shows_and_removes(run, copied, voices):
    listed = run("speakers", copied)
    assert listed.code == 0
    header, *rows = listed.out.splitlines()
    assert header.split()[0] == "speaker"
    assert [row.split()[:3] for row in rows] == [[name, "speaker", "12"] for name in voices]
    (reported,) = lines(run("speakers", copied, "--json").out)
    assert reported["revision"] == 1
    assert [speaker["name"] for speaker in reported["speakers"]] == list(voices)
    keys = {"name", "role", "seconds", "frames", "utterances", "centroids"}
    assert all(speaker.keys() == keys for speaker in reported["speakers"])
    (shown,) = lines(run("speakers", copied, "show", "ivan", "--json").out)
    assert shown == reported["speakers"][2]
    removed = run("speakers", copied, "remove", "ivan", "--json")
    assert removed.code == 0
    assert lines(removed.out) == [{"removed": "ivan", "left": 3}]
    assert Store(copied).load().names == ("anna", "dexter", "lars")


@pytest.mark.parametrize(("words", "reason"), [(("remove", "Ivann"), "'ivan'"), (("remove",), "requires a speaker's")])
def test_mistakes_of_the_speakers_command_change_nothing(run, copied, words, reason):
    before = copied.read_bytes()
    result = run("speakers", copied, *words)
    assert (result.code, result.out) == (2, "")
    assert reason in result.err
    assert copied.read_bytes() == before


# The demo


@pytest.mark.slow
def test_the_demo_does_the_main_job_end_to_end(run, tmp_path):
    result = run("demo", "--out", "here")
    assert result.code == 0
    assert "12 speakers" in result.out
    assert "'anna' accepted" in result.out
    assert "rejected" in result.out
    assert "nothing about real ones" in result.out
    table = json.loads((tmp_path / "here/evaluation/metrics.json").read_text(encoding="utf-8"))
    default = table["systems"][table["default_system"]]
    assert (default["n_target"], default["n_nontarget"], default["n_failed"]) == (72, 936, 0)
    assert default["eer_percent"] < 5
    assert is_png(tmp_path / "here/evaluation/det.png")
    check_self_contained((tmp_path / "here/evaluation/report.html").read_text(encoding="utf-8"))
    assert len(Store(tmp_path / "here/voices.store").load().names) == 12
