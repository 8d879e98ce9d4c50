"""Confusions between speakers: one system's trials speaker by speaker, and those nearest to an error.

A trial's margin is its score less the threshold: at 0 and above it is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.evaluation.scores import SystemScores

MOST_SPEAKERS = 40  # rows of the matrix; those with the most errors
WORST_TRIALS = 10
UNKNOWN = ""  # the voice in a file that has no target trial


@dataclass(frozen=True, slots=True)
class TrialMargin:
    """One trial, the person who speaks in it (``UNKNOWN`` if its file has no target trial), and its margin."""

    claim: str
    path: str
    voice: str
    target: bool
    margin: float

    @property
    def wrong(self) -> bool:
        """Return True if the trial is decided wrongly at the threshold."""
        return self.target != (self.margin >= 0.0)


@dataclass(frozen=True, slots=True)
class SpeakerErrors:
    """Trials that claim one speaker, and how many of them are decided wrongly at the threshold."""

    speaker: str
    targets: int
    false_rejects: int
    nontargets: int
    false_accepts: int

    @property
    def count(self) -> int:
        """Return the number of errors of both kinds."""
        return self.false_rejects + self.false_accepts


@dataclass(frozen=True, slots=True)
class Details:
    """``matrix`` has a row per claimed speaker and a column per voice: the trial nearest to an error, or None.

    ``errors`` are of all speakers, those with the highest share of false rejects first.
    """

    threshold: float
    rows: tuple[str, ...]
    voices: tuple[str, ...]
    matrix: tuple[tuple[TrialMargin | None, ...], ...]
    errors: tuple[SpeakerErrors, ...]
    worst: tuple[TrialMargin, ...]

    @property
    def scale(self) -> float:
        """Return the margin above which cells look alike: the median size of all margins in the matrix."""
        sizes = [abs(trial.margin) for row in self.matrix for trial in row if trial is not None]
        return float(np.median(sizes)) or 1.0


def details_of(scores: SystemScores, threshold: float) -> Details:
    """Return the details of ``scores`` at ``threshold``."""
    margins = scores.scores - threshold
    # How far a trial is on the wrong side; the largest of these are the worst.
    badness = np.where(scores.is_target, -margins, margins)
    voices = _voices(scores)
    errors = _errors(scores, margins >= 0.0)
    shown = {entry.speaker for entry in sorted(errors, key=lambda entry: entry.count, reverse=True)[:MOST_SPEAKERS]}
    rows = tuple(sorted(shown))
    columns = (*rows, UNKNOWN) if UNKNOWN in set(voices) else rows
    nearest: dict[tuple[str, str], int] = {}
    for k in np.argsort(badness, kind="stable").tolist():  # the worst trial of a cell comes last
        nearest[scores.speakers[k], voices[k]] = k

    def trial(k: int) -> TrialMargin:
        return TrialMargin(scores.speakers[k], scores.paths[k], voices[k], bool(scores.is_target[k]), float(margins[k]))

    cells = {cell: trial(k) for cell, k in nearest.items() if cell[0] in shown}
    matrix = tuple(tuple(cells.get((row, column)) for column in columns) for row in rows)
    worst = tuple(map(trial, np.argsort(-badness, kind="stable")[:WORST_TRIALS].tolist()))
    return Details(threshold, rows, columns, matrix, errors, worst)


def _voices(scores: SystemScores) -> list[str]:
    """Return the voice in each trial: the speaker claimed in the target trial of its file."""
    of_file = np.full(scores.paths.names.size, -1, dtype=np.intp)
    of_file[scores.paths.codes[scores.is_target]] = scores.speakers.codes[scores.is_target]
    names = [*map(str, scores.speakers.names), UNKNOWN]  # -1 is the last one
    return [names[code] for code in of_file[scores.paths.codes]]


def _errors(scores: SystemScores, accepted: np.ndarray) -> tuple[SpeakerErrors, ...]:
    names, codes, target = scores.speakers.names, scores.speakers.codes, scores.is_target
    kinds = (target, target & ~accepted, ~target, ~target & accepted)
    columns = (np.bincount(codes[kind], minlength=names.size).tolist() for kind in kinds)
    entries = (SpeakerErrors(str(name), *counts) for name, *counts in zip(names, *columns, strict=True))
    return tuple(
        sorted(
            (entry for entry in entries if entry.targets or entry.nontargets),
            key=lambda entry: (-entry.false_rejects / max(entry.targets, 1), -entry.false_accepts, entry.speaker),
        )
    )
