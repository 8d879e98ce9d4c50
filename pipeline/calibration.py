"""Held-out trials of a store and the thresholds they give.

A held-out trial is an utterance that the machines scoring it had not been trained on, claimed for one speaker. Only
scores are kept, no voice data. Populations grow and shrink after the trials were scored, so:

- A mean log posterior is measured against that of chance, 1 / N, with the N of its time.
- Trials scored among fewer than half of today's speakers are left out as soon as there are better ones.
- Each trial is also scored by the one-class machine alone, for the day when nobody else is enrolled.
- A false claim is scored twice: with its speaker among the rivals, and as by an outsider, left out of the
  segment machines and of the rivals. Rules that share a posterior among all (BOAR to RPOAO) score both alike.
- The default system also scores the beginnings of each trial, for decisions that cannot wait for all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MetricError
from pipeline.evaluation import equal_error_rate, threshold_at_false_accept
from pipeline.posteriors.calibrated import (
    OUTSIDERS_PENALTY,
    PENALTY,
    RIVALS_PENALTY,
    Calibration,
    LogisticCalibration,
    MixtureCalibration,
    StackedCalibration,
    fit_calibration,
)
from pipeline.posteriors.coupling import RULES

Array = NDArray[np.float64]

# A population is much smaller when it had fewer than this share of today's speakers.
COMPARABLE_SHARE = 0.5

# Scores by the one-class machine alone are kept under this and the unit of the rules they stand in for.
ALONE = "alone."

SMALLEST_SHARE = float(np.nextafter(0.0, 1.0))


@dataclass(frozen=True)
class HeldOutTrials:
    """n trials: ``claims`` and ``speakers`` (n,) ids, ``population`` (n,) its size then, ``scores`` (n,) a system.

    ``frames`` (n,) of speech were scored; ``outsider`` (n,) marks false claims whose speaker was left out.
    ``beginnings`` hold, by a number of frames, scores (n,) a system of that many frames of each trial, or of all it has
    where it has fewer; of the default system, or of those it sums, and none in stores from before they were kept.
    """

    claims: NDArray[np.uint64]
    speakers: NDArray[np.uint64]
    population: NDArray[np.int64]
    scores: dict[str, Array]
    frames: NDArray[np.int64]
    outsider: NDArray[np.bool_]
    beginnings: Mapping[int, Mapping[str, Array]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.claims)

    @classmethod
    def joined(cls, parts: Sequence[HeldOutTrials]) -> HeldOutTrials:
        """The trials of all ``parts``, at least one, which must hold the same systems.

        Beginnings stay where all the parts have them.
        """
        kept = {
            (frames, name)
            for frames, scores in parts[0].beginnings.items()
            for name in scores
            if all(name in part.beginnings.get(frames, ()) for part in parts)
        }
        return cls(
            np.concatenate([part.claims for part in parts]),
            np.concatenate([part.speakers for part in parts]),
            np.concatenate([part.population for part in parts]),
            {name: np.concatenate([part.scores[name] for part in parts]) for name in parts[0].scores},
            np.concatenate([part.frames for part in parts]),
            np.concatenate([part.outsider for part in parts]),
            {
                frames: {
                    name: np.concatenate([part.beginnings[frames][name] for part in parts])
                    for name in parts[0].beginnings[frames]
                    if (frames, name) in kept
                }
                for frames in sorted({frames for frames, _ in kept})
            },
        )

    def without(self, speaker: int) -> HeldOutTrials:
        """The trials that one speaker neither spoke nor was claimed in."""
        return self._where((self.claims != speaker) & (self.speakers != speaker))

    def in_panels(self, most: int) -> HeldOutTrials:
        """The trials as rules see them that judge a claim among at most so many speakers."""
        return replace(self, population=np.minimum(self.population, most))

    def comparable(self, population: int) -> HeldOutTrials:
        """The trials scored among at least half of ``population`` speakers, all of them if there are none.

        Among rivals and without any are never comparable.
        """
        recent = self.population >= COMPARABLE_SHARE * population
        if population > 1:
            recent &= self.population > 1
        return self._where(recent) if recent.any() else self

    def at_every_length(self, system: str) -> HeldOutTrials:
        """Every beginning of every trial as a trial of its own, and the whole ones: what ``system`` scored of them.

        Raises MetricError where no beginnings were scored by it, or by the systems it sums.
        """
        parts = self._parts(system)
        heard = [(scores, n) for n, scores in sorted(self.beginnings.items()) if set(parts) <= scores.keys()]
        if not heard:
            raise MetricError(
                f"early decision: the store holds no held-out scores of beginnings of utterances by {system!r}; they"
                " are kept for the system that scoring.system names at enrollment, and were not always: enroll again"
            )
        beginnings = [
            HeldOutTrials(
                self.claims,
                self.speakers,
                self.population,
                {name: scores[name] for name in parts},
                np.minimum(frames, self.frames),
                self.outsider,
            )
            for scores, frames in heard
        ]
        return HeldOutTrials.joined([*beginnings, replace(self, beginnings={})])

    def early_calibration(self, system: str, *, prior: float, outsiders: float = 0.5) -> Calibration:
        """The calibration of ``system`` over speech of any length, from these trials and their beginnings.

        Each length weighs as much as another. See ``calibration``.
        """
        lengths = 1 + len(self.beginnings)
        # One utterance at several lengths vouches for no more than one.
        return self.at_every_length(system).calibration(system, prior=prior, outsiders=outsiders, times=lengths)

    def calibration(self, system: str, *, prior: float, outsiders: float = 0.5, times: int = 1) -> Calibration:
        """Scores of ``system``, or of the systems it sums, to log-likelihood ratios; raises MetricError.

        Fitted to these trials: once to false claims by enrolled speakers, once to those by outsiders, and the ratio is
        that against the mixture of both, of which ``outsiders`` is the share taken to be made by people whom nobody
        enrolled. One kind alone counts where there are no trials of the other. A sum is weighted once, for both kinds
        alike, whatever ``outsiders`` are, and its ratio then found as that of any score. Every utterance is among the
        trials so many ``times``.
        """
        parts = self._parts(system)
        if missing := [name for name in parts if name not in self.scores]:
            raise MetricError(f"calibration: the store holds no held-out scores of {', '.join(missing)}")
        alike = (times * PENALTY, times * PENALTY)
        if parts == (system,):
            return self._mixture(parts, prior, outsiders, alike)
        weights = self._mixture(parts, prior, 0.5, alike)
        sums = weights.llr(self.scores, self.frames.astype(np.float64))
        summed = replace(self, scores={system: sums}, beginnings={})
        cautions = (times * RIVALS_PENALTY, times * OUTSIDERS_PENALTY)
        return StackedCalibration(system, weights, summed._mixture((system,), prior, outsiders, cautions))

    def _mixture(
        self, systems: Sequence[str], prior: float, outsiders: float, penalties: tuple[float, float]
    ) -> Calibration:
        """The ratio against enrolled speakers and outsiders, of one fit each with a penalty of its own."""
        own = self.claims == self.speakers
        claims = (~own & ~self.outsider, self.outsider)
        origins = zip((1.0 - outsiders, outsiders), claims, penalties, strict=True)
        there = [(share, claims, penalty) for share, claims, penalty in origins if claims.any()]
        weighty = [one for one in there if one[0] > 0.0] or there or [(1.0, ~own, penalties[0])]
        kinds = tuple(self._where(own | claims)._against(systems, prior, penalty) for _, claims, penalty in weighty)
        total = sum(share for share, *_ in weighty)
        if len(kinds) == 1:
            return kinds[0]
        return MixtureCalibration(kinds, tuple(share / total for share, *_ in weighty))

    def expected(self, outsiders: float) -> HeldOutTrials:
        """The trials without false claims of a kind that makes up none of those expected; all if that leaves none."""
        own = self.claims == self.speakers
        kept = own | (~self.outsider if outsiders == 0.0 else self.outsider if outsiders == 1.0 else ~own)
        return self._where(kept) if (kept & ~own).any() else self

    def _parts(self, system: str) -> tuple[str, ...]:
        """What ``system`` sums, of what these trials were scored by; itself if it sums nothing."""
        return RULES[system].parts_among(self.scores) or (system,)

    def _against(self, parts: Sequence[str], prior: float, penalty: float) -> LogisticCalibration:
        own, frames = self.claims == self.speakers, self.frames.astype(np.float64)
        return fit_calibration(parts, self.scores, frames, own, prior=prior, penalty=penalty)

    def threshold(
        self,
        system: str,
        *,
        population: int,
        false_accept: float | None = None,
        prior: float = 0.05,
        outsiders: float = 0.5,
    ) -> float:
        """Threshold of ``system`` for ``population`` speakers from these trials.

        At the equal error rate, or for a false-accept rate, over the false claims that are ``expected``. Without any
        (one speaker enrolled) the lowest target score, which accepts every held-out utterance. Where a score counts
        frames, none at all is never enough.
        ``prior`` and ``outsiders`` are those of the calibration of a system that sums others. Raises MetricError where
        the trials cannot say.
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
        comparable = self.comparable(population)
        trials = comparable.expected(outsiders)
        if rule.parts:
            calibration = comparable.calibration(system, prior=prior, outsiders=outsiders)
            llrs = calibration.llr(trials.scores, trials.frames.astype(np.float64))
            return _threshold(llrs, trials.claims == trials.speakers, false_accept)
        scores = trials.scores[key]
        if rule.alone == "log":
            scores = scores + np.log(trials.population / population)
        threshold = _threshold(scores, trials.claims == trials.speakers, false_accept)
        return max(threshold, SMALLEST_SHARE) if rule.binary else threshold

    def _where(self, kept: NDArray[np.bool_]) -> HeldOutTrials:
        return HeldOutTrials(
            self.claims[kept],
            self.speakers[kept],
            self.population[kept],
            {name: scores[kept] for name, scores in self.scores.items()},
            self.frames[kept],
            self.outsider[kept],
            {
                frames: {name: found[kept] for name, found in scores.items()}
                for frames, scores in self.beginnings.items()
            },
        )


def _threshold(scores: Array, own: NDArray[np.bool_], false_accept: float | None) -> float:
    target, nontarget = scores[own], scores[~own]
    if false_accept is not None:
        if nontarget.size == 0:
            raise MetricError(
                "threshold: a false-accept rate needs held-out utterances of other speakers; enroll more speakers or"
                " background speakers, or give the threshold itself"
            )
        return threshold_at_false_accept(nontarget, false_accept)
    if target.size == 0:
        raise MetricError("threshold: the store holds no held-out utterances; give the threshold itself")
    return float(target.min()) if nontarget.size == 0 else equal_error_rate(target, nontarget).threshold
