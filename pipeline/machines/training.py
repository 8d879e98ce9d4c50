"""Work shared among threads: what training and scoring do speaker by speaker, or file by file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from joblib import Parallel, delayed

Result = TypeVar("Result")


def run_parallel(function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], *, jobs: int) -> list[Result]:
    """Map ``function`` over argument tuples on ``jobs`` threads, in order (LIBSVM and BLAS let go of the GIL)."""
    return list(Parallel(n_jobs=jobs, backend="threading")(delayed(function)(*task) for task in tasks))
