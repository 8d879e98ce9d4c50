"""More than one machine: real schedulers and workers, some killed; every array is that of one machine, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pipeline.assessment import assess
from pipeline.backends import LocalThreads
from pipeline.cluster_tasks import check_same, facts
from pipeline.config import MachineConfig
from pipeline.enrollment import enroll
from pipeline.errors import ClusterError, FitError, LibraryMissingError, UnknownSpeakerError
from pipeline.evaluation import read_trials
from pipeline.machines.assembly import train_population
from pipeline.machines.pair_batches import by_tiles, pairs_elsewhere
from pipeline.machines.pool import Pool
from pipeline.machines.solver import PoolSolver
from pipeline.store import SpeakerStore
from pipeline.voices import read_voices

distributed = pytest.importorskip("distributed")

from cluster import Cluster  # noqa: E402

from pipeline.cluster import DaskWorkers  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
ALL = ("anna", "bruno", "clara", "dexter", "edith", "fergus", "greta", "ivan")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two workers that every test leaves alive."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def mortal(tmp_path):
    """Two workers to be killed."""
    (tmp_path / "mortal").mkdir()
    with Cluster(tmp_path / "mortal") as running:
        yield running


def arrays_of(store: Path) -> dict[str, np.ndarray]:
    """Every array of every file of the store at ``store``, by what the file is and the array's name.

    Ids are random: those of the speakers stand as their numbers.
    """
    manifest = json.loads((store / "manifest.json").read_text(encoding="utf-8"))
    number = {speaker["id"]: n for n, speaker in enumerate(manifest["speakers"])}
    files = {f"speaker {n}": speaker["file"] for n, speaker in enumerate(manifest["speakers"])}
    files |= {name: entry for name, entry in manifest.items() if isinstance(entry, dict) and "sha256" in entry}
    found = {}
    for kind, record in files.items():
        for name, array in load_file(store / record["name"]).items():
            ids = array.dtype == np.uint64
            found[f"{kind}: {name}"] = np.array([number.get(int(n), int(n)) for n in array.ravel()]) if ids else array
    assert len(found) > 10 * len(manifest["speakers"])
    assert len(files) == len(list(store.rglob("*.safetensors")))
    return found


def assert_same(found: Path, expected: Path) -> None:
    ours, theirs = arrays_of(found), arrays_of(expected)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert (ours[name].dtype, ours[name].shape) == (array.dtype, array.shape), name
        assert ours[name].tobytes() == array.tobytes(), name


def rows_of(store: Path, demo: Path, among: str = "", **how: object) -> list[object]:
    """Every score of the demo's trials of those who are enrolled, of files with ``among`` in their paths."""
    opened = SpeakerStore.open(store, outsiders=0.2)
    trials = [t for t in read_trials(demo / "trials.txt") if t.speaker in opened.names and among in t.path]
    return list(assess(opened, trials, demo, **how).rows)


def content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


class Killer:
    """Progress that kills workers once ``stage`` has given a result and they have others to give.

    ``lost`` counts the tasks that were under way on them, or done and not yet fetched; the calls of each stage are
    added up in ``counted``.
    """

    def __init__(self, cluster: Cluster, stage: str, *numbers: int) -> None:
        self._cluster, self._stage, self._numbers = cluster, stage, numbers
        self.lost = 0
        self.counted: dict[str, int] = {}
        self.total: dict[str, int] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.counted[stage] = self.counted.get(stage, 0) + done
        self.total[stage] = total
        if stage == self._stage and not self.lost:
            self.lost = self._cluster.tasks_of(*self._numbers)
            if self.lost:
                self._cluster.kill(*self._numbers)


# The same arrays


@pytest.mark.slow
def test_a_cluster_enrolls_and_evaluates_as_one_machine(cluster, tmp_path, demo, recordings, store, voices, tiny):
    speakers = {name: recordings[name] for name in voices}
    told: dict[str, list[int]] = {}
    with DaskWorkers(cluster.address) as workers:
        enroll(
            tmp_path / "there", speakers, tiny, workers=workers,
            progress=lambda stage, done, total: told.setdefault(stage, [total]).append(done),
        )  # fmt: skip
        rows = rows_of(store, demo, "anna", workers=workers)
    assert_same(tmp_path / "there", store)
    assert rows and rows == rows_of(store, demo, "anna")
    assert all(sum(done) == total for total, *done in told.values())
    assert {"reading", "thresholds: codebooks", "training: codebooks", "training: machines"} <= set(told)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        ("machines.kinds=['one_vs_one','one_class']", "posterior.kind=implied", "posterior.machines=3"),
        ("copies.kinds=['telephone','babble']", "segments.crowd=100", "features.standardize=true"),
        ("posterior.kind=newton",),
    ],
)
def test_other_machines_and_copies_are_the_same_too(cluster, tmp_path, demo, recordings, tiny_with, changes):
    settings, speakers = tiny_with(*changes), {name: recordings[name] for name in ALL[:5]}
    first, rest = dict(list(speakers.items())[:3]), dict(list(speakers.items())[3:])
    with DaskWorkers(cluster.address, jobs=2) as workers:
        for part in (first, rest):
            enroll(tmp_path / "here", part, settings)
            enroll(tmp_path / "there", part, settings, workers=workers)
        rows = rows_of(tmp_path / "here", demo, workers=workers)
    assert_same(tmp_path / "there", tmp_path / "here")
    assert rows == rows_of(tmp_path / "here", demo)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["reading", "thresholds: codebooks"])
def test_a_worker_killed_at_work_costs_time_and_no_bit(mortal, tmp_path, recordings, tiny_with, stage):
    speakers, settings = {name: recordings[name] for name in ALL}, tiny_with("codebook.centroids=150")
    enroll(tmp_path / "here", speakers, settings)
    killer = Killer(mortal, stage, 0)
    with DaskWorkers(mortal.address) as workers:
        enroll(tmp_path / "there", speakers, settings, workers=workers, progress=killer)
    assert killer.lost > 0
    assert mortal.workers[0].returncode == -signal.SIGKILL
    assert mortal.workers[1].poll() is None
    assert killer.counted == killer.total
    assert_same(tmp_path / "there", tmp_path / "here")


@pytest.mark.slow
def test_a_worker_killed_among_pair_machines_costs_no_bit_of_them(mortal):
    random = np.random.default_rng(3)
    pool = Pool.of([random.normal(size=(150, 24)) for _ in range(60)], 3.0)
    settings = MachineConfig(kinds=("one_vs_one", "one_class"), sigma=3.0)
    killer = Killer(mortal, "pairs", 0)
    with DaskWorkers(mortal.address) as workers:
        found = train_population(pool, settings, workers=workers, progress=lambda done: killer("pairs", done, 1830))
    assert killer.lost > 0 and killer.counted == killer.total
    expected, everybody = train_population(pool, settings), np.arange(len(pool))
    assert found.pairs.columns(everybody).tobytes() == expected.pairs.columns(everybody).tobytes()
    assert found.pairs.bias(everybody).tobytes() == expected.pairs.bias(everybody).tobytes()


@pytest.mark.slow
def test_a_worker_killed_while_files_are_scored_costs_no_score(mortal, demo, store):
    killer = Killer(mortal, "scoring", 1)
    with DaskWorkers(mortal.address) as workers:
        rows = rows_of(store, demo, workers=workers, progress=lambda done, total: killer("scoring", done, total))
    assert killer.lost > 0
    assert mortal.workers[1].returncode == -signal.SIGKILL
    assert rows == rows_of(store, demo)


@pytest.mark.slow
def test_a_worker_that_comes_after_all_were_lost_ends_the_work(mortal, tmp_path, recordings, store, voices, tiny):
    def progress(stage: str, _done: int, _total: int) -> None:
        if stage == "reading" and len(mortal.workers) == 2:
            mortal.kill()
            mortal.start_worker()

    with DaskWorkers(mortal.address) as workers:
        enroll(
            tmp_path / "there", {name: recordings[name] for name in voices}, tiny, workers=workers, progress=progress
        )
    assert len(mortal.workers) == 3
    assert_same(tmp_path / "there", store)


# Pair machines in batches


def test_pairs_are_tiled_without_losing_one():
    pairs = [(own, rival) for own in range(40) for rival in range(own)]
    tiled = by_tiles(pairs)
    assert sorted(tiled) == pairs
    batches = [tiled[start : start + 128] for start in range(0, len(tiled), 128)]
    assert max(len({n for pair in batch for n in pair}) for batch in batches) <= 64


class Listening(LocalThreads):
    """Threads of this process that take work as others elsewhere do, and keep what they were given."""

    def __init__(self) -> None:
        super().__init__(jobs=2, remote=True)
        object.__setattr__(self, "tasks", [])

    def map(self, function, tasks, *, common, reads=None):
        self.tasks.extend(tasks)
        return super().map(function, self.tasks, common=common)


@pytest.mark.parametrize("family", [None, 3])
def test_batches_hold_only_what_they_need_and_change_no_bit(family):
    random = np.random.default_rng(5)
    pool = Pool.of([random.normal(size=(int(size), 6)) for size in random.integers(5, 20, 24)], 0.9)
    settings = MachineConfig(kinds=("one_vs_one", "one_class"), sigma=0.9)
    listening = Listening()
    found = train_population(pool, settings, workers=listening, family=family).pairs
    expected = train_population(pool, settings, family=family).pairs
    everybody = np.arange(len(pool))
    assert found.columns(everybody).tobytes() == expected.columns(everybody).tobytes()
    assert found.bias(everybody).tobytes() == expected.bias(everybody).tobytes()
    assert len(listening.tasks) > 8
    for pairs, books in listening.tasks:
        assert set(books) == {n for pair in pairs for n in pair}


# What goes wrong


def test_what_a_task_raises_is_raised_here(cluster):
    books = [np.full((4, 3), value) for value in (0.0, 1.0)]
    books[1][2] = np.nan
    with DaskWorkers(cluster.address) as workers, pytest.raises(FitError, match="not finite"):
        list(pairs_elsewhere(Pool.of(books, 0.5), MachineConfig(), [(1, 0)], None, workers))


def test_speakers_without_centroids_change_no_bit_and_no_name_in_an_error():
    random = np.random.default_rng(0)
    books = [random.normal(size=(30, 3)) for _ in range(12)]
    whole = Pool.of(books, 0.5)
    few = Pool.of([book if n in (4, 10, 11) else book[:0] for n, book in enumerate(books)], 0.5)
    pairs = [(11, 10), (11, 4)]
    found, expected = (list(PoolSolver(pool).pairs(pairs, C=10.0)) for pool in (few, whole))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.own_coef.tobytes() == theirs.own_coef.tobytes()
        assert ours.rival_coef.tobytes() == theirs.rival_coef.tobytes()
        assert ours.bias == theirs.bias
    with pytest.raises(FitError, match="speakers 11 and 10"):
        list(PoolSolver(few, step_limit=2).pairs(pairs, C=10.0))


@pytest.mark.slow
def test_what_is_large_is_sent_without_a_word(cluster, recwarn):
    books = [np.random.default_rng(n).normal(size=(3000, 600)) for n in range(2)]
    with DaskWorkers(cluster.address) as workers:
        (found,) = workers.map(np.add, [(books[1],)], common=books[0])
    assert found.tobytes() == (books[0] + books[1]).tobytes()
    assert not recwarn.list


def test_errors_survive_the_way_back():
    import pickle

    error = pickle.loads(pickle.dumps(UnknownSpeakerError("ana", ("anna",))))  # noqa: S301
    assert str(error) == str(UnknownSpeakerError("ana", ("anna",)))
    assert str(pickle.loads(pickle.dumps(ClusterError("gone")))) == "gone"  # noqa: S301


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a path that leads elsewhere in each process")
def test_a_file_that_only_this_machine_can_open_is_an_error_and_not_a_skipped_file(cluster, tmp_path, recordings, tiny):
    from dataclasses import replace

    utterances = recordings["anna"]
    with utterances[0].path.open("rb") as file:
        here = os.dup2(file.fileno(), 900)
        try:
            speakers = {"anna": (replace(utterances[0], path=Path("/proc/self/fd/900")), *utterances[1:])}
            with (
                DaskWorkers(cluster.address) as workers,
                pytest.raises(ClusterError, match=r"/proc/self/fd/900: worker tcp://.* cannot open it .*same path"),
            ):
                enroll(tmp_path / "s", speakers, tiny, workers=workers)
        finally:
            os.close(here)
    assert not (tmp_path / "s").exists()


def test_a_file_that_nobody_can_open_is_skipped_as_ever(cluster, recordings, garbage, tmp_path, tiny):
    from dataclasses import replace

    first, *rest = recordings["anna"][:3]
    gone, broken = replace(first, path=tmp_path / "gone.flac"), replace(first, path=garbage)

    def skipped(workers):
        speakers = {"anna": (gone, broken, *rest)}
        return read_voices(speakers, tiny, None, enrolled=0, workers=workers, progress=lambda *_: None)[1]

    with DaskWorkers(cluster.address) as workers:
        assert skipped(workers) == skipped(LocalThreads())


def test_no_scheduler_is_told_within_seconds(tmp_path, recordings, tiny):
    for address in ("tcp://127.0.0.1:1", "nowhere", "tcp://", "tcp://127.0.0.1:x"):
        started = time.monotonic()
        with pytest.raises(ClusterError, match="no scheduler answers there within 5 s"):
            DaskWorkers(address)
        assert time.monotonic() - started < 8


@pytest.mark.slow
def test_without_any_worker_the_run_ends_and_the_store_is_as_it_was(tmp_path, recordings, copied, tiny):
    before = content(copied)
    (tmp_path / "empty").mkdir()
    with Cluster(tmp_path / "empty", workers=0) as empty, DaskWorkers(empty.address, patience=2.0) as workers:
        started = time.monotonic()
        with pytest.raises(ClusterError, match="no worker for 2 s"):
            enroll(copied, {"clara": recordings["clara"]}, workers=workers)
        assert 2.0 <= time.monotonic() - started < 10
    assert content(copied) == before


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["reading", "thresholds: codebooks"])
def test_losing_every_worker_ends_the_run_and_the_store_is_as_it_was(mortal, recordings, copied, stage):
    before = content(copied)
    killer = Killer(mortal, stage, 0, 1)
    speakers = {name: recordings[name] for name in ("bruno", "clara", "edith", "fergus", "greta")}
    with DaskWorkers(mortal.address, patience=3.0) as workers, pytest.raises(ClusterError, match="no worker for 3 s"):
        enroll(copied, speakers, workers=workers, progress=killer)
    assert content(copied) == before


@pytest.mark.slow
def test_losing_the_scheduler_ends_the_run_and_the_store_is_as_it_was(mortal, recordings, copied):
    before = content(copied)

    def progress(stage: str, _done: int, _total: int) -> None:
        mortal.scheduler.kill()

    with DaskWorkers(mortal.address) as workers:
        started = time.monotonic()
        with pytest.raises(ClusterError, match="connection to the scheduler was lost"):
            enroll(copied, {"clara": recordings["clara"]}, workers=workers, progress=progress)
        assert time.monotonic() - started < 60
    assert content(copied) == before


def test_a_worker_must_be_like_the_client():
    with pytest.raises(ClusterError, match=r"worker tcp://x: numpy must be what it is here, '2', got '1'"):
        check_same({"voiceclaim": "1", "numpy": "2"}, {"voiceclaim": "1", "numpy": "1"}, "tcp://x")
    assert {"voiceclaim", "code", "numpy", "processor", "BLAS"} <= set(facts())
    assert all(isinstance(value, str) and value for value in facts().values())


@pytest.mark.slow
def test_a_worker_of_another_version_is_refused(tmp_path, recordings, tiny):
    shutil.copytree(ROOT / "pipeline", tmp_path / "other" / "pipeline")
    version = tmp_path / "other" / "pipeline" / "_version.py"
    version.write_text(version.read_text(encoding="utf-8").replace('__version__ = "', '__version__ = "9.'))
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", workers=0) as running:
        running.start_worker(tmp_path / "other")
        with DaskWorkers(running.address) as workers, pytest.raises(ClusterError, match=r"voiceclaim must be .*'9\."):
            enroll(tmp_path / "s", {"anna": recordings["anna"]}, tiny, workers=workers)
    assert not (tmp_path / "s").exists()


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(LibraryMissingError, match=r"pip install 'voiceclaim\[distributed\]'"):
        DaskWorkers("tcp://127.0.0.1:8786")


# The commands


@pytest.mark.slow
def test_the_commands_run_on_a_cluster(cluster, tmp_path, corpus_of, demo, run_in):
    corpus_of("recordings", anna=6, dexter=6, ivan=6)
    settings = ("--set=features.rate=8000", "--set=codebook.min_seconds=3", "--set=codebook.centroids=40")
    there = ("--backend", "dask", "--scheduler", cluster.address)
    here = run_in(tmp_path, "enroll", "recordings", "--store", "here", *settings)
    done = run_in(tmp_path, "enroll", "recordings", "--store", "there", *settings, *there)
    assert (here.code, done.code) == (0, 0), done.err
    assert done.err == here.err
    assert done.out.splitlines()[:-1] == here.out.splitlines()[:-1]
    assert_same(tmp_path / "there", tmp_path / "here")
    lines = [line for line in (demo / "trials.txt").read_text().splitlines() if line.split()[0] in ("anna", "ivan")]
    (tmp_path / "trials.txt").write_text("\n".join(lines) + "\n")
    shutil.copytree(demo / "verify", tmp_path / "verify")
    for name, words in (("a", ()), ("b", there)):
        assert run_in(tmp_path, "evaluate", "here", "trials.txt", "--out", name, *words).code == 0
    assert (tmp_path / "a" / "scores.txt").read_bytes() == (tmp_path / "b" / "scores.txt").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_ends_the_command_and_leaves_the_cluster_idle(cluster, tmp_path, demo, command):
    words = ["enroll", str(demo / "enroll"), "--store", "s", "--backend", "dask", "--scheduler", cluster.address]
    process = subprocess.Popen([*command, *words], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with distributed.Client(cluster.address, set_as_default=False) as watching:
        deadline = time.monotonic() + 60
        while not any(watching.processing().values()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        while any(watching.processing().values()):
            assert time.monotonic() < deadline + 30
            time.sleep(0.1)
    assert process.returncode == 130
    assert b"Traceback" not in errors, errors.decode()
    assert not (tmp_path / "s" / "manifest.json").exists()


@pytest.mark.slow
def test_a_lost_scheduler_is_told_in_one_line(mortal, tmp_path, demo, command):
    words = ["enroll", str(demo / "enroll"), "--store", "s", "--backend", "dask", "--scheduler", mortal.address]
    process = subprocess.Popen([*command, *words], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not mortal.tasks_of(0, 1):
        assert time.monotonic() < deadline and process.poll() is None
    mortal.scheduler.kill()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.count(b"\n") == 1 and b"the connection to the scheduler was lost" in errors, errors.decode()
    assert not (tmp_path / "s" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--scheduler", "tcp://x:1"), "goes with --backend dask"),
        (("--backend", "threads", "--scheduler", "tcp://x:1"), "goes with --backend dask"),
        (("--backend", "dask"), "needs --scheduler ADDRESS"),
        (("--backend", "spark"), "must be threads or dask"),
    ],
)
def test_options_that_do_not_fit_each_other_are_refused(run_in, tmp_path, demo, words, told):
    for line in (("enroll", demo / "enroll", "--store", "s"), ("evaluate", "s", "t", "--out", "o")):
        done = run_in(tmp_path, *line, *words)
        assert done.code == 2
        assert told in " ".join(done.err.split())
    assert list(tmp_path.iterdir()) == []


def test_scores_need_no_cluster(run_in, tmp_path):
    words = ("evaluate", "--scores", "x", "--out", "o", "--backend", "dask", "--scheduler", "tcp://x:1")
    done = run_in(tmp_path, *words)
    assert done.code == 2
    assert "--backend does not go with --scores" in " ".join(done.err.split())
