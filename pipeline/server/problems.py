"""Errors as the service tells them: a status and a problem in JSON (RFC 9457), without the server's own paths."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pipeline.errors import (
    AuditError,
    EnrollmentRefusedError,
    InputError,
    MetricError,
    NotEnoughSpeechError,
    ServiceError,
    SpeakerExistsError,
    StoreBusyError,
    StoreError,
    StreamClosedError,
    SystemUnavailableError,
    UnknownSpeakerError,
    VoiceclaimError,
)

MEDIA_TYPE = "application/problem+json"
KIND = "urn:voiceclaim:"

# The first class that fits decides.
_STATUS: tuple[tuple[type[VoiceclaimError], HTTPStatus], ...] = (
    (UnknownSpeakerError, HTTPStatus.NOT_FOUND),
    (SpeakerExistsError, HTTPStatus.CONFLICT),
    (StoreBusyError, HTTPStatus.SERVICE_UNAVAILABLE),
    (AuditError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (MetricError, HTTPStatus.CONFLICT),
    (StreamClosedError, HTTPStatus.CONFLICT),
    (EnrollmentRefusedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (NotEnoughSpeechError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (SystemUnavailableError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InputError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


def service_error(error: VoiceclaimError, shown: Iterable[tuple[Path, str]] = ()) -> ServiceError:
    """``error`` with its status; ``shown`` says what stands for which path in it."""
    if isinstance(error, ServiceError):
        return error
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    return ServiceError(int(status), without_paths(str(error), shown), kind=type(error).__name__)


def without_paths(text: str, shown: Iterable[tuple[Path, str]]) -> str:
    """``text`` with paths of the server, the longest first, replaced by what callers know."""
    for path, name in sorted(shown, key=lambda entry: -len(str(entry[0]))):
        text = text.replace(str(path), name)
    return text


def problem(error: ServiceError) -> dict[str, Any]:
    """The problem as JSON takes it."""
    return {
        "type": f"{KIND}{error.kind}",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.detail.encode("utf-8", "backslashreplace").decode(),
    }
