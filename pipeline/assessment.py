"""Assessment: a trial list against a store, each file decoded and scored once for all its claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.corpus import Utterance
from pipeline.errors import AudioError, NotEnoughSpeechError
from pipeline.evaluation import (
    EqualErrorRate,
    ErrorRates,
    Interval,
    ScoreRow,
    SystemScores,
    Trial,
    bootstrap_interval,
    detection_cost,
    equal_error_rate,
    rates_at,
)
from pipeline.frontend import read_features
from pipeline.machines.training import run_parallel
from pipeline.posteriors.sigmoid import posterior_from
from pipeline.scoring import ClaimScorer
from pipeline.store import SpeakerStore

Progress = Callable[[int, int], None]
"""Called as progress(files just done, files in all)."""

# The application that minimum detection costs are quoted for: NIST SRE's prior of a target, equal costs.
COST_PRIOR = 0.01


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A file that gave no score, why, and how many trials that cost."""

    path: str
    reason: str
    trials: int


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


@dataclass(frozen=True)
class SystemMetrics:
    """One system on one list. What a list of a single class does not define is None.

    ``at_store_threshold`` are the error rates at the store's own threshold, ``store_threshold``.
    """

    n_target: int
    n_nontarget: int
    eer: EqualErrorRate | None
    eer_interval: Interval | None
    min_cost: float | None
    store_threshold: float
    at_store_threshold: ErrorRates


def assess(
    store: SpeakerStore,
    trials: Sequence[Trial],
    root: Path,
    *,
    systems: Iterable[str] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Assessment:
    """Score ``trials``, their paths relative to ``root``, under ``systems`` (default: all that the store has).

    A file that cannot be decoded or has too little speech costs its trials and is listed, never scored. Raises
    UnknownSpeakerError for a claim on somebody who is not enrolled.
    """
    names = tuple(store.check_system(system) for system in (store.systems if systems is None else systems))
    positions = _positions(store, trials)
    by_path: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_path[trial.path].append(trial)
    by_claims: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, its_trials in by_path.items():
        by_claims[tuple(dict.fromkeys(trial.speaker for trial in its_trials))].append(path)
    population = store.population(names)
    posterior = posterior_from(store.config.posterior)
    results: dict[str, dict[tuple[str, str], float] | FailedFile] = {}
    with threadpool_limits(1):
        for claims, paths in by_claims.items():
            numbers = [positions[claim] for claim in claims]
            scorer = ClaimScorer(population, numbers, names, posterior, dtype=store.config.scoring.dtype)

            def score(path: str, scorer: ClaimScorer = scorer, claims: tuple[str, ...] = claims) -> None:
                results[path] = _score_file(store, root, path, scorer, claims, len(by_path[path]))
                if progress is not None:
                    progress(1, len(by_path))

            run_parallel(score, ((path,) for path in paths), jobs=jobs)
    return _collect(names, trials, results)


def _positions(store: SpeakerStore, trials: Sequence[Trial]) -> dict[str, int]:
    """Number of every speaker claimed in ``trials``; raises UnknownSpeakerError."""
    return {name: store.position(name) for name in dict.fromkeys(trial.speaker for trial in trials)}


def _score_file(
    store: SpeakerStore, root: Path, path: str, scorer: ClaimScorer, claims: tuple[str, ...], trials: int
) -> dict[tuple[str, str], float] | FailedFile:
    """Scores by (system, speaker) of one file."""
    try:
        vectors = read_features(Utterance("", root / path), store.config.features, store.scaling).vectors
        if len(vectors) < store.config.least_frames:
            step = store.config.features.step_seconds
            raise NotEnoughSpeechError(path, found=len(vectors) * step, needed=store.config.least_frames * step)
    except (AudioError, NotEnoughSpeechError) as error:
        return FailedFile(path, str(error), trials)
    running = scorer.start()
    running.push(vectors)
    return {
        (system, claim): float(score)
        for system, scores in running.scores().items()
        for claim, score in zip(claims, scores, strict=True)
    }


def _collect(
    systems: tuple[str, ...],
    trials: Sequence[Trial],
    results: dict[str, dict[tuple[str, str], float] | FailedFile],
) -> Assessment:
    rows: list[ScoreRow] = []
    scores: dict[str, SystemScores] = {}
    for system in systems:
        its_rows = []
        for trial in trials:
            result = results[trial.path]
            if not isinstance(result, FailedFile):
                score = result[system, trial.speaker]
                its_rows.append(ScoreRow(system, trial.speaker, trial.path, score, trial.target))
        rows += its_rows
        scores[system] = SystemScores(
            speakers=np.array([row.speaker for row in its_rows], dtype=object),
            paths=np.array([row.path for row in its_rows], dtype=object),
            scores=np.array([row.score for row in its_rows], dtype=np.float64),
            is_target=np.array([row.target for row in its_rows], dtype=bool),
        )
    failed = tuple(result for result in results.values() if isinstance(result, FailedFile))
    return Assessment(tuple(rows), scores, failed)


def measure(scores: SystemScores, *, threshold: float, seed: int) -> SystemMetrics:
    """Error rates of one system's ``scores``; ``threshold`` is the store's, ``seed`` draws the EER's interval."""
    target, nontarget = scores.target, scores.nontarget
    eer, interval, cost = None, None, None
    if target.size and nontarget.size:
        eer = equal_error_rate(target, nontarget)
        cost = detection_cost(target, nontarget, prior=COST_PRIOR).cost
        if len(set(scores.target_speakers)) > 1 and len(set(scores.nontarget_speakers)) > 1:
            interval = bootstrap_interval(
                target,
                nontarget,
                seed=seed,
                target_speakers=scores.target_speakers,
                nontarget_speakers=scores.nontarget_speakers,
            )
    return SystemMetrics(
        n_target=target.size,
        n_nontarget=nontarget.size,
        eer=eer,
        eer_interval=interval,
        min_cost=cost,
        store_threshold=threshold,
        at_store_threshold=rates_at(target, nontarget, threshold),
    )
