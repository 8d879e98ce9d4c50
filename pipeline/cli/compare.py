"""The commands `voiceclaim compare` and `plot`: several evaluations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.cli.metrics import number, with_interval
from pipeline.cli.options import Json, names_of
from pipeline.cli.terminal import print_json, print_line, print_table
from pipeline.evaluation.exports import COMPARED_COLUMNS

Folders = Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders written by `evaluate --out`.")]


def plot(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output file: .png, .svg or .pdf.")],
    systems: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Systems to draw.", show_default="each one's default")
    ] = None,
) -> None:
    """Plot the DET curves of several evaluations in one figure.

    Examples:
    - `voiceclaim plot results-a/ results-b/ --out compare.png`
    """
    from pipeline.evaluation.comparison_report import plot_evaluations

    print_line("written: " + ", ".join(str(path) for path in plot_evaluations(folders, out, names_of(systems))))


def compare(
    folders: Folders,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the report, the numbers and the figure.")
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="System to compare.", show_default="each one's default")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare evaluations with the first one.

    Differences are over the same trials, intervals over the same resampled speakers.

    Examples:
    - `voiceclaim compare results-a/ results-b/ --out comparison/`
    """
    from pipeline.evaluation.comparison_report import compare as compare_evaluations
    from pipeline.evaluation.comparison_report import read_evaluations, write_comparison

    evaluations = read_evaluations(folders, system)
    table = compare_evaluations(evaluations)
    written = write_comparison(out, evaluations, table) if out is not None else ()
    if as_json:
        print_json(table)
        return
    print_comparison(table)
    if written:
        print_line(f"written: {', '.join(str(path) for path in written)}")


def print_comparison(table: dict[str, Any]) -> None:
    """Print the content of compare.json as two tables: values, and differences from the first evaluation."""
    columns = {title: COMPARED_COLUMNS[title] for title in ("EER %", "minDCF", "Cllr")}
    titles = [f"{title} [95 %]" for title in columns]
    print_table(
        ("evaluation", *titles, "minCllr"),
        [
            (
                f"{entry['label']}: {entry['system']}",
                *(with_interval(entry[key], entry[f"{key}_ci95"], form) for key, form in columns.values()),
                number(entry["min_cllr"], ".3f"),
            )
            for entry in table["evaluations"]
        ],
    )
    print_line("")
    print_table(
        (f"difference from {table['reference']}", *titles, "trials"),
        [
            (
                entry["label"],
                *(_difference(entry[key], form) for key, form in columns.values()),
                entry["n_target"] + entry["n_nontarget"],
            )
            for entry in table["differences"]
        ],
    )
    print_line("")
    for entry in table["differences"]:
        verdicts = {title: entry[key]["verdict"] for title, (key, _) in columns.items() if entry[key]}
        for outcome in ("better", "worse", "no significant difference"):
            if found := [title for title, verdict in verdicts.items() if verdict == outcome]:
                print_line(f"{entry['label']}: {', '.join(found)}: {outcome}")


def _difference(entry: dict[str, Any] | None, form: str) -> str:
    return "-" if entry is None else with_interval(entry["difference"], entry["ci95"], f"+{form}")
