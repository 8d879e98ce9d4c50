"""What several commands share: exit codes and options."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Annotated

import typer


class Exit(IntEnum):
    """What the command's exit code says."""

    DONE = 0
    REJECTED = 1
    ERROR = 2
    NOT_ENOUGH_SPEECH = 3


StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the speaker store.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Threads to work on.", show_default="all cores")]
LogKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Key of the audit log.", show_default="the variable VOICECLAIM_AUDIT_KEY, or none"
    ),
]
Systems = Annotated[
    str | None,
    typer.Option("--systems", metavar="NAME,NAME", help="Scoring systems to report.", show_default="all there are"),
]


def names_of(text: str | None) -> list[str] | None:
    """``text`` cut at its commas; raises typer.BadParameter where it names nothing."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter(f"--systems must name at least one system, got {text!r}")
    return names
