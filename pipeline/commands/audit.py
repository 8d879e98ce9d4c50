"""The command `voiceclaim audit`: whether the chain of an audit log holds from its first line to its last."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from pipeline.terminal import complain, plain, print_json, say


def audit(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="An audit log, or a store with one in it (audit.jsonl).")],
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its key.", show_default="the variable VOICECLAIM_AUDIT_KEY, or none"),
    ] = None,
    anchor: Annotated[
        str | None, typer.Option(metavar="HASH", help="A last hash that was noted down: it must still be there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Check an audit log: every line edited, removed, put in or moved breaks its chain, and the first is named.

    Lines removed at the end are seen only with an --anchor, a log written anew only with one or with a key. Exit
    codes: 0 the chain holds, 2 it does not, or its last line is unfinished.

    \b
    Example: voiceclaim verify speakers.store --claim anna --log calls.jsonl call.wav
    Example: voiceclaim audit calls.jsonl
    """
    from pipeline.audit import check_log, read_key

    report = check_log(log, key=read_key(key), anchor=anchor)
    if as_json:
        print_json({**dataclasses.asdict(report), "path": str(report.path)})
    else:
        events = ", ".join(f"{count} {plain(event)}" for event, count in sorted(report.events.items()))
        say(f"{plain(str(report.path))}: {report.lines} lines hold: {events}")
        say(f"from {plain(report.first_time)} to {plain(report.last_time)}")
        say(f"last hash {report.last_hash}, {'under a key' if report.keyed else 'without a key'}")
    if report.torn:
        complain(
            f"{report.path}, line {report.lines + 1}: {report.torn} bytes of an unfinished line: its writer was killed,"
            " or it was cut off; the next line written will say so"
        )
        raise typer.Exit(2)
