"""Paired bootstrap: the difference between two systems on the same trials, with an interval over speakers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.errors import MetricError, check_type
from pipeline.evaluation.scores import SystemScores
from pipeline.metrics.bootstrap import Interval, Statistic, check_sampling, draws_of, interval_of, replicate_of
from pipeline.metrics.costs import MAIN_POINT, OPERATING_POINTS
from pipeline.metrics.curves import FloatArray, both_scores


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A statistic of two systems on the trials that both scored, in the statistic's own unit.

    ``difference`` is ``second - first``: negative if the second system is better. ``share_below_zero`` is the share of
    resamples in which it is negative. ``unmatched`` trials, scored by one of the systems only, were left out.
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
) -> PairedDifference:
    """Return a statistic of two systems and the percentile bootstrap of its difference, on the same resampled speakers.

    Difficult speakers are mostly difficult for both systems and cancel, so that the interval is narrower than two
    separate intervals suggest. Trials are matched by (speaker, path), the n-th of equal ones with the n-th.

    Parameters
    ----------
    first, second
        Scores of the two systems, whose units may differ.
    seed
        The same seed gives the same result.
    statistic, level, samples
        As in ``bootstrap_interval``; "cllr" is computed from the log-likelihood ratios, the others from the scores.

    Returns
    -------
    PairedDifference

    Raises
    ------
    MetricError
        For systems that disagree on a label, share no trials of one class, claim fewer than two speakers, or lack
        log-likelihood ratios for "cllr"; and as ``bootstrap_interval``.
    InputError
        For arguments of another type.

    Examples
    --------
    >>> import pipeline
    >>> model = pipeline.Store("speakers.store").load()
    >>> trials = pipeline.read_trials("own.txt")
    >>> scores = pipeline.assess(model, trials, ".", systems=["rpoao", "fused"]).scores
    >>> from pipeline.evaluation import paired_bootstrap
    >>> paired_bootstrap(scores["rpoao"], scores["fused"], seed=0, samples=10).unmatched
    0
    """
    for name, scores in (("first", first), ("second", second)):
        check_type(name, scores, SystemScores, "the scores of one system, as Assessment.scores[system],")
    check_sampling(level, samples, seed)
    one, other = _matched(first, second)
    is_target = first.is_target[one]
    if not np.array_equal(is_target, second.is_target[other]):
        raise MetricError("the systems disagree on which trials are targets; were they scored on the same list?")
    sides = [_split(scores, statistic, order, is_target) for scores, order in ((first, one), (second, other))]
    replicates = [replicate_of(statistic, *side, OPERATING_POINTS[MAIN_POINT]) for side in sides]
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
    """Return target and nontarget values that the statistic is computed from, in the common order."""
    values = scores.llrs if statistic == "cllr" else scores.scores
    if values is None:
        raise MetricError("comparing Cllr needs the log-likelihood ratios of both systems; one has no calibration")
    ordered = values[order]
    return both_scores(ordered[is_target], ordered[~is_target])


def _matched(first: SystemScores, second: SystemScores) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows of the trials that both scored, in the order of the first."""
    rows = {trial: k for k, trial in enumerate(_trials(second))}
    pairs = [(k, rows[trial]) for k, trial in enumerate(_trials(first)) if trial in rows]
    both = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _trials(scores: SystemScores) -> list[tuple[str, str, int]]:
    """Return speaker and path of every trial, and which occurrence of this pair it is."""
    seen: dict[tuple[str, str], int] = {}
    trials = []
    for speaker, path in zip(scores.speakers, scores.paths, strict=True):
        seen[speaker, path] = number = seen.get((speaker, path), 0) + 1
        trials.append((speaker, path, number))
    return trials
