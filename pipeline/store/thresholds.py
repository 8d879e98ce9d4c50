"""Thresholds and calibrations of a speaker model, fitted to its held-out trials or the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import MetricError
from pipeline.scoring.calibration import SystemCalibration
from pipeline.scoring.claims import is_judged_in_cohort
from pipeline.scoring.conditions import SIDE_INFORMATION
from pipeline.scoring.fitting import fit_system, fit_threshold
from pipeline.scoring.rules import RULES
from pipeline.scoring.trials import CHANGED, OWN, HeldOutTrials
from pipeline.scoring.typical import Typicality

if TYPE_CHECKING:
    from pipeline.store.model import SpeakerModel


def threshold_of(model: SpeakerModel, system: str, false_accept: float | None) -> float:
    """Return the threshold of ``system``: see ``SpeakerModel.threshold``."""
    rule = RULES[system]
    if false_accept is None and model.scores_are_ratios(system) and model.calibration(system) is not None:
        return model.operating_point.threshold
    trials = model.trials([system, *rule.parts, rule.alone_key, *SIDE_INFORMATION], kind=model.fitted_to)
    if trials is None:
        raise MetricError(f"{model.where}: the store holds no held-out trials; give the threshold itself")
    trials, population = judged_trials(model, trials, system)
    return fit_threshold(
        trials,
        system,
        population=population,
        calibration=model.calibration(system) if rule.parts else None,
        false_accept=false_accept,
        unknown_share=model.unknown,
    )


def fitted(model: SpeakerModel, system: str, *, at_every_length: bool = False) -> SystemCalibration | None:
    """Fit the calibration of ``system`` to the trials ``fitted_to``; None where these are too few.

    The user's own trials are in the condition of use, so no changed condition is distinguished from it.
    """
    kind, has_own = model.fitted_to, model.fitted_to == OWN
    read = [system, *RULES[system].parts, *SIDE_INFORMATION]
    trials = model.trials(read, kind=kind)
    if trials is None:
        return None
    return fit_system(
        system,
        judged_trials(model, trials, system),
        changed=None if has_own else model.trials(read, kind=CHANGED),
        typical=None if has_own else Typicality(model.operating_point.threshold, len(model.names)),
        at_every_length=at_every_length,
    )


def judged_trials(model: SpeakerModel, trials: HeldOutTrials, system: str) -> tuple[HeldOutTrials, int]:
    """Return ``trials`` and the number of speakers, both within cohorts if ``system`` judges claims in cohorts."""
    cohort = model.config.machines.cohort
    if cohort != "all" and is_judged_in_cohort(system):
        trials = trials.in_cohorts(cohort + 1)
    return trials, model.competing(system) + 1
