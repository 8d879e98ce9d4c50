"""Trial lists and score files: both formats, what they tolerate, what they refuse and how they say so."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InputError, TrialListError
from pipeline.evaluation import ScoreRow, SystemScores, Trial, read_scores, read_trials, write_scores


@pytest.fixture
def listed(tmp_path: Path):
    def write(content: bytes | str) -> Path:
        path = tmp_path / "list.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_kaldi_lines(listed):
    trials = read_trials(listed("01 a/b.flac target\n02 a/b.flac nontarget\n"))
    assert trials == (Trial("01", "a/b.flac", True), Trial("02", "a/b.flac", False))


def test_voxceleb_lines(listed):
    trials = read_trials(listed("1 id1 a/b.wav\n0 id2 a/b.wav"))
    assert trials == (Trial("id1", "a/b.wav", True), Trial("id2", "a/b.wav", False))


@pytest.mark.parametrize("line", ["anna my recordings/take  two.wav target", "1 anna my recordings/take  two.wav"])
def test_spaces_inside_a_path_are_kept(listed, line):
    assert read_trials(listed(line)) == (Trial("anna", "my recordings/take  two.wav", True),)


@pytest.mark.parametrize("line", ["\tanna\t \ta.wav\t target \t", "  1\tanna   a.wav \t"])
def test_fields_may_be_parted_by_any_run_of_spaces_and_tabs(listed, line):
    assert read_trials(listed(line)) == (Trial("anna", "a.wav", True),)


def test_only_ascii_blanks_part_fields(listed):
    name = "Ana\u00a0Maria"
    path = "\u3000x\u2028y\x85.wav"
    assert read_trials(listed(f"{name} {path} target\n")) == (Trial(name, path, True),)


def test_speaker_called_one_is_still_kaldi(listed):
    trials = read_trials(listed("1 a.wav target\n0 a.wav nontarget\nbob a.wav nontarget\n"))
    assert [trial.speaker for trial in trials] == ["1", "0", "bob"]


def test_label_words_may_name_speakers_and_files(listed):
    trials = read_trials(listed("1 anna a.wav\n0 target target\n1 nontarget x target\n"))
    assert trials[1:] == (Trial("target", "target", False), Trial("nontarget", "x target", True))


def test_comments_blanks_bom_and_crlf_are_skipped(listed):
    content = b"\xef\xbb\xbf# heading\r\n\r\n   \r\n1 anna a.wav\r\n  # 0 bob a.wav\r\n0 bob a.wav\r\n"
    assert read_trials(listed(content)) == (Trial("anna", "a.wav", True), Trial("bob", "a.wav", False))


def test_bom_does_not_stick_to_the_first_speaker(listed):
    assert read_trials(listed(b"\xef\xbb\xbfanna a.wav target\n"))[0].speaker == "anna"


def test_repeated_names_share_one_string(listed):
    first, second = read_trials(listed("speaker file.wav target\nspeaker file.wav nontarget\n"))
    assert first.speaker is second.speaker
    assert first.path is second.path


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("anna a.wav target\n\nanna a.wav\n", 3, ["speaker path target|nontarget", "'anna a.wav'", "label"]),
        ("anna a.wav target\nanna a.wav Target\n", 2, ["speaker path target|nontarget", "misspelt"]),
        ("anna a.wav target\n1 anna a.wav\n", 2, ["mixes two formats"]),
        ("1 anna a.wav\nanna a.wav target\n", 2, ["1|0 speaker path", "mixes two formats"]),
        ("1 anna a.wav\n2 anna a.wav\n", 2, ["1|0 speaker path", "'2 anna a.wav'"]),
        ("1 anna a.wav\n0 anna\n", 2, ["1|0 speaker path", "missing"]),
        ("# c\nanna a.wav yes\n", 2, ["first trial", "'anna a.wav yes'"]),
        ("anna target\n", 1, ["speaker path target|nontarget"]),
        ("target\n", 1, ["speaker path target|nontarget"]),
        ("1\n", 1, ["1|0 speaker path"]),
    ],
)
def test_malformed_line_is_named(listed, content, line, words):
    path = listed(content)
    with pytest.raises(TrialListError) as caught:
        read_trials(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: ")
    for word in words:
        assert word in message


def test_long_line_is_shortened_in_the_message(listed):
    with pytest.raises(TrialListError) as caught:
        read_trials(listed("anna " + "x" * 5000))
    assert len(str(caught.value)) < 500


def test_undecodable_bytes_name_their_line(listed):
    path = listed(b"anna a.wav target\nbob caf\xe9.wav target\n")
    with pytest.raises(TrialListError, match=r"line 2: text must be UTF-8, got 'caf\\\\xe9\.wav'"):
        read_trials(path)


def test_utf16_is_recognised(listed):
    with pytest.raises(TrialListError, match="UTF-16"):
        read_trials(listed("anna a.wav target\n".encode("utf-16")))


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing here\n"])
def test_empty_list_is_refused(listed, content):
    with pytest.raises(TrialListError, match="at least one trial"):
        read_trials(listed(content))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(TrialListError, match=r"none\.txt: cannot read"):
        read_trials(tmp_path / "none.txt")
    with pytest.raises(InputError, match="cannot read"):
        read_scores(tmp_path)


ROWS = [
    ScoreRow("POAO", "anna", "my files/a.wav", 0.1 + 0.2, True),
    ScoreRow("BOAO", "anna", "my files/a.wav", 1.0, True),
    ScoreRow("POAO", "bob", "my files/a.wav", -1.7e-308, False),
]


def test_score_file_text(tmp_path):
    path = tmp_path / "scores.tsv"
    write_scores(path, ROWS[:2])
    assert path.read_bytes() == (
        b"system\tspeaker\tpath\tscore\tlabel\tllr\n"
        b"POAO\tanna\tmy files/a.wav\t0.30000000000000004\ttarget\t-\n"
        b"BOAO\tanna\tmy files/a.wav\t1.0\ttarget\t-\n"
    )


def test_score_file_text_of_a_calibrated_system(tmp_path):
    path = tmp_path / "scores.tsv"
    write_scores(path, [ScoreRow("A", "b", "c", 0.5, True, -1.25), ScoreRow("B", "b", "c", 2.0, False)])
    assert path.read_text().splitlines()[1:] == ["A\tb\tc\t0.5\ttarget\t-1.25", "B\tb\tc\t2.0\tnontarget\t-"]
    found = read_scores(path)
    assert found["A"].llrs.tolist() == found["A"].target_llrs.tolist() == [-1.25]
    assert found["A"].nontarget_llrs.tolist() == []
    assert found["B"].llrs is found["B"].target_llrs is found["B"].nontarget_llrs is None


def test_a_score_file_of_an_earlier_version_has_no_ratios(listed):
    found = read_scores(listed(OLD_HEADER + "A\tb\tc\t1\ttarget\nA\tb\td\t0\tnontarget\n"))["A"]
    assert (found.target.tolist(), found.nontarget.tolist(), found.llrs) == ([1.0], [0.0], None)


def test_rows_of_one_system_become_the_arrays_that_are_read_back(tmp_path):
    path = tmp_path / "scores.tsv"
    rows = [ScoreRow("A", f"s{k}", f"p{k}", k / 3, k % 2 == 0, -k / 7) for k in range(5)]
    write_scores(path, rows)
    made, read = SystemScores.from_rows(rows), read_scores(path)["A"]
    for name in ("speakers", "paths", "scores", "is_target", "llrs", "target_llrs", "nontarget_llrs"):
        assert getattr(made, name).tolist() == getattr(read, name).tolist()
        assert getattr(made, name).dtype == getattr(read, name).dtype
    assert SystemScores.from_rows([]).llrs is None


def test_scores_are_grouped_by_system_in_file_order(tmp_path):
    path = tmp_path / "scores.tsv"
    write_scores(path, iter(ROWS))
    systems = read_scores(path)
    assert list(systems) == ["POAO", "BOAO"]
    poao = systems["POAO"]
    assert poao.scores.tolist() == [0.1 + 0.2, -1.7e-308]
    assert poao.speakers.tolist() == ["anna", "bob"]
    assert poao.paths.tolist() == ["my files/a.wav"] * 2
    assert (poao.target.tolist(), poao.nontarget.tolist()) == ([0.1 + 0.2], [-1.7e-308])
    assert (poao.target_speakers.tolist(), poao.nontarget_speakers.tolist()) == (["anna"], ["bob"])


FINITE = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(
    st.lists(
        st.tuples(NAMES, NAMES, NAMES, FINITE, st.booleans(), FINITE),
        min_size=1,
        max_size=6,
    )
)
def test_scores_survive_the_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "round.tsv"
    write_scores(path, [ScoreRow(*row) for row in rows])
    read = {
        system: list(zip(s.speakers, s.paths, s.scores.tolist(), s.is_target.tolist(), s.llrs.tolist(), strict=True))
        for system, s in read_scores(path).items()
    }
    expected: dict[str, list[tuple[object, ...]]] = {}
    for system, *rest in rows:
        expected.setdefault(system, []).append(tuple(rest))
    assert read == expected


def test_numpy_scores_are_written_as_plain_numbers(tmp_path):
    path = tmp_path / "scores.tsv"
    write_scores(path, [ScoreRow("A", "b", "c", np.float64(0.25), np.True_, np.float32(0.5))])
    assert path.read_text().splitlines()[1] == "A\tb\tc\t0.25\ttarget\t0.5"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ScoreRow("A", "b", "c", math.nan, True), "finite, got nan"),
        (ScoreRow("A", "b", "c", -math.inf, True), "finite, got -inf"),
        (ScoreRow("A", "b", "c", 1.0, True, math.inf), "an llr must be finite, got inf"),
        (ScoreRow("POAO", "b", "c", 1.0, True, 0.5), "all of its rows or in none"),
        (ScoreRow("A\tB", "b", "c", 1.0, True), "a system must be"),
        (ScoreRow("A", "b\n", "c", 1.0, True), "a speaker must be"),
        (ScoreRow("A", "b", "c\r", 1.0, True), "a path must be"),
        (ScoreRow("A", "", "c", 1.0, True), "a speaker must be"),
        (ScoreRow("A", "b", "caf\udce9.wav", 1.0, True), "writable as UTF-8"),
    ],
)
def test_unwritable_row_is_refused_and_leaves_the_old_file(tmp_path, row, words):
    path = tmp_path / "scores.tsv"
    write_scores(path, ROWS)
    before = path.read_bytes()
    with pytest.raises(TrialListError, match="row 2") as caught:
        write_scores(path, [ROWS[0], row])
    assert words in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_to_write_and_nowhere_to_write(tmp_path):
    with pytest.raises(TrialListError, match="at least one row"):
        write_scores(tmp_path / "scores.tsv", [])
    with pytest.raises(TrialListError, match="cannot write"):
        write_scores(tmp_path / "no such folder" / "scores.tsv", ROWS)
    (tmp_path / "folder").mkdir()
    with pytest.raises(TrialListError, match="cannot write"):
        write_scores(tmp_path / "folder", ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


OLD_HEADER = "system\tspeaker\tpath\tscore\tlabel\n"
HEADER = "system\tspeaker\tpath\tscore\tlabel\tllr\n"


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", 1, "header"),
        ("A\tb\tc\t1\ttarget\n", 1, "header"),
        ("system\tspeaker\tpath\tscore\n", 1, "header"),
        (HEADER.replace("\t", " "), 1, "header"),
        (OLD_HEADER + "A\tb\tc\t1\n", 2, "5 tab-separated fields"),
        (OLD_HEADER + "A\tb\tc\t1\ttarget\t-\n", 2, "5 tab-separated fields"),
        (HEADER + "A\tb\tc\t1\ttarget\n", 2, "6 tab-separated fields"),
        (HEADER + "A\tb\tc\t1\ttarget\t-\tx\n", 2, "6 tab-separated fields"),
        (HEADER + "A\t\tc\t1\ttarget\t-\n", 2, "none empty"),
        (HEADER + "A\tb\tc\t1\ttarget\t\n", 2, "none empty"),
        (HEADER + "A\tb\tc\t1\ttarget\t-\n\nA\tb\tc\tnan\ttarget\t-\n", 4, "score must be a finite number, got 'nan'"),
        (HEADER + "A\tb\tc\tinf\ttarget\t-\n", 2, "finite number, got 'inf'"),
        (HEADER + "A\tb\tc\tone\ttarget\t-\n", 2, "finite number, got 'one'"),
        (HEADER + "A\tb\tc\t1\t1\t-\n", 2, "'target' or 'nontarget', got '1'"),
        (HEADER + "A\tb\tc\t1\ttarget\tinf\n", 2, "llr must be a finite number, got 'inf'"),
        (HEADER + "A\tb\tc\t1\ttarget\tnone\n", 2, "llr must be a finite number, got 'none'"),
        (HEADER + "A\tb\tc\t1\ttarget\t-\nA\tb\td\t1\ttarget\t2\n", 3, "all of its rows or in none"),
        (HEADER + "A\tb\tc\t1\ttarget\t2\nA\tb\td\t1\ttarget\t-\n", 3, "all of its rows or in none"),
    ],
)
def test_malformed_score_file_is_named(listed, content, line, words):
    path = listed(content)
    with pytest.raises(TrialListError) as caught:
        read_scores(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert words in str(caught.value)


def test_score_file_needs_rows_and_utf8(listed):
    with pytest.raises(TrialListError, match="at least one row"):
        read_scores(listed(HEADER))
    with pytest.raises(TrialListError, match="line 2: text must be UTF-8"):
        read_scores(listed(HEADER.encode() + b"A\tb\xff\tc\t1\ttarget\t-\n"))


def test_score_file_with_bom_and_crlf(listed):
    content = b"\xef\xbb\xbf" + (HEADER + "A\tb\tc\t1\ttarget\t-\n").replace("\n", "\r\n").encode()
    assert read_scores(listed(content))["A"].target.tolist() == [1.0]
