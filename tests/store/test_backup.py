"""Backups of a store in use, and their return while it is read and written."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hostile import content_of, soon
from populations import NAMES, add

from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import StoreBusyError, StoreError, StoreFormatError, StoreSealError
from pipeline.store.backup import backup_store, restore_store
from pipeline.store.sealing import seal_store
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier


def test_a_backup_is_one_file_that_scores_to_the_bit_as_the_store_does(copied, tmp_path, heard):
    model = Store(copied).load()  # a reader
    copy = tmp_path / "backup.store"
    with Store(copied).writing():  # and a writer who has not committed
        assert backup_store(copied, copy).names == model.names
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["backup.store"]
    assert copy.stat().st_mode & 0o077 == 0
    expected = Verifier(model, "anna").verify_file(heard("anna"))
    assert Verifier(Store(copy).load(), "anna").verify_file(heard("anna")) == expected
    with pytest.raises(StoreError, match="a backup must be a new file, and this one exists"):
        backup_store(copied, copy)


def test_a_restored_store_is_the_old_one_and_names_who_came_back(copied, tmp_path, heard):
    copy = tmp_path / "backup.store"
    backup_store(copied, copy)
    before = Store(copied).load()
    expected = before.arrays[0]["fingerprints"].copy()
    remove_speaker(copied, "lars")
    reader = Store(copied).load()
    with soon(4.0):  # less than SQLite waits for readers
        assert restore_store(copy, copied) == ("lars",)
    assert Store(copied).check().names == before.names
    np.testing.assert_array_equal(Store(copied).load().arrays[0]["fingerprints"], expected)
    assert reader.names == ("anna", "dexter", "ivan")  # a snapshot stays as it is
    np.testing.assert_array_equal(reader.arrays[0]["fingerprints"], expected)
    assert restore_store(copy, tmp_path / "new.store") == before.names
    assert Store(tmp_path / "new.store").check().revision == before.revision


def test_a_store_is_not_replaced_by_the_backup_of_another(copied, tmp_path):
    other, state = tmp_path / "other.store", Store(copied).state()
    add(other, NAMES[:2])
    with pytest.raises(StoreError, match=f"a backup of another store .* than {copied} .*move that store away first"):
        restore_store(other, copied)
    assert Store(copied).state() == state
    copied.rename(tmp_path / "moved.store")
    assert restore_store(other, copied) == NAMES[:2]


def test_nothing_is_restored_over_a_writer_or_from_a_damaged_copy(copied, tmp_path):
    copy = tmp_path / "backup.store"
    backup_store(copied, copy)
    with Store(copied).writing(), pytest.raises(StoreBusyError):
        restore_store(copy, copied)
    state = Store(copied).state()
    content = bytearray(copy.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 200] = bytes(200)
    copy.write_bytes(content)
    with pytest.raises(StoreFormatError):
        restore_store(copy, copied)
    assert Store(copied).state() == state
    with pytest.raises(StoreError, match="no backup can be made here"):
        backup_store(copied, tmp_path / "nowhere" / "copy")


def test_a_backup_that_is_killed_leaves_no_file_of_its_name(copied, tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    copy = tmp_path / "backup.store"
    code = "import sys; from pipeline.store.backup import backup_store; backup_store(*sys.argv[1:])"
    killed = ["-e", "trace=rename,renameat,renameat2", "-e", "inject=rename,renameat,renameat2:signal=KILL"]
    words = ["strace", "-f", *killed, "-o", os.devnull, sys.executable, "-c", code, copied, copy]
    done = subprocess.run(words, check=False, capture_output=True)
    if b"ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == -signal.SIGKILL
    assert not copy.exists()
    assert backup_store(copied, copy).names == Store(copied).load().names
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == [copy.name]


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_backup_without_room_leaves_nothing(copied, tmp_path):
    room = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))"
    words = (sys.executable, "-c", f"{room}; from pipeline.cli.main import main; main()", "store", "backup")
    there = content_of(tmp_path)
    ended = subprocess.run((*words, str(copied), str(tmp_path / "b")), check=False, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "is the disk full?" in ended.stderr
    assert content_of(tmp_path) == there


def _rename_and_be_killed(store) -> None:
    reader = Store(store).load()  # keeps the log from being written back
    assert reader.names != Store(store).rename("lars", "lars o.").names
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="SIGKILL")
def test_the_log_of_a_killed_writer_does_not_get_into_a_store_restored_in_its_place(copied, tmp_path):
    backup_store(copied, tmp_path / "backup.store")
    process = multiprocessing.get_context("spawn").Process(target=_rename_and_be_killed, args=(copied,))
    process.start()
    process.join()
    log = copied.with_name(f"{copied.name}-wal")
    assert log.stat().st_size
    moved = copied.rename(tmp_path / "moved.store")  # without its log
    with pytest.raises(StoreError, match=re.escape(f"{log}: the log of a store that was here")):
        restore_store(tmp_path / "backup.store", copied)
    assert not copied.exists()
    log.rename(f"{moved}-wal")
    assert "lars o." in Store(moved).check().names
    assert "lars" in restore_store(tmp_path / "backup.store", copied)
    assert Store(copied).check().names == ("anna", "dexter", "ivan", "lars")


def test_a_restore_fills_an_empty_file_and_leaves_a_damaged_store_with_advice(copied, tmp_path):
    copy, empty = tmp_path / "backup.store", tmp_path / "empty"
    backup_store(copied, copy)
    empty.touch()  # as an enrollment that was killed leaves it
    assert restore_store(copy, empty) == Store(empty).check().names
    damaged = bytes(4096) + copied.read_bytes()[4096:]
    copied.write_bytes(damaged)
    with pytest.raises(StoreFormatError, match=f"to restore here, move it away first, with {copied.name}-wal and"):
        restore_store(copy, copied)
    assert copied.read_bytes() == damaged
    copied.rename(tmp_path / "moved.store")
    assert restore_store(copy, copied) == Store(copied).check().names


def test_a_sealed_store_is_copied_with_its_key_alone(copied, tmp_path):
    seal_store(copied, b"k" * 32)
    with pytest.raises(StoreSealError):
        backup_store(copied, tmp_path / "a")
    assert backup_store(copied, tmp_path / "a", key=b"k" * 32).sealed
    assert not list(tmp_path.glob(".*"))


def _restore_often(copy, store) -> None:
    for _ in range(100):
        try:
            restore_store(copy, store)
        except StoreBusyError:
            continue


@pytest.mark.parametrize("seed", range(3))
def test_a_restore_that_is_killed_leaves_the_old_state_or_the_new(copied, tmp_path, seed):
    copy, other = tmp_path / "backup.store", tmp_path / "other.store"
    backup_store(copied, copy)
    shutil.copy(copied, other)
    remove_speaker(copied, "lars")
    names = []
    reading = threading.Event()

    def read() -> None:
        while not reading.is_set():
            names.append(Store(copied).check().names)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        process = multiprocessing.get_context("spawn").Process(target=_restore_often, args=(copy, copied))
        process.start()
        time.sleep(1.5 + np.random.default_rng(seed).uniform(0, 1))
        process.kill()
        process.join()
    finally:
        reading.set()
        reader.join()
    whole, rest = ("anna", "dexter", "ivan", "lars"), ("anna", "dexter", "ivan")
    assert set(names) <= {whole, rest}
    assert Store(copied).check().names in (whole, rest)
