"""What is left of a store when its writer is killed, the power fails, the disk is full or may not be written to."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from populations import NAMES, add, assert_same, content, first
from store_process import BASE, MORE

from pipeline.enrollment import remove_speaker
from pipeline.errors import StoreError, StoreMissingError
from pipeline.store import SpeakerStore
from pipeline.store_writer import store_writer

HERE = Path(__file__).parent
CHANGES = ("enroll", "extend", "remove")
Step = tuple[str, ...]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork, /proc and namespaces")


class Changer:
    """A process that changes stores on order: see ``store_process``."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def __call__(self, change: str, store: Path, kill_before: int | None = None) -> tuple[list[Step], str]:
        """The steps that were taken, and how it ended: "done", "killed", or what was wrong."""
        order = {"change": change, "store": str(store), "kill_before": kill_before}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        steps = []
        while (step := json.loads(self._process.stdout.readline()))[0] != "end":
            steps.append(tuple(step))
        return steps, step[1]


def environment() -> dict[str, str]:
    found = [str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(found)}


@pytest.fixture(scope="module")
def changer():
    words = [sys.executable, str(HERE / "store_process.py")]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout.readline() == '["ready"]\n'
        yield Changer(process)
        process.stdin.close()


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A store of three speakers."""
    path = tmp_path_factory.mktemp("base") / "s"
    add(path, first(BASE), NAMES[:BASE])
    return path


@pytest.fixture(scope="module")
def after(base, tmp_path_factory) -> dict[str, SpeakerStore]:
    """The store as each change leaves it, made in this process without disturbance; "before" it, too."""
    folder = tmp_path_factory.mktemp("after")
    paths = {change: Path(shutil.copytree(base, folder / change)) for change in ("extend", "remove")}
    return {
        "before": SpeakerStore.open(base),
        "enroll": SpeakerStore.open(base),
        "extend": add(paths["extend"], first(MORE), NAMES[BASE:MORE]),
        "remove": remove_speaker(paths["remove"], NAMES[1]),
    }


def start_of(change: str, base: Path, folder: Path) -> Path:
    """Where ``change`` begins: a copy of the base, or nothing."""
    folder.mkdir()
    return folder / "s" if change == "enroll" else Path(shutil.copytree(base, folder / "s"))


def state_of(path: Path, change: str, after: dict[str, SpeakerStore]) -> str:
    """Whether the store is the one before ``change`` or the one after it, in every number; anything else fails."""
    try:
        found = SpeakerStore.open(path)
    except StoreMissingError:
        assert change == "enroll", "the store is gone"
        return "before"
    found.check_files()
    state = change if change == "enroll" or found.manifest.revision == 2 else "before"
    assert found.names == after[state].names
    assert_same(found.population(), after[state].population())
    return state


def next_change(path: Path) -> None:
    """What the next writer does, whatever came before; nothing may lie about afterwards."""
    try:
        remove_speaker(path, NAMES[0])
    except StoreMissingError:
        add(path, first(BASE), NAMES[:BASE])
    assert content(path).keys() == SpeakerStore.open(path).manifest.files() | {"manifest.json"}


# Killed


@pytest.mark.parametrize("change", CHANGES)
def test_a_writer_killed_before_any_of_its_steps_leaves_the_old_store_or_the_new_one(
    changer, base, after, tmp_path, change
):
    whole, ended = changer(change, start_of(change, base, tmp_path / "whole"))
    assert ended == "done"
    states = []
    for number in range(len(whole)):
        path = start_of(change, base, tmp_path / str(number))
        before = content(path) if path.exists() else {}
        steps, ended = changer(change, path, number)
        assert (len(steps), ended) == (number, "killed")
        states.append(state_of(path, change, after))
        if states[-1] == "before":
            assert before.items() <= (content(path).items() if path.exists() else {}.items()), "an old file was changed"
        next_change(path)
    # The rename of the manifest is the one commit.
    commit = next(n for n, step in enumerate(whole) if step[0] == "rename")
    assert states == ["before"] * (commit + 1) + [change] * (len(whole) - commit - 1)


# Power


class Disk:
    """What a disk holds of the steps of a process: what was synced, and what may or may not be there of the rest.

    A file holds its content from its creation on in the eyes of the process, and once synced on the disk. A change to a
    folder is on the disk once the folder was synced; until then any of its changes may be there, without the others.
    """

    def __init__(self, names: dict[str, bytes]) -> None:
        self.seen: dict[str, object] = {}  # a name to its file, which is the key of what is in it
        self.contents: dict[object, bytes] = {}
        self.synced: set[object] = set()
        self.pending: list[tuple[str, str | None, object]] = []  # a name gone, a name come, and which file
        for name, data in names.items():
            self.seen[name] = file = object()
            self.contents[file] = data
            self.synced.add(file)
        self.durable = dict(self.seen)

    def take(self, step: Step, written: dict[str, bytes]) -> None:
        """One step of the process; ``written`` is what it will have written under each new name."""
        kind, name = step[:2]
        if kind == "create" and name not in self.seen:
            self.seen[name] = file = object()
            self.contents[file] = written.get(name, b"")
            self.pending.append(("", name, file))
        elif kind == "rename":
            self.seen[step[2]] = file = self.seen.pop(name)
            self.pending.append((name, step[2], file))
        elif kind == "unlink" and name in self.seen:
            self.pending.append((name, None, self.seen.pop(name)))
        elif kind == "sync" and name in self.seen:
            self.synced.add(self.seen[name])
        elif kind == "sync":
            for change in [change for change in self.pending if Path(change[1] or change[0]).parent == Path(name)]:
                self.pending.remove(change)
                self._apply(self.durable, change)

    @staticmethod
    def _apply(names: dict[str, object], change: tuple[str, str | None, object]) -> None:
        gone, come, file = change
        names.pop(gone, None)
        if come is not None:
            names[come] = file

    def after_a_power_cut(self, chance: random.Random, share: float, *, cut: bool) -> dict[str, bytes]:
        """Names and what is in them: each pending change is there with a chance of ``share``, in part if ``cut``."""
        names = dict(self.durable)
        for change in self.pending:
            if chance.random() < share:
                self._apply(names, change)
        lost = {file for file in names.values() if file not in self.synced}
        return {
            name: self.contents[file][: len(self.contents[file]) // 2 if cut else 0]
            if file in lost
            else self.contents[file]
            for name, file in names.items()
        }


def put(names: dict[str, bytes], old_root: Path, new_root: Path) -> None:
    shutil.rmtree(new_root, ignore_errors=True)
    new_root.mkdir()
    for name, data in names.items():
        path = new_root / Path(name).relative_to(old_root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def files_under(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", CHANGES)
def test_a_power_cut_after_any_step_leaves_the_old_store_or_the_new_one(changer, base, after, tmp_path, change):
    root = tmp_path / "whole"
    path = start_of(change, base, root)
    disk = Disk(files_under(root))
    steps, ended = changer(change, path)
    assert ended == "done"
    written = files_under(root)
    written[str(path / "manifest.json.partial")] = written[str(path / "manifest.json")]
    chance, states = random.Random(0), []  # noqa: S311
    for step in [None, *steps]:
        if step is not None:
            disk.take(step, written)
        for share, cut in [(0.0, False), (1.0, False), (1.0, True), (0.5, False), (0.5, True)]:
            put(disk.after_a_power_cut(chance, share, cut=cut), root, tmp_path / "cut")
            states.append(state_of(tmp_path / "cut" / "s", change, after))
    assert states[0] == "before"
    assert states[-5:] == [change] * 5, "done, and not on the disk"
    next_change(tmp_path / "cut" / "s")


def test_the_model_of_the_disk_sees_a_missing_sync(changer, base, after, tmp_path):
    """Without one of its syncs the writer would not be safe, and this file's power cuts would show it."""
    root = tmp_path / "whole"
    path = start_of("extend", base, root)
    sound = files_under(root)
    steps, _ = changer("extend", path)
    written = files_under(root)
    written[str(path / "manifest.json.partial")] = written[str(path / "manifest.json")]
    syncs = [number for number, step in enumerate(steps) if step[0] == "sync"]
    seen = []
    for left_out in syncs:
        disk, lost = Disk(sound), False
        for number, step in enumerate(steps):
            if number != left_out:
                disk.take(step, written)
            for share in (0.0, 0.5):
                chance = random.Random(number)  # noqa: S311
                put(disk.after_a_power_cut(chance, share, cut=False), root, tmp_path / "cut")
                try:
                    lost |= state_of(tmp_path / "cut" / "s", "extend", after) == "before" and number == len(steps) - 1
                except (StoreError, AssertionError):
                    lost = True
            if lost:
                break
        seen.append(lost)
    # The last folder is synced again after the commit.
    assert sum(seen) >= len(syncs) - 1, [steps[number] for number, lost in zip(syncs, seen, strict=True) if not lost]


# Disks that are full, and those that cannot be written to


@pytest.mark.parametrize("disk", ["fill", "read_only", "limited"])
def test_where_nothing_can_be_written_the_store_stays_as_it_was(changer, base, tmp_path, disk):
    path = Path(shutil.copytree(base, tmp_path / "s"))
    before = content(path)
    _, ended = changer(disk, path)
    if ended.startswith("skip"):
        pytest.skip(ended)
    assert ended == "done"
    if disk == "limited":  # it had room in the end
        assert SpeakerStore.open(path).names == NAMES[:MORE]
    else:
        assert content(path) == before


# What writers leave, and what they leave alone


def test_files_of_others_in_a_store_are_never_deleted(base, tmp_path):
    path = Path(shutil.copytree(base, tmp_path / "s"))
    foreign = {
        "notes.txt": b"mine",
        "model.safetensors": b"mine",
        "segments-1.safetensors.bak": b"mine",
        "segments-x.safetensors": b"mine",
        "speakers/anna.wav": b"mine",
        "speakers/0123456789abcdeg-1.safetensors": b"mine",
        "other.partial": b"mine",
    }
    for name, data in foreign.items():
        (path / name).write_bytes(data)
    (path / "segments-9.safetensors").mkdir()
    (tmp_path / "precious").write_text("mine")
    (path / "one_vs_rest-2.safetensors").symlink_to(tmp_path / "precious")  # where the next file will be
    (path / "manifest.json.partial").symlink_to(tmp_path / "precious")
    add(path, first(MORE), NAMES[BASE:MORE])
    remove_speaker(path, NAMES[0])
    assert {name: (path / name).read_bytes() for name in foreign} == foreign
    assert (path / "segments-9.safetensors").is_dir()
    assert (tmp_path / "precious").read_text() == "mine"
    SpeakerStore.open(path).check_files()


def test_a_writer_that_fails_takes_back_what_it_wrote(base, tmp_path):
    path = Path(shutil.copytree(base, tmp_path / "s"))
    before = content(path)
    population = first(MORE)
    population.segments.space.means[0, 0] = 1.0  # and then, before the commit:
    with pytest.raises(ZeroDivisionError), store_writer(path) as writer:
        writer._write_segments(population.segments, 2)
        assert content(path) != before
        raise ZeroDivisionError
    assert content(path) == before


def test_a_first_enrollment_that_fails_leaves_no_folder(tmp_path):
    with pytest.raises(ZeroDivisionError), store_writer(tmp_path / "a" / "s") as writer:
        writer._write_segments(first(BASE).segments, 1)
        (writer.path / "speakers").mkdir()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


# Readers


@pytest.mark.parametrize("change", ["extend", "remove"])
def test_a_store_that_is_open_stays_the_one_that_was_opened(base, after, tmp_path, change):
    path = Path(shutil.copytree(base, tmp_path / "s"))
    opened, again = SpeakerStore.open(path), SpeakerStore.open(path)
    again.population()
    assert opened.is_current()
    if change == "extend":
        add(path, first(MORE), NAMES[BASE:MORE])
    remove_speaker(path, NAMES[0])
    for store in (opened, again):
        assert not store.is_current()
        assert store.names == NAMES[:BASE]
        assert_same(store.population(), after["before"].population())
        assert store.trials is not None
        store.check_files()
    later = SpeakerStore.open(path)
    assert later.is_current()
    assert later.names == (NAMES[1:MORE] if change == "extend" else NAMES[1:BASE])
    shutil.rmtree(path)
    assert not later.is_current()
    assert len(later.population()) == len(later.names)


def test_a_reader_that_meets_a_commit_between_the_manifest_and_the_files_opens_the_next_revision(
    base, tmp_path, monkeypatch
):
    """The commit is made at the very moment when the reader has read the manifest, and no file yet."""
    path = Path(shutil.copytree(base, tmp_path / "s"))
    from pipeline import store as module

    read, met, writing = module.read_manifest, [], []

    def slow(*arguments):
        manifest = read(*arguments)
        if len(met) < 2 and not writing:
            met.append(manifest.revision)
            writing.append(True)
            remove_speaker(path, manifest.speakers[0].name)
            writing.clear()
        return manifest

    monkeypatch.setattr(module, "read_manifest", slow)
    found = SpeakerStore.open(path)
    assert met == [1, 2]
    assert found.manifest.revision == 3
    assert found.names == NAMES[2:BASE]
    assert len(found.population()) == 1


def test_an_open_store_holds_no_descriptor_of_the_files_it_has_read(base):
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    opened = SpeakerStore.open(base)
    assert descriptors() > before
    opened.check_files()
    assert descriptors() == before
    closed = SpeakerStore.open(base)
    del closed
    assert descriptors() == before
    with contextlib.suppress(StoreError):
        SpeakerStore.open(base / "nowhere")
    assert descriptors() == before
