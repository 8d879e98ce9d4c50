"""The command `voiceclaim enroll`."""

from __future__ import annotations

import dataclasses
import fnmatch
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.shared import Jobs, Json
from pipeline.errors import CorpusError
from pipeline.terminal import bars, cores, plain, print_json, print_table, say


def enroll(
    audio_dir: Annotated[
        Path, typer.Argument(metavar="AUDIO_DIR", help="One folder a speaker, a Kaldi data directory, or a YOHO tree.")
    ],
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="Folder of the speaker store, made if new.")],
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="TOML settings, or the name of a set that comes along (xin2002).")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting: codebook.centroids=100.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Take only speakers whose names match; may be repeated.")
    ] = None,
    background: Annotated[
        bool, typer.Option("--background", help="Enroll as rivals only: nobody can claim to be them.")
    ] = False,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Enroll every speaker of a folder of audio.

    \b
    Example: voiceclaim enroll recordings/ --store speakers.store
    """
    from pipeline.config import load_config
    from pipeline.corpus import read_corpus
    from pipeline.enrollment import enroll as enroll_speakers
    from pipeline.resources import find_config

    settings = load_config(find_config(config) if config else None, override or ()) if config or override else None
    corpus = read_corpus(audio_dir)
    speakers = {
        name: utterances
        for name, utterances in corpus.speakers.items()
        if only is None or any(fnmatch.fnmatchcase(name, glob) for glob in only)
    }
    if not speakers:
        raise CorpusError(f"{audio_dir}: no speaker among {len(corpus.speakers)} matches --only {' '.join(only or ())}")
    with bars(quiet=as_json) as progress:
        report = enroll_speakers(
            store,
            speakers,
            settings,
            role="background" if background else "speaker",
            jobs=jobs or cores(),
            progress=progress,
        )
    if as_json:
        print_json(
            {
                "store": str(store),
                "enrolled": [dataclasses.asdict(speaker) for speaker in report.enrolled],
                "refused": [{"name": name, "reason": reason} for name, reason in report.refused],
                "skipped": [{"file": str(path), "reason": reason} for path, reason in report.skipped],
                "machines": report.machines,
                "held_out_trials": report.held_out_trials,
                "elapsed_seconds": report.elapsed_seconds,
            }
        )
        return
    for path, reason in report.skipped:
        sys.stderr.write(f"skipped {plain(str(path))}: {plain(reason)}\n")
    for _, reason in report.refused:
        sys.stderr.write(f"refused {plain(reason)}\n")
    print_table(
        ("speaker", "files", "speech s", "frames", "centroids"),
        [
            (s.name, s.utterances, f"{s.seconds:.1f}", s.frames, f"{s.centroids}{' (few)' * s.short_of_centroids}")
            for s in report.enrolled
        ],
    )
    say(
        f"{len(report.enrolled)} enrolled, {len(report.refused)} refused, {len(report.skipped)} files skipped;"
        f" {report.machines} machines in {report.elapsed_seconds:.1f} s -> {store}"
    )
