"""What an audit log says of verifications, enrollments and removals: names, numbers and decisions.

No samples, no features, nothing that a voice could be told by; the names and paths of audio files only where asked.
The settings are named by the SHA-256 of their JSON, the store by its format version and revision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.audit import AuditLog, read_key
from pipeline.audit_chain import Value
from pipeline.errors import VoiceclaimError
from pipeline.store import SpeakerStore
from pipeline.verification import Update, Verifier

if TYPE_CHECKING:
    from pipeline.enrollment import EnrollmentReport  # loads what trains machines

VERIFY, ENROLL, REMOVE = "verify", "enroll", "remove"
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
    }


def of_store(store: SpeakerStore) -> Fields:
    """Which store it was, and which settings."""
    settings = json.dumps(store.config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return {
        "store_version": store.manifest.version,
        "store_revision": store.manifest.revision,
        "settings": hashlib.sha256(settings.encode()).hexdigest(),
    }


def record_enrollment(audit: AuditLog, report: EnrollmentReport) -> None:
    """One line for each speaker enrolled, and for each refused."""
    for speaker in report.enrolled:
        audit.append(
            ENROLL,
            {
                "speaker": speaker.name,
                "decision": "enrolled",
                "utterances": speaker.utterances,
                "speech_seconds": speaker.seconds,
                **of_store(report.store),
            },
        )
    for name, reason in report.refused:
        audit.append(ENROLL, {"speaker": name, "decision": "refused", "reason": reason, **of_store(report.store)})


def record_removal(audit: AuditLog, store: SpeakerStore, name: str) -> None:
    """One line for a speaker who was removed from what is now ``store``; the log goes on naming them."""
    audit.append(REMOVE, {"speaker": name, "left": len(store.speakers), **of_store(store)})
