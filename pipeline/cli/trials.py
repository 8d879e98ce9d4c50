"""The command `voiceclaim trials`: a trial list of a folder tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import SpeakerPattern
from pipeline.cli.terminal import escape, print_line, print_note, print_skipped
from pipeline.errors import InputError

_FORMATS = {".csv": "csv", ".parquet": "parquet"}
_NO_TEXT = frozenset({".tsv", ".tab", ".xls", ".xlsx", ".ods", ".json", ".jsonl"})


def trials(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="One folder per speaker, of recordings to verify.")],
    store: Annotated[
        Path | None,
        typer.Option(metavar="STORE", help="Claim the speakers of this store.", show_default="names of the folders"),
    ] = None,
    speaker_pattern: SpeakerPattern = None,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="The new file to write: .csv, .parquet, or text in Kaldi's format."),
    ] = Path("trials.txt"),
) -> None:
    """Write the trial list of a folder tree: every file against every name.

    A trial is target if the file is in the folder of the claimed name. People who are not in the store are unknown
    impostors. Paths are relative to the folder of the list, unless DIR is absolute. `voiceclaim evaluate STORE DIR`
    takes the tree itself.

    Examples:
    - `voiceclaim trials verify/ --store speakers.store --out trials.txt`
    """
    import numpy as np

    from pipeline.evaluation import NameColumn, TrialTable, write_list
    from pipeline.evaluation.folders import trials_of_folder
    from pipeline.store.store import Store

    if out == Path("-"):
        raise typer.BadParameter(
            "--out: a list names files relative to its folder, which - (the output) lacks; name a file"
        )
    if out.is_file():
        raise InputError(f"{out}: --out needs a new file, and this one exists; a list with changes of your own?")
    ending = out.suffix.lower()
    if ending in _NO_TEXT:
        raise InputError(f"{out}: --out writes .csv, .parquet, or text in Kaldi's format, got {ending}")
    names = None if store is None else Store(store).load().names
    found = trials_of_folder(folder, names, speaker_pattern=speaker_pattern)
    print_skipped(found.skipped)
    targets = np.array([one.target for one in found.trials])
    speakers = NameColumn.of(one.speaker for one in found.trials)
    home = os.path.realpath(out.parent)
    paths = NameColumn.of(one.path if folder.is_absolute() else os.path.relpath(one.path, home) for one in found.trials)
    table = TrialTable(speakers, paths, targets)
    write_list(out, table, format_name=_FORMATS.get(ending, "kaldi"), kind="key")
    print_line(
        f"written: {escape(str(out))} ({targets.sum()} target and {(~targets).sum()} nontarget trials,"
        f" {len(found.unknown_impostors)} unknown impostors)"
    )
    if targets.all() or not targets.any():
        print_note(
            "note: error rates need target and nontarget trials: folders of two speakers or more, named as enrolled"
        )
