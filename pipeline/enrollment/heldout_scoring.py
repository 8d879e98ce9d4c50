"""Scores of held-out utterances under every system, each as an enrolled speaker's and as an unknown impostor's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import cast

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.features.stream import FeatureBlock
from pipeline.machines.branches import UtteranceKind, utterance_kinds_of
from pipeline.machines.margins import Population
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.supervectors import SupervectorMachines, supervector
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring.claims import ClaimScorer, ScoringSettings, UtteranceStatistics
from pipeline.scoring.conditions import SIDE_INFORMATION, ConditionClassifier
from pipeline.scoring.rules import RULES, systems_of
from pipeline.scoring.trials import HeldOutTrials

Array = NDArray[np.float64]
OfSpeaker = tuple[int, Sequence[FeatureBlock]]
"""A speaker's number and utterances."""
Margins = dict[str, Array]
"""Margins (N,) of an utterance, by kind of machine."""

# With fewer speakers, leaving one out leaves nobody to compare a claim with.
MIN_FOR_UNKNOWN = 3

# Where other speakers are drawn, so many consecutive speakers share one draw, and are all part of it.
SPEAKERS_A_DRAW = 16

# Prefixes of each trial that the default system scores, too: a stream is scored before its end.
PREFIX_SECONDS = (0.5, 0.75, 1.0, 1.5)


@dataclass(frozen=True)
class Claims:
    """Claims on the speakers with these ``numbers`` (C,), judged ``among`` their cohorts, or ``alone``."""

    numbers: NDArray[np.int64]
    among: ClaimScorer
    alone: ClaimScorer


class HeldOutScoring:
    """Scores held-out utterances of speakers of ``population`` under every system.

    ``training`` has the solvers of the population's supervector machines, which can leave a speaker out. ``claims`` are
    the numbers of the speakers who can be claimed, ``ids`` the ids of all. Utterances of a ``changed`` condition are
    scored only by the machines over whole utterances. Each utterance is claimed for its speaker and for ``most_others``
    speakers drawn at random, or a few more (default: all).
    """

    def __init__(
        self,
        settings: Config,
        population: Population,
        training: Mapping[UtteranceKind, SupervectorTraining],
        claims: list[int],
        ids: list[int],
        *,
        condition: ConditionClassifier | None = None,
        changed: bool = False,
        most_others: int | None = None,
    ) -> None:
        self._judged_among = settings.machines.judged_among(len(population))
        systems = systems_of(settings.machines.kinds, every_pair=self._judged_among == len(population))
        self.systems = tuple(
            name for name in systems if not RULES[name].parts and (RULES[name].kind is not None or not changed)
        )
        kinds = utterance_kinds_of(settings.machines.kinds)
        self._given = [kind for kind in kinds if kind in training or kind.machine != "supervector"]
        self._alone_keys = [] if changed else sorted({RULES[name].alone_key for name in systems})
        self._more = () if condition is None else SIDE_INFORMATION
        default = settings.scoring.system
        parts = RULES[default].parts_among(self.systems) or (default,)
        self._prefixed = (*(name for name in parts if name in self.systems), *self._more)
        shorter = [seconds for seconds in PREFIX_SECONDS if seconds < settings.threshold.trial_seconds]
        self._prefix_frames = sorted({max(1, round(one / settings.features.step_seconds)) for one in shorter})
        self._most_others = len(claims) if most_others is None else most_others
        self._numbers, self._seed = np.array(claims, dtype=np.int64), settings.seed
        self._ids = np.array(ids, dtype=np.uint64)
        self._population = population
        self._training = training
        self._settings = ScoringSettings(
            FixedSigmoid(settings.posterior.slope),
            settings.scoring.dtype,
            condition=condition,
            frame_subsampling=settings.scoring.frame_subsampling,
        )
        self._latest: tuple[int | None, Claims] | None = None
        # Solved in advance, so that none of the threads that score does it.
        _ = [solver.without_held_out for solver in training.values()]

    def none(self) -> HeldOutTrials:
        """Return no trials, with the scores that ``score_together`` gives."""
        names = [*self.systems, *self._more, *self._alone_keys]
        return HeldOutTrials(
            claims=np.empty(0, dtype=np.uint64),
            speakers=np.empty(0, dtype=np.uint64),
            population=np.empty(0, dtype=np.int64),
            scores={name: np.empty(0) for name in names},
            frames=np.empty(0, dtype=np.int64),
            unknown=np.empty(0, dtype=bool),
            prefixes={frames: {name: np.empty(0) for name in self._prefixed} for frames in self._prefix_frames},
        )

    def score(self, speaker: int, utterances: Sequence[FeatureBlock]) -> list[HeldOutTrials]:
        """Return the trials of each utterance of one speaker, as ``score_together`` does."""
        return score_together([(self, [(speaker, utterances)])])[0][0]

    def _begun(self, speech: Sequence[OfSpeaker]) -> list[tuple[Claims, list[UtteranceStatistics]]]:
        """Return the claims on each speaker's utterances, and the statistics of all their prefixes."""
        claims = [self._claims(speaker) for speaker, _ in speech]
        return [
            (its_claims, [one for utterance in utterances for one in self._prefixes(its_claims, utterance)])
            for its_claims, (_, utterances) in zip(claims, speech, strict=True)
        ]

    def _of_speaker(
        self,
        claims: Claims,
        speaker: int,
        utterances: Sequence[FeatureBlock],
        summaries: list[UtteranceStatistics],
        margins: list[list[Margins]],
    ) -> list[HeldOutTrials]:
        """Return the trials of one speaker's utterances, by ``margins`` with the speaker there and absent."""
        trials, first = [], 0
        for utterance in utterances:
            lengths = self._lengths(utterance)
            own = slice(first, first + len(lengths))
            first = own.stop
            fallback: dict[str, Array] = {}
            if self._alone_keys:
                alone = claims.alone.start()
                alone.push(utterance)
                fallback = {RULES[name].alone_key: values for name, values in alone.scores().items()}
            parts = []
            for absent, its_margins in zip((None, speaker), margins, strict=False):
                scored = {
                    length: claims.among.finish(statistics, margins=its, absent=absent)
                    for length, statistics, its in zip(lengths, summaries[own], its_margins[own], strict=True)
                }
                parts.append(self._trials(claims, speaker, scored, fallback, absent))
            trials.append(HeldOutTrials.joined(parts))
        return trials

    def _claims(self, speaker: int) -> Claims:
        """Return the claims on a speaker's utterances: for everybody, or for neighbours in the order and others."""
        numbers, draw = self._numbers, None
        if len(numbers) > self._most_others + SPEAKERS_A_DRAW:
            draw = speaker // SPEAKERS_A_DRAW
        latest = self._latest  # once: other threads may set it
        if latest is None or latest[0] != draw:
            if draw is not None:
                others = np.random.default_rng((self._seed, draw)).permutation(numbers)[: self._most_others]
                numbers = numbers[(numbers // SPEAKERS_A_DRAW == draw) | np.isin(numbers, others)]
            scorer = partial(ClaimScorer, self._population, numbers, self.systems, self._settings)
            self._latest = latest = draw, Claims(numbers, scorer(), scorer(is_alone=True))
        return latest[1]

    def _lengths(self, utterance: FeatureBlock) -> list[int]:
        """Return the distinct lengths, in frames, at which an utterance is scored: its own is the last."""
        whole = len(utterance.vectors)
        return sorted({min(frames, whole) for frames in (*self._prefix_frames, whole)})

    def _prefixes(self, claims: Claims, utterance: FeatureBlock) -> list[UtteranceStatistics]:
        """Return the utterance's statistics at each of its ``_lengths``."""
        among, so_far, at = claims.among.start(), [], 0
        for end in self._lengths(utterance):
            among.push(utterance.part(slice(at, end)))
            so_far.append(among.utterance_statistics())
            at = end
        return so_far

    def _margins(
        self, speakers: Sequence[int], summaries: Sequence[list[UtteranceStatistics]]
    ) -> list[list[list[Margins]]]:
        """Return each speaker's margins of all ``summaries``: with the speaker and, among enough others, without.

        Only the machines made by a solver differ between the two.
        """
        absences = (False, True) if self._judged_among >= MIN_FOR_UNKNOWN else (False,)
        margins: list[list[list[Margins]]] = [[[{} for _ in its] for _ in absences] for its in summaries]
        flat = [one for its in summaries for one in its]
        ends = np.cumsum([len(its) for its in summaries])[:-1]
        for kind in self._given if len(self._population) > 1 and flat else ():
            machines = self._population.utterance[kind.name]
            statistics = [[one.statistics[background.name] for one in flat] for background in kind.backgrounds]
            if kind in self._training:
                ubms = cast(SupervectorMachines, machines).ubms
                vectors = (supervector(ubms, its) for its in zip(*statistics, strict=True))
                of_speakers = [list(islice(vectors, len(its))) for its in summaries]
                made = self._training[kind].held_out_margins(speakers, of_speakers)
            else:
                of_each = np.split(machines.margins([np.stack(its) for its in statistics]), ends)
                made = [(rows, rows) for rows in of_each]
            for its, with_and_without in zip(margins, made, strict=True):
                for by_absence, rows in zip(its, with_and_without, strict=False):
                    for by_kind, row in zip(by_absence, rows, strict=True):
                        by_kind[kind.name] = row
        return margins

    def _trials(
        self,
        claims: Claims,
        speaker: int,
        scored: dict[int, dict[str, Array]],
        fallback: dict[str, Array],
        absent: int | None,
    ) -> HeldOutTrials:
        kept = claims.numbers != absent
        count, frames = int(kept.sum()), max(scored)
        return HeldOutTrials(
            claims=self._ids[claims.numbers[kept]],
            speakers=np.full(count, self._ids[speaker]),
            population=np.full(count, len(self._population), dtype=np.int64),
            scores={name: values[kept] for name, values in (scored[frames] | fallback).items()},
            frames=np.full(count, frames, dtype=np.int64),
            unknown=np.full(count, absent is not None),
            prefixes={
                length: {name: scored[min(length, frames)][name][kept] for name in self._prefixed}
                for length in self._prefix_frames
            },
        )


def score_together(parts: Sequence[tuple[HeldOutScoring, Sequence[OfSpeaker]]]) -> list[list[list[HeldOutTrials]]]:
    """Return, for each scoring, each speaker and each utterance, its trials.

    The trials are all claims, then the nontarget ones again as if by unknown impostors. All scorings must be of one
    population: inner products with its training rows are computed for all utterances at once.
    """
    begun = [scoring._begun(speech) for scoring, speech in parts]
    speakers = [speaker for _, speech in parts for speaker, _ in speech]
    summaries = [its for of_scoring in begun for _, its in of_scoring]
    margins = iter(parts[0][0]._margins(speakers, summaries))
    return [
        [
            scoring._of_speaker(claims, *of_speaker, its, next(margins))
            for (claims, its), of_speaker in zip(of_scoring, speech, strict=True)
        ]
        for (scoring, speech), of_scoring in zip(parts, begun, strict=True)
    ]
