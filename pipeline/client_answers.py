"""What the service answers, as the client hands it on, and how it is read from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pipeline.errors import ServiceError
from pipeline.updates import Decision, State, Update

_KIND = "urn:voiceclaim:"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a claim is decided by, and the ``revision`` of the store that it is decided on; see ``Verifier``."""

    claim: str
    system: str
    threshold: float | None
    llr_threshold: float | None
    threshold_source: str
    prior: float
    outsiders: float
    rivals: int
    revision: int
    early_bounds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of a claim."""

    terms: Terms
    update: Update

    @property
    def decision(self) -> Decision:
        """Accepted, rejected, or too little speech to tell."""
        return self.update.decision

    @property
    def score(self) -> float | None:
        """The score, None for too little speech."""
        return self.update.score

    @property
    def probability(self) -> float | None:
        """Probability of a true claim at the prior of the terms; None without a calibration."""
        return self.update.probability


@dataclass(frozen=True, slots=True)
class EnrolledSpeaker:
    """One who can be claimed; ``seconds`` of speech in ``utterances`` recordings."""

    name: str
    seconds: float
    utterances: int


@dataclass(frozen=True, slots=True)
class Enrollment:
    """Who was enrolled; ``skipped`` are the files that were not used, with the reasons.

    ``warnings`` are what the enrollment gate found all the same.
    """

    speaker: EnrolledSpeaker
    revision: int
    warnings: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


def problem_of(table: Mapping[str, Any]) -> ServiceError:
    """What was refused, as a response tells it or a WebSocket's last message; KeyError where ``table`` is neither."""
    kind = str(table["kind"] if "kind" in table else table["type"]).removeprefix(_KIND)
    return ServiceError(int(table["status"]), str(table["detail"]), kind=kind)


def enrollment_of(table: Mapping[str, Any]) -> Enrollment:
    """The answer to an enrollment."""
    speaker = EnrolledSpeaker(table["name"], table["seconds"], table["utterances"])
    skipped = tuple((file["file"], file["reason"]) for file in table["skipped"])
    return Enrollment(speaker, table["revision"], tuple(table["warnings"]), skipped)


def verification_of(table: Mapping[str, Any]) -> Verification:
    """The answer to a claim, by request or at the end of a stream."""
    return Verification(terms_of(table), update_of(table))


def terms_of(table: Mapping[str, Any]) -> Terms:
    """The terms within an answer or a stream's first message."""
    bounds = table.get("early_bounds")
    known = {field.name: table[field.name] for field in fields(Terms) if field.name != "early_bounds"}
    return Terms(**known, early_bounds=None if bounds is None else tuple(bounds))


def update_of(table: Mapping[str, Any]) -> Update:
    """What is known so far, of the fields that this version knows."""
    known: dict[str, Any] = {field.name: table[field.name] for field in fields(Update) if field.name in table}
    return Update(**{**known, "state": State(table["state"]), "decision": Decision(table["decision"])})
