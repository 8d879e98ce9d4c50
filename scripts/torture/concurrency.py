"""Writers and readers at one store, each a process: readers see whole revisions, writers lose nothing."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from populations import SMALL, SPACE, arrays_of, content, models_of, no_trials, pool_of

from pipeline.enrollment import remove_speaker
from pipeline.errors import StoreBusyError
from pipeline.machines.assembly import train_population
from pipeline.machines.population import Population
from pipeline.machines.segment_training import SegmentTraining
from pipeline.manifest import new_id
from pipeline.store import SpeakerStore
from pipeline.store_writer import NewSpeaker, store_writer
from torture import expect, forked


def book_of(name: str) -> np.ndarray:
    """Centroids that are this name's alone."""
    chance = np.random.default_rng(list(name.encode()))
    return chance.normal(0.4 * chance.standard_normal(3), 0.5, (5 + len(name) % 3, 3))


def stretches_of(name: str) -> np.ndarray:
    """What segment machines are trained on, this name's alone."""
    chance = np.random.default_rng([1, *name.encode()])
    return chance.normal(chance.standard_normal(12), 0.7, (6, 12)).astype(np.float16).astype(np.float32)


def population_of(names: tuple[str, ...], known: Population | None = None) -> Population:
    """The machines that a store of these speakers must hold, whatever came and went before."""
    population = train_population(pool_of([book_of(name) for name in names]), SMALL.machines, known=known)
    stretches = [stretches_of(name) for name in names]
    machines = SegmentTraining(stretches, ridge=SMALL.segments.ridge).machines(SPACE)
    return population.with_segments(machines.with_models(models_of(stretches)))


def write_for(path: Path, seconds: float, who: str, seed: int) -> dict[str, object]:
    """Enroll and remove speakers of one's own; who of them must be there in the end."""
    chance, mine, made = random.Random(f"{seed} {who}"), [], Counter[str]()  # noqa: S311
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if mine and (len(mine) > 2 or chance.random() < 0.4):
                remove_speaker(path, gone := chance.choice(mine))
                mine.remove(gone)
                made["removed"] += 1
            else:
                name = f"{who}{made['enrolled']}"
                with store_writer(path) as writer:
                    there = () if writer.current is None else writer.current.names
                    known = writer.current.population() if there and writer.current else None
                    writer.add(
                        [NewSpeaker(new_id(), name, "speaker", 10.0, 1000, 4)],
                        population_of((*there, name), known),
                        no_trials(),
                        stretches=[stretches_of(name)],
                        config=SMALL,
                        scaling=None,
                    )
                mine.append(name)
                made["enrolled"] += 1
            time.sleep(chance.uniform(0, 0.01))
        except StoreBusyError:
            made["waits"] += 1
            time.sleep(0.002)
    return {"left": mine, **made}


def read_for(path: Path, seconds: float, seed: int) -> dict[str, object]:
    """Open, wait a little and read; what does not fit together is counted."""
    chance, made, errors = random.Random(seed), Counter[str](), []  # noqa: S311
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            store = SpeakerStore.open(path)
            time.sleep(chance.uniform(0, 0.02))  # let a writer in between
            if store.names:
                expected, found = arrays_of(population_of(store.names)), arrays_of(store.population())
                store.check_files()
                expect(expected.keys() == found.keys(), f"{store.names}: machines are missing")
                bent = [name for name in expected if not alike(found[name], expected[name])]
                expect(not bent, f"{store.names}: {bent} are not of these speakers")
            made["read"] += 1
            made["outdated"] += not store.is_current()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    return {**made, "errors": errors}


def alike(found: np.ndarray, expected: np.ndarray) -> bool:
    """The same, up to the single precision in which some of it is stored."""
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-5, atol=1e-6)


def concurrency(folder: Path, seconds: float, seed: int, writers: int = 2, readers: int = 6) -> dict[str, object]:
    """Writers and readers, each a process, at one store for ``seconds``."""
    path, told, errors = folder / "shared", folder / "told", []
    told.mkdir()
    with store_writer(path) as writer:
        writer.add(
            [NewSpeaker(new_id(), "x", "speaker", 10.0, 1000, 4)], population_of(("x",)), no_trials(),
            stretches=[stretches_of("x")], config=SMALL, scaling=None,
        )  # fmt: skip

    def tell(name: str, work: Callable[[], dict[str, object]]) -> int:
        return forked(lambda: (told / name).write_text(json.dumps(work())))

    children = [
        tell(f"writer {n}", lambda n=n: write_for(path, seconds, "ab"[n % 2] * (1 + n // 2), seed))
        for n in range(writers)
    ]
    children += [tell(f"reader {n}", lambda n=n: read_for(path, seconds, seed + n)) for n in range(readers)]
    for child in children:
        if os.waitpid(child, 0)[1]:
            errors.append("a process died")
    outcomes = {file.name: json.loads(file.read_text()) for file in sorted(told.iterdir())}
    errors += [error for outcome in outcomes.values() for error in outcome.pop("errors", [])]
    asked = {"x"} | {name for outcome in outcomes.values() for name in outcome.get("left", ())}
    found = SpeakerStore.open(path)
    found.check_files()
    if set(found.names) != asked:
        errors.append(f"in the end there are {found.names}, and {sorted(asked)} were asked for")
    if content(path).keys() != found.manifest.files() | {"manifest.json"}:
        errors.append("files were left over")
    return {"seconds": seconds, "processes": outcomes, "concurrent_errors": len(errors), "wrong": errors[:20]}
