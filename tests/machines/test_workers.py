"""Dask workers give what threads give, bit for bit, in real processes of which some are killed."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from populations import TINY, pair_arrays
from score_rows import rows_of

from pipeline.config import MachineConfig
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.speech import read_speech
from pipeline.errors import FitError, UnavailableError, UnknownSpeakerError
from pipeline.evaluation import read_trials
from pipeline.evaluation.assess import assess
from pipeline.machines.pairs import train_pairs
from pipeline.machines.pool import Pool
from pipeline.machines.training import train_population
from pipeline.machines.workers import MANY, DaskWorkers, LocalThreads, in_order
from pipeline.store.store import Store

distributed = pytest.importorskip("distributed")


@contextmanager
def local_cluster(workers: int = 2) -> Iterator[distributed.LocalCluster]:
    """A scheduler in this process and ``workers`` processes of one thread, which are restarted when killed."""
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[distributed.LocalCluster]:
    with local_cluster() as running:
        yield running


@pytest.fixture
def workers(cluster) -> Iterator[DaskWorkers]:
    # One thread beside them, as the stores they are compared with had: BLAS rounds otherwise on two.
    with DaskWorkers(cluster.scheduler_address, jobs=1) as connected:
        yield connected


class Killer:
    """Progress callback that kills one worker process once while it has tasks; ``busy`` if it had."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.busy = False

    def __call__(self, *_: object) -> None:
        if self.busy:
            return
        with distributed.Client(self._address, set_as_default=False) as client:
            victim, tasks = max(client.processing().items(), key=lambda item: len(item[1]))
            if tasks:
                os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
                self.busy = True


def scores_of(store: Path, demo: Path, **how: object) -> list[object]:
    """Every score of the demo's trials on enrolled speakers."""
    opened = Store(store).load()
    trials = [trial for trial in read_trials(demo / "trials.txt") if trial.speaker in opened.names]
    return rows_of(assess(opened, trials, demo, **how).scores)


def pool_of(speakers: int, centroids: int) -> Pool:
    random = np.random.default_rng(3)
    return Pool.of([random.normal(size=(centroids, 24)) for _ in range(speakers)], 3.0)


PAIRS = MachineConfig(kinds=("one_vs_one", "one_class"), sigma=3.0)


def assert_same_pairs(ours, theirs) -> None:
    machines = pair_arrays(theirs)
    np.testing.assert_equal(pair_arrays(ours), machines)
    assert machines


# Equality with threads


@pytest.mark.slow
@pytest.mark.parametrize("changes", [(), ("augmentation.kinds=['telephone','babble']", "supervector.speeds_below=100")])
def test_a_cluster_enrolls_and_evaluates_as_threads_do(workers, tmp_path, demo, recordings, tiny_with, changes):
    settings, names = tiny_with(*changes), ("anna", "dexter", "ivan", "lars")
    stages: dict[str, int] = {}

    def progress(stage: str, done: int, total: int) -> None:
        stages[stage] = stages.get(stage, total) - done

    for part in (names[:3], names[3:]):
        speakers = {name: recordings[name] for name in part}
        enroll(tmp_path / "here", speakers, settings)
        stages.clear()
        enroll(tmp_path / "there", speakers, settings, workers=workers, progress=progress)
        assert stages and set(stages.values()) == {0}
    expected = scores_of(tmp_path / "here", demo)
    assert expected and scores_of(tmp_path / "there", demo, workers=workers) == expected


def test_pair_machines_are_those_of_threads(workers):
    pool = pool_of(12, 40)
    assert_same_pairs(train_population(pool, PAIRS, workers=workers), train_population(pool, PAIRS))


def test_results_come_in_order_and_only_a_few_tasks_are_under_way(workers):
    taken = 0

    def tasks() -> Iterator[tuple[int]]:
        nonlocal taken
        for number in range(60):
            taken = number + 1
            yield (number,)

    for number, result in enumerate(workers.map(np.add, tasks(), common=1000)):
        assert result == 1000 + number
        assert taken <= number + 20


def test_large_arguments_are_sent_without_a_warning(workers):
    books = [np.random.default_rng(n).normal(size=(3000, 600)) for n in range(2)]
    (total,) = workers.map(np.add, [(books[1],)], common=books[0])
    assert total.tobytes() == (books[0] + books[1]).tobytes()


# Batches of pair machines


@dataclass(frozen=True)
class RecordingThreads(LocalThreads):
    """Threads that claim to be remote, and keep the tasks that they were given."""

    remote = True
    tasks: list = field(default_factory=list)

    def map(self, function, tasks: Iterable, *, common, reads=None):
        self.tasks.extend(tasks)
        return super().map(function, self.tasks, common=common)


def test_batches_carry_only_the_codebooks_they_need_and_these_are_few():
    pool, recording = pool_of(64, 3), RecordingThreads()
    assert_same_pairs(train_population(pool, PAIRS, workers=recording), train_population(pool, PAIRS))
    assert len(recording.tasks) > 8
    for pairs, books in recording.tasks:
        assert set(books) == {n for pair in pairs for n in pair}
        assert len(books) <= 48


# Failures


@pytest.mark.slow
def test_a_worker_killed_while_training_changes_no_bit(workers):
    pool, killer = pool_of(60, 150), Killer(workers.address)
    trained = train_population(pool, PAIRS, workers=workers, progress=killer)
    assert killer.busy
    assert_same_pairs(trained, train_population(pool, PAIRS))


@pytest.mark.slow
def test_a_worker_killed_while_reading_changes_no_score(workers, tmp_path, recordings, voices, tiny, store, demo):
    killer = Killer(workers.address)
    enroll(tmp_path / "there", {name: recordings[name] for name in voices}, tiny, workers=workers, progress=killer)
    assert killer.busy
    assert scores_of(tmp_path / "there", demo) == scores_of(store, demo)


@pytest.mark.slow
def test_without_a_worker_the_run_ends_and_the_store_is_as_it_was(recordings, copied):
    before = copied.read_bytes()
    with (
        local_cluster(0) as cluster,
        DaskWorkers(cluster.scheduler_address, patience=2.0) as workers,
        pytest.raises(UnavailableError, match="no worker for 2 s"),
    ):
        enroll(copied, {"clara": recordings["clara"]}, workers=workers)
    assert copied.read_bytes() == before


@pytest.mark.slow
def test_losing_the_scheduler_ends_the_run_and_the_store_is_as_it_was(recordings, copied):
    before = copied.read_bytes()
    with (
        local_cluster() as cluster,
        DaskWorkers(cluster.scheduler_address) as workers,
        pytest.raises(UnavailableError, match="connection to the scheduler was lost"),
    ):
        enroll(copied, {"clara": recordings["clara"]}, workers=workers, progress=lambda *_: cluster.close())
    assert copied.read_bytes() == before


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere", "tcp://", "tcp://127.0.0.1:x"])
def test_an_unreachable_scheduler_is_named_soon(monkeypatch, address):
    monkeypatch.setattr("pipeline.machines.workers.CONNECT_SECONDS", 0.3)
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=re.escape(f"{address}: no scheduler answers there within 0.3 s")):
        DaskWorkers(address)
    assert time.monotonic() - started < 3


def test_an_error_of_a_task_is_raised_here(workers):
    books = [np.full((4, 3), value) for value in (0.0, 1.0)]
    books[1][2] = np.nan
    with pytest.raises(FitError, match="not finite"):
        train_pairs(Pool.of(books, 0.5), MachineConfig(), [(1, 0)], workers=workers)


def test_errors_survive_pickling():
    for error in (UnknownSpeakerError("ana", ("anna",)), UnavailableError("gone")):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a path that differs between processes")
def test_a_file_that_only_this_machine_can_open_is_an_error(workers, tmp_path, recordings, tiny):
    utterances = recordings["anna"]
    with utterances[0].path.open("rb") as file:
        here = os.dup2(file.fileno(), 900)
        try:
            speakers = {"anna": (replace(utterances[0], path=Path("/proc/self/fd/900")), *utterances[1:])}
            with pytest.raises(UnavailableError, match=r"/proc/self/fd/900: worker tcp://.* cannot open it"):
                enroll(tmp_path / "s", speakers, tiny, workers=workers)
        finally:
            os.close(here)
    assert not (tmp_path / "s").exists()


def test_a_file_that_nobody_can_open_is_skipped_as_by_threads(workers, recordings, garbage, tmp_path, tiny):
    first, *rest = recordings["anna"][:3]
    speakers = {"anna": (replace(first, path=tmp_path / "gone.flac"), replace(first, path=garbage), *rest)}

    def skipped(workers):
        return read_speech(speakers, tiny, enrolled=0, workers=workers, progress=lambda *_: None)[1]

    assert len(skipped(LocalThreads())) == 2
    assert skipped(workers) == skipped(LocalThreads())


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UnavailableError, match=r"pip install '\.\[distributed\]'"):
        DaskWorkers("tcp://127.0.0.1:8786")


# Commands


@pytest.mark.slow
def test_the_commands_run_on_a_cluster(cluster, tmp_path, corpus_of, demo, run_in):
    corpus_of("recordings", anna=6, ivan=6)
    settings = [f"--set={setting}" for setting in TINY]
    dask = ("--scheduler", cluster.scheduler_address)
    lines = [line for line in (demo / "trials.txt").read_text().splitlines() if line.split()[0] in ("anna", "ivan")]
    (tmp_path / "trials.txt").write_text("\n".join(lines[::40]) + "\n")
    for store, words in (("here", ()), ("there", dask)):
        done = run_in(tmp_path, "enroll", "recordings", "--store", store, *settings, *words)
        assert done.code == 0, done.err
        done = run_in(tmp_path, "evaluate", store, "trials.txt", "--root", demo, "--out", f"{store}.out", *words)
        assert done.code == 0, done.err
    scores = [(tmp_path / f"{store}.out" / "scores.txt").read_bytes() for store in ("here", "there")]
    assert scores[0] == scores[1]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_ends_the_command_and_leaves_the_cluster_idle(cluster, tmp_path, demo, command):
    words = ["enroll", demo / "enroll", "--store", "s", "--scheduler", cluster.scheduler_address]
    process = subprocess.Popen([*command, *words], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        while not any(client.processing().values()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        while any(client.processing().values()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert process.returncode == 130
    assert b"Traceback" not in errors, errors.decode()
    with pytest.raises(Exception, match="s"):
        Store(tmp_path / "s").load()


def test_threads_that_cannot_be_started_are_too_little_memory():
    before = threading.stack_size(2**47)  # more than there are addresses
    try:
        with pytest.raises(MemoryError, match="start new thread"):
            list(in_order(abs, [1, 2], 2))
    finally:
        threading.stack_size(before)
    assert list(in_order(abs, [-1, 2], 2)) == [1, 2]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked")
def test_ctrl_c_reaches_no_worker_process_not_even_while_it_starts():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    masks = LocalThreads(2).map(signal.pthread_sigmask, [((),)] * MANY, common=signal.SIG_BLOCK, many=MANY)
    assert all(signal.SIGINT in mask for mask in masks)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
