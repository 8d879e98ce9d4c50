"""New speakers at the enrollment gate, with the first round of those whom it lets in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.backends import Workers
from pipeline.calibration import HeldOutTrials
from pipeline.config import Config
from pipeline.enrollment_gate import EnrollmentGate, Finding
from pipeline.errors import EnrollmentRefusedError
from pipeline.features.standardize import Standardizer
from pipeline.manifest import Role
from pipeline.rounds import HeldOut, Rounds
from pipeline.store import SpeakerStore
from pipeline.voices import Progress, Voice, standardized


@dataclass(frozen=True)
class Admitted:
    """Whom the gate let in, with the first round of their enrollment, and all that it found."""

    voices: list[Voice]
    scaling: Standardizer | None
    rounds: Rounds
    held_out: HeldOut
    findings: list[Finding]


def admit(
    current: SpeakerStore | None,
    voices: list[Voice],
    settings: Config,
    gate: EnrollmentGate,
    role: Role,
    workers: Workers,
    progress: Progress,
) -> Admitted:
    """Part those whom the gate lets in from those whom it refuses; raises EnrollmentRefusedError for nobody.

    Whoever is refused by held-out trials had a part in the machines that scored the others' trials, and in the scaling
    of a first enrollment: for those who are left that round is run again, as if nobody else had been there.
    """
    rounds = Rounds(settings, current, workers, progress)
    findings = _told_by_recordings(current, voices, gate, rounds)
    while True:
        voices = _left(voices, findings)
        recorded = [voice.speech for voice in voices]
        scaling = standardized(voices, settings, None if current is None else current.scaling, first=current is None)
        held_out = rounds.held_out(voices, role, rounds.provisional(voices))
        found = gate.trials(
            voices, _with_those_before(current, held_out.trials), _names(current, voices), settings.scoring.system,
            settings.threshold, settings.features.step_seconds,
        )  # fmt: skip
        findings += found
        if not any(finding.refused for finding in found):
            return Admitted(voices, scaling, rounds, held_out, findings)
        findings = [finding for finding in findings if finding.refused or finding not in found]
        for voice, speech in zip(voices, recorded, strict=True):
            voice.speech = speech
        rounds = Rounds(settings, current, workers, lambda stage, *steps: progress(f"again, {stage}", *steps))


def _told_by_recordings(
    current: SpeakerStore | None, voices: list[Voice], gate: EnrollmentGate, rounds: Rounds
) -> list[Finding]:
    """Findings of the recordings, with those that the store tells of its own by what it keeps."""
    if current is None or gate.settings.duplicates == "off":
        return gate.recordings(voices, {})
    files = dict(zip((speaker.name for speaker in current.speakers), current.files.speakers(), strict=True))
    printed = {name: file.read("fingerprints") for name, file in files.items() if "fingerprints" in file.names()}
    others = {
        name: np.asarray(file.read("stretches"), dtype=np.float32)
        for name, file in files.items()
        if name not in printed and "stretches" in file.names()
    }
    found = gate.recordings(voices, printed)
    return found + (gate.stretches(voices, rounds.stretches_as_stored(voices), others) if others else [])


def _left(voices: Sequence[Voice], findings: Sequence[Finding]) -> list[Voice]:
    """Those of ``voices`` whom nothing refuses; raises EnrollmentRefusedError for none."""
    refused = [finding for finding in findings if finding.refused]
    names = {finding.speaker for finding in refused}
    left = [voice for voice in voices if voice.name not in names]
    if not left:
        checks = {name: ", ".join(f.check for f in refused if f.speaker == name) for name in sorted(names)}
        raise EnrollmentRefusedError(refused[0].reason, checks)
    return left


def _with_those_before(current: SpeakerStore | None, trials: HeldOutTrials) -> HeldOutTrials:
    return trials if current is None or current.trials is None else HeldOutTrials.joined([current.trials, trials])


def _names(current: SpeakerStore | None, voices: Sequence[Voice]) -> dict[int, str]:
    """Everybody's name by id."""
    before = {} if current is None else {speaker.id: speaker.name for speaker in current.speakers}
    return before | {voice.id: voice.name for voice in voices}
