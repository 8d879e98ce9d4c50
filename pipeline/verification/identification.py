"""Identification in an open set: which enrolled speaker is speaking, if any.

A speaker's calibrated log-likelihood ratio compares that speaker with everybody else, enrolled or not. With a prior for
"nobody enrolled", and equal priors for the speakers, Bayes' rule turns these ratios into probabilities that sum to 1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pipeline.notebooks import html_table
from pipeline.scoring.decisions import NoTruthValue


class IdentificationDecision(StrEnum):
    """The decision on who speaks; too little speech is an outcome of its own.

    Examples
    --------
    >>> import pipeline
    >>> str(pipeline.IdentificationDecision.NOBODY)
    'nobody'
    """

    IDENTIFIED = "identified"
    NOBODY = "nobody"
    NOT_ENOUGH_SPEECH = "not_enough_speech"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An enrolled speaker, their score and log-likelihood ratio (nats), and the probability that they speak.

    Examples
    --------
    >>> import pipeline
    >>> first = pipeline.Store("speakers.store").identify("call.wav").candidates[0]
    >>> first.name, first.probability > 0.5
    ('anna', True)
    """

    name: str
    score: float
    llr: float
    probability: float


@dataclass(frozen=True, slots=True)
class Identification(NoTruthValue):
    """The result of an identification.

    Attributes
    ----------
    decision : IdentificationDecision
        Whether a speaker is identified.
    name : str or None
        The speaker, where the decision is "identified": the first candidate.
    candidates : tuple of Candidate
        The likeliest speakers, likeliest first; none without enough speech.
    nobody : float or None
        Probability that nobody enrolled speaks. With those of all speakers, candidates or not, it sums to 1.
    frames : int
        Speech frames that were scored.
    speech_seconds : float
        Length of that speech.
    audio_seconds : float
        Length of all audio.
    closed : bool
        Whether the audio has ended.
    warnings : tuple of str
        As ``Update.warnings``, at the end of the audio.

    Examples
    --------
    >>> import pipeline
    >>> found = pipeline.Store("speakers.store").identify("call.wav")
    >>> str(found.decision), found.name, len(found.candidates)
    ('identified', 'anna', 4)
    """

    decision: IdentificationDecision
    name: str | None
    candidates: tuple[Candidate, ...]
    nobody: float | None
    frames: int
    speech_seconds: float
    audio_seconds: float
    closed: bool
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON, each candidate as another one."""
        return asdict(self)

    def _repr_html_(self) -> str:
        rows = [(one.name, f"{one.probability:.3f}", f"{one.llr:.2f}") for one in self.candidates]
        if self.nobody is not None:
            rows.append(("nobody enrolled", f"{self.nobody:.3f}", ""))
        return html_table(("speaker", "probability", "LLR"), rows, caption=self.name or str(self.decision))
