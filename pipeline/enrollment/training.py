"""Training: the speech of new speakers and the model of those already enrolled, to a model of everybody.

Speakers already enrolled keep their codebooks, pair and one-class machines; one-vs-rest and supervector machines have
everybody in them and are trained again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.enrollment.new_speakers import NewSpeaker, Speech
from pipeline.enrollment.speech import Progress
from pipeline.enrollment.utterance_training import BranchTraining, UtteranceTrainer
from pipeline.features.fingerprints import joined as all_prints
from pipeline.features.stream import FeatureBlock, joined, joined_to
from pipeline.machines.branches import PITCH, Branch, UtteranceKind, trained_branches, utterance_kinds_of
from pipeline.machines.codebook import fit_codebook
from pipeline.machines.cohorts import plan_cohorts
from pipeline.machines.margins import Population
from pipeline.machines.pitch import PitchCounts
from pipeline.machines.pool import Pool
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.training import machine_count, train_population
from pipeline.machines.workers import Workers, in_order, jobs_of
from pipeline.scoring.conditions import condition_sums, condition_vector
from pipeline.store.arrays import Arrays
from pipeline.store.layout import CONDITIONS, AnyArray
from pipeline.store.machines import cohort_arrays
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Role, Speaker

Array = NDArray[np.float64]
FRAME_KINDS = frozenset({"one_vs_one", "one_class", "one_vs_rest"})


@dataclass(frozen=True)
class Prepared:
    """Material that machines of new speakers are trained on.

    ``kept`` are the speakers without held-out utterances, with only the vectors of machines over frames, and
    ``own_kept`` the arrays made from each one's own speech: condition vectors and the pitch histogram. ``own`` has the
    same arrays made from all speech, ``branches`` the material of each branch's machines over utterances.
    """

    kept: list[NewSpeaker]
    own_kept: list[Arrays]
    own: list[Arrays]
    branches: dict[Branch, BranchTraining]


@dataclass(frozen=True)
class Provisional:
    """A ``model`` trained without held-out utterances, and the ``Prepared`` material that the final one reuses."""

    model: SpeakerModel
    branches: dict[Branch, BranchTraining]
    own: list[Arrays]

    @property
    def solvers(self) -> dict[UtteranceKind, SupervectorTraining]:
        """Return the solvers of supervector machines, which can leave out held-out segments and a speaker."""
        return {
            kind: made.solver
            for kind in utterance_kinds_of(self.model.config.machines.kinds)
            if kind.machine == "supervector" and (made := self.branches[kind.branch]).solver is not None
        }


@dataclass(frozen=True)
class Trainer:
    """Trains new speakers in addition to those of a ``known`` model, which may be empty.

    ``progress`` is called after each step of each stage.
    """

    settings: Config
    known: SpeakerModel
    role: Role
    workers: Workers
    progress: Progress

    def prepared(self, newcomers: Sequence[NewSpeaker], kept: Sequence[Speech], held_out: Sequence[Speech]) -> Prepared:
        """Return the material for machines of ``newcomers``, from their speech ``kept`` and ``held_out``."""
        beside, trainers = self._trainers_of(len(newcomers))
        branches = list(in_order(lambda one: one.prepared(self.known, newcomers, kept, held_out), trainers, beside))
        some = [replace(newcomer, speech=speech) for newcomer, speech in zip(newcomers, kept, strict=True)]
        own_kept, own = list(map(self._own, some)), list(map(self._own, newcomers))
        for newcomer in some:
            newcomer.keep_frame_vectors()
        made = {trainer.branch: branch for trainer, branch in zip(trainers, branches, strict=True)}
        return Prepared(some, own_kept, own, made)

    def provisional(self, prepared: Prepared) -> Provisional:
        """Train all machines on the speech that is not held out."""
        beside, trainers = self._trainers_of(len(prepared.kept))
        tasks: list[Callable[[], Any]] = [
            partial(trainer.solved, self.known, prepared.branches[trainer.branch]) for trainer in trainers
        ]
        tasks.append(partial(self._frame_machines, prepared.kept, "thresholds"))
        *solved, population = in_order(lambda task: task(), tasks, beside)
        model, made = self._assembled(prepared.kept, population).changed(prepared.own_kept, {}), {}
        for trainer, branch in zip(trainers, solved, strict=True):
            model, made[trainer.branch] = trainer.trained(model, branch, whole=False), branch
        return Provisional(model, made, prepared.own)

    def final(self, newcomers: Sequence[NewSpeaker], provisional: Provisional) -> SpeakerModel:
        """Train all machines on all speech of the ``newcomers``; only their frame vectors are read here."""
        model = self._assembled(newcomers, self._frame_machines(newcomers, "training"))
        for trainer in self._trainers(self.workers.jobs):
            model = trainer.trained(model, provisional.branches[trainer.branch], whole=True)
        return model.changed(provisional.own, {})

    def leaves_idle(self, newcomers: int) -> bool:
        """Return True where there are more threads than ``newcomers``."""
        return newcomers < jobs_of(self.workers.jobs)

    def _trainers_of(self, newcomers: int) -> tuple[int, list[UtteranceTrainer]]:
        """Return the number of branches trained at once for this many ``newcomers``, and the trainer of each branch."""
        jobs = jobs_of(self.workers.jobs)
        beside, each = (jobs, 1) if self.leaves_idle(newcomers) else (1, jobs)
        return beside, self._trainers(each)

    def _trainers(self, jobs: int) -> list[UtteranceTrainer]:
        """Return the trainer of each branch that the settings have machines of, each on ``jobs`` threads."""
        branches = trained_branches(self.settings.machines.kinds)
        return [UtteranceTrainer(self.settings, branch, jobs, self.progress) for branch in branches]

    def _frame_machines(self, newcomers: Sequence[NewSpeaker], stage: str) -> Population:
        settings = self.settings
        known = self.known.machines(FRAME_KINDS & {*settings.machines.kinds}) if len(self.known) else None
        tasks = (newcomer.weighed(joined(newcomer.utterances).vectors) for newcomer in newcomers)
        books = []
        for book in self.workers.map(_codebook, tasks, common=settings, many=len(newcomers)):
            books.append(book)
            self.progress(f"{stage}: codebooks", 1, len(newcomers))
        old = [] if known is None else [known.pool.codebook(number) for number in range(len(known))]
        pool = Pool.of([*old, *books], settings.machines.sigma)
        table = self.known.cohort_table if len(self.known) else None
        plan = plan_cohorts(pool, settings.machines, table, jobs=self.workers.jobs)
        total = machine_count(len(pool), len(old), settings.machines, None if plan is None else len(plan[1]))
        return train_population(
            pool,
            settings.machines,
            known=known,
            plan=plan,
            workers=self.workers,
            progress=lambda done: self.progress(f"{stage}: machines", done, total),
        )

    def _own(self, newcomer: NewSpeaker) -> Arrays:
        """Return the arrays made from a new speaker's own speech, except those of machines over frames."""
        return {**self._conditions(newcomer), **self._pitch(newcomer)}

    def _pitch(self, newcomer: NewSpeaker) -> Arrays:
        """Return the pitch histogram of a new speaker's recordings, where the settings have that kind."""
        if PITCH.name not in self.settings.machines.kinds:
            return {}
        pitches = PitchCounts(self.settings.pitch)
        counts = pitches.none
        for block in newcomer.utterances:
            counts = pitches.running_sums(block.of("pitch"), block.below_peak, counts)
        return {PITCH.array: newcomer.averaged(PITCH.array, pitches.shares(counts))}

    def _conditions(self, newcomer: NewSpeaker) -> Arrays:
        """Return condition vectors of a new speaker's speech, where there are augmented versions."""
        recorded, *versions = newcomer.speech.versions
        if not versions:
            return {}
        changed = [block for version in versions for block in version]
        made = {
            name: newcomer.after_earlier(name, _condition_vectors(part, self.settings))
            for name, part in zip(CONDITIONS, (recorded, changed), strict=True)
        }
        return {name: rows for name, rows in made.items() if len(rows)}

    def _assembled(self, newcomers: Sequence[NewSpeaker], population: Population) -> SpeakerModel:
        """Return a model with the machines over frames of everybody."""
        pool, known, step = population.pool, self.known, self.settings.features.step_seconds
        speakers, arrays = list(known.speakers), list(known.arrays)
        for number, newcomer in enumerate(newcomers, start=len(speakers)):
            size = len(pool.codebook(number))
            frames, utterances = newcomer.counts
            speakers.append(Speaker(newcomer.id, newcomer.name, self.role, frames * step, frames, utterances, size))
            own = {
                "centroids": pool.codebook(number),
                "one_class": population.one_class_coef[pool.rows(number)],
                "one_class_bias": population.one_class_bias[number : number + 1],
            }
            if self.settings.duplicate_audio.keep:
                prints = all_prints(one.prints for one in newcomer.recordings)
                own["fingerprints"] = newcomer.after_earlier("fingerprints", prints)
            if (level := newcomer.high_db) is not None:
                own["high_band"] = np.array([level])
            arrays.append(own)
        shared = {} if population.cohort_table is None else cohort_arrays(population.cohort_table)
        model = replace(known, speakers=tuple(speakers), arrays=tuple(arrays), pairs=population.pairs)
        coef, bias = population.one_vs_rest_coef, population.one_vs_rest_bias
        rest = [] if coef is None or bias is None else rest_arrays(coef, bias)
        return model.changed(rest, shared)


def rest_arrays(coef: Array, bias: Array) -> list[Arrays]:
    """Return one-vs-rest machines, coefficients (M, N) and biases (N,), as arrays of each speaker."""
    columns = np.ascontiguousarray(coef.T)
    return [
        {"one_vs_rest": columns[number], "one_vs_rest_bias": bias[number : number + 1]} for number in range(len(bias))
    ]


def _codebook(settings: Config, vectors: Array, weights: Array | None) -> Array:
    return fit_codebook(vectors, settings.codebook, seed=settings.seed, weights=weights)


def _condition_vectors(utterances: Sequence[FeatureBlock], settings: Config) -> AnyArray:
    """Return condition vectors (n, e), in single precision, of windows of about the length of a trial."""
    frames = max(1, round(settings.threshold.trial_seconds / settings.features.step_seconds))
    spoken = [replace(one, vectors=one.of("supervector"), others={}) for one in utterances if len(one.vectors)]
    vectors = [
        condition_vector(condition_sums(window), settings.features.supervector.order)
        for block in joined_to(spoken, frames)
        for window in np.array_split(block.vectors, max(1, len(block.vectors) // frames))
    ]
    return np.array(vectors, dtype=np.float32)
