"""Help, and the commands that change a store: enroll, speakers, and the demo."""

from __future__ import annotations

import importlib.metadata
import json

import pytest
from html_outline import check_self_contained

import pipeline
from pipeline.cli.demo import PAPER
from pipeline.store.store import Store

SETTINGS = tuple(f"--set={setting}" for setting in ("features.rate=8000", "codebook.min_seconds=3"))
COMMANDS = (
    "enroll", "record", "verify", "identify", "evaluate", "calibrate", "plot", "compare", "convert", "speakers", "demo",
    "audit", "serve", "seal",
)  # fmt: skip


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_has_an_example_that_starts_it(inside, name):
    result = inside(name, "--help")
    assert result.code == 0
    assert f"Example: voiceclaim {name}" in " ".join(result.out.split())


def test_help_lists_every_command_and_the_meaning_of_exit_codes(inside):
    result = inside("--help")
    assert result.code == 0
    listed = [line.split()[0] for line in result.out.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed == list(COMMANDS)
    assert "0 done or accepted, 1 rejected, 2 an error, 3 not enough speech" in " ".join(result.out.split())
    assert inside("-h").out == result.out
    bare, unknown = inside(), inside("frobnicate")
    assert "Usage:" in bare.out + bare.err
    assert unknown.code == 2
    assert "frobnicate" in unknown.err


def test_the_installed_command_starts_the_command_line(run):
    entries = importlib.metadata.entry_points(group="console_scripts", name="voiceclaim")
    assert {entry.value for entry in entries} == {"pipeline.cli.main:main"}
    assert run("--version").out == f"voiceclaim {pipeline.__version__}\n"


# Enroll


def test_enroll_reports_who_was_enrolled_refused_and_skipped(inside, corpus_of, tmp_path, garbage):
    root = corpus_of(anna=4, dexter=1, ivan=4)
    for name in ("broken.wav", "memo.m4a"):
        (root / "ivan" / name).write_bytes(garbage.read_bytes())
    (root / "ivan" / ".DS_Store").touch()
    words = ("enroll", root, *SETTINGS, "--set", "codebook.centroids=30", "--jobs", 2)
    result = inside(*words, "--store", "s", "--json")
    last = "voiceclaim: not everything was enrolled: 1 speakers refused, 2 files not read\n"
    assert (result.code, result.err) == (4, last)
    (reported,) = result.lines
    assert reported.keys() == {
        "store", "enrolled", "refused", "skipped", "warnings", "machines", "held_out_trials", "expected",
        "elapsed_seconds",
    }  # fmt: skip
    assert reported["store"] == "s"
    assert [speaker["name"] for speaker in reported["enrolled"]] == ["anna", "ivan"]
    for speaker in reported["enrolled"]:
        assert speaker.keys() == {"name", "utterances", "seconds", "frames", "centroids", "short_of_centroids"}
        assert (speaker["utterances"], speaker["centroids"], speaker["short_of_centroids"]) == (4, 30, False)
        assert speaker["seconds"] == pytest.approx(0.01 * speaker["frames"])
    assert [entry["name"] for entry in reported["refused"]] == ["dexter"]
    assert "3.00 s needed" in reported["refused"][0]["reason"]
    skipped = {str(root / "ivan" / name) for name in ("memo.m4a", "broken.wav")}
    assert {entry["file"] for entry in reported["skipped"]} == skipped
    assert reported["machines"] == 2 + 1 + 2
    assert reported["held_out_trials"] > 0
    assert reported["elapsed_seconds"] > 0
    stored = Store(tmp_path / "s").load()
    assert stored.names == ("anna", "ivan")
    assert (stored.config.features.rate, stored.config.codebook.centroids) == (8000, 30)
    in_words = inside(*words, "--store", "t", "--set", "codebook.centroids=2000")
    assert in_words.code == 4
    assert in_words.err.endswith(last)
    assert all(f"skipped {file}: " in in_words.err for file in skipped)
    assert "'dexter'" in in_words.err
    assert "2 enrolled, 1 refused, 2 files skipped" in in_words.out
    assert in_words.out.count("(few)") == 2  # nobody has 2000 frames


def test_enroll_takes_settings_by_name_and_only_the_speakers_asked_for(inside, corpus_of, tmp_path):
    root = corpus_of(anna=3, ivan=3, lars=3)
    words = ("--config", "xin2002", "--set", "codebook.centroids=20", "--only", "a*", "--only", "lars")
    assert inside("enroll", root, "--store", "s", *words).code == 0
    stored = Store(tmp_path / "s").load()
    assert stored.names == ("anna", "lars")
    assert (stored.config.features.rate, stored.config.scoring.system) == (8000, "rpoao")
    assert inside("enroll", root, "--store", "s", "--only", "ivan", "--background").code == 0
    stored = Store(tmp_path / "s").load()
    assert (stored.names, len(stored.speakers)) == (("anna", "lars"), 3)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--set", "codebook.centroid=3"), "codebook.centroid: there is no such setting"),
        (("--config", "xin1999"), "xin1999"),
        (("--only", "zz*"), "zz*"),
        (("--backend", "dask"), "needs --scheduler ADDRESS"),
        (("--scheduler", "tcp://x:1"), "requires --backend dask"),
        (("--backend", "slurm"), "--backend"),
        (("--check", "noise"), "CHECK=off|warn|refuse"),
    ],
)
def test_mistakes_at_enrollment_are_errors_that_leave_no_store(refused, demo, tmp_path, words, reason):
    assert reason in refused("enroll", demo / "enroll", "--store", "s", *words)
    assert "nowhere" in refused("enroll", "nowhere", "--store", "s")
    assert not list(tmp_path.iterdir())


def test_a_corpus_of_too_little_speech_has_its_own_exit_code(inside, corpus_of, tmp_path):
    result = inside("enroll", corpus_of(anna=1), "--store", "s", *SETTINGS)
    assert (result.code, result.out) == (3, "")
    assert "3.00 s needed" in result.err
    assert not (tmp_path / "s").exists()


# Speakers


def test_speakers_lists_shows_and_removes(inside, refused, copied, voices):
    header, *rows = inside("speakers", copied).out.splitlines()
    assert header.split()[0] == "speaker"
    assert [row.split()[:3] for row in rows] == [[name, "speaker", "12"] for name in voices]
    (reported,) = inside("speakers", copied, "--json").lines
    assert reported["revision"] == 1
    assert [speaker["name"] for speaker in reported["speakers"]] == list(voices)
    keys = {"name", "role", "seconds", "frames", "utterances", "centroids"}
    assert all(speaker.keys() == keys for speaker in reported["speakers"])
    assert inside("speakers", copied, "show", "ivan", "--json").lines == [reported["speakers"][2]]
    before = copied.read_bytes()
    assert "'ivan'" in refused("speakers", copied, "remove", "Ivann")
    assert "requires a speaker's" in refused("speakers", copied, "remove")
    assert "erase" in refused("speakers", copied, "erase", "ivan")
    assert copied.read_bytes() == before
    removed = inside("speakers", copied, "remove", "ivan", "--json")
    assert (removed.code, removed.lines) == (0, [{"removed": "ivan", "left": 3}])
    assert Store(copied).load().names == ("anna", "dexter", "lars")


# The demo


@pytest.mark.slow
@pytest.mark.slow
def test_the_demo_does_the_main_job_end_to_end(run, tmp_path):
    result = run("demo", "--out", "here")
    assert result.code == 0
    for words in ("12 speakers", "'anna' accepted", "rejected", "nothing about real ones"):
        assert words in result.out
    rates = {}
    for condition in ("recorded", "babble", "telephone"):
        folder = tmp_path / f"here/results-{condition}"
        table = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        systems = table["systems"]
        assert (systems["fused"]["n_target"], systems["fused"]["n_nontarget"]) == (72, 936)
        assert systems["fused"]["n_failed"] == 0
        rates[condition] = {name: entry["eer_percent"] for name, entry in systems.items()}
        check_self_contained((folder / "report.html").read_text(encoding="utf-8"))
    # Degraded audio is harder, and by far the more so for the paper's rules.
    assert rates["recorded"]["fused"] < 1
    for condition in ("babble", "telephone"):
        paper = min(rate for name, rate in rates[condition].items() if name != "fused")
        assert 0 < rates[condition]["fused"] < paper / 2
        lines = [line.split() for line in result.out.splitlines() if line.startswith(("fused *", *PAPER))]
        assert sorted(float(rate) for line in lines for rate in line[-3:]) == sorted(
            round(rate, 2) for of in rates.values() for rate in of.values()
        )
    assert (tmp_path / "here/det.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert result.out.splitlines()[-1] == "report: here/results-babble/report.html"
    assert len(Store(tmp_path / "here/voices.store").load().names) == 12
