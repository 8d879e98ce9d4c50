"""Lines of an audit log: what they hold, their bounds, and where and how they are written."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from audit_logs import ABOUT_LINE, SETTINGS, hash_of, tables_in, written
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import AuditError
from pipeline.scoring.decisions import Decision
from pipeline.store.reading import VERSION
from pipeline.verification.audit import AuditLog, check_log
from pipeline.verification.audit_events import verification_recorder
from pipeline.verification.verifier import Verifier

ABOUT_STORE = {"store", "store_version", "store_revision", "settings"}


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
        infinite = isinstance(value, float) and not math.isfinite(value)  # not in JSON
        assert table[name] == (str(value) if infinite else value)
    assert path.read_bytes().isascii()


def test_lines_have_a_maximum_length(tmp_path):
    log = AuditLog(tmp_path / "log")
    log.append("verify", {"claim": "\U0001f600" * 10**6})
    assert tables_in(log.path)[-1]["claim"] == "\U0001f600" * 1000 + "... (1000000 characters)"
    with pytest.raises(AuditError, match="at most"):
        log.append("verify", {str(n): "\U0001f600" * 1000 for n in range(20)})
    log.append("verify", {str(n): "\U0001f600" * 1000 for n in range(10)})
    with log.path.open("ab") as file:
        file.write(b'{"n":4,"claim":"' + b"x" * 100_000)
    log.append("verify", {})
    assert (check_log(log.path).lines, check_log(log.path).repairs) == (5, 1)


def test_reserved_events_and_fields_cannot_be_written(tmp_path):
    log = AuditLog(tmp_path / "log")
    for event in ("open", "repair"):
        with pytest.raises(AuditError, match=event):
            log.append(event, {})
    log.append("verify", {"claim": "anna"})
    for name in ABOUT_LINE:
        with pytest.raises(AuditError, match=f"event 'verify': field '{name}' is the log's own"):
            log.append("verify", {name: "x", "claim": "anna"})
    assert check_log(log.path).lines == 2


@pytest.mark.parametrize(
    "content", [b"hello\n", b"{}\n", b"[" * 90_000 + b"\n", b"a key, say", b"x" * 200_000, b'{"n":' * 40_000]
)
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
    AuditLog(path).check_writable()
    AuditLog(path).append("verify", {"claim": "anna"})
    report = check_log(path)
    assert (report.lines, report.repairs, report.torn) == (2 + bool(content), bool(content), 0)


def test_a_verification_is_logged_without_biometric_data(opened, heard, tmp_path):
    log, recording = tmp_path / "log", heard("anna")
    verifier = Verifier(opened, "anna")
    update = verifier.verify_file(recording)
    verification_recorder(AuditLog(log), opened, "anna")(verifier, str(recording), update)
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
    verification_recorder(AuditLog(log), opened, "anna", paths=True)(verifier, str(recording), update)
    assert tables_in(log)[-1]["file"] == str(recording)
    verification_recorder(None, opened, "anna")(verifier, None, update)  # without a log nothing happens
    assert check_log(log).lines == 3
