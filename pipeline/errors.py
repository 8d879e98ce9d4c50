"""Every exception that the package raises on purpose.

    VoiceclaimError
    ├── InputError                 what the caller gave cannot be used
    │   ├── ConfigError            a settings file or key
    │   ├── AudioError             a file, pipe or buffer that is not usable audio
    │   ├── MicrophoneError        no microphone, or nothing that could read one
    │   ├── CorpusError            a folder that is not a speaker corpus
    │   ├── TrialListError         a line of a trial list or score file
    │   ├── FitError               data that a posterior or machine cannot be fitted to
    │   ├── TableError             a data file of the papers' experiments is missing or not what it should be
    │   ├── TransferError          a file of exported speakers is damaged, or does not fit the store
    │   └── UnknownSpeakerError    a claim on somebody who is not enrolled
    ├── NotEnoughSpeechError       sound audio, but too little speech in it to decide
    ├── EnrollmentRefusedError     the enrollment gate let nobody in
    ├── SystemUnavailableError     the store has no machines for the scoring system asked for
    ├── MetricError                an error rate that the scores at hand do not define
    ├── StoreError                 the speaker store on disk
    │   ├── StoreMissingError      no store there
    │   ├── StoreFormatError       files of the store are damaged or of another format
    │   ├── StoreSealError         a seal that does not hold, is missing, or whose key is
    │   ├── StoreBusyError         another writer holds the store
    │   └── SpeakerExistsError     enrolling a name a second time
    ├── AuditError                 an audit log that is broken, or that cannot be read or written
    ├── LibraryMissingError        a library that an optional part needs is not installed
    ├── ClusterError               machines that share the work: none to be had, or not fit to
    ├── ServiceError               what a service refused over the network, or that it cannot be reached
    └── StreamClosedError          audio pushed into a finished stream

A message says what failed and where, the rule, the value found, and the likely cause.
"""

from __future__ import annotations


class VoiceclaimError(Exception):
    """Root of the tree: catching it catches everything raised on purpose."""


class InputError(VoiceclaimError):
    """What the caller gave cannot be used."""


class ConfigError(InputError):
    """A settings file or key breaks a rule."""


class AudioError(InputError):
    """A file, pipe or buffer is not usable audio."""


class MicrophoneError(InputError):
    """There is no microphone that can be read, or the library that reads it is missing."""


class CorpusError(InputError):
    """A folder is not a speaker corpus."""


class TrialListError(InputError):
    """A line of a trial list or of a score file breaks its format."""


class FitError(InputError, ValueError):
    """Data that a posterior or a machine cannot be fitted to; a ValueError too, for scikit-learn's sake."""


class TableError(InputError):
    """A data file of the papers' experiments is missing or not what it should be."""


class TransferError(InputError):
    """A file of exported speakers that is damaged, of another format, or does not fit the store."""


class UnknownSpeakerError(InputError):
    """A claim names somebody who is not enrolled; ``nearest`` holds the closest enrolled names."""

    def __init__(self, name: str, nearest: tuple[str, ...] = ()) -> None:
        self.name = name
        self.nearest = nearest
        hint = f"; nearest enrolled: {', '.join(map(repr, nearest))}" if nearest else "; nobody is enrolled"
        super().__init__(f"claim {name!r}: no such speaker is enrolled{hint}")

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the two fields, so that the error survives the way back from a worker process."""
        return (UnknownSpeakerError, (self.name, self.nearest))


class NotEnoughSpeechError(VoiceclaimError):
    """Sound audio with too little speech in it; never a score. ``found`` and ``needed`` are seconds."""

    def __init__(self, where: str, *, found: float, needed: float) -> None:
        self.where = where
        self.found = found
        self.needed = needed
        super().__init__(
            f"{where}: {found:.2f} s of speech found, {needed:.2f} s needed"
            " (the rest is silence, noise or too quiet beside the loudest part)"
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the three fields, so that the error survives the way back from a worker process."""
        return (_not_enough_speech, (self.where, self.found, self.needed))


def _not_enough_speech(where: str, found: float, needed: float) -> NotEnoughSpeechError:
    return NotEnoughSpeechError(where, found=found, needed=needed)


class EnrollmentRefusedError(VoiceclaimError):
    """The enrollment gate let nobody in; ``reason`` is the first of its reasons, ``findings`` the checks by speaker."""

    def __init__(self, reason: str, findings: dict[str, str]) -> None:
        self.reason = reason
        self.findings = findings
        more = f" (and {len(findings) - 1} more speakers)" if len(findings) > 1 else ""
        super().__init__(f"nobody was enrolled: {reason}{more} (what is refused is set under quality)")

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the two fields, so that the error survives the way back from a worker process."""
        return (EnrollmentRefusedError, (self.reason, self.findings))


class SystemUnavailableError(VoiceclaimError):
    """The store has no machines for the scoring system asked for."""


class MetricError(VoiceclaimError):
    """The scores at hand do not define the error rate asked for."""


class StoreError(VoiceclaimError):
    """Something about the speaker store on disk."""


class StoreMissingError(StoreError):
    """There is no store at that path."""


class StoreFormatError(StoreError):
    """Files of the store are damaged, missing or of another format."""


class StoreSealError(StoreError):
    """A store's seal does not hold or is missing, or its key was not given."""


class StoreBusyError(StoreError):
    """Another process is writing to the store."""


class SpeakerExistsError(StoreError):
    """A speaker of that name is enrolled already."""


class AuditError(VoiceclaimError):
    """An audit log whose chain is broken, or that cannot be read or written."""


class LibraryMissingError(VoiceclaimError):
    """An optional part needs a library that is not installed, or that cannot be loaded."""


class ClusterError(VoiceclaimError):
    """A cluster that cannot be reached, that ran out of workers, or whose workers are not the client's like."""


class ServiceError(VoiceclaimError):
    """A service refused a request, or cannot be reached.

    ``status`` is HTTP's (0: no answer came) and ``kind`` the name of the error that the service met.
    """

    def __init__(self, status: int, detail: str, *, kind: str = "ServiceError") -> None:
        self.status = status
        self.detail = detail
        self.kind = kind
        super().__init__(detail)

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the three fields, so that the error survives the way back from a worker process."""
        return (_service_error, (self.status, self.detail, self.kind))


def _service_error(status: int, detail: str, kind: str) -> ServiceError:
    return ServiceError(status, detail, kind=kind)


class StreamClosedError(VoiceclaimError):
    """Audio was pushed into a stream that has been closed."""
