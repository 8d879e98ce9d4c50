"""The commands `voiceclaim store show|backup|restore`: what a store holds, and copies of one that is in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.options import WAIT_SECONDS, Json, StoreArgument, Wait, in_turn
from pipeline.cli.terminal import escape, print_json, print_line

if TYPE_CHECKING:
    from pipeline.store.model import SpeakerModel

store = typer.Typer(help="Show what a store holds, back it up while it is in use, or restore it.", no_args_is_help=True)


@store.command()
def show(store: StoreArgument, as_json: Json = False) -> None:
    """Show what a store holds: its size and date, speakers, calibration, and settings that differ from the defaults.

    Examples:
    - `voiceclaim store show speakers.store`
    """
    from pipeline.store.store import Store

    table = _about(store, Store(store).load())
    if as_json:
        print_json(table)
        return
    print_line(f"{escape(table['store'])}: {table['bytes'] / 1e6:.1f} MB, changed {table['changed']}")
    state = "sealed" if table["sealed"] else "not sealed"
    print_line(f"format {table['format']}, revision {table['revision']}, {state}, identity {table['identity']}")
    print_line(
        f"{table['speakers']} speakers and {table['background_speakers']} background speakers,"
        f" {table['recordings']} recordings, {table['speech_seconds']:.1f} s of speech"
    )
    print_line(
        f"{table['system']}: calibrated to {table['trials']} trials, {table['true_claims']} true claims and"
        f" {table['impostors']} by impostors ({table['unknown_impostors']} by people who are not enrolled)"
    )
    settings = [f"  {escape(key)} = {escape(str(value))}" for key, value in table["settings"].items()]
    print_line("\n".join(["settings that differ from the defaults:", *settings] if settings else ["default settings"]))


def _about(path: Path, model: SpeakerModel) -> dict[str, Any]:
    from datetime import UTC, datetime

    from pipeline.config.loading import by_dotted_name

    status, trials = path.stat(), model.trials([], kind=model.fitted_to)
    true = 0 if trials is None else int(trials.is_target.sum())
    own = sum(one.role == "speaker" for one in model.speakers)
    default, given = (by_dotted_name(one.model_dump(mode="json")) for one in (type(model.config)(), model.config))
    return {
        "store": str(path),
        "bytes": status.st_size,
        "changed": datetime.fromtimestamp(status.st_mtime, UTC).isoformat(" ", "seconds"),
        "format": model.version,
        "revision": model.revision,
        "identity": model.identity,
        "sealed": model.sealed,
        "speakers": own,
        "background_speakers": len(model) - own,
        "recordings": sum(one.utterances for one in model.speakers),
        "speech_seconds": sum(one.seconds for one in model.speakers),
        "system": model.config.scoring.system,
        "trials": "own" if model.fitted_to else "held-out",
        "true_claims": true,
        "impostors": 0 if trials is None else len(trials) - true,
        "unknown_impostors": 0 if trials is None else int(trials.unknown.sum()),
        "settings": {key: value for key, value in given.items() if value != default.get(key)},
    }


@store.command()
def backup(
    store: StoreArgument,
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="File to make; must be new.")],
    as_json: Json = False,
) -> None:
    """Copy a store, even while services use it, and check every row of the copy.

    A sealed store needs its key in `VOICECLAIM_STORE_KEY`. The copy is biometric data, unencrypted.

    Examples:
    - `voiceclaim store backup speakers.store backup.store`
    """
    from pipeline.store.backup import backup_store

    model = backup_store(store, copy)
    if as_json:
        print_json({"copy": str(copy), "revision": model.revision, "speakers": len(model.speakers)})
    else:
        print_line(f"copied revision {model.revision}, {len(model.speakers)} speakers, to {escape(str(copy))}")


@store.command()
def restore(
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="Backup of the store.")],
    store: StoreArgument,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Replace a store by a backup, even while services use it.

    Readers see the old state or the new one, never a mixture. Speakers who were removed after the backup are enrolled
    again, and are named: remove them once more.

    Examples:
    - `voiceclaim store restore backup.store speakers.store`
    """
    from pipeline.store.backup import restore_store

    back = in_turn(store, wait, lambda: restore_store(copy, store))
    if as_json:
        print_json({"restored": str(store), "brought_back": list(back)})
        return
    print_line(f"restored {escape(str(store))} from {escape(str(copy))}")
    if back:
        print_line(f"enrolled again: {', '.join(escape(repr(name)) for name in back)}; remove those who asked to be")
