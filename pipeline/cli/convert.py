"""The command `voiceclaim convert`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.cli.terminal import print_line
from pipeline.evaluation import WRITTEN

Part = Literal["key", "scores", "trials"]


def convert(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A trial list, a key or a score file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; must be new.")],
    to: Annotated[str, typer.Option("--to", metavar="NAME", help=f"Format to write: {', '.join(WRITTEN)}.")],
    format_name: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Format of FILE.", show_default="recognised from the file"),
    ] = None,
    part: Annotated[
        Part | None,
        typer.Option("--write", help="Part to write.", show_default="scores, else labels, else the trials alone"),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="System to write, if FILE has several.", show_default=False)
    ] = None,
    llr: Annotated[bool, typer.Option("--llr", help="The scores are natural-log likelihood ratios.")] = False,
) -> None:
    """Write a trial list, a key or a score file in another format.

    Examples:
    - `voiceclaim convert results/scores.txt scores.tsv --to nist --system fused`
    """
    from pipeline.errors import InputError
    from pipeline.evaluation import read_list, write_list
    from pipeline.evaluation.columns import split_by_system

    if out.is_file():
        raise InputError(f"{out}: OUT needs a new file, and this one exists; is it FILE itself, or an earlier result?")
    table = read_list(source, kind=None if part == "trials" else part, format_name=format_name)
    if system is not None:
        systems = split_by_system(table, source)
        if system not in systems:
            raise InputError(f"{source}: it has the systems {', '.join(systems)}, got {system}")
        table = replace(systems[system], systems=None) if len(systems) > 1 else systems[system]
    if llr:
        table = replace(table, llrs=table.needed_scores)
    write_list(out, table, format_name=to, kind=part)
    print_line(f"written: {out} ({len(table)} trials)")
