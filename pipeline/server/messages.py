"""What goes to and fro in JSON: hellos of streams, terms and outcomes of verification, who is enrolled.

Fields of an outcome are those of ``verification.Update``, whatever they are.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from pipeline.early import AtEnd, EarlyRule
from pipeline.errors import ServiceError
from pipeline.pcm import MAX_RATE, MIN_RATE, Encoding, PcmFormat
from pipeline.updates import Update
from pipeline.verification import ThresholdSource, Verifier

_HELLO_BYTES = 8192
_ENCODINGS: dict[str, Encoding] = {"pcm_s16le": "s16le", "f32le": "f32le"}


class _Hello(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rate: Annotated[int, Field(ge=MIN_RATE, le=MAX_RATE)]
    format: Literal["pcm_s16le", "f32le"]
    token: str | None = Field(default=None, repr=False)

    @property
    def pcm(self) -> PcmFormat:
        """What the binary messages consist of: one channel."""
        return PcmFormat(self.rate, 1, _ENCODINGS[self.format])


class EarlyTerms(BaseModel):
    """A decision as soon as the evidence suffices: the fields of ``early.EarlyRule``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    miss: Annotated[float, Field(gt=0, lt=0.5)] = 0.01
    false_accept: Annotated[float, Field(gt=0, lt=0.5)] = 0.01
    at_end: AtEnd = "undecided"


class VerifyHello(_Hello):
    """The first message of a stream that verifies."""

    claim: str
    system: str | None = None
    early: EarlyTerms | None = None

    @property
    def rule(self) -> EarlyRule | None:
        """The rule of an early decision."""
        return None if self.early is None else EarlyRule(**self.early.model_dump())


class EnrollHello(_Hello):
    """The first message of a stream that enrolls."""

    name: str


class Command(BaseModel):
    """A later text message: ``utterance`` begins the next recording of an enrollment, ``end`` ends the stream."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    type: Literal["utterance", "end"]


class Terms(BaseModel):
    """Who is claimed to speak, and what decides; thresholds as in ``verification.Verifier``.

    ``early_bounds`` are the log-likelihood ratios at which an early decision rejects and accepts.
    """

    claim: str
    system: str
    threshold: float | None
    llr_threshold: float | None
    threshold_source: ThresholdSource
    prior: float
    outsiders: float
    rivals: int
    revision: int
    early_bounds: tuple[float, float] | None


_HINTS = get_type_hints(Update)
_FIELDS: dict[str, Any] = {field.name: (_HINTS[field.name], ...) for field in fields(Update)}
Outcome = create_model(
    "Outcome", __base__=Terms, __doc__="What came of a claim: its terms, and the last state of its stream.", **_FIELDS
)


class SpeakerEntry(BaseModel):
    """One who can be claimed; ``seconds`` of speech in ``utterances`` recordings."""

    name: str
    seconds: float
    utterances: int


class SpeakerList(BaseModel):
    """Everybody who can be claimed, in enrollment order."""

    revision: int
    speakers: list[SpeakerEntry]


class SkippedFile(BaseModel):
    """A file that was not used, and why."""

    file: str
    reason: str


class Enrolled(BaseModel):
    """Who was enrolled, from how much speech; ``warnings`` are what the enrollment gate found all the same."""

    name: str
    utterances: int
    seconds: float
    frames: int
    centroids: int
    short_of_centroids: bool
    revision: int
    warnings: list[str]
    skipped: list[SkippedFile]


class Removed(BaseModel):
    """Who was removed, and how many are left."""

    removed: str
    left: int
    revision: int


class Health(BaseModel):
    """Whether the service is there."""

    status: Literal["ok"]
    version: str


class ProblemDetails(BaseModel):
    """An error (RFC 9457); ``type`` ends in the name of its kind."""

    type: str
    title: str
    status: int
    detail: str


def read_hello(text: str, kind: type[_Hello]) -> Any:
    """The hello in ``text``; raises ServiceError, which never repeats what was sent."""
    return _parsed(text, kind, "the first message")


def read_command(text: str) -> Command:
    """A later text message; raises ServiceError."""
    command: Command = _parsed(text, Command, "a text message")
    return command


def _parsed(text: str, kind: type[BaseModel], what: str) -> Any:
    if len(text) > _HELLO_BYTES:
        raise ServiceError(413, f"{what} has at most {_HELLO_BYTES} characters", kind="InputError")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        raise ServiceError(422, f"{what}: {where}: {first['msg']}", kind="InputError") from None


def terms_of(verifier: Verifier) -> dict[str, Any]:
    """The terms of a claim, as JSON takes them."""
    return {
        "claim": verifier.claim,
        "system": verifier.system,
        "threshold": _finite(verifier.threshold),
        "llr_threshold": _finite(verifier.llr_threshold),
        "threshold_source": str(verifier.threshold_source),
        "prior": verifier.prior,
        "outsiders": verifier.store.outsiders,
        "rivals": verifier.rivals,
        "revision": verifier.store.manifest.revision,
        "early_bounds": None if verifier.early is None else (verifier.early.reject_at, verifier.early.accept_at),
    }


def table_of(update: Update) -> dict[str, Any]:
    """The fields of ``update``, as JSON takes them: what is not finite as null."""
    return {name: _finite(value) for name, value in asdict(update).items()}


def text_of(table: dict[str, Any]) -> str:
    """One message; raises ValueError for a number that JSON has not."""
    return json.dumps(table, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
