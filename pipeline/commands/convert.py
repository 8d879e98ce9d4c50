"""The command `voiceclaim convert`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.formats import FORMATS
from pipeline.terminal import say

if TYPE_CHECKING:
    from pipeline.evaluation import TrialTable


class Part(StrEnum):
    """What of a list is written."""

    KEY = "key"
    SCORES = "scores"
    TRIALS = "trials"


def convert(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A list of trials, a key or scores.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    to: Annotated[str, typer.Option("--to", metavar="NAME", help=f"Format to write: {', '.join(FORMATS)}.")],
    format_name: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Format of FILE.", show_default="told from the file"),
    ] = None,
    part: Annotated[
        Part | None,
        typer.Option("--write", help="What to write.", show_default="scores, else labels, else the trials alone"),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="System to write, where FILE holds several.", show_default=False)
    ] = None,
    llr: Annotated[bool, typer.Option("--llr", help="The scores are natural-log likelihood ratios.")] = False,
) -> None:
    """Write a list of trials, a key or scores in another format.

    \b
    Example: voiceclaim convert results/scores.txt scores.tsv --to nist --system fused
    """
    from pipeline.formats.listing import write_list
    from pipeline.formats.reading import read_list

    wanted: Literal["key", "scores"] | None = "key" if part is Part.KEY else "scores" if part is Part.SCORES else None
    table = read_list(source, kind=wanted, format_name=format_name)
    if system is not None:
        table = _of_system(source, table, system)
    if llr:
        table = replace(table, llrs=table.needed_scores)
    write_list(out, table, format_name=to, kind=None if part is None else part.value)
    say(f"written: {out} ({len(table)} trials)")


def _of_system(source: Path, table: TrialTable, system: str) -> TrialTable:
    from pipeline.errors import InputError
    from pipeline.evaluation.systems import parted

    parts = parted(table, source.stem)
    if system not in parts:
        raise InputError(f"{source}: it has the systems {', '.join(parts)}, got {system}")
    return replace(parts[system], systems=None) if len(parts) > 1 else parts[system]
