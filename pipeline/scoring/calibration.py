"""Utterance scores to log-likelihood ratios: regularised logistic calibration, of one score or of several together.

The log-likelihood ratio is an increasing linear function of the scores and of the log of the amount of speech. Its
weights minimise the prior-weighted logistic loss (Brummer and du Preez, Application-independent evaluation of speaker
detection, 2006, section 6) over held-out trials, plus a penalty that keeps them finite where the trials are separable:
n targets support odds of the order of n to one at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MetricError
from pipeline.scoring.conditions import CONDITION, DISTANCE, DistanceLimit
from pipeline.scoring.regression import logistic_weights
from pipeline.scoring.rules import RULES

Array = NDArray[np.float64]

# Penalty on the squared weights, for trials that are all of different utterances.
PENALTY = 0.05

# Penalty on the single weight of a sum of scores: against enrolled impostors, who are among the held-out trials, and
# against unknown impostors, whom these only approximate.
ENROLLED_PENALTY, UNKNOWN_PENALTY = 0.003, 0.03

# Shares and mean posteriors are kept this far from 0 and from 1, or their log-odds would dominate the other scores.
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
        """Return the log-likelihood ratios of scores.

        Parameters
        ----------
        scores : mapping of str to array
            By system, all ``systems`` among them; all of one shape. Scalars are faster than arrays of one number.
        frames : array of that shape, or float
            Speech frames of the utterance, above 0.

        Returns
        -------
        array of that shape
            In nats.
        """
        return self.of_linked([linked(system, scores[system]) for system in self.systems], frames)

    def of_linked(self, values: Sequence[Array], frames: Array | float) -> Array:
        """Return ratios of scores that are ``linked`` already, in the order of ``systems``."""
        total: Array = self.offset + self.duration * np.log(frames / self.usual_frames)
        for value, weight in zip(values, self.weights, strict=True):
            total = total + weight * value
        return total


Origin = Literal["enrolled", "unknown", "all"]
"""Impostors that a fit is against: enrolled or unknown speakers; "all" in the fit of a condition, which has none."""
Fits = tuple[tuple[Origin, LogisticCalibration], ...]
"""Calibrations of one system or sum, each against the impostors of one origin."""


@dataclass(frozen=True)
class MixtureCalibration:
    """The ratio against impostors of several kinds, each with a calibration of its own in ``kinds``.

    A share ``shares[k]`` of nontarget trials is of kind k (they sum to 1), so that the likelihood of a score under the
    nontarget hypothesis is the weighted mean of the kinds' likelihoods: 1 / LR = sum over k of shares[k] / LR_k.
    """

    kinds: tuple[LogisticCalibration, ...]
    shares: tuple[float, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        """Return the systems whose scores are read."""
        return self.kinds[0].systems

    def llr(self, scores: Mapping[str, Array], frames: Array | float) -> Array:
        """Return ratios as ``LogisticCalibration.llr``; they rise with every score, as each kind's do."""
        values = [linked(system, scores[system]) for system in self.systems]
        against = [
            np.log(share) - kind.of_linked(values, frames) for kind, share in zip(self.kinds, self.shares, strict=True)
        ]
        inverse: Array = reduce(np.logaddexp, against)
        return -inverse


@dataclass(frozen=True)
class SystemCalibration:
    """The log-likelihood ratio of one system, by fits to held-out trials against the impostors of each origin.

        LLR = P LLR_recorded + (1 - P) (LLR_changed - U log unfamiliar_impostors) - excess.

    LLR_recorded is the ratio for utterances as recorded; ``ratio`` maps the score to it. For a system that sums others,
    ``weights`` make the sum first, since fusion and calibration need different trials and penalties. LLR_changed is the
    ratio by ``changed``, for a changed condition (``scoring.conditions``); without it, LLR_recorded stands alone. From
    both, the claimant's shift is subtracted (``shifts`` by id; ``scoring.typical``). A share ``unknown_share`` of all
    nontarget trials is by unknown impostors.

    P is the probability that the condition is as recorded: ``condition`` maps the classifier's log-odds of a changed
    one to calibrated log-odds. U is how unfamiliar the condition is, from 0 to 1; an impostor is
    ``unfamiliar_impostors`` times as likely as a claimant to speak under an unfamiliar one. The excess is that of
    the distance from enrollment speech over its ``limit``.
    """

    system: str
    ratio: Fits
    weights: Fits = ()
    unknown_share: float = 0.5
    changed: SystemCalibration | None = None
    condition: LogisticCalibration | None = None
    shifts: Mapping[int, float] = field(default_factory=dict)
    limit: DistanceLimit | None = None
    unfamiliar_impostors: float = 1.0

    def at(self, unknown_share: float, unfamiliar_impostors: float = 1.0) -> Self:
        """Return the same fits under other assumptions about impostors."""
        changed = None if self.changed is None else self.changed.at(unknown_share)
        return replace(self, unknown_share=unknown_share, changed=changed, unfamiliar_impostors=unfamiliar_impostors)

    @property
    def systems(self) -> tuple[str, ...]:
        """Return the systems whose scores are read."""
        read = (self.weights or self.ratio)[0][1].systems
        return read if self.changed is None else tuple(dict.fromkeys(read + self.changed.systems))

    def llr(self, scores: Mapping[str, Array], frames: Array | float, claims: Iterable[int] | None = None) -> Array:
        """Return ratios as ``LogisticCalibration.llr``, shifted where ``claims`` (C,), the claimants' ids, are given.

        The ratio for a changed condition counts only if the condition is among the ``scores``.
        """
        summed = {self.system: self._sum.llr(scores, frames)} if self.weights else scores
        ratio: Array = self._ratio.llr(summed, frames)
        if claims is not None and self.shifts:
            ratio = ratio - np.array([self.shifts.get(claim, 0.0) for claim in claims])
        log_odds = self.condition_log_odds(scores, frames)
        if self.changed is not None and log_odds is not None:
            share = 0.5 + 0.5 * np.tanh(0.5 * log_odds)  # of the changed condition
            changed = self.changed.llr(scores, frames, claims)
            if self.limit is not None and DISTANCE in scores:
                unfamiliar = self.limit.unfamiliar(scores[DISTANCE], frames)
                changed = changed - unfamiliar * math.log(self.unfamiliar_impostors)
            ratio = ratio + share * (changed - ratio)
        return ratio - self.outlying(scores, frames)

    def condition_log_odds(self, scores: Mapping[str, Array], frames: Array | float) -> Array | None:
        """Return the calibrated log-odds of a changed condition; None if the condition was not measured."""
        return None if self.condition is None or CONDITION not in scores else self.condition.llr(scores, frames)

    def outlying(self, scores: Mapping[str, Array], frames: Array | float) -> Array | float:
        """Return the nats by which the distance from enrollment speech exceeds its limit; 0 where it is not known."""
        return 0.0 if self.limit is None or DISTANCE not in scores else self.limit.excess(scores[DISTANCE], frames)

    @cached_property
    def _ratio(self) -> LogisticCalibration | MixtureCalibration:
        return mixed(self.ratio, self.unknown_share)

    @cached_property
    def _sum(self) -> LogisticCalibration | MixtureCalibration:
        return mixed(self.weights, 0.5)


Calibration = LogisticCalibration | MixtureCalibration | SystemCalibration
"""A map from the scores of one system, or of several, to log-likelihood ratios."""


def mixed(fits: Fits, unknown_share: float) -> LogisticCalibration | MixtureCalibration:
    """Return the ratio against impostors of all origins, unknown ones making up ``unknown_share``.

    Origins with a share of 0 count only where there is no other.
    """
    shares = {"enrolled": 1.0 - unknown_share, "unknown": unknown_share, "all": 1.0}
    mixed = [(shares[origin], fit) for origin, fit in fits if shares[origin] > 0.0] or [(1.0, fit) for _, fit in fits]
    if len(mixed) == 1:
        return mixed[0][1]
    return MixtureCalibration(tuple(fit for _, fit in mixed), tuple(share for share, _ in mixed))


def linked(system: str, scores: Array) -> Array:
    """Return ``scores`` of ``system`` on an unbounded scale: shares and mean posteriors as log-odds, others as is."""
    top = None if system == CONDITION else RULES[system].top
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
    expected: Mapping[str, float] | None = None,
) -> LogisticCalibration:
    """Return the calibration fitted to n held-out trials.

    Parameters
    ----------
    systems, scores
        Names of systems, and scores (n,) by name.
    frames, target
        Frames of speech (n,), and True for target trials (n,).
    prior
        Prior of a target, in (0, 1): it sets the region of scores where the fit matters most.
    penalty
        On the squared weights of scores in units of their spread, divided by the number of targets.
    expected
        Weights, by system, that the penalty pulls towards, such as those of a similar fit; 0 where none is given.

    Returns
    -------
    LogisticCalibration

    Raises
    ------
    MetricError
        Without trials of both classes.
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
    about = spread * [(expected or {}).get(system, 0.0) for system in systems]
    design = np.column_stack([(columns - centre) / spread, np.log(frames / usual), np.ones(len(frames))])
    weight = np.where(target, prior / hits, (1.0 - prior) / (len(target) - hits))
    penalties = np.r_[np.full(len(systems) + 1, penalty / hits), 0.0]
    log_odds = np.log(prior / (1.0 - prior))
    *solution, duration, offset = logistic_weights(
        design, target, weight, log_odds, penalties, positive=len(systems), expected=np.r_[about, 0.0, 0.0]
    )
    weights = np.array(solution) / spread
    return LogisticCalibration(tuple(systems), weights, float(offset - weights @ centre), float(duration), usual)
