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
from populations import add, left_over, model_of, numbers_of

from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import StoreBusyError
from pipeline.store.store import Store
from torture import expect, forked


def write_for(path: Path, seconds: float, who: str, seed: int) -> dict[str, object]:
    """Enroll and remove this writer's own speakers; return counts, and those who must remain in the store."""
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
                add(path, (name,))
                mine.append(name)
                made["enrolled"] += 1
            time.sleep(chance.uniform(0, 0.01))
        except StoreBusyError:
            made["waits"] += 1
            time.sleep(0.002)
    return {"left": mine, **made}


def read_for(path: Path, seconds: float, seed: int) -> dict[str, object]:
    """Open, wait a little and read; return counts and inconsistencies."""
    chance, made, errors = random.Random(seed), Counter[str](), []  # noqa: S311
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            model = Store(path).load()
            time.sleep(chance.uniform(0, 0.02))  # let a writer in between
            expected, numbers = numbers_of(model_of(model.names)), numbers_of(model)
            expect(expected.keys() == numbers.keys(), f"{model.names}: machines are missing")
            bent = [name for name in expected if not np.array_equal(numbers[name], expected[name])]
            expect(not bent, f"{model.names}: {bent} are not of these speakers")
            made["read"] += 1
            made["outdated"] += Store(path).state() != (model.identity, model.revision)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    return {**made, "errors": errors}


def concurrency(folder: Path, seconds: float, seed: int, writers: int = 2, readers: int = 6) -> dict[str, object]:
    """Run writers and readers, each a process, at one store for ``seconds``."""
    path, reports, errors = folder / "shared" / "s", folder / "reports", []
    reports.mkdir()
    path.parent.mkdir()
    add(path, ("x",))

    def tell(name: str, work: Callable[[], dict[str, object]]) -> int:
        return forked(lambda: (reports / name).write_text(json.dumps(work())))

    children = [
        tell(f"writer {n}", lambda n=n: write_for(path, seconds, "ab"[n % 2] * (1 + n // 2), seed))
        for n in range(writers)
    ]
    children += [tell(f"reader {n}", lambda n=n: read_for(path, seconds, seed + n)) for n in range(readers)]
    for child in children:
        if os.waitpid(child, 0)[1]:
            errors.append("a process died")
    outcomes = {file.name: json.loads(file.read_text()) for file in sorted(reports.iterdir())}
    errors += [error for outcome in outcomes.values() for error in outcome.pop("errors", [])]
    asked = {"x"} | {name for outcome in outcomes.values() for name in outcome.get("left", ())}
    names = Store(path).check().names
    if set(names) != asked:
        errors.append(f"in the end there are {names}, and {sorted(asked)} were asked for")
    if left_over(path):
        errors.append("files were left over")
    return {"seconds": seconds, "processes": outcomes, "concurrent_errors": len(errors), "wrong": errors[:20]}
