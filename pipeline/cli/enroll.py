"""The command `voiceclaim enroll`: enroll every speaker of a folder of audio."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.enrolled import print_report, report_json
from pipeline.cli.options import (
    IN_PART,
    WAIT_SECONDS,
    Channel,
    ConfigFile,
    Jobs,
    Json,
    Log,
    LogKey,
    NewStore,
    Override,
    Scheduler,
    SpeakerPattern,
    Wait,
    in_turn,
    logged_failures,
    logged_store,
    read_settings,
    workers_of,
)
from pipeline.cli.terminal import cores, print_error, print_json, print_note, progress_bar
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.config import ChecksConfig, Config
    from pipeline.enrollment.report import EnrollmentReport


def enroll(
    audio_dir: Annotated[
        Path,
        typer.Argument(
            metavar="AUDIO_DIR",
            help="One folder per speaker, a Kaldi data directory, a folder with RTTM files, a YOHO tree, or a table of"
            " paths and speakers (.csv, .tsv).",
        ),
    ],
    store: NewStore,
    config: ConfigFile = None,
    override: Override = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Enroll only speakers whose names match (repeatable).")
    ] = None,
    speaker_pattern: SpeakerPattern = None,
    background: Annotated[
        bool, typer.Option("--background", help="Enroll as background speakers, who cannot be claimed.")
    ] = False,
    add: Annotated[bool, typer.Option("--add", help="Add recordings to speakers who are enrolled already.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Enroll only recordings that are not in the store yet.")] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Enroll everybody in the store again, from these recordings.")
    ] = False,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK=off|warn|refuse", help="Override one enrollment check (repeatable).", show_default="settings"
        ),
    ] = None,
    channel: Channel = None,
    log: Log = None,
    log_key: LogKey = None,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Enroll every speaker of a folder of audio.

    Before anything is written, speakers are checked for too little speech, clipping, noise, channels that differ and
    would be mixed (channels), recordings that end at 4 kHz where most do not (narrow_band), copies of one recording
    under two names (duplicates), two voices in one folder (consistency) and one voice under two names (matches). The
    settings under [checks], or --check, define which checks warn and which refuse. Exit codes: 0 everybody was
    enrolled, 4 somebody was refused or a file could not be used, 2 or 3 nobody was enrolled.

    Examples:
    - `voiceclaim enroll recordings/ --store speakers.store`
    - `voiceclaim enroll more-recordings/ --store speakers.store --add`
    - `voiceclaim enroll recordings/ --store speakers.store --new`
    - `voiceclaim enroll all-recordings/ --store speakers.store --anew`
    - `voiceclaim enroll validated.tsv --store speakers.store`
    - `voiceclaim enroll flat/ --store speakers.store --speaker-pattern '([^_-]+)'`
    - `voiceclaim enroll TIMIT/TRAIN/ --store speakers.store --speaker-pattern '[^/]+/([^/]+)/'`
    - `voiceclaim enroll recordings/ --store speakers.store --check matches=refuse --log changes.jsonl`
    - `voiceclaim enroll recordings/ --store speakers.store --scheduler tcp://host:8786`
    """
    from pipeline.audio.corpus import as_corpus, read_corpus
    from pipeline.verification.audit_events import ENROLL, record_enrollment

    settings = read_settings(config, override)
    corpus = as_corpus(read_corpus(audio_dir, speaker_pattern=speaker_pattern))
    names = corpus.speakers.keys() if only is None else _matching(only, corpus.speakers, audio_dir)
    speakers = {name: utterances for name, utterances in corpus.speakers.items() if name in names}
    if add or new:
        _note_newcomers(store, speakers)
    # Loads scikit-learn, which takes seconds: only after the arguments are checked.
    from pipeline.enrollment.enroll import enroll as enroll_speakers

    with (
        logged_failures(log, log_key, ENROLL, speakers) as audit,
        workers_of(scheduler, jobs or cores()) as workers,
        logged_store(store, audit) as logged,
        progress_bar(quiet=as_json) as progress,
    ):
        write = partial(
            enroll_speakers,
            logged,
            dataclasses.replace(corpus, speakers=speakers),
            settings,
            role="background" if background else "speaker",
            quality=_quality(store, settings, check) if check else None,
            add=add,
            new=new,
            anew=anew,
            channel=channel,
            workers=workers,
            progress=progress,
        )
        report = in_turn(store, wait, write)
        if audit is not None:
            record_enrollment(audit, report)
    if as_json:
        print_json(report_json(store, report))
    else:
        print_report(store, report)
    _end(report)


def _end(report: EnrollmentReport) -> None:
    """Print the numbers of speakers and files that were not enrolled, and exit with the code for that."""
    from pipeline.audio.folders import NO_AUDIO

    unread = sum(reason != NO_AUDIO for _, reason in report.skipped)
    if unread or report.refused:
        refused = f"{len(report.refused)} speakers refused"
        print_error(f"not everything was enrolled: {refused}, {unread} files or folders not read")
        raise typer.Exit(IN_PART)


def _note_newcomers(store: Path, names: Iterable[str]) -> None:
    """Print which of ``names`` are not in the store yet."""
    from pipeline.store.store import Store

    known = {one.name for one in Store(store).load().speakers}
    if unknown := sorted(set(names) - known):
        print_note(f"note: some recordings are of speakers not enrolled so far: {', '.join(map(repr, unknown))}")


def _matching(globs: list[str], speakers: Iterable[str], where: Path) -> set[str]:
    """Return the ``speakers`` whose names match; raises InputError for a glob that none matches."""
    names, found = sorted(speakers), set[str]()
    for glob in globs:
        if not (matched := {name for name in names if fnmatch.fnmatchcase(name, glob)}):
            near = ", ".join(map(repr, difflib.get_close_matches(glob, names, n=3)))
            hint = f"; nearest: {near}" if near else ""
            raise InputError(f"{where}: no speaker among {len(names)} matches --only {glob}{hint}")
        found.update(matched)
    return found


def _quality(store: Path, settings: Config | None, checks: list[str]) -> ChecksConfig:
    """Return the settings of the checks (given, else the store's, else the defaults) with ``checks`` applied."""
    from pipeline.config import CHECKS, Config, parse_config
    from pipeline.errors import StoreMissingError
    from pipeline.store.store import Store

    if settings is None:
        try:
            settings = Store(store).load().config
        except StoreMissingError:
            settings = Config()
    table = settings.checks.model_dump()
    for check in checks:
        name, _, action = check.partition("=")
        if name.strip() not in CHECKS or not action:
            raise typer.BadParameter(
                f"--check must read CHECK=off|warn|refuse with CHECK one of {', '.join(CHECKS)}, got {check!r}"
            )
        table[name.strip()] = action.strip()
    return parse_config({"checks": table}, source="--check").checks
