"""The commands with tables of recordings, and with a folder of results that cannot be written."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from populations import TINY


def enrolled(result) -> dict[str, int]:
    """Number of recordings by the name of whom a command enrolled."""
    return {one["name"]: one["utterances"] for one in json.loads(result.out)["enrolled"]}


def test_enroll_takes_a_table_and_a_folder_with_speakers_in_the_names_of_files(inside, demo, tmp_path):
    (tmp_path / "flat").mkdir()
    rows = ["path,speaker"]
    for voice in ("anna", "ivan"):
        for number, file in enumerate(sorted((demo / "enroll" / voice).glob("*.flac"))):
            (tmp_path / "flat" / f"{voice}_{number}.flac").write_bytes(file.read_bytes())
            rows.append(f"flat/{voice}_{number}.flac,{voice}")
    (tmp_path / "all.csv").write_text("\n".join(rows) + "\n")
    words = [*(word for setting in TINY for word in ("--set", setting)), "--json"]
    table = inside("enroll", "all.csv", "--store", "t.store", *words)
    names = inside("enroll", "flat", "--store", "n.store", "--speaker-pattern", "([^_-]+)", *words)
    assert enrolled(table) == enrolled(names)
    assert set(enrolled(table)) == {"anna", "ivan"}
    refused = inside("enroll", "flat", "--store", "n.store", "--speaker-pattern", "[a-z]+", *words)
    assert (refused.code, "a group in brackets must be the speaker" in refused.err) == (2, True)


@pytest.mark.parametrize("scores", [False, True])
def test_a_folder_of_results_that_cannot_be_written_is_refused_before_scoring(inside, store, tmp_path, scores):
    (tmp_path / "out").touch()
    (tmp_path / "trials.txt").write_text("anna nowhere.wav target\nivan nowhere.wav nontarget\n")
    (tmp_path / "scores.txt").write_text("anna u 1.5\n")
    words = ("--scores", "scores.txt", "--key", "nowhere.txt") if scores else (store, "trials.txt")
    for out in ("out", "out/below"):
        result = inside("evaluate", *words, "--out", out)
        assert (result.code, result.out) == (2, "")
        assert f"{out}: a folder to write to was expected" in result.err
        assert "nowhere" not in result.err


def test_a_refused_list_leaves_no_folder_and_what_was_there_stays(inside, store, tmp_path):
    (tmp_path / "trials.txt").write_text("nope nowhere.wav target\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for out in ("new/below", "mine", "mine/below"):
        assert inside("evaluate", store, "trials.txt", "--out", out).code == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "notes.txt", "trials.txt"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system ends a process without a signal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_list_whose_writing_is_ended_by_a_signal_leaves_no_file(command, tmp_path, number):
    lines = [f"model{k} segment{k} 0.5\n" for k in range(1000)]
    (tmp_path / "long.txt").write_text("".join(lines) * 300)
    words = ["convert", "long.txt", "out.csv", "--to", "csv"]
    with subprocess.Popen([*command, *words], cwd=tmp_path, stderr=subprocess.PIPE) as running:
        while running.poll() is None and not any(tmp_path.glob("out.csv*")):
            time.sleep(0.002)
        running.send_signal(number)
        reported = running.communicate(timeout=60)[1]
    assert running.returncode == 128 + number
    assert b"Traceback" not in reported
    assert [path.name for path in tmp_path.iterdir()] == ["long.txt"]
