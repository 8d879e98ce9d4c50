"""What a stream tells: where it stands, and what would be decided if it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a stream stands."""

    NOT_ENOUGH_SPEECH = "not_enough_speech"
    SCORING = "scoring"
    CLOSED = "closed"


class Decision(StrEnum):
    """What is decided on what has been heard; too little speech is an outcome of its own, never a score.

    ``undecided`` is met under an ``EarlyRule`` only: speech was heard, and its evidence does not suffice.
    """

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNDECIDED = "undecided"
    NOT_ENOUGH_SPEECH = "not_enough_speech"


@dataclass(slots=True)  # a frozen one takes several times as long to make, and every push makes one
class Update:
    """A stream after a push: ``score`` is None until there is enough speech.

    ``llr`` is its log-likelihood ratio in nats, and ``probability`` that of a true claim at ``Verifier.prior``; None
    where the store has no calibration. ``frames`` of speech make ``speech_seconds``, of ``audio_seconds`` heard.
    ``decision`` is the one that would stand if the stream ended here, and ``settled`` says that it will not change any
    more: the stream is closed, or an ``EarlyRule`` has enough evidence. Under such a rule ``early_llr`` is the ratio at
    this length that the rule goes by, None without one; once settled by it, score and speech stay those that it took.
    ``replay_suspected``: the audio holds a copy of a recording that is known (``pipeline.fingerprint``); None where
    there is nothing to compare with. The decision does not depend on it.
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
    early_llr: float | None = None
    replay_suspected: bool | None = None
