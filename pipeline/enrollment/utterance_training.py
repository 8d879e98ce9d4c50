"""Training of the machines over whole utterances: background models, supervector machines and adapted GMMs.

Segments of speech enter the normalised kinds as trials do: utterances are joined to the length of a trial, posteriors
of components are by the mean so far, and statistics less the mean of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.enrollment.speech import NewSpeaker, Progress, Speech, Utterances
from pipeline.errors import ConfigError
from pipeline.features.stream import FeatureBlock, joined_to
from pipeline.machines.branches import NORMALISED, RAW, Background, Branch, UtteranceKind, utterance_kinds_of
from pipeline.machines.gmm import Numbers, component_groups, map_mean_offsets
from pipeline.machines.supervectors import Segment, SupervectorTraining, Vectors, segments_of
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
Backgrounds = Mapping[Background, UniversalBackgroundModel]
Weighed = dict[Background, list[Segment]]
"""Frames and posteriors of each of several utterances, under each background model."""

# Least number that half precision holds with all its places.
SMALLEST_NORMAL = 2.0**-14

# Pseudo-speakers made of a speaker's voice have one in so many of the speaker's most segments.
PSEUDO_SHARE = 2
# Of more frames than so many times those that a background model is fitted to, every so many are taken.
FRAMES_TO_DRAW_FROM = 4


@dataclass(frozen=True)
class Material:
    """A branch's training material of a speaker.

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
    """Trains the machines of one ``branch``; ``progress`` is called after each step."""

    settings: Config
    branch: Branch
    workers: Workers
    progress: Progress

    @property
    def kinds(self) -> list[UtteranceKind]:
        """Return the kinds of machines of the branch that the settings ask for."""
        return [kind for kind in utterance_kinds_of(self.settings.machines.kinds) if kind.branch is self.branch]

    def material(
        self, ubms: Backgrounds, speech: Sequence[Speech], share: float, population: int, stage: str
    ) -> list[Material]:
        """Return the material of each speaker's ``speech``, with the ``share`` of the segments that settings allow.

        The speakers are among a ``population`` of so many.
        """
        own = [self._own(one, population) for one in speech]
        total = len(own) * len({kind.branch for kind in utterance_kinds_of(self.settings.machines.kinds)})
        tasks = ((ubms, one, share, stage, total) for one in own)
        return run_parallel(self._material_of, tasks, jobs=self.workers.jobs)

    def train(
        self,
        model: SpeakerModel,
        known: SpeakerModel,
        voices: Sequence[NewSpeaker],
        material: Sequence[Material],
        ubms: Backgrounds,
    ) -> tuple[SpeakerModel, dict[UtteranceKind, SupervectorTraining]]:
        """Return ``model`` with the machines of everybody: of the ``known`` speakers and of the new ``voices``.

        The solver of supervector machines, which can leave a speaker out, is the second result.
        """
        model = model.changed([{} for _ in model.speakers], ubm_arrays(ubms))
        solvers: dict[UtteranceKind, SupervectorTraining] = {}
        for kind in self.kinds:
            if kind.machine == "gmm":
                levels = component_groups(ubms[kind.backgrounds[0]].means, self.settings.gmm.groups)
                own: list[Named] = [{} for _ in known.speakers]
                own += [self._gmm(kind, levels, *both) for both in zip(voices, material, strict=True)]
                model = model.changed(own, {})
            else:
                model, solvers[kind] = self._supervector_machines(kind, model, known, voices, material)
        return model, solvers

    def ubms(self, speech: Sequence[Speech], population: int) -> Backgrounds:
        """Train the universal background models on everybody's ``speech``."""
        own = [self._own(one, population) for one in speech]
        parts = [part for one in own for part in (*one.versions, *one.pseudo_speakers)]
        blocks = [block for part in parts for block in self._joined(part)]
        return {background: self._ubm(background, blocks) for kind in self.kinds for background in kind.backgrounds}

    def _ubm(self, background: Background, blocks: Sequence[FeatureBlock]) -> UniversalBackgroundModel:
        settings, prior = self.branch.settings(self.settings), self.branch.mean_prior(self.settings)
        every = max(1, sum(len(block.vectors) for block in blocks) // (FRAMES_TO_DRAW_FROM * MIXTURE_FRAMES))
        frames = (block.of(background.analysis) for block in blocks)
        return train_ubm(
            np.concatenate([(vectors - running_mean(vectors, prior))[::every] for vectors in frames]),
            components=background.components(self.settings),
            relevance=settings.relevance,
            seed=self.settings.seed,
            half_db=settings.half_db,
            mean_prior=prior,
        )

    def _has_pseudo_speakers(self, speakers: int) -> bool:
        return self.branch is RAW and self.settings.supervector.has_pseudo_speakers(speakers)

    def _own(self, speech: Speech, population: int) -> Speech:
        """Return the part of ``speech`` that the branch is trained on."""
        versions = speech.versions if self.branch is NORMALISED else speech.versions[:1]
        return Speech(versions, speech.pseudo_speakers * self._has_pseudo_speakers(population))

    def _joined(self, utterances: Utterances) -> list[FeatureBlock]:
        """Return utterances with speech, joined to the length of a trial where they are normalised."""
        spoken = [block for block in utterances if len(block.vectors)]
        if self.branch is RAW:
            return spoken
        return joined_to(spoken, self.settings.threshold.trial_seconds / self.settings.features.step_seconds)

    def _material_of(self, ubms: Backgrounds, speech: Speech, share: float, stage: str, total: int) -> Material:
        """Return the material of one speaker's speech."""
        most = max(1, round(share * self.branch.settings(self.settings).max_segments))
        segments, pseudo, statistics = np.empty((0, 0), dtype=np.float32), [], np.empty((0, 0))
        versions = [self._weighed(ubms, version) for version in speech.versions]
        for kind in self.kinds:
            if kind.machine == "gmm":
                statistics = self._statistics(ubms, kind.backgrounds[0], versions)
                continue
            own = [self._supervectors(ubms, kind, version, max(1, most // len(versions))) for version in versions]
            segments = np.concatenate(own)
            read = {background: ubms[background] for background in kind.backgrounds}
            pseudo = [
                self._supervectors(ubms, kind, self._weighed(read, voice), max(1, most // PSEUDO_SHARE))
                for voice in speech.pseudo_speakers
            ]
        self.progress(f"{stage}: segments", 1, total)
        return Material(segments, pseudo, statistics)

    def _supervector_machines(
        self,
        kind: UtteranceKind,
        model: SpeakerModel,
        known: SpeakerModel,
        voices: Sequence[NewSpeaker],
        material: Sequence[Material],
    ) -> tuple[SpeakerModel, SupervectorTraining]:
        """Return ``model`` with everybody's supervector machines, and their solver."""
        earlier = [self._after_earlier(*both) for both in zip(voices, material, strict=True)]
        segments = (known.segments(kind) if len(known) else []) + [one.segments for one in earlier]
        has_pseudo = self._has_pseudo_speakers(len(model))
        pseudo = known.pseudo_segments() + [one.pseudo for one in earlier] if has_pseudo else []
        # Solved from what the store will hold, so that enrolling together or one by one differs in nothing else.
        solver = solve(segments, pseudo, self.settings, kind, jobs=self.workers.jobs)
        changed, shared = machine_arrays(solver, kind)
        for arrays, one in zip(changed[-len(voices) :], earlier, strict=True):
            arrays[f"{self.branch.prefix}segments"] = one.segments.astype(np.float16)
            arrays.update({f"{PSEUDO}{number}": part.astype(np.float16) for number, part in enumerate(one.pseudo)})
        return model.changed(changed, shared), solver

    def _after_earlier(self, voice: NewSpeaker, made: Material) -> Material:
        """Return a speaker's supervectors after those that are kept from before, as many as the settings allow."""
        made = Material(made.segments, [part for part in made.pseudo if len(part)], made.statistics)
        if voice.earlier is None:
            return made
        most = self.branch.settings(self.settings).max_segments
        own = voice.after_earlier(f"{self.branch.prefix}segments", made.segments)
        pseudo = [voice.after_earlier(f"{PSEUDO}{number}", part) for number, part in enumerate(made.pseudo)]
        kept = [thinned(np.asarray(part, dtype=np.float32), max(1, most // PSEUDO_SHARE)) for part in pseudo]
        return Material(thinned(np.asarray(own, dtype=np.float32), most), kept, made.statistics)

    def _weighed(self, ubms: Backgrounds, utterances: Utterances) -> Weighed:
        """Return, under each background model, each utterance's frames, less the mean of all, and posteriors.

        Posteriors are by frames less the mean so far.
        """
        weighed: Weighed = {background: [] for background in ubms}
        for block in self._joined(utterances):
            for background, ubm in ubms.items():
                frames = block.of(background.analysis)
                mean = running_mean(frames, ubm.mean_prior)
                weights = loudness(block.below_peak, ubm.half_db)
                made = ubm.weighed(frames - mean[-1], weights, like=frames - mean, dtype=np.float32)
                weighed[background].append(made)
        return weighed

    def _statistics(self, ubms: Backgrounds, background: Background, versions: Sequence[Weighed]) -> Array:
        """Return the statistics (K, 1 + d) of all ``versions`` of a speaker's speech under a background model."""
        ubm = ubms[background]
        parts = [ubm.sums(*part) for version in versions for part in version[background]]
        return np.asarray(np.sum([np.zeros((len(ubm.means), 1 + ubm.means.shape[1])), *parts], axis=0))

    def _supervectors(self, ubms: Backgrounds, kind: UtteranceKind, utterances: Weighed, most: int) -> Vectors:
        """Return the supervectors (S, D) of the segments of ``utterances``, at the stored precision."""
        size = max(1, round(self.branch.settings(self.settings).segment_seconds / self.settings.features.step_seconds))
        parts = []
        for background in kind.backgrounds:
            ubm, segments = ubms[background], segments_of(utterances[background], size, most)
            vectors = np.empty((len(segments), ubm.dimension), dtype=np.float32)
            for row, segment in zip(vectors, segments, strict=True):
                row[:] = ubm.vector(ubm.sums(*segment))
            parts.append(at_half_precision(vectors))
        return np.concatenate(parts, axis=1)

    def _gmm(self, kind: UtteranceKind, levels: Sequence[Numbers], voice: NewSpeaker, made: Material) -> Named:
        """Return the mean offsets (K, d) of the speaker's MAP-adapted GMM, by name."""
        relevance, of_group = self.settings.gmm.relevance, self.settings.gmm.group_relevance
        offsets = map_mean_offsets(made.statistics, levels, relevance=relevance, group_relevance=of_group)
        return {kind.array: voice.averaged(kind.array, offsets)}


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


def machine_arrays(solver: SupervectorTraining, kind: UtteranceKind) -> tuple[list[Named], Named]:
    """Return supervector machines as arrays of each speaker, in single precision, and of the population."""
    rows = np.ascontiguousarray(solver.coef.T)
    return [{kind.array: row} for row in rows], {f"{kind.array}.mean": solver.mean}


def ubm_arrays(ubms: Backgrounds) -> Named:
    """Return background models as arrays of the population."""
    return {f"{background.name}.{name}": getattr(ubm, name) for background, ubm in ubms.items() for name in UBM_ARRAYS}
