"""The command `voiceclaim background`: a store that has synthetic voices to compare claims with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipeline.cli.options import (
    IN_PART,
    WAIT_SECONDS,
    ConfigFile,
    Jobs,
    Json,
    NewStore,
    Override,
    Wait,
    in_turn,
    read_settings,
)
from pipeline.cli.terminal import cores, print_error, print_json, print_line, print_note, progress_bar

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.enrollment.report import EnrollmentReport


def background(
    store: NewStore,
    config: ConfigFile = None,
    override: Override = None,
    jobs: Jobs = None,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Enroll the package's synthetic voices as background speakers, to compare claims with.

    Run this before the first users enroll, if there will be few of them and you have no recordings of other people to
    enroll as background speakers (`enroll --background`). Claims are compared with these voices, and thresholds
    depend on them.

    Examples:
    - `voiceclaim background --store speakers.store`
    """
    settings, threads = read_settings(config, override), jobs or cores()
    report = in_turn(store, wait, lambda: enroll_background(store, settings, jobs=threads, quiet=as_json))
    if as_json:
        refused = [{"name": name, "reason": reason} for name, reason in report.refused]
        print_json({"store": str(store), "enrolled": [one.name for one in report.enrolled], "refused": refused})
    else:
        print_line(f"{len(report.enrolled)} synthetic background voices enrolled -> {store}")
    if report.refused:
        print_error(f"not everything was enrolled: {len(report.refused)} voices refused")
        raise typer.Exit(IN_PART)


def enroll_background(store: Path, settings: Config | None, *, jobs: int, quiet: bool = False) -> EnrollmentReport:
    """Enroll the synthetic voices, and print which are refused."""
    from pipeline.audio.corpus import background_voices
    from pipeline.enrollment.enroll import enroll

    with progress_bar(quiet=quiet) as progress:
        report = enroll(store, background_voices(), settings, role="background", jobs=jobs, progress=progress)
    for _, reason in () if quiet else report.refused:
        print_note(f"refused {reason}")
    return report
