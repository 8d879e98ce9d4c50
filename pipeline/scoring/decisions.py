"""The decision on a claim: its terms, the state of its stream, and their fields as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Never

from pipeline.errors import InputError
from pipeline.notebooks import html_table


class State(StrEnum):
    """State of a stream.

    Examples
    --------
    >>> import pipeline
    >>> [str(state) for state in pipeline.State]
    ['not_enough_speech', 'scoring', 'closed']
    """

    NOT_ENOUGH_SPEECH = "not_enough_speech"
    SCORING = "scoring"
    CLOSED = "closed"


class Decision(StrEnum):
    """The decision on the audio so far; too little speech is an outcome of its own, never a score.

    ``undecided`` occurs under a ``SequentialTest`` only: there is speech, but not enough evidence.

    Examples
    --------
    >>> import pipeline
    >>> str(pipeline.Decision.ACCEPTED)
    'accepted'
    """

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNDECIDED = "undecided"
    NOT_ENOUGH_SPEECH = "not_enough_speech"


class NoTruthValue:
    """Base of outcomes, whose truth value is an error: by default Python counts a rejection as true."""

    __slots__ = ()

    def __bool__(self) -> Never:
        name = type(self).__name__
        raise InputError(f"{name}: it is neither true nor false; compare its decision (of a VoiceComparison: same)")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which a claim is decided, and the ``revision`` of the store; see ``Verifier``.

    One of ``threshold`` (on the score) and ``llr_threshold`` (in nats) is set; ``threshold_source`` is "eer", "far",
    "cost" or "given". ``prior`` is the prior probability of a target trial, None where the decision uses none.
    ``unknown_impostors`` is the assumed share of impostors who are not enrolled, ``competing`` the number of speakers
    against whom the claim is judged. ``sequential_bounds`` are the log-likelihood ratios, in nats, at which a
    sequential test rejects and accepts.
    """

    claim: str
    system: str
    threshold: float | None
    llr_threshold: float | None
    threshold_source: str
    prior: float | None
    unknown_impostors: float
    competing: int
    revision: int
    sequential_bounds: tuple[float, float] | None = None


@dataclass(slots=True)  # a frozen one takes several times as long to make, and every push makes one
class Update(NoTruthValue):
    """A claim as it stands after a push, or at the end of its audio.

    Attributes
    ----------
    state : State
        Whether there is enough speech for a score, and whether the stream is closed.
    decision : Decision
        The decision if the stream ended at this point.
    score : float or None
        Score of the claim, on the scale of the system; None until there is enough speech.
    llr : float or None
        Its log-likelihood ratio in nats; None where the store has no calibration.
    probability : float or None
        Posterior probability of a target trial; None where the decision rests on no prior.
    frames : int
        Speech frames that were scored.
    speech_seconds : float
        Length of that speech.
    audio_seconds : float
        Length of all audio so far.
    settled : bool
        Whether the decision will not change: the stream is closed, or a ``SequentialTest`` has enough evidence. Once
        settled by a test, score and speech do not change either.
    sequential_llr : float or None
        Log-likelihood ratio at this length, in nats, that the test is applied to; None without a test.
    duplicate_suspected : bool or None
        Whether the audio contains a copy of a known recording (``pipeline.features.fingerprints``); None where there is
        nothing to compare with. The decision does not depend on it.
    warnings : tuple of str
        What may explain a poor score, each "code: sentence" (``pipeline.verification.audio_warnings``); from enough
        speech on, or at the end. The decision does not depend on them.

    Examples
    --------
    >>> import pipeline
    >>> update = pipeline.Verifier(pipeline.Store("speakers.store").load(), "anna").verify_file("call.wav")
    >>> update.decision, update.settled
    (<Decision.ACCEPTED: 'accepted'>, True)
    """

    state: State
    decision: Decision
    score: float | None
    llr: float | None
    probability: float | None
    frames: int
    speech_seconds: float
    audio_seconds: float
    settled: bool = False
    sequential_llr: float | None = None
    duplicate_suspected: bool | None = None
    warnings: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        numbers = ("score", "llr", "probability", "speech_seconds")
        values = ((name, getattr(self, name)) for name in numbers)
        rows = [(name.replace("_", " "), "-" if value is None else f"{value:.3f}") for name, value in values]
        return html_table(("", ""), [*rows, *(("warning", text) for text in self.warnings)], caption=str(self.decision))


def as_json(*parts: Terms | Update) -> dict[str, Any]:
    """Return the fields of ``parts`` in one table for JSON; numbers that are not finite become None."""
    table: dict[str, Any] = {}
    for part in parts:
        for field in fields(part):
            value = getattr(part, field.name)
            table[field.name] = None if isinstance(value, float) and not math.isfinite(value) else value
    return table
