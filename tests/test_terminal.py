"""Tables on a terminal: what they show, and that they fit."""

from __future__ import annotations

from pipeline.posteriors.coupling import RULES
from pipeline.terminal import print_comparison, print_metrics

WIDTH = 120


def entry(**changes) -> dict:
    """An entry of metrics.json, with the widest numbers that are likely."""
    return {
        "eer_percent": 12.345,
        "eer_percent_ci95": [10.005, 15.678],
        "min_dcf": 0.98765,
        "act_dcf": 12.34567,
        "cllr": 1.23456,
        "min_cllr": 0.87654,
        "identification_error_percent": 56.789,
        "false_accept_percent": 100.0,
        "false_reject_percent": 100.0,
        "n_target": 123_456,
        "n_nontarget": 12_345_678,
        "n_failed": 1234,
        **changes,
    }


def test_the_table_of_metrics_shows_what_matters_in_120_columns(capsys):
    nothing = {key: None for key, value in entry().items() if not key.startswith("n_")}
    systems = {name: entry() for name in RULES} | {"poao": entry(**nothing)}
    print_metrics({"default_system": "refined_worst_rival", "systems": systems})
    header, *rows, footer = capsys.readouterr().out.splitlines()
    assert max(map(len, (header, *rows, footer))) <= WIDTH
    for title in ("EER %", "minDCF p05", "actDCF p05", "Cllr/minCllr", "ident. err %", "FA % at thr.", "FR %"):
        assert title in header
    by_name = {row.split()[0]: row for row in rows}
    assert by_name.keys() == set(RULES)
    assert by_name["refined_worst_rival"].split() == [
        "refined_worst_rival", "*", "12.35", "[10.01,", "15.68]", "0.988", "12.346", "1.235/0.877", "56.79", "100.00",
        "100.00",
    ]  # fmt: skip
    assert by_name["poao"].split() == ["poao", "-", "-", "-", "-/-", "-", "-", "-"]
    assert footer.startswith("* the default; 123456 true and 12345678 false claims, 1234 not scored")


def test_the_tables_of_a_comparison_show_values_and_differences(capsys):
    values = {"eer_percent": 2.0, "min_dcf": 0.25, "cllr": None, "min_cllr": 0.0625}
    intervals = {"eer_percent_ci95": [1.0, 3.0], "min_dcf_ci95": [0.125, 0.5], "cllr_ci95": None}
    difference = {"difference": -0.5, "ci95": [-1.0, 0.25]}
    table = {
        "reference": "a",
        "evaluations": [{"label": label, "system": "poao", **values, **intervals} for label in ("a", "b")],
        "differences": [
            {
                "label": "b",
                "n_target": 8,
                "n_nontarget": 32,
                "eer_percent": difference,
                "min_dcf": difference,
                "cllr": None,
            }
        ],
    }
    print_comparison(table)
    first, second = capsys.readouterr().out.split("\n\n")
    assert [row.split() for row in first.splitlines()[1:]] == [
        [f"{label}:", "poao", "2.00", "[1.00,", "3.00]", "0.250", "[0.125,", "0.500]", "-", "0.062"] for label in "ab"
    ]
    header, row = second.splitlines()
    assert header.startswith("difference from a ")
    assert row.split() == ["b", "-0.50", "[-1.00,", "+0.25]", "-0.500", "[-1.000,", "+0.250]", "-", "40"]
