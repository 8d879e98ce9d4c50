"""Training of the machines over whole utterances: background model, supervector machines and adapted GMMs of a branch.

Segments of speech enter the normalised branch as trials do: utterances are joined to the length of a trial, posteriors
of components are by the mean so far, and statistics less the mean of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.enrollment.speech import NewSpeaker, Progress, Speech, Utterances
from pipeline.errors import ConfigError
from pipeline.features.stream import FeatureBlock, joined_to
from pipeline.machines.branches import NORMALISED, RAW, Branch, branches_of
from pipeline.machines.gmm import MeanOffsets, component_groups, map_mean_offsets
from pipeline.machines.supervectors import SupervectorMachines, SupervectorTraining, Vectors, segments_of
from pipeline.machines.ubm import UniversalBackgroundModel, loudness, running_mean, train_ubm
from pipeline.machines.workers import Workers, run_parallel
from pipeline.store.layout import AnyArray
from pipeline.store.model import PSEUDO, UBM_ARRAYS, SpeakerModel

Array = NDArray[np.float64]
Named = dict[str, NDArray[np.generic]]

# Pseudo-speakers made of a speaker's voice have one in so many of the speaker's most segments.
PSEUDO_SHARE = 2


@dataclass(frozen=True)
class BranchTrainer:
    """Trains the machines of one ``branch``; ``progress`` is called after each step."""

    settings: Config
    branch: Branch
    workers: Workers
    progress: Progress

    def train(
        self, model: SpeakerModel, known: SpeakerModel, voices: Sequence[NewSpeaker], stage: str
    ) -> tuple[SpeakerModel, SupervectorTraining]:
        """Return ``model`` with the machines of everybody: of the ``known`` speakers and of the new ``voices``.

        The solver of the supervector machines, which can leave a speaker out, is the second result.
        """
        branch, jobs, has_pseudo = self.branch, self.workers.jobs, self._has_pseudo_speakers(len(model))
        speech = [self._own(voice.speech, has_pseudo) for voice in voices]
        ubm = known.ubm(branch) or self._ubm(speech)
        total = len(voices) * len(branches_of(self.settings.machines.kinds))
        made = run_parallel(self._segments, ((ubm, one, stage, total) for one in speech), jobs=jobs)
        made = [self._after_earlier(voice, *vectors) for voice, vectors in zip(voices, made, strict=True)]
        own = (known.segments(branch) if len(known) else []) + [vectors for vectors, _ in made]
        used = known.pseudo_segments() + [vectors for _, vectors in made] if has_pseudo else []
        self._check_memory(sum(map(len, own)) + sum(len(part) for parts in used for part in parts))
        # Solved from what the store will hold, so that enrolling together or one by one differs in nothing else.
        ridge = branch.settings(self.settings).ridge
        solver = SupervectorTraining(own, ridge=ridge, pseudo_speakers=used, jobs=jobs)
        changed, shared = machine_arrays(solver.machines(ubm), branch)
        for voice, arrays, (segments, parts), offsets in zip(
            voices, changed[-len(voices) :], made, self._mean_offsets(ubm, speech), strict=True
        ):
            arrays[f"{branch.prefix}segments"] = segments.astype(np.float16)
            arrays.update({f"{PSEUDO}{number}": part.astype(np.float16) for number, part in enumerate(parts)})
            arrays.update({name: voice.averaged(name, own) for name, own in offsets.items()})
        return model.changed(changed, shared), solver

    def _has_pseudo_speakers(self, speakers: int) -> bool:
        return self.branch is RAW and self.settings.supervector.has_pseudo_speakers(speakers)

    def _own(self, speech: Speech, has_pseudo: bool) -> Speech:
        """Return what the branch is trained on: augmented versions where no other branch is."""
        augmented = self.branch is NORMALISED or NORMALISED not in branches_of(self.settings.machines.kinds)
        return Speech(speech.versions if augmented else speech.versions[:1], speech.pseudo_speakers * has_pseudo)

    def _ubm(self, speech: Sequence[Speech]) -> UniversalBackgroundModel:
        settings, prior = self.branch.settings(self.settings), self.branch.mean_prior(self.settings)
        parts = [part for one in speech for part in (*one.versions, *one.pseudo_speakers)]
        frames = [block.for_utterances for part in parts for block in self._joined(part)]
        return train_ubm(
            np.concatenate([vectors - running_mean(vectors, prior) for vectors in frames]),
            components=self.settings.ubm.components,
            relevance=settings.relevance,
            seed=self.settings.seed,
            half_db=settings.half_db,
            mean_prior=prior,
        )

    def _joined(self, utterances: Utterances) -> list[FeatureBlock]:
        """Return utterances with speech, joined to the length of a trial where they are normalised."""
        spoken = [block for block in utterances if len(block.vectors)]
        if math.isinf(self.branch.mean_prior(self.settings)):
            return spoken
        return joined_to(spoken, self.settings.threshold.trial_seconds / self.settings.features.step_seconds)

    def _segments(
        self, ubm: UniversalBackgroundModel, speech: Speech, stage: str, total: int
    ) -> tuple[Vectors, list[Vectors]]:
        """Return one speaker's supervectors (S, D) of every version, and those of each pseudo-speaker."""
        most = self.branch.settings(self.settings).max_segments
        own = [self._supervectors(ubm, version, max(1, most // len(speech.versions))) for version in speech.versions]
        pseudo = [self._supervectors(ubm, voice, max(1, most // PSEUDO_SHARE)) for voice in speech.pseudo_speakers]
        self.progress(f"{stage}: segments", 1, total)
        return np.concatenate(own), [voice for voice in pseudo if len(voice)]

    def _after_earlier(
        self, voice: NewSpeaker, segments: Vectors, pseudo: list[Vectors]
    ) -> tuple[Vectors, list[Vectors]]:
        """Return a speaker's supervectors after those that are kept from before, as many as the settings allow."""
        if voice.earlier is None:
            return segments, pseudo
        most = self.branch.settings(self.settings).max_segments
        own = _thinned(voice.after_earlier(f"{self.branch.prefix}segments", segments), most)
        named = [voice.after_earlier(f"{PSEUDO}{number}", part) for number, part in enumerate(pseudo)]
        return own, [_thinned(part, max(1, most // PSEUDO_SHARE)) for part in named]

    def _supervectors(self, ubm: UniversalBackgroundModel, utterances: Utterances, most: int) -> Vectors:
        """Return the supervectors (S, D) of the segments of ``utterances``, at the stored precision."""
        seconds = self.branch.settings(self.settings).segment_seconds
        size = max(1, round(seconds / self.settings.features.step_seconds))
        blocks = []
        for block in self._joined(utterances):
            frames = block.for_utterances
            mean = running_mean(frames, ubm.mean_prior)
            # Less the mean so far, for posteriors, beside less the mean of all.
            both = np.concatenate((frames - mean, frames - mean[-1]), axis=1)
            blocks.append((both, loudness(block.below_peak, ubm.half_db)))
        vectors = []
        for both, weights in segments_of(blocks, size, most):
            so_far, whole = np.split(both, 2, axis=1)
            vectors.append(ubm.vector(ubm.statistics(whole, weights, like=so_far)))
        stacked = np.stack(vectors) if vectors else np.empty((0, ubm.dimension))
        return stacked.astype(np.float16).astype(np.float32)

    def _mean_offsets(self, ubm: UniversalBackgroundModel, speech: Sequence[Speech]) -> list[Named]:
        """Return the mean offsets (K, d) of each speaker's MAP-adapted GMM, by name, where there are to be GMMs."""
        if self.branch.gmm not in self.settings.machines.kinds:
            return [{} for _ in speech]
        settings, name = self.settings.gmm, f"{self.branch.prefix}gmm"
        levels = component_groups(ubm.means, settings.groups)

        def offsets(speech: Speech) -> MeanOffsets:
            blocks = [block for version in speech.versions for block in self._joined(version)]
            statistics = [ubm.settled(ubm.running(block.for_utterances, block.below_peak)) for block in blocks]
            return map_mean_offsets(
                np.sum(statistics, axis=0),
                levels,
                relevance=settings.relevance,
                group_relevance=settings.group_relevance,
            )

        return [{name: made} for made in run_parallel(offsets, ((one,) for one in speech), jobs=self.workers.jobs)]

    def _check_memory(self, count: int) -> None:
        """Refuse a Gram matrix of ``count`` segments that would be larger than the settings allow."""
        gib, most = 4 * count * count / 2**30, self.settings.machines.gram_gib
        if gib > most:
            section = "normalised" if self.branch is NORMALISED else "supervector"
            raise ConfigError(
                f"{section}.max_segments: {count} segments of speech need a Gram matrix of {gib:.1f} GiB, and"
                f" machines.gram_gib is {most:g}: allow fewer segments a speaker, raise it, or leave"
                f" {self.branch.supervector} out of machines.kinds"
            )


def _thinned(vectors: AnyArray, most: int) -> Vectors:
    """Return ``vectors`` (S, D), ``most`` of them at the most, evenly."""
    places = np.linspace(0, len(vectors) - 1, min(most, len(vectors))).round().astype(int)
    return np.asarray(vectors[places], dtype=np.float32)


def machine_arrays(machines: SupervectorMachines, branch: Branch) -> tuple[list[Named], Named]:
    """Return supervector machines as arrays of each speaker, in single precision, and of the population."""
    rows = np.ascontiguousarray(machines.coef.T, dtype=np.float32)
    own: list[Named] = [{f"{branch.prefix}supervector": row} for row in rows]
    shared: Named = {f"{branch.prefix}ubm.{name}": getattr(machines.space, name) for name in UBM_ARRAYS}
    return own, shared | {f"{branch.prefix}supervector.mean": machines.mean}
