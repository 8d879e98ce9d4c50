"""Calibrations and thresholds fitted to held-out trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

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
from pipeline.scoring.conditions import CONDITION, DistanceLimit
from pipeline.scoring.rules import RULES
from pipeline.scoring.trials import NOBODY, HeldOutTrials
from pipeline.scoring.typical import Typicality

Array = NDArray[np.float64]

SMALLEST_SHARE = float(np.nextafter(0.0, 1.0))

# Prior of a target trial in fits: ratios must be most accurate where false accepts are rare.
FIT_PRIOR = 0.05

# Background models were trained on the unknown impostors of held-out trials, too. Scores of other people spread more
# widely: about 1 + 6 / (10 + N) times as much, with N speakers enrolled.
SPREAD, SPREAD_SPEAKERS = 6.0, 10.0

# Weights for speech as recorded are drawn to this share of those for changed conditions.
CHANGED_SHARE = 0.5

# Probability that an utterance is of a changed condition, before its audio says more.
CHANGED_PRIOR = 0.5


def fit_system(
    system: str,
    judged: tuple[HeldOutTrials, int],
    *,
    changed: HeldOutTrials | None,
    typical: Typicality | None = None,
    at_every_length: bool = False,
) -> SystemCalibration | None:
    """Fit the calibration of ``system`` over whole utterances, or over speech of any length; None with too few trials.

    ``judged`` has its trials, and the number of speakers among whom it judges a claim. Sums of systems are fitted to
    trials of ``changed`` conditions, too, where there are any. Their ratios over whole utterances are shifted by what
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
        *others, made = _by_condition(trials, system, times)
        distances, frames = map(np.concatenate, zip(*(one.distances() for one in conditions), strict=True))
        limit = DistanceLimit.of(distances, frames) if is_sum and len(distances) else None
        if is_sum and typical is not None and not at_every_length:
            made, *others = (_shifted(one, fit, typical) for one, fit in zip(trials, (made, *others), strict=True))
        made = replace(made, limit=limit)
        for other in others:
            made = replace(made, changed=other, condition=condition_calibration(*trials, times=times))
    except MetricError:
        return None  # an attempt to read this calibration raises an error that says so
    return made


def _by_condition(trials: Sequence[HeldOutTrials], system: str, times: int) -> Iterator[SystemCalibration]:
    """Fit ``system`` to ``trials`` of changed conditions, where there are any, and then to those as recorded.

    Held-out speech as recorded is of the same days and microphones as the rest: it has few errors to weight scores by,
    and favours scores that recognise the recording. The penalty on its weights is therefore on their distance from a
    share of the weights for changed conditions (a hierarchical prior; Gelman et al., Bayesian Data Analysis, 3rd
    edition, section 5.1).
    """
    recorded, *others = trials
    expected: Fits = ()
    for changed in others:
        fit = calibration_of(changed, system, times=times)
        expected = tuple((origin, replace(one, weights=CHANGED_SHARE * one.weights)) for origin, one in fit.weights)
        yield fit
    yield calibration_of(recorded, system, times=times, expected=expected)


def calibration_of(trials: HeldOutTrials, system: str, *, times: int = 1, expected: Fits = ()) -> SystemCalibration:
    """Fit the log-likelihood ratio of ``system``, a single one or a sum, to held-out ``trials``; raises MetricError.

    The ratio is fitted once against enrolled impostors and once against unknown ones. The parts of a sum are weighted
    first, in one way for both fits. Every utterance is among the trials ``times`` times. Weights are drawn towards the
    ``expected`` ones.
    """
    parts = trials.parts_of(system)
    if missing := [name for name in parts if name not in trials.scores]:
        raise MetricError(f"calibration: the store holds no held-out scores of {', '.join(missing)}")
    alike = (times * PENALTY, times * PENALTY)
    if parts == (system,):
        return SystemCalibration(system, _fits(trials, parts, alike))
    weights = _fits(trials, parts, alike, expected)
    sums = mixed(weights, 0.5).llr(trials.scores, trials.frames.astype(np.float64))
    summed = replace(trials, scores={system: _as_unknown(trials, sums)}, prefixes={})
    penalties = (times * ENROLLED_PENALTY, times * UNKNOWN_PENALTY)
    return SystemCalibration(system, _fits(summed, (system,), penalties), weights)


def condition_calibration(recorded: HeldOutTrials, changed: HeldOutTrials, *, times: int = 1) -> LogisticCalibration:
    """Fit the log-odds of a changed condition to utterances as ``recorded`` and to ``changed`` ones.

    The classifier's own log-odds are overconfident. Every utterance is among the trials ``times`` times. The amount of
    speech is left out: only some utterances have augmented versions, so trials joined from these are shorter.
    """
    target = [trials.where(trials.is_target) for trials in (recorded, changed)]  # each utterance once
    scores = {CONDITION: np.concatenate([trials.scores[CONDITION] for trials in target])}
    is_changed = np.repeat([False, True], [len(trials) for trials in target])
    frames = np.ones(len(is_changed))
    return fit_calibration((CONDITION,), scores, frames, is_changed, prior=CHANGED_PRIOR, penalty=times * PENALTY)


def _shifted(trials: HeldOutTrials, calibration: SystemCalibration, typical: Typicality) -> SystemCalibration:
    """Return the ``calibration`` with shifts for what is ``typical`` of each claimant's target trials."""
    own = trials.where(trials.is_target)
    return replace(calibration, shifts=typical.shifts(own.ratios(calibration), own.claims))


def fit_threshold(
    trials: HeldOutTrials,
    system: str,
    *,
    population: int,
    calibration: SystemCalibration | None = None,
    false_accept: float | None = None,
    unknown_share: float = 0.5,
) -> float:
    """Return the threshold of ``system`` for ``population`` speakers from held-out ``trials``.

    It is set at the equal error rate over the expected impostors (``HeldOutTrials.expected``), or at the rate
    ``false_accept``, in which unknown impostors count by their share. Where a score is a share of frames, zero is never
    accepted. A system that sums others needs its ``calibration``, and has ``expected_ratios``. Raises MetricError where
    there are too few trials, such as those of a single speaker.
    """
    rule = RULES[system]
    key = system if population > 1 else rule.alone_key
    needed = {key} if population == 1 else set(trials.parts_of(system))
    if not needed <= trials.scores.keys():
        raise MetricError(
            f"threshold: the store holds no held-out scores of system {system!r}; give the threshold itself"
        )
    if population == 1:
        return _threshold(trials.scores[key], trials.is_target, false_accept)
    trials = trials.comparable(population).expected(unknown_share)
    own, weights = trials.is_target, _by_origin(trials, unknown_share)
    if rule.parts:
        if calibration is None:
            raise MetricError(f"threshold: {system!r} has no calibration; give the threshold itself")
        return _threshold(expected_ratios(trials, calibration), own, false_accept, weights)
    threshold = _threshold(trials.scores[key], own, false_accept, weights)
    return max(threshold, SMALLEST_SHARE) if rule.binary else threshold


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


def _by_origin(trials: HeldOutTrials, unknown_share: float) -> Array | None:
    """Return weights (n,) by which unknown impostors make up ``unknown_share``; None without both origins."""
    known = ~trials.is_target & ~trials.unknown
    if not known.any() or not trials.unknown.any():
        return None
    of_unknown, of_known = unknown_share / trials.unknown.sum(), (1.0 - unknown_share) / known.sum()
    return np.asarray(np.where(trials.unknown, of_unknown, of_known))


def expected_ratios(trials: HeldOutTrials, calibration: SystemCalibration) -> Array:
    """Return the ratios (n,) to expect: held-out ones of unknown impostors are spread, as in the fit, your own are not.

    No UBM was trained on the unknown impostors of your own trials.
    """
    ratios = trials.ratios(calibration)
    return ratios if NOBODY in trials.speakers else _as_unknown(trials, ratios)


def _as_unknown(trials: HeldOutTrials, scores: Array) -> Array:
    """Return ``scores`` (n,), with those of unknown impostors spread as if no UBM had been trained on these people."""
    if not trials.unknown.any():
        return scores
    mean, spread = scores[trials.unknown].mean(), 1.0 + SPREAD / (SPREAD_SPEAKERS + trials.population)
    return np.where(trials.unknown, mean + spread * (scores - mean), scores)


def _fits(trials: HeldOutTrials, systems: Sequence[str], penalties: tuple[float, float], expected: Fits = ()) -> Fits:
    """Fit against the impostors of each origin that has trials, regularising weights towards the ``expected`` ones."""
    about = {origin: dict(zip(fit.systems, fit.weights.tolist(), strict=True)) for origin, fit in expected}
    own = trials.is_target
    origins: tuple[tuple[Origin, NDArray[np.bool_]], ...] = (
        ("enrolled", ~own & ~trials.unknown),
        ("unknown", trials.unknown),
    )
    fits: list[tuple[Origin, LogisticCalibration]] = []
    for (origin, impostors), penalty in zip(origins, penalties, strict=True):
        if impostors.any() or own.all():  # with target trials alone, the fit raises
            some = trials.where(own | impostors)
            data, weights = (some.scores, some.frames.astype(np.float64), some.is_target), about.get(origin)
            fit = fit_calibration(systems, *data, prior=FIT_PRIOR, penalty=penalty, expected=weights)
            fits.append((origin, fit))
    return tuple(fits)
