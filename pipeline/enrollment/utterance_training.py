"""Training of the machines over whole utterances: background models, supervector machines and adapted GMMs.

Normalised machines are trained on speech as they will score it: utterances are joined to the length of a trial, the
mean of the frames so far is subtracted before posteriors of components are computed, and the mean of all frames before
statistics are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.enrollment.new_speakers import NewSpeaker, Speech, Utterances
from pipeline.enrollment.solving import Named, SpeakerSegments, machine_arrays, most_rows, solve, stored_segments
from pipeline.enrollment.speech import Progress, by_turns
from pipeline.features.stream import FeatureBlock, joined_to
from pipeline.machines.branches import (
    RAW,
    Background,
    Branch,
    UtteranceKind,
    trained_branches,
    utterance_kinds_of,
)
from pipeline.machines.encoder import BackgroundModel, Encoder
from pipeline.machines.gmm import Numbers, component_groups, map_mean_offsets
from pipeline.machines.half_precision import Half, at_half_precision
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.supervectors import Segment, segments_of
from pipeline.machines.ubm import (
    MIXTURE_FRAMES,
    UniversalBackgroundModel,
    loudness,
    running_mean,
    train_ubm,
)
from pipeline.machines.workers import in_order
from pipeline.store.layout import PSEUDO
from pipeline.store.machines import UBM_ARRAYS
from pipeline.store.model import SpeakerModel

Array = NDArray[np.float64]
Backgrounds = Mapping[Background, BackgroundModel]
Weighed = dict[Background, list[Segment]]
"""Frames and posteriors of each of several utterances, under each background model."""

# A speaker may have this many times as many segments as a pseudo-speaker.
PSEUDO_SHARE = 2
# Background models draw their frames from this many times as many; where there are more, only every n-th is read.
FRAMES_TO_DRAW_FROM = 4


@dataclass(frozen=True)
class BranchTraining:
    """Material that the machines of a branch are trained on.

    Each new speaker has ``segments`` and arrays: in ``kept``, of the speech that is not held out; in ``everything``, of
    all speech. Once supervector machines are solved there is a ``solver``, and the ``inner`` products that the store
    keeps.
    """

    ubms: Backgrounds
    segments: list[SpeakerSegments]
    kept: list[Named]
    everything: list[Named]
    solver: SupervectorTraining | None = None
    inner: Named = field(default_factory=dict)


@dataclass(frozen=True)
class _Shared:
    """Background models, groups of their components, and numbers of speakers: ``known`` before, and in all."""

    ubms: Backgrounds
    groups: Mapping[UtteranceKind, Sequence[Numbers]]
    known: int
    population: int


@dataclass(frozen=True)
class UtteranceTrainer:
    """Trains the machines of one ``branch`` on ``jobs`` threads; ``progress`` is called after each step."""

    settings: Config
    branch: Branch
    jobs: int
    progress: Progress

    @property
    def kinds(self) -> list[UtteranceKind]:
        """Return the kinds of machines of the branch that the settings ask for."""
        return [kind for kind in utterance_kinds_of(self.settings.machines.kinds) if kind.branch is self.branch]

    def prepared(
        self, known: SpeakerModel, newcomers: Sequence[NewSpeaker], kept: Sequence[Speech], held_out: Sequence[Speech]
    ) -> BranchTraining:
        """Return the material for machines of ``newcomers``, from their speech ``kept`` and ``held_out``.

        Background models are those of the ``known`` speakers, or else trained on the speech that is kept.
        """
        population = len(known) + len(newcomers)
        ubms = known.ubms(self.branch) or self.ubms(kept, population)
        groups = {
            kind: component_groups(_mixture(ubms, kind).means, self.settings.gmm.groups)
            for kind in self.kinds
            if kind.machine == "gmm"
        }
        tasks = zip(newcomers, kept, held_out, range(len(known), population), strict=True)
        shared = _Shared(ubms, groups, len(known), population)
        each = in_order(lambda task: self._of_newcomer(shared, *task), tasks, self.jobs)
        new, of_kept, of_everything = map(list, zip(*each, strict=True))
        return BranchTraining(ubms, new, of_kept, of_everything)

    def solved(self, known: SpeakerModel, made: BranchTraining) -> BranchTraining:
        """Return the material ``made`` for new speakers, with everybody's supervector machines; reads no speech."""
        for kind in (kind for kind in self.kinds if kind.machine == "supervector"):
            # Segments at the stored precision, so that enrolling together or one by one does not differ in these.
            has_pseudo = self.branch.has_pseudo_speakers(self.settings, len(known) + len(made.segments))
            everybody = [*stored_segments(known, kind, has_pseudo=has_pseudo), *made.segments]
            solver, inner = solve(everybody, self.settings, kind, known=known, jobs=self.jobs)
            made = replace(made, solver=solver, inner=inner)
        return made

    def trained(self, model: SpeakerModel, made: BranchTraining, *, whole: bool) -> SpeakerModel:
        """Return ``model`` with the branch's machines of everybody, of the ``whole`` speech or of that not held out."""
        own = made.everything if whole else made.kept
        model = model.changed(own, ubm_arrays(made.ubms))
        for kind in self.kinds:
            if made.solver is None or kind.machine != "supervector":
                continue
            if whole:
                arrays, shared = machine_arrays(made.solver, kind, jobs=self.jobs)
                model = model.changed(arrays, {**shared, **made.inner})
            else:  # held-out trials are scored by the solver, without coefficients
                none = {kind.array: np.empty(0, dtype=np.float32)}
                model = model.changed([none] * len(model), {f"{kind.array}.mean": made.solver.solution.mean})
        return model

    def _of_newcomer(
        self, shared: _Shared, newcomer: NewSpeaker, kept: Speech, held_out: Speech, number: int
    ) -> tuple[SpeakerSegments, Named, Named]:
        """Return the segments of the ``newcomer`` with this ``number``, and arrays of speech kept and of everything.

        GMMs are adapted here: everybody's statistics together would take more memory.
        """
        share, most = self.settings.threshold.holdout, self._most_segments(shared.population)
        (first, statistics), (held, more) = (
            self._material(shared, newcomer.id, speech, number, max(1, round(part * most)))
            for speech, part in ((kept, 1.0 - share), (held_out, share))
        )
        everything = self._after_earlier(newcomer, first.joined(held))
        of_kept, of_everything = (self._gmms(shared, newcomer, sums) for sums in (statistics, statistics + more))
        if any(kind.machine == "supervector" for kind in self.kinds):
            of_everything |= dict(zip(self._names(everything), everything.parts, strict=True))
        branches = trained_branches(self.settings.machines.kinds)
        self.progress("segments", 1, len(branches) * (shared.population - shared.known))
        return everything, of_kept, of_everything

    def ubms(self, speech: Sequence[Speech], population: int) -> Backgrounds:
        """Train the universal background models on everybody's ``speech``."""
        own = [self._own(one, population) for one in speech]
        parts = [part for one in own for part in (*one.versions, *one.pseudo_speakers)]
        backgrounds = list(dict.fromkeys(background for kind in self.kinds for background in kind.backgrounds))
        trained = in_order(lambda one: self._ubm(one, parts), backgrounds, self.jobs)
        return dict(zip(backgrounds, trained, strict=True))

    def _ubm(self, background: Background, parts: Sequence[Utterances]) -> BackgroundModel:
        if not background.is_trained:
            return Encoder(self.settings.embedding)
        settings, prior = background.settings(self.settings), self.branch.mean_prior(self.settings)
        total = sum(len(block.vectors) for part in parts for block in part)
        every = max(1, total // (FRAMES_TO_DRAW_FROM * MIXTURE_FRAMES))
        # Only the frames drawn from each utterance are held: all frames would take as much memory as all speech.
        frames = (block.of(background.analysis) for part in parts for block in self._joined(part))
        return train_ubm(
            np.concatenate([(vectors - running_mean(vectors, prior))[::every].copy() for vectors in frames]),
            components=background.components(self.settings),
            relevance=settings.relevance,
            seed=self.settings.seed,
            half_db=settings.half_db,
            mean_prior=prior,
        )

    def _most_segments(self, population: int) -> int:
        """Return the most segments of each speaker: as many as there is room for once a ``population`` is enrolled.

        Fewer but longer segments say more about a voice than short ones of which some are left out.
        """
        pseudo = len(self.settings.supervector.speeds) * self.branch.has_pseudo_speakers(self.settings, population)
        room = most_rows(self.settings) / (population * (1.0 + pseudo / PSEUDO_SHARE))
        return min(self.branch.settings(self.settings).max_segments, max(1, int(room)))

    def _own(self, speech: Speech, population: int) -> Speech:
        """Return the part of ``speech`` that the branch is trained on."""
        versions = speech.versions[:1] if self.branch is RAW else speech.versions
        return Speech(versions, speech.pseudo_speakers * self.branch.has_pseudo_speakers(self.settings, population))

    def _joined(self, utterances: Utterances) -> list[FeatureBlock]:
        """Return utterances with speech, joined to the length of a trial where they are normalised."""
        spoken = [block for block in utterances if len(block.vectors)]
        if self.branch is RAW:
            return spoken
        return joined_to(spoken, self.settings.threshold.trial_seconds / self.settings.features.step_seconds)

    def _material(
        self, shared: _Shared, speaker: int, speech: Speech, number: int, most: int
    ) -> tuple[SpeakerSegments, Array]:
        """Return the segments of a ``speaker`` and, for GMMs, the statistics (K, 1 + d) of all the ``speech``.

        If there are fewer segments than versions of the speech, they are of some of the versions, in rotation.
        """
        ubms, speech = shared.ubms, self._own(speech, shared.population)
        segments, pseudo, statistics = np.empty((0, 0), dtype=np.float16), [], np.empty((0, 0))
        versions = [self._weighed(ubms, version) for version in speech.versions]
        for kind in self.kinds:
            if kind.machine == "gmm":
                statistics = self._statistics(ubms, kind, versions)
                continue
            each = max(1, most // len(versions))
            some = by_turns(versions, most, number)
            own = [self._supervectors(ubms, kind, version, each) for version in some]
            segments = np.concatenate(own)
            read = {background: ubms[background] for background in kind.backgrounds}
            pseudo = [
                self._supervectors(ubms, kind, self._weighed(read, pseudo_speaker), max(1, most // PSEUDO_SHARE))
                for pseudo_speaker in speech.pseudo_speakers
            ]
        return SpeakerSegments(speaker, segments, pseudo), statistics

    def _after_earlier(self, newcomer: NewSpeaker, made: SpeakerSegments) -> SpeakerSegments:
        """Return a speaker's segments after the earlier ones in the store, as many as the settings allow."""
        if newcomer.earlier is None:
            return made
        most = self.branch.settings(self.settings).max_segments
        own, *pseudo = map(newcomer.after_earlier, self._names(made), made.parts)
        return replace(made, segments=own, pseudo=pseudo).thinned(most, max(1, most // PSEUDO_SHARE))[0]

    def _names(self, made: SpeakerSegments) -> list[str]:
        """Return the names of the arrays that hold the parts of a speaker's segments."""
        return [self.branch.segments, *(f"{PSEUDO}{number}" for number in range(len(made.pseudo)))]

    def _weighed(self, ubms: Backgrounds, utterances: Utterances) -> Weighed:
        """Return each utterance's frames less their mean, and posteriors of components, under each background model.

        The posteriors are those of the frames less the mean of the frames so far.
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

    def _statistics(self, ubms: Backgrounds, kind: UtteranceKind, versions: Sequence[Weighed]) -> Array:
        """Return the statistics (K, 1 + d) of all ``versions`` of a speaker's speech under the UBM of GMMs."""
        ubm = _mixture(ubms, kind)
        parts = [ubm.statistics(*part) for version in versions for part in version[kind.backgrounds[0]]]
        return np.asarray(np.sum([np.zeros((len(ubm.means), 1 + ubm.means.shape[1])), *parts], axis=0))

    def _supervectors(self, ubms: Backgrounds, kind: UtteranceKind, utterances: Weighed, most: int) -> Half:
        """Return the supervectors (S, D) of the segments of ``utterances``, at the stored precision."""
        size = max(1, round(self.branch.settings(self.settings).segment_seconds / self.settings.features.step_seconds))
        parts = []
        for background in kind.backgrounds:
            ubm, segments = ubms[background], segments_of(utterances[background], size, most)
            vectors = np.empty((len(segments), ubm.dimension), dtype=np.float32)
            for row, segment in zip(vectors, segments, strict=True):
                row[:] = ubm.vector(ubm.statistics(*segment))
            parts.append(at_half_precision(vectors))
        return np.concatenate(parts, axis=1)

    def _gmms(self, shared: _Shared, newcomer: NewSpeaker, statistics: Array) -> Named:
        """Return the mean offsets (K, d) of the speaker's MAP-adapted GMMs, by name."""
        relevance, of_group = self.settings.gmm.relevance, self.settings.gmm.group_relevance
        made: Named = {}
        for kind, groups in shared.groups.items():
            offsets = map_mean_offsets(statistics, groups, relevance=relevance, group_relevance=of_group)
            made[kind.array] = newcomer.averaged(kind.array, offsets)
        return made


def _mixture(ubms: Backgrounds, kind: UtteranceKind) -> UniversalBackgroundModel:
    """Return the background model that GMMs of a ``kind`` are adapted from."""
    return cast(UniversalBackgroundModel, ubms[kind.backgrounds[0]])


def ubm_arrays(ubms: Backgrounds) -> Named:
    """Return trained background models as arrays of the population."""
    trained = {background: ubm for background, ubm in ubms.items() if background.is_trained}
    return {
        f"{background.name}.{name}": getattr(ubm, name) for background, ubm in trained.items() for name in UBM_ARRAYS
    }
