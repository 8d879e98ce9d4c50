"""Trial lists, keys and tables as other tools write them, and what others read of ours."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from list_tables import PLAIN, SETTINGS, SMALL, content, tables

from pipeline.errors import InputError
from pipeline.evaluation import Trial, read_list, read_trials, write_list
from pipeline.evaluation.lists import format_of


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


@pytest.mark.parametrize(
    ("text", "trials"),
    [
        ("01 a/b.flac target\n", [("01", "a/b.flac", True)]),
        ("m_1 s_1 imp\nm_1 s_2 tgt\n", [("m_1", "s_1", False), ("m_1", "s_2", True)]),
        ("anna a.wav true\nivan a.wav false\n", [("anna", "a.wav", True), ("ivan", "a.wav", False)]),
        ("id8-enroll test/a b.wav 1\n1 x.wav 0\n", [("id8-enroll", "test/a b.wav", True), ("1", "x.wav", False)]),
        ("anna my recordings/take  two.wav target", [("anna", "my recordings/take  two.wav", True)]),
        ("1 anna my recordings/take  two.wav", [("anna", "my recordings/take  two.wav", True)]),
        ("\tanna\t \ta.wav\t target \t", [("anna", "a.wav", True)]),
        ("Ana\u00a0Maria \u3000x\u2028y\x85.wav target\n", [("Ana\u00a0Maria", "\u3000x\u2028y\x85.wav", True)]),
        ("1 a.wav target\n", [("1", "a.wav", True)]),
        ("modelid\tsegmentid\ttargettype\n7\tx y\tnontarget\n", [("7", "x y", False)]),
        ('label,speaker,path\ntrue,"a,b",c\n', [("a,b", "c", True)]),
        ("claim,path,label\nanna,a.wav,TRUE\nivan,a.wav,FALSE\n", [("anna", "a.wav", True), ("ivan", "a.wav", False)]),
        ("1 a b\n0 target target\n1 nontarget x target\n",
         [("a", "b", True), ("target", "target", False), ("nontarget", "x target", True)]),
        ("\ufeff# heading\r\n\r\n   \r\n1 anna a.wav\r\n  # 0 bob a.wav\r\n0 bob a.wav\r\n",
         [("anna", "a.wav", True), ("bob", "a.wav", False)]),
    ],
)  # fmt: skip
def test_trials_are_read_from_any_format(listed, text, trials):
    assert read_trials(listed(text)) == tuple(Trial(*trial) for trial in trials)


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


@pytest.mark.parametrize("speaker", ["speaker_id", "spk_id", "client_id", "speaker"])
@pytest.mark.parametrize("path", ["filename", "file_name", "audio", "audio_path", "wav", "path"])
def test_columns_may_have_the_names_of_tables_that_are_enrolled(listed, tmp_path, speaker, path):
    expected = [("anna", "a.wav", True), ("anna", "b.wav", False)]
    text = listed(f"{path},{speaker.upper()},label\na.wav,anna,1.0\nb.wav,anna,0.0\n", "list.txt")
    assert (format_of(text), content(read_list(text), "key")) == ("csv", expected)
    table = pa.table({path: ["a.wav", "b.wav"], speaker: ["anna", "anna"], "label": [1.0, 0.0]})
    pyarrow.parquet.write_table(table, tmp_path / "list.parquet")
    assert content(read_list(tmp_path / "list.parquet"), "key") == expected


def test_a_column_named_as_in_tables_that_are_enrolled_stays_metadata_beside_the_model(listed):
    (trial,) = read_trials(listed("model,speaker_id,segment,label\nm1,anna,a.wav,1\n"))
    assert (trial.speaker, trial.metadata) == ("m1", {"speaker_id": "anna"})
    with pytest.raises(InputError, match="one column for the segment, got 'wav' and 'filename'; rename"):
        read_trials(listed("model,wav,filename,label\nm1,a.wav,b.wav,1\n"))
    with pytest.raises(InputError, match=r"a label must be one of .*, 1, 0, .* got '0\.5'"):
        read_trials(listed("model,wav,label\nm1,a.wav,0.5\n"))


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
