"""Enrollment: recordings of speakers to a store of machines, with a threshold from utterances held out.

Two rounds. In the first, part of every new speaker's utterances is set aside, provisional machines are trained on the
rest and the set-aside utterances are scored against them; only those scores are kept, and the maps from margins to
posteriors that are fitted to them where the settings ask for that. In the second round the machines that go into the
store are trained on everything. Speakers already enrolled keep their machines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipeline.admission import admit
from pipeline.arrays import AnyArray
from pipeline.backends import LocalThreads, Workers
from pipeline.config import Config, QualityConfig
from pipeline.corpus import Utterance
from pipeline.enrollment_gate import EnrollmentGate, Finding
from pipeline.errors import ConfigError, CorpusError, SpeakerExistsError
from pipeline.fingerprint import joined
from pipeline.heldout_posteriors import pooled_maps
from pipeline.machines.assembly import machine_count, one_vs_rest
from pipeline.machines.implied import family_gib
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.rival_removal import RivalsLeft, rivals_without
from pipeline.machines.segment_training import SegmentTraining
from pipeline.machines.segments import SegmentMachines
from pipeline.manifest import Role
from pipeline.posteriors.coupling import RULES, systems_of
from pipeline.store import SpeakerStore
from pipeline.store_writer import NewSpeaker, StoreWriter, store_writer
from pipeline.voices import Progress, audible, read_voices

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
    """Who was enrolled, who was refused and why, which files were skipped and why.

    ``warnings`` and the findings behind ``refused`` are the enrollment gate's (``pipeline.enrollment_gate``);
    ``findings`` holds both, and those of too little speech.
    """

    store: SpeakerStore
    enrolled: tuple[SpeakerSummary, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[tuple[Path, str], ...]
    held_out_trials: int
    machines: int
    elapsed_seconds: float

    @property
    def refused(self) -> tuple[tuple[str, str], ...]:
        """Names of those who were refused, with the reasons."""
        found: dict[str, list[str]] = {}
        for finding in self.findings:
            if finding.refused:
                found.setdefault(finding.speaker, []).append(finding.reason)
        return tuple((name, "; ".join(reasons)) for name, reasons in found.items())

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What was found about those who were enrolled all the same."""
        names = {speaker.name for speaker in self.enrolled}
        return tuple(finding for finding in self.findings if finding.speaker in names)


def enroll(
    store: Path | str,
    speakers: Mapping[str, Sequence[Utterance]],
    config: Config | None = None,
    *,
    role: Role = "speaker",
    quality: QualityConfig | None = None,
    jobs: int = 1,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> EnrollmentReport:
    """Enroll ``speakers`` into the store at ``store``, making it if it is not there.

    ``config`` must equal the settings of a store that exists (None takes those); ``quality`` stands in for the section
    of that name this once. ``workers`` do the coarse work (default: ``jobs`` threads), and change no bit of it.

    A file that cannot be decoded is skipped and reported; a speaker with too little speech, or whom the enrollment gate
    refuses, is left out and reported. Raises SpeakerExistsError before any work is done,
    NotEnoughSpeechError or EnrollmentRefusedError if nobody is left to enroll. All or nothing: on any error the store
    is as it was.
    """
    started = time.perf_counter()
    progress = progress or (lambda _stage, _done, _total: None)
    workers = LocalThreads(jobs) if workers is None else workers
    with store_writer(store) as writer, threadpool_limits(1):
        settings = _agreed_settings(writer, config)
        _check_names(writer, speakers)
        _check_memory(writer, len(speakers), settings)
        gate = EnrollmentGate(settings.quality if quality is None else quality)
        known = 0 if writer.current is None else len(writer.current.speakers)
        scaling = None if writer.current is None else writer.current.scaling
        voices, skipped = read_voices(
            speakers,
            settings,
            scaling,
            enrolled=known,
            workers=workers,
            progress=progress,
            measured=gate.listens or settings.replay.keep,
        )
        voices, short = audible(voices, settings)
        admitted = admit(writer.current, voices, settings, gate, role, workers, progress)
        trained = admitted.rounds.train([voice.speech for voice in admitted.voices], "training")
        population = trained.population
        prints = [joined(recording.prints for recording in voice.recordings) for voice in admitted.voices]
        step = settings.features.step_seconds
        newcomers = [
            NewSpeaker(voice.id, voice.name, role, voice.frames * step, voice.frames, len(voice.utterances))
            for voice in admitted.voices
        ]
        enrolled = writer.add(
            newcomers,
            population,
            admitted.held_out.trials,
            stretches=trained.stretches,
            strangers=trained.strangers,
            fingerprints=prints if settings.replay.keep else (),
            maps=admitted.held_out.maps,
            config=settings,
            scaling=admitted.scaling,
        )
    return EnrollmentReport(
        store=enrolled,
        enrolled=_summaries(enrolled, len(newcomers)),
        findings=(*(Finding(name, "speech", True, reason) for name, reason in short), *admitted.findings),
        skipped=tuple(skipped),
        held_out_trials=len(admitted.held_out.trials),
        machines=_trained_count(population, len(newcomers), settings),
        elapsed_seconds=time.perf_counter() - started,
    )


def _trained_count(population: Population, newcomers: int, settings: Config) -> int:
    first, kept = len(population) - newcomers, population.rival_machines
    pairs = None if kept is None else sum(len(kept.earlier(number)) for number in range(first, len(population)))
    return machine_count(len(population), first, settings.machines, pairs)


def _summaries(store: SpeakerStore, newcomers: int) -> tuple[SpeakerSummary, ...]:
    wanted = store.config.codebook.centroids
    return tuple(
        SpeakerSummary(s.name, s.utterances, s.seconds, s.frames, s.centroids, s.centroids < wanted)
        for s in store.speakers[-newcomers:]
    )


def remove_speaker(store: Path | str, name: str, *, jobs: int = 1) -> SpeakerStore:
    """Erase a speaker and every coefficient their voice went into; raises UnknownSpeakerError.

    One-vs-rest and segment machines have everybody in them and are trained again for those who remain. What stays is
    the mixture that segment machines sort frames by, sounds of all who were first enrolled together; and, of fitted
    posteriors, the few numbers of the others' maps, which the speaker's held-out frames helped to fit.
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
            settings = current.config
            coef, bias = one_vs_rest(remaining, settings.machines, family=settings.posterior.family, jobs=jobs)
            rest = Population(remaining, one_vs_rest_coef=coef, one_vs_rest_bias=bias)
        return writer.remove(
            name,
            rest,
            _segments_without(current, name),
            _pooled_without(current, name),
            _rivals_without(current, name, jobs),
        )


def _rivals_without(current: SpeakerStore, name: str, jobs: int) -> RivalsLeft | None:
    """The hardest rivals of everybody but ``name``, where pair machines are kept against these."""
    settings = current.config
    if settings.machines.rivals == "all" or len(current.speakers) == 1:
        return None
    known = current.population(("worst_rival",))
    if known.rivals is None or known.rival_machines is None:
        raise AssertionError("a store of hardest rivals was read without them")
    gone = [speaker.name for speaker in current.speakers].index(name)
    books = [known.pool.codebook(n) for n in range(len(known)) if n != gone]
    pool, family = Pool.of(books, known.pool.sigma), settings.posterior.family
    return rivals_without(gone, pool, known.rivals, known.rival_machines, settings.machines, family=family, jobs=jobs)


def _segments_without(current: SpeakerStore, name: str) -> SegmentMachines | None:
    """The segment machines of everybody but ``name``, trained again: their solution has everybody's speech in it."""
    segments = current.population(("segment",)).segments if "segment" in current.systems else None
    if segments is None or len(current.speakers) < 2:
        return None
    settings, gone = current.config.segments, [speaker.name for speaker in current.speakers].index(name)
    vectors = current.stretches()
    strangers = current.strangers() if settings.has_strangers(len(vectors) - 1) else []
    del vectors[gone], strangers[gone : gone + 1]
    machines = SegmentTraining(vectors, ridge=settings.ridge, strangers=strangers).machines(segments.space)
    return machines.with_models(None if segments.models is None else segments.models.without(gone))


def _pooled_without(current: SpeakerStore, name: str) -> dict[str, AnyArray] | None:
    """The pooled maps of everybody but ``name``, fitted again: their sample has everybody's margins in it."""
    if not current.config.posterior.fitted:
        return None
    files = zip(current.speakers, current.map_sources(), strict=True)
    return pooled_maps(current.config, [file for speaker, file in files if speaker.name != name])


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
    system, rivals = config.scoring.system, config.machines.rivals
    if RULES[system].every_claim and rivals != "all":
        raise ConfigError(
            f"machines.rivals: the default system, scoring.system = {system!r}, wants the pair machines of everybody"
            f' with everybody, got rivals = {rivals}; take another system, or rivals = "all"'
        )
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
    """Refuse families of machines whose coefficients, or whose kernel matrix, would be larger than allowed.

    Other machines hold no matrix that grows with the population but their own coefficients; how many stretches segment
    machines are trained on is known later (``rounds``).
    """
    speakers = newcomers + (len(writer.current.speakers) if writer.current else 0)
    if settings.posterior.family is None:
        return
    _check_families(speakers, settings, settings.posterior.family)
    gib = 8 * (speakers * settings.codebook.centroids) ** 2 / 2**30
    if "one_vs_rest" in settings.machines.kinds and gib > settings.machines.gram_gib:
        raise ConfigError(
            f"posterior.kind: implied posteriors of {speakers} speakers need a kernel matrix of {gib:.1f} GiB for their"
            f" one_vs_rest machines, and machines.gram_gib is {settings.machines.gram_gib:g}: raise it, or leave"
            " one_vs_rest out of machines.kinds"
        )


def _check_families(speakers: int, settings: Config, machines: int) -> None:
    gib = family_gib(speakers, settings.codebook.centroids, machines, settings.machines.kinds)
    if gib > settings.machines.gram_gib:
        raise ConfigError(
            f"posterior.kind: implied posteriors of {speakers} speakers need coefficients of {gib:.1f} GiB, and"
            f" machines.gram_gib is {settings.machines.gram_gib:g}: raise it, ask for fewer posterior.machines, or"
            " leave one_vs_rest out of machines.kinds"
        )
