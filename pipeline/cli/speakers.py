"""The commands `voiceclaim speakers list|show|remove|rename|export`: the enrolled speakers of a store."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.options import (
    WAIT_SECONDS,
    Jobs,
    Json,
    Log,
    LogKey,
    StoreArgument,
    Wait,
    complete_names,
    in_turn,
    logged_failures,
    logged_store,
)
from pipeline.cli.terminal import cores, escape, print_json, print_line, print_table, progress_bar

if TYPE_CHECKING:
    from pipeline.store.model import SpeakerModel
    from pipeline.store.speakers import Speaker

speakers = typer.Typer(help="List, show, remove, rename or export enrolled speakers.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Enrolled speaker.", autocompletion=complete_names)]


@speakers.command("list")
def list_(store: StoreArgument, as_json: Json = False) -> None:
    """List the enrolled speakers.

    Examples:
    - `voiceclaim speakers list speakers.store`
    """
    from pipeline.store.store import Store

    opened = Store(store).load()
    if as_json:
        print_json({"revision": opened.revision, "speakers": [_record(speaker) for speaker in opened.speakers]})
    else:
        _print(opened.speakers)


@speakers.command()
def show(store: StoreArgument, name: Name, as_json: Json = False) -> None:
    """Show what a store holds of one speaker.

    Examples:
    - `voiceclaim speakers show speakers.store anna --json`
    """
    from pipeline.store.store import Store

    speaker = Store(store).load().speaker(name)
    if as_json:
        print_json(_record(speaker))
    else:
        _print((speaker,))


@speakers.command()
def remove(
    store: StoreArgument,
    name: Name,
    log: Log = None,
    log_key: LogKey = None,
    jobs: Jobs = None,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Erase a speaker from every machine in the store.

    With --log, the fingerprints of accepted audio beside that log are erased too. Backups, exports and the lines of
    audit logs are not.

    Examples:
    - `voiceclaim speakers remove speakers.store anna --log changes.jsonl`
    """
    from pipeline.enrollment.removal import remove_speaker
    from pipeline.verification.audit_events import REMOVE, record_removal, recorded

    with (
        logged_failures(log, log_key, REMOVE, [name]) as audit,
        logged_store(store, audit) as logged,
        progress_bar(quiet=as_json) as progress,
    ):

        def record(rest: SpeakerModel) -> None:
            if audit is not None:
                record_removal(audit, rest, name)  # also forgets the audio that was accepted

        change = partial(remove_speaker, logged, name, jobs=jobs or cores(), progress=progress)
        rest = recorded(partial(in_turn, store, wait, change), record)
    left = len(rest.speakers)
    if as_json:
        print_json({"removed": name, "left": left})
        return
    print_line(f"removed {escape(repr(name))}; {left} left")
    print_line("not erased: backups, exports and copies of the store, and entries of audit logs")


@speakers.command()
def rename(
    store: StoreArgument,
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="The name from now on.")],
    log: Log = None,
    log_key: LogKey = None,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Give a speaker another name; nothing is trained again.

    Earlier entries of audit logs keep the old name.

    Examples:
    - `voiceclaim speakers rename speakers.store anna anna.k --log changes.jsonl`
    """
    from pipeline.verification.audit_events import RENAME, record_renaming, recorded

    with logged_failures(log, log_key, RENAME, [name]) as audit, logged_store(store, audit) as logged:

        def record(model: SpeakerModel) -> None:
            if audit is not None:
                record_renaming(audit, model, name, new_name)

        recorded(partial(in_turn, store, wait, partial(logged.rename, name, new_name)), record)
    if as_json:
        print_json({"renamed": name, "to": new_name})
    else:
        print_line(f"renamed {escape(repr(name))} to {escape(repr(new_name))}")


@speakers.command()
def export(
    store: StoreArgument,
    name: Name,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="JSON file to export to; must be new.")],
    log: Log = None,
    log_key: LogKey = None,
    as_json: Json = False,
) -> None:
    """Export everything that a store keeps of a speaker.

    A JSON file, and the arrays in an .npz file beside it. They contain no audio, but are biometric data, unencrypted.

    Examples:
    - `voiceclaim speakers export speakers.store anna --out anna.json`
    """
    from pipeline.store.export import export_speaker
    from pipeline.store.store import Store
    from pipeline.verification.audit_events import EXPORT, record_export

    if out == Path("-"):
        raise typer.BadParameter("--out: an export is two files, which - (the output) cannot take; name a file")
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


def _record(speaker: Speaker) -> dict[str, object]:
    return {key: value for key, value in asdict(speaker).items() if key != "id"}


def _print(shown: tuple[Speaker, ...]) -> None:
    print_table(
        ("speaker", "role", "files", "speech s", "frames", "centroids"),
        [(s.name, s.role, s.utterances, f"{s.seconds:.1f}", s.frames, s.centroids) for s in shown],
    )
