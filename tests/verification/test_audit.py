"""Audit log: detection of tampering, what a chain cannot detect, and killed writers."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.cli.audit import audit as command
from pipeline.cli.enroll import enroll as enroll_command
from pipeline.cli.speakers import remove
from pipeline.errors import AuditError, EnrollmentRefusedError, SpeakerExistsError, UnknownSpeakerError
from pipeline.scoring.decisions import Decision
from pipeline.store.reading import VERSION
from pipeline.store.store import Store
from pipeline.verification import audit
from pipeline.verification.audit import AuditLog, check_log, read_key
from pipeline.verification.audit_events import verification_recorder
from pipeline.verification.verifier import Verifier

KEY = b"sixteen bytes or more"
ABOUT_STORE = {"store", "store_version", "store_revision", "settings"}
ABOUT_LINE = {"n", "time", "event", "previous", "hash"}
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=[None, KEY], ids=["without a key", "with a key"])
def key(request) -> bytes | None:
    return request.param


def written(path: Path, count: int = 4, key: bytes | None = None) -> list[bytes]:
    """Write a log of an opening line and ``count`` more, and return its lines."""
    log = AuditLog(path, key=key)
    for number in range(count):
        log.append("verify", {"claim": f"anna {number}", "decision": "accepted", "score": number / 3})
    return path.read_bytes().splitlines(keepends=True)


def tables_in(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def hash_of(text: bytes, key: bytes | None) -> str:
    return (hashlib.sha256(text) if key is None else hmac.new(key, text, "sha256")).hexdigest()


def holds(path: Path, key: bytes | None = None, anchor: str | None = None) -> bool:
    """True if the check finds no fault."""
    try:
        return check_log(path, key=key, anchor=anchor).torn == 0
    except AuditError as error:
        assert str(path) in str(error)
        return False


# A sound log


def test_every_line_is_json_and_hashes_what_came_before(tmp_path, key):
    before = datetime.now(UTC) - timedelta(seconds=1)
    lines = written(tmp_path / "log", 3, key)
    previous = "0" * 64
    for number, line in enumerate(lines, start=1):
        table = json.loads(line)
        text, _, _ = line.rpartition(b',"hash":"')
        assert table["hash"] == hash_of(text, key)
        assert table["previous"] == previous
        assert table["n"] == number
        assert before < datetime.fromisoformat(table["time"]) < datetime.now(UTC)
        previous = table["hash"]
    first = json.loads(lines[0])
    opening = [first[name] for name in ("event", "format", "version", "keyed")]
    assert opening == ["open", "voiceclaim-audit", 1, key is not None]
    report = check_log(tmp_path / "log", key=key)
    assert (report.lines, report.events, report.torn) == (4, {"open": 1, "verify": 3}, 0)
    assert (report.last_hash, report.keyed) == (previous, key is not None)
    assert report.first_time == first["time"]
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


@settings(SETTINGS, max_examples=10)  # each waits for the disk
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
        max_size=6,
    )
)
def test_any_fields_are_read_back(tmp_path, fields):
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    AuditLog(path).append("verify", fields)
    table = tables_in(path)[-1]
    assert check_log(path).lines == 2
    for name, value in fields.items():
        if name in ABOUT_LINE:
            continue  # reserved
        infinite = isinstance(value, float) and not math.isfinite(value)  # not in JSON
        assert table[name] == (str(value) if infinite else value)
    assert path.read_bytes().isascii()


def test_lines_have_a_maximum_length(tmp_path):
    log = AuditLog(tmp_path / "log")
    log.append("verify", {"claim": "\U0001f600" * 10**6})
    assert tables_in(log.path)[-1]["claim"] == "\U0001f600" * 1000 + "... (1000000 characters)"
    with pytest.raises(AuditError, match="at most"):
        log.append("verify", {str(n): "\U0001f600" * 1000 for n in range(20)})
    assert check_log(log.path).lines == 2


def test_reserved_events_and_fields_cannot_be_written(tmp_path):
    log = AuditLog(tmp_path / "log")
    for event in ("open", "repair"):
        with pytest.raises(AuditError, match=event):
            log.append(event, {})
    log.append("verify", {"n": 7, "hash": "x", "previous": "y", "time": "z", "claim": "anna"})
    assert tables_in(log.path)[-1]["n"] == 2
    assert check_log(log.path).lines == 2


# Tampering


def test_any_flipped_bit_is_detected(tmp_path):
    sound = b"".join(written(tmp_path / "sound", 1, KEY))
    path = tmp_path / "log"
    for place in range(0, len(sound), 3):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :])
        assert not holds(path, KEY), place


@settings(SETTINGS, max_examples=150)
@given(st.data())
def test_any_edit_before_the_end_is_detected(tmp_path, data):
    path = tmp_path / "log"
    if not path.with_name("sound").exists():
        written(path.with_name("sound"), 5)
    sound = path.with_name("sound").read_bytes()
    lines = sound.splitlines(keepends=True)
    pieces = data.draw(st.lists(st.sampled_from(lines) | st.binary(max_size=60), max_size=2))
    whole = lines if data.draw(st.booleans()) else [sound[n : n + 1] for n in range(len(sound))]
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    edited = b"".join([*whole[:start], *pieces, *whole[end:]])
    path.write_bytes(edited)
    if edited == sound:
        assert holds(path)
    elif edited and sound.startswith(edited) and edited.endswith(b"\n"):  # detected by an anchor only
        assert holds(path)
        assert not holds(path, anchor=json.loads(lines[-1])["hash"])
    else:
        assert not holds(path)


@pytest.mark.parametrize(
    ("edit", "line", "words"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b"accepted", b"rejected"), *lines[3:]], 3, "edited"),
        (lambda lines: [*lines[:2], *lines[3:]], 3, "its number is 4: lines were removed"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3, "removed, inserted or moved"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3, "its number is 2"),
        (lambda lines: lines[1:], 1, "its number is 2"),
        (lambda lines: [*lines[:3], b"\n", *lines[3:]], 4, "no line of an audit log"),
        (lambda lines: [*lines[:3], b"x" * 300_000 + b"\n", *lines[3:]], 4, "longer than a line"),
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]], 1, "version 2"),
    ],
)
def test_the_first_invalid_line_is_named(tmp_path, edit, line, words):
    path = tmp_path / "log"
    path.write_bytes(b"".join(edit(written(path))))
    with pytest.raises(AuditError, match=rf"log, line {line}: .*{words}"):
        check_log(path)


def forged(lines: list[bytes], number: int, key: bytes | None) -> bytes:
    """Change "accepted" in line ``number`` to "rejected" and recompute every hash from there on."""
    previous, again = json.loads(lines[number - 1])["previous"], lines[: number - 1]
    for line in lines[number - 1 :]:
        text = line.rpartition(b',"previous"')[0].replace(b"accepted", b"rejected")
        text += f',"previous":"{previous}"'.encode()
        previous = hash_of(text, key)
        again.append(text + f',"hash":"{previous}"}}\n'.encode())
    return b"".join(again)


def test_a_line_of_another_log_or_forged_with_its_hash_is_detected_by_the_next(tmp_path):
    path = tmp_path / "log"
    lines, others = written(path), written(tmp_path / "other")  # of the same events
    for line in (others[2], forged(lines, 3, None).splitlines(keepends=True)[2]):
        path.write_bytes(b"".join([*lines[:2], line, *lines[3:]]))
        with pytest.raises(AuditError, match=r"line [34]: it does not follow the line before it"):
            check_log(path)


def test_a_rewritten_log_is_detected_by_its_key_or_an_anchor_only(tmp_path):
    path = tmp_path / "log"
    lines = written(path)
    anchor = check_log(path).last_hash
    path.write_bytes(forged(lines, 3, None))
    assert holds(path)  # as documented, an unkeyed chain cannot detect it
    with pytest.raises(AuditError, match="none of its 5 lines has the hash"):
        check_log(path, anchor=anchor)
    keyed = tmp_path / "keyed"
    lines = written(keyed, key=KEY)
    for guess in (None, b"another key of 16"):
        keyed.write_bytes(forged(lines, 3, guess))
        with pytest.raises(AuditError, match=r"line 3: .*another key"):
            check_log(keyed, key=KEY)
    # Nor does it pass for a log that never had a key.
    keyed.write_bytes(forged([lines[0].replace(b'"keyed":true', b'"keyed":false'), *lines[1:]], 1, None))
    with pytest.raises(AuditError, match="line 1: it opens a log without a key, and one was given"):
        check_log(keyed, key=KEY)


def test_lines_removed_at_the_end_are_detected_by_an_anchor_only(tmp_path, key):
    path = tmp_path / "log"
    lines = written(path, 4, key)
    last = check_log(path, key=key).last_hash
    path.write_bytes(b"".join(lines[:3]))
    AuditLog(path, key=key).append("verify", {"claim": "bert"})
    assert not holds(path, key, anchor=last)
    assert holds(path, key, anchor=json.loads(lines[2])["hash"])


def test_the_key_is_required_and_must_be_the_same(tmp_path):
    path = tmp_path / "log"
    written(path, 2, KEY)
    with pytest.raises(AuditError, match="line 1: it opens a log with a key, and none was given"):
        check_log(path)
    with pytest.raises(AuditError, match=r"line 1: .*another key"):
        check_log(path, key=b"another key of 16")
    before = path.read_bytes()
    for wrong in (None, b"another key of 16"):
        with pytest.raises(AuditError, match="its last line is not valid"):
            AuditLog(path, key=wrong).append("verify", {})
    assert path.read_bytes() == before


def test_a_key_is_read_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("VOICECLAIM_AUDIT_KEY", raising=False)
    assert read_key() is None
    (tmp_path / "key").write_bytes(KEY + b"\r\n")
    assert read_key(tmp_path / "key") == KEY
    monkeypatch.setenv("VOICECLAIM_AUDIT_KEY", "short")
    with pytest.raises(AuditError, match="VOICECLAIM_AUDIT_KEY: a key must have at least 16 bytes, got 5"):
        read_key()


@pytest.mark.parametrize("content", [b"hello\n", b"{}\n", b"[" * 90_000 + b"\n", b"a key, say", b"x" * 200_000])
def test_another_file_is_refused_and_not_written_to(tmp_path, content):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(AuditError, match="log"):
        check_log(path)
    with pytest.raises(AuditError, match=r"nothing (more )?is written to it"):
        AuditLog(path).append("verify", {})
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"{", b'{"n":1,"time":"20'])
def test_a_torn_first_line_is_repaired(tmp_path, content):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(AuditError, match="at least one whole line"):
        check_log(path)
    AuditLog(path).append("verify", {"claim": "anna"})
    report = check_log(path)
    assert (report.lines, report.repairs, report.torn) == (2 + bool(content), bool(content), 0)


# Killed while writing

needs_posix = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")

APPENDER = """
import resource, signal, sys
from pipeline.verification.audit import AuditLog
path, worker, count, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if worker == "dies" else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
log = AuditLog(path)
for number in range(count):
    log.append("verify", {"claim": worker, "number": number})
    print(number, flush=True)
"""


def appender(path: Path, worker: str, count: int, limit: int = 0) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(path), worker, str(count), str(limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_posix
def test_a_process_killed_within_a_line_leaves_it_torn_and_the_next_writer_repairs_it(tmp_path):
    """A file size limit cuts the last write short and kills the process."""
    path = tmp_path / "log"
    whole = b"".join(written(path, 3))
    dying = appender(path, "dies", 1, limit=len(whole) + 100)
    out, _ = dying.communicate(timeout=60)
    assert (dying.returncode, out) == (-signal.SIGXFSZ, "")
    assert path.read_bytes()[: len(whole)] == whole
    torn = path.read_bytes()[len(whole) :]
    assert len(torn) == 100
    report = check_log(path)
    assert (report.lines, report.torn, report.repairs) == (4, 100, 0)
    AuditLog(path).append("verify", {"claim": "bert"})
    report = check_log(path)
    assert (report.lines, report.torn, report.repairs) == (6, 0, 1)
    *_, repair, last = tables_in(path)
    assert (repair["event"], repair["bytes"], repair["removed"]) == ("repair", 100, torn.decode())
    assert last["claim"] == "bert"
    assert path.read_bytes().startswith(whole)


@needs_posix
def test_a_line_that_does_not_fit_is_removed(tmp_path):
    path = tmp_path / "log"
    whole = b"".join(written(path, 3))
    full = appender(path, "full", 1, limit=len(whole) + 100)
    _, errors = full.communicate(timeout=60)
    assert full.returncode == 1
    assert "the audit log cannot be written: File too large" in errors
    assert path.read_bytes() == whole


@needs_posix
def test_three_killed_writers_leave_one_chain_with_every_confirmed_line(tmp_path):
    path = tmp_path / "log"
    writers = [appender(path, str(worker), 10**6) for worker in range(3)]
    confirmed = []
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()  # wait until each of them writes
        for writer, seconds in zip(writers, (0.05, 0.21, 0.13), strict=True):
            time.sleep(seconds)
            writer.send_signal(signal.SIGKILL)
    finally:
        for writer in writers:
            writer.kill()
            confirmed.append(writer.communicate(timeout=60)[0].split())
    AuditLog(path).append("verify", {"claim": "last"})
    report = check_log(path)
    assert report.torn == 0
    lines = tables_in(path)
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    for worker, numbers in enumerate(confirmed):
        logged = [line["number"] for line in lines if line.get("claim") == str(worker)]
        assert logged == list(range(len(logged)))
        assert 1 + len(numbers) <= len(logged)  # the first was read above
    assert report.events["verify"] == sum(1 for line in lines if line["event"] == "verify")


def test_a_locked_log_is_not_written_to(tmp_path, monkeypatch):
    path = tmp_path / "log"
    whole = b"".join(written(path, 1))
    monkeypatch.setattr(audit, "_WAIT_SECONDS", 0.05)
    with audit.FileLock(tmp_path / "log.lock"), pytest.raises(AuditError, match="another process holds the audit log"):
        AuditLog(path).append("verify", {})
    assert path.read_bytes() == whole


@needs_posix
def test_paths_that_cannot_be_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "pipe", tmp_path / "file" / "log", tmp_path / ("n" * 5000), Path("a\0b")):
        with pytest.raises(AuditError, match="cannot be written"):
            AuditLog(path).append("verify", {})


# Events


def test_a_verification_is_logged_without_biometric_data(opened, heard, tmp_path):
    log, recording = tmp_path / "log", heard("anna")
    verifier = Verifier(opened, "anna")
    update = verifier.verify_file(recording)
    verification_recorder(log, opened, "anna")(verifier, str(recording), update)
    line = tables_in(log)[-1]
    assert set(line) == ABOUT_LINE | ABOUT_STORE | {
        "claim", "decision", "system", "score", "threshold", "llr", "llr_threshold", "probability", "prior",
        "threshold_source", "speech_seconds", "audio_seconds", "competing",
        "duplicate_suspected", "sequential_llr", "sequential_miss", "sequential_false_accept", "state", "settled",
        "frames", "unknown_impostors", "warnings",
    }  # fmt: skip
    assert (line["event"], line["claim"], line["decision"]) == ("verify", "anna", Decision.ACCEPTED)
    assert (line["score"], line["llr"], line["threshold"]) == (update.score, update.llr, verifier.decider.threshold)
    assert (line["store_version"], line["store_revision"]) == (VERSION, 1)
    assert recording.name not in log.read_text()
    verification_recorder(log, opened, "anna", paths=True)(verifier, str(recording), update)
    assert tables_in(log)[-1]["file"] == str(recording)
    verification_recorder(None, opened, "anna")(verifier, None, update)  # without a log nothing happens
    assert check_log(log).lines == 3


# The command


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
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnknownSpeakerError):
        remove(copied, "nobody", log=tmp_path / "file" / "log")
    assert "the audit log cannot be written" in capsys.readouterr().err


def test_a_key_that_cannot_be_read_stops_a_change_before_it_is_made(copied, tmp_path):
    with pytest.raises(AuditError, match="the key cannot be read"):
        remove(copied, "anna", log=tmp_path / "log", log_key=tmp_path / "none")
    assert "anna" in Store(copied).load().names
