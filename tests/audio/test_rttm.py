"""Speaker turns in RTTM files."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.audio.lists import read_rttm
from pipeline.errors import CorpusError

NAMES = st.one_of(st.text("abc-_.é#", min_size=1, max_size=5), st.sampled_from(["\u00a0", "SPEAKER", "<NA>"]))
SECONDS = st.floats(0, 1e6, allow_nan=False)


def line(file="call", speaker="anna", start=0.5, duration=1.0, channel="1") -> str:
    return f"SPEAKER {file} {channel} {start} {duration} <NA> <NA> {speaker} <NA> <NA>\n"


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(NAMES, NAMES, SECONDS, SECONDS.filter(bool), st.sampled_from("12")), min_size=1))
def test_turns_read_back(tmp_path, turns):
    path = tmp_path / "x.rttm"
    path.write_text("".join(line(*turn) for turn in turns), encoding="utf-8")
    assert read_rttm(path) == [
        (file, channel, speaker, start, start + duration) for file, speaker, start, duration, channel in turns
    ]


def test_other_lines_are_ignored(tmp_path):
    path = tmp_path / "x.rttm"
    path.write_text(f"\ufeff;; comment\nSPKR-INFO call 1 <NA> <NA> <NA> unknown anna <NA> <NA>\n\n{line()}")
    assert read_rttm(path) == [("call", "1", "anna", 0.5, 1.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs at least one SPEAKER line, got none"),
        ("anna call target\n", "needs at least one SPEAKER line, got none"),
        (line() + "SPEAKER call 1 0.5 1.0 <NA>\n", r"line 2: 'SPEAKER file channel .* was expected, got 'SPEAKER c"),
        (line(start="x"), "line 1: a start of 0 or more and a duration above 0"),
        (line(start=-1), "line 1: a start of 0 or more"),
        (line(duration=0), "line 1: .* a duration above 0"),
        (line(duration="nan"), "line 1: .* a duration above 0"),
        (line(duration="inf"), "line 1: .* a duration above 0"),
        (b"SPEAKER \xff 1 0 1 <NA> <NA> anna\n", "line 1: UTF-8 text was expected"),
    ],
)
def test_files_that_break_the_format(tmp_path, text, message):
    path = tmp_path / "x.rttm"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CorpusError, match=message):
        read_rttm(path)


def test_what_is_no_file_is_refused(tmp_path):
    for path, problem in ((tmp_path / "x.rttm", "cannot be read: No such file"), (tmp_path, "a folder")):
        with pytest.raises(CorpusError, match=problem):
            read_rttm(path)
