"""What several commands share: exit codes and options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.errors import AuditError, VoiceclaimError
from pipeline.terminal import complain

if TYPE_CHECKING:
    from pipeline.audit import AuditLog


class Exit(IntEnum):
    """What the command's exit code says."""

    DONE = 0
    REJECTED = 1
    ERROR = 2
    NOT_ENOUGH_SPEECH = 3


StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the speaker store.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Threads to work on.", show_default="all cores")]
Outsiders = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        min=0,
        max=1,
        help="Share of false claims made by people whom nobody enrolled, 0 to 1.",
        show_default="settings",
    ),
]
Log = Annotated[Path | None, typer.Option("--log", metavar="FILE", help="Append every outcome to this audit log.")]
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


@contextmanager
def logged_failures(
    log: Path | None, key_file: Path | None, event: str, names: Iterable[str]
) -> Iterator[AuditLog | None]:
    """The audit log at ``log``, None without one; an error within is written to it, for each of ``names``, and raised.

    What was done within is for the caller to write. Raises AuditError.
    """
    if log is None:
        yield None
        return
    from pipeline.audit import AuditLog, read_key
    from pipeline.audit_events import record_failure

    audit = AuditLog(log, key=read_key(key_file))
    try:
        yield audit
    except VoiceclaimError as error:
        try:
            record_failure(audit, event, names, error)
        except AuditError as unwritten:
            complain(unwritten)  # the error itself is told, too
        raise
