"""Work shared among threads: what training and scoring do speaker by speaker, machine by machine or file by file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def jobs_of(jobs: int) -> int:
    """How many ``jobs`` are meant: negative numbers count from the number of processors down, as joblib does."""
    if jobs == 1:
        return 1
    from joblib import effective_n_jobs  # a tenth of a second that what runs alone need not wait

    return int(effective_n_jobs(jobs))


def in_order(function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int) -> Iterator[Result]:
    """Map on ``jobs`` threads, results in order, only a few tasks ahead of what has been taken."""
    if jobs == 1:
        yield from map(function, tasks)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(jobs) as threads:
        for task in tasks:
            waiting.append(threads.submit(function, task))
            if len(waiting) > 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def run_parallel(function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], *, jobs: int) -> list[Result]:
    """Map ``function`` over argument tuples on ``jobs`` threads (negative: counted as joblib does), in order."""
    return list(in_order(lambda task: function(*task), tasks, jobs_of(jobs)))
