"""The audit log at the command: outcomes and changes are logged, and `voiceclaim audit` checks the chain."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import pytest
import typer
from audit_logs import tables_in, written

from pipeline.cli.audit import audit as command
from pipeline.cli.enroll import enroll as enroll_command
from pipeline.cli.speakers import remove
from pipeline.errors import AuditError, EnrollmentRefusedError, SpeakerExistsError, UnknownSpeakerError
from pipeline.store.store import Store


def test_the_command_logs_outcomes_and_checks_the_chain(run, store, heard, tmp_path):
    log = tmp_path / "calls.jsonl"
    done = run("verify", store, "--claim", "anna", "--log", log, heard("anna"), heard("ivan"), "missing.wav")
    assert done.code == 2
    lines = tables_in(log)[1:]
    assert [line["decision"] for line in lines] == ["accepted", "rejected", None]
    assert lines[2]["error"] == "AudioError"
    assert "missing" not in log.read_text()
    log.write_bytes(log.read_bytes().replace(b'"decision":"rejected"', b'"decision":"accepted"'))
    broken = run("audit", log)
    assert (broken.code, broken.out) == (2, "")
    assert broken.err.startswith(f"voiceclaim: {log}, line 3: its hash is not that of its content")


def test_the_command_reports_lines_and_an_unfinished_one(tmp_path, capsys):
    path = tmp_path / "calls.jsonl"
    written(path, 3)
    command(path)
    assert capsys.readouterr().out.splitlines()[0] == f"{path}: 4 lines intact: 1 open, 3 verify"
    command(path, as_json=True, anchor=tables_in(path)[-1]["hash"])
    table = json.loads(capsys.readouterr().out)
    assert (table["lines"], table["events"], table["torn"]) == (4, {"open": 1, "verify": 3}, 0)
    assert table["last_hash"] == tables_in(path)[-1]["hash"]
    with path.open("ab") as file:
        file.write(b'{"n":5,"time":"20')
    with pytest.raises(typer.Exit) as ended:
        command(path)
    assert ended.value.exit_code == 2
    shown = capsys.readouterr()
    assert "4 lines intact" in shown.out
    assert "line 5: 17 bytes of an incomplete line" in shown.err


def test_the_command_logs_refused_and_failed_enrollments(copied, demo, tmp_path, capsys):
    log = tmp_path / "changes.jsonl"
    again = tmp_path / "corpus" / "zoe"
    shutil.copytree(demo / "enroll" / "lars", again)
    with pytest.raises(EnrollmentRefusedError):
        enroll_command(again.parent, copied, log=log, as_json=True)
    with pytest.raises(SpeakerExistsError):
        enroll_command(demo / "enroll", copied, only=["anna", "hugo"], log=log, as_json=True)
    assert capsys.readouterr().out == ""
    lines = tables_in(log)[1:]
    assert [(line["speaker"], line["decision"], line.get("checks"), line.get("error")) for line in lines] == [
        ("zoe", "refused", "duplicates", None),
        ("anna", None, None, "SpeakerExistsError"),
        ("hugo", None, None, "SpeakerExistsError"),
    ]
    assert {line["event"] for line in lines} == {"enroll"}


def test_a_log_that_cannot_be_written_does_not_hide_the_error(copied, demo, tmp_path, capsys):
    with pytest.raises(UnknownSpeakerError):
        remove(copied, "nobody", log=tmp_path)  # a folder
    assert "the audit log cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("speakers", "rename", "copy.store", "anna", "zoe"), ("speakers", "remove", "copy.store", "anna"),
        ("enroll", "corpus", "--store", "copy.store"), ("calibrate", "copy.store", "--reset"),
    ],
    ids=lambda words: words[1],
)  # fmt: skip
def test_nothing_is_changed_that_cannot_be_logged(refused, copied, corpus_of, tmp_path, words):
    corpus_of(hugo=8)
    (tmp_path / "log").write_bytes(b"notes\n")
    state = Store(copied).state()
    said = refused(*words, "--log", "log")
    assert said.count("its last line is not valid") == 1
    assert Store(copied).state() == state


def test_a_key_that_cannot_be_read_stops_a_change_before_it_is_made(copied, tmp_path):
    with pytest.raises(AuditError, match="the key cannot be read"):
        remove(copied, "anna", log=tmp_path / "log", log_key=tmp_path / "none")
    assert "anna" in Store(copied).load().names


_INTERRUPTED = """
import os, signal
from pipeline.store.rows import Rows
run, at = Rows.run, {!r}
def interrupted(self, sql, *values):
    found = run(self, sql, *values)
    if sql.startswith(at):
        os.kill(os.getpid(), {})
    return found
Rows.run = interrupted
from pipeline.cli.main import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("words", "event"),
    [
        (("speakers", "rename", "copy.store", "lars", "zoe"), "rename"),
        (("speakers", "remove", "copy.store", "lars"), "remove"),
        (("enroll", "corpus", "--store", "copy.store"), "enroll"),
        (("calibrate", "copy.store", "--reset"), "calibrate"),
    ],
    ids=lambda given: None if isinstance(given, str) else given[1],
)
@pytest.mark.parametrize("at", ["INSERT INTO store", "COMMIT"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_no_change_without_its_line(copied, corpus_of, tmp_path, words, event, at, number):
    corpus_of(hugo=8)
    identity, revision = Store(copied).state()
    program = [sys.executable, "-c", _INTERRUPTED.format(at, int(number)), *words, "--log", "log"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    committed = at == "COMMIT"
    assert done.returncode == (0 if committed else 128 + number), done.stderr
    assert Store(copied).state() == (identity, revision + committed)
    logged = tables_in(tmp_path / "log")[1:] if (tmp_path / "log").exists() else []
    assert [line["event"] for line in logged] == [event] * committed
    said = "interrupted; a store that was being changed is changed wholly or not at all" in done.stderr
    assert said == (number == signal.SIGINT and not committed)
