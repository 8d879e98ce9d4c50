"""Metrics in a terminal, as `evaluate` and other commands print them: error rates, costs and remarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.cli.terminal import print_line, print_table


def print_evaluation(table: dict[str, Any], written: Sequence[Path]) -> None:
    """Print the content of metrics.json, ``table``, remarks on it, and the files ``written``."""
    print_metrics(table)
    print_by_metadata(table)
    for line in _remarks(table):
        print_line(line)
    figures = [path for path in written if path.suffix in {".png", ".svg"}]
    files = ", ".join(str(path) for path in written if path not in figures)
    print_line(f"written: {files}" + (f", {len(figures)} figures" if figures else ""))


def print_metrics(table: dict[str, Any]) -> None:
    """Print the content of metrics.json as a table, the default system first."""
    default = table["default_system"]
    counts = table["systems"][default]
    print_table(
        ("system", "EER % [95 %]", "minDCF", "actDCF", "Cllr/min", "ID err %", "FA %", "FR %"),
        [
            (
                f"{name} *" if name == default else name,
                with_interval(entry["eer_percent"], entry["eer_percent_ci95"], ".2f"),
                number(entry["min_dcf"], ".3f"),
                number(entry["act_dcf"], ".3f"),
                f"{number(entry['cllr'], '.3f')}/{number(entry['min_cllr'], '.3f')}",
                number(entry["identification_error_percent"], ".2f"),
                number(entry["false_accept_percent"], ".2f"),
                number(entry["false_reject_percent"], ".2f"),
            )
            for name, entry in sorted(table["systems"].items(), key=lambda item: item[0] != default)
        ],
        optional=" [",
    )
    trials = (
        f"{counts['n_target']} target and {counts['n_nontarget']} nontarget trials, {counts['n_failed']} not scored"
    )
    print_line(f"* default; {trials}")
    if counts["n_failed"]:
        rates = counts["generalised"]
        print_line(
            f"with those as rejected (ISO/IEC 19795-1): EER {number(rates['eer_percent'], '.2f')} %,"
            f" FA {number(rates['false_accept_percent'], '.2f')} %, FR {number(rates['false_reject_percent'], '.2f')} %"
        )
    kinds = ("false_accept_percent", "false_reject_percent")
    at_threshold = any(entry[kind] is not None for entry in table["systems"].values() for kind in kinds)
    rates = " FA, FR at the store's threshold;" if at_threshold else ""
    print_line(f"DCF at prior 0.05;{rates} ID err: rank-1 errors")


def print_by_metadata(table: dict[str, Any]) -> None:
    """Print the default system's rates by each further column of the list."""
    from pipeline.evaluation.breakdowns import SPEECH

    columns = {
        name: of for name, of in table["systems"][table["default_system"]]["by_metadata"].items() if name != SPEECH
    }
    for name, groups in columns.items():
        print_table(
            (name, "targets", "nontargets", "EER %", "FA %", "FR %"),
            [
                (
                    value or "(empty)",
                    str(group["n_target"]),
                    str(group["n_nontarget"]),
                    number(group["eer_percent"], ".2f") + ("" if group["rule_of_30"] else "†"),
                    number(group["false_accept_percent"], ".2f"),
                    number(group["false_reject_percent"], ".2f"),
                )
                for value, group in groups.items()
            ],
        )
    if columns:
        print_line("FA, FR at one threshold for all; † fewer than 30 errors of a kind")


def _remarks(table: dict[str, Any]) -> list[str]:
    """Describe scores and trials that did not match one to one, scores that look reversed, and what was left out."""
    words = {
        "extra_scores": "scores of trials that are not in the key were ignored",
        "repeated_trials": "trials are repeated in the key and count each time",
        "repeated_scores": "scores are repeated with the same value",
    }
    counted = [
        f"{name}: {counts[key]:,} {meaning}"
        for name, counts in table.get("joined", {}).items()
        for key, meaning in words.items()
        if counts[key]
    ]
    lower = [
        f"{name}: targets score lower than nontargets; are these distances? Negate them"
        for name, entry in table["systems"].items()
        if "scores" in table and (entry["eer_percent"] or 0.0) > 50.0
    ]
    return [*counted, *lower, *(f"left out: {what}" for what in table.get("left_out", ()))]


def number(value: float | None, form: str) -> str:
    """Format a number, or "-" for None."""
    return "-" if value is None else format(value, form)


def with_interval(value: float | None, low_high: list[float] | None, form: str) -> str:
    """Format a number with its confidence interval."""
    ends = "" if low_high is None else f" [{low_high[0]:{form}}, {low_high[1]:{form}}]"
    return f"{number(value, form)}{ends}"
