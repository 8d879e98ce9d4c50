"""Where the coarse work of enrollment and evaluation is done: on threads of this process, or by workers elsewhere.

Coarse work is cut into tasks that know nothing of each other: a function at the top of a module, with what it works on
as arguments (paths, arrays, frozen settings). What a task gives depends on its arguments alone, so that neither the
number of workers nor the loss of one changes a bit of any result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipeline.threads import in_order, jobs_of

Result = TypeVar("Result")
Task = tuple[Any, ...]


class Workers(Protocol):
    """Whoever does tasks."""

    @property
    def jobs(self) -> int:
        """Threads of this process, for all work that stays in it."""

    @property
    def remote(self) -> bool:
        """Whether tasks leave this process, so that what they need is worth making small."""

    def map(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *,
        common: Any,
        reads: Callable[..., Iterable[Path]] | None = None,
    ) -> Iterator[Result]:
        """``function(common, *task)`` of each task, in order, only a few tasks ahead of what has been taken.

        ``common`` is sent once to each worker. ``reads(*task)`` names the files that a task opens.
        """


@dataclass(frozen=True)
class LocalThreads:
    """Threads of this process, ``jobs`` of them (negative: counted as joblib does)."""

    jobs: int = 1
    remote: bool = False

    def map(
        self,
        function: Callable[..., Result],
        tasks: Iterable[Task],
        *,
        common: Any,
        reads: Callable[..., Iterable[Path]] | None = None,  # noqa: ARG002  (whoever reads here finds what is here)
    ) -> Iterator[Result]:
        """See Workers."""
        return in_order(lambda task: function(common, *task), tasks, jobs_of(self.jobs))


def found_from_anywhere(path: Path, workers: Workers) -> Path:
    """``path`` as ``workers`` must name it: whole for those who may stand in another folder."""
    return path.absolute() if workers.remote else path
