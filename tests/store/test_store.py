"""The store: what comes back, what a snapshot keeps, who may write, what is refused."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hostile
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from permissions import as_another_user, open_folder
from populations import (
    NAMES,
    SMALL,
    add,
    assert_same,
    book_of,
    cohorts_of,
    content,
    left_over,
    model_of,
    segments_of,
)

from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import SpeakerExistsError, StoreBusyError, StoreError, StoreFormatError, StoreMissingError
from pipeline.store.rows import open_rows
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier

# Round trip


@pytest.mark.parametrize("config", [SMALL, cohorts_of(3), cohorts_of(20)], ids=["everybody", "3", "20"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_is_read_back_is_what_was_saved_bit_for_bit(tmp_path, count, config):
    expected = model_of(NAMES[:count], config)
    with Store(tmp_path / "s").writing() as transaction:
        saved = transaction.save(expected)
    assert_same(saved, expected)
    assert_same(Store(tmp_path / "s").check(), expected)
    assert [speaker.id for speaker in saved.speakers] == [speaker.id for speaker in expected.speakers]


def test_a_model_extended_twice_in_memory_or_read_from_another_store_is_saved_whole(tmp_path, five):
    twice = model_of(NAMES[4:], known=model_of(NAMES[2:4], known=model_of(NAMES[:2])))
    rest = add(tmp_path / "all", NAMES, cohorts_of("all")).view_without("cyd")
    for name, model in (("memory", twice), ("copy", Store(five).load()), ("rest", rest)):
        with Store(tmp_path / name).writing() as transaction:
            assert_same(transaction.save(model), model)
        Store(tmp_path / name).check()


def test_enrolling_more_leaves_the_rows_of_earlier_pair_machines_alone(tmp_path):
    add(tmp_path / "s", NAMES[:3])
    before = hostile.query(tmp_path / "s", "SELECT rowid, * FROM pair")
    add(tmp_path / "s", NAMES[3:])
    after = hostile.query(tmp_path / "s", "SELECT rowid, * FROM pair")
    assert after[: len(before)] == before
    assert len(after) == 10


@pytest.mark.parametrize("name", ["a b", "q?x=1", "h#h", "p%41", "ä✓", "-wal", "file:x", "a" * 200])
def test_the_path_of_a_store_is_taken_as_it_is(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    add(Path("in", name), NAMES[:2])
    model = Store(f"in/{name}").load()
    os.chdir("in")  # what is open stays where it was
    assert_same(pickle.loads(pickle.dumps(model)), model_of(NAMES[:2]))  # noqa: S301
    assert remove_speaker(name, NAMES[0]).names == NAMES[1:2]
    del model
    assert [path.name for path in Path().iterdir()] == [name]


def test_a_link_to_a_store_is_the_store_and_stays_a_link(five, tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(five)
    remove_speaker(link, "ada")
    assert link.is_symlink()
    assert Store(five).load().names == NAMES[1:]
    assert left_over(five) == set()
    (tmp_path / "dangling").symlink_to(target)
    with pytest.raises(ZeroDivisionError), Store(tmp_path / "dangling").writing():
        raise ZeroDivisionError
    assert not target.exists()
    add(tmp_path / "dangling", NAMES[:1])
    assert target.is_file()


def test_a_model_goes_to_other_processes_by_pickling_and_by_forking(five):
    model, expected = Store(five).load(), model_of(NAMES)
    for method in multiprocessing.get_all_start_methods():
        if method != "forkserver":
            process = multiprocessing.get_context(method).Process(target=assert_same, args=(model, expected))
            process.start()
            process.join()
            assert process.exitcode == 0, method
    assert_same(model, expected)


def test_threads_share_one_model(five):
    model, expected = Store(five).load(), model_of(NAMES)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: assert_same(model, expected), range(8)))


# Snapshots


@pytest.mark.parametrize("change", [lambda path: add(path, ("fay",)), lambda path: remove_speaker(path, "ada")])
def test_a_model_that_is_open_stays_the_one_that_was_opened(five, change):
    opened_before, state = Store(five).load(), Store(five).state()
    change(five)
    assert Store(five).state() == (state[0], state[1] + 1)
    assert_same(opened_before, model_of(NAMES))
    assert Store(five).load().names != NAMES


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["enroll", "remove", "fail"]), st.integers(0, 6), st.integers(1, 3)), max_size=12
    ),
    st.sampled_from([SMALL, *map(cohorts_of, (1, 2, 4, "all"))]),
)
def test_a_store_that_changes_holds_those_who_are_there_and_no_trace_of_others(tmp_path, steps, config):
    """Enrolling in steps and removing anybody gives the model trained at once of those who are left."""
    everybody = (*NAMES, "Zoë-1", "Yngwie-2")
    path = tmp_path / "changing" / "s"
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    there: list[str] = []
    for step, number, count in steps:
        new = tuple(name for name in everybody[number : number + count] if name not in there)
        if step == "enroll" and new:
            add(path, new, config)
            there += new
        elif step == "remove" and everybody[number] in there:
            remove_speaker(path, everybody[number])
            there.remove(everybody[number])
        else:
            with contextlib.suppress(ZeroDivisionError), Store(path).writing():
                raise ZeroDivisionError
    assert left_over(path) == set()
    if not path.exists():
        assert there == []
        return
    if there:
        assert_same(Store(path).check(), model_of(tuple(there), config))
    data = path.read_bytes()
    for gone in set(everybody) - set(there):
        if gone not in NAMES:  # those are three letters each, which digests and numbers may hold by chance
            assert gone.encode() not in data
        assert not any(row.tobytes() in data for row in (*book_of(gone), *segments_of(gone)))


# One writer at a time

HOLD = """
import sys
from pipeline.store.store import Store
with Store(sys.argv[1]).writing():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def another_writer(path: Path):
    """A second process that holds the store's writer until the block ends."""
    words = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()
            process.wait()


def test_a_second_writer_is_refused_at_once_and_readers_are_not_disturbed(five):
    before = content(five)
    with another_writer(five):
        for attempt in (lambda: add(five, ("fay",)), lambda: remove_speaker(five, "ada")):
            with pytest.raises(StoreBusyError, match=re.escape(str(five))):
                attempt()
        assert_same(Store(five).check(), model_of(NAMES))
    assert content(five) == before
    assert remove_speaker(five, "ada").names == NAMES[1:]  # a killed writer holds nothing


def test_a_store_being_made_is_busy_for_a_second_writer_and_missing_for_readers(tmp_path):
    path = tmp_path / "new"
    with another_writer(path):
        with pytest.raises(StoreBusyError):
            add(path, NAMES[:1])
        with pytest.raises(StoreMissingError):
            Store(path).load()
        assert path.exists(), "a file that somebody else made was deleted"
    add(path, NAMES[:2])
    assert left_over(path) == set()
    with Store(path).writing(), pytest.raises(StoreBusyError), Store(path).writing():
        pytest.fail("two writers at once in one process")


def test_who_wrote_leaves_one_file_and_nothing_for_the_garbage_collector(tmp_path):
    """A model that lives on in a cycle is open: the log stays beside the store, and memory is not given back."""

    def written(name: str) -> int:
        with Store(tmp_path / "s").writing() as transaction:
            model = transaction.save(model_of((name,), known=transaction.model))
        return len(model)

    gc.collect()
    gc.disable()
    try:
        for number, name in enumerate(NAMES[:3], start=1):
            assert written(name) == number
            assert [path.name for path in tmp_path.iterdir()] == ["s"]
    finally:
        gc.enable()


def test_a_first_enrollment_that_fails_deletes_no_store_that_another_one_made(tmp_path, monkeypatch):
    """Another writer makes the store, or takes its empty file away, after this one saw that there was none."""
    from pipeline.store import store as module

    path = tmp_path / "s"

    def meanwhile(before, after) -> None:
        def opening(*given, **named):
            monkeypatch.setattr(module, "open_rows", open_rows)
            before()
            rows = open_rows(*given, **named)
            after()
            return rows

        monkeypatch.setattr(module, "open_rows", opening)

    meanwhile(lambda: add(path, NAMES[:2]), lambda: None)
    with pytest.raises(ZeroDivisionError), Store(path).writing():
        raise ZeroDivisionError
    assert Store(path).check().names == NAMES[:2]
    path.unlink()
    meanwhile(lambda: None, lambda: (path.unlink(), path.touch()))
    with pytest.raises(StoreBusyError), Store(path).writing():
        pytest.fail("a writer of a file that is gone")


def test_a_first_enrollment_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError), Store(tmp_path / "s").writing():
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "s").touch()  # nor does it delete one that was there
    with pytest.raises(ZeroDivisionError), Store(tmp_path / "s").writing():
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == [tmp_path / "s"]
    with pytest.raises(StoreError, match=re.escape(str(tmp_path / "no" / "s"))):
        add(tmp_path / "no" / "s", NAMES[:1])


# Names are data

STRANGE = (
    "../x", "a/b", "/etc/passwd", "C:\\con", "🎤🧑‍🚀", "n" * 300, "Anna", "anna", "ANNA", "a\nb", "a\0b", " ", ".",
    "'; --",
)  # fmt: skip


def test_any_name_can_be_enrolled_claimed_and_removed_and_no_path_is_made_of_it(tmp_path):
    path = tmp_path / "inner" / "s"
    path.parent.mkdir()
    add(path, STRANGE)
    model = Store(path).check()
    assert model.names == STRANGE
    assert [model.position(name) for name in STRANGE] == list(range(len(STRANGE)))
    Verifier(model, "../x", decide_by=Threshold(0.0))
    for number, name in enumerate(STRANGE):
        assert remove_speaker(path, name).names == STRANGE[number + 1 :]
    del model
    assert sorted(tmp_path.rglob("*")) == [path.parent, path]


def test_nobody_is_renamed_to_a_name_that_is_taken(five):
    before = content(five)
    with pytest.raises(SpeakerExistsError, match="'bea' is enrolled already"):
        Store(five).rename("ada", "bea")
    assert content(five) == before


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (("a\udcff",), StoreError, r"s: text that is not valid Unicode.*udcff"),
        (("ada",), SpeakerExistsError, "'ada'"),
        (("fay", "fay"), SpeakerExistsError, "'fay'"),
    ],
)
def test_names_that_are_no_unicode_or_taken_are_refused_and_nothing_changes(five, names, error, words):
    before = content(five)
    with pytest.raises(error, match=words):
        add(five, names)
    assert content(five) == before


# Files that are no stores


@pytest.mark.parametrize("data", [b"mine", b"SQLite format 3\0", b"x" * 5000, None])
def test_a_file_of_something_else_is_refused_and_untouched(tmp_path, data):
    path = tmp_path / "file"
    if data is None:
        hostile.edit(path, "CREATE TABLE mine (x)", vouch=False)
    else:
        path.write_bytes(data)
    before = path.read_bytes()
    for attempt in (lambda: Store(path).load(), lambda: add(path, NAMES[:1]), lambda: remove_speaker(path, "ada")):
        with pytest.raises(StoreFormatError, match=re.escape(str(path))):
            attempt()
    assert path.read_bytes() == before
    assert left_over(path) == set()


def test_things_at_the_path_that_are_no_files_are_refused_at_once(tmp_path):
    (tmp_path / "in").mkdir()
    assert Store(".").stamp()  # of something, which `load` refuses
    for kind, path in {**hostile.things(tmp_path / "in"), "here": Path()}.items():
        for attempt in (Store(path).load, Store(path).state):
            if kind not in {"missing", "to-nowhere"}:
                with pytest.raises(StoreError):
                    attempt()
        if kind not in {"missing", "to-nowhere", "NUL"}:
            with pytest.raises(StoreError), Store(path).writing():
                pytest.fail(f"a store in the place of a {kind}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs users whom permissions stop")
def test_a_user_who_may_only_read_leaves_nothing_in_the_owners_way(five):
    with open_folder() as folder:
        path = Path(shutil.copy(five, folder / "s"))
        path.chmod(0o644 if os.geteuid() == 0 else 0o444)
        Store(path).load()

        def check() -> None:
            assert "ada" in Store(path).load().names
            with pytest.raises(StoreError, match="read-only, for this user"):
                Store(path).rename("ada", "eva")

        as_another_user(check)
        assert [one.name for one in folder.iterdir()] == ["s"]
        path.chmod(0o644)
        assert "eva" in Store(path).rename("ada", "eva").names
