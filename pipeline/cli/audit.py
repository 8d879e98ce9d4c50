"""The command `voiceclaim audit`: check the hash chain of an audit log."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import Json, LogKey
from pipeline.cli.terminal import escape, print_error, print_json, print_line


def audit(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Audit log, as --log wrote it.")],
    key: LogKey = None,
    anchor: Annotated[
        str | None, typer.Option(metavar="HASH", help="Last hash of an earlier check, which must still be in the log.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the hash chain of an audit log.

    A line that was edited, removed, inserted or moved breaks the chain, and the first such line is named. Truncation is
    detected only with --anchor, a complete rewrite only with --anchor or a key. Exit codes: 0 the chain is intact, 2 it
    is broken or its last line is incomplete.

    Examples:
    - `voiceclaim verify speakers.store --claim anna --log calls.jsonl call.wav`
    - `voiceclaim audit calls.jsonl`
    """
    from pipeline.verification.audit import check_log, read_key

    report = check_log(log, key=read_key(key), anchor=anchor)
    if as_json:
        print_json({**dataclasses.asdict(report), "path": str(report.path)})
    else:
        events = ", ".join(f"{count} {escape(event)}" for event, count in sorted(report.events.items()))
        print_line(f"{escape(str(report.path))}: {report.lines} lines intact: {events}")
        print_line(f"from {escape(report.first_time)} to {escape(report.last_time)}")
        print_line(f"last hash {report.last_hash}, {'with a key' if report.keyed else 'without a key'}")
    if report.torn:
        print_error(
            f"{report.path}, line {report.lines + 1}: {report.torn} bytes of an incomplete line: the writer was"
            " interrupted or the file was truncated; the next entry will note it"
        )
        raise typer.Exit(2)
