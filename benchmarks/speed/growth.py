"""Growth with the population: times of a claim, adding one speaker, opening a store, training everybody.

Speakers beyond the corpus are real centroids under a small random rotation and shift. The times of a claim and of
training a new speaker's machines do not depend on the coefficients of existing machines, so these are made up: they are
multiplied, copied and stored like any others. In a full run the largest population is trained whole, in a process of
its own. One thread, except where threads are named.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from claim_scoring import FRAMES, best_of, codebooks, scoring
from speed.gemm import made_up
from speed.measuring import Figures, exponent, in_child, peak_gib, seconds_of
from speed.options import SYSTEM, Options

from pipeline.config import Config
from pipeline.machines.margins import Population
from pipeline.machines.pairs import PairMachine, Pairs
from pipeline.machines.pool import Pool
from pipeline.machines.supervector_training import SupervectorTraining
from pipeline.machines.training import train_population
from pipeline.machines.workers import LocalThreads
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Speaker
from pipeline.store.store import Store

SETTINGS = (
    'machines.kinds=["one_vs_one","one_class"]',
    "machines.cohort=all",
    f"scoring.system={SYSTEM}",
    "scoring.dtype=float32",
    "duplicate_audio.keep=false",
)
CURVES = ("claim", "add", "add_store", "open")
SEGMENTS, VECTOR = 16, 10_240  # of each speaker, as 8 s of speech give; numbers in a segment's supervector


def measure(options: Options) -> Figures:
    """Measure seconds at every size, their exponents, and the largest population trained whole."""
    found: Figures = {
        "growth.speakers": max(options.sizes),
        "growth.centroids": options.centroids,
        "growth.segments_each": SEGMENTS,
        "growth.frames": FRAMES,
        "growth.dtype": "float32",
    }
    for size in options.sizes:
        found |= in_child(at_size, options, size) | in_child(segment_machines, options, size)
    for curve in CURVES:
        seconds = [float(found[f"growth.{curve}_seconds.{size}"]) for size in options.sizes]
        found[f"growth.{curve}_exponent"] = exponent(options.sizes, seconds)
    largest = max(options.sizes)
    found["growth.claim_realtime_factor"] = float(found[f"growth.claim_seconds.{largest}"]) / (FRAMES * 0.01)
    if not options.quick:
        found |= in_child(whole, options)
    return found


def at_size(options: Options, size: int) -> Figures:
    """Measure one population: a claim, one more speaker in memory and through a store, opening it for a claim."""
    config, books, frames = material(options, size)
    pool, before = Pool.of(books, config.machines.sigma), Pool.of(books[:-1], config.machines.sigma)
    train_population(Pool.of(books[:2], config.machines.sigma), config.machines)  # compiles
    known = made_up(before, seed=config.seed)
    claim = np.array([len(before) // 2])
    figures = {"claim": best_of(scoring(known, claim, frames, "float32"), seconds=options.patience)}
    figures["add"] = best_of(lambda: train_population(pool, config.machines, known=known), seconds=options.patience)
    with tempfile.TemporaryDirectory() as folder:
        stored = through_store(Path(folder) / "store", known, books[-1], config, options.patience)
    figures |= stored
    named = {f"growth.{name}_seconds.{size}": value for name, value in figures.items() if name in CURVES}
    return named | {f"growth.store_mib.{size}": stored["mib"], f"growth.peak_gib.{size}": peak_gib()}


def material(options: Options, size: int) -> tuple[Config, list[np.ndarray], np.ndarray]:
    """Return settings, codebooks of ``size`` speakers, and the frames of a claim."""
    config = options.config(*SETTINGS)
    corpus = None if options.corpora is None else options.corpus / "enroll"
    return config, *codebooks(corpus, size, config)


def through_store(
    path: Path, known: Population, newcomer: np.ndarray, config: Config, patience: float
) -> dict[str, float]:
    """Write everybody but the last speaker; time reading, training and writing that one, and opening for a claim."""
    with Store(path).writing() as transaction:
        transaction.save(extended(SpeakerModel(config), replace(known, pairs=Pairs(every_pair(known)))))

    def add() -> None:
        with Store(path).writing() as transaction:
            model = transaction.model
            assert model is not None  # noqa: S101
            population = model.machines({"one_vs_one", "one_class"})
            books = [population.pool.codebook(n) for n in range(len(population))]
            pool = Pool.of([*books, newcomer], config.machines.sigma)
            transaction.save(extended(model, train_population(pool, config.machines, known=population)))

    added = seconds_of(add)
    return {
        "add_store": added,
        "open": best_of(opening(path), seconds=patience),
        "mib": path.stat().st_size / 2**20,
    }


def opening(path: Path) -> Callable[[], None]:
    """Open the store and make one claim ready, all its machines read; the system has the files in memory."""
    claim = np.array([0])

    def read() -> None:
        store = Store(path).load()
        scoring(
            store.population((SYSTEM,)), claim, np.zeros((1, store.config.features.dimensions["frames"])), "float32"
        )

    return read


def every_pair(population: Population) -> dict[tuple[int, int], PairMachine]:
    """Return all pair machines of a population, by (later, earlier)."""
    pairs = population.pairs
    assert pairs is not None  # noqa: S101
    return {(n, other): made for n in range(len(population)) for other, made in pairs.against(n).items() if other < n}


def extended(model: SpeakerModel, population: Population) -> SpeakerModel:
    """Return ``model`` with the further speakers of ``population``, without held-out trials."""
    pool, speakers, arrays = population.pool, list(model.speakers), list(model.arrays)
    if population.one_class_coef is None or population.one_class_bias is None:
        raise AssertionError("every population has one-class machines")
    for n in range(len(speakers), len(population)):
        speakers.append(Speaker(secrets.randbits(63), f"speaker {n}", "speaker", 8.0, 800, 1, len(pool.codebook(n))))
        coef, bias = population.one_class_coef[pool.rows(n)], population.one_class_bias[n : n + 1]
        arrays.append({"centroids": pool.codebook(n), "one_class": coef, "one_class_bias": bias})
    return replace(model, speakers=tuple(speakers), arrays=tuple(arrays), pairs=population.pairs)


def segment_machines(options: Options, size: int) -> Figures:
    """Time training supervector machines on made-up vectors, by one solve over everybody's segments."""
    config, rng = options.config(), np.random.default_rng(size)
    vectors = [rng.standard_normal((SEGMENTS, VECTOR), dtype=np.float32) for _ in range(size)]
    seconds = seconds_of(lambda: SupervectorTraining(vectors, ridge=config.supervector.ridge))
    return {f"growth.segment_seconds.{size}": seconds, f"growth.segment_peak_gib.{size}": peak_gib()}


def whole(options: Options) -> Figures:
    """Train every machine of the largest population, on all threads, and claim with what came out."""
    size, threads = max(options.sizes), os.cpu_count() or 1
    config, books, frames = material(options, size)
    pool = Pool.of(books, config.machines.sigma)
    train_population(Pool.of(books[:2], config.machines.sigma), config.machines)  # compiles
    started = time.perf_counter()
    population = train_population(pool, config.machines, workers=LocalThreads(threads))
    seconds, peak = time.perf_counter() - started, peak_gib()
    assert population.pairs is not None  # noqa: S101
    machines = (machine for n in range(size) for machine in population.pairs.against(n).values())
    return {
        "growth.train_threads": threads,
        "growth.train_seconds": seconds,
        "growth.train_peak_gib": peak,
        "growth.trained_claim_seconds": best_of(scoring(population, np.array([size // 2]), frames, "float32")),
        "growth.trained_bytes": sum(machine.own.nbytes for machine in machines),
    }
