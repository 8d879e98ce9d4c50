"""Enrollment: recordings of speakers to a store of machines, with a threshold from utterances held out.

Two rounds. In the first, part of every new speaker's utterances is set aside, provisional machines are trained on the
rest and the set-aside utterances are scored against them; only those scores are kept. In the second round the machines
that go into the store are trained on everything. Speakers already enrolled keep their machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipeline.calibration import HeldOutTrials
from pipeline.codebook import fit_codebook
from pipeline.config import Config
from pipeline.corpus import Utterance
from pipeline.errors import AudioError, ConfigError, NotEnoughSpeechError, SpeakerExistsError
from pipeline.features.standardize import Standardizer
from pipeline.frontend import read_features
from pipeline.holdout import split_utterances
from pipeline.machines.assembly import machine_count, train_population
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.training import run_parallel, train_one_vs_rest
from pipeline.manifest import Role
from pipeline.posteriors.coupling import RULES
from pipeline.posteriors.sigmoid import posterior_from
from pipeline.scoring import ClaimScorer
from pipeline.store import SpeakerStore
from pipeline.store_writer import NewSpeaker, StoreWriter, new_id, store_writer

Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
"""Called as progress(stage, steps just done, steps in all)."""


@dataclass(frozen=True)
class SpeakerSummary:
    """What one speaker's audio came to; ``seconds`` are of speech."""

    name: str
    utterances: int
    seconds: float
    frames: int
    centroids: int
    short_of_centroids: bool


@dataclass(frozen=True)
class EnrollmentReport:
    """Who was enrolled, who was refused and why, which files were skipped and why."""

    store: SpeakerStore
    enrolled: tuple[SpeakerSummary, ...]
    refused: tuple[tuple[str, str], ...]
    skipped: tuple[tuple[Path, str], ...]
    held_out_trials: int
    machines: int
    elapsed_seconds: float


@dataclass
class _Voice:
    """One new speaker's utterances as speech vectors."""

    name: str
    id: int = field(default_factory=new_id)
    utterances: list[Array] = field(default_factory=list)

    @property
    def frames(self) -> int:
        return sum(map(len, self.utterances))


def enroll(
    store: Path | str,
    speakers: Mapping[str, Sequence[Utterance]],
    config: Config | None = None,
    *,
    role: Role = "speaker",
    jobs: int = 1,
    progress: Progress | None = None,
) -> EnrollmentReport:
    """Enroll ``speakers`` into the store at ``store``, making it if it is not there.

    ``config`` must equal the settings of a store that exists (None takes those). A file that cannot be decoded is
    skipped and reported; a speaker with too little speech is refused and reported. Raises SpeakerExistsError before
    any work is done, NotEnoughSpeechError if nobody is left to enroll. All or nothing: on any error the store is as
    it was.
    """
    started = time.perf_counter()
    progress = progress or (lambda _stage, _done, _total: None)
    with store_writer(store) as writer, threadpool_limits(1):
        settings = _agreed_settings(writer, config)
        _check_names(writer, speakers)
        _check_memory(writer, len(speakers), settings)
        voices, skipped = _read_voices(speakers, settings, writer.current, jobs, progress)
        voices, refused = _audible(voices, settings)
        scaling = _standardize(voices, settings, writer.current)
        rounds = _Rounds(settings, writer.current, jobs, progress)
        trials = rounds.held_out_trials(voices, role)
        population = rounds.train([np.concatenate(voice.utterances) for voice in voices], "training")
        step = settings.features.step_seconds
        newcomers = [
            NewSpeaker(voice.id, voice.name, role, voice.frames * step, voice.frames, len(voice.utterances))
            for voice in voices
        ]
        enrolled = writer.add(newcomers, population, trials, config=settings, scaling=scaling)
    return EnrollmentReport(
        store=enrolled,
        enrolled=_summaries(enrolled, len(newcomers)),
        refused=tuple(refused),
        skipped=tuple(skipped),
        held_out_trials=len(trials),
        machines=machine_count(len(population), len(population) - len(newcomers), settings.machines),
        elapsed_seconds=time.perf_counter() - started,
    )


def _summaries(store: SpeakerStore, newcomers: int) -> tuple[SpeakerSummary, ...]:
    wanted = store.config.codebook.centroids
    return tuple(
        SpeakerSummary(s.name, s.utterances, s.seconds, s.frames, s.centroids, s.centroids < wanted)
        for s in store.speakers[-newcomers:]
    )


def remove_speaker(store: Path | str, name: str, *, jobs: int = 1) -> SpeakerStore:
    """Erase a speaker and every coefficient their voice went into; raises UnknownSpeakerError.

    One-vs-rest machines have everybody in them and are trained again for those who remain.
    """
    with store_writer(store) as writer, threadpool_limits(1):
        current = SpeakerStore.open(store)
        if name not in {speaker.name for speaker in current.speakers}:
            current.position(name)
        rest = None
        if "one_vs_rest" in current.config.machines.kinds and len(current.speakers) > 2:
            pool = current.population(()).pool
            books = [pool.codebook(n) for n, speaker in enumerate(current.speakers) if speaker.name != name]
            remaining = Pool.of(books, pool.sigma)
            machines = train_one_vs_rest(remaining, C=current.config.machines.C, jobs=jobs)
            rest = Population(
                remaining,
                one_vs_rest_coef=np.stack([machine.coef for machine in machines], axis=1),
                one_vs_rest_bias=np.array([machine.bias for machine in machines]),
            )
        return writer.remove(name, rest)


def _agreed_settings(writer: StoreWriter, config: Config | None) -> Config:
    if writer.current is None:
        return Config() if config is None else config
    stored = writer.current.config
    if config is not None and config != stored:
        differing = [key for key in Config.model_fields if getattr(config, key) != getattr(stored, key)]
        raise ConfigError(
            f"{writer.path}: the store was enrolled with other settings (they differ in {', '.join(differing)});"
            " leave the settings out to add to it, or enroll into a new store"
        )
    return stored


def _check_names(writer: StoreWriter, speakers: Mapping[str, Sequence[Utterance]]) -> None:
    if not speakers:
        raise NotEnoughSpeechError("enrollment: no speakers were given", found=0.0, needed=0.0)
    taken = {speaker.name for speaker in writer.current.speakers} if writer.current else set()
    if doubles := sorted(taken & set(speakers)):
        raise SpeakerExistsError(
            f"{writer.path}: enrolled already: {', '.join(map(repr, doubles[:5]))}"
            f"{' ...' if len(doubles) > 5 else ''}; remove them first, or leave them out"
        )


def _check_memory(writer: StoreWriter, newcomers: int, settings: Config) -> None:
    """Refuse one-vs-rest machines whose kernel matrix would be larger than the settings allow."""
    if "one_vs_rest" not in settings.machines.kinds:
        return
    speakers = newcomers + (len(writer.current.speakers) if writer.current else 0)
    gib = 8 * (speakers * settings.codebook.centroids) ** 2 / 2**30
    if gib > settings.machines.gram_gib:
        raise ConfigError(
            f"machines.kinds: one_vs_rest machines of {speakers} speakers need a kernel matrix of {gib:.1f} GiB, and"
            f" machines.gram_gib is {settings.machines.gram_gib:g}: raise it, or leave one_vs_rest out of the kinds"
        )


def _read_voices(
    speakers: Mapping[str, Sequence[Utterance]],
    settings: Config,
    current: SpeakerStore | None,
    jobs: int,
    progress: Progress,
) -> tuple[list[_Voice], list[tuple[Path, str]]]:
    utterances = [utterance for name in speakers for utterance in speakers[name]]
    scaling = None if current is None else current.scaling

    def read(utterance: Utterance) -> Array | AudioError:
        try:
            return read_features(utterance, settings.features, scaling).vectors
        except AudioError as error:
            return error
        finally:
            progress("reading", 1, len(utterances))

    skipped: list[tuple[Path, str]] = []
    voices = {name: _Voice(name) for name in speakers}
    owners = [name for name in speakers for _ in speakers[name]]
    results = run_parallel(read, ((utterance,) for utterance in utterances), jobs=jobs)
    for owner, utterance, result in zip(owners, utterances, results, strict=True):
        if isinstance(result, AudioError):
            skipped.append((utterance.path, str(result)))
        elif len(result):
            voices[owner].utterances.append(result)
    return list(voices.values()), skipped


def _standardize(voices: list[_Voice], settings: Config, current: SpeakerStore | None) -> Standardizer | None:
    """The store's scaling; a new store learns it, if its settings say so, and the voices are scaled by it."""
    if current is not None:
        return current.scaling
    if not settings.features.standardize:
        return None
    scaling = Standardizer.fit(np.concatenate([part for voice in voices for part in voice.utterances]))
    for voice in voices:
        voice.utterances = [scaling(part) for part in voice.utterances]
    return scaling


def _audible(voices: list[_Voice], settings: Config) -> tuple[list[_Voice], list[tuple[str, str]]]:
    """Part those with enough speech from those without; raises NotEnoughSpeechError if nobody has."""
    step, needed = settings.features.step_seconds, settings.codebook.min_seconds
    enough, refused, errors = [], [], []
    for voice in voices:
        if voice.frames and voice.frames * step >= needed:
            enough.append(voice)
            continue
        errors.append(NotEnoughSpeechError(f"speaker {voice.name!r}", found=voice.frames * step, needed=needed))
        refused.append((voice.name, str(errors[-1])))
    if not enough:
        raise errors[0]
    return enough, refused


class _Rounds:
    """Trains one population a round: the speakers of the store, then the new ones."""

    def __init__(self, settings: Config, current: SpeakerStore | None, jobs: int, progress: Progress) -> None:
        self._settings = settings
        self._known = current.population() if current else None
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

    def held_out_trials(self, voices: list[_Voice], role: Role) -> HeldOutTrials:
        """Score utterances set aside against machines trained without them."""
        settings = self._settings
        splits = [split_utterances(voice.utterances, settings) for voice in voices]
        population = self.train([kept for kept, _ in splits], "thresholds")
        everybody = [*self._known_ids, *(voice.id for voice in voices)]
        roles = [*self._roles, *([role] * len(voices))]
        claims = [n for n, claimed in enumerate(roles) if claimed == "speaker"]
        spoken = [(voice.id, trial) for voice, (_, held) in zip(voices, splits, strict=True) for trial in held]
        systems = [name for name, rule in RULES.items() if rule.needs <= set(settings.machines.kinds)]

        scorer = ClaimScorer(population, claims, systems, posterior_from(settings.posterior))

        def score(vectors: Array) -> dict[str, Array]:
            running = scorer.start()
            running.push(vectors)
            self._progress("thresholds: scoring", 1, len(spoken))
            return running.scores()

        results = run_parallel(score, ((vectors,) for _, vectors in spoken), jobs=self._jobs) if claims else []
        count = len(results) * len(claims)
        return HeldOutTrials(
            claims=np.tile(np.array([everybody[n] for n in claims], dtype=np.uint64), len(results)),
            speakers=np.repeat(np.array([id_ for id_, _ in spoken], dtype=np.uint64), len(claims))[:count],
            population=np.full(count, len(population), dtype=np.int64),
            scores={name: np.concatenate([np.empty(0), *(scores[name] for scores in results)]) for name in systems},
        )
