"""Speaker models without audio, made in a moment: what tests of the store write, read and compare."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np

from pipeline.config import Config, MachineKind, load_config
from pipeline.enrollment.solving import SpeakerSegments, machine_arrays, solve
from pipeline.enrollment.training import rest_arrays
from pipeline.enrollment.utterance_training import ubm_arrays
from pipeline.machines.branches import utterance_kinds_of
from pipeline.machines.margins import Population
from pipeline.machines.pool import Pool
from pipeline.machines.training import train_population
from pipeline.machines.ubm import UniversalBackgroundModel
from pipeline.scoring.rules import systems_of
from pipeline.store.keys import Key
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Role, Speaker
from pipeline.store.store import Store

KINDS = tuple(kind for kind in get_args(MachineKind) if kind != "embedding")  # which needs a network
SYSTEMS = systems_of(KINDS)
_ALL = f"machines.kinds={json.dumps(KINDS)}"
TINY = (
    _ALL,
    "features.rate=8000",
    "codebook.centroids=40",
    "codebook.min_seconds=3",
    "ubm.components=32",
    "normalised.components=32",
    "supervector.max_segments=160",
    "supervector.speeds_below=0",
    "augmentation.kinds=[]",
    "augmentation.share=1",
    "scoring.system=refined_worst_rival",
    "scoring.min_seconds=0.5",
    "threshold.holdout=0.2",
    "threshold.trial_seconds=2",
)
"""Settings under which the demo voices enroll in a second."""
NAMES = ("ada", "bea", "cyd", "dov", "eli")
TABLES = ("store", "speaker", "array", "pair")
_SETTINGS = (
    "features.order=3",
    'features.supervector={kind="lpcc", order=3}',
    'features.gmm={kind="lpcc", order=3}',
    'features.normalised={kind="lpcc", order=3}',
    "features.deltas=false",
    "codebook.centroids=12",
)
SMALL = load_config(None, [*_SETTINGS, _ALL, "supervector.speeds_below=0", "scoring.system=refined_worst_rival"])


def cohorts_of(most: int | str) -> Config:
    """Settings with cohorts of ``most`` and no machine that has everybody in it."""
    kinds = 'machines.kinds=["one_vs_one","one_class"]'
    return load_config(None, [*_SETTINGS, kinds, "scoring.system=worst_rival", f"machines.cohort={most}"])


# A UBM of four components, the same for everybody.
SPACE = UniversalBackgroundModel(
    centre=np.array([0.1, -0.2, 0.3]),
    scale=np.array([0.5, 1.0, 2.0]),
    means=np.random.default_rng(5).standard_normal((4, 3)),
    variances=np.random.default_rng(6).uniform(0.2, 1.0, (4, 3)),
    weights=np.array([0.1, 0.2, 0.3, 0.4]),
    relevance=SMALL.supervector.relevance,
)


def book_of(name: str) -> np.ndarray:
    """Centroids (k, 3) that are this name's alone and overlap with others', as voices do."""
    rng = np.random.default_rng(list(name.encode("utf-8", "surrogatepass")))
    return rng.normal(0.4 * rng.standard_normal(3), 0.5, (5 + int(rng.integers(8)), 3))


def segments_of(name: str) -> np.ndarray:
    """Supervectors (S, 12) of this name alone, at the precision of the store."""
    rng = np.random.default_rng([1, *name.encode("utf-8", "surrogatepass")])
    return rng.normal(rng.standard_normal(12), 0.7, (6, 12)).astype(np.float16)


def pitches_of(name: str) -> np.ndarray:
    """A histogram of pitches of this name alone."""
    rng = np.random.default_rng([3, *name.encode("utf-8", "surrogatepass")])
    return rng.dirichlet(np.ones(SMALL.pitch.bins)).astype(np.float32)


def fingerprints_of(name: str) -> np.ndarray:
    return np.random.default_rng([2, *name.encode("utf-8", "surrogatepass")]).integers(0, 2**32, 20, dtype=np.uint32)


def model_of(
    names: tuple[str, ...], config: Config = SMALL, known: SpeakerModel | None = None, role: Role = "speaker"
) -> SpeakerModel:
    """Return the model of the speakers of ``known``, if any, and of ``names``: every kind of machine of ``config``."""
    model = SpeakerModel(config) if known is None or not len(known) else known
    everybody = (*(speaker.name for speaker in model.speakers), *names)
    pool = Pool.of([book_of(name) for name in everybody], config.machines.sigma)
    before = model.machines({"one_vs_one", "one_class"}) if len(model) else None
    made = train_population(pool, config.machines, known=before)
    speakers, arrays = list(model.speakers), list(model.arrays)
    for name in names:
        n = len(speakers)
        speakers.append(Speaker(secrets.randbits(63), name, role, 10.0, 1000, 4, len(book_of(name))))
        arrays.append(
            {
                "centroids": pool.codebook(n),
                "one_class": made.one_class_coef[pool.rows(n)],
                "one_class_bias": made.one_class_bias[n : n + 1],
                "fingerprints": fingerprints_of(name),
            }
        )
    model = replace(model, speakers=tuple(speakers), arrays=tuple(arrays), pairs=made.pairs)
    own, shared = [{} for _ in speakers], {}
    if made.one_vs_rest_coef is not None:
        own = [dict(one) for one in rest_arrays(made.one_vs_rest_coef, made.one_vs_rest_bias)]
    if made.cohort_table is not None:
        shared |= {
            "cohort.nearest": made.cohort_table.nearest.astype(np.uint32),
            "cohort.similarity": made.cohort_table.similarity,
        }
    for kind in utterance_kinds_of(config.machines.kinds):
        parts = [np.tile(segments_of(name), len(kind.backgrounds)) for name in everybody]
        shared |= ubm_arrays(dict.fromkeys((one for one in kind.backgrounds if one.is_trained), SPACE))
        if kind.machine == "gmm":
            for one, part in zip(own, parts, strict=True):
                one[kind.array] = part.mean(axis=0, dtype=np.float32).reshape(SPACE.means.shape)
            continue
        if kind.machine == "histogram":
            for name, one in zip(everybody, own, strict=True):
                one[kind.array] = pitches_of(name)
            continue
        voices = [SpeakerSegments(one.id, part.astype(np.float32)) for one, part in zip(speakers, parts, strict=True)]
        solver, inner = solve(voices, config, kind)
        machines, everybodys = machine_arrays(solver, kind)
        shared |= {**everybodys, **inner}
        for one, machine, part in zip(own, machines, parts, strict=True):
            one |= {**machine, f"{kind.branch.prefix}segments": part}
    return model.changed(own, shared)


def add(path: Path, names: tuple[str, ...], config: Config = SMALL, *, key: Key = None) -> SpeakerModel:
    """Enroll ``names`` into the store at ``path``."""
    with Store(path, key=key).writing() as transaction:
        return transaction.save(model_of(names, config, transaction.model))


def numbers_of(model: SpeakerModel) -> dict[str, np.ndarray]:
    """Return every number of a model, by names of speakers: pair machines from both sides."""
    numbers = {f"shared {name}": model.shared[name] for name in model.shared}
    of_ids = ("trials.claims", "trials.speakers", "inner.speakers")  # which are random
    for name in [name for name in numbers if name.endswith(of_ids)]:
        place = {speaker.id: n for n, speaker in enumerate(model.speakers)}
        numbers[name] = np.array([place.get(one, -1) for one in numbers[name].tolist()])
    for n, speaker in enumerate(model.speakers):
        counts = (speaker.role, speaker.seconds, speaker.frames, speaker.utterances, speaker.centroids)
        numbers[f"{n} {speaker.name}"] = np.array([str(count) for count in counts])
        numbers |= {f"{speaker.name}: {name}": model.arrays[n][name] for name in model.arrays[n]}
        for other, machine in sorted(model.pairs.against(n).items()) if model.pairs else ():
            title = f"{speaker.name} against {model.speakers[other].name}"
            numbers |= {f"{title}: {what}": np.asarray(getattr(machine, what)) for what in ("own", "rival", "bias")}
    return numbers


def _calibrations_of(model: SpeakerModel) -> object:
    """Return the calibrations as JSON, with names in place of the random ids."""
    names = {str(speaker.id): speaker.name for speaker in model.speakers}

    def named(one: object) -> object:
        return {names.get(key, key): named(value) for key, value in one.items()} if isinstance(one, dict) else one

    return named(model.calibrations.as_json())


def assert_same(found: SpeakerModel, expected: SpeakerModel) -> None:
    """Bit for bit the same settings, speakers, arrays and pair machines, but for the random ids."""
    assert found.config == expected.config
    assert _calibrations_of(found) == _calibrations_of(expected)
    ours, theirs = numbers_of(found), numbers_of(expected)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
        assert ours[name].dtype == array.dtype, name


def pair_arrays(population: Population) -> dict[str, np.ndarray]:
    """Return every number of the pair machines of a population, from both sides."""
    return {
        f"{speaker} against {other}: {name}": np.asarray(getattr(machine, name))
        for speaker in range(0 if population.pairs is None else len(population))
        for other, machine in sorted(population.pairs.against(speaker).items(), key=lambda item: item[0])
        for name in ("own", "rival", "bias")
    }


def content(path: Path) -> dict[str, str]:
    """Return a digest of the rows of each table of a store, whatever SQLite's layout of them."""
    with closing(sqlite3.connect(path)) as rows:
        tables = {name: rows.execute(f"SELECT rowid, * FROM {name} ORDER BY rowid").fetchall() for name in TABLES}  # noqa: S608
    return {name: hashlib.sha256(repr(found).encode()).hexdigest() for name, found in tables.items()}


def left_over(path: Path) -> set[str]:
    """Return the names of the files in a store's folder other than the store."""
    return {file.name for file in path.parent.iterdir()} - {path.name}
