"""The command `voiceclaim speakers`: list, show, remove and export enrolled speakers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.cli.options import Jobs, Json, Log, LogKey, StoreArgument, logged_failures
from pipeline.cli.terminal import cores, escape, print_json, print_line, print_table


def speakers(
    store: StoreArgument,
    action: Annotated[
        Literal["list", "show", "remove", "export"],
        typer.Argument(metavar="[ACTION]", help="Action."),
    ] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Speaker to show, remove or export.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="JSON file to export to; must be new.", show_default=False),
    ] = None,
    log: Log = None,
    log_key: LogKey = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """List the enrolled speakers; show, remove or export one of them.

    Removing erases a speaker from every machine in the store, and with --log also the fingerprints of accepted audio
    beside that log. It cannot erase backups, exports, or the entries of audit logs.

    An export is everything that the store keeps of a speaker: a JSON file, and the arrays in an .npz file beside it. It
    contains no audio, but it is biometric data, unencrypted.

    \b
    Example: voiceclaim speakers speakers.store
    Example: voiceclaim speakers speakers.store remove anna --log changes.jsonl
    Example: voiceclaim speakers speakers.store export anna --out anna.json
    """
    if (out is not None) != (action == "export"):
        raise typer.BadParameter("export requires --out FILE" if out is None else "--out requires the action export")
    if (name is None) != (action == "list"):
        raise typer.BadParameter("list takes no name" if name is not None else f"{action} requires a speaker's name")
    if log is not None and action in {"list", "show"}:
        raise typer.BadParameter(f"--log records changes, and {action} makes none")
    if name is None or action == "show":
        _show(store, name, as_json=as_json)
    elif out is None:
        _remove(store, name, log, log_key, jobs=jobs or cores(), as_json=as_json)
    else:
        _export(store, name, out, log, log_key, as_json=as_json)


def _remove(store: Path, name: str, log: Path | None, log_key: Path | None, *, jobs: int, as_json: bool) -> None:
    from pipeline.enrollment.removal import remove_speaker
    from pipeline.verification.audit_events import REMOVE, record_removal

    with logged_failures(log, log_key, REMOVE, [name]) as audit:
        rest = remove_speaker(store, name, jobs=jobs)
    if audit is not None:
        record_removal(audit, rest, name)  # also forgets the audio that was accepted
    left = len(rest.speakers)
    if as_json:
        print_json({"removed": name, "left": left})
        return
    print_line(f"removed {escape(repr(name))}; {left} left")
    print_line("not erased: backups, exports and copies of the store, and entries of audit logs")


def _export(store: Path, name: str, out: Path, log: Path | None, log_key: Path | None, *, as_json: bool) -> None:
    from pipeline.store.export import export_speaker
    from pipeline.store.store import Store
    from pipeline.verification.audit_events import EXPORT, record_export

    with logged_failures(log, log_key, EXPORT, [name]) as audit:
        opened = Store(store).load()
        arrays = export_speaker(opened, name, out)
    if audit is not None:
        record_export(audit, opened, name)
    if as_json:
        print_json({"exported": name, "file": str(out), "arrays": str(arrays)})
        return
    print_line(f"exported {escape(repr(name))} to {escape(str(out))} and {escape(str(arrays))}")
    print_line("these files are biometric data, unencrypted")


def _show(store: Path, name: str | None, *, as_json: bool) -> None:
    from pipeline.store.store import Store

    opened = Store(store).load()
    shown = [speaker for speaker in opened.speakers if name is None or speaker.name == name]
    if not shown and name is not None:
        opened.position(name)
    if as_json:
        records = [{key: value for key, value in asdict(speaker).items() if key != "id"} for speaker in shown]
        print_json(records[0] if name else {"revision": opened.revision, "speakers": records})
        return
    print_table(
        ("speaker", "role", "files", "speech s", "frames", "centroids"),
        [(s.name, s.role, s.utterances, f"{s.seconds:.1f}", s.frames, s.centroids) for s in shown],
    )
