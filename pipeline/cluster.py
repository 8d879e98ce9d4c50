"""Tasks of enrollment and evaluation on a dask.distributed cluster; needs the extra ``distributed``.

Tasks of a worker that is lost are done again by another, and since a task's result depends on its arguments alone,
that costs time and changes nothing. While no worker is left, a run waits ``patience`` seconds for one and then fails.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pipeline.backends import Task
from pipeline.cluster_tasks import Handed, Parcel, facts, perform, same
from pipeline.errors import ClusterError, LibraryMissingError
from pipeline.files import open_regular

Result = TypeVar("Result")

CONNECT_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 1.0  # between two looks at whether there are still workers
_AHEAD = 4  # tasks under way for each thread of the cluster, and never fewer than _LEAST
_LEAST = 16


class DaskWorkers:
    """The workers of the cluster whose scheduler is at ``address`` (tcp://host:port, or tls:// as dask is set up).

    A context manager: leaving it cancels what is still under way. ``jobs`` threads of this process do what stays in it.
    ``patience`` is for how many seconds there may be no worker at all. Raises LibraryMissingError, and ClusterError
    where no scheduler answers within five seconds.
    """

    remote = True

    def __init__(self, address: str, *, jobs: int = 1, patience: float = PATIENCE_SECONDS) -> None:
        self.jobs = jobs
        self.patience = patience
        self.address = address
        self._dask = _library()
        self._facts = facts()
        self._width: tuple[float, int] = (-_LOOK_SECONDS, 0)
        _check_answers(self._dask, address)
        self._client = self._dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, which then drops every task that is not done."""
        self._client.close(timeout=CONNECT_SECONDS)

    def map(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *,
        common: Any,
        reads: Callable[..., Iterable[Path]] | None = None,
    ) -> Iterator[Result]:
        """See Workers; raises what a task raises, and ClusterError where the cluster fails."""
        waiting: deque[Any] = deque()
        handed = self._submitted(same, Handed(uuid.uuid4().hex, common))
        try:
            for task in tasks:
                files = () if reads is None else tuple(filter(_opens, reads(*task)))
                waiting.append(self._submitted(perform, Parcel(function, task, files, self._facts), handed))
                while len(waiting) > self._ahead():
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for future in waiting:
                future.release()

    def _submitted(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # What tasks share is sent whole, once, and on purpose: no word of warning about its size.
        from dask import config as dask_config

        quiet = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
        with self._dask_errors(), dask_config.set(quiet):
            return self._client.submit(function, *arguments, pure=False)

    def _ahead(self) -> int:
        """How many tasks may be under way, for the workers of now."""
        looked, width = self._width
        if time.monotonic() - looked >= _LOOK_SECONDS:
            self._width = (time.monotonic(), width := self._threads())
        return max(_LEAST, _AHEAD * width)

    def _threads(self) -> int:
        with self._dask_errors():
            try:
                return sum(self._client.nthreads().values())
            except OSError:  # of the connection: no task has a part in this
                raise self._lost() from None

    def _result(self, future: Any) -> Any:
        """What the task gives or raises; raises ClusterError after ``patience`` seconds without a worker."""
        alone_since, transfer = None, self.patience
        while True:
            with self._dask_errors():
                if self._done(future):
                    try:
                        return future.result(timeout=transfer)
                    except OSError as error:  # a time-out is one, too
                        if future.status == "error":  # what the task raised
                            raise
                        if not isinstance(error, TimeoutError):
                            raise self._lost() from None
                        transfer *= 2  # a large result over a slow line, or its worker is lost
            if self._threads():
                alone_since = None
                continue
            alone_since = time.monotonic() if alone_since is None else alone_since
            if time.monotonic() - alone_since > self.patience:
                raise ClusterError(
                    f"--scheduler {self.address}: no worker for {self.patience:g} s, and there is work to do; start"
                    f" some with `dask worker {self.address}`, and run the command again"
                )

    def _done(self, future: Any) -> bool:
        try:
            with self._client.as_current():
                self._dask.wait(future, timeout=_LOOK_SECONDS)
        except self._dask.TimeoutError:
            return False
        return True

    @contextmanager
    def _dask_errors(self) -> Iterator[None]:
        """Raise ClusterError for what goes wrong with the cluster; what a task itself raises passes."""
        dask = self._dask
        try:
            yield
        except (dask.CancelledError, dask.client.ClosedClientError):
            raise self._lost() from None
        except dask.KilledWorker as error:
            raise ClusterError(
                f"--scheduler {self.address}: a task's workers ended under it again and again ({_first(error)});"
                " too little memory? see the workers' logs"
            ) from None
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "pipeline":
                raise
            raise ClusterError(
                f"--scheduler {self.address}: the package must be installed on every worker and on the scheduler in"
                f" the version that is here ({_first(error)})"
            ) from None

    def _lost(self) -> ClusterError:
        return ClusterError(
            f"--scheduler {self.address}: the connection to the scheduler was lost; has it ended, or was it started"
            " again? Nothing was written: run the command again"
        )


def _check_answers(dask: Any, address: str) -> None:
    """Raise ClusterError where no scheduler answers; a client that is not connected would take long to give up."""

    async def greet() -> None:
        secured = dask.Security().get_connection_args("client")
        comm = await dask.comm.connect(address, timeout=CONNECT_SECONDS, **secured)
        await comm.close()

    try:
        with ThreadPoolExecutor(1) as thread:  # whoever calls may have a loop of their own, as a notebook has
            thread.submit(asyncio.run, greet()).result()
    except Exception as error:  # whatever is at the address may have answered anything
        raise ClusterError(
            f"--scheduler {address}: no scheduler answers there within {CONNECT_SECONDS:g} s ({_first(error)});"
            " give the address that `dask scheduler` prints, such as tcp://host:8786"
        ) from None


def _first(error: BaseException) -> str:
    """The first line of what ``error`` says, or its name where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _opens(path: Path) -> bool:
    """Whether ``path`` can be opened here, and so must open on a worker; the task says what is wrong with others."""
    try:
        open_regular(path).close()
    except OSError:
        return False
    return True


def _library() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise LibraryMissingError(
            f"--backend dask needs the library distributed, which cannot be loaded ({error});"
            " install it with: pip install 'voiceclaim[distributed]'"
        ) from error
    return distributed
