"""Training: the speech of new speakers, and the model of those before them, to a model of everybody.

Speakers already enrolled keep their codebooks, pair and one-class machines; one-vs-rest and supervector machines have
everybody in them and are trained again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.enrollment.speech import NewSpeaker, Progress, Speech, Utterances
from pipeline.errors import ConfigError
from pipeline.features.fingerprints import joined as all_prints
from pipeline.features.stream import FeatureBlock, joined
from pipeline.machines.codebook import fit_codebook
from pipeline.machines.cohorts import plan_cohorts
from pipeline.machines.gmm import MeanOffsets, component_groups, map_mean_offsets
from pipeline.machines.margins import Population
from pipeline.machines.pool import Pool
from pipeline.machines.supervectors import SupervectorMachines, SupervectorTraining, Vectors, segments_of
from pipeline.machines.training import machine_count, train_population
from pipeline.machines.ubm import UniversalBackgroundModel, loudness, train_ubm
from pipeline.machines.workers import Workers, run_parallel
from pipeline.store.arrays import Arrays
from pipeline.store.model import PSEUDO, Role, Speaker, SpeakerModel

Array = NDArray[np.float64]

# Pseudo-speakers made of a speaker's voice have one in so many of the speaker's most segments.
PSEUDO_SHARE = 2


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

    def train(self, voices: Sequence[NewSpeaker], stage: str) -> tuple[SpeakerModel, SupervectorTraining | None]:
        """Train on ``voices``: codebooks of the new speakers and all machines that involve them.

        Return the model of everybody, and the solver of its supervector machines, which can leave a speaker out.
        """
        model = self._assembled(voices, self._frame_machines(voices, stage))
        if "supervector" not in self.settings.machines.kinds:
            return model, None
        return self._with_supervectors(model, voices, stage)

    def _frame_machines(self, voices: Sequence[NewSpeaker], stage: str) -> Population:
        settings = self.settings
        known = self.known.machines({"one_vs_one", "one_class"}) if len(self.known) else None
        tasks = ((joined(voice.utterances).vectors,) for voice in voices)
        books = []
        for book in self.workers.map(_codebook, tasks, common=settings):
            books.append(book)
            self.progress(f"{stage}: codebooks", 1, len(voices))
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

    def _assembled(self, voices: Sequence[NewSpeaker], population: Population) -> SpeakerModel:
        """Return a model with the machines over frames of everybody."""
        pool, known, step = population.pool, self.known, self.settings.features.step_seconds
        speakers, arrays = list(known.speakers), list(known.arrays)
        for number, voice in enumerate(voices, start=len(speakers)):
            size = len(pool.codebook(number))
            counts = (voice.frames * step, voice.frames, len(voice.utterances), size)
            speakers.append(Speaker(voice.id, voice.name, self.role, *counts))
            arrays.append(
                {
                    "centroids": pool.codebook(number),
                    "one_class": population.one_class_coef[pool.rows(number)],
                    "one_class_bias": population.one_class_bias[number : number + 1],
                }
            )
            if self.settings.duplicate_audio.keep:
                arrays[-1] = {**arrays[-1], "fingerprints": all_prints(one.prints for one in voice.recordings)}
        shared: dict[str, NDArray[np.generic]] = {}
        if population.cohort_table is not None:
            shared["cohort.nearest"] = population.cohort_table.nearest.astype(np.uint32)
            shared["cohort.similarity"] = population.cohort_table.similarity
        model = replace(known, speakers=tuple(speakers), arrays=tuple(arrays), pairs=population.pairs)
        coef, bias = population.one_vs_rest_coef, population.one_vs_rest_bias
        rest = [{} for _ in speakers] if coef is None or bias is None else rest_arrays(coef, bias)
        return model.changed(rest, shared)

    def _with_supervectors(
        self, model: SpeakerModel, voices: Sequence[NewSpeaker], stage: str
    ) -> tuple[SpeakerModel, SupervectorTraining]:
        settings, known = self.settings.supervector, self.known
        has_pseudo = settings.has_pseudo_speakers(len(model))
        ubm = known.ubm or train_ubm(
            _frames(voices, pseudo=has_pseudo),
            components=self.settings.ubm.components,
            relevance=settings.relevance,
            seed=self.settings.seed,
        )
        jobs = self.workers.jobs
        made = run_parallel(self._segments, ((ubm, voice.speech, stage, len(voices)) for voice in voices), jobs=jobs)
        own = known.segments() + [vectors for vectors, _ in made]
        used = known.pseudo_segments() + [vectors for _, vectors in made] if has_pseudo else []
        self._check_memory(sum(map(len, own)) + sum(len(part) for parts in used for part in parts))
        # Solved from what the store will hold, so that enrolling together or one by one differs in nothing else.
        solver = SupervectorTraining(own, ridge=settings.ridge, pseudo_speakers=used, jobs=jobs)
        changed = supervector_arrays(solver.machines(ubm))
        offsets = self._mean_offsets(ubm, voices)
        for place, (arrays, (segments, parts)) in enumerate(zip(changed[-len(voices) :], made, strict=True)):
            arrays["segments"] = segments.astype(np.float16)
            arrays |= {f"{PSEUDO}{number}": part.astype(np.float16) for number, part in enumerate(parts)}
            if offsets:
                arrays["gmm"] = offsets[place]
        shared = ubm_arrays(ubm) if known.ubm is None else {}
        return model.changed(changed, {**shared, "supervector.mean": solver.mean}), solver

    def _mean_offsets(self, ubm: UniversalBackgroundModel, voices: Sequence[NewSpeaker]) -> list[MeanOffsets]:
        """Return the mean offsets (K, d) of each new speaker's MAP-adapted GMM, where the settings ask for GMMs."""
        if "gmm" not in self.settings.machines.kinds:
            return []
        settings = self.settings.gmm
        levels = component_groups(ubm.means, settings.groups)

        def offsets(speech: Speech) -> MeanOffsets:
            blocks = [block for version in speech.versions for block in version if len(block.vectors)]
            statistics = [ubm.statistics(block.for_utterances, self._weights(block)) for block in blocks]
            return map_mean_offsets(
                np.sum(statistics, axis=0),
                levels,
                relevance=settings.relevance,
                group_relevance=settings.group_relevance,
            )

        return run_parallel(offsets, ((voice.speech,) for voice in voices), jobs=self.workers.jobs)

    def _weights(self, block: FeatureBlock) -> Array:
        return loudness(block.below_peak, self.settings.supervector.half_db)

    def _segments(
        self, ubm: UniversalBackgroundModel, speech: Speech, stage: str, count: int
    ) -> tuple[Vectors, list[Vectors]]:
        """Return one speaker's supervectors (S, D) of every version, and those of each pseudo-speaker."""
        most = self.settings.supervector.max_segments
        own = [self._supervectors(ubm, version, max(1, most // len(speech.versions))) for version in speech.versions]
        pseudo = [self._supervectors(ubm, voice, max(1, most // PSEUDO_SHARE)) for voice in speech.pseudo_speakers]
        self.progress(f"{stage}: segments", 1, count)
        return np.concatenate(own), [voice for voice in pseudo if len(voice)]

    def _supervectors(self, ubm: UniversalBackgroundModel, utterances: Utterances, most: int) -> Vectors:
        """Return the supervectors (S, D) of the segments of ``utterances``, at the stored precision."""
        settings = self.settings.supervector
        frames = max(1, round(settings.segment_seconds / self.settings.features.step_seconds))
        blocks = [(block.for_utterances, self._weights(block)) for block in utterances if len(block.vectors)]
        vectors = [ubm.vector(ubm.statistics(*segment)) for segment in segments_of(blocks, frames, most)]
        stacked = np.stack(vectors) if vectors else np.empty((0, ubm.dimension))
        return stacked.astype(np.float16).astype(np.float32)

    def _check_memory(self, count: int) -> None:
        """Refuse a Gram matrix of ``count`` segments that would be larger than the settings allow."""
        gib, most = 4 * count * count / 2**30, self.settings.machines.gram_gib
        if gib > most:
            raise ConfigError(
                f"supervector.max_segments: {count} segments of speech need a Gram matrix of {gib:.1f} GiB, and"
                f" machines.gram_gib is {most:g}: allow fewer segments a speaker, raise it, or leave supervector out of"
                " machines.kinds"
            )


def ubm_arrays(ubm: UniversalBackgroundModel) -> dict[str, NDArray[np.generic]]:
    """Return the UBM as arrays of a model."""
    return {f"ubm.{name}": getattr(ubm, name) for name in ("centre", "scale", "means", "variances", "weights")}


def supervector_arrays(machines: SupervectorMachines) -> list[dict[str, NDArray[np.generic]]]:
    """Return each speaker's supervector machine as arrays of a model, in single precision."""
    rows = np.ascontiguousarray(machines.coef.T, dtype=np.float32)
    return [{"supervector": row} for row in rows]


def rest_arrays(coef: Array, bias: Array) -> list[Arrays]:
    """Return one-vs-rest machines, coefficients (M, N) and biases (N,), as arrays of each speaker."""
    columns = np.ascontiguousarray(coef.T)
    return [
        {"one_vs_rest": columns[number], "one_vs_rest_bias": bias[number : number + 1]} for number in range(len(bias))
    ]


def _codebook(settings: Config, vectors: Array) -> Array:
    return fit_codebook(vectors, settings.codebook, seed=settings.seed)


def _frames(voices: Sequence[NewSpeaker], *, pseudo: bool) -> Array:
    """Return the frames (T, d) to fit a UBM to: those of pseudo-speakers too where there are any."""
    versions = [
        part for voice in voices for part in (*voice.speech.versions, *(voice.speech.pseudo_speakers if pseudo else ()))
    ]
    return np.concatenate([block.for_utterances for part in versions for block in part])
