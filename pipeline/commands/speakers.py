"""The command `voiceclaim speakers`."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.commands.shared import Jobs, Json, StoreArgument
from pipeline.terminal import cores, print_json, print_table, say


def speakers(
    store: StoreArgument,
    action: Annotated[str, typer.Argument(metavar="[list|show|remove]", help="What to do.")] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The speaker to show or remove.")] = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """List the enrolled speakers, show one, or remove one and every coefficient their voice went into.

    \b
    Example: voiceclaim speakers speakers.store
    Example: voiceclaim speakers speakers.store remove anna
    """
    from pipeline.store import SpeakerStore

    if action not in {"list", "show", "remove"}:
        raise typer.BadParameter(f"the action is list, show or remove, got {action!r}")
    if (name is None) != (action == "list"):
        raise typer.BadParameter("list takes no name" if name else f"{action} needs a speaker's name")
    if action == "remove" and name is not None:
        from pipeline.enrollment import remove_speaker

        left = len(remove_speaker(store, name, jobs=jobs or cores()).speakers)
        print_json({"removed": name, "left": left}) if as_json else say(f"removed {name!r}; {left} left")
        return
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
