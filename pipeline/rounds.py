"""The two rounds of an enrollment: provisional machines for the held-out trials, then those that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.backends import Workers
from pipeline.calibration import HeldOutTrials
from pipeline.codebook import fit_codebook
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.features.stream import FeatureBlock, joined
from pipeline.heldout_posteriors import FittedMaps, HeldOutMaps, half_of
from pipeline.heldout_scoring import HeldOutScoring
from pipeline.holdout import cut_of, join_trials
from pipeline.machines.assembly import machine_count, plan_of, train_population
from pipeline.machines.mixtures import Adaptation, Shifts, SpeakerModels
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.segment_training import SegmentTraining, fit_space, stretches
from pipeline.machines.segments import SegmentSpace, Vectors, loudness
from pipeline.manifest import Role
from pipeline.store import SpeakerStore
from pipeline.threads import run_parallel
from pipeline.voices import Progress, Speech, Utterances, Voice

Array = NDArray[np.float64]

# Of a speaker's most stretches, a stranger made of the speaker's voice has one in this many.
STRANGERS_SHARE = 2


@dataclass(frozen=True)
class Trained:
    """What a round gives: the machines, the solver of the segment machines, and the stretches of the new speakers.

    ``strangers`` are those of the voices made of each new speaker's.
    """

    population: Population
    training: SegmentTraining | None
    stretches: list[Vectors]
    strangers: list[list[Vectors]]


@dataclass(frozen=True)
class Provisional:
    """Machines that are not kept, and the held-out trials of each new speaker, which they were trained without."""

    trained: Trained
    trials: list[list[FeatureBlock]]


@dataclass(frozen=True)
class HeldOut:
    """What the first round gives: trials, and the posteriors' maps where they are fitted."""

    trials: HeldOutTrials
    maps: FittedMaps | None


def _codebook(settings: Config, vectors: Array) -> Array:
    return fit_codebook(vectors, settings.codebook, seed=settings.seed)


class Rounds:
    """Trains one population a round: the speakers of the store, then the new ones."""

    def __init__(self, settings: Config, current: SpeakerStore | None, workers: Workers, progress: Progress) -> None:
        self._settings = settings
        self._current = current if current and current.speakers else None
        self._known = self._current.population() if self._current else None
        self._roles = [speaker.role for speaker in current.speakers] if current else []
        self._known_ids = [speaker.id for speaker in current.speakers] if current else []
        self._workers = workers
        self._jobs = workers.jobs
        self._progress = progress

    def train(self, voices: Sequence[Speech], stage: str) -> Trained:
        """Codebooks of the new speakers and all machines that involve them; ``voices`` is what they said."""
        settings = self._settings

        tasks = ((joined(speech.versions[0]).vectors,) for speech in voices)
        books = []
        for book in self._workers.map(_codebook, tasks, common=settings):
            books.append(book)
            self._progress(f"{stage}: codebooks", 1, len(voices))
        known = [] if self._known is None else [self._known.pool.codebook(n) for n in range(len(self._known))]
        pool = Pool.of([*known, *books], settings.machines.sigma)
        plan = plan_of(pool, settings.machines, self._known, self._jobs)
        pairs = None if plan is None else len(plan.pairs)
        total = machine_count(len(pool), len(known), settings.machines, pairs)
        population = train_population(
            pool,
            settings.machines,
            known=self._known,
            family=settings.posterior.family,
            plan=plan,
            workers=self._workers,
            progress=lambda done: self._progress(f"{stage}: machines", done, total),
        )
        if "segment" not in settings.machines.kinds:
            return Trained(population, None, [], [])
        return self._with_segments(population, voices, stage)

    def _with_segments(self, population: Population, voices: Sequence[Speech], stage: str) -> Trained:
        settings, current = self._settings.segments, self._current
        known = [] if current is None else current.stretches()
        strangers_known = [] if current is None else current.strangers()
        space = None if self._known is None or self._known.segments is None else self._known.segments.space
        if space is None:
            space = fit_space(
                self._sounds(voices, len(population)),
                components=settings.components,
                relevance=settings.relevance,
                seed=self._settings.seed,
            )
        made = run_parallel(
            self._stretches, ((space, speech, stage, len(voices)) for speech in voices), jobs=self._jobs
        )
        models = self._models(space, voices)
        own, strangers = [vectors for vectors, _ in made], [vectors for _, vectors in made]
        heard = [*strangers_known, *strangers] if settings.has_strangers(len(population)) else []
        self._check_memory(sum(map(len, (*known, *own, *(part for parts in heard for part in parts)))))
        # Solved from what the store will hold, so that enrolling together or one by one differs in nothing else.
        training = SegmentTraining([*known, *own], ridge=settings.ridge, strangers=heard, jobs=self._jobs)
        machines = training.machines(space).with_models(models)
        return Trained(population.with_segments(machines), training, own, strangers)

    def _sounds(self, voices: Sequence[Speech], population: int) -> Array:
        """Frames (T, d) to fit a mixture to: strangers' too, where there are any, since claims are made by others."""
        strangers = self._settings.segments.has_strangers(population)
        heard = [part for speech in voices for part in (*speech.versions, *(speech.strangers if strangers else ()))]
        return np.concatenate([block.vectors for part in heard for block in part])

    def _models(self, space: SegmentSpace, voices: Sequence[Speech]) -> SpeakerModels | None:
        """Models of everybody, where the settings ask for any: those that are known, and the new speakers'."""
        settings = self._settings.mixture
        if "mixture" not in self._settings.machines.kinds:
            return None
        adaptation = Adaptation.of(
            space.means,
            groups=settings.groups,
            relevance=settings.relevance,
            group_relevance=settings.group_relevance,
        )

        def shifts(speech: Speech) -> Shifts:
            heard = [block for version in speech.versions for block in version if len(block.vectors)]
            found = [space.statistics(block.vectors, self._weights(block)) for block in heard]
            return adaptation.shifts(np.sum(found, axis=0))

        segments = None if self._known is None else self._known.segments
        known = None if segments is None else segments.models
        if known is None:
            known = SpeakerModels(np.empty((0, *space.means.shape), dtype=np.float32))
        return known.with_more(run_parallel(shifts, ((speech,) for speech in voices), jobs=self._jobs))

    def _weights(self, block: FeatureBlock) -> Array:
        return loudness(block.below_peak, self._settings.segments.half_db)

    def stretches_as_stored(self, voices: Sequence[Voice]) -> list[Vectors]:
        """Vectors (S, D) of each new speaker's stretches, those that the store would keep of what was recorded.

        Empty arrays where the store has no mixture yet to make them with.
        """
        segments = None if self._known is None else self._known.segments
        if segments is None:
            return [np.empty((0, 0), dtype=np.float32) for _ in voices]
        most, space = self._settings.segments.most, segments.space
        tasks = ((space, voice.utterances, max(1, most // len(voice.speech.versions))) for voice in voices)
        return run_parallel(self._vectors, tasks, jobs=self._jobs)

    def _check_memory(self, count: int) -> None:
        """Refuse a Gram matrix of ``count`` stretches that would be larger than the settings allow."""
        gib, most = 4 * count * count / 2**30, self._settings.machines.gram_gib
        if gib > most:
            raise ConfigError(
                f"segments.most: {count} stretches of speech need a Gram matrix of {gib:.1f} GiB, and machines.gram_gib"
                f" is {most:g}: allow fewer stretches a speaker, raise it, or leave segment out of machines.kinds"
            )

    def _stretches(self, space: SegmentSpace, speech: Speech, stage: str, count: int) -> tuple[Vectors, list[Vectors]]:
        """Vectors (S, D) of one speaker's stretches of every version, and of the strangers made of each speed."""
        most = self._settings.segments.most
        own = [self._vectors(space, version, max(1, most // len(speech.versions))) for version in speech.versions]
        strangers = [self._vectors(space, voice, max(1, most // STRANGERS_SHARE)) for voice in speech.strangers]
        self._progress(f"{stage}: stretches", 1, count)
        return np.concatenate(own), [voice for voice in strangers if len(voice)]

    def _vectors(self, space: SegmentSpace, utterances: Utterances, most: int) -> Vectors:
        """Vectors (S, D) of the stretches of ``utterances``, at the precision that they are stored in."""
        settings = self._settings.segments
        frames = max(1, round(settings.seconds / self._settings.features.step_seconds))
        heard = [(block.vectors, self._weights(block)) for block in utterances if len(block.vectors)]
        found = [space.vector(space.statistics(*stretch)) for stretch in stretches(heard, frames, most)]
        vectors = np.stack(found) if found else np.empty((0, space.dimension))
        return vectors.astype(np.float16).astype(np.float32)

    def provisional(self, voices: list[Voice]) -> Provisional:
        """Machines trained without the utterances that are set aside, and these."""
        settings = self._settings
        cuts = [cut_of(voice.utterances, settings) for voice in voices]
        kept = [voice.speech.kept(cut) for voice, cut in zip(voices, cuts, strict=True)]
        frames = settings.threshold.trial_seconds / settings.features.step_seconds
        trials = [join_trials(cut.held(voice.utterances), frames) for voice, cut in zip(voices, cuts, strict=True)]
        return Provisional(self.train(kept, "thresholds"), trials)

    def held_out(self, voices: list[Voice], role: Role, provisional: Provisional) -> HeldOut:
        """Score the utterances set aside by machines that have not heard them, and fit the posteriors to them."""
        settings, trained, trials = self._settings, provisional.trained, provisional.trials
        maps = None
        if settings.posterior.fitted:
            known = [] if self._current is None else self._current.map_sources()
            maps = HeldOutMaps(settings, trained.population, trials, known)
        everybody = [*self._known_ids, *(voice.id for voice in voices)]
        roles = [*self._roles, *([role] * len(voices))]
        claims = [n for n, claimed in enumerate(roles) if claimed == "speaker"]
        scoring = HeldOutScoring(settings, trained.population, trained.training, claims, everybody)
        found = self._scored(scoring, trials, maps) if claims else [scoring.none()]
        return HeldOut(HeldOutTrials.joined(found), None if maps is None else maps.fitted())

    def _scored(
        self, scoring: HeldOutScoring, trials: list[list[FeatureBlock]], maps: HeldOutMaps | None
    ) -> list[HeldOutTrials]:
        """Scores of every trial, each by maps that were fitted to the other half of the trials."""
        scorings = [scoring, scoring]
        if maps is not None:
            scorings = [scoring.with_posterior(maps.posterior(1 - half)) for half in (0, 1)]
        first, total = len(self._known_ids), sum(map(len, trials))

        def score(speaker: int, its_trials: list[FeatureBlock]) -> list[HeldOutTrials]:
            found = []
            for number, trial in enumerate(its_trials):
                found.append(scorings[half_of(speaker, number)].score(speaker, trial))
                self._progress("thresholds: scoring", 1, total)
            return found

        # A speaker's trials one after another: machines without that speaker are made once.
        scored = run_parallel(score, enumerate(trials, start=first), jobs=self._jobs)
        return [scoring.none(), *(found for its_trials in scored for found in its_trials)]
