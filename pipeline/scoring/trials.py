"""Held-out trials of a speaker model.

A held-out trial is an utterance that the machines scoring it were not trained on, claimed for one speaker. Only scores
are kept, no audio. Populations grow and shrink after the trials were scored, so:

- A mean log posterior is compared with that of chance, log(1 / N), for the N speakers enrolled at the time.
- Trials scored among fewer than half of today's speakers are left out as soon as there are better ones.
- Each trial is also scored by the one-class machine alone, for the day when nobody else is enrolled.
- A nontarget trial is scored twice: with its speaker in the cohort, and as an unknown impostor's, with the speaker left
  out of the supervector machines and the cohort. Rules that share a posterior among all (BOAR to RPOAO) score both
  alike.
- The default system also scores prefixes of each trial, for sequential decisions.

The user's own trials, on recordings that nobody was enrolled with, are kept beside them in the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MetricError
from pipeline.scoring.calibration import SystemCalibration
from pipeline.scoring.conditions import DISTANCE, SIDE_INFORMATION
from pipeline.scoring.rules import RULES

Array = NDArray[np.float64]
# Trials are comparable if they were scored among at least this share of the number of speakers asked about.
COMPARABLE_SHARE = 0.5

# Kinds of trials that a store keeps, each the prefix of its arrays' names: held-out utterances as recorded, augmented
# versions of them, and the user's own trials.
RECORDED, CHANGED, OWN = "", "changed.", "own."
HELD_OUT = (RECORDED, CHANGED)
TRIAL_KINDS = (*HELD_OUT, OWN)

# The speaker's id in a trial by somebody who is not enrolled: enrolled speakers have smaller ids.
NOBODY = 2**63

_PREFIX, _SCORE, _BEGINNING = "trials.", "score.", "prefix."
COLUMNS = ("claims", "speakers", "population", "frames", "unknown")


@dataclass(frozen=True)
class HeldOutTrials:
    """n trials: ids ``claims`` and ``speakers`` (n,), ``scores`` (n,) by system, ``population`` (n,) when scored.

    ``frames`` (n,) of speech were scored; ``unknown`` (n,) marks nontarget trials whose speaker was left out.
    ``prefixes`` maps numbers of frames to the scores (n,), by system, of that many frames from the start of each
    trial, or of all its frames if it is shorter. They are by the default system, or by the systems that it sums.
    """

    claims: NDArray[np.uint64]
    speakers: NDArray[np.uint64]
    population: NDArray[np.int64]
    scores: Mapping[str, Array]
    frames: NDArray[np.int64]
    unknown: NDArray[np.bool_]
    prefixes: Mapping[int, Mapping[str, Array]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def is_target(self) -> NDArray[np.bool_]:
        """Mark the target trials (n,), in which the claimed speaker is the one who speaks."""
        return np.asarray(self.claims == self.speakers)

    @property
    def has_both_classes(self) -> bool:
        """Return True where there are target and nontarget trials."""
        return 0 < int(np.count_nonzero(self.is_target)) < len(self)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], systems: Sequence[str] | None, *, kind: str
    ) -> Self | None:
        """Read the trials of a ``kind`` among a model's shared ``arrays``; None without any.

        Where ``systems`` are named, only their scores are read.
        """
        start = kind + _PREFIX
        names = [name.removeprefix(start) for name in arrays if name.startswith(start)]
        if "claims" not in names:
            return None
        prefixes: dict[int, dict[str, Array]] = {}
        for name in names:
            frames, _, system = name.removeprefix(_BEGINNING).partition(".")
            if name.startswith(_BEGINNING) and (systems is None or system in systems):
                prefixes.setdefault(int(frames), {})[system] = arrays[start + name]
        scored = [name.removeprefix(_SCORE) for name in names if name.startswith(_SCORE)]
        wanted = scored if systems is None else [system for system in systems if system in scored]
        scores = {system: arrays[start + _SCORE + system] for system in wanted}
        return cls(scores=scores, prefixes=prefixes, **{name: arrays[start + name] for name in COLUMNS})

    def as_arrays(self, *, kind: str = RECORDED) -> dict[str, NDArray[Any]]:
        """Return the arrays that ``from_arrays`` reads."""
        start = kind + _PREFIX
        arrays: dict[str, NDArray[Any]] = {start + name: getattr(self, name) for name in COLUMNS}
        arrays |= {f"{start}{_SCORE}{name}": scores for name, scores in self.scores.items()}
        for frames, by_system in self.prefixes.items():
            arrays |= {f"{start}{_BEGINNING}{frames}.{name}": scores for name, scores in by_system.items()}
        return arrays

    @classmethod
    def joined(cls, parts: Sequence[HeldOutTrials]) -> HeldOutTrials:
        """Join ``parts``, at least one; a system's scores, of prefixes too, are kept only if all parts have them."""
        prefixes = {n: _joined([part.prefixes.get(n, {}) for part in parts]) for n in sorted(parts[0].prefixes)}
        return cls(
            scores=_joined([part.scores for part in parts]),
            prefixes={frames: scores for frames, scores in prefixes.items() if scores},
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS},
        )

    def after(self, before: HeldOutTrials | None) -> HeldOutTrials:
        """Return these trials, after those ``before`` them if there are any, as ``joined`` does."""
        return self if before is None else HeldOutTrials.joined([before, self])

    def without(self, *speakers: int) -> HeldOutTrials:
        """Return the trials that have none of these ids as speaker or as claim."""
        ids = np.array(speakers, dtype=np.uint64)
        return self.where(~np.isin(self.claims, ids) & ~np.isin(self.speakers, ids))

    def renumbered(self, ids: Mapping[int, int]) -> HeldOutTrials:
        """Return the trials with speakers' old ids replaced by the new ones that ``ids`` maps them to."""
        claims, speakers = (
            np.array([ids.get(one, one) for one in column.tolist()], dtype=np.uint64)
            for column in (self.claims, self.speakers)
        )
        return replace(self, claims=claims, speakers=speakers)

    def in_cohorts(self, size: int) -> HeldOutTrials:
        """Return the trials as seen by rules that judge a claim among at most ``size`` speakers."""
        return replace(self, population=np.minimum(self.population, size))

    def comparable(self, population: int) -> HeldOutTrials:
        """Return the trials scored among at least half of ``population`` speakers, or all trials if there are none.

        Trials with a cohort are never comparable with trials without one. Mean log posteriors are shifted to be as far
        from chance, log(1 / ``population``), as they were from chance among the speakers enrolled at the time.
        """
        recent = self.population >= COMPARABLE_SHARE * population
        if population > 1:
            recent &= self.population > 1
        kept = self.where(recent) if recent.any() else self
        shifts = np.log(kept.population / population)
        shares = {name for name, rule in RULES.items() if rule.alone == "log"}
        return kept._mapped(lambda name, its: its + shifts if name in shares else its)

    def _mapped(self, change: Callable[[str, Array], Array], **columns: NDArray[Any]) -> HeldOutTrials:
        """Return the trials after ``change`` of the scores (n,) by each system, and of those of prefixes."""
        prefixes = {
            frames: {name: change(name, its) for name, its in scores.items()}
            for frames, scores in self.prefixes.items()
        }
        scores = {name: change(name, its) for name, its in self.scores.items()}
        return replace(self, scores=scores, prefixes=prefixes, **columns)

    def expected(self, unknown_share: float) -> HeldOutTrials:
        """Return the trials without impostors of an origin whose assumed share is 0; all if no impostor is left."""
        left_out = np.zeros(len(self), dtype=bool)
        if unknown_share in (0.0, 1.0):
            left_out = ~self.is_target & (self.unknown == (unknown_share == 0.0))
        return self.where(~left_out) if (~left_out & ~self.is_target).any() else self

    def at_every_length(self, system: str) -> HeldOutTrials:
        """Return every prefix of every trial as a trial of its own, and the whole trials, with scores by ``system``.

        Raises MetricError if neither ``system`` nor the systems that it sums scored any prefixes.
        """
        parts = self.parts_of(system)
        lengths = [(scores, n) for n, scores in sorted(self.prefixes.items()) if set(parts) <= scores.keys()]
        if not lengths:
            raise MetricError(
                f"sequential test: the store holds no held-out scores of prefixes by {system!r}; they are kept for the"
                " system that scoring.system names at enrollment"
            )
        prefixes = [
            replace(self, scores=_picked(scores, parts), frames=np.minimum(n, self.frames), prefixes={})
            for scores, n in lengths
        ]
        whole = replace(self, scores=_picked(self.scores, parts), prefixes={})
        return HeldOutTrials.joined([*prefixes, whole])

    def ratios(self, calibration: SystemCalibration) -> Array:
        """Return the log-likelihood ratios (n,) of the trials, in nats, with the shifts of their claimants."""
        return calibration.llr(self.scores, self.frames.astype(np.float64), self.claims.tolist())

    def distances(self) -> tuple[Array, Array]:
        """Return the distance from enrollment speech, and the frames, of every utterance and each of its prefixes."""
        own = self.where(self.is_target)  # each utterance once
        lengths = [(own.scores, own.frames)]
        lengths += [(scores, np.minimum(frames, own.frames)) for frames, scores in sorted(own.prefixes.items())]
        known: list[tuple[Array, Array]] = [(np.empty(0), np.empty(0))]
        known += [(scores[DISTANCE], frames.astype(np.float64)) for scores, frames in lengths if DISTANCE in scores]
        distances, frames = map(np.concatenate, zip(*known, strict=True))
        return distances, frames

    def parts_of(self, system: str) -> tuple[str, ...]:
        """Return the systems that ``system`` sums and that scored these trials; itself if it is not a sum."""
        return RULES[system].parts_among(self.scores) or (system,)

    def where(self, kept: NDArray[np.bool_]) -> HeldOutTrials:
        """Return the trials that are True in ``kept`` (n,)."""
        return self._mapped(lambda _, its: its[kept], **{name: getattr(self, name)[kept] for name in COLUMNS})


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the scores of the systems that all ``parts`` have, one part after another."""
    common = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part[name] for part in parts]) for name in common}


def _picked(scores: Mapping[str, Array], systems: Sequence[str]) -> dict[str, Array]:
    """Return the scores of ``systems``, and the side information that goes with them."""
    return {name: scores[name] for name in (*systems, *SIDE_INFORMATION) if name in scores}
