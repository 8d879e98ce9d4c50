"""Held-out trials of a speaker model, and the calibrations and thresholds fitted to them.

A held-out trial is an utterance that the machines scoring it were not trained on, claimed for one speaker. Only scores
are kept, no audio. Populations grow and shrink after the trials were scored, so:

- A mean log posterior is compared with that of chance, 1 / N, with the N of its time.
- Trials scored among fewer than half of today's speakers are left out as soon as there are better ones.
- Each trial is also scored by the one-class machine alone, for the day when nobody else is enrolled.
- A nontarget trial is scored twice: with its speaker in the cohort, and as by an unknown impostor, left out of the
  supervector machines and of the cohort. Rules that share a posterior among all (BOAR to RPOAO) score both alike.
- The default system also scores prefixes of each trial, for sequential decisions.

Trials of the user's own, of files that nobody was enrolled with, are kept beside them in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MetricError
from pipeline.metrics import equal_error_rate, threshold_at_false_accept
from pipeline.scoring.calibration import (
    ENROLLED_PENALTY,
    PENALTY,
    UNKNOWN_PENALTY,
    Fits,
    LogisticCalibration,
    Origin,
    SystemCalibration,
    fit_calibration,
    mixed,
)
from pipeline.scoring.conditions import CONDITION, DISTANCE, SIDE_INFORMATION, DistanceLimit
from pipeline.scoring.rules import RULES
from pipeline.scoring.typical import Typicality

Array = NDArray[np.float64]
# A population is much smaller when it had fewer than this share of today's speakers.
COMPARABLE_SHARE = 0.5

# Scores by the one-class machine alone are kept under this and the unit of the rules that they stand in for.
ALONE = "alone."

SMALLEST_SHARE = float(np.nextafter(0.0, 1.0))

# Trials of augmented versions, and those of the user's own, are kept under names that begin with these.
CHANGED, OWN = "changed.", "own."
KEPT = ("", CHANGED, OWN)

# Prior of a target trial in fits: where ratios must be right, above all, is where false accepts are rare.
FIT_PRIOR = 0.05

# Background models were trained on the unknown impostors of held-out trials. Scores of people on whom they were not
# trained spread more widely: about 1 + 6 / (10 + N) times so, with N speakers enrolled.
SPREAD, SPREAD_SPEAKERS = 6.0, 10.0

# Probability that an utterance is of a changed condition, before its audio says more.
CHANGED_PRIOR = 0.5

# The speaker of a trial by somebody who is not enrolled: speakers' ids are smaller.
NOBODY = 2**63

_PREFIX, _SCORE, _BEGINNING = "trials.", "score.", "prefix."
_COLUMNS = ("claims", "speakers", "population", "frames", "unknown")


@dataclass(frozen=True)
class HeldOutTrials:
    """n trials: ``claims`` and ``speakers`` (n,) ids, ``population`` (n,) its size then, ``scores`` (n,) a system.

    ``frames`` (n,) of speech were scored; ``unknown`` (n,) marks nontarget trials whose speaker was left out.
    ``prefixes`` hold, by a number of frames, scores (n,) a system of the prefix of that length of each trial, or of
    all it has where it has fewer; of the default system, or of those it sums.
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
    def has_both_classes(self) -> bool:
        """Return True where there are target and nontarget trials."""
        return 0 < int(np.count_nonzero(self.claims == self.speakers)) < len(self)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], systems: Sequence[str] | None = None, *, before: str = ""
    ) -> Self | None:
        """Read the trials among a model's shared ``arrays``, of ``systems`` only where named; None without any.

        Their names begin with ``before``.
        """
        start = before + _PREFIX
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
        return cls(scores=scores, prefixes=prefixes, **{name: arrays[start + name] for name in _COLUMNS})

    def as_arrays(self, *, before: str = "") -> dict[str, NDArray[Any]]:
        """Return the arrays that ``from_arrays`` reads."""
        start = before + _PREFIX
        arrays: dict[str, NDArray[Any]] = {start + name: getattr(self, name) for name in _COLUMNS}
        arrays |= {f"{start}{_SCORE}{name}": scores for name, scores in self.scores.items()}
        for frames, by_system in self.prefixes.items():
            arrays |= {f"{start}{_BEGINNING}{frames}.{name}": scores for name, scores in by_system.items()}
        return arrays

    @classmethod
    def joined(cls, parts: Sequence[HeldOutTrials]) -> HeldOutTrials:
        """Join ``parts``, at least one; scores of a system, and of prefixes by it, stay where all parts have them."""
        systems = [name for name in parts[0].scores if all(name in part.scores for part in parts)]
        kept = {
            (frames, name)
            for frames, scores in parts[0].prefixes.items()
            for name in scores
            if all(name in part.prefixes.get(frames, ()) for part in parts)
        }
        return cls(
            scores={name: np.concatenate([part.scores[name] for part in parts]) for name in systems},
            prefixes={
                frames: {
                    name: np.concatenate([part.prefixes[frames][name] for part in parts])
                    for name in parts[0].prefixes[frames]
                    if (frames, name) in kept
                }
                for frames in sorted({frames for frames, _ in kept})
            },
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS},
        )

    def without(self, *speakers: int) -> HeldOutTrials:
        """Return the trials in which nobody with one of these ids is the speaker or the claim."""
        ids = np.array(speakers, dtype=np.uint64)
        return self.where(~np.isin(self.claims, ids) & ~np.isin(self.speakers, ids))

    def renumbered(self, ids: Mapping[int, int]) -> HeldOutTrials:
        """Return the trials with the new ids of speakers in place of the old ones that ``ids`` maps to them."""
        claims, speakers = (
            np.array([ids.get(one, one) for one in column.tolist()], dtype=np.uint64)
            for column in (self.claims, self.speakers)
        )
        return replace(self, claims=claims, speakers=speakers)

    def in_cohorts(self, size: int) -> HeldOutTrials:
        """Return the trials as rules count them that judge a claim among at most ``size`` speakers."""
        return replace(self, population=np.minimum(self.population, size))

    def comparable(self, population: int) -> HeldOutTrials:
        """Return the trials scored among at least half of ``population`` speakers, all of them if there are none.

        Trials with a cohort and without any are never comparable.
        """
        recent = self.population >= COMPARABLE_SHARE * population
        if population > 1:
            recent &= self.population > 1
        return self.where(recent) if recent.any() else self

    def expected(self, unknown_share: float) -> HeldOutTrials:
        """Return the trials without impostors of an origin that makes up none of them; all if that leaves none."""
        own = self.claims == self.speakers
        kept = own | (~self.unknown if unknown_share == 0.0 else self.unknown if unknown_share == 1.0 else ~own)
        return self.where(kept) if (kept & ~own).any() else self

    def at_every_length(self, system: str) -> HeldOutTrials:
        """Return every prefix of every trial as a trial of its own, and the whole ones, as ``system`` scored them.

        Raises MetricError where no prefixes were scored by it, or by the systems that it sums.
        """
        parts = self._parts(system)
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

    def calibration(self, system: str, *, prior: float = FIT_PRIOR, times: int = 1) -> SystemCalibration:
        """Fit the log-likelihood ratio of ``system``, or of the sum that it is; raises MetricError.

        Once against enrolled impostors and once against unknown ones. A sum is weighted once, for both alike, and its
        ratio is then fitted as that of any score. Every utterance is among the trials ``times`` times.
        """
        parts = self._parts(system)
        if missing := [name for name in parts if name not in self.scores]:
            raise MetricError(f"calibration: the store holds no held-out scores of {', '.join(missing)}")
        alike = (times * PENALTY, times * PENALTY)
        if parts == (system,):
            return SystemCalibration(system, self._fits(parts, prior, alike))
        weights = self._fits(parts, prior, alike)
        sums = mixed(weights, 0.5).llr(self.scores, self.frames.astype(np.float64))
        summed = replace(self, scores={system: self._as_unknown(sums)}, prefixes={})
        penalties = (times * ENROLLED_PENALTY, times * UNKNOWN_PENALTY)
        return SystemCalibration(system, summed._fits((system,), prior, penalties), weights)

    def ratios(self, calibration: SystemCalibration) -> Array:
        """Return the log-likelihood ratios (n,) of the trials, in nats, shifted as those of their claimants."""
        return calibration.llr(self.scores, self.frames.astype(np.float64), self.claims.tolist())

    def shifted(self, calibration: SystemCalibration, typical: Typicality) -> SystemCalibration:
        """Return the ``calibration`` with shifts by what is ``typical`` of each claimant's target trials."""
        own = self.where(self.claims == self.speakers)
        return replace(calibration, shifts=typical.shifts(own.ratios(calibration), own.claims))

    def distances(self) -> tuple[Array, Array]:
        """Return distances from enrollment speech, and frames, of every utterance and of its prefixes."""
        own = self.where(self.claims == self.speakers)  # each utterance once
        lengths = [(own.scores, own.frames)]
        lengths += [(scores, np.minimum(frames, own.frames)) for frames, scores in sorted(own.prefixes.items())]
        known: list[tuple[Array, Array]] = [(np.empty(0), np.empty(0))]
        known += [(scores[DISTANCE], frames.astype(np.float64)) for scores, frames in lengths if DISTANCE in scores]
        distances, frames = map(np.concatenate, zip(*known, strict=True))
        return distances, frames

    def condition_calibration(self, changed: HeldOutTrials, *, times: int = 1) -> LogisticCalibration:
        """Fit the log-odds of a ``changed`` condition to these utterances, as recorded, and to those trials.

        The classifier is too sure of itself: of each speaker's voice and words it has seen no other recording. Every
        utterance is among the trials ``times`` times. How long they are says nothing: augmented ones are fewer, and so
        shorter.
        """
        target = [trials.where(trials.claims == trials.speakers) for trials in (self, changed)]  # each utterance once
        scores = {CONDITION: np.concatenate([trials.scores[CONDITION] for trials in target])}
        is_changed = np.repeat([False, True], [len(trials) for trials in target])
        frames = np.ones(len(is_changed))
        return fit_calibration((CONDITION,), scores, frames, is_changed, prior=CHANGED_PRIOR, penalty=times * PENALTY)

    def threshold(
        self,
        system: str,
        *,
        population: int,
        calibration: SystemCalibration | None = None,
        false_accept: float | None = None,
        unknown_share: float = 0.5,
    ) -> float:
        """Return the threshold of ``system`` for ``population`` speakers from these trials.

        At the equal error rate over the impostors that are ``expected``, or for a false-accept rate, in which unknown
        impostors count by their share. Where a score counts frames, zero is never enough. A system that sums others
        needs its ``calibration``. Raises MetricError where the trials cannot say, as those of one speaker alone.
        """
        rule = RULES.get(system)
        key = system if rule is None or population > 1 else f"{ALONE}{rule.alone}"
        needed = {key} if rule is None or population == 1 else set(self._parts(system))
        if rule is None or not needed <= self.scores.keys():
            raise MetricError(
                f"threshold: the store holds no held-out scores of system {system!r}; give the threshold itself"
            )
        if population == 1:
            return _threshold(self.scores[key], self.claims == self.speakers, false_accept)
        trials = self.comparable(population).expected(unknown_share)
        own, weights = trials.claims == trials.speakers, trials._by_origin(unknown_share)
        if rule.parts:
            if calibration is None:
                raise MetricError(f"threshold: {system!r} has no calibration; give the threshold itself")
            return _threshold(trials.ratios(calibration), own, false_accept, weights)
        scores = trials.scores[key]
        if rule.alone == "log":
            scores = scores + np.log(trials.population / population)
        threshold = _threshold(scores, own, false_accept, weights)
        return max(threshold, SMALLEST_SHARE) if rule.binary else threshold

    def _by_origin(self, unknown_share: float) -> Array | None:
        """Return weights (n,) by which unknown impostors make up ``unknown_share``; None without both origins."""
        known = (self.claims != self.speakers) & ~self.unknown
        if not known.any() or not self.unknown.any():
            return None
        of_unknown, of_known = unknown_share / self.unknown.sum(), (1.0 - unknown_share) / known.sum()
        return np.asarray(np.where(self.unknown, of_unknown, of_known))

    def _as_unknown(self, scores: Array) -> Array:
        """Return ``scores`` (n,), those of unknown impostors spread as of people whom no UBM was trained on."""
        if not self.unknown.any():
            return scores
        mean, spread = scores[self.unknown].mean(), 1.0 + SPREAD / (SPREAD_SPEAKERS + self.population)
        return np.where(self.unknown, mean + spread * (scores - mean), scores)

    def _fits(self, systems: Sequence[str], prior: float, penalties: tuple[float, float]) -> Fits:
        """Fit once against the impostors of each origin that there are trials of."""
        own = self.claims == self.speakers
        origins: tuple[tuple[Origin, NDArray[np.bool_]], ...] = (
            ("enrolled", ~own & ~self.unknown),
            ("unknown", self.unknown),
        )
        fits: list[tuple[Origin, LogisticCalibration]] = [
            (origin, self.where(own | impostors)._fit(systems, prior, penalty))
            for (origin, impostors), penalty in zip(origins, penalties, strict=True)
            if impostors.any()
        ]
        return tuple(fits) or (("all", self._fit(systems, prior, penalties[0])),)

    def _fit(self, systems: Sequence[str], prior: float, penalty: float) -> LogisticCalibration:
        own, frames = self.claims == self.speakers, self.frames.astype(np.float64)
        return fit_calibration(systems, self.scores, frames, own, prior=prior, penalty=penalty)

    def _parts(self, system: str) -> tuple[str, ...]:
        """Return the systems that ``system`` sums, of those that scored these trials; itself if it sums nothing."""
        return RULES[system].parts_among(self.scores) or (system,)

    def where(self, kept: NDArray[np.bool_]) -> HeldOutTrials:
        """Return the trials that are True in ``kept`` (n,)."""
        return HeldOutTrials(
            scores={name: scores[kept] for name, scores in self.scores.items()},
            prefixes={
                frames: {name: scores[kept] for name, scores in by_system.items()}
                for frames, by_system in self.prefixes.items()
            },
            **{name: getattr(self, name)[kept] for name in _COLUMNS},
        )


def fit_system(
    system: str,
    judged: tuple[HeldOutTrials, int],
    *,
    changed: HeldOutTrials | None,
    typical: Typicality | None = None,
    at_every_length: bool = False,
) -> SystemCalibration | None:
    """Fit the calibration of ``system`` over whole utterances, or over speech of any length; None with too few trials.

    ``judged`` are its trials, and the number of speakers that it judges a claim among. Sums of systems are fitted to
    trials of ``changed`` conditions, too, where there are any. Their ratios over whole utterances are shifted to what
    is ``typical`` of each claimant.
    """
    recorded, population = judged
    is_sum = bool(RULES[system].parts)
    conditions = [recorded]
    if is_sum and changed is not None and changed.has_both_classes:
        conditions.append(changed)
    # One utterance at several lengths counts as one.
    times = 1 + len(recorded.prefixes) * at_every_length
    if population == 1:
        return None
    try:
        trials = [one.comparable(population) for one in conditions]
        trials = [one.at_every_length(system) for one in trials] if at_every_length else trials
        made, *others = (one.calibration(system, times=times) for one in trials)
        distances, frames = map(np.concatenate, zip(*(one.distances() for one in conditions), strict=True))
        limit = DistanceLimit.of(distances, frames) if is_sum and len(distances) else None
        if is_sum and typical is not None and not at_every_length:
            made, *others = (one.shifted(fit, typical) for one, fit in zip(trials, (made, *others), strict=True))
        made = replace(made, limit=limit)
        for other in others:
            made = replace(made, changed=other, condition=trials[0].condition_calibration(trials[1], times=times))
    except MetricError:
        return None  # reading this calibration is an error that says so
    return made


def _picked(scores: Mapping[str, Array], systems: Sequence[str]) -> dict[str, Array]:
    """Return the scores of ``systems``, and the side information that goes with them."""
    return {name: scores[name] for name in (*systems, *SIDE_INFORMATION) if name in scores}


def _threshold(
    scores: Array, own: NDArray[np.bool_], false_accept: float | None, weights: Array | None = None
) -> float:
    target, nontarget = scores[own], scores[~own]
    if false_accept is None and target.size == 0:
        raise MetricError("threshold: the store holds no held-out utterances; give the threshold itself")
    if nontarget.size == 0:
        raise MetricError(
            "threshold: there are no held-out utterances of other speakers to reject; enroll more speakers, or"
            " give the threshold itself"
        )
    if false_accept is not None:
        return threshold_at_false_accept(nontarget, false_accept, weights=None if weights is None else weights[~own])
    return equal_error_rate(target, nontarget).threshold
