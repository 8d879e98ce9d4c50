"""Utterance scores to log-likelihood ratios: regularised logistic calibration, of one score or of several together.

The log-likelihood ratio is an increasing linear function of the scores and of the log of the amount of speech. Its
weights minimise the prior-weighted logistic loss (Brummer and du Preez, Application-independent evaluation of speaker
detection, 2006, section 6) over held-out trials, plus a penalty that keeps them finite where the trials are separable:
n targets support odds of the order of n to one at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MetricError
from pipeline.scoring.rules import RULES

Array = NDArray[np.float64]

# Penalty on the squared weights, for trials that are all of different utterances.
PENALTY = 0.05

# Penalty on the single weight of a sum of scores: against enrolled impostors, who are among the held-out trials, and
# against unknown impostors, whom these only approximate.
ENROLLED_PENALTY, UNKNOWN_PENALTY = 0.003, 0.03

# Bound of a mean of posteriors, from 0 and from 1: log-odds beyond it would dominate the other scores.
SHARE_FLOOR = 1e-4


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
        """Return log-likelihood ratios, in nats, of ``scores``, of one shape each, over ``frames`` of speech.

        Scores may be scalars: arrays of one number, in a stream, take twice as long.
        """
        return self.of_linked([linked(system, scores[system]) for system in self.systems], frames)

    def of_linked(self, values: Sequence[Array], frames: Array | float) -> Array:
        """Return ratios of scores that are ``linked`` already, in the order of ``systems``."""
        total: Array = self.offset + self.duration * np.log(frames / self.usual_frames)
        for value, weight in zip(values, self.weights, strict=True):
            total = total + weight * value
        return total


@dataclass(frozen=True)
class MixtureCalibration:
    """The ratio against impostors of several kinds, each with a calibration of its own in ``kinds``.

    Nontarget trials of kind k make up ``shares[k]`` of all (they sum to 1), so the likelihood of a score under the
    nontarget hypothesis is the weighted mean of the kinds' likelihoods: 1 / LR = sum of shares[k] / LR_k.
    """

    kinds: tuple[LogisticCalibration, ...]
    shares: tuple[float, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems whose scores are read."""
        return self.kinds[0].systems

    def llr(self, scores: Mapping[str, Array], frames: Array | float) -> Array:
        """See LogisticCalibration.llr. Rises with every score, as each kind's ratio does."""
        values = [linked(system, scores[system]) for system in self.systems]
        against = [
            np.log(share) - kind.of_linked(values, frames) for kind, share in zip(self.kinds, self.shares, strict=True)
        ]
        inverse: Array = reduce(np.logaddexp, against)
        return -inverse


@dataclass(frozen=True)
class StackedCalibration:
    """The ratio of ``system``, a sum of others: ``weights`` is the fusion, and ``ratio`` calibrates its output.

    Fusing several scores and calibrating one need different trials and penalties.
    """

    system: str
    weights: Calibration
    ratio: Calibration

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems whose scores are read."""
        return self.weights.systems

    def llr(self, scores: Mapping[str, Array], frames: Array | float) -> Array:
        """See LogisticCalibration.llr."""
        return self.ratio.llr({self.system: self.weights.llr(scores, frames)}, frames)


Calibration = LogisticCalibration | MixtureCalibration | StackedCalibration
"""A map from the scores of one system, or of several, to log-likelihood ratios."""


def linked(system: str, scores: Array) -> Array:
    """Return ``scores`` of ``system`` on an unbounded scale: log-odds of shares and means, others unchanged."""
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
    """Return the calibration fitted to n held-out trials.

    Parameters
    ----------
    systems, scores
        Names of systems, and scores (n,) by name.
    frames, target
        Frames of speech (n,), and True for target trials (n,).
    prior
        Of a target, in (0, 1): the region of scores where the fit matters most.
    penalty
        On the squared weights of scores in units of their spread, divided by the number of targets.

    Raises MetricError without trials of both classes.
    """
    hits = int(target.sum())
    if hits == 0 or hits == len(target):
        raise MetricError(
            "calibration: log-likelihood ratios need held-out trials of both classes, got"
            f" {hits} target and {len(target) - hits} nontarget ones; enroll more speakers"
        )
    usual = float(np.exp(np.log(frames).mean()))
    columns = np.stack([linked(system, scores[system]) for system in systems], axis=1)
    spread, centre = np.maximum(columns.std(axis=0), 1e-9), columns.mean(axis=0)
    design = np.column_stack([(columns - centre) / spread, np.log(frames / usual), np.ones(len(frames))])
    weight = np.where(target, prior / hits, (1.0 - prior) / (len(target) - hits))
    penalties = np.r_[np.full(len(systems) + 1, penalty / hits), 0.0]
    log_odds = np.log(prior / (1.0 - prior))
    solution = logistic_weights(design, target, weight, log_odds, penalties, positive=len(systems))
    weights = solution[:-2] / spread
    return LogisticCalibration(
        tuple(systems), weights, float(solution[-1] - weights @ centre), float(solution[-2]), usual
    )


def logistic_weights(
    design: Array,
    target: NDArray[np.bool_],
    weight: Array,
    offset: Array | float,
    penalties: Array,
    *,
    positive: int,
) -> Array:
    """Return the weights (d,) w that minimise a penalised, weighted logistic loss, the first ``positive`` of them >= 0.

    The loss is the sum of ``weight`` log(1 + exp(-s (``design`` w + ``offset``))) + half the sum of ``penalties`` w^2,
    over trials (n,) with s = 1 for ``target``, else -1.
    """
    from scipy.optimize import minimize  # slow to import

    sign = np.where(target, 1.0, -1.0)

    def loss(w: Array) -> tuple[float, Array]:
        margin = sign * (design @ w + offset)
        # d/dm log(1 + exp(-m)) = -s(-m), by tanh free of overflow.
        slope = weight * sign * (0.5 * np.tanh(0.5 * margin) - 0.5)
        value = weight @ np.logaddexp(0.0, -margin) + 0.5 * penalties @ (w * w)
        return float(value), design.T @ slope + penalties * w

    bounds = [(0.0, None)] * positive + [(None, None)] * (design.shape[1] - positive)
    start = np.repeat([1.0, 0.0], [positive, design.shape[1] - positive])
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 30}
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)
