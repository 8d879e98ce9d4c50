"""Enrollment: recordings of speakers to a store of machines, with a threshold from utterances held out.

Two rounds. In the first, part of every new speaker's utterances is set aside, provisional machines are trained on the
rest and the set-aside utterances are scored against them; only those scores are kept. In the second round the machines
that go into the store are trained on everything. Speakers already enrolled keep their machines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipeline.config import Config
from pipeline.copies import CopyMaker
from pipeline.corpus import Utterance
from pipeline.errors import AudioError, ConfigError, CorpusError, NotEnoughSpeechError, SpeakerExistsError
from pipeline.features.standardize import Standardizer
from pipeline.features.stream import FeatureBlock
from pipeline.frontend import features_of, read_features, read_samples
from pipeline.machines.assembly import machine_count
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.segment_training import SegmentTraining
from pipeline.machines.segments import SegmentMachines
from pipeline.machines.training import run_parallel, train_one_vs_rest
from pipeline.manifest import Role
from pipeline.posteriors.coupling import RULES, systems_of
from pipeline.rounds import Progress, Rounds, Voice
from pipeline.store import SpeakerStore
from pipeline.store_writer import NewSpeaker, StoreWriter, store_writer

Array = NDArray[np.float64]


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
        rounds = Rounds(settings, writer.current, jobs, progress)
        trials = rounds.held_out_trials(voices, role)
        trained = rounds.train([voice.versions for voice in voices], "training")
        population = trained.population
        step = settings.features.step_seconds
        newcomers = [
            NewSpeaker(voice.id, voice.name, role, voice.frames * step, voice.frames, len(voice.utterances))
            for voice in voices
        ]
        enrolled = writer.add(
            newcomers, population, trials, stretches=trained.stretches, config=settings, scaling=scaling
        )
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

    One-vs-rest and segment machines have everybody in them and are trained again for those who remain. What stays is
    the mixture that segment machines sort frames by: sounds of all who were first enrolled together.
    """
    SpeakerStore.open(store)
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
        return writer.remove(name, rest, _segments_without(current, name))


def _segments_without(current: SpeakerStore, name: str) -> SegmentMachines | None:
    """The segment machines of everybody but ``name``, trained again: their solution has everybody's speech in it."""
    segments = current.population(("segment",)).segments if "segment" in current.systems else None
    vectors = [
        part
        for speaker, part in zip(current.speakers, current.stretches() if segments else [], strict=False)
        if speaker.name != name
    ]
    if segments is None or not vectors:
        return None
    return SegmentTraining(vectors, ridge=current.config.segments.ridge).machines(segments.space)


def _agreed_settings(writer: StoreWriter, config: Config | None) -> Config:
    if writer.current is None:
        return _with_machines(Config() if config is None else config)
    stored = writer.current.config
    if config is not None and config != stored:
        differing = [key for key in Config.model_fields if getattr(config, key) != getattr(stored, key)]
        raise ConfigError(
            f"{writer.path}: the store was enrolled with other settings (they differ in {', '.join(differing)});"
            " leave the settings out to add to it, or enroll into a new store"
        )
    return stored


def _with_machines(config: Config) -> Config:
    """``config`` if its default scoring system has its machines, else raise ConfigError."""
    if config.scoring.system not in systems_of(config.machines.kinds, asked=(config.scoring.system,)):
        missing = RULES[config.scoring.system].needs - set(config.machines.kinds)
        raise ConfigError(
            f"machines.kinds: the default system, scoring.system = {config.scoring.system!r}, needs"
            f" {', '.join(sorted(missing))}, got {', '.join(config.machines.kinds)}"
        )
    return config


def _check_names(writer: StoreWriter, speakers: Mapping[str, Sequence[Utterance]]) -> None:
    if not speakers:
        raise CorpusError(f"{writer.path}: nobody to enroll: no speakers were given")
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
) -> tuple[list[Voice], list[tuple[Path, str]]]:
    tasks = [(name, number, utterance) for name in speakers for number, utterance in enumerate(speakers[name])]
    scaling = None if current is None else current.scaling
    copied = "segment" in settings.machines.kinds and bool(settings.copies.kinds)
    maker = CopyMaker(settings, speakers) if copied else None

    def read(name: str, number: int, utterance: Utterance) -> list[FeatureBlock] | AudioError:
        """The utterance's speech, and that of its copies."""
        try:
            if maker is None:
                return [read_features(utterance, settings.features, scaling).speech]
            samples, rate = read_samples(utterance)
            where, features = str(utterance.path), settings.features
            found = [features_of(samples, rate, features, scaling, where=where)]
            copies = maker.copies(samples, rate, speaker=name, number=number) if len(found[0].vectors) else []
            found += [features_of(copy, features.rate, features, scaling, where=where) for copy in copies]
            return [version.speech for version in found]
        except AudioError as error:
            return error
        finally:
            progress("reading", 1, len(tasks))

    skipped: list[tuple[Path, str]] = []
    versions = 1 + (len(settings.copies.kinds) if copied else 0)
    voices = {name: Voice(name, versions=[[] for _ in range(versions)]) for name in speakers}
    for (owner, _, utterance), result in zip(tasks, run_parallel(read, tasks, jobs=jobs), strict=True):
        if isinstance(result, AudioError):
            skipped.append((utterance.path, str(result)))
        elif len(result[0].vectors):
            for version, block in zip(voices[owner].versions, result, strict=True):
                version.append(block)
    return list(voices.values()), skipped


def _standardize(voices: list[Voice], settings: Config, current: SpeakerStore | None) -> Standardizer | None:
    """The store's scaling; a new store learns it, if its settings say so, and the voices are scaled by it."""
    if current is not None:
        return current.scaling
    if not settings.features.standardize:
        return None
    scaling = Standardizer.fit(np.concatenate([block.vectors for voice in voices for block in voice.utterances]))
    for voice in voices:
        voice.versions = [[replace(block, vectors=scaling(block.vectors)) for block in part] for part in voice.versions]
    return scaling


def _audible(voices: list[Voice], settings: Config) -> tuple[list[Voice], list[tuple[str, str]]]:
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
