"""The report on an enrollment: who was enrolled, who was refused and why, and the errors to expect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.enrollment.checks import Finding
from pipeline.enrollment.expected import ExpectedErrors, expected_errors
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Speaker


@dataclass(frozen=True)
class EnrollmentReport:
    """Speakers enrolled, speakers refused and files skipped with the reasons, and the model as stored.

    Attributes
    ----------
    model : SpeakerModel
        As stored.
    enrolled : tuple of Speaker
        Speakers that this enrollment put into the model.
    findings : tuple of Finding
        Findings of the enrollment checks (``pipeline.enrollment.checks``), and speakers with too little speech.
    skipped : tuple of (Path, str)
        Files that could not be used, and the reason.
    held_out_trials : int
        Trials of the enrolled speakers' held-out utterances, as recorded.
    machines : int
        Number of machines that were trained.
    narrow_band : bool
        Whether the recordings made this a store of features at 8 kHz (``features.narrow_band``).
    elapsed_seconds : float
        Time that the enrollment took.
    left_out : mapping of str to int
        Numbers of recordings that ``new`` left out, by speaker's name.

    Examples
    --------
    >>> import pipeline
    >>> config = pipeline.load_config(overrides=["codebook.centroids=8", "supervector.speeds_below=0"])
    >>> report = pipeline.enroll("report.store", "recordings", config)
    >>> [speaker.name for speaker in report.enrolled], report.refused, report.skipped
    (['anna', 'ivan'], (), ())
    """

    model: SpeakerModel
    enrolled: tuple[Speaker, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[tuple[Path, str], ...]
    held_out_trials: int
    machines: int
    narrow_band: bool
    elapsed_seconds: float
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def refused(self) -> tuple[tuple[str, str], ...]:
        """Return the name of each refused speaker and the reasons, in one text."""
        reasons: dict[str, list[str]] = {}
        for finding in self.findings:
            if finding.refused:
                reasons.setdefault(finding.speaker, []).append(finding.reason)
        return tuple((name, "; ".join(its_reasons)) for name, its_reasons in reasons.items())

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """Return a dictionary for each speaker who was enrolled, for JSON.

        Its keys are name, utterances, seconds (of speech), frames, centroids, and short_of_centroids: True where there
        are fewer than the settings ask for.
        """
        kept, wanted = ("name", "utterances", "seconds", "frames", "centroids"), self.model.config.codebook.centroids
        return [
            {**{field: getattr(one, field) for field in kept}, "short_of_centroids": one.centroids < wanted}
            for one in self.enrolled
        ]

    @property
    def expected(self) -> ExpectedErrors | None:
        """Return the shares of held-out trials that are wrong at the default threshold, with their intervals.

        None where these trials are too few.
        """
        return expected_errors(self.model)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Return the findings about speakers who were enrolled all the same."""
        names = {speaker.name for speaker in self.enrolled}
        return tuple(finding for finding in self.findings if finding.speaker in names)
