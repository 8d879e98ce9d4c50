"""The two rounds of an enrollment: provisional machines for the held-out trials, then those that are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.calibration import ALONE, HeldOutTrials
from pipeline.codebook import fit_codebook
from pipeline.config import Config
from pipeline.holdout import split_utterances
from pipeline.machines.assembly import machine_count, train_population
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.training import run_parallel
from pipeline.manifest import Role, new_id
from pipeline.posteriors.coupling import RULES, systems_of
from pipeline.posteriors.sigmoid import posterior_from
from pipeline.scoring import ClaimScorer
from pipeline.store import SpeakerStore

Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
"""Called as progress(stage, steps just done, steps in all)."""


@dataclass
class Voice:
    """One new speaker's utterances as speech vectors."""

    name: str
    id: int = field(default_factory=new_id)
    utterances: list[Array] = field(default_factory=list)

    @property
    def frames(self) -> int:
        """Speech vectors in all."""
        return sum(map(len, self.utterances))


class Rounds:
    """Trains one population a round: the speakers of the store, then the new ones."""

    def __init__(self, settings: Config, current: SpeakerStore | None, jobs: int, progress: Progress) -> None:
        self._settings = settings
        self._known = current.population() if current and current.speakers else None
        self._roles = [speaker.role for speaker in current.speakers] if current else []
        self._known_ids = [speaker.id for speaker in current.speakers] if current else []
        self._jobs = jobs
        self._progress = progress

    def train(self, vectors: list[Array], stage: str) -> Population:
        """Codebooks of the new speakers' ``vectors`` and all machines that involve them."""
        settings = self._settings

        def quantise(speaker_vectors: Array) -> Array:
            book = fit_codebook(speaker_vectors, settings.codebook, seed=settings.seed)
            self._progress(f"{stage}: codebooks", 1, len(vectors))
            return book

        books = run_parallel(quantise, ((part,) for part in vectors), jobs=self._jobs)
        known = [] if self._known is None else [self._known.pool.codebook(n) for n in range(len(self._known))]
        pool = Pool.of([*known, *books], settings.machines.sigma)
        total = machine_count(len(pool), len(known), settings.machines)
        return train_population(
            pool,
            settings.machines,
            known=self._known,
            jobs=self._jobs,
            progress=lambda done: self._progress(f"{stage}: machines", done, total),
        )

    def held_out_trials(self, voices: list[Voice], role: Role) -> HeldOutTrials:
        """Score utterances set aside against machines trained without them."""
        settings = self._settings
        splits = [split_utterances(voice.utterances, settings) for voice in voices]
        population = self.train([kept for kept, _ in splits], "thresholds")
        everybody = [*self._known_ids, *(voice.id for voice in voices)]
        roles = [*self._roles, *([role] * len(voices))]
        claims = [n for n, claimed in enumerate(roles) if claimed == "speaker"]
        spoken = [(voice.id, trial) for voice, (_, held) in zip(voices, splits, strict=True) for trial in held]
        systems = systems_of(settings.machines.kinds)
        posterior = posterior_from(settings.posterior)
        scorer = ClaimScorer(population, claims, systems, posterior)
        one_class = ClaimScorer(population, claims, systems, posterior, without_rivals=True)

        def score(vectors: Array) -> dict[str, Array]:
            among_rivals, alone = scorer.start(), one_class.start()
            among_rivals.push(vectors)
            alone.push(vectors)
            self._progress("thresholds: scoring", 1, len(spoken))
            return among_rivals.scores() | {
                f"{ALONE}{RULES[name].alone}": values for name, values in alone.scores().items()
            }

        results = run_parallel(score, ((vectors,) for _, vectors in spoken), jobs=self._jobs) if claims else []
        count = len(results) * len(claims)
        names = [*systems, *sorted({f"{ALONE}{RULES[name].alone}" for name in systems})]
        return HeldOutTrials(
            claims=np.tile(np.array([everybody[n] for n in claims], dtype=np.uint64), len(results)),
            speakers=np.repeat(np.array([id_ for id_, _ in spoken], dtype=np.uint64), len(claims))[:count],
            population=np.full(count, len(population), dtype=np.int64),
            scores={name: np.concatenate([np.empty(0), *(scores[name] for scores in results)]) for name in names},
        )
