"""Lists of other tools: what is written reads back, what a format cannot hold is refused, what is broken is named."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import InputError, LibraryMissingError, TrialListError
from pipeline.evaluation import NameColumn, TrialTable, read_trials
from pipeline.evaluation.columns import as_names
from pipeline.formats import FORMATS, blocks, bosaris, parquet, rows
from pipeline.formats.blocks import blocks as blocks_of
from pipeline.formats.libraries import load
from pipeline.formats.listing import write_list
from pipeline.formats.lists import layout as list_layout
from pipeline.formats.reading import format_of, read_list
from pipeline.formats.rows import read_rows
from pipeline.formats.spk2utt import read_spk2utt, write_spk2utt
from pipeline.formats.tables import layout as table_layout

SETTINGS = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
BLANKS = " \t\n\r\x0b\x0c"
ODD = (
    "a b", "é", "日本", '"', 'a"b', "a,b", "#x", "a#", "\ufeffa", "x:b", ":b", "1", "0", "target", "nan", "NA", "null",
    "\u00a0", "\u2028", "\x85", "a\tb", "a\rb", "a\nb", "a\x0bb", "\0", "a\0b", " a", "a ", "-", "'", "\\", "1e5", "",
    "a" * 300,
)  # fmt: skip
PLAIN = st.text("abcdefghijk-_/.", min_size=1, max_size=6).map(lambda text: f"n{text}")
NAMES = st.one_of(PLAIN, st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=4))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
WRITTEN = [
    (name, kind)
    for name in ("bosaris", "csv", "kaldi", "nist", "parquet", "voiceclaim", "voxceleb")
    for kind in ("key", "scores")
] + [("nist", "trials"), ("csv", "trials"), ("parquet", "trials"), ("bosaris", "trials")]


@st.composite
def lists(draw, names=NAMES) -> TrialTable:
    """Different trials with labels and scores, which are log-likelihood ratios too."""
    pairs = draw(st.lists(st.tuples(names, names), min_size=1, max_size=12, unique=True))
    labels = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    labels[0] = False  # a matrix without false claims is no key
    scores = np.array(draw(st.lists(NUMBERS, min_size=len(pairs), max_size=len(pairs))))
    models, segments = zip(*pairs, strict=True)
    return TrialTable(NameColumn.of(models), NameColumn.of(segments), np.array(labels), scores, scores)


def table_of(*trials: tuple, llr: bool = True) -> TrialTable:
    models, segments, labels, scores = zip(*trials, strict=True)
    values = np.array(scores, dtype=float)
    return TrialTable(
        NameColumn.of(models), NameColumn.of(segments), np.array(labels, bool), values, values if llr else None
    )


SMALL = table_of(("anna", "x/1.wav", True, 1.5), ("bob", "x/1.wav", False, -0.25), ("anna", "y", False, 1e-7))


def content(table: TrialTable, kind: str) -> dict[tuple[str, str], object]:
    """The trials of a list, and what ``kind`` says of each."""
    values = {"key": table.targets, "scores": table.scores, "trials": np.zeros(len(table))}[kind]
    assert values is not None
    found = dict(zip(zip(table.models, table.segments, strict=True), values.tolist(), strict=True))
    assert len(found) == len(table)
    return found


def can_hold(name: str, kind: str, table: TrialTable) -> bool:
    """Whether a format can hold the names of a list, said once more in other words than the writers'."""
    models, segments = set(table.models), set(table.segments)
    every = models | segments
    if "" in every:
        return False
    words = all(len(name.encode().split()) == 1 and not set(BLANKS) & set(name) for name in every)
    marked = any(name.startswith("\ufeff") for name in every)
    cells = not any(set("\n\r") & set(name) for name in every)
    if name in {"kaldi", "voxceleb"} or (name == "voiceclaim" and kind == "key"):
        if name == "voiceclaim":
            words = not any(set(BLANKS) & set(model) for model in models)
            words &= not any("\n" in path or path != path.strip(BLANKS) for path in segments)
            return words and not any(model[0] in "#\ufeff" for model in models)
        return words and not marked and not any(name[0] == "#" for name in every)
    if name == "voiceclaim":
        return cells and not any("\t" in name for name in every)
    if name == "nist":
        return cells and not marked and not any("\t" in name for name in every)
    if name == "csv":
        return cells and not marked
    return name == "parquet" or not any("\0" in text for text in every)


@pytest.mark.parametrize(("name", "kind"), WRITTEN)
@SETTINGS
@given(table=lists())
def test_what_is_written_reads_back_and_what_cannot_be_held_is_refused(tmp_path, name, kind, table):
    path = tmp_path / "list"
    if not can_hold(name, kind, table):
        with pytest.raises(TrialListError):
            write_list(path, table, format_name=name, kind=kind)
        assert not list(tmp_path.iterdir())
        return
    write_list(path, table, format_name=name, kind=kind)
    assert [file.name for file in tmp_path.iterdir()] == ["list"]
    read = read_list(path, kind=None if kind == "trials" else kind, format_name=name)
    assert content(read, kind) == content(table, kind)
    if name != "bosaris":
        assert list(zip(read.models, read.segments, strict=True)) == list(
            zip(table.models, table.segments, strict=True)
        )
    path.unlink()


@pytest.mark.parametrize("name", ["csv", "parquet"])
@SETTINGS
@given(table=lists(PLAIN), systems=st.lists(st.sampled_from(["A", "B,b"]), min_size=12, max_size=12))
def test_tables_hold_all_columns_at_once(tmp_path, name, table, systems):
    whole = replace(table, systems=NameColumn.of(systems[: len(table)]), llrs=table.scores + 0.5)
    whole.llrs[0] = np.nan
    write_list(tmp_path / "list", whole, format_name=name)
    read = read_list(tmp_path / "list", format_name=name)
    assert content(read, "key") == content(table, "key")
    assert content(read, "scores") == content(table, "scores")
    np.testing.assert_array_equal(read.llrs, whole.llrs)
    assert list(read.systems) == systems[: len(table)]


@pytest.mark.parametrize(("name", "kind"), WRITTEN)
@given(table=lists(PLAIN))
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_format_is_told_from_what_was_written(tmp_path, name, kind, table):
    write_list(tmp_path / "list", table, format_name=name, kind=kind)
    told = "kaldi" if (name, kind) == ("voiceclaim", "key") else name
    assert format_of(tmp_path / "list", None if kind == "trials" else kind) == told
    assert format_of(tmp_path / "list") == told


@SETTINGS
@given(spoken=st.dictionaries(NAMES, st.lists(NAMES, min_size=1, max_size=4), max_size=5))
def test_spk2utt_reads_back(tmp_path, spoken):
    path = tmp_path / "spk2utt"
    said = [utterance for utterances in spoken.values() for utterance in utterances]
    words = [*spoken, *said]
    fits = all(name and not set(BLANKS) & set(name) and name[0] not in "#\ufeff" for name in words)
    if not (spoken and fits and len(set(said)) == len(said)):
        with pytest.raises(TrialListError):
            write_spk2utt(path, spoken)
        return
    write_spk2utt(path, spoken)
    assert read_spk2utt(path) == {speaker: tuple(utterances) for speaker, utterances in spoken.items()}
    assert format_of(path) == "spk2utt"
    read = read_list(path)
    assert content(read, "key") == {(speaker, one): True for speaker, own in spoken.items() for one in own}
    write_list(path, read, format_name="spk2utt")
    assert read_spk2utt(path) == {speaker: tuple(utterances) for speaker, utterances in spoken.items()}


# Two ways to read one line


FRAGMENTS = st.sampled_from(
    [b"a", b"b\xc3\xa9", b"#c", b"1", b"0", b"0.5", b"-1e3", b"nan", b"inf", b"1_0", b"target", b"nontarget", b"\xff",
     b'"', b'"q"', b'"x,y"', b"", b"\0", b"1e999", b"0x1", b"true"]
)  # fmt: skip
LAYOUTS = {
    "kaldi key": lambda path: list_layout(voxceleb=False, kind="key"),
    "kaldi scores": lambda path: list_layout(voxceleb=False, kind="scores"),
    "voxceleb key": lambda path: list_layout(voxceleb=True, kind="key"),
    "voxceleb scores": lambda path: list_layout(voxceleb=True, kind="scores"),
    "nist": lambda path: table_layout(path, b"modelid\tsegmentid\tside\tLLR\r", tabs=True),
    "csv": lambda path: table_layout(path, b"label,more,model,segment,llr", tabs=False),
}


@pytest.mark.parametrize("which", LAYOUTS)
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_fast_way_reads_what_the_exact_one_reads(tmp_path, which, data):
    separators = {"nist": [b"\t"], "csv": [b","]}.get(which, [b" ", b" ", b"  ", b"\t", b" \x0b"])
    good = {
        "kaldi key": b"m s target", "kaldi scores": b"m s 1.5", "voxceleb key": b"1 m s", "voxceleb scores": b"2 m s",
        "nist": b"m\ts\tb\t0.5", "csv": b"1,,m,s,",
    }[which]  # fmt: skip
    made = st.lists(st.tuples(FRAGMENTS, st.sampled_from(separators)), max_size=5).map(
        lambda parts: b"".join(text + mark for text, mark in parts)[
            : -1 if parts and which in {"nist", "csv"} else None
        ]
    )
    lines = data.draw(st.lists(st.one_of(st.just(good), st.just(good), made), max_size=6))
    text = b"".join(line + data.draw(st.sampled_from([b"\n", b"\r\n", b" \n", b"\n\n"])) for line in lines)
    layout = LAYOUTS[which](tmp_path)
    fast = outcome(tmp_path, text, layout)
    exact = outcome(tmp_path, text, replace(layout, prepare=lambda block: iter(())))
    assert fast == exact


def outcome(path: Path, text: bytes, layout) -> object:
    try:
        found = read_rows(path, [(1, text)], layout)
    except TrialListError as error:
        return str(error)
    numbers = [None if values is None else values.tolist() for values in (found.targets, found.scores, found.llrs)]
    return list(found.models), list(found.segments), repr(numbers)


@given(
    trials=st.lists(st.tuples(PLAIN, PLAIN, st.booleans()), min_size=1, max_size=5),
    mark=st.sampled_from([" ", "\t", "   "]),
    voxceleb=st.booleans(),
)
@SETTINGS
def test_lists_are_read_as_this_project_reads_its_own(tmp_path, trials, mark, voxceleb):
    path = tmp_path / "trials.txt"
    lines = [
        mark.join([str(int(true)), speaker, f"dir {file}"] if voxceleb else [speaker, f"dir {file}", word])
        for speaker, file, true in trials
        for word in ["target" if true else "nontarget"]
    ]
    path.write_text("\n".join(["# comment", "", *lines]))
    read, own = read_list(path, kind="key"), read_trials(path)
    assert list(zip(read.models, read.segments, read.targets.tolist(), strict=True)) == [
        (trial.speaker, trial.path, trial.target) for trial in own
    ]


def test_blocks_cut_files_at_lines_and_number_them(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 7)
    path = tmp_path / "list"
    path.write_bytes(b"\xef\xbb\xbfone\n\ntwo and more\r\nx\nlast")
    pieces = list(blocks_of(path))
    assert b"".join(piece for _, piece in pieces) == b"one\n\ntwo and more\r\nx\nlast"
    assert [number for number, _ in pieces] == sorted(number for number, _ in pieces)
    for number, piece in pieces:
        assert b"one\n\ntwo and more\r\nx\nlast".split(b"\n")[number - 1].startswith(piece.split(b"\n")[0])


def test_names_are_the_same_in_every_block(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 50)
    table = table_of(*((f"m{k % 7}", f"s{k % 11}", k % 3 == 0, k / 8) for k in range(77)))
    for name in ("kaldi", "voxceleb", "nist", "csv"):
        write_list(tmp_path / "list", table, format_name=name, kind="scores")
        read = read_list(tmp_path / "list", kind="scores")
        assert content(read, "scores") == content(table, "scores")
        assert sorted(read.models.names) == sorted(f"m{k}" for k in range(7))


# What other tools write


def test_nist_files_with_more_columns_sides_and_capitals(tmp_path):
    path = tmp_path / "key.tsv"
    path.write_text(
        "modelid\tsegmentid\tside\ttargettype\tgender\n1001\tseg1.sph\ta\ttarget\tfemale\n1001\tseg1.sph\tb\tnontarget\tf\n"
    )
    read = read_list(path)
    assert content(read, "key") == {("1001", "seg1.sph"): True, ("1001", "seg1.sph:b"): False}
    path.write_text("ModelID\tSegmentID\tLLR\n1001\tseg1.sph\t-2.5\n")
    assert read_list(path).llrs.tolist() == [-2.5]


def test_csv_as_others_write_it(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text('\ufeffScore,"Enroll",test,Label\r\n0.5,"a ""b"", c",x.wav,1\r\n1,d,"y z",0\r\n')
    read = read_list(path)
    assert content(read, "scores") == {('a "b", c', "x.wav"): 0.5, ("d", "y z"): 1.0}
    assert read.targets.tolist() == [True, False]


@pytest.mark.parametrize("labels", [[True, False], [1, 0], ["target", "nontarget"], ["true", "0"]])
def test_parquet_as_others_write_it(tmp_path, labels):
    path = tmp_path / "scores.parquet"
    columns = {
        "model": pa.array([7, 8]),
        "segment": pa.array(["x", "y"], pa.large_string()).dictionary_encode(),
        "label": labels,
        "score": pa.array([0.5, 1.5], pa.float32()),
        "ignored": [[1], [2]],
    }
    pyarrow.parquet.write_table(pa.table(columns), path)
    read = read_list(path)
    assert content(read, "scores") == {("7", "x"): 0.5, ("8", "y"): 1.5}
    assert read.targets.tolist() == [True, False]


def test_parquet_can_be_read_by_others(tmp_path):
    write_list(tmp_path / "x.parquet", SMALL, format_name="parquet")
    assert pyarrow.parquet.read_table(tmp_path / "x.parquet").to_pylist() == [
        {"model": "anna", "segment": "x/1.wav", "label": "target", "score": 1.5, "llr": 1.5},
        {"model": "bob", "segment": "x/1.wav", "label": "nontarget", "score": -0.25, "llr": -0.25},
        {"model": "anna", "segment": "y", "label": "nontarget", "score": 1e-7, "llr": 1e-7},
    ]


@pytest.mark.parametrize("names", [("modelset", "segset"), ("ID/row_ids", "ID/column_ids")])
@pytest.mark.parametrize("text", ["S", "vlen"])
def test_matrices_as_others_write_them(tmp_path, names, text):
    path = tmp_path / "scores.h5"
    kind = h5py.string_dtype() if text == "vlen" else "S3"
    with h5py.File(path, "w") as file:
        file.create_dataset(names[0], data=np.array(["m1", "m2"], dtype=object if text == "vlen" else kind), dtype=kind)
        file.create_dataset(
            names[1], data=np.array(["a", "b", "c"], dtype=object if text == "vlen" else kind), dtype=kind
        )
        file["score_mask"] = np.array([[1, 0, 1], [0, 1, 0]], dtype=np.uint8)
        file["scores"] = np.array([[0.5, np.nan, 1.5], [9, -2, 9]], dtype=np.float32)
    read = read_list(path)
    assert content(read, "scores") == {("m1", "a"): 0.5, ("m1", "c"): 1.5, ("m2", "b"): -2.0}
    with h5py.File(path, "a") as file:
        del file["scores"], file["score_mask"]
        file["trial_mask"] = np.array([[1.0, 0, -1], [0, -1, 0]])
    assert content(read_list(path), "key") == {("m1", "a"): True, ("m1", "c"): False, ("m2", "b"): False}
    with h5py.File(path, "a") as file:
        file["trial_mask"][...] = 1
    index = read_list(path)
    assert index.targets is None
    assert len(index) == 6


def test_matrices_can_be_read_by_others(tmp_path):
    write_list(tmp_path / "x.h5", SMALL, format_name="bosaris", kind="scores")
    with h5py.File(tmp_path / "x.h5") as file:
        assert [name.decode() for name in file["modelset"][()]] == ["anna", "bob"]
        assert file["ID/column_ids"][()].tolist() == file["segset"][()].tolist() == [b"x/1.wav", b"y"]
        assert file["scores"][()].tolist() == [[1.5, 1e-7], [-0.25, 0.0]]
        assert file["score_mask"][()].tolist() == [[1, 1], [1, 0]]
    write_list(tmp_path / "x.h5", SMALL, format_name="bosaris", kind="key")
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["trial_mask"][()].tolist() == [[1, -1], [-1, 0]]


# What is refused


BROKEN = {
    "kaldi key": [
        (b"a b target\na b\n", r"line 2: a line must read 'enroll test target\|nontarget', got 'a b'"),
        (b"a b target\na b tarjet\n", r"line 2: a label must be one of target, nontarget, got 'tarjet'"),
        (b"a b target\n\n# x\n\xff b target\n", r"line 4: text must be UTF-8"),
        (b"# nothing\n", r"needs at least one row, got none"),
        (b"", r"needs at least one row, got none"),
        (b"a\0b\0", r"line 1: a line must read"),
    ],
    "kaldi scores": [
        (b"a b 1\na b nan\n", r"line 2: a score must be a finite number, got 'nan'"),
        (b"a b 1\na b -inf\n", r"line 2: a score must be a finite number"),
        (b"a b 1e999\n", r"line 1: a score must be a finite number"),
        (b"a b 1\na b 1_0\n", r"line 2: a score must be a finite number"),
        (b"a b target\n", r"line 1: a score must be a finite number, got 'target'"),
    ],
    "voxceleb key": [(b"1 a b\n2 a b\n", r"line 2: a label must be one of 1, 0, got '2'")],
    "voxceleb scores": [(b"0.5 a\n", r"line 1: a line must read 'score enroll test'")],
    "nist": [
        (b"modelid\tsegmentid\tLLR\nm\ts\n", r"line 2: a row must hold 3 fields parted by tabs"),
        (b"modelid\tsegmentid\tLLR\nm\t\t1\n", r"line 2: the segment must not be empty"),
        (b"modelid\tsegmentid\tside\nm\ts\tc\n", r"line 2: a side must be a or b, got 'c'"),
        (b"modelid\tside\n", r"needs a column 'segmentid' \(or alike\), got 'modelid, side'"),
        (b"modelid\tsegmentid\tmodel\n", r"may have one column for the model, got two"),
        (b"modelid\tsegmentid\tLLR\n", r"needs at least one row, got none"),
        (b"modelid\tsegmentid\ttargettype\nm\ts\t1\n", r"line 2: a label must be one of target, nontarget, got '1'"),
        (b"modelid\tsegmentid\tLLR\n\nm\ts\t\n", r"line 3: a llr must be a finite number, got ''"),
    ],
    "csv": [
        (b"model,segment,score\nm,s\n", r"line 2: a row must hold 3 fields parted by commas"),
        (b"model,segment,score\nm,s,1\nm,s,\n", r"line 3: a score must be a finite number, got ''"),
        (b'model,segment,score\n"m,s,1\n', r"line 2: a row must hold 3 fields"),
        (b"model,segment,llr\nm,s,nan\n", r"line 2: a llr must be a finite number, got 'nan'"),
    ],
}


@pytest.mark.parametrize(("which", "text", "message"), [(name, *case) for name in BROKEN for case in BROKEN[name]])
def test_broken_text_is_named_by_file_and_line(tmp_path, which, text, message):
    path = tmp_path / "list.txt"
    path.write_bytes(text)
    name, _, kind = which.partition(" ")
    with pytest.raises(TrialListError, match=message) as caught:
        read_list(path, kind=kind or None, format_name=name)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["one two three four\n", "a b\n", "modelid segmentid\n", "\x00\x01\x02"])
def test_a_file_that_is_no_list_says_so(tmp_path, text):
    (tmp_path / "list").write_text(text)
    with pytest.raises(TrialListError, match="cannot be told from"):
        read_list(tmp_path / "list")


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_file_is_refused_at_once(tmp_path, name):
    started = time.perf_counter()
    with pytest.raises(TrialListError, match="missing"):
        read_list(tmp_path / "missing", kind="key", format_name=name)
    with pytest.raises(TrialListError, match="a folder"):
        read_list(tmp_path, kind="key", format_name=name)
    if sys.platform != "win32":
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(TrialListError, match="a named pipe"):
            read_list(tmp_path / "pipe", kind="key", format_name=name)
        with pytest.raises(TrialListError, match="a device"):
            read_list(Path("/dev/zero"), kind="key", format_name=name)
    assert time.perf_counter() - started < 2.0


def test_text_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "list"
    path.write_bytes(b"a b target\n" * 100)
    monkeypatch.setattr(rows, "MOST_ROWS", 99)
    with pytest.raises(TrialListError, match="too many rows: at most 99"):
        read_list(path)
    monkeypatch.setattr(blocks, "MOST_BYTES", 1000)
    with pytest.raises(TrialListError, match="too large: at most 1,000 bytes"):
        read_list(path)
    path.write_bytes(b"a b target\n" + b"x" * (blocks.MOST_IN_LINE + 1))
    monkeypatch.undo()
    with pytest.raises(TrialListError, match="line 2: a line must not be longer than"):
        read_list(path)


@pytest.mark.parametrize("cut", [5, 100, 300, -20])
@pytest.mark.parametrize("name", ["parquet", "bosaris"])
def test_binary_files_that_were_cut_off(tmp_path, name, cut):
    path = tmp_path / "list"
    write_list(path, SMALL, format_name=name, kind="key")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TrialListError, match=r"(cannot|not a|could not|cut off)"):
        read_list(path, format_name=name)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(4, 10_000), value=st.integers(1, 255))
def test_a_changed_byte_of_a_parquet_file_gives_a_list_or_an_error_of_ours(tmp_path, at, value):
    path = tmp_path / "list"
    write_list(path, SMALL, format_name="parquet")
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= value
    path.write_bytes(data)
    try:
        read = read_list(path, format_name="parquet")
    except TrialListError as error:
        assert str(path) in str(error)
    else:
        assert np.isfinite(read.scores).all()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"model": ["a", None], "segment": ["x", "y"]}, "'model' must have a value in every row, got 1 nulls"),
        ({"model": ["a", ""], "segment": ["x", "y"]}, "'model' must not hold empty names"),
        ({"model": [0.5, 1.5], "segment": ["x", "y"]}, "'model' must hold texts, got double"),
        ({"model": ["a", "b"]}, "needs a column 'segmentid'"),
        ({"model": ["a", "b"], "segment": ["x", "y"], "score": [1.0, None]}, "'score' must have a value in every row"),
        ({"model": ["a", "b"], "segment": ["x", "y"], "score": [1.0, np.inf]}, "'score' must hold finite numbers"),
        ({"model": ["a", "b"], "segment": ["x", "y"], "score": ["1", "2"]}, "'score' must hold numbers, got string"),
        ({"model": ["a", "b"], "segment": ["x", "y"], "label": ["target", "spoof"]}, "got 'spoof'"),
        ({"model": pa.array([], pa.string()), "segment": pa.array([], pa.string())}, "at least one row, got none"),
    ],
)
def test_parquet_that_breaks_a_rule(tmp_path, columns, message):
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(TrialListError, match=message):
        read_list(tmp_path / "x.parquet")


def test_parquet_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    write_list(path, SMALL, format_name="parquet")
    monkeypatch.setattr(parquet, "MOST_ROWS", 2)
    with pytest.raises(TrialListError, match="too large: at most 2 rows"):
        read_list(path)


def matrix(path: Path, **datasets) -> Path:
    given = {"modelset": np.array([b"m"]), "segset": np.array([b"s"]), "trial_mask": np.ones((1, 1)), **datasets}
    with h5py.File(path, "w") as file:
        for name, value in given.items():
            if value is not None:
                file[name] = value
    return path


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ({"modelset": None}, "needs the names modelset or ID/row_ids, got none"),
        ({"trial_mask": None}, "needs scores or trial_mask, got neither"),
        ({"trial_mask": np.ones((2, 1))}, r"must have the shape of its names, \(1, 1\), got \(2, 1\)"),
        ({"trial_mask": np.zeros((1, 1))}, "at least one trial, got none"),
        ({"modelset": np.array([1.0])}, "modelset must hold texts, got float64"),
        ({"modelset": np.array([[b"m"]])}, "modelset must be one row"),
        ({"modelset": np.array([b"m", b"m"])}, "must be different and none empty"),
        ({"modelset": np.array([b"\xff"])}, "utf-8"),
        ({"scores": np.array([[np.nan]])}, "a score must be a finite number, got nan at model 'm', segment 's'"),
        ({"scores": np.array([[b"x"]])}, "must hold numbers"),
        ({"modelset": h5py.SoftLink("/segset")}, "modelset must be a dataset of this very file"),
        ({"modelset": h5py.ExternalLink("other.h5", "/segset")}, "modelset must be a dataset of this very file"),
    ],
)
def test_matrices_that_break_a_rule(tmp_path, datasets, message):
    matrix(tmp_path / "other.h5")
    with pytest.raises(TrialListError, match=message):
        read_list(matrix(tmp_path / "x.h5", **datasets))


def test_a_matrix_that_promises_terabytes_or_is_kept_elsewhere(tmp_path):
    path = matrix(tmp_path / "x.h5", trial_mask=None, modelset=None, segset=None)
    with h5py.File(path, "a") as file:
        file.create_dataset("modelset", (10**12,), dtype="S10", chunks=(1000,))
        file.create_dataset("segset", (1,), dtype="S10")
        file.create_dataset("trial_mask", (10**12, 1), dtype="i1", chunks=(1000, 1))
    with pytest.raises(TrialListError, match="at most 16,777,216 names"):
        read_list(path)
    secret = tmp_path / "secret"
    secret.write_bytes(b"12345678")
    matrix(path, trial_mask=None)
    with h5py.File(path, "a") as file:
        file.create_dataset("scores", (1, 1), dtype="f8", external=[(str(secret), 0, 8)])
    with pytest.raises(TrialListError, match="scores must be a dataset of this very file"):
        read_list(path)


def test_a_matrix_too_large_to_read_or_write(tmp_path, monkeypatch):
    path = matrix(tmp_path / "x.h5")
    monkeypatch.setattr(bosaris, "MOST_CELLS", 0)
    with pytest.raises(TrialListError, match="too large: at most 0 cells"):
        read_list(path)
    with pytest.raises(TrialListError, match="are too many for a matrix"):
        write_list(path, SMALL, format_name="bosaris", kind="key")


def test_names_of_a_matrix_are_bounded_together(tmp_path, monkeypatch):
    path = matrix(tmp_path / "x.h5", modelset=np.array(["long name"], dtype=object))
    monkeypatch.setattr(bosaris, "_MOST_TEXT", 8)
    with pytest.raises(TrialListError, match="modelset is too large: at most 8 bytes"):
        read_list(path)


# What cannot be written


def test_a_list_without_what_is_to_be_written(tmp_path):
    bare = TrialTable(SMALL.models, SMALL.segments)
    plain = replace(SMALL, llrs=None, targets=None)
    for name in ("kaldi", "nist", "csv", "parquet", "bosaris", "voxceleb"):
        with pytest.raises(TrialListError, match="without labels"):
            write_list(tmp_path / "x", bare, format_name=name, kind="key")
        with pytest.raises(TrialListError, match=r"without any|log-likelihood ratios"):
            write_list(tmp_path / "x", bare, format_name=name, kind="scores")
    with pytest.raises(TrialListError, match="NIST score file holds log-likelihood ratios"):
        write_list(tmp_path / "x", plain, format_name="nist")
    with pytest.raises(TrialListError, match="score file of this project has labels"):
        write_list(tmp_path / "x", plain, format_name="voiceclaim")
    with pytest.raises(InputError, match="trials cannot be written as kaldi"):
        write_list(tmp_path / "x", bare, format_name="kaldi")
    with pytest.raises(InputError, match=r"formats are bosaris, .*got 'nits'"):
        write_list(tmp_path / "x", bare, format_name="nits")
    with pytest.raises(InputError, match=r"formats are bosaris, .*got 'nits'"):
        read_list(tmp_path / "x", format_name="nits")
    assert list(tmp_path.iterdir()) == []


def test_two_systems_and_twofold_trials(tmp_path):
    two = replace(SMALL, systems=NameColumn.of(["A", "B", "A"]))
    with pytest.raises(TrialListError, match="holds the scores of one system, got 2: A, B"):
        write_list(tmp_path / "x", two, format_name="kaldi")
    twice = table_of(("a", "s", True, 1), ("a", "s", True, 1))
    with pytest.raises(TrialListError, match="got a trial twice"):
        write_list(tmp_path / "x", twice, format_name="bosaris", kind="key")


@pytest.mark.parametrize("name", ["kaldi", "parquet", "bosaris", "voiceclaim"])
def test_a_place_that_cannot_be_written_to(tmp_path, name):
    with pytest.raises(TrialListError, match="cannot write"):
        write_list(tmp_path / "no" / "x", SMALL, format_name=name)
    (tmp_path / "folder").mkdir()
    with pytest.raises(TrialListError, match="cannot write"):
        write_list(tmp_path / "folder", SMALL, format_name=name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("name", ["kaldi", "nist", "csv", "parquet", "bosaris"])
def test_names_that_are_no_text_are_refused(tmp_path, name):
    table = replace(SMALL, models=NameColumn(as_names(["a", "\udcff"]), np.array([0, 1, 0], dtype=np.int32)))
    with pytest.raises(TrialListError, match="must be writable as UTF-8"):
        write_list(tmp_path / "x", table, format_name=name, kind="key")


def test_a_missing_library_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        LibraryMissingError, match=r"score matrices needs the library h5py.*pip install 'voiceclaim\[formats\]'"
    ):
        write_list(tmp_path / "x.h5", SMALL, format_name="bosaris")
    with pytest.raises(LibraryMissingError):
        load("h5py", "reading")
