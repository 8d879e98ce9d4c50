"""The errors to expect of a store at its default threshold, estimated from its held-out trials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MetricError
from pipeline.metrics.sample_size import effective_trials, wilson_interval
from pipeline.scoring.conditions import SIDE_INFORMATION
from pipeline.scoring.fitting import expected_ratios
from pipeline.scoring.rules import RULES
from pipeline.store.model import SpeakerModel
from pipeline.store.thresholds import judged_trials

Flags = NDArray[np.bool_]

LEVEL = 0.95  # of the intervals
# A speaker is often rejected if at least this share, and this number, of their held-out utterances are.
OFTEN, LEAST_REJECTED = 0.25, 2


@dataclass(frozen=True, slots=True)
class ErrorShare:
    """``errors`` among ``trials``, their share ``rate``, and its interval (``low``, ``high``).

    The interval is Wilson's, of as many independent trials as these count for (``effective_trials``).
    """

    errors: int
    trials: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ExpectedErrors:
    """Held-out trials, without augmented versions, that the default ``system`` gets wrong at its ``threshold``.

    ``false_accept`` is among claims by enrolled speakers, ``false_accept_unknown`` among claims by speakers who were
    left out of the machines (``expected_ratios``), None where there are none. ``often_rejected`` are names.
    """

    system: str
    threshold: float
    false_reject: ErrorShare
    false_accept: ErrorShare
    false_accept_unknown: ErrorShare | None
    often_rejected: tuple[str, ...]


def expected_errors(model: SpeakerModel) -> ExpectedErrors | None:
    """Count the errors of the default system on the held-out trials; None if these are too few for a threshold."""
    system = model.config.scoring.system
    trials, calibration = model.trials([system, *RULES[system].parts, *SIDE_INFORMATION]), model.calibration(system)
    if trials is None or calibration is None:
        return None
    try:
        threshold = model.threshold(system)
    except MetricError:
        return None
    trials, population = judged_trials(model, trials, system)
    trials = trials.comparable(population)
    ratios = model.scores_are_ratios(system)
    scores = expected_ratios(trials, calibration) if ratios else trials.scores[system]
    own, unknown, accepted = trials.is_target, trials.unknown, scores >= threshold
    enrolled = ~own & ~unknown
    if not own.any() or not enrolled.any():
        return None
    pairs = np.unique(np.stack([trials.claims, trials.speakers]), axis=1, return_inverse=True)[1]
    shared = trials.claims, trials.speakers, pairs  # the model, the recordings, and both
    often = _often_rejected(trials.claims[own], ~accepted[own])
    return ExpectedErrors(
        system=system,
        threshold=threshold,
        false_reject=_share(~accepted, scores, own, trials.claims),
        false_accept=_share(accepted, scores, enrolled, *shared),
        false_accept_unknown=_share(accepted, scores, unknown, *shared) if unknown.any() else None,
        often_rejected=tuple(speaker.name for speaker in model.speakers if speaker.id in often),
    )


def _share(errors: Flags, scores: NDArray[np.float64], of: Flags, *groupings: NDArray[np.integer]) -> ErrorShare:
    """Return the share of ``errors`` (n,) among the trials flagged by ``of``, alike within groups of ``groupings``."""
    wrong, count = int(errors[of].sum()), int(of.sum())
    independent = effective_trials(scores[of], errors[of], [grouping[of] for grouping in groupings])
    low, high = wilson_interval(np.array(wrong / count * independent), np.array(independent), LEVEL)
    return ErrorShare(wrong, count, wrong / count, float(low), float(high))


def _often_rejected(claims: NDArray[np.uint64], rejected: Flags) -> set[int]:
    """Return the ids of the speakers who often have true ``claims`` (n,) ``rejected``."""
    ids, places = np.unique(claims, return_inverse=True)
    errors, count = np.bincount(places, rejected), np.bincount(places)
    return set(ids[errors >= np.maximum(LEAST_REJECTED, OFTEN * count)].tolist())
