"""The two rounds of an enrollment: provisional machines for the held-out trials, then those that are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.calibration import HeldOutTrials
from pipeline.codebook import fit_codebook
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.features.stream import FeatureBlock, joined
from pipeline.heldout_scoring import HeldOutScoring
from pipeline.holdout import cut_of, join_trials
from pipeline.machines.assembly import machine_count, train_population
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.segment_training import SegmentTraining, fit_space, stretches
from pipeline.machines.segments import SegmentSpace, Vectors, loudness
from pipeline.machines.training import run_parallel
from pipeline.manifest import Role, new_id
from pipeline.store import SpeakerStore

Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
"""Called as progress(stage, steps just done, steps in all)."""


@dataclass
class Voice:
    """One new speaker's utterances.

    ``versions[0]`` are the utterances as they were recorded; each further version holds a degraded copy of every one,
    in the same order, and any of them may be without speech.
    """

    name: str
    id: int = field(default_factory=new_id)
    versions: list[list[FeatureBlock]] = field(default_factory=lambda: [[]])

    @property
    def utterances(self) -> list[FeatureBlock]:
        """The utterances as they were recorded."""
        return self.versions[0]

    @property
    def frames(self) -> int:
        """Speech vectors in all, copies not counted."""
        return sum(len(utterance.vectors) for utterance in self.utterances)


@dataclass(frozen=True)
class Trained:
    """What a round gives: the machines, the solver of the segment machines, and the new speakers' stretches."""

    population: Population
    training: SegmentTraining | None
    stretches: list[Vectors]


class Rounds:
    """Trains one population a round: the speakers of the store, then the new ones."""

    def __init__(self, settings: Config, current: SpeakerStore | None, jobs: int, progress: Progress) -> None:
        self._settings = settings
        self._current = current if current and current.speakers else None
        self._known = self._current.population() if self._current else None
        self._roles = [speaker.role for speaker in current.speakers] if current else []
        self._known_ids = [speaker.id for speaker in current.speakers] if current else []
        self._jobs = jobs
        self._progress = progress

    def train(self, voices: Sequence[list[list[FeatureBlock]]], stage: str) -> Trained:
        """Codebooks of the new speakers and all machines that involve them; ``voices`` are their versions."""
        settings = self._settings

        def quantise(versions: list[list[FeatureBlock]]) -> Array:
            book = fit_codebook(joined(versions[0]).vectors, settings.codebook, seed=settings.seed)
            self._progress(f"{stage}: codebooks", 1, len(voices))
            return book

        books = run_parallel(quantise, ((versions,) for versions in voices), jobs=self._jobs)
        known = [] if self._known is None else [self._known.pool.codebook(n) for n in range(len(self._known))]
        pool = Pool.of([*known, *books], settings.machines.sigma)
        total = machine_count(len(pool), len(known), settings.machines)
        population = train_population(
            pool,
            settings.machines,
            known=self._known,
            jobs=self._jobs,
            progress=lambda done: self._progress(f"{stage}: machines", done, total),
        )
        if "segment" not in settings.machines.kinds:
            return Trained(population, None, [])
        return self._with_segments(population, voices, stage)

    def _with_segments(self, population: Population, voices: Sequence[list[list[FeatureBlock]]], stage: str) -> Trained:
        settings = self._settings.segments
        known = [] if self._current is None else self._current.stretches()
        space = None if self._known is None or self._known.segments is None else self._known.segments.space
        if space is None:
            frames = np.concatenate([joined(version).vectors for versions in voices for version in versions])
            space = fit_space(
                frames, components=settings.components, relevance=settings.relevance, seed=self._settings.seed
            )
        made = run_parallel(
            self._stretches, ((space, versions, stage, len(voices)) for versions in voices), jobs=self._jobs
        )
        self._check_memory(sum(map(len, (*known, *made))))
        # Solved from what the store will hold, so that enrolling together or one by one differs in nothing else.
        training = SegmentTraining([*known, *made], ridge=settings.ridge)
        return Trained(population.with_segments(training.machines(space)), training, made)

    def _check_memory(self, count: int) -> None:
        """Refuse a Gram matrix of ``count`` stretches that would be larger than the settings allow."""
        gib, most = 8 * count * count / 2**30, self._settings.machines.gram_gib
        if gib > most:
            raise ConfigError(
                f"segments.most: {count} stretches of speech need a Gram matrix of {gib:.1f} GiB, and machines.gram_gib"
                f" is {most:g}: allow fewer stretches a speaker, raise it, or leave segment out of machines.kinds"
            )

    def _stretches(self, space: SegmentSpace, versions: list[list[FeatureBlock]], stage: str, count: int) -> Vectors:
        """Vectors (S, D) of one speaker's stretches of every version, at the precision that they are stored in."""
        settings = self._settings.segments
        frames = max(1, round(settings.seconds / self._settings.features.step_seconds))
        parts = [
            space.vector(space.statistics(vectors, weights))
            for version in versions
            for vectors, weights in stretches(
                [
                    (block.vectors, loudness(block.below_peak, settings.half_db))
                    for block in version
                    if len(block.vectors)
                ],
                frames,
                max(1, settings.most // len(versions)),
            )
        ]
        self._progress(f"{stage}: stretches", 1, count)
        return np.stack(parts).astype(np.float16).astype(np.float32)

    def held_out_trials(self, voices: list[Voice], role: Role) -> HeldOutTrials:
        """Score utterances set aside against machines trained without them."""
        settings = self._settings
        cuts = [cut_of(voice.utterances, settings) for voice in voices]
        kept = [[cut.kept(version) for version in voice.versions] for voice, cut in zip(voices, cuts, strict=True)]
        trained = self.train(kept, "thresholds")
        everybody = [*self._known_ids, *(voice.id for voice in voices)]
        roles = [*self._roles, *([role] * len(voices))]
        claims = [n for n, claimed in enumerate(roles) if claimed == "speaker"]
        frames = settings.threshold.trial_seconds / settings.features.step_seconds
        spoken = [
            (number, trial)
            for number, (voice, cut) in enumerate(zip(voices, cuts, strict=True), start=len(self._known_ids))
            for trial in join_trials(cut.held(voice.utterances), frames)
        ]
        scoring = HeldOutScoring(settings, trained.population, trained.training, claims, everybody)

        def score(number: int, trial: FeatureBlock) -> HeldOutTrials:
            found = scoring.score(number, trial)
            self._progress("thresholds: scoring", 1, len(spoken))
            return found

        trials = run_parallel(score, spoken, jobs=self._jobs) if claims else []
        return HeldOutTrials.joined([scoring.none(), *trials])
