"""Help, and the commands that change a store: enroll, speakers, and the demo."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading

import pytest
from html_outline import check_self_contained

import pipeline
from pipeline.cli.demo import remove_earlier
from pipeline.cli.options import PAPER
from pipeline.config import load_config
from pipeline.store.store import Store

SETTINGS = tuple(f"--set={setting}" for setting in ("features.rate=8000", "codebook.min_seconds=3"))
COMMANDS = (
    "enroll", "background", "record", "verify", "identify", "trials", "evaluate", "calibrate", "plot", "compare",
    "convert", "compare-voices", "demo", "audit", "serve", "seal",
)  # fmt: skip
GROUPS = {"speakers": ("list", "show", "remove", "rename", "export"), "store": ("show", "backup", "restore")}


# Help


@pytest.mark.parametrize("words", [*COMMANDS, *(f"{group} {name}" for group in GROUPS for name in GROUPS[group])])
def test_every_commands_help_has_an_example_that_starts_it(inside, words):
    result = inside(*words.split(), "--help")
    assert result.code == 0
    assert f"• voiceclaim {words} " in " ".join(result.out.split("Examples:")[1].split())


def test_help_lists_every_command_and_the_meaning_of_exit_codes(inside):
    result = inside("--help")
    assert result.code == 0
    groups = result.out.split("╭─ ")[2:]
    assert [group.split()[0] for group in groups] == ["Every", "Evaluation", "Stores", "Service"]
    listed = [line.split()[1] for group in groups for line in group.splitlines()[1:] if re.match("│ [a-z]", line)]
    assert sorted(listed) == sorted([*COMMANDS, *GROUPS])
    assert "..." not in "".join(groups)
    assert "0 done or accepted, 1 rejected, 2 an error, 3 not enough speech" in " ".join(result.out.split())
    assert inside("-h").out == result.out
    bare = inside()
    assert (bare.code, "Usage:" in bare.out, bare.err) == (2, True, "")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("frobnicate",), "No such command 'frobnicate'; see voiceclaim --help"),
        (("verfy",), "No such command 'verfy'. Did you mean 'verify'?; see voiceclaim --help"),
        (("verify", "s", "--clam", "x"), "No such option: --clam (Possible options: --claim); see voiceclaim verify"),
        (("verify", "s"), "Missing option '--claim'; see voiceclaim verify --help"),
        (("verify",), "Missing argument 'STORE'; see voiceclaim verify --help"),
        (("speakers", "lst", "s"), "No such command 'lst'. Did you mean 'list'?; see voiceclaim speakers --help"),
        (("serve", "s", "--port", "x"), "Invalid value for '--port'"),
    ],
)  # fmt: skip
def test_words_that_are_no_command_are_told_in_one_line_with_what_was_meant(refused, words, line):
    told = refused(*words)
    assert told.startswith(f"voiceclaim: {line.removeprefix('Invalid value: ')}")
    assert told.count("\n") == 1


def test_the_shell_completes_commands_options_and_enrolled_names(command, store, tmp_path):
    def completed(words: str) -> list[str]:
        typed = {"COMP_WORDS": f"voiceclaim {words}", "COMP_CWORD": str(len(words.split(" ")))}
        done = subprocess.run(
            command,
            env={**os.environ, "_VOICECLAIM_COMPLETE": "complete_bash", **typed},
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        return done.stdout.split()

    assert completed("ver") == ["verify"]
    assert "--claim" in completed("verify --cl")
    assert completed(f"verify {store} --claim a") == ["anna"]
    assert completed(f"speakers show {store} i") == ["ivan"]
    assert completed("speakers show nowhere.store i") == []


def test_the_installed_command_starts_the_command_line(run):
    entries = importlib.metadata.entry_points(group="console_scripts", name="voiceclaim")
    assert {entry.value for entry in entries} == {"pipeline.cli.main:main"}
    assert run("--version").out == f"voiceclaim {pipeline.__version__}\n"
    module = (sys.executable, "-m", "pipeline.cli.main", "--version")
    assert subprocess.run(module, capture_output=True, check=True, text=True).stdout == run("--version").out


def test_an_interruption_while_modules_load_is_as_quiet_as_later_on():
    program = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from pipeline.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "voiceclaim: interrupted\n")


# Enroll


def test_a_user_beside_the_background_voices_is_told_from_others(inside, corpus_of, heard):
    config = ("--config", "lean", "--set", "supervector.speeds_below=0")
    assert inside("background", "--store", "s", *config).out == "36 synthetic background voices enrolled -> s\n"
    (listed,) = inside("speakers", "list", "s", "--json").lines
    assert {speaker["role"] for speaker in listed["speakers"]} == {"background"}
    enrolled = inside("enroll", corpus_of(bruno=12), "--store", "s")
    assert enrolled.code == 0
    assert "people who are not enrolled are accepted more often" not in enrolled.err
    for name, code in (("bruno", 0), ("karla", 1), ("lars", 1)):
        assert inside("verify", "s", "--claim", "bruno", heard(name)).code == code
    again = inside("background", "--store", "s")
    assert again.code == 2
    assert "enrolled already" in again.err


@pytest.mark.parametrize("recordings", [1, 2])
def test_expected_errors_from_one_recording_a_speaker_are_noted_to_be_of_one_day(inside, corpus_of, recordings):
    root = corpus_of(anna=recordings, ivan=recordings)
    enrolled = inside("enroll", root, "--store", "s", *SETTINGS, "--set", "codebook.min_seconds=1")
    assert enrolled.code == 0
    assert "expected on audio like this" in enrolled.out
    assert ("on another day, true claims are rejected more often" in enrolled.err) == (recordings == 1)


def test_background_voices_that_are_refused_are_named(inside):
    words = (
        "background",
        "--set",
        "codebook.min_seconds=20",
        "--config",
        "lean",
        "--set",
        "supervector.speeds_below=0",
    )
    result = inside(*words, "--store", "s")
    assert (result.code, result.out) == (4, "4 synthetic background voices enrolled -> s\n")
    assert "refused speaker 'synthetic espeak-" in result.err
    assert result.err.splitlines()[-1] == "voiceclaim: not everything was enrolled: 32 voices refused"
    [table] = inside(*words, "--store", "t", "--json").lines
    assert (len(table["enrolled"]), len(table["refused"])) == (4, 32)


def test_enroll_reports_who_was_enrolled_refused_and_skipped(inside, corpus_of, tmp_path, garbage):
    root = corpus_of(anna=4, dexter=1, ivan=4)
    for name in ("broken.wav", "memo.m4a"):
        (root / "ivan" / name).write_bytes(garbage.read_bytes())
    (root / "ivan" / ".DS_Store").touch()
    words = ("enroll", root, *SETTINGS, "--set", "codebook.centroids=30", "--jobs", 2)
    result = inside(*words, "--store", "s", "--json")
    last = "voiceclaim: not everything was enrolled: 1 speakers refused, 2 files or folders not read\n"
    assert (result.code, result.err) == (4, last)
    (reported,) = result.lines
    assert reported.keys() == {
        "store", "enrolled", "refused", "skipped", "left_out", "warnings", "narrow_band", "machines", "held_out_trials",
        "expected", "elapsed_seconds",
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
    assert reported["machines"] == 2 + 1  # one-class, pairs
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


# Speakers


def test_speakers_lists_shows_and_removes(inside, refused, copied, voices):
    header, *rows = inside("speakers", "list", copied).out.splitlines()
    assert header.split()[0] == "speaker"
    assert [row.split()[:3] for row in rows] == [[name, "speaker", "12"] for name in voices]
    (reported,) = inside("speakers", "list", copied, "--json").lines
    assert reported["revision"] == 1
    assert [speaker["name"] for speaker in reported["speakers"]] == list(voices)
    keys = {"name", "role", "seconds", "frames", "utterances", "centroids"}
    assert all(speaker.keys() == keys for speaker in reported["speakers"])
    assert inside("speakers", "show", copied, "ivan", "--json").lines == [reported["speakers"][2]]
    before = copied.read_bytes()
    for action in ("show", "remove", "export", "rename"):
        words = {"export": ("--out", "x.json"), "rename": ("lars2",)}.get(action, ())
        assert "'ivan'" in refused("speakers", action, copied, "Ivann", *words)
        assert "NAME" in refused("speakers", action, copied)
    assert "no space at its ends" in refused("speakers", "rename", copied, "ivan", " ")
    assert copied.read_bytes() == before
    removed = inside("speakers", "remove", copied, "ivan", "--json")
    assert (removed.code, removed.lines) == (0, [{"removed": "ivan", "left": 3}])
    assert Store(copied).load().names == ("anna", "dexter", "lars")


def test_a_renamed_speaker_keeps_every_number_and_leaves_the_old_name_nowhere(inside, copied, heard, tmp_path):
    log = tmp_path / "log.jsonl"
    before = inside("verify", copied, "--claim", "anna", "--log", log, "--json", heard("anna")).lines[0]
    assert inside("speakers", "rename", copied, "anna", "Änne K.", "--log", log, "--json").lines == [
        {"renamed": "anna", "to": "Änne K."}
    ]
    again = inside("verify", copied, "--claim", "Änne K.", "--log", log, "--json", heard("anna"))
    after = again.lines[0]
    assert (after["score"], after["llr"], after["threshold"]) == (before["score"], before["llr"], before["threshold"])
    assert after["duplicate_suspected"] is True  # what was accepted under the old name is known under the new one
    assert b"anna" not in copied.read_bytes()
    assert Store(copied).check().names == ("Änne K.", "dexter", "ivan", "lars")
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    (entry,) = [entry for entry in entries if entry["event"] == "rename"]
    assert (entry["speaker"], entry["to"], entry["decision"]) == ("anna", "Änne K.", "renamed")


@pytest.mark.parametrize("error", [MemoryError(), MemoryError("Unable to allocate 9 TiB")])
def test_memory_that_runs_out_is_an_error_in_one_line_and_no_rejection(refused, monkeypatch, error):
    def load(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Store, "load", load)
    line = refused("verify", "s.store", "--claim", "anna", "call.flac")
    assert line.startswith(f"voiceclaim: not enough memory: {str(error) or 'an allocation failed'}; ")


# Stores


def test_what_a_store_holds_is_shown(inside, copied, voices, tiny):
    (table,) = inside("store", "show", copied, "--json").lines
    model = Store(copied).load()
    assert table["bytes"] == copied.stat().st_size
    counts = {"speakers": 4, "background_speakers": 0, "recordings": 12 * len(voices), "revision": 1, "sealed": False}
    assert {key: table[key] for key in counts} == counts
    trials = model.trials([])
    assert table["true_claims"] + table["impostors"] == len(trials)
    assert 0 < table["true_claims"] < table["impostors"]
    again = load_config(overrides=[f"{key}={json.dumps(value)}" for key, value in table["settings"].items()])
    assert again == tiny == model.config  # what is shown makes the same settings
    assert "machines.kinds" in table["settings"] and "features.order" not in table["settings"]
    assert inside("store", "restore", copied, "plain.store").code == 0
    lines = inside("store", "show", "plain.store").out.splitlines()
    assert "4 speakers and 0 background speakers, 48 recordings" in lines[2]
    assert f"{table['true_claims']} true claims and {table['impostors']} by impostors" in lines[3]
    assert "  features.rate = 8000" in lines[5:]


@contextlib.contextmanager
def writer_for(path, seconds: float):
    """Another process that writes to the store at ``path``, and is done after so many seconds."""
    hold = "with Store(sys.argv[1]).writing():\n print(flush=True)\n input()"
    words = [sys.executable, "-c", f"import sys\nfrom pipeline.store.store import Store\n{hold}", str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            process.kill()


def test_a_command_waits_for_another_writer_and_says_so(inside, refused, copied):
    with writer_for(copied, 600):
        words = ("speakers", "rename", copied, "anna", "a")
        assert "another process is writing to this store; try again" in refused(*words, "--wait", 0)
        told = refused(*words, "--wait", 0.3).splitlines()
        assert told[0] == f"{copied}: another process is writing to this store; waiting for up to 0.3 s (--wait)"
        assert len(told) == 2
    with writer_for(copied, 1):
        result = inside("speakers", "remove", copied, "ivan", "--jobs", 1, "--wait", 300)
    assert (result.code, result.err.count("waiting for up to 300 s")) == (0, 1)
    assert Store(copied).load().names == ("anna", "dexter", "lars")


@pytest.mark.parametrize(
    "words",
    [
        ("enroll", "DIR", "--store", "STORE"), ("background", "--store", "STORE"), ("seal", "STORE", "--key", "KEY"),
        ("calibrate", "STORE", "--reset"),
    ],
)  # fmt: skip
def test_every_command_that_writes_waits(refused, copied, corpus_of, tmp_path, words):
    (tmp_path / "key").write_bytes(b"k" * 32)
    places = {"STORE": copied, "KEY": tmp_path / "key"}
    with writer_for(copied, 600):
        given = [corpus_of(greta=3) if word == "DIR" else places.get(word, word) for word in words]
        assert "waiting for up to 0.1 s" in refused(*given, "--wait", 0.1)


# The demo


def test_the_demo_replaces_its_own_store_only_and_leaves_what_is_beside_it(refused, tmp_path):
    store, backup = tmp_path / "here" / "voices.store", tmp_path / "here" / "voices.store.backup"
    store.parent.mkdir()
    for file in (store, backup):
        file.write_bytes(b"mine")
    assert "no demo made this one; use another --out" in refused("demo", "--out", "here")
    assert store.read_bytes() == b"mine"
    (store.parent / "babble").mkdir()
    store.with_name("voices.store-wal").touch()
    remove_earlier(store)
    assert [file.name for file in store.parent.iterdir() if file.is_file()] == [backup.name]


@pytest.mark.slow
def test_the_demo_does_the_main_job_end_to_end(run, tmp_path):
    result = run("demo", "--out", "here")
    assert result.code == 0
    for words in ("12 speakers", "accepted 'anna'", "rejected 'bruno'", "nothing about real ones"):
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
