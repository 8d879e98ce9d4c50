"""The command `voiceclaim compare-voices`: whether two recordings are of one voice."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.metrics import note_mixed
from pipeline.cli.options import DONE, REJECTED, Channel, Jobs, Json
from pipeline.cli.terminal import coloured, cores, escape, print_json, print_line


def compare_voices(
    first: Annotated[Path, typer.Argument(metavar="A", help="Audio file.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Audio file.")],
    background: Annotated[
        Path, typer.Option("--background", metavar="STORE", help="Speaker store of other people to compare with.")
    ],
    channel: Channel = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Compare the voices of two recordings.

    Each recording is enrolled with the speakers of the background, in memory only, and the other verified; the mean
    of both log-likelihood ratios decides. The background must be of other people, in recordings like the two. Exit
    codes: 0 one voice, 1 two voices, 3 not enough speech, 2 an error.

    Examples:
    - `voiceclaim compare-voices monday.wav friday.wav --background speakers.store`
    """
    from pipeline.store.store import Store
    from pipeline.verification.voice_comparison import compare_voices as compare

    model = Store(background).load()
    found = compare(model, first, second, channel=channel, jobs=jobs or cores())
    note_mixed(found.mixed, model.config.checks)
    if as_json:
        print_json({"first": str(first), "second": str(second), **asdict(found)})
    else:
        words = coloured("one voice", "green") if found.same else coloured("two voices", "red")
        print_line(
            f"{words} {escape(str(first))} {escape(str(second))}: LLR {found.llr:.2f}"
            f" ({found.first_enrolled:.2f} and {found.second_enrolled:.2f}), P {found.probability:.3f} at prior"
            f" {found.prior:g}"
        )
    raise typer.Exit(DONE if found.same else REJECTED)
