"""Events of the audit log: claims, identifications, enrollments, removals, renamings, exports and calibrations.

They hold names, numbers and decisions, but no biometric data, and paths of audio files only on request. Settings are
identified by the SHA-256 of their JSON, the store by its format version and revision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import EnrollmentRefusedError, TracesLeftError, VoiceclaimError
from pipeline.scoring.decisions import Update, as_json
from pipeline.store.model import SpeakerModel
from pipeline.verification.audio_warnings import codes
from pipeline.verification.audit import AuditLog
from pipeline.verification.audit_chain import Value
from pipeline.verification.duplicate_audio import DuplicateMemory
from pipeline.verification.identification import Identification
from pipeline.verification.identifier import Identifier
from pipeline.verification.verifier import Verifier

if TYPE_CHECKING:
    from pipeline.enrollment.report import EnrollmentReport  # imports the code that trains machines
    from pipeline.evaluation.calibrate import CalibrationReport

VERIFY, ENROLL, REMOVE, RENAME, EXPORT, CALIBRATE = "verify", "enroll", "remove", "rename", "export", "calibrate"
IDENTIFY, DELAY = "identify", "delay"
Fields = dict[str, Value]
Recorder = Callable[[Verifier | None, str | None, Update | VoiceclaimError], None]
"""Called with the verifier (None if none was made), the file (None for a pipe), and the outcome."""
IdentificationRecorder = Callable[[str | None, Identification | VoiceclaimError], None]
"""Called with the file (None for a pipe), and the outcome."""


def verification_recorder(
    log: AuditLog | None, model: SpeakerModel, claim: str, *, paths: bool = False, channel: int | None = None
) -> Recorder:
    """Return a function that appends each outcome of ``claim`` to ``log``; without a log it does nothing.

    With ``paths`` the entries name the audio files, and with a ``channel`` the channel that is read. The recorder
    raises AuditError.
    """
    append = _appender(log, VERIFY, {"claim": claim}, model, paths=paths, channel=channel)

    def record(verifier: Verifier | None, file: str | None, outcome: Update | VoiceclaimError) -> None:
        if isinstance(outcome, Update) and verifier is not None:
            append(file, of_decision(verifier, outcome))
        else:
            append(file, _of_error(outcome))

    return record


def identification_recorder(
    log: AuditLog | None, identifier: Identifier, *, paths: bool = False, channel: int | None = None
) -> IdentificationRecorder:
    """Return a function that appends each speaker found and the evidence to ``log``, as ``verification_recorder``."""
    append = _appender(log, IDENTIFY, {"system": identifier.system}, identifier.model, paths=paths, channel=channel)
    return lambda file, outcome: append(
        file, _of_identification(outcome) if isinstance(outcome, Identification) else _of_error(outcome)
    )


def _appender(
    log: AuditLog | None, event: str, about: Fields, model: SpeakerModel, *, paths: bool, channel: int | None
) -> Callable[[str | None, Fields], None]:
    """Return a function that appends a file's outcome, and what it is ``about``, to the ``log`` if there is one."""

    def append(file: str | None, outcome: Fields) -> None:
        if log is not None:
            chosen, named = {} if channel is None else {"channel": channel}, {"file": file} if paths else {}
            log.append(event, {**about, **chosen, **of_store(model), **outcome, **named})

    return append


def _of_error(error: object) -> Fields:
    return {"decision": None, "error": type(error).__name__}


def _of_identification(found: Identification) -> Fields:
    first = found.candidates[0] if found.candidates else None
    return {
        "decision": found.decision,
        "speaker": found.name,
        "likeliest": None if first is None else first.name,
        "llr": None if first is None else first.llr,
        "probability": None if first is None else first.probability,
        "nobody": found.nobody,
        "speech_seconds": found.speech_seconds,
        "warnings": ", ".join(codes(found.warnings)),
    }


def duplicate_memory(log: Path | None) -> DuplicateMemory | None:
    """Return the store of fingerprints of accepted audio beside the log at ``log``; None without a log."""
    return None if log is None else DuplicateMemory.beside(log)


def of_decision(verifier: Verifier, update: Update) -> Fields:
    """Return a decision, its terms, the error rates of a sequential test, and the codes of warnings."""
    table = as_json(verifier.terms, update)
    del table["sequential_bounds"], table["revision"]
    test = verifier.decider.test
    return {
        **table,
        "warnings": ", ".join(codes(update.warnings)),
        "sequential_miss": None if test is None else test.miss,
        "sequential_false_accept": None if test is None else test.false_accept,
    }


def of_store(model: SpeakerModel) -> Fields:
    """Return the fields that identify a store and its settings."""
    settings = json.dumps(model.config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return {
        "store": model.identity,
        "store_version": model.version,
        "store_revision": model.revision,
        "settings": hashlib.sha256(settings.encode()).hexdigest(),
    }


def record_enrollment(audit: AuditLog, report: EnrollmentReport) -> None:
    """Append a line for each speaker enrolled or refused, with failed checks but not the reasons, which name files."""
    for speaker in report.enrolled:
        audit.append(
            ENROLL,
            {
                "speaker": speaker.name,
                "decision": "enrolled",
                "warnings": _checks(report, speaker.name),
                "utterances": speaker.utterances,
                "speech_seconds": speaker.seconds,
                **of_store(report.model),
            },
        )
    for name in dict.fromkeys(name for name, _ in report.refused):
        fields: Fields = {"speaker": name, "decision": "refused", "checks": _checks(report, name)}
        audit.append(ENROLL, {**fields, **of_store(report.model)})


def _checks(report: EnrollmentReport, name: str) -> str:
    """Return the names of the checks that one speaker failed."""
    return ", ".join(dict.fromkeys(finding.check for finding in report.findings if finding.speaker == name))


def recorded(change: Callable[[], SpeakerModel], record: Callable[[SpeakerModel], None]) -> SpeakerModel:
    """Make a ``change``, ``record`` the model as it is stored, and return it.

    Raises TracesLeftError, after the record, where the change was made and left traces of a speaker.
    """
    try:
        model = change()
    except TracesLeftError as error:
        record(error.model)
        raise
    record(model)
    return model


def record_removal(audit: AuditLog, model: SpeakerModel, name: str) -> None:
    """Append a line for a speaker removed from the store of ``model``, and erase their fingerprints of accepted audio.

    Earlier lines of the log still name the speaker.
    """
    audit.append(REMOVE, {"speaker": name, "decision": "removed", "left": len(model.speakers), **of_store(model)})
    DuplicateMemory.beside(audit.path).keep_enrolled(model)


def record_delay(audit: AuditLog, model: SpeakerModel, claim: str, seconds: float) -> None:
    """Append a line for a claim that failed so often that its caller has to wait."""
    audit.append(DELAY, {"claim": claim, "decision": "delayed", "seconds": seconds, **of_store(model)})


def record_renaming(audit: AuditLog, model: SpeakerModel, name: str, new_name: str) -> None:
    """Append a line for a speaker who was renamed."""
    audit.append(RENAME, {"speaker": name, "decision": "renamed", "to": new_name, **of_store(model)})


def record_export(audit: AuditLog, model: SpeakerModel, name: str) -> None:
    """Append a line for a speaker who was exported from the store of ``model``."""
    audit.append(EXPORT, {"speaker": name, "decision": "exported", **of_store(model)})


def record_calibration(audit: AuditLog, report: CalibrationReport) -> None:
    """Append a line for a store calibrated to the user's own trials."""
    counts: Fields = {"target_trials": report.target_trials, "nontarget_trials": report.nontarget_trials}
    audit.append(CALIBRATE, {"decision": "calibrated", **counts, **of_store(report.model)})


def record_reset(audit: AuditLog, model: SpeakerModel) -> None:
    """Append a line for a store from which the user's own trials were erased."""
    audit.append(CALIBRATE, {"decision": "reset", **of_store(model)})


def record_failure(audit: AuditLog, event: str, names: Iterable[str], error: VoiceclaimError) -> None:
    """Append a line for each speaker who could not be enrolled, removed or exported because of ``error``."""
    refused = error.findings if isinstance(error, EnrollmentRefusedError) else {}
    for name in names:
        checks = refused.get(name)
        outcome: Fields = {"error": type(error).__name__} if checks is None else {"checks": checks}
        audit.append(event, {"speaker": name, "decision": None if checks is None else "refused", **outcome})
