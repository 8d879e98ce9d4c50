"""Utterance scores to log-likelihood ratios: regularised logistic calibration, of one score or of several together.

The log-likelihood ratio is an increasing linear function of the scores and of the log of the amount of speech. Its
weights minimise the prior-weighted logistic loss (Brummer and du Preez, Application-independent evaluation of speaker
detection, 2006, section 6) over held-out trials, plus a penalty that keeps them finite where the trials are separated
without an error: n targets cannot vouch for more than odds of the order of n to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MetricError
from pipeline.posteriors.coupling import RULES
from pipeline.posteriors.regression import logistic_weights

Array = NDArray[np.float64]

# Of the squared weights, for trials that are all of different utterances.
PENALTY = 0.05

# Of the one weight of a sum of scores: against rivals, whom the held-out trials know, and against outsiders, whom they
# can only stand in for.
RIVALS_PENALTY, OUTSIDERS_PENALTY = 0.003, 0.03

# A mean of posteriors this close to 0 or 1 is taken for no closer: its log-odds would swamp the other scores.
SHARE_FLOOR = 1e-4


class Calibration(Protocol):
    """Scores of one system, or of several together, to log-likelihood ratios."""

    @property
    def systems(self) -> tuple[str, ...]:
        """Systems whose scores are read."""

    def llr(self, scores: Mapping[str, Array], frames: Array | float) -> Array:
        """Log-likelihood ratios, in nats, of ``scores``, arrays of one shape by system, over ``frames`` of speech.

        Or of numbers, for a number: of one score, as a stream brings it, arrays of one take twice as long.
        """


@dataclass(frozen=True)
class LogisticCalibration:
    """LLR = offset + sum of weights * linked scores of ``systems`` + duration * log(frames / ``usual_frames``).

    ``weights`` (S,), none negative, apply to the scores after ``linked``. Natural logs throughout.
    """

    systems: tuple[str, ...]
    weights: Array
    offset: float
    duration: float
    usual_frames: float

    def llr(self, scores: Mapping[str, Array], frames: Array | float) -> Array:
        """See Calibration."""
        return self.of_linked([linked(system, scores[system]) for system in self.systems], frames)

    def of_linked(self, values: Sequence[Array], frames: Array | float) -> Array:
        """The same of scores that are ``linked`` already, in the order of ``systems``."""
        total: Array = self.offset + self.duration * np.log(frames / self.usual_frames)
        for value, weight in zip(values, self.weights, strict=True):
            total = total + weight * value
        return total


@dataclass(frozen=True)
class MixtureCalibration:
    """The ratio against false claims of several origins, each of which has a calibration of its own in ``kinds``.

    False claims of origin k make up ``shares[k]`` of all (they sum to 1), so the likelihood of a score under a false
    claim is the mean of the origins' likelihoods, and 1 / LR = sum of shares[k] / LR_k.
    """

    kinds: tuple[LogisticCalibration, ...]
    shares: tuple[float, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        """Systems whose scores are read."""
        return self.kinds[0].systems

    def llr(self, scores: Mapping[str, Array], frames: Array | float) -> Array:
        """See Calibration. Rises with every score, as each origin's ratio does."""
        values = [linked(system, scores[system]) for system in self.systems]
        against = [
            np.log(share) - kind.of_linked(values, frames) for kind, share in zip(self.kinds, self.shares, strict=True)
        ]
        inverse: Array = reduce(np.logaddexp, against)
        return -inverse


@dataclass(frozen=True)
class StackedCalibration:
    """The ratio of ``system``, a sum of others: ``weights`` make the sum, and ``ratio`` the log-likelihood ratio of it.

    Weighing several scores and putting one on a scale ask for different trials and different caution.
    """

    system: str
    weights: Calibration
    ratio: Calibration

    @property
    def systems(self) -> tuple[str, ...]:
        """Systems whose scores are read."""
        return self.weights.systems

    def llr(self, scores: Mapping[str, Array], frames: Array | float) -> Array:
        """See Calibration."""
        return self.ratio.llr({self.system: self.weights.llr(scores, frames)}, frames)


def linked(system: str, scores: Array) -> Array:
    """``scores`` of ``system`` on a scale that runs without bounds: log-odds of shares and means, else as they are."""
    top = RULES[system].top
    if top is None:
        return scores
    share = np.minimum(np.maximum(scores / top, SHARE_FLOOR), 1.0 - SHARE_FLOOR)
    log_odds: Array = np.log(share) - np.log1p(-share)
    return log_odds


def fit_calibration(
    systems: Sequence[str],
    scores: Mapping[str, Array],
    frames: Array,
    target: NDArray[np.bool_],
    *,
    prior: float,
    penalty: float = PENALTY,
) -> LogisticCalibration:
    """Fit to n held-out trials: ``scores`` (n,) by system, ``frames`` (n,) of speech, ``target`` (n,).

    ``prior`` of a target, in (0, 1), says where on the scale the fit matters most. ``penalty`` on the squared weights
    of scores in units of their spread, divided by the number of targets. Raises MetricError without trials of both
    classes.
    """
    hits = int(target.sum())
    if hits == 0 or hits == len(target):
        raise MetricError(
            "calibration: log-likelihood ratios need held-out trials of both classes, got"
            f" {hits} target and {len(target) - hits} nontarget ones; enroll more speakers"
        )
    usual = float(np.exp(np.log(frames).mean()))
    columns = [linked(system, scores[system]) for system in systems]
    spread = np.array([max(float(np.std(column)), 1e-9) for column in columns])
    centre = np.array([float(np.mean(column)) for column in columns])
    design = np.stack(
        [(c - m) / s for c, m, s in zip(columns, centre, spread, strict=True)]
        + [np.log(frames / usual), np.ones(len(frames))],
        axis=1,
    )
    weight = np.where(target, prior / hits, (1.0 - prior) / (len(target) - hits))
    penalties = np.r_[np.full(design.shape[1] - 1, penalty / hits), 0.0]
    log_odds = np.full(len(frames), np.log(prior / (1.0 - prior)))
    found = logistic_weights(design, target, weight, log_odds, penalties, positive=len(columns))
    weights = found[:-2] / spread
    return LogisticCalibration(tuple(systems), weights, float(found[-1] - weights @ centre), float(found[-2]), usual)
