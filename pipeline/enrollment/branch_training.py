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
from pipeline.machines.gmm import component_groups, map_mean_offsets
from pipeline.machines.supervectors import Segment, SupervectorMachines, SupervectorTraining, Vectors, segments_of
from pipeline.machines.ubm import UniversalBackgroundModel, loudness, running_mean, train_ubm
from pipeline.machines.workers import Workers, run_parallel
from pipeline.store.model import PSEUDO, UBM_ARRAYS, SpeakerModel

Array = NDArray[np.float64]
Named = dict[str, NDArray[np.generic]]

# Least number that half precision holds with all its places.
SMALLEST_NORMAL = 2.0**-14

# Pseudo-speakers made of a speaker's voice have one in so many of the speaker's most segments.
PSEUDO_SHARE = 2


@dataclass(frozen=True)
class _Voice:
    """Supervectors (S, D) of a speaker and of each pseudo-speaker, and the ``statistics`` (K, 1 + d) of all speech."""

    segments: Vectors
    pseudo: list[Vectors]
    statistics: Array


@dataclass(frozen=True)
class BranchTrainer:
    """Trains the machines of one ``branch``; ``progress`` is called after each step."""

    settings: Config
    branch: Branch
    workers: Workers
    progress: Progress

    def train(
        self,
        model: SpeakerModel,
        known: SpeakerModel,
        voices: Sequence[NewSpeaker],
        stage: str,
        ubm: UniversalBackgroundModel | None,
    ) -> tuple[SpeakerModel, SupervectorTraining]:
        """Return ``model`` with the machines of everybody: of the ``known`` speakers and of the new ``voices``.

        The solver of the supervector machines, which can leave a speaker out, is the second result. Without a ``ubm``
        one is trained on the new speakers.
        """
        branch, jobs, has_pseudo = self.branch, self.workers.jobs, self._has_pseudo_speakers(len(model))
        speech = [self._own(voice.speech, has_pseudo) for voice in voices]
        ubm = ubm or self._ubm(speech)
        total = len(voices) * len(branches_of(self.settings.machines.kinds))
        made = run_parallel(self._made_of, ((ubm, one, stage, total) for one in speech), jobs=jobs)
        made = [self._after_earlier(*both) for both in zip(voices, made, strict=True)]
        own = (known.segments(branch) if len(known) else []) + [voice.segments for voice in made]
        used = known.pseudo_segments() + [voice.pseudo for voice in made] if has_pseudo else []
        # Solved from what the store will hold, so that enrolling together or one by one differs in nothing else.
        solver = solve(own, used, self.settings, branch, jobs=jobs)
        changed, shared = machine_arrays(solver.machines(ubm), branch)
        gmms = self._gmms(ubm, made)
        for arrays, voice, one, gmm in zip(changed[-len(voices) :], voices, made, gmms, strict=True):
            arrays[f"{branch.prefix}segments"] = one.segments.astype(np.float16)
            arrays.update({f"{PSEUDO}{number}": part.astype(np.float16) for number, part in enumerate(one.pseudo)})
            arrays.update({name: voice.averaged(name, offsets) for name, offsets in gmm.items()})
        return model.changed(changed, shared), solver

    def _has_pseudo_speakers(self, speakers: int) -> bool:
        return self.branch is RAW and self.settings.supervector.has_pseudo_speakers(speakers)

    def _own(self, speech: Speech, has_pseudo: bool) -> Speech:
        """Return what the branch is trained on."""
        versions = speech.versions if self.branch is NORMALISED else speech.versions[:1]
        return Speech(versions, speech.pseudo_speakers * has_pseudo)

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

    def _made_of(self, ubm: UniversalBackgroundModel, speech: Speech, stage: str, total: int) -> _Voice:
        """Return what the machines are trained on of one speaker's speech."""
        most = self.branch.settings(self.settings).max_segments
        versions = [self._weighed(ubm, version) for version in speech.versions]
        own = [self._supervectors(ubm, version, max(1, most // len(versions))) for version in versions]
        pseudo = [
            self._supervectors(ubm, self._weighed(ubm, voice), max(1, most // PSEUDO_SHARE))
            for voice in speech.pseudo_speakers
        ]
        statistics = np.sum([ubm.sums(*utterance) for version in versions for utterance in version], axis=0)
        self.progress(f"{stage}: segments", 1, total)
        return _Voice(np.concatenate(own), [voice for voice in pseudo if len(voice)], statistics)

    def _after_earlier(self, voice: NewSpeaker, made: _Voice) -> _Voice:
        """Return a speaker's supervectors after those that are kept from before, as many as the settings allow."""
        if voice.earlier is None:
            return made
        most = self.branch.settings(self.settings).max_segments
        own = voice.after_earlier(f"{self.branch.prefix}segments", made.segments)
        pseudo = [voice.after_earlier(f"{PSEUDO}{number}", part) for number, part in enumerate(made.pseudo)]
        kept = [thinned(np.asarray(part, dtype=np.float32), max(1, most // PSEUDO_SHARE)) for part in pseudo]
        return _Voice(thinned(np.asarray(own, dtype=np.float32), most), kept, made.statistics)

    def _weighed(self, ubm: UniversalBackgroundModel, utterances: Utterances) -> list[Segment]:
        """Return each utterance's frames, less the mean of all, and posteriors, by frames less the mean so far."""
        weighed = []
        for block in self._joined(utterances):
            frames = block.for_utterances
            mean = running_mean(frames, ubm.mean_prior)
            weights = loudness(block.below_peak, ubm.half_db)
            weighed.append(ubm.weighed(frames - mean[-1], weights, like=frames - mean, dtype=np.float32))
        return weighed

    def _supervectors(self, ubm: UniversalBackgroundModel, utterances: list[Segment], most: int) -> Vectors:
        """Return the supervectors (S, D) of the segments of ``utterances``, at the stored precision."""
        seconds = self.branch.settings(self.settings).segment_seconds
        size = max(1, round(seconds / self.settings.features.step_seconds))
        segments = segments_of(utterances, size, most)
        vectors = np.empty((len(segments), ubm.dimension), dtype=np.float32)
        for row, segment in zip(vectors, segments, strict=True):
            row[:] = ubm.vector(ubm.sums(*segment))
        return at_half_precision(vectors)

    def _gmms(self, ubm: UniversalBackgroundModel, voices: Sequence[_Voice]) -> list[Named]:
        """Return the mean offsets (K, d) of each speaker's MAP-adapted GMM, by name, where there are to be GMMs."""
        if self.branch.gmm not in self.settings.machines.kinds:
            return [{} for _ in voices]
        settings = self.settings.gmm
        levels = component_groups(ubm.means, settings.groups)
        relevances = {"relevance": settings.relevance, "group_relevance": settings.group_relevance}
        name = f"{self.branch.prefix}gmm"
        return [{name: map_mean_offsets(voice.statistics, levels, **relevances)} for voice in voices]


def solve(
    segments: Sequence[Vectors], pseudo: Sequence[Sequence[Vectors]], config: Config, branch: Branch, *, jobs: int = 1
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
            f" there are {len(sizes)} voices; raise it, or leave {branch.supervector} out of machines.kinds"
        )
    own, *made = ([thinned(voice, caps[-1]) for voice in parts] for parts in (segments, *pseudo))
    return SupervectorTraining(own, ridge=branch.settings(config).ridge, pseudo_speakers=made, jobs=jobs)


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


def machine_arrays(machines: SupervectorMachines, branch: Branch) -> tuple[list[Named], Named]:
    """Return supervector machines as arrays of each speaker, in single precision, and of the population."""
    rows = np.ascontiguousarray(machines.coef.T, dtype=np.float32)
    own: list[Named] = [{f"{branch.prefix}supervector": row} for row in rows]
    shared: Named = {f"{branch.prefix}ubm.{name}": getattr(machines.space, name) for name in UBM_ARRAYS}
    return own, shared | {f"{branch.prefix}supervector.mean": machines.mean}
