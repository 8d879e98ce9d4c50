"""Tables, bars and lines on a terminal: content, width and alignment."""

from __future__ import annotations

import io
import re
import sys
import time
import unicodedata

import pytest

from pipeline.cli.compare import print_comparison
from pipeline.cli.metrics import print_metrics
from pipeline.cli.terminal import live_line, print_table, progress_bar
from pipeline.scoring.rules import RULES


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    """terminal(name, columns): an output from now on, a terminal of so many columns."""

    def open_terminal(name: str, columns: int = 80) -> Terminal:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, name, Terminal())
        return getattr(sys, name)

    return open_terminal


def entry(**changes) -> dict:
    """An entry of metrics.json, with the widest numbers that are likely."""
    return {
        "eer_percent": 12.345, "eer_percent_ci95": [10.005, 15.678], "min_dcf": 0.98765, "act_dcf": 12.34567,
        "cllr": 1.23456, "min_cllr": 0.87654, "identification_error_percent": 56.789, "false_accept_percent": 100.0,
        "false_reject_percent": 100.0, "n_target": 123_456, "n_nontarget": 12_345_678, "n_failed": 1234,
        "generalised": {"eer_percent": 23.456, "false_accept_percent": 99.0, "false_reject_percent": None}, **changes,
    }  # fmt: skip


def test_the_table_of_metrics_shows_the_default_system_first(capsys):
    nothing = {key: None for key, value in entry().items() if not key.startswith("n_")}
    systems = {name: entry() for name in RULES} | {"poao": entry(**nothing)}
    print_metrics({"default_system": "fused", "systems": systems})
    header, *rows, trials, generalised, _ = capsys.readouterr().out.splitlines()
    for title in ("EER % [95 %]", "minDCF", "actDCF", "Cllr/min", "ID err %", "FA %", "FR %"):
        assert title in header
    assert rows[0].split() == [
        "fused", "*", "12.35", "[10.01,", "15.68]", "0.988", "12.346", "1.235/0.877", "56.79", "100.00", "100.00",
    ]  # fmt: skip
    by_name = {row.split()[0]: row for row in rows}
    assert by_name.keys() == set(RULES)
    assert by_name["poao"].split() == ["poao", "-", "-", "-", "-/-", "-", "-", "-"]
    assert trials == "* default; 123456 target and 12345678 nontarget trials, 1234 not scored"
    assert generalised == "with those as rejected (ISO/IEC 19795-1): EER 23.46 %, FA 99.00 %, FR - %"


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_of_metrics_fits_the_terminal_a_line_a_system(terminal, columns):
    shown = terminal("stdout", columns)
    small = entry(act_dcf=0.1, false_accept_percent=1.0, false_reject_percent=1.0)
    print_metrics({"default_system": "fused", "systems": dict.fromkeys(RULES, small)})
    lines = shown.getvalue().splitlines()
    assert len(lines) == len(RULES) + 4
    assert max(map(len, lines)) <= columns
    assert ("[10.01, 15.68]" in lines[1]) == (columns == 120)


def test_no_number_is_torn_between_two_lines_of_a_narrow_terminal(terminal):
    shown = terminal("stdout", 60)
    small = entry(act_dcf=0.1, false_accept_percent=1.0, false_reject_percent=1.0)
    print_metrics({"default_system": "fused", "systems": dict.fromkeys(RULES, small)})
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines[:-3])) <= 60
    numbers = ["12.35", "0.988", "0.100", "1.235/0.877", "56.79", "1.00", "1.00"]
    assert sum(line.split()[-7:] == numbers for line in lines) == len(RULES)


def test_the_tables_of_a_comparison_show_values_and_differences(capsys, terminal):
    values = {"eer_percent": 2.0, "min_dcf": 0.25, "cllr": None, "min_cllr": 0.0625}
    intervals = {"eer_percent_ci95": [1.0, 3.0], "min_dcf_ci95": [0.125, 0.5], "cllr_ci95": None}
    difference = {"difference": -0.5, "ci95": [-1.0, 0.25], "verdict": "no significant difference"}
    differences = {"eer_percent": difference, "min_dcf": difference, "cllr": None}
    table = {
        "reference": "a",
        "evaluations": [{"label": label, "system": "poao", **values, **intervals} for label in ("a", "b")],
        "differences": [{"label": "b", "n_target": 8, "n_nontarget": 32, **differences}],
    }
    print_comparison(table)
    first, second, third = capsys.readouterr().out.split("\n\n")
    assert [row.split() for row in first.splitlines()[1:]] == [
        [f"{label}:", "poao", "2.00", "[1.00,", "3.00]", "0.250", "[0.125,", "0.500]", "-", "0.062"] for label in "ab"
    ]
    header, row = second.splitlines()
    assert header.startswith("difference from a ")
    assert row.split() == ["b", "-0.50", "[-1.00,", "+0.25]", "-0.500", "[-1.000,", "+0.250]", "-", "40"]
    assert third == "b: EER %, minDCF: no significant difference\n"
    shown = terminal("stdout", 50)
    print_comparison(table)
    assert max(map(len, shown.getvalue().splitlines())) <= 50
    assert "+0.250]" in shown.getvalue()


def test_wide_characters_are_aligned(capsys):
    print_table(("speaker", "files"), [("李 雷", 3), ("Zoë", 12), ("anna", 444)])
    lines = capsys.readouterr().out.splitlines()
    widths = [sum(1 + (unicodedata.east_asian_width(c) == "W") for c in line) for line in lines]
    assert set(widths) == {len("speaker  files")}


def test_without_a_terminal_nothing_is_drawn(capsys):
    with live_line() as show, progress_bar(quiet=False) as advance:
        show("hello")
        advance("reading", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_one_bar_shows_the_stage_and_leaves_an_empty_line(terminal):
    shown = terminal("stderr")
    with progress_bar(quiet=False) as advance:
        for stage, steps in (("reading", 1), ("training", 1), ("reading", 1)):
            advance(stage, steps, 2)
            time.sleep(0.15)  # ten pictures a second
    pictures = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text) for text in re.split(r"[\r\n]", shown.getvalue())]
    assert any(re.match(r"training [━╺╸ ]+ 1/2 [-0-9:]+", text) for text in pictures)
    assert any(re.match(r"reading [━╺╸ ]+ 2/2 ", text) for text in pictures)
    assert not any("reading" in text and "training" in text for text in pictures)
    assert shown.getvalue().count("\n") == 1
    assert shown.getvalue().endswith("\r\x1b[1A\x1b[2K")  # the line is erased, and the cursor at its start


def test_commands_that_take_long_show_at_once_what_they_do(terminal, inside, copied, trial_lines, demo, tmp_path):
    lines = [f"{claim} {path} {'target' if own else 'nontarget'}\n" for claim, path, own in trial_lines[:8]]
    (tmp_path / "list").write_text("".join(lines))
    evaluate = ("evaluate", copied, "list", "--root", demo, "--out", "results", "--systems", "fused")
    stages = {evaluate: "reading machines", ("speakers", "remove", copied, "ivan"): "machines without the speaker"}
    for words, stage in stages.items():
        shown = terminal("stderr")
        assert inside(*words).code == 0, shown.getvalue()
        assert re.search(rf"{stage} [^\n]* 0/\d", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue()))


def test_a_hostile_name_cannot_move_the_cursor_of_the_live_line(terminal):
    shown = terminal("stderr")
    with live_line() as show:
        show("anna\x1b[2J\u202e")
    assert "anna\\x1b[2J\\u202e" in shown.getvalue()
