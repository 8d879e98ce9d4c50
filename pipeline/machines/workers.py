"""Executors of the coarse tasks of enrollment and evaluation: threads of this process, or a dask.distributed cluster.

A task is a top-level function with picklable arguments (paths, arrays, frozen settings). Its result depends only on its
arguments, so that neither the number of workers nor the loss of one changes any bit.
"""

from __future__ import annotations

import asyncio
import copy
import signal
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pipeline.errors import InputError, UnavailableError, check_type
from pipeline.extras import library
from pipeline.files import open_regular

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = tuple[Any, ...]

CONNECT_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
# Tasks in flight on a cluster: per thread, and at least.
_AHEAD, _LEAST_AHEAD = 4, 16
# Number of short tasks for which processes are worth the second that they take to start.
MANY = 100


@dataclass(frozen=True)
class LocalThreads:
    """Executor with ``jobs`` threads (negative: counted as in joblib), or for many short tasks as many processes.

    ``remote`` workers run tasks in other processes: arguments should be small, and paths absolute.
    """

    jobs: int = 1
    remote: ClassVar[bool] = False

    def map(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *,
        common: Any,
        reads: Callable[..., Iterable[Path]] | None = None,  # noqa: ARG002  (threads open the same files)
        many: int = 0,
    ) -> Iterator[Result]:
        """Yield ``function(common, *task)`` for each task, in order, running only a few tasks ahead.

        ``common`` is sent once to each worker. ``reads(*task)`` names the files that a task opens. ``many`` is the
        number of tasks that are short and hold Python's lock; if it is large, they run in processes.
        """
        jobs = jobs_of(self.jobs)
        if many >= MANY and jobs > 1:
            return _in_processes(function, tasks, common, jobs)
        return in_order(lambda task: function(common, *task), tasks, jobs)


class DaskWorkers(AbstractContextManager["DaskWorkers"]):
    """Workers of the cluster with its scheduler at ``address`` (tcp://host:port, or tls:// if dask is set up for it).

    A context manager: leaving it cancels pending tasks. ``jobs`` threads do the work that stays in this process. Dask
    runs the tasks of a lost worker again elsewhere; the run fails if no worker is left for ``patience`` seconds. Raises
    UnavailableError, also if no scheduler answers within five seconds.
    """

    remote: ClassVar[bool] = True

    def __init__(self, address: str, *, jobs: int = 1, patience: float = PATIENCE_SECONDS) -> None:
        self.jobs = jobs
        self.patience = patience
        self.address = address
        self._dask = library("distributed", "a Dask cluster", "distributed")
        _check_answers(self._dask, address)
        self._client = self._dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the cluster, which then drops unfinished tasks."""
        self._client.close(timeout=CONNECT_SECONDS)

    def map(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *,
        common: Any,
        reads: Callable[..., Iterable[Path]] | None = None,
        many: int = 0,  # noqa: ARG002  (all run in processes)
    ) -> Iterator[Result]:
        """See ``LocalThreads.map``; raises what a task raises, and UnavailableError if the cluster fails."""
        waiting: deque[Any] = deque()
        # A separate task rather than scattered data: dask recomputes it if the worker that holds it is lost.
        token, shared = uuid.uuid4().hex, self._submit(copy.copy, common)
        ahead = max(_LEAST_AHEAD, _AHEAD * self._threads())
        for task in tasks:
            files = () if reads is None else tuple(filter(_opens, reads(*task)))
            waiting.append(self._submit(_perform, function, token, shared, task, files))
            if len(waiting) > ahead:
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        from dask import config

        with self._cluster_errors(), config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return self._client.submit(function, *arguments, pure=False)

    def _threads(self) -> int:
        """Return the number of threads of the cluster."""
        with self._cluster_errors():
            try:
                return sum(self._client.nthreads().values())
            except OSError:
                raise self._lost() from None

    def _result(self, future: Any) -> Any:
        """Return or raise the outcome of one task."""
        while True:
            try:
                with self._cluster_errors():
                    return future.result(timeout=self.patience)
            except OSError as error:  # TimeoutError among them
                if future.status == "error":  # raised by the task
                    raise
                if not isinstance(error, TimeoutError):
                    raise self._lost() from None
            if self._threads() == 0:
                raise UnavailableError(
                    f"--scheduler {self.address}: no worker for {self.patience:g} s, and tasks are waiting; start some"
                    f" with `dask worker {self.address}`, and run the command again"
                )

    @contextmanager
    def _cluster_errors(self) -> Iterator[None]:
        """Raise UnavailableError for failures of the cluster; errors of a task pass unchanged."""
        try:
            yield
        except (self._dask.CancelledError, self._dask.client.ClosedClientError):
            raise self._lost() from None
        except self._dask.KilledWorker as error:
            raise UnavailableError(
                f"--scheduler {self.address}: workers died repeatedly under one task ({error}); too little memory?"
                " see the workers' logs"
            ) from None

    def _lost(self) -> UnavailableError:
        return UnavailableError(
            f"--scheduler {self.address}: the connection to the scheduler was lost; has it ended or been restarted?"
            " Nothing was written: run the command again"
        )


Workers = LocalThreads | DaskWorkers
"""Executors of coarse tasks."""


def chosen_workers(workers: Workers | None, jobs: int) -> Workers:
    """Return ``workers``, by default ``jobs`` threads; raises InputError for anything else."""
    if workers is None:
        return LocalThreads(jobs)
    check_type("workers", workers, Workers, "LocalThreads or DaskWorkers (a number of threads is jobs)")
    return workers


def _check_answers(dask: Any, address: str) -> None:
    """Raise UnavailableError if no scheduler answers; a Client that cannot connect takes long to give up."""

    async def connect() -> None:
        secured = dask.Security().get_connection_args("client")
        comm = await dask.comm.connect(address, timeout=CONNECT_SECONDS, **secured)
        await comm.close()

    try:
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may have an event loop, as in a notebook
            thread.submit(asyncio.run, connect()).result()
    except Exception as error:
        raise UnavailableError(
            f"--scheduler {address}: no scheduler answers there within {CONNECT_SECONDS:g} s ({error});"
            " give the address that `dask scheduler` prints, such as tcp://host:8786"
        ) from None


@lru_cache(maxsize=2)
def _copies(_token: str) -> list[Any]:
    """Return the list that holds this worker's own copy of the common argument of one ``map``."""
    return []


def _perform(function: Callable[..., Any], token: str, common: Any, arguments: Task, files: Iterable[Path]) -> Any:
    """Run one task on a worker; raises UnavailableError for a file that only the client can open."""
    for path in files:
        if not _opens(path):
            from distributed import get_worker

            raise UnavailableError(
                f"{path}: worker {get_worker().address} cannot open it, but the machine that runs the command can;"
                " workers read audio and the store themselves: share the folder with them, under the same path"
            )
    # Arrays from the network are read-only and unaligned; sums over copies equal those over local arrays to the last
    # bit.
    own = _copies(token)
    if not own:  # the original is kept as received, so that dask can pass it on to other workers
        own.append(copy.deepcopy(common))
    return function(own[0], *copy.deepcopy(arguments))


def _opens(path: Path) -> bool:
    try:
        open_regular(path).close()
    except OSError:
        return False
    return True


def path_for(path: Path, workers: Workers) -> Path:
    """Return ``path`` as ``workers`` need it: absolute for processes, whose working directories may differ."""
    return path.absolute() if workers.remote else path


def jobs_of(jobs: int) -> int:
    """Return the number of threads; negative ``jobs`` count down from the number of processors, as in joblib.

    Raises InputError for 0 and for anything but a whole number.
    """
    if jobs == 1:
        return 1
    if not isinstance(jobs, int) or jobs == 0:
        raise InputError(f"jobs: a number of threads was expected, 1 or more, or -1 for all cores, got {jobs!r}")
    from joblib import effective_n_jobs  # takes a tenth of a second, which a single thread need not wait for

    return int(effective_n_jobs(jobs))


def in_order(function: Callable[[Item], Result], tasks: Iterable[Item], jobs: int) -> Iterator[Result]:
    """Map on ``jobs`` threads (``jobs_of``), results in order, running only a few tasks ahead of the consumer.

    Raises MemoryError where no thread can be started.
    """
    jobs = jobs_of(jobs)
    if jobs == 1:
        yield from map(function, tasks)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(jobs) as threads:
        for task in tasks:
            try:
                waiting.append(threads.submit(function, task))
            except RuntimeError as error:
                raise MemoryError(str(error)) from None
            if len(waiting) > 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _in_processes(function: Callable[..., Result], tasks: Iterable[Task], common: Any, jobs: int) -> Iterator[Result]:
    """Map in ``jobs`` processes, results in order; these share large arrays of ``common`` as files."""
    from joblib import Parallel, delayed

    # With more tasks ahead than by default, an interruption ends in a KeyError of loky's, which its thread prints.
    with Parallel(jobs, backend="loky", return_as="generator") as run:
        with _without_interrupts():
            results = run(delayed(function)(common, *task) for task in tasks)
        yield from results


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block SIGINT in this thread, and for good in the processes that it starts: Ctrl-C is for their parent alone."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # where it is started later, it ends the block
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)
