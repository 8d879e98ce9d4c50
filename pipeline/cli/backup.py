"""The commands `voiceclaim store backup|restore`: copies of a store that is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import Json, StoreArgument
from pipeline.cli.terminal import escape, print_json, print_line

store = typer.Typer(help="Back up a store that is in use, or put a backup in its place.", no_args_is_help=True)


@store.command()
def backup(
    store: StoreArgument,
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="File to make; must be new.")],
    as_json: Json = False,
) -> None:
    """Copy a store as it stands, beside services that use it, and check every row of the copy.

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
    as_json: Json = False,
) -> None:
    """Put a backup in the place of a store, beside services that use it.

    Readers have the old state or the new one, never parts of both. Speakers who were removed since are enrolled again,
    and are named: remove them once more.

    Examples:
    - `voiceclaim store restore backup.store speakers.store`
    """
    from pipeline.store.backup import restore_store

    back = restore_store(copy, store)
    if as_json:
        print_json({"restored": str(store), "brought_back": list(back)})
        return
    print_line(f"restored {escape(str(store))} from {escape(str(copy))}")
    if back:
        print_line(f"enrolled again: {', '.join(escape(repr(name)) for name in back)}; remove who asked for it")
