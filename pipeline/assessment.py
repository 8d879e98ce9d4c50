"""Assessment: a trial list against a store, each file decoded and scored once for all its claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from pipeline.backends import LocalThreads, Workers, found_from_anywhere
from pipeline.evaluation import (
    OPERATING_POINTS,
    EqualErrorRate,
    ErrorRates,
    Interval,
    OperatingPoint,
    ScoreRow,
    SpeakerSpread,
    SystemScores,
    Trial,
    actual_cost,
    affine_cllr,
    bootstrap_interval,
    distinct,
    equal_error_rate_hull_of,
    equal_error_rate_of,
    error_curve,
    group_labels,
    identification_error,
    log_likelihood_ratio_cost,
    minimum_cllr,
    minimum_costs_of,
    rates_at,
    speaker_error_rates,
    speaker_spread,
)
from pipeline.file_scoring import FailedFile, FileScores, ScoringDesk, score_file
from pipeline.store import SpeakerStore

# Above these a bounded assessment leaves out what grows faster than sorting, or is slow for each speaker.
MOST_RESAMPLED = 1_000_000  # trials
MOST_SPEAKERS = 20_000

Progress = Callable[[int, int], None]
"""Called as progress(files just done, files in all)."""


@dataclass(frozen=True)
class Assessment:
    """Scores of every trial that could be scored, by system, and the files that could not."""

    rows: tuple[ScoreRow, ...]
    scores: dict[str, SystemScores]
    failed: tuple[FailedFile, ...]

    @property
    def failed_trials(self) -> int:
        """Trials without a score."""
        return sum(file.trials for file in self.failed)


@dataclass(frozen=True, slots=True)
class PointCosts:
    """Normalised detection costs at one operating point; None for what the list or the scores do not define."""

    point: OperatingPoint
    minimum: float | None
    actual: float | None


@dataclass(frozen=True)
class SystemMetrics:
    """One system on one list. What a list of a single class does not define is None.

    Error rates are those of the scores. ``costs`` (by operating point), ``min_cllr`` and ``affine_cllr``, in bits, are
    those of the log-likelihood ratios where the system is calibrated, so that actual costs stand beside their own
    minimum, and else of the scores; actual costs and ``cllr`` are None without a calibration.
    ``identification_error`` is a share. ``at_store_threshold`` are the error rates at the store's own threshold,
    ``store_threshold``; a store has none for a comparison rule.
    """

    n_target: int
    n_nontarget: int
    eer: EqualErrorRate | None
    eer_hull: float | None
    eer_interval: Interval | None
    costs: Mapping[str, PointCosts]
    cllr: float | None
    min_cllr: float | None
    affine_cllr: float | None
    identification_error: float | None
    speaker_spread: SpeakerSpread | None
    store_threshold: float | None
    at_store_threshold: ErrorRates

    @property
    def min_cost(self) -> float | None:
        """Minimum normalised detection cost at the prior 0.01, equal costs."""
        return self.costs["p01"].minimum


def assess(
    store: SpeakerStore,
    trials: Sequence[Trial],
    root: Path,
    *,
    systems: Iterable[str] | None = None,
    jobs: int = 1,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Assessment:
    """Score ``trials``, their paths relative to ``root``, under ``systems`` (default: all that the store has).

    A file that cannot be decoded or has too little speech costs its trials and is listed, never scored. ``workers``
    score the files (default: ``jobs`` threads), and change no bit of any score. Raises UnknownSpeakerError for a claim
    on somebody who is not enrolled.
    """
    workers = LocalThreads(jobs) if workers is None else workers
    names = tuple(store.check_system(system) for system in (store.systems if systems is None else systems))
    positions = _positions(store, trials)
    by_path: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_path[trial.path].append(trial)
    by_claims: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, its_trials in by_path.items():
        by_claims[tuple(dict.fromkeys(trial.speaker for trial in its_trials))].append(path)
    desk = ScoringDesk(store, found_from_anywhere(root, workers), names, positions)
    # Files of the same claims follow each other, and share a scorer.
    tasks = [(path, claims, len(by_path[path])) for claims, paths in by_claims.items() for path in paths]
    results: dict[str, FileScores | FailedFile] = {}
    with threadpool_limits(1):
        scored = workers.map(score_file, tasks, common=desk, reads=desk.files)
        for (path, _, _), result in zip(tasks, scored, strict=True):
            results[path] = result
            if progress is not None:
                progress(1, len(by_path))
    return _collect(names, trials, results)


def _positions(store: SpeakerStore, trials: Sequence[Trial]) -> dict[str, int]:
    """Number of every speaker claimed in ``trials``; raises UnknownSpeakerError."""
    return {name: store.position(name) for name in dict.fromkeys(trial.speaker for trial in trials)}


def _collect(
    systems: tuple[str, ...],
    trials: Sequence[Trial],
    results: dict[str, FileScores | FailedFile],
) -> Assessment:
    rows: list[ScoreRow] = []
    scores: dict[str, SystemScores] = {}
    for system in systems:
        its_rows = []
        for trial in trials:
            result = results[trial.path]
            if not isinstance(result, FailedFile):
                score, llr = result[system, trial.speaker]
                its_rows.append(ScoreRow(system, trial.speaker, trial.path, score, trial.target, llr))
        rows += its_rows
        scores[system] = SystemScores.from_rows(its_rows)
    failed = tuple(result for result in results.values() if isinstance(result, FailedFile))
    return Assessment(tuple(rows), scores, failed)


def measure(scores: SystemScores, *, threshold: float | None, seed: int, bounded: bool = False) -> SystemMetrics:
    """Error rates and costs of one system's ``scores``; ``threshold`` is the store's, ``seed`` draws the interval.

    Takes O(n log n), and with ``bounded`` never much more than the sorting: without what ``left_out`` names.
    """
    target, nontarget = scores.target, scores.nontarget
    both = target.size > 0 and nontarget.size > 0
    resampled = both and not (bounded and scores.scores.size > MOST_RESAMPLED)
    by_speaker = {} if bounded and distinct(scores.speakers) > MOST_SPEAKERS else speaker_error_rates(scores)
    calibrated = scores.llrs is not None
    judged = _judged(scores)
    curve = error_curve(target, nontarget) if both else None
    minimum = {} if curve is None else minimum_costs_of(curve if not calibrated else error_curve(*judged))
    return SystemMetrics(
        n_target=target.size,
        n_nontarget=nontarget.size,
        eer=None if curve is None else equal_error_rate_of(curve),
        eer_hull=None if curve is None else equal_error_rate_hull_of(curve),
        eer_interval=_eer_interval(scores, seed) if resampled else None,
        costs=_point_costs(*judged, minimum, calibrated=both and calibrated),
        cllr=log_likelihood_ratio_cost(*judged) if both and calibrated else None,
        min_cllr=minimum_cllr(*judged) if both else None,
        affine_cllr=affine_cllr(*judged) if resampled else None,
        identification_error=identification_error(scores),
        speaker_spread=speaker_spread(by_speaker) if by_speaker else None,
        store_threshold=threshold,
        at_store_threshold=ErrorRates(None, None) if threshold is None else rates_at(target, nontarget, threshold),
    )


def left_out(scores: SystemScores) -> tuple[str, ...]:
    """What ``measure`` leaves out of a long list when it is bounded, in words."""
    found = []
    if scores.scores.size > MOST_RESAMPLED:
        found.append(
            f"95 % intervals and the best straight line: lists of more than {MOST_RESAMPLED:,} trials are not"
            " gone through again and again"
        )
    if distinct(scores.speakers) > MOST_SPEAKERS:
        found.append(f"error rates from speaker to speaker: the list has more than {MOST_SPEAKERS:,} of them")
    return tuple(found)


def _judged(scores: SystemScores) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What costs are computed from, targets and nontargets: log-likelihood ratios if there are any."""
    values = scores.scores if scores.llrs is None else scores.llrs
    return values[scores.is_target], values[~scores.is_target]


def _point_costs(
    target: npt.NDArray[np.float64],
    nontarget: npt.NDArray[np.float64],
    minimum: Mapping[str, float],
    *,
    calibrated: bool,
) -> dict[str, PointCosts]:
    costs = {}
    for name, point in OPERATING_POINTS.items():
        actual = None
        if calibrated:
            actual = actual_cost(target, nontarget, point.prior, point.cost_miss, point.cost_false_accept)
        costs[name] = PointCosts(point, minimum.get(name), actual)
    return costs


def _eer_interval(scores: SystemScores, seed: int) -> Interval | None:
    """Interval over speakers, unless a class has but one of them, whose spread would read as zero."""
    if distinct(scores.target_speakers) < 2 or distinct(scores.nontarget_speakers) < 2:
        return None
    return bootstrap_interval(
        scores.target,
        scores.nontarget,
        seed=seed,
        target_speakers=group_labels(scores.target_speakers),
        nontarget_speakers=group_labels(scores.nontarget_speakers),
    )
