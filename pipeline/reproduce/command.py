"""The command `voiceclaim reproduce`: one paper's experiment again, its numbers beside the published ones."""

from __future__ import annotations

import datetime
import shlex
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.terminal import bars, cores, print_json, print_table, say

if TYPE_CHECKING:
    from pipeline.reproduce.outcome import Outcome

Progress = Callable[[str, int, int], None]


class Paper(StrEnum):
    """The papers whose tables can be made again."""

    XIN2002 = "xin2002"
    PLATT1999 = "platt1999"
    LIN2007 = "lin2007"
    IMPLIED2020 = "implied2020"


def reproduce(
    paper: Annotated[Paper, typer.Argument(metavar="PAPER", help="xin2002, platt1999, lin2007 or implied2020.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for table.json, table.md and figures.")],
    tables: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the data files (adult/a9a, ...).", show_default="downloaded"),
    ] = None,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Take data files whose checksum is not the expected one.")
    ] = False,
    tasks: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="platt1999: tasks to run.", show_default="all")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(metavar="DIR", help="xin2002: folder with ENROLL and VERIFY, as YOHO's.")
    ] = None,
    trials: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="xin2002: claims to check.", show_default="VERIFY, every claim"),
    ] = None,
    speakers: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="xin2002: take the first N speakers.", show_default="all")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Threads to work on.", show_default="all cores")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Make a paper's table again: its numbers and those found here side by side, and its figures redrawn.

    xin2002 needs --corpus. The others need data files, from --tables or downloaded with their checksums.

    \b
    Example: voiceclaim reproduce lin2007 --out lin2007/
    Example: voiceclaim reproduce xin2002 --corpus YOHO/ --speakers 50 --out xin2002/
    """
    from pipeline.reproduce.outcome import read_back, table_of, write

    about_speech = {"--corpus": corpus, "--trials": trials, "--speakers": speakers}
    about_tables = {"--tables": tables, "--any-version": any_version or None}
    speech = paper is Paper.XIN2002
    _refuse(paper, about_tables if speech else about_speech)
    _refuse(paper, {"--tasks": tasks if paper is not Paper.PLATT1999 else None})
    started = time.perf_counter()
    with bars(quiet=as_json) as progress:
        if speech:
            outcome = _from_speech(corpus, trials, speakers, jobs or cores(), progress)
        else:
            outcome = _from_tables(paper, tables, any_version, tasks, jobs or cores(), progress)
    written = write(
        outcome,
        out,
        command=shlex.join(["voiceclaim", *sys.argv[1:]]),
        seconds=time.perf_counter() - started,
        date=datetime.date.today().isoformat(),
    )
    if as_json:
        print_json(read_back(out))
        return
    say(outcome.title)
    print_table(("", "paper", "here", "note"), table_of(outcome.rows))
    for note in outcome.notes:
        say(f"- {note}")
    say(f"written: {', '.join(str(path) for path in written)}")


def _refuse(paper: Paper, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"{name} says nothing to {paper}")


def _from_speech(
    corpus: Path | None, trials: Path | None, speakers: int | None, jobs: int, progress: Progress
) -> Outcome:
    if corpus is None:
        raise typer.BadParameter("xin2002 needs --corpus: a folder with ENROLL and VERIFY, as YOHO's")
    from pipeline.reproduce.xin2002 import reproduce as again

    return again(corpus, trials=trials, speakers=speakers, jobs=jobs, progress=progress)


def _from_tables(
    paper: Paper, tables: Path | None, any_version: bool, tasks: str | None, jobs: int, progress: Progress
) -> Outcome:
    from dataclasses import replace

    from pipeline.reproduce.tables import TableSource

    source = TableSource(tables, any_version)
    if paper is Paper.PLATT1999:
        from pipeline.reproduce import platt1999

        chosen = None if tasks is None else [name.strip() for name in tasks.split(",") if name.strip()]
        outcome = platt1999.reproduce(source, tasks=chosen, jobs=jobs, progress=progress)
    elif paper is Paper.LIN2007:
        from pipeline.reproduce import lin2007

        outcome = lin2007.reproduce(source, jobs=jobs, progress=progress)
    else:
        from pipeline.reproduce import implied2020

        outcome = implied2020.reproduce(source, jobs=jobs, progress=progress)
    if any_version:
        return replace(outcome, notes=(*outcome.notes, "The checksums of the data files were not looked at."))
    return outcome
