"""Every exception that the package raises on purpose.

    VoiceclaimError
    ├── InputError
    │   ├── ConfigError, AudioError, UnknownSpeakerError
    │   └── FitError
    │       └── UnfittedError
    ├── StoreError
    │   └── StoreMissingError, StoreFormatError, StoreSealError, StoreBusyError, SpeakerExistsError,
    │       TracesLeftError
    └── NotEnoughSpeechError, EnrollmentRefusedError, MetricError, AuditError, StreamClosedError,
        TooManyAttemptsError, ServiceError, UnavailableError

A message says what failed and where, the rule, the value got, and the likely cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from numbers import Integral, Rational
from types import UnionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.store.model import SpeakerModel


class VoiceclaimError(Exception):
    """Root of the tree: catching it catches everything raised on purpose.

    Examples
    --------
    >>> import pipeline
    >>> try:
    ...     pipeline.Store("nowhere.store").load()
    ... except pipeline.VoiceclaimError as error:
    ...     print(error)
    nowhere.store: no speaker store here; enroll somebody first
    """

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the fields, so that a worker process can pass the error back."""
        return (_rebuilt, (type(self), self.args, self.__dict__))


def _rebuilt(kind: type[VoiceclaimError], arguments: tuple[object, ...], fields: dict[str, object]) -> VoiceclaimError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


class InputError(VoiceclaimError):
    """Input that cannot be used: a corpus, a list of trials or scores, an option."""


def check_type(name: str, value: object, kinds: type | tuple[type, ...] | UnionType, expected: str) -> None:
    """Raise InputError, which gives ``name`` and what was ``expected``, unless ``value`` is of one of the ``kinds``.

    True and False do not count as numbers, nor do whole numbers and fractions beyond the range of a float.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise InputError(f"{name}: {expected} was expected, got {type(value).__name__}")
    if isinstance(value, Rational):
        try:
            float(value)
        except OverflowError:
            raise InputError(f"{name}: {expected} was expected, got a number beyond what a float holds") from None


def check_callable(name: str, value: object) -> None:
    """Raise InputError unless ``value`` is callable or None."""
    if value is not None and not callable(value):
        raise InputError(f"{name}: a function was expected, got {type(value).__name__}")


def check_options(taker: type, options: Mapping[str, object]) -> None:
    """Raise InputError for an option that ``taker``, a class, does not take by its name alone."""
    known = [name for name, one in signature(taker).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise InputError(f"{name}: {taker.__name__} has no such option; it has {', '.join(known)}")


def check_seed(seed: int) -> None:
    """Raise InputError unless ``seed`` is a whole number of at least 0."""
    check_type("seed", seed, Integral, "a whole number of at least 0")
    if seed < 0:
        raise InputError(f"seed: a whole number of at least 0 was expected, got {seed}")


class ConfigError(InputError):
    """A settings file or key breaks a rule."""


class AudioError(InputError):
    """A file, pipe, buffer or microphone gives no usable audio."""


class FitError(InputError, ValueError):
    """A posterior or a machine cannot be fitted to the data; also a ValueError, as scikit-learn expects."""


class UnfittedError(FitError, AttributeError):
    """A learned attribute of a posterior is used before the posterior is fitted."""


class UnknownSpeakerError(InputError):
    """Nobody of this name is enrolled; ``nearest`` holds similar enrolled names, if there are any.

    It is None if too many speakers are enrolled to look for them.
    """

    def __init__(
        self, name: str, nearest: tuple[str, ...] | None = (), *, nobody: bool = False, more: str = ""
    ) -> None:
        self.name = name
        self.nearest = nearest
        self.nobody = nobody
        hint = "; nobody is enrolled" if nobody else ""
        if nearest:
            hint = f"; nearest enrolled: {', '.join(map(repr, nearest))}"
        super().__init__(f"{name!r}: no such speaker is enrolled{hint}{more}")


class NotEnoughSpeechError(VoiceclaimError):
    """Audio with too little speech for a score: ``seconds`` of speech, fewer than ``needed``.

    Examples
    --------
    >>> import pipeline
    >>> raise pipeline.NotEnoughSpeechError("call.wav", seconds=0.2, needed=0.5)
    Traceback (most recent call last):
        ...
    pipeline.errors.NotEnoughSpeechError: call.wav: ...
    """

    def __init__(self, where: str, *, seconds: float, needed: float, cause: str = "", more: str = "") -> None:
        self.where = where
        self.seconds = seconds
        self.needed = needed
        start = f"{cause}{' ' if cause.endswith('?') else '; '}" if cause else ""
        rest = " (the rest is silence, noise or too quiet beside the loudest part)"
        super().__init__(
            f"{where}: {start}{seconds:.2f} s of speech found, {needed:.2f} s needed"
            f"{'' if cause else rest}{'; ' if more else ''}{more}"
        )


class EnrollmentRefusedError(VoiceclaimError):
    """Every new speaker was refused; ``reason`` is the first of the reasons, ``findings`` has the checks by speaker."""

    def __init__(self, reason: str, findings: dict[str, str]) -> None:
        self.reason = reason
        self.findings = findings
        more = f" (and {len(findings) - 1} more speakers)" if len(findings) > 1 else ""
        super().__init__(f"nobody was enrolled: {reason}{more} (the settings under checks define this)")


class MetricError(VoiceclaimError):
    """The given scores do not define the requested quantity."""


class StoreError(VoiceclaimError):
    """A failure of the speaker store on disk."""


class StoreMissingError(StoreError):
    """There is no store at ``path``, or none any more."""

    def __init__(self, path: object, reason: str = "no speaker store here; enroll somebody first") -> None:
        super().__init__(f"{path}: {reason}")


class StoreFormatError(StoreError):
    """Files of the store are damaged, missing or of another format."""


class StoreSealError(StoreError):
    """A store's seal is broken or missing, or its key was not given."""


class StoreBusyError(StoreError):
    """Another process is writing to the store."""


class SpeakerExistsError(StoreError):
    """A speaker of that name is enrolled already."""


class TracesLeftError(StoreError):
    """A change that was made, but left traces of a speaker in the file, for a ``reason``; ``model`` is as stored."""

    def __init__(self, reason: object, model: SpeakerModel) -> None:
        self.model = model
        super().__init__(
            "the change was made, but traces of the speaker removed or renamed are left until the next removal:"
            f" {reason}"
        )


class AuditError(VoiceclaimError):
    """An audit log whose chain is broken, or that cannot be read or written."""


class TooManyAttemptsError(VoiceclaimError):
    """A claim failed too often, and the next attempt has to wait for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"too many attempts failed; the next one may be made in {max(1, round(seconds))} s")


class UnavailableError(VoiceclaimError):
    """A library that is not installed or cannot be loaded, or a cluster that cannot be reached or lost its workers."""


class ServiceError(VoiceclaimError):
    """A service refused a request, or cannot be reached.

    ``status`` is the HTTP status (0: no answer), ``kind`` the name of the error in the service, and ``retry_seconds``
    the wait that the service asks for with 503 and 507.
    """

    def __init__(self, status: int, detail: str, *, kind: str = "ServiceError", retry_seconds: float = 5.0) -> None:
        self.status = status
        self.detail = detail
        self.kind = kind
        self.retry_seconds = retry_seconds
        super().__init__(detail)


class StreamClosedError(VoiceclaimError):
    """Audio was pushed into a stream that has been closed."""
