"""One file of a trial list scored once for all its claims, wherever that is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock

from pipeline.claim_scorers import ClaimScorers
from pipeline.corpus import Utterance
from pipeline.errors import AudioError, NotEnoughSpeechError
from pipeline.frontend import read_features
from pipeline.manifest import NAME
from pipeline.scoring import ClaimScorer
from pipeline.store import SpeakerStore

# Held at a time: each has coefficients of a whole population.
MOST_SCORERS = 1

_MAKING = Lock()

FileScores = dict[tuple[str, str], tuple[float, float | None]]
"""Score, and log-likelihood ratio where there is a calibration, of one file by (system, speaker)."""


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A file that gave no score, why, and how many trials that cost."""

    path: str
    reason: str
    trials: int


@dataclass(frozen=True, eq=False)
class ScoringDesk:
    """Where the files of a list are scored: a revision of a ``store``, and the ``root`` of the files.

    On its way to another process it is no more than where the store is, and its manifest.
    """

    store: SpeakerStore
    root: Path
    systems: tuple[str, ...]
    positions: Mapping[str, int]
    _made: dict[tuple[str, ...], ClaimScorer] = field(default_factory=dict, init=False)

    def files(self, path: str, *_: object) -> tuple[Path, ...]:
        """What is read to score the file at ``path``."""
        return self.root / path, self.store.path.absolute() / NAME

    def scorer(self, claims: tuple[str, ...]) -> ClaimScorer:
        """The scorer of ``claims``; the last few are kept."""
        with _MAKING:
            if claims not in self._made:
                while len(self._made) >= MOST_SCORERS:
                    del self._made[next(iter(self._made))]
                self._made[claims] = self._scorers.of([self.positions[claim] for claim in claims])
            return self._made[claims]

    @cached_property
    def _scorers(self) -> ClaimScorers:
        return ClaimScorers(self.store, self.systems)


def score_file(desk: ScoringDesk, path: str, claims: tuple[str, ...], trials: int) -> FileScores | FailedFile:
    """Scores of the file at ``path`` for all ``claims``, or why it has none, which costs so many ``trials``."""
    store, scorer = desk.store, desk.scorer(claims)
    try:
        speech = read_features(Utterance("", desk.root / path), store.config.features, store.scaling).speech
        if len(speech.vectors) < store.config.least_frames:
            step = store.config.features.step_seconds
            raise NotEnoughSpeechError(path, found=len(speech.vectors) * step, needed=store.config.least_frames * step)
    except (AudioError, NotEnoughSpeechError) as error:
        return FailedFile(path, str(error), trials)
    running = scorer.start()
    running.push(speech)
    found: FileScores = {}
    for system, scores in running.scores().items():
        llrs = store.llrs(system, scores, running.frames)
        for number, claim in enumerate(claims):
            found[system, claim] = float(scores[number]), None if llrs is None else float(llrs[number])
    return found
