"""Two systems on the same trials: whether one is better, or the speakers just happened to suit it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError
from pipeline.evaluation.bootstrap import Interval, check_sampling, draws_of, interval_of, replicate_of
from pipeline.evaluation.costs import MAIN_POINT, OPERATING_POINTS, OperatingPoint
from pipeline.evaluation.curves import FloatArray, as_scores
from pipeline.evaluation.replicates import Statistic
from pipeline.evaluation.scores import SystemScores


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A statistic of two systems on the trials that both scored, in the statistic's own unit.

    ``difference`` is ``second - first``: below zero the second errs less. ``share_below_zero`` is the share of
    draws in which it did; draws without any difference do not count. ``unmatched`` trials, which only one of
    the systems scored, were left out.
    """

    first: float
    second: float
    difference: float
    interval: Interval
    share_below_zero: float
    n_target: int
    n_nontarget: int
    unmatched: int


def paired_bootstrap(
    first: SystemScores,
    second: SystemScores,
    *,
    seed: int,
    statistic: Statistic = "eer",
    level: float = 0.95,
    samples: int = 1000,
    point: OperatingPoint = OPERATING_POINTS[MAIN_POINT],
) -> PairedDifference:
    """Percentile bootstrap of the difference in a statistic, the same resampled speakers for both systems.

    What makes a speaker hard is mostly hard for both, and cancels: the interval is narrower than the two
    intervals side by side suggest. Trials are matched by (speaker, path), the n-th of equal ones with the n-th.
    ``statistic`` and ``point`` are those of ``bootstrap_interval``; "cllr" takes the log-likelihood ratios, the
    others the scores, whose units may differ between the systems. The same seed gives the same result.

    Raises MetricError for systems that disagree on a label, share no trials of one class, claim fewer than two
    speakers, or lack log-likelihood ratios for "cllr"; and for parameters as ``bootstrap_interval`` does.
    """
    check_sampling(level, samples)
    one, other = _matched(first, second)
    is_target = first.is_target[one]
    if not np.array_equal(is_target, second.is_target[other]):
        raise MetricError("the systems disagree on which trials are targets; were they scored on the same list?")
    sides = [_split(scores, statistic, order, is_target) for scores, order in ((first, one), (second, other))]
    replicates = [replicate_of(statistic, *side, point) for side in sides]
    targets, nontargets = sides[0]
    speakers = first.speakers[one]
    draw = draws_of(targets.size, nontargets.size, speakers[is_target], speakers[~is_target])
    whole = np.ones(targets.size, dtype=np.intp), np.ones(nontargets.size, dtype=np.intp)
    values = [replicate(*whole) for replicate in replicates]
    generator = np.random.default_rng(seed)
    differences = np.empty(samples)
    for k in range(samples):
        weights = draw(generator)
        differences[k] = replicates[1](*weights) - replicates[0](*weights)
    return PairedDifference(
        first=values[0],
        second=values[1],
        difference=values[1] - values[0],
        interval=interval_of(differences, level),
        share_below_zero=float(np.mean(differences < 0.0)),
        n_target=targets.size,
        n_nontarget=nontargets.size,
        unmatched=first.scores.size + second.scores.size - 2 * one.size,
    )


def _split(
    scores: SystemScores, statistic: str, order: npt.NDArray[np.intp], is_target: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Targets and nontargets of what the statistic is computed from, in the common order."""
    values = scores.llrs if statistic == "cllr" else scores.scores
    if values is None:
        raise MetricError("comparing Cllr needs the log-likelihood ratios of both systems; one has no calibration")
    ordered = values[order]
    return as_scores(ordered[is_target], "target"), as_scores(ordered[~is_target], "nontarget")


def _matched(first: SystemScores, second: SystemScores) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices of the trials that both scored: the same trial at the same place, in the order of the first."""
    where = {trial: k for k, trial in enumerate(_trials(second))}
    pairs = [(k, where[trial]) for k, trial in enumerate(_trials(first)) if trial in where]
    both = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _trials(scores: SystemScores) -> list[tuple[str, str, int]]:
    """Speaker and path of every trial, and how many equal ones came before it."""
    seen: dict[tuple[str, str], int] = {}
    trials = []
    for speaker, path in zip(scores.speakers, scores.paths, strict=True):
        seen[speaker, path] = number = seen.get((speaker, path), 0) + 1
        trials.append((speaker, path, number))
    return trials
