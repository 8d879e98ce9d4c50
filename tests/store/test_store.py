"""The store: what comes back, what a snapshot keeps, who may write, what removal erases."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import hostile
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from populations import (
    NAMES,
    SMALL,
    TABLES,
    add,
    assert_same,
    book_of,
    cohorts_of,
    content,
    left_over,
    model_of,
    numbers_of,
    segments_of,
)

from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import (
    SpeakerExistsError,
    StoreBusyError,
    StoreError,
    StoreFormatError,
    StoreMissingError,
    UnknownSpeakerError,
)
from pipeline.store.rows import Rows, opened
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A store of five speakers."""
    path = tmp_path_factory.mktemp("five") / "s"
    add(path, NAMES)
    return path


@pytest.fixture
def five(made, tmp_path) -> Path:
    (tmp_path / "five").mkdir()
    return Path(shutil.copy(made, tmp_path / "five" / "s"))


# Round trip


@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_is_read_back_is_what_was_saved_bit_for_bit(tmp_path, count):
    expected = model_of(NAMES[:count])
    with Store(tmp_path / "s").writing() as transaction:
        saved = transaction.save(expected)
    assert_same(saved, expected)
    assert_same(Store(tmp_path / "s").check(), expected)
    assert [speaker.id for speaker in saved.speakers] == [speaker.id for speaker in expected.speakers]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_enrolling_in_two_steps_stores_the_numbers_of_one_step(tmp_path, count):
    add(tmp_path / "s", NAMES[:count])
    assert_same(add(tmp_path / "s", NAMES[count:]), model_of(NAMES))


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


def test_nothing_but_numbers_names_and_json_is_stored(store):
    for table in TABLES:
        for row in hostile.query(store, f"SELECT * FROM {table}"):  # noqa: S608
            assert {type(value) for value in row} <= {int, float, str, bytes, type(None)}
    for _, name, array in hostile.arrays_in(store):
        assert array.dtype.kind in "fuib", name
    json.loads(hostile.query(store, "SELECT calibrations FROM store")[0][0])


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
    link = tmp_path / "link"
    link.symlink_to(five)
    remove_speaker(link, "ada")
    assert link.is_symlink()
    assert Store(five).load().names == NAMES[1:]
    assert left_over(five) == set()
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "target")
    with pytest.raises(ZeroDivisionError), Store(dangling).writing():
        raise ZeroDivisionError
    assert not (tmp_path / "target").exists()
    add(dangling, NAMES[:1])
    assert (tmp_path / "target").is_file()


def test_a_model_goes_to_other_processes_by_pickling_and_by_forking(five):
    model, expected = Store(five).load(), model_of(NAMES)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (there,) = pool.map(numbers_of, [model])
    ours = numbers_of(expected)
    assert all(np.array_equal(there[name], ours[name]) for name in ours)
    if not hasattr(os, "fork"):
        return
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            assert_same(model, expected)
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert_same(model, expected)


def test_threads_share_one_model(five):
    model, expected, wrong = Store(five).load(), numbers_of(model_of(NAMES)), []

    def read() -> None:
        ours = numbers_of(model)
        wrong.extend(name for name in expected if not np.array_equal(ours[name], expected[name]))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# The cost of a claim


def test_opening_reads_lists_alone_and_a_claim_reads_what_it_needs(tmp_path, monkeypatch):
    add(tmp_path / "s", NAMES, cohorts_of(1))
    arrays, pairs = [], []
    read_array, pairs_of = Rows.read_array, Rows.pairs_of
    monkeypatch.setattr(Rows, "read_array", lambda *given: arrays.append(given[1:3]) or read_array(*given))
    monkeypatch.setattr(Rows, "pairs_of", lambda *given: pairs.append(given[1]) or pairs_of(*given))
    model = Store(tmp_path / "s").load()
    assert (arrays, pairs) == ([], [])
    assert "ubm.means" not in model.shared
    assert model.competing("worst_rival") == 1
    assert arrays == []
    Verifier(model, "cyd", decide_by=Threshold(0.5))
    cohort = model.cohort_table.nearest[2].tolist()
    assert set(pairs) == {model.speakers[2].id}
    owners = {owner for owner, name in arrays if owner is not None and name != "fingerprints"}
    assert owners == {model.speakers[number].id for number in [2, *cohort]}


# Snapshots


@pytest.mark.parametrize("change", [lambda path: add(path, ("fay",)), lambda path: remove_speaker(path, "ada")])
def test_a_model_that_is_open_stays_the_one_that_was_opened(five, change):
    opened_before, state = Store(five).load(), Store(five).state()
    change(five)
    assert Store(five).state() == (state[0], state[1] + 1)
    assert_same(opened_before, model_of(NAMES))
    assert Store(five).load().names != NAMES


@pytest.mark.parametrize("number", range(5))
def test_removing_a_speaker_leaves_the_numbers_of_a_store_that_never_had_them(five, number):
    left = remove_speaker(five, NAMES[number])
    assert_same(left, model_of(NAMES[:number] + NAMES[number + 1 :]))
    del left
    Store(five).check()


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(["enroll", "remove", "fail"]), st.sampled_from(["Zoë-1", *NAMES])), max_size=12),
    st.sampled_from([SMALL, cohorts_of(2)]),
)
def test_whoever_comes_and_goes_the_store_holds_those_who_are_there_and_no_trace_of_others(tmp_path, steps, config):
    path = tmp_path / "changing" / "s"
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    there: list[str] = []
    for step, name in steps:
        if step == "enroll" and name not in there:
            add(path, (name,), config)
            there.append(name)
        elif step == "remove" and name in there:
            remove_speaker(path, name)
            there.remove(name)
        else:
            with contextlib.suppress(ZeroDivisionError), Store(path).writing():
                raise ZeroDivisionError
    assert left_over(path) <= {"changing"}
    if not path.exists():
        assert there == []
        return
    if there:
        assert_same(Store(path).check(), model_of(tuple(there), config))
    data = path.read_bytes()
    for gone in {"Zoë-1", *NAMES} - set(there):
        if gone not in NAMES:  # those are three letters each, which digests and numbers may hold by chance
            assert gone.encode() not in data
        assert not any(row.tobytes() in data for row in (*book_of(gone), *segments_of(gone)))


# Removal


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_no_byte_of_a_removed_speaker_is_left_in_the_file_or_its_log(five, gone):
    model = Store(five).load()
    name, identity = NAMES[gone], model.speakers[gone].id
    title = f"{name} against"
    own = {
        array.tobytes()[at : at + 8 * array.itemsize]
        for key, array in numbers_of(model).items()
        if (key.startswith((f"{name}: ", title)) or key.endswith(f"against {name}: own")) and array.size >= 8
        for at in range(0, array.nbytes - 8 * array.itemsize + 1, 8 * array.itemsize)
    }
    shared = {model_array.tobytes() for n in range(5) if n != gone for model_array in model.arrays[n].values()}
    own = {trace for trace in own if trace.strip(b"\0") and not any(trace in one for one in shared)}
    own |= {np.float64(machine.bias).tobytes() for machine in model.pairs.against(gone).values()}
    own |= {np.float64(-machine.bias).tobytes() for machine in model.pairs.against(gone).values()}
    del model

    def traces() -> set[bytes]:
        data = b"".join(path.read_bytes() for path in five.parent.iterdir())
        big = [np.float64(0).tobytes(), *own, name.encode() + b"speaker", identity.to_bytes(8, "big")]
        return {trace for trace in big[1:] if trace in data or trace[::-1] in data}

    before = traces()
    assert len(before) > 20
    assert {name.encode() + b"speaker", identity.to_bytes(8, "big")} <= before
    model = remove_speaker(five, name)
    assert traces() == set(), "though the new model is open"
    assert content(five)
    del model
    assert traces() == set()


def test_what_a_reader_still_holds_is_erased_when_the_reader_is_done(five):
    reader = Store(five).load()
    remove_speaker(five, "cyd")
    assert_same(reader, model_of(NAMES))
    del reader
    with contextlib.suppress(UnknownSpeakerError), Store(five).writing():
        pass
    assert not any(b"cydspeaker" in path.read_bytes() for path in five.parent.iterdir())


def test_removed_speakers_take_their_held_out_trials_along(copied):
    before = Store(copied).load()
    gone, trials = before.speakers[1].id, before.trials()
    kept = (trials.claims != gone) & (trials.speakers != gone)
    after = remove_speaker(copied, before.speakers[1].name).trials()
    assert gone not in {*after.claims.tolist(), *after.speakers.tolist()}
    np.testing.assert_array_equal(after.scores["poar"], trials.scores["poar"][kept])


def test_removing_somebody_unknown_changes_nothing(copied):
    before = content(copied)
    with pytest.raises(UnknownSpeakerError, match=r"'annna'.*'anna'"):
        remove_speaker(copied, "annna")
    assert content(copied) == before


def test_where_there_is_no_store_none_is_made_by_reading_or_removing(tmp_path):
    (tmp_path / "empty").touch()
    for path in (tmp_path / "a" / "b", tmp_path / "nowhere", tmp_path / "empty"):
        for attempt in (lambda path=path: remove_speaker(path, "anna"), lambda path=path: Store(path).load()):
            with pytest.raises(StoreMissingError, match=re.escape(str(path))):
                attempt()
        assert Store(path).state() is None
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_everybody_can_be_removed_and_others_enrolled_after(copied, voices, recordings, heard):
    for name in voices:
        left = remove_speaker(copied, name)
    assert left.speakers == ()
    with pytest.raises(UnknownSpeakerError, match="nobody is enrolled"):
        Verifier(left, "anna")
    Store(copied).check()
    model = enroll(copied, {name: recordings[name] for name in ("greta", "hugo")}).model
    assert Verifier(model, "greta").verify_file(heard("greta")).decision == "accepted"


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
            yield process
        finally:
            process.kill()


def test_a_second_writer_is_refused_at_once_and_readers_are_not_disturbed(five):
    before = content(five)
    with another_writer(five) as process:
        for attempt in (lambda: add(five, ("fay",)), lambda: remove_speaker(five, "ada")):
            with pytest.raises(StoreBusyError, match=re.escape(str(five))):
                attempt()
        assert_same(Store(five).check(), model_of(NAMES))
        process.kill()
        process.wait()
        assert content(five) == before
        assert remove_speaker(five, "ada").names == NAMES[1:]  # a killed writer holds nothing


def test_a_store_being_made_is_busy_for_a_second_writer_and_missing_for_readers(tmp_path):
    path = tmp_path / "new"
    with another_writer(path) as process:
        with pytest.raises(StoreBusyError):
            add(path, NAMES[:1])
        with pytest.raises(StoreMissingError):
            Store(path).load()
        assert path.exists(), "a file that somebody else made was deleted"
        process.kill()
        process.wait()
    add(path, NAMES[:2])
    assert left_over(path) == set()


def test_the_writer_of_this_process_shuts_out_its_other_threads(five):
    with Store(five).writing(), pytest.raises(StoreBusyError), Store(five).writing():
        pytest.fail("two writers at once")


def test_a_first_enrollment_that_fails_deletes_no_store_that_another_one_made(tmp_path, monkeypatch):
    """Another writer makes the store, or takes its empty file away, after this one saw that there was none."""
    from pipeline.store import store as module

    path = tmp_path / "s"

    def meanwhile(*, before=lambda: None, after=lambda: None) -> None:
        def opening(*given, **named):
            monkeypatch.setattr(module, "opened", opened)
            before()
            rows = opened(*given, **named)
            after()
            return rows

        monkeypatch.setattr(module, "opened", opening)

    meanwhile(before=lambda: add(path, NAMES[:2]))
    with pytest.raises(ZeroDivisionError), Store(path).writing():
        raise ZeroDivisionError
    assert Store(path).check().names == NAMES[:2]
    path.unlink()
    meanwhile(after=lambda: (path.unlink(), path.touch()))
    with pytest.raises(StoreBusyError), Store(path).writing():
        pytest.fail("a writer of a file that is gone")


def test_a_first_enrollment_that_fails_leaves_no_file(tmp_path, recordings, tiny, silence):
    with pytest.raises(ZeroDivisionError), Store(tmp_path / "s").writing():
        raise ZeroDivisionError
    from pipeline.audio.corpus import Utterance

    with pytest.raises(Exception, match=r".+"):
        enroll(tmp_path / "s", {"anna": [Utterance(silence)]}, tiny)
    assert list(tmp_path.iterdir()) == []
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


def test_a_name_that_is_no_unicode_is_refused_and_nothing_changes(five):
    before = content(five)
    with pytest.raises(StoreError, match=r"s: text that is no Unicode.*udcff"):
        add(five, ("a\udcff",))
    assert content(five) == before


def test_a_name_that_is_taken_is_refused(five):
    before = content(five)
    for names in (("ada",), ("fay", "fay")):
        with pytest.raises(SpeakerExistsError, match=f"'{names[0]}'"):
            add(five, names)
    assert content(five) == before


# Files that are no stores


@pytest.mark.parametrize("data", [b"mine", b"SQLite format 3\0", b"x" * 5000])
def test_a_file_of_something_else_is_refused_and_untouched(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    for attempt in (lambda: Store(tmp_path / "file").load(), lambda: add(tmp_path / "file", NAMES[:1])):
        with pytest.raises(StoreFormatError, match=re.escape(str(tmp_path / "file"))):
            attempt()
    assert (tmp_path / "file").read_bytes() == data
    assert left_over(tmp_path / "file") == set()


def test_another_database_is_refused_and_untouched(tmp_path):
    path = tmp_path / "db"
    hostile.edit(path, "CREATE TABLE mine (x)", vouch=False)
    before = path.read_bytes()
    for attempt in (lambda: Store(path).load(), lambda: add(path, NAMES[:1]), lambda: remove_speaker(path, "ada")):
        with pytest.raises(StoreFormatError, match="its tables are others"):
            attempt()
    assert path.read_bytes() == before
    assert left_over(path) == set()


def test_things_at_the_path_that_are_no_files_are_refused_at_once(tmp_path):
    (tmp_path / "in").mkdir()
    for kind, path in hostile.things(tmp_path / "in").items():
        for attempt in (lambda path=path: Store(path).load(), lambda path=path: Store(path).state()):
            if kind not in {"missing", "to-nowhere"}:
                with pytest.raises(StoreError):
                    attempt()
        if kind not in {"missing", "to-nowhere", "NUL"}:
            with pytest.raises(StoreError), Store(path).writing():
                pytest.fail(f"a store in the place of a {kind}")
