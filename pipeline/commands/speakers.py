"""The command `voiceclaim speakers`: who is enrolled, and speakers removed, exported and imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.shared import Jobs, Json, Log, LogKey, StoreArgument, logged_failures
from pipeline.terminal import cores, plain, print_json, print_table, say

_ACTIONS = ("list", "show", "remove", "export", "import")


def speakers(
    store: StoreArgument,
    action: Annotated[str, typer.Argument(metavar=f"[{'|'.join(_ACTIONS)}]", help="What to do.")] = "list",
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The speaker to show, remove or export; the file to import."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The new file to export to.", show_default=False)
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Export every speaker.")] = False,
    log: Log = None,
    log_key: LogKey = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """List the enrolled speakers, show one, or remove one and every coefficient their voice went into.

    With --log, removing also forgets the fingerprints of accepted audio beside that log. It cannot erase backups,
    exports, or what logs have said.

    An export holds what a speaker's machines are made from: centroids and vectors of stretches of speech, fingerprints
    of the recordings, held-out scores; no audio, but biometric data, unencrypted. An import trains the machines against
    those in the store, which is made if it is new. Stores with segment machines exchange speakers when both began from
    one store (docs/privacy.md).

    \b
    Example: voiceclaim speakers speakers.store
    Example: voiceclaim speakers speakers.store remove anna --log changes.jsonl
    Example: voiceclaim speakers speakers.store export anna --out anna.speakers
    Example: voiceclaim speakers speakers.store export --all --out backup.speakers
    Example: voiceclaim speakers other.store import anna.speakers
    """
    if action not in _ACTIONS:
        raise typer.BadParameter(f"the action is {', '.join(_ACTIONS[:-1])} or {_ACTIONS[-1]}, got {action!r}")
    if (out is not None or everybody) and action != "export":
        raise typer.BadParameter("--out and --all belong to export")
    if (name is None) != (action == "list" or everybody):
        takes_none = "list" if action == "list" else "export --all"
        wanted = "a file" if action == "import" else "a speaker's name"
        raise typer.BadParameter(f"{takes_none} takes no name" if name is not None else f"{action} needs {wanted}")
    if log is not None and action in {"list", "show"}:
        raise typer.BadParameter(f"--log is for what is done, and {action} does nothing")
    if action == "remove" and name is not None:
        _remove(store, name, log, log_key, jobs=jobs or cores(), as_json=as_json)
    elif action == "export":
        if out is None:
            raise typer.BadParameter("export needs --out, the file to write")
        _export(store, name, out, log, log_key, as_json=as_json)
    elif action == "import" and name is not None:
        _import(store, Path(name), log, log_key, jobs=jobs or cores(), as_json=as_json)
    else:
        _show(store, name, as_json=as_json)


def _remove(store: Path, name: str, log: Path | None, log_key: Path | None, *, jobs: int, as_json: bool) -> None:
    from pipeline.audit_events import REMOVE, record_removal
    from pipeline.enrollment import remove_speaker

    with logged_failures(log, log_key, REMOVE, [name]) as audit:
        rest = remove_speaker(store, name, jobs=jobs)
    if audit is not None:
        record_removal(audit, rest, name)  # and forgets the audio that was accepted as theirs
    left = len(rest.speakers)
    if as_json:
        print_json({"removed": name, "left": left})
        return
    say(f"removed {plain(repr(name))}; {left} left")
    say("not erased: backups, exports and copies of the store, and what audit logs have said")


def _export(store: Path, name: str | None, out: Path, log: Path | None, log_key: Path | None, *, as_json: bool) -> None:
    from pipeline.audit_events import EXPORT, record_transfer
    from pipeline.store import SpeakerStore
    from pipeline.transfer import export_speakers

    with logged_failures(log, log_key, EXPORT, ["everybody" if name is None else name]) as audit:
        names = export_speakers(store, out, None if name is None else [name])
    if audit is not None:
        record_transfer(audit, EXPORT, SpeakerStore.open(store), names)
    if as_json:
        print_json({"exported": list(names), "file": str(out)})
    else:
        say(f"exported {len(names)} speakers to {plain(str(out))}: biometric data, unencrypted")


def _import(store: Path, file: Path, log: Path | None, log_key: Path | None, *, jobs: int, as_json: bool) -> None:
    from pipeline.audit_events import IMPORT, record_transfer
    from pipeline.transfer import import_speakers

    with logged_failures(log, log_key, IMPORT, ["everybody in the file"]) as audit:
        report = import_speakers(store, file, jobs=jobs)
    if audit is not None:
        record_transfer(audit, IMPORT, report.store, report.imported)
    everybody = len(report.store.speakers)
    if as_json:
        print_json(
            {"imported": list(report.imported), "speakers": everybody, "held_out_trials": report.held_out_trials}
        )
    else:
        say(f"imported {len(report.imported)} speakers with {report.held_out_trials} held-out trials; {everybody} now")


def _show(store: Path, name: str | None, *, as_json: bool) -> None:
    from pipeline.store import SpeakerStore

    opened = SpeakerStore.open(store)
    shown = [speaker for speaker in opened.speakers if name is None or speaker.name == name]
    if not shown and name is not None:
        opened.position(name)
    if as_json:
        records = [speaker.model_dump(exclude={"file", "id"}) for speaker in shown]
        print_json(records[0] if name else {"revision": opened.manifest.revision, "speakers": records})
        return
    print_table(
        ("speaker", "role", "files", "speech s", "frames", "centroids"),
        [(s.name, s.role, s.utterances, f"{s.seconds:.1f}", s.frames, s.centroids) for s in shown],
    )
