"""The command `voiceclaim seal`: protect a store against changes by an HMAC seal, or check the seal."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import WAIT_SECONDS, Json, StoreArgument, Wait, in_turn
from pipeline.cli.terminal import escape, print_json, print_line

_VARIABLE = "$VOICECLAIM_STORE_KEY"


def seal(
    store: StoreArgument,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Key file.", show_default=_VARIABLE)] = None,
    old_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Current key file of a sealed store, to replace the key.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the seal and every row; change nothing.")] = False,
    anchor: Annotated[
        str | None, typer.Option(metavar="ANCHOR", help="With --check: anchor of an earlier check, to detect rollback.")
    ] = None,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Seal a store against changes, or check its seal.

    Every command refuses changes that were made without the key. Commands read it from the variable
    VOICECLAIM_STORE_KEY; while that is set they open only stores sealed with it. The seal covers whatever the store
    contains: seal only what you trust.

    A seal does not reveal that the whole store was replaced by an older copy. --check prints an anchor: keep it
    elsewhere and pass it to a later check. Exit codes: 0 done, or intact; 2 otherwise.

    Examples:
    - `head -c 32 /dev/urandom | base64 > store.key`
    - `voiceclaim seal speakers.store --key store.key`
    - `VOICECLAIM_STORE_KEY="$(cat store.key)" voiceclaim verify speakers.store --claim anna call.wav`
    - `voiceclaim seal speakers.store --key store.key --check --anchor 5e8f...:12`
    """
    from pipeline.store.keys import read_store_key
    from pipeline.store.sealing import check_store, seal_store

    if anchor is not None and not check:
        raise typer.BadParameter("--anchor requires --check")
    if old_key is not None and check:
        raise typer.BadParameter("--check takes one key; --old-key is for replacing it")
    secret = read_store_key(key)
    if check:
        report = check_store(store, key=secret, anchor=anchor)
    elif secret is None:
        raise typer.BadParameter(f"a key is required: --key or the variable {_VARIABLE}")
    else:
        old = None if old_key is None else read_store_key(old_key)
        report = in_turn(store, wait, partial(seal_store, store, secret, old_key=old))
    if as_json:
        print_json({**dataclasses.asdict(report), "path": str(report.path), "anchor": report.anchor})
        return
    state = "sealed" if report.sealed else "not sealed"
    print_line(f"{escape(str(report.path))}: {state}, every row of {report.speakers} speakers intact")
    print_line(f"anchor {report.anchor}")
