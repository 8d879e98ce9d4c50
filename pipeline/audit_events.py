"""What an audit log says of verifications, and of speakers enrolled, removed, exported and imported.

Names, numbers and decisions: no samples, no features, nothing that a voice could be told by; the names and paths of
audio files only where asked. The settings are named by the SHA-256 of their JSON, the store by its format version and
revision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.audit import AuditLog, read_key
from pipeline.audit_chain import Value
from pipeline.errors import EnrollmentRefusedError, VoiceclaimError
from pipeline.replay_memory import ReplayMemory
from pipeline.store import SpeakerStore
from pipeline.updates import Update
from pipeline.verification import Verifier

if TYPE_CHECKING:
    from pipeline.enrollment import EnrollmentReport  # loads what trains machines

VERIFY, ENROLL, REMOVE, EXPORT, IMPORT = "verify", "enroll", "remove", "export", "import"
Fields = dict[str, Value]
Recorder = Callable[[Verifier | None, str | None, Update | VoiceclaimError], None]
"""Called with who decided (None where it never came to that), the file (None for a pipe), and the outcome."""


def verification_recorder(
    log: Path | None, store: SpeakerStore, claim: str, *, key_file: Path | None = None, paths: bool = False
) -> Recorder:
    """What to call with every outcome of ``claim``: it appends to the log at ``log``, without one it does nothing.

    The key is ``read_key``'s. With ``paths`` the log names the audio files. Raises AuditError, as does the recorder.
    """
    if log is None:
        return lambda _verifier, _file, _outcome: None
    audit = AuditLog(log, key=read_key(key_file))

    def record(verifier: Verifier | None, file: str | None, outcome: Update | VoiceclaimError) -> None:
        fields: Fields = {"claim": claim, **of_store(store)}
        if isinstance(outcome, Update) and verifier is not None:
            fields |= of_decision(verifier, outcome)
        else:
            fields |= {"decision": None, "error": type(outcome).__name__}
        audit.append(VERIFY, {**fields, "file": file} if paths else fields)

    return record


def replay_memory(log: Path | None) -> ReplayMemory | None:
    """Where the fingerprints of accepted audio are kept that belong to the log at ``log``; None without a log."""
    return None if log is None else ReplayMemory.beside(AuditLog(log).path)


def of_decision(verifier: Verifier, update: Update) -> Fields:
    """A decision, and what it rests on."""
    return {
        "decision": str(update.decision),
        "system": verifier.system,
        "score": update.score,
        "threshold": verifier.threshold,
        "llr": update.llr,
        "llr_threshold": verifier.llr_threshold,
        "probability": update.probability,
        "prior": verifier.prior,
        "threshold_source": str(verifier.threshold_source),
        "speech_seconds": update.speech_seconds,
        "audio_seconds": update.audio_seconds,
        "rivals": verifier.rivals,
        "replay_suspected": update.replay_suspected,
        "early_llr": update.early_llr,
        "early_miss": None if verifier.early is None else verifier.early.miss,
        "early_false_accept": None if verifier.early is None else verifier.early.false_accept,
    }


def of_store(store: SpeakerStore) -> Fields:
    """Which store it was, and which settings."""
    settings = json.dumps(store.config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return {
        "store": store.manifest.identity,
        "store_version": store.manifest.version,
        "store_revision": store.manifest.revision,
        "settings": hashlib.sha256(settings.encode()).hexdigest(),
    }


def record_enrollment(audit: AuditLog, report: EnrollmentReport) -> None:
    """One line for each speaker enrolled, and one for each refused, with what was found: never a reason's words.

    A reason may name files.
    """
    for speaker in report.enrolled:
        audit.append(
            ENROLL,
            {
                "speaker": speaker.name,
                "decision": "enrolled",
                "warnings": _checks(report, speaker.name),
                "utterances": speaker.utterances,
                "speech_seconds": speaker.seconds,
                **of_store(report.store),
            },
        )
    for name in dict.fromkeys(name for name, _ in report.refused):
        fields: Fields = {"speaker": name, "decision": "refused", "checks": _checks(report, name)}
        audit.append(ENROLL, {**fields, **of_store(report.store)})


def _checks(report: EnrollmentReport, name: str) -> str:
    """What was found about one speaker, as the checks' names."""
    return ", ".join(dict.fromkeys(finding.check for finding in report.findings if finding.speaker == name))


def record_removal(audit: AuditLog, store: SpeakerStore, name: str) -> None:
    """One line for a speaker who was removed from what is now ``store``; the log goes on naming them.

    Fingerprints of what was accepted as theirs are erased.
    """
    audit.append(REMOVE, {"speaker": name, "decision": "removed", "left": len(store.speakers), **of_store(store)})
    ReplayMemory.beside(audit.path).forget(name)


def record_transfer(audit: AuditLog, event: str, store: SpeakerStore, names: Iterable[str]) -> None:
    """One line, an EXPORT or IMPORT, for each speaker who was copied out of ``store`` or into what it is now."""
    for name in names:
        audit.append(event, {"speaker": name, "decision": f"{event}ed", **of_store(store)})


def record_failure(audit: AuditLog, event: str, names: Iterable[str], error: VoiceclaimError) -> None:
    """One line for each speaker whom ``error`` kept from being enrolled, removed, exported or imported."""
    refused = error.findings if isinstance(error, EnrollmentRefusedError) else {}
    for name in names:
        checks = refused.get(name)
        found: Fields = {"error": type(error).__name__} if checks is None else {"checks": checks}
        audit.append(event, {"speaker": name, "decision": None if checks is None else "refused", **found})
