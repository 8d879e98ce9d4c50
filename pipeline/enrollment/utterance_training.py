"""Training of the machines over whole utterances: a background model a kind, supervector machines and adapted GMMs.

Segments of speech enter the normalised kinds as trials do: utterances are joined to the length of a trial, posteriors
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
from pipeline.machines.branches import NORMALISED, RAW, UtteranceKind, utterance_kinds_of
from pipeline.machines.gmm import Numbers, component_groups, map_mean_offsets
from pipeline.machines.supervectors import Segment, SupervectorMachines, SupervectorTraining, Vectors, segments_of
from pipeline.machines.ubm import (
    MIXTURE_FRAMES,
    UniversalBackgroundModel,
    loudness,
    running_mean,
    train_ubm,
)
from pipeline.machines.workers import Workers, run_parallel
from pipeline.store.model import PSEUDO, UBM_ARRAYS, SpeakerModel

Array = NDArray[np.float64]
Named = dict[str, NDArray[np.generic]]

# Least number that half precision holds with all its places.
SMALLEST_NORMAL = 2.0**-14

# Pseudo-speakers made of a speaker's voice have one in so many of the speaker's most segments.
PSEUDO_SHARE = 2
# Of more frames than so many times those that a background model is fitted to, every so many are taken.
FRAMES_TO_DRAW_FROM = 4


@dataclass(frozen=True)
class Material:
    """A kind's training material of a speaker.

    For supervector machines, supervectors (S, D) of the speaker's ``segments`` and of those of ``pseudo``-speakers; for
    GMMs, the ``statistics`` (K, 1 + d) of all speech.
    """

    segments: Vectors
    pseudo: list[Vectors]
    statistics: Array

    def joined(self, more: Material) -> Material:
        """Return this material and ``more``."""
        pseudo = [np.concatenate(both) for both in zip(self.pseudo, more.pseudo, strict=True)]
        segments = np.concatenate((self.segments, more.segments))
        return Material(segments, pseudo, self.statistics + more.statistics)


@dataclass(frozen=True)
class UtteranceTrainer:
    """Trains the machines of one ``kind``; ``progress`` is called after each step."""

    settings: Config
    kind: UtteranceKind
    workers: Workers
    progress: Progress

    def material(
        self, ubm: UniversalBackgroundModel, speech: Sequence[Speech], share: float, population: int, stage: str
    ) -> list[Material]:
        """Return the material of each speaker's ``speech``, with the ``share`` of the segments that settings allow.

        The speakers are among a ``population`` of so many.
        """
        own = [self._own(one, population) for one in speech]
        total = len(own) * len(utterance_kinds_of(self.settings.machines.kinds))
        tasks = ((ubm, one, share, stage, total) for one in own)
        return run_parallel(self._material_of, tasks, jobs=self.workers.jobs)

    def train(
        self,
        model: SpeakerModel,
        known: SpeakerModel,
        voices: Sequence[NewSpeaker],
        material: Sequence[Material],
        ubm: UniversalBackgroundModel,
    ) -> tuple[SpeakerModel, SupervectorTraining | None]:
        """Return ``model`` with the machines of everybody: of the ``known`` speakers and of the new ``voices``.

        The solver of supervector machines, which can leave a speaker out, is the second result.
        """
        shared = ubm_arrays(self.kind, ubm)
        if self.kind.analysis == "gmm":
            own: list[Named] = [{} for _ in known.speakers]
            levels = component_groups(ubm.means, self.settings.gmm.groups)
            own += [self._gmm(levels, *both) for both in zip(voices, material, strict=True)]
            return model.changed(own, shared), None
        earlier = [self._after_earlier(*both) for both in zip(voices, material, strict=True)]
        segments = (known.segments(self.kind) if len(known) else []) + [one.segments for one in earlier]
        has_pseudo = self._has_pseudo_speakers(len(model))
        pseudo = known.pseudo_segments() + [one.pseudo for one in earlier] if has_pseudo else []
        # Solved from what the store will hold, so that enrolling together or one by one differs in nothing else.
        solver = solve(segments, pseudo, self.settings, self.kind, jobs=self.workers.jobs)
        changed, more = machine_arrays(solver.machines(ubm), self.kind)
        for arrays, one in zip(changed[-len(voices) :], earlier, strict=True):
            arrays[f"{self.kind.branch.prefix}segments"] = one.segments.astype(np.float16)
            arrays.update({f"{PSEUDO}{number}": part.astype(np.float16) for number, part in enumerate(one.pseudo)})
        return model.changed(changed, shared | more), solver

    def ubm(self, speech: Sequence[Speech], population: int) -> UniversalBackgroundModel:
        """Train the universal background model on everybody's ``speech``."""
        branch = self.kind.branch
        settings, prior = branch.settings(self.settings), branch.mean_prior(self.settings)
        own = [self._own(one, population) for one in speech]
        parts = [part for one in own for part in (*one.versions, *one.pseudo_speakers)]
        blocks = [block.of(self.kind.analysis) for part in parts for block in self._joined(part)]
        every = max(1, sum(map(len, blocks)) // (FRAMES_TO_DRAW_FROM * MIXTURE_FRAMES))
        return train_ubm(
            np.concatenate([(vectors - running_mean(vectors, prior))[::every] for vectors in blocks]),
            components=self.kind.components(self.settings),
            relevance=settings.relevance,
            seed=self.settings.seed,
            half_db=settings.half_db,
            mean_prior=prior,
        )

    def _has_pseudo_speakers(self, speakers: int) -> bool:
        return self.kind.branch is RAW and self.settings.supervector.has_pseudo_speakers(speakers)

    def _own(self, speech: Speech, population: int) -> Speech:
        """Return the part of ``speech`` that the kind is trained on."""
        versions = speech.versions if self.kind.branch is NORMALISED else speech.versions[:1]
        return Speech(versions, speech.pseudo_speakers * self._has_pseudo_speakers(population))

    def _joined(self, utterances: Utterances) -> list[FeatureBlock]:
        """Return utterances with speech, joined to the length of a trial where they are normalised."""
        spoken = [block for block in utterances if len(block.vectors)]
        if self.kind.branch is RAW:
            return spoken
        return joined_to(spoken, self.settings.threshold.trial_seconds / self.settings.features.step_seconds)

    def _material_of(
        self, ubm: UniversalBackgroundModel, speech: Speech, share: float, stage: str, total: int
    ) -> Material:
        """Return the material of one speaker's speech."""
        most = max(1, round(share * self.kind.branch.settings(self.settings).max_segments))
        segments, pseudo = np.empty((0, ubm.dimension), dtype=np.float32), []
        statistics = np.zeros((len(ubm.means), 1 + ubm.means.shape[1]))
        versions = [self._weighed(ubm, version) for version in speech.versions]
        if self.kind.analysis == "gmm":
            statistics = np.sum([ubm.sums(*part) for version in versions for part in version], axis=0) + statistics
        else:
            own = [self._supervectors(ubm, version, max(1, most // len(versions))) for version in versions]
            segments = np.concatenate(own)
            pseudo = [
                self._supervectors(ubm, self._weighed(ubm, voice), max(1, most // PSEUDO_SHARE))
                for voice in speech.pseudo_speakers
            ]
        self.progress(f"{stage}: segments", 1, total)
        return Material(segments, pseudo, statistics)

    def _after_earlier(self, voice: NewSpeaker, made: Material) -> Material:
        """Return a speaker's supervectors after those that are kept from before, as many as the settings allow."""
        made = Material(made.segments, [part for part in made.pseudo if len(part)], made.statistics)
        if voice.earlier is None:
            return made
        most = self.kind.branch.settings(self.settings).max_segments
        own = voice.after_earlier(f"{self.kind.branch.prefix}segments", made.segments)
        pseudo = [voice.after_earlier(f"{PSEUDO}{number}", part) for number, part in enumerate(made.pseudo)]
        kept = [thinned(np.asarray(part, dtype=np.float32), max(1, most // PSEUDO_SHARE)) for part in pseudo]
        return Material(thinned(np.asarray(own, dtype=np.float32), most), kept, made.statistics)

    def _weighed(self, ubm: UniversalBackgroundModel, utterances: Utterances) -> list[Segment]:
        """Return each utterance's frames, less the mean of all, and posteriors, by frames less the mean so far."""
        weighed = []
        for block in self._joined(utterances):
            frames = block.of(self.kind.analysis)
            mean = running_mean(frames, ubm.mean_prior)
            weights = loudness(block.below_peak, ubm.half_db)
            weighed.append(ubm.weighed(frames - mean[-1], weights, like=frames - mean, dtype=np.float32))
        return weighed

    def _supervectors(self, ubm: UniversalBackgroundModel, utterances: list[Segment], most: int) -> Vectors:
        """Return the supervectors (S, D) of the segments of ``utterances``, at the stored precision."""
        seconds = self.kind.branch.settings(self.settings).segment_seconds
        size = max(1, round(seconds / self.settings.features.step_seconds))
        segments = segments_of(utterances, size, most)
        vectors = np.empty((len(segments), ubm.dimension), dtype=np.float32)
        for row, segment in zip(vectors, segments, strict=True):
            row[:] = ubm.vector(ubm.sums(*segment))
        return at_half_precision(vectors)

    def _gmm(self, levels: Sequence[Numbers], voice: NewSpeaker, made: Material) -> Named:
        """Return the mean offsets (K, d) of the speaker's MAP-adapted GMM, by name."""
        relevance, of_group = self.settings.gmm.relevance, self.settings.gmm.group_relevance
        offsets = map_mean_offsets(made.statistics, levels, relevance=relevance, group_relevance=of_group)
        return {self.kind.array: voice.averaged(self.kind.array, offsets)}


def solve(
    segments: Sequence[Vectors],
    pseudo: Sequence[Sequence[Vectors]],
    config: Config,
    kind: UtteranceKind,
    *,
    jobs: int = 1,
) -> SupervectorTraining:
    """Solve the supervector machines of everybody, from as many segments as ``machines.gram_gib`` has room for.

    ``segments`` (S, D) are each speaker's, ``pseudo`` those of pseudo-speakers made of each voice. Where they are too
    many, the voices with most are thinned out evenly. Raises ConfigError where there is no room for one each.
    """
    most = int(math.sqrt(config.machines.gram_gib * 2**30 / np.dtype(np.float32).itemsize))
    sizes = np.array([len(voice) for own in (segments, *pseudo) for voice in own])
    caps = [cap for cap in range(1, int(sizes.max()) + 1) if np.minimum(sizes, cap).sum() <= most]
    if not caps:
        raise ConfigError(
            f"machines.gram_gib: {config.machines.gram_gib:g} GiB hold a Gram matrix of {most} segments of speech, and"
            f" there are {len(sizes)} voices; raise it, or leave {kind.name} out of machines.kinds"
        )
    own, *made = ([thinned(voice, caps[-1]) for voice in parts] for parts in (segments, *pseudo))
    return SupervectorTraining(own, ridge=kind.branch.settings(config).ridge, pseudo_speakers=made, jobs=jobs)


def at_half_precision(rows: Vectors) -> Vectors:
    """Round ``rows``, all below 65504, in place to numbers of half precision, ties to even; return them.

    The result is that of a conversion there and back, which takes numpy several times as long.
    """
    near_zero = np.abs(rows) < SMALLEST_NORMAL  # there, half precision has the spacing of single precision near 0.75
    subnormal = (rows[near_zero] + np.float32(0.75)) - np.float32(0.75)
    bits = rows.view(np.uint32)
    last = bits >> 13
    last &= 1
    last += 0xFFF  # half a unit of the last place but one bit, which it lacks where that place is odd
    bits += last
    bits &= np.uint32(0xFFFFE000)
    rows[near_zero] = subnormal
    return rows


def thinned(rows: Vectors, most: int) -> Vectors:
    """Return ``most`` of the ``rows`` (n, D), evenly spread, or all where there are no more."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


def machine_arrays(machines: SupervectorMachines, kind: UtteranceKind) -> tuple[list[Named], Named]:
    """Return supervector machines as arrays of each speaker, in single precision, and of the population."""
    rows = np.ascontiguousarray(machines.coef.T, dtype=np.float32)
    return [{kind.array: row} for row in rows], {f"{kind.array}.mean": machines.mean}


def ubm_arrays(kind: UtteranceKind, ubm: UniversalBackgroundModel) -> Named:
    """Return the background model of ``kind`` as arrays of the population."""
    return {f"{kind.array}.ubm.{name}": getattr(ubm, name) for name in UBM_ARRAYS}
