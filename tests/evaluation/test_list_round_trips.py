"""Lists and score files of this project's formats: what is written reads back, and their formats are recognised."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from list_tables import PLAIN, SETTINGS, SMALL, content, tables
from score_rows import ScoreRow, write_scores

from pipeline.errors import InputError
from pipeline.evaluation import NameColumn, TrialTable, read_list, write_list
from pipeline.evaluation.lists import format_of

BLANKS = " \t\n\r\x0b\x0c"
WRITTEN = [(name, kind) for name in ("csv", "nist", "parquet") for kind in ("key", "scores", "trials")] + [
    ("kaldi", "key"),
    ("kaldi", "scores"),
    ("voiceclaim", "scores"),
]


def can_hold(name: str, table: TrialTable) -> bool:
    """Return True if a format can hold the names of a list, by other rules than the writer's."""
    every = set(table.models) | set(table.segments)
    if "" in every:
        return False
    if name == "kaldi":
        return all(len(text.encode().split()) == 1 and not set(BLANKS) & set(text) for text in every) and not any(
            text[0] in "#\ufeff" for text in every
        )
    forbidden = {"voiceclaim": "\t\n\r", "nist": "\t\n\r", "csv": "\n\r", "parquet": ""}[name]
    return not any(set(forbidden) & set(text) for text in every)


@pytest.mark.parametrize(("name", "kind"), WRITTEN)
@SETTINGS
@given(table=tables())
def test_what_is_written_reads_back_and_what_cannot_be_held_is_refused(tmp_path, name, kind, table):
    path = tmp_path / "list"
    if not can_hold(name, table):
        with pytest.raises(InputError):
            write_list(path, table, format_name=name, kind=kind)
        assert not list(tmp_path.iterdir())
        return
    write_list(path, table, format_name=name, kind=kind)
    assert [file.name for file in tmp_path.iterdir()] == ["list"]
    read = read_list(path, kind=None if kind == "trials" else kind, format_name=name)
    assert content(read, kind) == content(table, kind)
    path.unlink()


@pytest.mark.parametrize(("name", "kind"), WRITTEN)
def test_a_format_is_recognised_from_what_was_written(tmp_path, name, kind):
    write_list(tmp_path / "list", SMALL, format_name=name, kind=kind)
    assert format_of(tmp_path / "list", None if kind == "trials" else kind) == name
    assert format_of(tmp_path / "list") == name


@pytest.mark.parametrize("name", ["csv", "parquet"])
@SETTINGS
@given(table=tables(PLAIN), systems=st.lists(st.sampled_from(["A", "B,b"]), min_size=12, max_size=12))
def test_tables_hold_all_columns_at_once(tmp_path, name, table, systems):
    whole = replace(table, systems=NameColumn.of(systems[: len(table)]), llrs=table.scores + 0.5)
    whole.llrs[0] = np.nan
    if not np.isfinite(whole.llrs[1:]).all():
        return
    write_list(tmp_path / "list", whole, format_name=name)
    read = read_list(tmp_path / "list", format_name=name)
    assert content(read, "key") == content(table, "key")
    assert content(read, "scores") == content(table, "scores")
    np.testing.assert_array_equal(read.llrs, whole.llrs)
    assert list(read.systems) == systems[: len(table)]


ROWS = [
    ScoreRow("POAO", "anna", "my files/a.wav", 0.1 + 0.2, True),
    ScoreRow("BOAO", "anna", "my files/a.wav", 1.0, True, -1.25),
    ScoreRow("POAO", "bob", "my files/a.wav", -1.7e-308, False),
]


def test_text_of_a_score_file(tmp_path):
    path = tmp_path / "scores.tsv"
    write_scores(path, [*ROWS[:2], ScoreRow("A", "b", "c", np.float64(0.25), np.True_, np.float32(0.5))])
    assert path.read_bytes() == (
        b"system\tspeaker\tpath\tscore\tlabel\tllr\n"
        b"POAO\tanna\tmy files/a.wav\t0.30000000000000004\ttarget\t-\n"
        b"BOAO\tanna\tmy files/a.wav\t1.0\ttarget\t-1.25\n"
        b"A\tb\tc\t0.25\ttarget\t0.5\n"
    )


def test_a_kind_that_is_none_and_a_table_that_is_none_are_refused(tmp_path):
    path = tmp_path / "scores.tsv"
    write_scores(path, ROWS)
    for kind in ("score", 3, ["key"]):
        with pytest.raises(InputError, match=r"^kind: one of key, scores, or None, was expected, got "):
            read_list(path, kind=kind)
        with pytest.raises(InputError, match=r"^kind: one of key, scores, trials, or None, was expected, got "):
            write_list(tmp_path / "x.csv", read_list(path), format_name="csv", kind=kind)
    with pytest.raises(InputError, match=r"^table: a TrialTable, as read_list returns, was expected, got list"):
        write_list(tmp_path / "x.csv", ROWS, format_name="csv")
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_row_is_refused_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "scores.tsv"
    write_scores(path, ROWS)
    before = path.read_bytes()
    for row, words in [
        (ScoreRow("A", "b", "c", math.nan, True), "row 2: a score must be finite, got nan"),
        (ScoreRow("A", "b", "c", 1.0, True, math.inf), "row 2: an llr must be finite, got inf"),
        (ScoreRow("POAO", "b", "c", 1.0, True, 0.5), "all of its rows or in none"),
        (ScoreRow("A\tB", "b", "c", 1.0, True), "must not contain a line break or a tab"),
        (ScoreRow("A", "b", "caf\udce9.wav", 1.0, True), "writable as UTF-8"),
    ]:
        with pytest.raises(InputError, match=words):
            write_scores(path, [ROWS[0], row])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
