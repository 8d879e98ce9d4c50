"""State of a store after its writer is killed, the power fails, the disk is full or may not be written to."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from populations import NAMES, add, assert_same, content, left_over, model_of
from store_process import BASE, MORE

from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import StoreError, StoreMissingError
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store

HERE = Path(__file__).resolve().parents[1]
CHANGES = ("enroll", "extend", "remove")
LATER = {"enroll": NAMES[:BASE], "extend": NAMES[:MORE], "remove": (NAMES[0], *NAMES[2:BASE])}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork, /proc and namespaces")


@pytest.fixture(scope="module")
def changer():
    """changer(change, store, kill_before=None): "done" and a number, "killed", or the error; see ``store_process``."""
    paths = [str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    words = [sys.executable, str(HERE / "store_process.py")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:

        def change(name: str, store: Path, kill_before: int | None = None) -> str:
            process.stdin.write(json.dumps({"change": name, "store": str(store), "kill_before": kill_before}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())[1]

        assert process.stdout.readline() == '["ready"]\n'
        yield change
        process.stdin.close()


@pytest.fixture(scope="module")
def models() -> dict[tuple[str, ...], SpeakerModel]:
    """The models before and after each change, which never saw a disk."""
    return {names: model_of(names) for names in (NAMES[:BASE], *LATER.values())}


def start_of(change: str, base: Path, folder: Path) -> Path:
    """Return where ``change`` begins: a copy of the base, or nothing there."""
    folder.mkdir()
    return folder / "s" if change == "enroll" else Path(shutil.copy(base, folder / "s"))


def state_of(path: Path, change: str, models: dict[tuple[str, ...], SpeakerModel]) -> str:
    """Return whether the store is the one before ``change`` or the one after it, in every number; others fail."""
    try:
        model = Store(path).check()
    except StoreMissingError:
        assert change == "enroll", "the store is gone"
        return "before"
    assert model.names in (NAMES[:BASE], LATER[change])
    assert_same(model, models[model.names])
    return "after" if model.names == LATER[change] else "before"


def next_change(path: Path, models: dict[tuple[str, ...], SpeakerModel]) -> None:
    """Make another change, whatever came before; nothing may lie about afterwards."""
    try:
        assert NAMES[0] not in remove_speaker(path, NAMES[0]).names
    except StoreMissingError:
        assert_same(add(path, NAMES[:BASE]), models[NAMES[:BASE]])
    assert left_over(path) == set()


# Killed


@pytest.mark.parametrize("change", CHANGES)
def test_a_writer_killed_before_a_statement_leaves_the_old_store_or_the_new_one(
    changer, stored, models, tmp_path, change
):
    """Before one of every few statements of the transaction, and each of the last, which commit and tidy up."""
    count = int(changer(change, start_of(change, stored[BASE], tmp_path / "whole")).removeprefix("done "))
    states = []
    for number in (*range(0, count - 12, count // 10), *range(count - 12, count)):
        path = start_of(change, stored[BASE], tmp_path / str(number))
        before = content(path) if path.exists() else {}
        assert changer(change, path, number) == "killed"
        states.append(state_of(path, change, models))
        if states[-1] == "before" and before:
            assert content(path) == before
        next_change(path, models)
    assert (states[0], states[-1]) == ("before", "after")
    assert states == sorted(states, reverse=True), "a commit that was taken back"


# Power


@pytest.mark.parametrize("change", ["extend", "remove"])
def test_whatever_of_the_log_reached_the_disk_the_store_is_the_old_one_or_the_new_one(
    changer, stored, models, tmp_path, change
):
    """A power cut may leave any beginning of the log, cut anywhere, and a main file that has not seen it."""
    path = start_of(change, stored[BASE], tmp_path / "s")
    reader = Store(path).load()  # keeps the log from being written back
    assert changer(change, path).startswith("done")
    main, log = path.read_bytes(), path.with_name("s-wal").read_bytes()
    assert main == stored[BASE].read_bytes()
    chance, states = random.Random(0), []  # noqa: S311
    for number in range(20):
        size = len(log) if number == 0 else chance.randrange(len(log))
        cut = tmp_path / f"cut {number}" / "s"
        cut.parent.mkdir()
        cut.write_bytes(main)
        tail = bytes(chance.choice([0, 0, 5000]))
        cut.with_name("s-wal").write_bytes(log[:size] + (chance.randbytes(300) if number % 3 == 1 else tail))
        states.append(state_of(cut, change, models))
        next_change(cut, models)
    assert states[0] == "after"
    assert "before" in states
    assert_same(reader, models[NAMES[:BASE]])


def test_a_commit_is_flushed_to_the_disk_before_it_is_reported(three, tmp_path):
    """From outside: the log is synced after its last write, and before the writer goes on."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    code = (
        "import sys; from pathlib import Path; from store_process import extend; import os; extend(Path(sys.argv[1]));"
        " os.write(2, b'reported')"
    )
    calls = "trace=pwrite64,fdatasync,fsync,write"
    done = subprocess.run(
        [
            "strace",
            "-f",
            "--seccomp-bpf",
            "-y",
            "-e",
            calls,
            "-o",
            tmp_path / "calls",
            sys.executable,
            "-c",
            code,
            three,
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("strace may not trace here")
    lines = [line for line in (tmp_path / "calls").read_text().splitlines() if "s-wal" in line or "reported" in line]
    writes = [n for n, line in enumerate(lines) if "pwrite64" in line]
    syncs = [n for n, line in enumerate(lines) if "sync" in line]
    assert writes[-1] < syncs[-1] < len(lines) - 1


# Disks that are full, and those that cannot be written to


@pytest.mark.parametrize("disk", ["fill", "read_only", "limited"])
def test_where_nothing_can_be_written_the_store_stays_as_it_was(changer, three, disk):
    before = content(three)
    ended = changer(disk, three)
    if ended.startswith("skip"):
        pytest.skip(ended)
    assert ended.startswith("done")
    if disk == "limited":  # it had room in the end
        assert Store(three).check().names == NAMES[:MORE]
    else:
        assert content(three) == before
    assert left_over(three) <= {"mounted"}


def test_files_of_others_beside_a_store_are_left_alone(three):
    for name in ("s.bak", "notes", "s2", "s-wal.txt"):
        three.with_name(name).write_text("mine")
    add(three, NAMES[BASE:MORE])
    remove_speaker(three, NAMES[0])
    assert {file.read_text() for file in three.parent.iterdir() if file != three} == {"mine"}
    assert len(left_over(three)) == 4


# Readers


def test_a_store_that_is_closed_leaves_no_descriptor_and_no_file(three, tmp_path):

    def descriptors() -> int:
        return sum("/s" in str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())

    before = descriptors()
    model = Store(three).load()
    assert descriptors() > before
    del model
    Store(three).check()
    assert Store(three).state() is not None
    for attempt in (lambda: Store(three, key=b"x" * 16).load(), lambda: Store(tmp_path / "nowhere").load()):
        with pytest.raises(StoreError):
            attempt()
    assert descriptors() == before
    assert left_over(three) == set()


def test_the_log_of_another_store_beside_a_store_is_refused_or_read_whole(three, tmp_path):
    other = tmp_path / "other"
    add(other, NAMES[:2])
    reader = Store(other).load()
    add(other, NAMES[2:4])
    shutil.copy(f"{other}-wal", f"{three}-wal")
    try:
        model = Store(three).check()  # one of the two, and no mix
        assert_same(model, model_of(model.names))
        assert model.names in (NAMES[:BASE], NAMES[:4])
    except StoreError as error:
        assert str(three) in str(error)
    assert reader.names == NAMES[:2]
