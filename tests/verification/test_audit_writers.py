"""Writers of an audit log that are killed, run out of room or find it locked: every confirmed line stays."""

from __future__ import annotations

import mmap
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from audit_logs import tables_in, written

from pipeline.errors import AuditError
from pipeline.verification import audit
from pipeline.verification.audit import AuditLog, check_log

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


def kib_not_on_disk(path: Path) -> int:
    """Return the KiB of the file that are in memory but not on the disk, as /proc/self/smaps counts dirty pages."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        assert mapping[0]  # reads the page
        _, _, about = Path("/proc/self/smaps").read_text().partition(str(path.resolve()))
    return sum(int(kib) for kib in re.findall(r"(?:Shared|Private)_Dirty: +(\d+)", about.partition("VmFlags")[0]))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says which pages are on the disk")
def test_a_line_is_on_the_disk_when_append_returns(tmp_path):
    with (tmp_path / "known").open("wb") as known:
        known.write(b"x")
        known.flush()
        unsaved = kib_not_on_disk(tmp_path / "known")
        os.fsync(known.fileno())
    if not unsaved or kib_not_on_disk(tmp_path / "known"):
        pytest.skip("a file system without a disk, or one whose writes wait for it")
    log = AuditLog(tmp_path / "log")
    for number in range(3):
        log.append("verify", {"number": number})
        assert kib_not_on_disk(log.path) == 0


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


def test_whether_a_line_could_be_appended_is_known_before_and_changes_no_log(tmp_path):
    path = tmp_path / "log"
    AuditLog(path).check_writable()
    assert check_log(path).events == {"open": 1}
    whole = path.read_bytes()
    AuditLog(path).check_writable()
    assert path.read_bytes() == whole
    with pytest.raises(AuditError, match="its last line is not valid"):
        AuditLog(path, key=b"k" * 16).check_writable()
    path.write_bytes(whole + b"{}\n")
    with pytest.raises(AuditError, match="its last line is not valid"):
        AuditLog(path).check_writable()
