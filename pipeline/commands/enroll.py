"""The command `voiceclaim enroll`."""

from __future__ import annotations

import dataclasses
import fnmatch
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.shared import (
    Backend,
    Jobs,
    Json,
    Log,
    LogKey,
    Scheduler,
    check_backend,
    logged_failures,
    workers_of,
)
from pipeline.errors import CorpusError
from pipeline.terminal import bars, cores, plain, print_json, print_table, say

if TYPE_CHECKING:
    from pipeline.config import Config, QualityConfig

_CHECKS = ("clipping", "noise", "duplicates", "consistency", "matches")
_ONE_OF = f"{', '.join(_CHECKS[:-1])} or {_CHECKS[-1]}"


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
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK=off|warn|refuse",
            help="What is done this once about clipping, noise, duplicates, consistency or matches; may be repeated.",
            show_default="settings",
        ),
    ] = None,
    log: Log = None,
    log_key: LogKey = None,
    jobs: Jobs = None,
    backend: Backend = None,
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Enroll every speaker of a folder of audio.

    Speakers are checked before anything is written: for too little speech, clipping, noise, copies of one recording
    under two names (duplicates), two voices in one folder (consistency) and one voice under two names (matches). The
    settings under [quality] say which of them warn and which refuse.

    \b
    Example: voiceclaim enroll recordings/ --store speakers.store
    Example: voiceclaim enroll recordings/ --store speakers.store --check matches=refuse --log changes.jsonl
    Example: voiceclaim enroll recordings/ --store speakers.store --backend dask --scheduler tcp://host:8786
    """
    check_backend(backend, scheduler)
    from pipeline.audit_events import ENROLL, record_enrollment
    from pipeline.config import load_config
    from pipeline.corpus import read_corpus
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
    from pipeline.enrollment import enroll as enroll_speakers  # seconds of scikit-learn that mistakes need not wait for

    with (
        logged_failures(log, log_key, ENROLL, speakers) as audit,
        workers_of(scheduler, jobs or cores()) as workers,
        bars(quiet=as_json) as progress,
    ):
        report = enroll_speakers(
            store,
            speakers,
            settings,
            role="background" if background else "speaker",
            quality=_quality(store, settings, check) if check else None,
            workers=workers,
            progress=progress,
        )
    if audit is not None:
        record_enrollment(audit, report)
    if as_json:
        print_json(
            {
                "store": str(store),
                "enrolled": [dataclasses.asdict(speaker) for speaker in report.enrolled],
                "refused": [{"name": name, "reason": reason} for name, reason in report.refused],
                "warnings": [
                    {"name": found.speaker, "check": found.check, "reason": found.reason} for found in report.warnings
                ],
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
    for found in report.warnings:
        sys.stderr.write(f"warning: {plain(found.reason)}\n")
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


def _quality(store: Path, settings: Config | None, checks: list[str]) -> QualityConfig:
    """The section ``quality`` of the settings, else of the store, else of the defaults, with ``checks`` changed."""
    from pipeline.config import Config, parse_config
    from pipeline.errors import StoreMissingError
    from pipeline.store import SpeakerStore

    if settings is None:
        try:
            settings = SpeakerStore.open(store).config
        except StoreMissingError:
            settings = Config()
    table = settings.quality.model_dump()
    for check in checks:
        name, _, action = check.partition("=")
        if name.strip() not in _CHECKS or not action:
            raise typer.BadParameter(f"--check must read CHECK=off|warn|refuse, CHECK being {_ONE_OF}, got {check!r}")
        table[name.strip()] = action.strip()
    return parse_config({"quality": table}, source="--check").quality
