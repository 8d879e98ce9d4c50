"""Settings and stores made by hand: each loads and scores as its numbers say, or is refused by name."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import hostile
import numpy as np
import pytest
from hostile import soon
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from populations import NAMES, add, assert_same, cohorts_of, model_of, numbers_of

from pipeline.config import load_config
from pipeline.errors import ConfigError, MetricError, StoreError, StoreFormatError
from pipeline.machines.branches import SUPERVECTOR
from pipeline.store.layout import TRIAL_ARRAYS
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def fresh(store: Path, folder: Path) -> Path:
    """Copy ``store`` to a folder of its own, away from the log of one that an earlier example may have open."""
    return Path(shutil.copy(store, tempfile.mkdtemp(dir=folder)))


NESTED, DIGITS, DOTTED = "[" * 20_000, "9" * 5000, ".".join(["a"] * 20_000)
ENDLESS = (
    f"x = {NESTED}", "x = " + "[\n" * 20_000, "x = " + "{a=" * 5000, f"{DOTTED} = 1", f"[{DOTTED}]", f"seed = {DIGITS}",
    "seed = 0x" + "f" * 100_000, "seed = 1\0", "# " + "x" * 2**20, "[scoring]\nmin_seconds = 1e308",
)  # fmt: skip


@pytest.mark.parametrize("text", ENDLESS)
def test_settings_that_would_take_for_ever_are_refused_by_name(tmp_path, text):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with soon(), pytest.raises(ConfigError, match=r"settings\.toml: ") as caught:
        load_config(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("override", [f"seed={NESTED}", f"seed={DIGITS}", f"{DOTTED}=1"])
def test_an_override_that_would_take_for_ever_is_refused(override):
    with soon(), pytest.raises(ConfigError):
        load_config(None, [override])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_in_the_places_of_settings_stores_and_their_logs_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "settings.toml")
    os.mkfifo(tmp_path / "s")
    with soon(), pytest.raises(ConfigError, match=r"settings\.toml: .*named pipe"):
        load_config(tmp_path / "settings.toml")
    for attempt in (Store(tmp_path / "s").load, lambda: add(tmp_path / "s", NAMES[:1])):
        with soon(), pytest.raises(StoreError, match="s: not a regular file"):
            attempt()
    add(tmp_path / "t", NAMES[:2])
    for name in ("t-wal", "t-journal", "t-shm"):
        for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path)):
            beside = tmp_path / name
            make(beside)
            try:
                with soon():
                    assert_same(Store(tmp_path / "t").check(), model_of(NAMES[:2]))
            except StoreError as error:
                assert str(tmp_path / "t") in str(error)
            assert (tmp_path / "t").is_file()
            beside.rmdir() if make is Path.mkdir else beside.unlink(missing_ok=True)
    Store(tmp_path / "t").check()


BENT = {
    "longer": lambda array: np.concatenate([array, array[:1]]),
    "shorter": lambda array: array[:-1],
    "narrower": lambda array: array[:, :-1] if array.ndim > 1 else array[:, None],
    "another kind": lambda array: array.astype(np.int64 if array.dtype.kind == "f" else np.float64),
    "NaN": lambda array: np.concatenate([[np.nan], array.ravel()[1:]]).reshape(array.shape),
    "huge": lambda array: np.full(array.shape, 1e300),
}


@settings(SETTINGS, max_examples=20)
@given(st.data())
def test_a_store_whose_arrays_do_not_fit_each_other_is_refused_though_digests_hold(store, heard, tmp_path, data):
    """Or a recording is scored, by machines of every kind, as a finite number."""
    path = fresh(store, tmp_path)
    row, name, array = data.draw(st.sampled_from([entry for entry in hostile.arrays_in(path) if entry[2].size]))
    how = data.draw(st.sampled_from(["left out", *BENT]))
    if how == "left out":
        hostile.edit(path, "DELETE FROM array WHERE rowid = ?", row)
    else:
        hostile.put_array(path, row, BENT[how](array))
    try:
        model = Store(path).load()
        for system in ("boao", "poar", "rpoao", "fused"):
            score = Verifier(model, "anna", system=system, decide_by=Threshold(0.0)).verify_file(heard("anna")).score
            assert np.isfinite(score)
        model.segments(SUPERVECTOR)
    except (StoreFormatError, MetricError) as error:
        assert str(path) in str(error)
    optional = (
        name.endswith("segments")
        or name in {*TRIAL_ARRAYS, "fingerprints"}
        or "trials.prefix" in name
        or (".inner" in name and how == "left out")
        or "trials.score" in name
    )
    if how in {"left out", "shorter"} and not optional:
        with pytest.raises(StoreFormatError, match=re.escape(str(path))):
            Store(path).check()


# Rows

VALUES = (
    None, 0, 1, -1, 2**31, 2**63 - 1, -(2**63), 0.5, float("inf"), -1e308, "", "x", "null", "[]", "{}", "[" * 9999,
    "9" * 5000, '{"a": NaN}', b"", b"\xff\xfe", b"x" * 40, "anna", "[-1]", "[1099511627776, 0]", "[true]", "sha256:",
)  # fmt: skip
COLUMNS = [
    *(("store", name) for name in ("format", "version", "identity", "revision", "config", "calibrations", "digest")),
    *(("speaker", name) for name in ("id", "number", "name", "role", "seconds", "frames", "utterances", "centroids")),
    *(("array", name) for name in ("owner", "name", "dtype", "shape", "digest", "data")),
    *(("pair", name) for name in ("later", "earlier", "bias", "own", "rival", "digest")),
]


def loosened(path: Path) -> sqlite3.Connection:
    """Open a store's file so that any value of any type can be put anywhere, as by an editor of bytes."""
    rows = sqlite3.connect(path, isolation_level=None)
    rows.execute("PRAGMA writable_schema = ON")
    # No constraints, and BLOB affinity, which keeps every value as it is.
    schema = rows.execute("SELECT rowid, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    for row, sql in schema:
        loose = re.sub(r" NOT NULL| UNIQUE(?! \()| CHECK \(one = 1\)", "", sql)
        loose = re.sub(r"\b(TEXT|REAL)\b", "BLOB", re.sub(r"INTEGER(?! PRIMARY)", "BLOB", loose))
        rows.execute("UPDATE sqlite_master SET sql = ? WHERE rowid = ?", (loose, row))
    rows.close()
    rows = sqlite3.connect(path, isolation_level=None)
    rows.execute("PRAGMA writable_schema = ON")
    for row, sql in schema:
        rows.execute("UPDATE sqlite_master SET sql = ? WHERE rowid = ?", (sql, row))  # read again by the next to open
    return rows


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("small") / "s"
    add(path, NAMES[:3], cohorts_of(2))
    return path


@settings(SETTINGS, max_examples=40)
@given(st.sampled_from(COLUMNS), st.sampled_from(VALUES), st.booleans(), st.booleans())
@example(("store", "format"), "[" * 9999, False, True)  # a value as long as that is not repeated whole
def test_any_value_of_any_type_in_any_column_is_refused_or_makes_no_difference(
    small, tmp_path, column, value, everywhere, vouched
):
    path, (table, name) = fresh(small, tmp_path), column
    where = "" if everywhere else f"WHERE rowid = (SELECT max(rowid) FROM {table})"  # noqa: S608
    before = numbers_of(Store(path).load())
    with closing(loosened(path)) as rows:
        try:
            rows.execute(f"UPDATE {table} SET {name} = ? {where}", (value,))  # noqa: S608
        except sqlite3.IntegrityError:
            return
    if vouched:
        try:
            hostile.vouch_for(path)
        except (TypeError, ValueError, sqlite3.Error):
            return
    try:
        with soon():
            model = Store(path).check()
            numbers = numbers_of(model)
            for speaker in model.names:
                Verifier(model, speaker, decide_by=Threshold(0.5))
    except (StoreError, MetricError) as error:
        assert str(path) in str(error)
        assert len(str(error)) < 2000
        return
    if not vouched:
        assert numbers.keys() == before.keys()
        assert all(np.array_equal(numbers[key], before[key]) for key in before)


@settings(SETTINGS, max_examples=40)
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_file_with_changed_bytes_is_refused_or_makes_no_difference(small, tmp_path, chance, pages):
    from torture.damage import PAGE, damaged

    sound, path = small.read_bytes(), fresh(small, tmp_path)
    one, other = (PAGE * chance.randrange(len(sound) // PAGE) for _ in range(2))
    swapped = sound[:one] + sound[other : other + PAGE] + sound[one + PAGE :]
    path.write_bytes(swapped if pages else damaged(chance, sound))
    try:
        with soon():
            assert_same(Store(path).load(), model_of(NAMES[:3], cohorts_of(2)))
    except StoreError as error:
        assert str(path) in str(error)


def test_text_that_is_not_utf_8_is_refused(small, tmp_path):
    path = tmp_path / "s"
    for old, new in ((b"bea", b"be\xff"), (b"one_class_bias", b"one_class_bia\xff"), (b'"seed": 0', b'"see\xc3": 0')):
        path.write_bytes(small.read_bytes().replace(old, new))
        with pytest.raises(StoreFormatError, match=re.escape(str(path))):
            Store(path).load()


def test_a_file_far_larger_than_its_rows_costs_no_memory_and_no_time(small, tmp_path):
    path = hostile.sparse(tmp_path / "s", small.read_bytes(), 2**35)
    with soon():
        try:
            assert_same(Store(path).load(), model_of(NAMES[:3], cohorts_of(2)))
        except StoreFormatError as error:
            assert str(path) in str(error)


@pytest.mark.parametrize(
    ("section", "key", "value"), [("machines", "sigma", -1.0), ("scoring", "system", "oracle"), ("scoring", "x", 1)]
)
def test_settings_of_a_store_that_break_a_rule_are_refused_by_their_key(three, section, key, value):
    hostile.edit_config(three, section, **{key: value})
    with pytest.raises(StoreFormatError, match=rf"{three}: .*config: {section}.* enroll again"):
        Store(three).load()


def test_a_store_without_trials_asks_for_the_threshold(copied, heard):
    hostile.edit(copied, "DELETE FROM array WHERE name LIKE 'trials.%'")
    model = Store(copied).load()
    with pytest.raises(MetricError, match="give the threshold"):
        Verifier(model, "anna")
    assert Verifier(model, "anna", decide_by=Threshold(0.0)).verify_file(heard("anna")).decision == "accepted"


def test_calibrations_by_condition_without_vectors_of_conditions_are_refused(three):
    fit = {"against": "all", "systems": ["boar"], "weights": [1.0], "offset": 0.0, "duration": 0.0, "usual_frames": 9.0}
    one = {"ratio": [fit], "weights": [], "changed": None}
    bent = {
        "whole": {"boar": {**one, "changed": one, "condition": [{**fit, "systems": ["condition"]}]}},
        "sequential": {},
    }
    hostile.edit(three, "UPDATE store SET calibrations = ?", json.dumps(bent))
    with pytest.raises(StoreFormatError, match=r"no speaker has the array 'condition\.recorded'"):
        Store(three).load()
