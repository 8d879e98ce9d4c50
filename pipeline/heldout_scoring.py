"""Scores of held-out utterances against everybody, with their speaker among the rivals and as if never enrolled."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.calibration import ALONE, HeldOutTrials
from pipeline.config import Config
from pipeline.features.stream import FeatureBlock
from pipeline.machines.population import Population
from pipeline.machines.segment_training import SegmentTraining
from pipeline.panel_scoring import scorer_among
from pipeline.posteriors.coupling import RULES, Posterior, systems_of
from pipeline.posteriors.sigmoid import posterior_from
from pipeline.scoring import STRETCH, ClaimScorer, ScoringSettings

Array = NDArray[np.float64]

# With fewer speakers, leaving one out leaves nobody to compare a claim with.
LEAST_FOR_OUTSIDERS = 3

# Of each trial these beginnings are scored too, under the default system: what a stream knows before it is over.
BEGINNINGS_SECONDS = (0.5, 0.75, 1.0, 1.5)


class HeldOutScoring:
    """Scores held-out utterances of speakers of ``population`` under every system.

    ``training`` is the solver of its segment machines, which can leave a speaker out. ``claims`` are the numbers of the
    speakers who can be claimed, ``ids`` the ids of all. Posteriors are the fixed ones of ``settings``, unless others
    are given to ``with_posterior``.
    """

    def __init__(
        self,
        settings: Config,
        population: Population,
        training: SegmentTraining | None,
        claims: list[int],
        ids: list[int],
    ) -> None:
        systems = systems_of(settings.machines.kinds, (settings.scoring.system,), settings.machines.rivals)
        self.systems = tuple(name for name in systems if not RULES[name].parts)
        self._units = sorted({RULES[name].alone for name in systems})
        default = settings.scoring.system
        self._early = tuple(
            name for name in RULES[default].parts_among(self.systems) or (default,) if name in self.systems
        )
        step, longest = settings.features.step_seconds, settings.threshold.trial_seconds
        self._beginnings = tuple(
            sorted({max(1, round(seconds / step)) for seconds in BEGINNINGS_SECONDS if seconds < longest})
        )
        self._claims = claims
        self._ids = np.array(ids, dtype=np.uint64)
        self._population = population
        self._training = training
        most = settings.machines.rivals
        self._judged_among = len(population) if most == "all" else min(len(population), most + 1)
        posterior = posterior_from(settings.posterior)
        scoring = ScoringSettings(posterior, settings.scoring.dtype, half_db=settings.segments.half_db)
        self._among = scorer_among(population, claims, self.systems, scoring)
        self._alone = ClaimScorer(population, claims, self.systems, scoring, without_rivals=True)

    def with_posterior(self, posterior: Posterior) -> HeldOutScoring:
        """The same machines under another ``posterior``."""
        changed = copy.copy(self)
        changed._among = self._among.with_posterior(posterior)
        changed._alone = self._alone.with_posterior(posterior)
        return changed

    def none(self) -> HeldOutTrials:
        """No trials, of the systems that ``score`` gives."""
        names = [*self.systems, *(f"{ALONE}{unit}" for unit in self._units)]
        return HeldOutTrials(
            claims=np.empty(0, dtype=np.uint64),
            speakers=np.empty(0, dtype=np.uint64),
            population=np.empty(0, dtype=np.int64),
            scores={name: np.empty(0) for name in names},
            frames=np.empty(0, dtype=np.int64),
            outsider=np.empty(0, dtype=bool),
            beginnings={frames: {name: np.empty(0) for name in self._early} for frames in self._beginnings},
        )

    def score(self, speaker: int, trial: FeatureBlock) -> HeldOutTrials:
        """Trials of one utterance of ``speaker``: every claim, then every false claim by somebody never enrolled."""
        among, alone = self._among.start(), self._alone.start()
        heard, at = [], 0
        for end in (*self._beginnings, len(trial.vectors)):
            among.push(trial.part(slice(at, end)))
            heard.append((dict(among.sums), among.frames))
            at = min(end, len(trial.vectors))
        alone.push(trial)
        lonely = {f"{ALONE}{RULES[name].alone}": values for name, values in alone.scores().items()}
        parts = [self._trials(speaker, among.frames, self._finish(heard, None, speaker), lonely, None)]
        if self._judged_among >= LEAST_FOR_OUTSIDERS:
            parts.append(self._trials(speaker, among.frames, self._finish(heard, speaker, speaker), lonely, speaker))
        return HeldOutTrials.joined(parts)

    def _finish(
        self, heard: Sequence[tuple[dict[str, Array], int]], absent: int | None, speaker: int
    ) -> list[dict[str, Array]]:
        """Scores from the sums over each of the beginnings and over the whole trial, the last."""
        margins = self._segment_margins([sums for sums, _ in heard], absent, speaker)
        return [
            self._among.finish(sums, frames, segment_margins=its_margins, absent=absent)
            for (sums, frames), its_margins in zip(heard, margins, strict=True)
        ]

    def _segment_margins(
        self, sums: Sequence[dict[str, Array]], absent: int | None, speaker: int
    ) -> Sequence[Array | None]:
        if self._training is None or self._population.segments is None or len(self._population) < 2:
            return [None] * len(sums)
        space = self._population.segments.space
        vectors = np.stack([space.vector(found[STRETCH]) for found in sums])  # at once: they meet a large matrix
        if absent is None:
            return list(self._training.margins(vectors))
        return list(self._training.margins_without(speaker, vectors))

    def _trials(
        self, speaker: int, frames: int, found: list[dict[str, Array]], lonely: dict[str, Array], absent: int | None
    ) -> HeldOutTrials:
        kept = np.array([claim != absent for claim in self._claims], dtype=bool)
        count = int(kept.sum())
        *beginnings, whole = found
        return HeldOutTrials(
            claims=self._ids[np.array(self._claims)[kept]],
            speakers=np.full(count, self._ids[speaker]),
            population=np.full(count, len(self._population), dtype=np.int64),
            scores={name: values[kept] for name, values in (whole | lonely).items()},
            frames=np.full(count, frames, dtype=np.int64),
            outsider=np.full(count, absent is not None),
            beginnings={
                length: {name: scores[name][kept] for name in self._early}
                for length, scores in zip(self._beginnings, beginnings, strict=True)
            },
        )
