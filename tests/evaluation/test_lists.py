"""Trial lists, keys and score files: round trips, what other tools write, and what is refused."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from score_rows import ScoreRow, write_scores

from pipeline.errors import InputError, UnavailableError
from pipeline.evaluation import (
    FORMATS,
    NameColumn,
    Trial,
    TrialTable,
    read_list,
    read_scores,
    read_trials,
    tabular,
    text_lists,
    write_list,
)
from pipeline.evaluation.lists import format_of

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
WRITTEN = [(name, kind) for name in ("csv", "nist", "parquet") for kind in ("key", "scores", "trials")] + [
    ("kaldi", "key"),
    ("kaldi", "scores"),
    ("voiceclaim", "scores"),
]


@st.composite
def tables(draw, names=NAMES) -> TrialTable:
    """Different trials with labels and scores, which are log-likelihood ratios too."""
    pairs = draw(st.lists(st.tuples(names, names), min_size=1, max_size=12, unique=True))
    labels = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
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


def content(table: TrialTable, kind: str) -> list[tuple[str, str, object]]:
    """The trials of a list, and what ``kind`` says of each."""
    values = {"key": table.targets, "scores": table.scores, "trials": np.zeros(len(table))}[kind]
    assert values is not None
    return list(zip(table.models, table.segments, values.tolist(), strict=True))


@pytest.fixture
def listed(tmp_path: Path):
    def write(text: bytes | str, name: str = "list.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


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


def test_spk2utt_is_read(listed):
    path = listed("bob u2 u1\nanna u3\n", "spk2utt")
    assert format_of(path) == "spk2utt"
    assert content(read_list(path), "key") == [("bob", "u2", True), ("bob", "u1", True), ("anna", "u3", True)]
    path.write_text("a u\nb u\n")
    with pytest.raises(InputError, match="line 2: 'u' may be given once"):
        read_list(path)


@SETTINGS
@given(table=tables(PLAIN))
def test_voxceleb_is_read_as_kaldi_is(tmp_path, table):
    for kind, words in (
        ("key", [str(int(target)) for target in table.targets]),
        ("scores", map(repr, table.scores.tolist())),
    ):
        rows = zip(words, table.models, table.segments, strict=True)
        (tmp_path / "list").write_text("".join(f"{' '.join(row)}\n" for row in rows))
        read = read_list(tmp_path / "list", kind=kind)
        assert (format_of(tmp_path / "list", kind), content(read, kind)) == ("voxceleb", content(table, kind))


# Trial lists


@pytest.mark.parametrize(
    ("text", "trials"),
    [
        ("01 a/b.flac target\n", [("01", "a/b.flac", True)]),
        ("anna my recordings/take  two.wav target", [("anna", "my recordings/take  two.wav", True)]),
        ("1 anna my recordings/take  two.wav", [("anna", "my recordings/take  two.wav", True)]),
        ("\tanna\t \ta.wav\t target \t", [("anna", "a.wav", True)]),
        ("Ana\u00a0Maria \u3000x\u2028y\x85.wav target\n", [("Ana\u00a0Maria", "\u3000x\u2028y\x85.wav", True)]),
        ("1 a.wav target\n", [("1", "a.wav", True)]),
        ("modelid\tsegmentid\ttargettype\n7\tx y\tnontarget\n", [("7", "x y", False)]),
        ('label,speaker,path\ntrue,"a,b",c\n', [("a,b", "c", True)]),
        ("1 a b\n0 target target\n1 nontarget x target\n",
         [("a", "b", True), ("target", "target", False), ("nontarget", "x target", True)]),
        ("\ufeff# heading\r\n\r\n   \r\n1 anna a.wav\r\n  # 0 bob a.wav\r\n0 bob a.wav\r\n",
         [("anna", "a.wav", True), ("bob", "a.wav", False)]),
    ],
)  # fmt: skip
def test_trials_are_read_from_any_format(listed, text, trials):
    assert read_trials(listed(text)) == tuple(Trial(*trial) for trial in trials)


# Score files of this project


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


def test_scores_are_grouped_by_system_in_file_order(tmp_path):
    write_scores(tmp_path / "scores.tsv", iter(ROWS))
    systems = read_scores(tmp_path / "scores.tsv")
    assert list(systems) == ["POAO", "BOAO"]
    poao, boao = systems.values()
    assert poao.scores.tolist() == [0.1 + 0.2, -1.7e-308]
    assert (list(poao.speakers), list(poao.paths)) == (["anna", "bob"], ["my files/a.wav"] * 2)
    assert (poao.target.tolist(), poao.nontarget.tolist()) == ([0.1 + 0.2], [-1.7e-308])
    assert (list(poao.target_speakers), list(poao.nontarget_speakers)) == (["anna"], ["bob"])
    assert poao.llrs is None
    assert (boao.llrs.tolist(), boao.is_target.tolist()) == ([-1.25], [True])


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


# What other tools write


def test_tables_as_others_write_them(listed):
    text = "modelid\tsegmentid\tside\ttargettype\tgender\n1\tx.sph\ta\ttarget\tf\n1\tx.sph\tb\tnontarget\tf\n"
    assert content(read_list(listed(text)), "key") == [("1", "x.sph", True), ("1", "x.sph:b", False)]
    assert read_list(listed("ModelID\tSegmentID\tLLR\n1001\tseg1.sph\t-2.5\n")).llrs.tolist() == [-2.5]
    text = '\ufeffScore,"Enroll",test,Label,more\r\n0.5,"a ""b"", c",x.wav,1,\r\n\r\n1,d,"y z",0,x\r\n'
    read = read_list(listed(text))
    assert content(read, "scores") == [('a "b", c', "x.wav", 0.5), ("d", "y z", 1.0)]
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
    pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=1)
    read = read_list(path)
    assert content(read, "scores") == [("7", "x", 0.5), ("8", "y", 1.5)]
    assert read.targets.tolist() == [True, False]


def test_further_columns_are_metadata_of_each_trial(listed, tmp_path):
    rows = [("anna", "a.wav", "target", "phone", "", f"u{n}") for n in range(20)]
    rows += [("bob", "a.wav", "nontarget", "office, é", "7", "u20")]
    header = ("speaker", "path", "label", "Line", "take", "id")
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in (header, *rows)) + "\n"
    columns = {name: list(cells) for name, cells in zip(header, zip(*rows, strict=True), strict=True)}
    table = pa.table({**columns, "take": [None] * 20 + [7], "odd": [[1]] * 21})
    pyarrow.parquet.write_table(table, tmp_path / "list.parquet")
    for path in (listed(text, "list.csv"), tmp_path / "list.parquet"):
        read = read_list(path, kind="key")
        assert [*read.metadata["Line"]] == ["phone"] * 20 + ["office, é"]
        assert (read.metadata["id"], {*read.metadata}) == (None, {"Line", "take", "id"})  # of 21 values, too many
        assert [*read[19:].metadata["take"]] == ["", "7"]
        trials = read_trials(path)
        assert trials[20] == Trial("bob", "a.wav", False)
        assert trials[20].metadata == {"Line": "office, é", "take": "7"}


def test_parquet_can_be_read_by_others(tmp_path):
    write_list(tmp_path / "x.parquet", SMALL, format_name="parquet")
    assert pyarrow.parquet.read_table(tmp_path / "x.parquet").to_pylist() == [
        {"model": "anna", "segment": "x/1.wav", "label": "target", "score": 1.5, "llr": 1.5},
        {"model": "bob", "segment": "x/1.wav", "label": "nontarget", "score": -0.25, "llr": -0.25},
        {"model": "anna", "segment": "y", "label": "nontarget", "score": 1e-7, "llr": 1e-7},
    ]


# What is refused


OWN = "system\tspeaker\tpath\tscore\tlabel\tllr\n"
BROKEN = [
    ("kaldi key", "a b target\n\na b\n", r"line 3: a line must read 'enroll test target\|nontarget', got 'a b'"),
    ("kaldi key", "a b target\na b Target\n", r"line 2: a label must be one of target, .*got 'Target'.*missp"),
    ("kaldi key", b"a b target\n\n# x\nb caf\xe9 target\n", r"line 4: text must be UTF-8, got 'caf\\\\xe9'"),
    ("kaldi key", "# nothing\n", r"needs at least one trial, got none"),
    ("kaldi key", "a b target\n1 a b\n", r"line 2: a label .*a list of two formats"),
    ("kaldi scores", "a b 1\na b nan\n", r"line 2: a score must be a finite number, got 'nan'"),
    ("kaldi scores", "a b 1\na b 1_0\n", r"line 2: a score must be a finite number"),
    ("voxceleb key", "1 a b\n2 a b\n", r"line 2: a label must be one of 1, 0, got '2'"),
    ("voxceleb key", "1 a b\n0 a\n", r"line 2: a line must read '1\|0 enroll test', got '0 a'"),
    ("voxceleb scores", "0.5 a\n", r"line 1: a line must read 'score enroll test'"),
    ("nist", "modelid\tsegmentid\tLLR\nm\ts\n", r"line 2: a line must read 3 fields separated by tabs"),
    ("nist", "modelid\tsegmentid\tLLR\nm\t\t1\n", r"line 2: the segment must not be empty"),
    ("nist", "modelid\tsegmentid\tside\nm\ts\tc\n", r"line 2: a side must be a or b, got 'c'"),
    ("nist", "modelid\tside\n", r"needs a column 'segmentid' \(or alike\), got 'modelid, side'"),
    ("nist", "modelid\tsegmentid\tmodel\n", r"may have one column for the model, got two"),
    ("nist", "modelid\tsegmentid\tLLR\n\nm\ts\t\n", r"line 3: an llr must be a finite number, got ''"),
    ("csv", "model,segment,score\nm,s\n", r"line 2: a line must read 3 fields separated by commas"),
    ("csv", "model,segment,score\nm,s,1\nm,s,\n", r"line 3: a score must be a finite number, got ''"),
    ("csv", 'model,segment,score\n"m,s,1\n', r"line 2: a line must read 3 fields"),
    ("voiceclaim", OWN + "A\tb\tc\t1\ttarget\n", r"line 2: a line must read 6 fields separated by tabs"),
    ("voiceclaim", OWN + "A\tb\tc\t1\ttarget\t-\n\nA\tb\tc\tnan\ttarget\t-\n", r"line 4: a score must be a finite"),
    ("voiceclaim", OWN + "A\tb\tc\t1\ttarget\tinf\n", r"line 2: an llr must be a finite number, got 'inf'"),
    ("voiceclaim", OWN + "A\tb\tc\t1\tyes\t-\n", r"line 2: a label must be one of target, nontarget, .*got 'yes'"),
]  # fmt: skip


@pytest.mark.parametrize(("which", "text", "message"), BROKEN)
def test_a_broken_line_is_named(listed, which, text, message):
    path = listed(text)
    name, _, kind = which.partition(" ")
    with pytest.raises(InputError, match=rf"^{path}\b[^\n]*{message}[^\n]*$"):
        read_list(path, kind=kind or None, format_name=name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one trial"),
        (OWN, "at least one trial"),
        ("anna a.wav target\n", "must have scores and labels"),
        (OWN + "A\tb\tc\t1\ttarget\t-\nA\tb\td\t1\ttarget\t2\n", "'A' must have .* in all of its rows or in none"),
    ],
)
def test_a_file_that_is_no_score_file_is_refused(listed, text, message):
    with pytest.raises(InputError, match=rf"list\.txt.*{message}"):
        read_scores(listed(text))


@pytest.mark.parametrize("text", ["one two three four\n", "a b\n", "modelid segmentid\n", "\x00\x01\x02", "x" * 5000])
@pytest.mark.parametrize("kind", [None, "key", "scores"])
def test_a_file_that_is_no_list_is_refused(listed, text, kind):
    with pytest.raises(InputError, match=r"line 2: the first line must read '.* or be a header, got") as caught:
        read_list(listed("# comment\n" + text), kind=kind)
    assert len(str(caught.value)) < 500


def test_utf16_is_recognised_and_a_list_without_labels_refused(listed):
    with pytest.raises(InputError, match="UTF-16"):
        read_trials(listed("anna a.wav target\n".encode("utf-16")))
    with pytest.raises(InputError, match=r"list\.txt: a key must label its trials"):
        read_trials(listed("modelid\tsegmentid\n1\t2\n"))


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, name):
    paths = {"missing": tmp_path / "missing", "a folder": tmp_path}
    if sys.platform != "win32":
        paths |= {"a named pipe": tmp_path / "pipe", "a device": Path("/dev/zero")}
        os.mkfifo(tmp_path / "pipe")
    started = time.perf_counter()
    for words, path in paths.items():
        with pytest.raises(InputError, match=words):
            read_list(path, kind="key", format_name=name)
    assert time.perf_counter() - started < 2.0


def test_files_and_lines_are_bounded(tmp_path, listed, monkeypatch):
    path = listed(b"a b target\n" + b"x" * (text_lists.MOST_IN_LINE + 1))
    with pytest.raises(InputError, match="line 2: a line must not be longer than"):
        read_list(path)
    monkeypatch.setattr(text_lists, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="too large: at most 1,000 bytes"):
        read_list(listed(b"a b target\n" * 100))
    write_list(tmp_path / "x.parquet", SMALL, format_name="parquet")
    monkeypatch.setattr(tabular, "MOST_ROWS", 2)
    with pytest.raises(InputError, match="too large: at most 2 rows"):
        read_list(tmp_path / "x.parquet")


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(4, 10_000), value=st.integers(0, 255))
def test_a_changed_byte_or_cut_of_a_parquet_file_gives_a_list_or_an_error_of_ours(tmp_path, at, value):
    path = tmp_path / "list"
    write_list(path, SMALL, format_name="parquet")
    data = bytearray(path.read_bytes())
    at %= len(data)
    path.write_bytes(data[:at] + bytes([data[at] ^ value]) + data[at + 1 :] if value else data[:at])
    try:
        read = read_list(path, format_name="parquet")
        assert value, "it was cut off"
    except InputError as error:
        assert str(path) in str(error)
    else:
        assert read.scores is None or np.isfinite(read.scores).all()


XY = {"model": ["a", "b"], "segment": ["x", "y"]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({**XY, "model": ["a", None]}, "'model' must have a value in every row, got 1 nulls"),
        ({**XY, "model": ["a", ""]}, "'model' must not hold empty names"),
        ({**XY, "model": [0.5, 1.5]}, "'model' must hold texts, got double"),
        ({"model": ["a", "b"]}, "needs a column 'segmentid'"),
        ({**XY, "score": [1.0, None]}, "'score' must have a value in every row"),
        ({**XY, "score": [1.0, np.inf]}, "'score' must hold finite numbers"),
        ({**XY, "score": ["1", "2"]}, "'score' must hold numbers, got string"),
        ({**XY, "label": ["target", "spoof"]}, "got 'spoof'"),
        (
            {"model": pa.array([], pa.string()), "segment": pa.array([], pa.string())},
            "at least one trial, got none",
        ),
    ],
)
def test_parquet_that_breaks_a_rule(tmp_path, columns, message):
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=message):
        read_list(tmp_path / "x.parquet")


# What cannot be written


def test_a_list_without_what_is_to_be_written(tmp_path):
    bare = TrialTable(SMALL.models, SMALL.segments)
    plain = replace(SMALL, llrs=None, targets=None)
    for table, name, kind, message in [
        *((bare, name, "key", "without labels") for name in ("kaldi", "nist", "csv", "parquet")),
        *((bare, name, "scores", "without any") for name in ("kaldi", "nist", "csv", "parquet")),
        (plain, "nist", None, "NIST score file holds log-likelihood ratios"),
        (plain, "voiceclaim", None, "score file of this project has labels"),
        (bare, "kaldi", None, "trials cannot be written as kaldi"),
        (SMALL, "voiceclaim", "key", "key cannot be written as voiceclaim"),
        *((SMALL, name, "key", f"one of csv, .*got '{name}'") for name in ("spk2utt", "voxceleb")),
        (replace(SMALL, systems=NameColumn.of("ABA")), "kaldi", None, "holds the scores of one system, got 2: A, B"),
        (SMALL[np.zeros(3, dtype=bool)], "voiceclaim", "scores", "at least one trial"),
        (bare, "nits", None, r"one of csv, .*got 'nits'"),
    ]:
        with pytest.raises(InputError, match=message):
            write_list(tmp_path / "x", table, format_name=name, kind=kind)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["kaldi", "parquet", "voiceclaim"])
def test_a_place_that_cannot_be_written_to_and_names_that_are_no_text(tmp_path, name):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "no" / "x", tmp_path / "folder"):
        with pytest.raises(InputError, match="cannot write"):
            write_list(path, SMALL, format_name=name)
    table = replace(SMALL, models=NameColumn.of(["a", "\udcff", "a"]))
    with pytest.raises(InputError, match="must be writable as UTF-8"):
        write_list(tmp_path / "x", table, format_name=name, kind="scores")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_text_needs_no_pyarrow_and_parquet_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("csv", "kaldi", "nist", "voiceclaim"):
        write_list(tmp_path / "x", SMALL, format_name=name, kind="scores")
        read = read_list(tmp_path / "x", kind="scores", format_name=name)
        assert content(read, "scores") == content(SMALL, "scores")
    with pytest.raises(UnavailableError, match=r"needs the library pyarrow.*pip install 'voiceclaim\[formats\]'"):
        write_list(tmp_path / "x.parquet", SMALL, format_name="parquet")
