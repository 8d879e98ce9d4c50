"""Held-out trials of a store and the thresholds they give.

A held-out trial is an utterance that the machines scoring it had not been trained on, claimed for one speaker. Only
scores are kept, no voice data. Populations grow and shrink after the trials were scored, so:

- A mean log posterior is measured against that of chance, 1 / N, with the N of its time.
- Trials scored among fewer than half of today's speakers are left out as soon as there are better ones.
- Each trial is also scored by the one-class machine alone, for the day when nobody else is enrolled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MetricError
from pipeline.evaluation import equal_error_rate, threshold_at_false_accept
from pipeline.posteriors.coupling import RULES

Array = NDArray[np.float64]

# A population is much smaller when it had fewer than this share of today's speakers.
COMPARABLE_SHARE = 0.5

# Scores by the one-class machine alone are kept under this and the unit of the rules they stand in for.
ALONE = "alone."

SMALLEST_SHARE = float(np.nextafter(0.0, 1.0))


@dataclass(frozen=True)
class HeldOutTrials:
    """n trials: ``claims`` and ``speakers`` (n,) ids, ``population`` (n,) its size then, ``scores`` (n,) a system."""

    claims: NDArray[np.uint64]
    speakers: NDArray[np.uint64]
    population: NDArray[np.int64]
    scores: dict[str, Array]

    def __len__(self) -> int:
        return len(self.claims)

    def followed_by(self, later: HeldOutTrials) -> HeldOutTrials:
        """These trials and then ``later`` ones, which must hold the same systems."""
        return HeldOutTrials(
            np.concatenate((self.claims, later.claims)),
            np.concatenate((self.speakers, later.speakers)),
            np.concatenate((self.population, later.population)),
            {name: np.concatenate((scores, later.scores[name])) for name, scores in self.scores.items()},
        )

    def without(self, speaker: int) -> HeldOutTrials:
        """The trials that one speaker neither spoke nor was claimed in."""
        return self._where((self.claims != speaker) & (self.speakers != speaker))

    def comparable(self, population: int) -> HeldOutTrials:
        """The trials scored among at least half of ``population`` speakers, all of them if there are none.

        Among rivals and without any are never comparable.
        """
        recent = self.population >= COMPARABLE_SHARE * population
        if population > 1:
            recent &= self.population > 1
        return self._where(recent) if recent.any() else self

    def threshold(self, system: str, *, population: int, false_accept: float | None = None) -> float:
        """Threshold of ``system`` for ``population`` speakers from these trials.

        At the equal error rate, or for a false-accept rate. Without nontarget trials (one speaker enrolled) the
        lowest target score, which accepts every held-out utterance. Where a score counts frames, none at all is never
        enough. Raises MetricError where the trials cannot say.
        """
        rule = RULES.get(system)
        key = system if rule is None or population > 1 else f"{ALONE}{rule.alone}"
        if rule is None or key not in self.scores:
            raise MetricError(f"threshold: the store holds no held-out scores of system {system!r}")
        if population == 1:
            return _threshold(self.scores[key], self.claims == self.speakers, false_accept)
        trials = self.comparable(population)
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
