"""Long arrays of the population, in parts: what comes back, what is written anew, what is refused."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import hostile
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from populations import NAMES, add, assert_same, content, model_of

from pipeline.errors import StoreError, StoreFormatError
from pipeline.scoring.trials import HeldOutTrials
from pipeline.store.blobs import LEAST_PART, MOST_PARTS
from pipeline.store.model import SpeakerModel
from pipeline.store.sealing import seal_store
from pipeline.store.store import Store
from pipeline.verification.audit_events import of_store

OF_TRIALS = "SELECT name, rowid, digest FROM array WHERE owner IS NULL AND name LIKE 'trials.%' ORDER BY rowid"


def with_trials(store: Path, sizes: list[int]) -> SpeakerModel:
    """Give a store so many held-out trials in turn, of each the scores 1, 2, 3 and so on, and read it again."""
    for size in sizes:
        with Store(store).writing() as transaction:
            model = transaction.model
            numbers = np.arange(size)
            more = HeldOutTrials(
                claims=np.full(size, model.speakers[0].id, dtype=np.uint64),
                speakers=np.full(size, model.speakers[1].id, dtype=np.uint64),
                population=np.full(size, 3),
                scores={"boar": numbers.astype(np.float64)},
                frames=numbers + 1,
                unknown=numbers % 2 == 0,
                prefixes={50: {"boar": numbers / 3.0}},
            )
            transaction.save(model.changed([], more.as_arrays()))
    return Store(store).check()


def parts_of(size: int) -> list[slice]:
    """Return the parts of an array of so many numbers, one after another."""
    length = next(2**k for k in range(40) if 2**k >= LEAST_PART and 2**k * MOST_PARTS >= size)
    return [slice(first, min(first + length, size)) for first in range(0, max(1, size), length)]


@settings(max_examples=20, deadline=None)
@example(sizes=[LEAST_PART * MOST_PARTS])
@given(sizes=st.lists(st.integers(0, LEAST_PART * MOST_PARTS * 2), min_size=1, max_size=3))
def test_arrays_that_grow_and_shrink_come_back_and_are_written_where_they_changed(stored, tmp_path_factory, sizes):
    path = Path(shutil.copy(stored[3], tmp_path_factory.mktemp("grown") / "s"))
    with_trials(path, sizes[:-1])
    before = {name: (row, digest) for name, row, digest in hostile.query(path, OF_TRIALS)}
    model = with_trials(path, sizes[-1:])
    after = {name: (row, digest) for name, row, digest in hostile.query(path, OF_TRIALS)}
    assert model.trials([]).frames.tolist() == list(range(1, sizes[-1] + 1))
    parts = parts_of(sizes[-1])
    names = ["trials.frames", *(f"trials.frames+{number}" for number in range(1, len(parts)))]
    assert {name for name in after if name.startswith("trials.frames")} == {*names}
    assert {name.partition("+")[2] for name in after} == {"", *map(str, range(1, len(parts)))}
    if len(sizes) > 1:
        kept = [name for name, part in zip(names, parts, strict=True) if part in parts_of(sizes[-2])]
        assert all(after[name] == before[name] for name in kept)


def test_only_the_end_of_trials_that_grew_is_written(three):
    size = LEAST_PART * (MOST_PARTS - 1)
    with_trials(three, [size + 7])
    size_before = three.stat().st_size
    hostile.edit(three, "UPDATE array SET data = x'00' WHERE name = 'trials.frames+3'", vouch=False)
    with Store(three).writing() as transaction:
        grown = np.arange(1, size + 100)
        transaction.save(transaction.model.changed([], {"trials.frames": grown}))
    damaged = hostile.query(three, "SELECT name FROM array WHERE data = x'00'")
    assert damaged == [("trials.frames+3",)]  # what has not changed was not written
    assert three.stat().st_size - size_before < 2**16


def test_an_array_that_goes_takes_its_parts_along(three):
    model = with_trials(three, [2 * LEAST_PART + 5])
    gone = [name for name in model.shared if name.startswith("trials.")]
    with Store(three).writing() as transaction:
        transaction.save(transaction.model.changed([], {}, removed=gone))
    assert hostile.query(three, OF_TRIALS) == []
    assert_same(Store(three).check(), model_of(NAMES[:3]))


@pytest.mark.parametrize("digest", ["sha256", "hmac-sha256", "another"])
@pytest.mark.parametrize(("version", "advice"), [(4, "enroll again"), (9, "made by a later program")])
def test_a_store_of_another_version_is_refused_by_its_version_however_its_digest_is_made(
    three, version, advice, digest
):
    with closing(sqlite3.connect(three, isolation_level=None)) as rows:
        rows.execute("UPDATE store SET version = ?, digest = ?", (version, f"{digest}:00"))
    before = content(three)
    for attempt in (Store(three).load, lambda: add(three, ("fay",))):
        with pytest.raises(
            StoreFormatError, match=f"version {version}, but this program reads versions 7 to 8; {advice}"
        ):
            attempt()
    assert content(three) == before


def test_arrays_of_a_speaker_are_one_row_however_long(three):
    prints = np.arange(LEAST_PART + 1, dtype=np.uint32)
    with Store(three).writing() as transaction:
        transaction.save(transaction.model.changed([{"fingerprints": prints}] * 3, {}))
    rows = hostile.query(three, "SELECT DISTINCT name FROM array WHERE name LIKE 'fingerprints%'")
    assert rows == [("fingerprints",)]
    assert all(np.array_equal(own["fingerprints"], prints) for own in Store(three).check().arrays)


def test_numbers_of_either_byte_order_come_back_and_those_of_other_kinds_are_refused(three):
    with_trials(three, [5])
    numbers = np.arange(6, 11)
    with Store(three).writing() as transaction:
        transaction.save(transaction.model.changed([], {"trials.frames": numbers.astype(">i8")}))
    with Store(three).writing() as transaction:
        other = transaction.model.changed([], {"trials.frames": np.arange(5, dtype=np.int32)})
        with pytest.raises(StoreError, match="an array of int32 cannot be stored"):
            transaction.save(other)
    assert Store(three).check().shared["trials.frames"].tolist() == numbers.tolist()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM array WHERE name = 'trials.frames+1'",
        "DELETE FROM array WHERE name = 'trials.frames'",
        "DELETE FROM array WHERE name = 'trials.frames+2'",
        "UPDATE array SET name = 'trials.frames+7' WHERE name = 'trials.frames+1'",
        "UPDATE array SET name = 'trials.frames+' WHERE name = 'trials.frames+1'",
        "UPDATE array SET dtype = '<f8' WHERE name = 'trials.frames+1'",
        "UPDATE array SET shape = '[4096, 2]' WHERE name = 'trials.frames+1'",
        "UPDATE array SET shape = '[1]' WHERE name = 'trials.frames+1'",
        "UPDATE array SET data = (SELECT data FROM array WHERE name = 'trials.frames') WHERE name = 'trials.frames+2'",
    ],
)
def test_parts_that_are_gone_or_do_not_fit_are_refused(three, sql):
    with_trials(three, [2 * LEAST_PART + 5])
    hostile.edit(three, sql)
    with pytest.raises(StoreFormatError, match=str(three)):
        Store(three).check()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE array SET dtype = '<f8' WHERE name = 'trials.frames+1'",
        "INSERT INTO array SELECT NULL, 'trials.frames+4', dtype, shape, digest, data FROM array LIMIT 1",
    ],
)
def test_no_column_and_no_row_is_outside_the_digests(three, sql):
    with_trials(three, [2 * LEAST_PART + 5])
    hostile.edit(three, sql, vouch=False)
    with pytest.raises(StoreFormatError, match=f"{three}: the list of arrays is damaged"):
        Store(three).load()


@pytest.mark.parametrize("shape", ["[-1]", "[true]", "[1.0]", "1", "{}", "[1099511627776, 0]"])
def test_a_shape_that_is_no_list_of_lengths_is_refused(three, shape):
    with_trials(three, [1])
    hostile.edit(three, "UPDATE array SET shape = ? WHERE name = 'trials.frames'", shape)
    with pytest.raises(StoreFormatError, match="a shape must be a list of lengths"):
        Store(three).check()


def test_parts_in_another_order_do_not_have_their_digests(three):
    with_trials(three, [2 * LEAST_PART])
    hostile.edit(three, "UPDATE array SET name = 'other' WHERE name = 'trials.frames'", vouch=False)
    hostile.edit(three, "UPDATE array SET name = 'trials.frames' WHERE name = 'trials.frames+1'", vouch=False)
    hostile.edit(three, "UPDATE array SET name = 'trials.frames+1' WHERE name = 'other'", vouch=False)
    with pytest.raises(StoreFormatError, match="digest"):
        Store(three).check()


def test_a_store_of_the_version_without_parts_opens_and_is_of_this_one_once_it_changes(three, tmp_path):
    hostile.edit(three, "UPDATE store SET version = 7")
    sealed = Path(shutil.copy(three, tmp_path / "sealed"))
    before = Store(three).check()
    assert_same(before, model_of(NAMES[:3]))
    assert before.version == of_store(before)["store_version"] == 7
    add(three, NAMES[3:4])
    seal_store(sealed, b"sixteen bytes or more")  # writes arrays in parts, too
    for store in (three, sealed):
        assert hostile.query(store, "SELECT version FROM store") == [(8,)]
    assert_same(Store(three).check(), model_of(NAMES[:4]))
