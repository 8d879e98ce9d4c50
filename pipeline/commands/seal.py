"""The command `voiceclaim seal`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.shared import Json, StoreArgument
from pipeline.terminal import plain, print_json, say

_VARIABLE = "the variable VOICECLAIM_STORE_KEY"


def seal(
    store: StoreArgument,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key.", show_default=_VARIABLE)] = None,
    old_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key to replace, of a sealed store.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing: check the seal, and every file.")] = False,
    anchor: Annotated[
        str | None, typer.Option(metavar="ANCHOR", help="With --check: one noted down, which must still hold.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Seal a store with a key: what is changed without the key is refused by every command from then on.

    Commands open a sealed store when the variable VOICECLAIM_STORE_KEY holds its key, and with a key no other store.
    Whatever a store holds is sealed along: seal only what you trust.

    A seal does not show that an older state of the store was put back. --check prints an anchor: keep it elsewhere, and
    give it to a later check. Exit codes: 0 done, or sound; 2 not.

    \b
    Example: head -c 32 /dev/urandom | base64 > store.key
    Example: voiceclaim seal speakers.store --key store.key
    Example: VOICECLAIM_STORE_KEY="$(cat store.key)" voiceclaim verify speakers.store --claim anna call.wav
    Example: voiceclaim seal speakers.store --key store.key --check --anchor 5e8f...:12
    """
    from pipeline.sealing import check_store, read_store_key, seal_store

    if anchor is not None and not check:
        raise typer.BadParameter("--anchor belongs to --check")
    if old_key is not None and check:
        raise typer.BadParameter("--check has one key; --old-key is for changing it")
    secret = read_store_key(key)
    if check:
        found = check_store(store, key=secret, anchor=anchor)
    elif secret is None:
        raise typer.BadParameter(f"a key is needed: --key, or {_VARIABLE}")
    else:
        found = seal_store(store, secret, old_key=None if old_key is None else read_store_key(old_key))
    if as_json:
        print_json({**dataclasses.asdict(found), "path": str(found.path), "anchor": found.anchor})
        return
    kind = "sealed" if found.sealed else "not sealed"
    say(f"{plain(str(found.path))}: {kind}, {found.files} files of {found.speakers} speakers hold")
    say(f"anchor {found.anchor}")
