"""Writers killed at random moments: the old store or the new one, and nothing in between."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from populations import left_over, numbers_of

from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import StoreMissingError, VoiceclaimError
from pipeline.store.store import Store
from torture import BrokenError, expect, forked, tiny, voices


class Kills:
    """Enroll, extend and remove, killed at random moments; half of the kills fall into the writing, which is short."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)  # noqa: S311
        first, more, settings = voices("anna", "dexter", "ivan"), voices("hugo"), tiny()
        self.changes: dict[str, Callable[[Path], object]] = {
            "enroll": lambda path: enroll(path, first, settings),
            "extend": lambda path: enroll(path, more),
            "remove": lambda path: remove_speaker(path, "dexter"),
        }
        self.base = folder / "base"
        enroll(self.base, first, settings)
        self.stores = {"before": self.read(self.base)}
        self.seconds = {}
        for change, work in self.changes.items():
            path = self.start(change, self._room(change))
            started = time.perf_counter()
            work(path)
            self.seconds[change] = time.perf_counter() - started
            self.stores[change] = self.read(path)

    def start(self, change: str, path: Path) -> Path:
        """Prepare ``path`` for a ``change``: a copy of the base, or nothing there."""
        return path if change == "enroll" else Path(shutil.copy(self.base, path))

    def _room(self, name: str) -> Path:
        """Return the path of a store in a folder of its own."""
        (self.folder / name).mkdir()
        return self.folder / name / "s"

    def read(self, path: Path) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
        """Return the speakers in the store at ``path``, and every number of their machines."""
        model = Store(path).check()
        return model.names, numbers_of(model)

    def kill(self, number: int) -> str | None:
        """Kill one process; return the state that was found, None where the change was made before.

        Raises BrokenError for any other state.
        """
        change = self.chance.choice(sorted(self.changes))
        path = self.start(change, self._room(f"killed {number}"))
        child = forked(lambda: self.changes[change](path))
        if self.chance.random() < 0.5:
            time.sleep(self.chance.uniform(0.0, 1.1) * self.seconds[change])
        else:
            while not is_writing(path) and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pass
            time.sleep(self.chance.uniform(0.0, self.chance.choice([0.001, 0.01, 0.1])))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        state = self.state(path, change)
        expect(os.WIFSIGNALED(status) or state == change, "the change was made, and is not there")
        self.next_writer(path)
        shutil.rmtree(path.parent)
        return f"{change}: {'old' if state == 'before' else 'new'}" if os.WIFSIGNALED(status) else None

    def state(self, path: Path, change: str) -> str:
        """Return whether the store is the one before the ``change`` or the one after it; raises BrokenError."""
        try:
            names, arrays = self.read(path)
        except StoreMissingError:
            expect(change == "enroll", "the store is gone")
            return "before"
        state = change if change == "enroll" or names != self.stores["before"][0] else "before"
        expected_names, expected = self.stores[state]
        expect(names == expected_names, f"a population that nobody asked for: {names}")
        expect(arrays.keys() == expected.keys(), "a mix of two stores")
        expect(all(np.array_equal(arrays[name], expected[name]) for name in expected), "a mix of two stores")
        return state

    def next_writer(self, path: Path) -> None:
        """Make one more change, and check that no file is left beside the store."""
        try:
            remove_speaker(path, "ivan")
        except StoreMissingError:
            self.changes["enroll"](path)
        Store(path).check()
        expect(left_over(path) == set(), "files were left over")


def is_writing(path: Path) -> bool:
    """Return whether there is anything in one of SQLite's files beside a store."""
    for name in ("s-wal", "s-journal"):
        with contextlib.suppress(FileNotFoundError):
            if path.with_name(name).stat().st_size:
                return True
    return False


def kills(folder: Path, count: int, seed: int) -> dict[str, object]:
    """Kill ``count`` processes during their work, and check the stores that they leave."""
    harness, states, wrong, tries = Kills(folder, seed), Counter[str](), [], 0
    while states.total() + len(wrong) < count:
        tries += 1
        try:
            if state := harness.kill(tries):
                states[state] += 1
        except (BrokenError, VoiceclaimError) as error:
            wrong.append(f"kill {tries}: {type(error).__name__}: {error}")
    return {
        "kills": count,
        "kills_survived": states.total(),
        "kills_too_late": tries - count,
        "kill_states": dict(sorted(states.items())),
        "wrong": wrong,
    }
