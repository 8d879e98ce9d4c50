"""A dask cluster of real processes on this machine: a scheduler, and workers that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from distributed import Client

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60.0


class Cluster:
    """A context manager; ``address`` is the scheduler's. Every process has a ``folder`` of its own to stand in."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._wanted = workers
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def __enter__(self) -> Cluster:
        told = self._folder / "scheduler.json"
        words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(told))
        self.scheduler = self._start("scheduler", *words)
        try:
            self.address = json.loads(_when(lambda: told.read_text(encoding="utf-8")))["address"]
            for _ in range(self._wanted):
                self.start_worker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def start_worker(self, package: Path = ROOT) -> subprocess.Popen[bytes]:
        """One more worker of one thread, whose ``pipeline`` is in ``package``. Without a nanny, it stays dead."""
        name = f"worker-{len(self.workers)}"
        words = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--name", name, self.address)
        self.workers.append(self._start("worker", *words, package=package))
        return self.workers[-1]

    def kill(self, *numbers: int) -> None:
        """End workers without a word, all of them or those with these ``numbers``."""
        for number in numbers or range(len(self.workers)):
            self.workers[number].send_signal(signal.SIGKILL)
            self.workers[number].wait()

    def tasks_of(self, *numbers: int) -> int:
        """Tasks that the workers with these ``numbers`` are at, or hold the results of."""
        with Client(self.address, set_as_default=False) as client:
            names = {address: worker["name"] for address, worker in client.scheduler_info()["workers"].items()}
            chosen = {address for address, name in names.items() if name in {f"worker-{n}" for n in numbers}}
            keys = [key for told in (client.processing(), client.has_what()) for at in chosen for key in told[at]]
        return sum(key.startswith("perform") for key in keys)

    def _start(self, role: str, *words: str, package: Path = ROOT) -> subprocess.Popen[bytes]:
        folder = self._folder / f"{role}-{len(self.workers)}"
        folder.mkdir()
        with (self._folder / f"{folder.name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", role, *words],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(package)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def _when(attempt):  # type: ignore[no-untyped-def]
    """What ``attempt`` gives as soon as it gives something."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if found := attempt():
                return found
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)
