"""Messages of the service in JSON: hellos and commands of streams, answers, and errors as problems (RFC 9457)."""

from __future__ import annotations

import errno
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic_core import PydanticCustomError

from pipeline.audio.streams import Encoding, PcmFormat
from pipeline.errors import (
    AuditError,
    EnrollmentRefusedError,
    InputError,
    MetricError,
    NotEnoughSpeechError,
    ServiceError,
    SpeakerExistsError,
    StoreError,
    StreamClosedError,
    TooManyAttemptsError,
    UnknownSpeakerError,
    VoiceclaimError,
)
from pipeline.scoring.decisions import Decision, Terms, Update
from pipeline.scoring.sequential import SequentialTest
from pipeline.server.logs import log_event, place_of
from pipeline.verification.identification import Identification

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, b64token
PROBLEM_TYPE = "application/problem+json"
_KIND = "urn:voiceclaim:"
_HELLO_CHARACTERS = 8192
_ENCODINGS: dict[str, Encoding] = {"pcm_s16le": "s16le", "f32le": "f32le"}
RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 88_200, 96_000, 176_400, 192_000)
"""Sampling rates of streams in Hz. Every other rate would need a resampler of its own, designed and measured."""

# Streams


def _check_rate(rate: int) -> int:
    if rate not in RATES:
        raise PydanticCustomError("rate", f"a stream has one of the rates {', '.join(map(str, RATES))} Hz")
    return rate


class Hello(BaseModel):
    """The first message of a stream: the format of its binary messages, of one channel."""

    model_config = ConfigDict(extra="forbid", strict=True)
    rate: Annotated[int, AfterValidator(_check_rate)]
    format: Literal["pcm_s16le", "f32le"]
    token: str | None = Field(default=None, repr=False)

    @property
    def pcm(self) -> PcmFormat:
        """Return the format of the audio."""
        return PcmFormat(self.rate, 1, _ENCODINGS[self.format])


class VerifyHello(Hello):
    """The first message of a verification stream; ``early`` has the fields of a ``SequentialTest``."""

    claim: str
    system: str | None = None
    early: dict[str, float | str] | None = None

    @property
    def sequential_test(self) -> SequentialTest | None:
        """Return the sequential test, if one is asked for; raises InputError."""
        if self.early is None:
            return None
        try:
            return SequentialTest(**self.early)  # type: ignore[arg-type]  # checked there
        except TypeError:
            raise InputError("early: the fields miss and false_accept are numbers, at_end is text") from None


class EnrollHello(Hello):
    """The first message of an enrollment stream."""

    name: str


def read_hello(text: str | bytes, kind: type[Hello]) -> Any:
    """Parse a hello; raises InputError or ServiceError, which never repeat the message."""
    if isinstance(text, bytes):
        raise InputError("the first message must be a hello in JSON, as text")
    if len(text) > _HELLO_CHARACTERS:
        raise ServiceError(413, f"the first message has at most {_HELLO_CHARACTERS} characters", kind="InputError")
    try:
        hello = kind.model_validate_json(text)
        json.loads(text, object_pairs_hook=_check_once)
        return hello
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        raise InputError(f"the first message: {where}: {first['msg']}") from None


def _check_once(fields: list[tuple[str, Any]]) -> None:
    """Raise InputError if a field occurs twice: a proxy might read the other one."""
    if len(dict(fields)) < len(fields):
        raise InputError("the first message: each field may be given once, and one is given twice")


def read_command(text: str) -> str:
    """Parse a later text message, the command "utterance" (the next recording) or "end"; raises ServiceError."""
    try:
        command = json.loads(text) if len(text) <= _HELLO_CHARACTERS else None
    except (ValueError, RecursionError):
        command = None
    if command not in ({"type": "utterance"}, {"type": "end"}):
        raise ServiceError(
            422, 'a text message is {"type": "utterance"} or {"type": "end"}, got another', kind="InputError"
        )
    return str(command["type"])


def text_of(table: dict[str, Any]) -> str:
    """Return one message; raises ValueError for a number that JSON cannot represent."""
    return json.dumps(table, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# Answers


@dataclass(frozen=True, slots=True)
class EnrolledSpeaker:
    """An enrolled speaker, with ``seconds`` of speech in ``utterances`` recordings."""

    name: str
    seconds: float
    utterances: int


def _answer(name: str, about: str, /, **fields: Any) -> type[BaseModel]:
    required: dict[str, Any] = {field: (kind, ...) for field, kind in fields.items()}
    return create_model(name, __doc__=about, **required)


_OUTCOME = get_type_hints(Terms) | get_type_hints(Update)
Outcome = _answer("Outcome", "The outcome of a claim: its terms and the final state.", **_OUTCOME)
SpeakerList = _answer("SpeakerList", "All speakers, in enrollment order.", revision=int, speakers=list[EnrolledSpeaker])
Enrolled = _answer(
    "Enrolled",
    "A new speaker; `warnings` are findings of the enrollment checks, `skipped` each `file` not used and the `reason`.",
    name=str,
    utterances=int,
    seconds=float,
    frames=int,
    centroids=int,
    short_of_centroids=bool,
    revision=int,
    warnings=list[str],
    skipped=list[dict[str, str]],
)
Identified = _answer(
    "Identified", "Who speaks: the likeliest, and the probability of nobody enrolled.", **get_type_hints(Identification)
)
Removed = _answer("Removed", "A speaker removed, and the number left.", removed=str, left=int, revision=int)
Health = _answer("Health", "A sign of life.", status=Literal["ok"], version=str)
Problem = _answer("Problem", "An error (RFC 9457).", type=str, title=str, status=int, detail=str)


# Readers of answers, which ignore further fields of a table: those of a later version.
TERMS, UPDATE, IDENTIFICATION = TypeAdapter(Terms), TypeAdapter(Update), TypeAdapter(Identification)

_EVIDENCE = (
    "score", "llr", "probability", "sequential_llr", "threshold", "llr_threshold", "threshold_probability",
    "sequential_bounds",
)  # fmt: skip


def shown(table: dict[str, Any], *, scores: bool) -> dict[str, Any]:
    """Return what a caller may see of the state of a claim: all with ``scores``, else the decision once it is final.

    Numbers, and decisions that still change, would show somebody who tries out voices which ones come closer.
    """
    if scores:
        return table
    hidden: dict[str, Any] = {name: None for name in _EVIDENCE if name in table}
    if "decision" in table and not table["settled"] and table["decision"] != Decision.NOT_ENOUGH_SPEECH:
        hidden["decision"] = Decision.UNDECIDED
    return table | hidden


# Errors

Aliases = Sequence[tuple[Path, str]]
"""Paths that no caller is told, and the names that stand for them."""

# The first class that matches decides.
_STATUS: tuple[tuple[tuple[type[VoiceclaimError], ...], int], ...] = (
    ((UnknownSpeakerError,), 404),
    ((SpeakerExistsError, MetricError, StreamClosedError), 409),
    ((TooManyAttemptsError,), 429),
    ((AuditError, StoreError), 503),
    ((EnrollmentRefusedError, NotEnoughSpeechError, InputError), 422),
)


def service_error(error: Exception, aliases: Aliases = ()) -> ServiceError:
    """Return the answer to a caller for ``error``, with its status; ``aliases`` replace paths of the server."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, MemoryError | OSError):
        return _system_error(error)
    if not isinstance(error, VoiceclaimError):
        return fault(error)
    status = next((status for kinds, status in _STATUS if isinstance(error, kinds)), 500)
    return ServiceError(status, without_paths(str(error), aliases), kind=type(error).__name__)


_STORAGE_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TOO_LITTLE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


def _system_error(error: MemoryError | OSError) -> ServiceError:
    """Return the error for a machine that has run out of something: 507 for storage, else 503, or a fault."""
    if isinstance(error, MemoryError):
        return ServiceError(503, "there is not enough memory for this, and nothing was changed; try a smaller request")
    if error.errno in _STORAGE_FULL:
        return ServiceError(507, "there is no room left for what was sent, and nothing was changed; try again later")
    if error.errno in _TOO_LITTLE:
        return ServiceError(503, "the service has no files, memory or processes left for this; try again later")
    return fault(error)


def without_paths(text: str, aliases: Aliases) -> str:
    """Replace paths of the server in ``text`` by their ``aliases``, the longest first."""
    for path, name in sorted(aliases, key=lambda entry: -len(str(entry[0]))):
        text = text.replace(str(path), name)
    return text


def problem(error: ServiceError) -> dict[str, Any]:
    """Return the fields of ``Problem``; its ``type`` ends in the name of the error's kind."""
    return {
        "type": f"{_KIND}{error.kind}",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.detail.encode("utf-8", "backslashreplace").decode(),
    }


def fault(error: Exception) -> ServiceError:
    """Log where a fault of the service itself occurred, and return the answer to the caller."""
    log_event("fault", level=logging.ERROR, what=place_of(error))
    return ServiceError(500, "the service failed; its log names the place", kind="Fault")
