"""Private SQLite files beside a store or a log: one writer at a time, in one process or several."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys

import pytest

from pipeline.errors import AuditError
from pipeline.verification.private_file import transaction

TABLES = ("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)",)
WRITER = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"


def test_a_reader_in_the_same_process_leaves_a_writer_its_lock(tmp_path):
    path = tmp_path / "private"
    with transaction(path, TABLES, "it failed") as database:
        database.execute("INSERT INTO numbers VALUES (1)")
        with transaction(path, TABLES, "it failed", create=False) as other:
            assert other.execute("SELECT * FROM numbers").fetchall() == []
        second = subprocess.run([sys.executable, "-c", WRITER, path], capture_output=True, text=True, check=False)
        assert "database is locked" in second.stderr
    with transaction(path, TABLES, "it failed", create=False) as database:
        assert database.execute("SELECT * FROM numbers").fetchall() == [(1,)]
    assert path.stat().st_mode & 0o077 == 0


def test_what_is_no_private_file_is_refused_and_a_missing_one_is_not_made_by_reading(tmp_path):
    with transaction(tmp_path / "none", TABLES, "it failed", create=False) as database:
        assert database.execute("SELECT * FROM numbers").fetchall() == []
    assert not (tmp_path / "none").exists()
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no database" * 99)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
    for path in tmp_path.iterdir():
        with (
            pytest.raises(AuditError, match=f"{path.name}: it failed: ") as refused,
            transaction(path, TABLES, "it failed"),
        ):
            pass
        assert isinstance(refused.value.__cause__, OSError | sqlite3.Error)
