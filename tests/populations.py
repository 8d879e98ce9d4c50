"""Populations without audio, made and stored in a moment: what tests of the store write, read and compare."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from pipeline.calibration import HeldOutTrials
from pipeline.config import Config, load_config
from pipeline.machines.assembly import train_population
from pipeline.machines.mixtures import SpeakerModels
from pipeline.machines.pool import Pool
from pipeline.machines.population import Population
from pipeline.machines.segment_training import SegmentTraining
from pipeline.machines.segments import SegmentMachines, SegmentSpace
from pipeline.manifest import new_id
from pipeline.posteriors.coupling import RULES
from pipeline.store import SpeakerStore
from pipeline.store_writer import NewSpeaker, store_writer

SIZES = (7, 12, 5, 9, 8)
SPACE_ARRAYS = ("centre", "scale", "means", "variances", "weights")
NAMES = ("ada", "bea", "cyd", "dov", "eli")
SMALL = load_config(None, ["features.order=3", "features.deltas=false", "codebook.centroids=12"])


# A mixture of four sounds, the same for everybody, as a store keeps the one of its first enrollment.
SPACE = SegmentSpace(
    centre=np.array([0.1, -0.2, 0.3]),
    scale=np.array([0.5, 1.0, 2.0]),
    means=np.random.default_rng(5).standard_normal((4, 3)),
    variances=np.random.default_rng(6).uniform(0.2, 1.0, (4, 3)),
    weights=np.array([0.1, 0.2, 0.3, 0.4]),
    relevance=SMALL.segments.relevance,
)


def codebooks(count: int, seed: int = 0) -> list[np.ndarray]:
    """Clouds of centroids in three dimensions that overlap, as voices do, of several sizes."""
    rng = np.random.default_rng(seed)
    return [rng.normal(0.4 * rng.standard_normal(3), 0.5, (SIZES[n % len(SIZES)], 3)) for n in range(count)]


def pool_of(books: list[np.ndarray]) -> Pool:
    return Pool.of(books, SMALL.machines.sigma)


def stretches(count: int, seed: int = 2) -> list[np.ndarray]:
    """What segment machines learn from: a cloud of vectors around a place of each speaker's own."""
    rng = np.random.default_rng(seed)
    clouds = [rng.normal(rng.standard_normal(12), 0.7, (SIZES[-1 - n % len(SIZES)], 12)) for n in range(count)]
    return [cloud.astype(np.float16).astype(np.float32) for cloud in clouds]  # the precision of the store


def trained(books: list[np.ndarray], parts: list[np.ndarray], known: Population | None = None) -> Population:
    """Every kind of machine of speakers with these centroids and stretches."""
    population = train_population(pool_of(books), SMALL.machines, known=known)
    machines = SegmentTraining(parts, ridge=SMALL.segments.ridge).machines(SPACE)
    single = machines.coef.astype(np.float32).astype(np.float64)  # the precision of the store
    return population.with_segments(SegmentMachines(SPACE, machines.mean, single, models_of(parts)))


def models_of(parts: list[np.ndarray]) -> SpeakerModels:
    """A model of each speaker, told by their stretches."""
    return SpeakerModels(np.stack([part.mean(axis=0).reshape(SPACE.means.shape) for part in parts]))


def first(count: int, known: Population | None = None) -> Population:
    """The machines of the first so many speakers."""
    return trained(codebooks(count), stretches(count), known)


def no_trials() -> HeldOutTrials:
    ids, counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    scores = {name: np.empty(0) for name in RULES}
    return HeldOutTrials(ids, ids, counts, scores, frames=counts, outsider=np.empty(0, dtype=bool))


def add(path: Path, population: Population, names: tuple[str, ...], config: Config = SMALL) -> SpeakerStore:
    """Write the last ``names`` of a population."""
    new = [NewSpeaker(new_id(), name, "speaker", 10.0, 1000, 4) for name in names]
    parts = [] if population.segments is None else stretches(len(population))[-len(names) :]
    with store_writer(path) as writer:
        return writer.add(new, population, no_trials(), stretches=parts, config=config, scaling=None)


def arrays_of(population: Population) -> dict[str, np.ndarray]:
    """Every number of a population's machines."""
    everybody = np.arange(len(population))
    found = {"centroids": population.pool.centroids, "offsets": population.pool.offsets}
    if population.pairs is not None:
        found |= {f"rows {n}": population.pairs.rows(n) for n in everybody}
        found |= {"columns": population.pairs.columns(everybody), "bias": population.pairs.bias(everybody)}
    for name in ("one_class_coef", "one_class_bias", "one_vs_rest_coef", "one_vs_rest_bias"):
        if (array := getattr(population, name)) is not None:
            found[name] = array
    if (segments := population.segments) is not None:
        found |= {"segment mean": segments.mean, "segment coef": segments.coef}
        found |= {} if segments.models is None else {"shifts": segments.models.shifts}
        found |= {f"space {name}": getattr(segments.space, name) for name in SPACE_ARRAYS}
    return found


def assert_same(found: Population, expected: Population) -> None:
    """Bit for bit the same machines."""
    ours, theirs = arrays_of(found), arrays_of(expected)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


def content(path: Path) -> dict[str, str]:
    """Digest of every file of a folder but the lock."""
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }
