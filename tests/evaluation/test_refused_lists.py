"""Lists that are broken, endless or none, and lists that cannot be written: refused by file, line and cause."""

from __future__ import annotations

import gzip
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
from list_tables import SMALL, content

from pipeline.errors import InputError, UnavailableError
from pipeline.evaluation import (
    FORMATS,
    NameColumn,
    TrialTable,
    read_list,
    read_scores,
    read_trials,
    tabular,
    text_lists,
    write_list,
)

# What is refused


OWN = "system\tspeaker\tpath\tscore\tlabel\tllr\n"
BROKEN = [
    ("kaldi key", "a b target\n\na b\n", r"line 3: a line must read 'enroll test target\|nontarget', got 'a b'"),
    ("kaldi key", "a b target\na b Target\n", r"line 2: a label must be one of target, .*got 'Target'.*missp"),
    ("kaldi key", b"a b target\n\n# x\nb caf\xe9 target\n", r"line 4: text must be UTF-8, got 'caf\\\\xe9'"),
    ("kaldi key", "a b target\rc d nontarget\r", r"line 1: lines must end in LF or CR LF.*an old Mac program"),
    ("csv", "model,segment,score\rm,s,1\rm,t,2\r", r"line 1: lines must end in LF or CR LF"),
    ("kaldi key", "# nothing\n", r"needs at least one trial, got none"),
    ("kaldi key", "a b target\n1 a b\n", r"line 2: a label .*a list of two formats"),
    ("kaldi scores", "a b 1\na b nan\n", r"line 2: a score must be a finite number, got 'nan'"),
    ("kaldi scores", "a b 1\na b 1_0\n", r"line 2: a score must be a finite number"),
    ("kaldi key", "a b 1\na b target\n", r"line 2: a label must be one of 1, 0, got 'target'; .*two formats"),
    ("voxceleb key", "1 a b\n2 a b\n", r"line 2: a label must be one of 1, 0, got '2'"),
    ("voxceleb key", "1 a b\n0 a\n", r"line 2: a line must read '1\|0 enroll test', got '0 a'"),
    ("voxceleb scores", "0.5 a\n", r"line 1: a line must read 'score enroll test'"),
    ("nist", "modelid\tsegmentid\tLLR\nm\ts\n", r"line 2: a line must read 3 fields separated by tabs"),
    ("nist", "modelid\tsegmentid\tLLR\nm\t\t1\n", r"line 2: the segment must not be empty"),
    ("nist", "modelid\tsegmentid\tside\nm\ts\tc\n", r"line 2: a side must be a or b, got 'c'"),
    ("nist", "modelid\tside\n", r"needs a column 'segmentid' \(or similar\), got 'modelid, side'"),
    ("nist", "modelid\tsegmentid\tmodel\n", r"one column for the model, got 'modelid' and 'model'"),
    ("csv", "client_id,path,sentence,segment\n", r"one column for the segment, got 'path' and 'segment'"),
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


@pytest.mark.parametrize("word", ["nan", "-inf", "N/A"])
def test_a_failed_trial_near_the_beginning_of_a_score_file_is_named_by_its_line(listed, word):
    for lines in ([f"s{n} a{n}.wav 0.5" for n in range(9)], [f"0.5 s{n} a{n}.wav" for n in range(9)]):
        lines[3] = lines[3].replace("0.5", word)
        with pytest.raises(InputError, match=f"line 4: a score must be a finite number, got '{word}'; .* failed trial"):
            read_list(listed("\n".join(lines)), kind="scores")


def test_a_trial_list_with_two_labels_for_one_trial_is_refused(listed):
    path = listed("anna a.wav target\nivan a.wav nontarget\nanna a.wav nontarget\n")
    with pytest.raises(InputError, match=r"list\.txt: a trial must have one label, .* model 'anna', segment 'a.wav'"):
        read_trials(path)
    assert len(read_trials(listed("anna a.wav target\nanna a.wav target\n"))) == 2


@pytest.mark.parametrize("text", ["one two three four\n", "a b\n", "modelid segmentid\n", "\x00\x01\x02", "x" * 5000])
@pytest.mark.parametrize("kind", [None, "key", "scores"])
def test_a_file_that_is_no_list_is_refused(listed, text, kind):
    with pytest.raises(InputError, match=r"line 2: the first line must read '.* or be a header, got") as caught:
        read_list(listed("# comment\n" + text), kind=kind)
    assert len(str(caught.value)) < 500


def test_utf16_is_recognised(listed):
    with pytest.raises(InputError, match="UTF-16"):
        read_trials(listed("anna a.wav target\n".encode("utf-16")))
    with pytest.raises(InputError, match="UTF-16"):
        read_trials(listed("speaker,path,label\nanna,a.wav,1\n".encode("utf-16"), "list.csv"))


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (gzip.compress(b"anna a.wav target\n", mtime=0), "the file is a gzip file: decompress it"),
        (b"PK\x03\x04\x14\x00\x06\x00", r"the file is a ZIP file, as \.xlsx and \.npz are"),
        (b"\x89HDF\r\n\x1a\n\x00", "the file is an HDF5 file, as of BOSARIS"),
    ],
    ids=["gzip", "zip", "hdf5"],
)
@pytest.mark.parametrize("kind", [None, "key", "scores"])
def test_files_of_other_programs_are_recognised(listed, content, cause, kind):
    with pytest.raises(InputError, match=f"likely cause: {cause}"):
        read_list(listed(content), kind=kind)


def test_a_list_with_scores_and_labels_but_no_header_is_not_taken_for_a_key(listed):
    with pytest.raises(InputError, match=r"line 1: .* got 'anna a\.wav 0\.5 target'; .* WeSpeaker's, need a header"):
        read_list(listed("anna a.wav 0.5 target\n"), kind="scores")
    with pytest.raises(InputError, match="it is a key; were scores and key exchanged"):
        read_list(listed("anna a.wav target\n"), kind="scores")


def test_a_table_without_the_columns_says_what_they_may_be_called(listed):
    with pytest.raises(
        InputError,
        match=r"the names model, modelid, enroll, enrollment, speaker, claim, speaker_id, spk_id, client_id$",
    ):
        read_list(listed("enrol,test,label\na,b,target\n", "list.csv"))
    with pytest.raises(InputError, match=r"its fields are separated by semicolons, not by commas$"):
        read_list(listed("model;segment;score\na;b;0,5\n", "list.csv"))


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
    with pytest.raises(UnavailableError, match=r"needs the library pyarrow.*pip install '\.\[formats\]'"):
        write_list(tmp_path / "x.parquet", SMALL, format_name="parquet")


def test_a_list_of_parts_is_not_scored_as_whole_recordings(tmp_path):
    path = tmp_path / "calls.csv"
    path.write_text("speaker,path,label,Start,end\nanna,call.wav,target,1.5,3.0\n")
    with pytest.raises(InputError, match=r"calls\.csv: the columns start and end .* cut no recording"):
        read_trials(path)
    assert set(read_list(path).metadata) == {"Start", "end"}  # a key of scores may have them
    path.write_text("speaker,path,label,start\nanna,call.wav,target,morning\n")
    assert read_trials(path)[0].metadata == {"start": "morning"}
