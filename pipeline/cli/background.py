"""The command `voiceclaim background`: a store that has synthetic voices to compare claims with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.options import ConfigFile, Jobs, Json, NewStore, Override, read_settings
from pipeline.cli.terminal import cores, print_json, print_line, progress_bar

if TYPE_CHECKING:
    from pipeline.config import Config


def background(
    store: NewStore, config: ConfigFile = None, override: Override = None, jobs: Jobs = None, as_json: Json = False
) -> None:
    """Enroll the synthetic voices that come with the package, whom nobody can claim to be.

    Do so before the first users, where there are few, and no recordings of other people to enroll as background
    speakers (`enroll --background`): claims are then compared with these voices, and thresholds are set by them.

    Examples:
    - `voiceclaim background --store speakers.store`
    """
    voices = enroll_background(store, read_settings(config, override), jobs=jobs or cores(), quiet=as_json)
    if as_json:
        print_json({"store": str(store), "enrolled": voices})
    else:
        print_line(f"{len(voices)} synthetic background voices enrolled -> {store}")


def enroll_background(store: Path, settings: Config | None, *, jobs: int, quiet: bool = False) -> list[str]:
    """Enroll the synthetic voices, and return their names."""
    from pipeline.audio.corpus import background_voices
    from pipeline.enrollment.enroll import enroll

    with progress_bar(quiet=quiet) as progress:
        report = enroll(store, background_voices(), settings, role="background", jobs=jobs, progress=progress)
    return [speaker.name for speaker in report.enrolled]
