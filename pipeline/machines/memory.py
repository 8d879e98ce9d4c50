"""Freed memory under glibc: kept for later arrays, or returned to the system."""

from __future__ import annotations

import ctypes
import sys

# Parameters of mallopt(3), and their maximum: arrays up to this size are not mapped individually, and up to twice this
# much freed memory is kept.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_KEPT = 2**25


def keep_freed() -> None:
    """Keep freed memory for the arrays that come next.

    By itself glibc does so only after an array of this size has been freed. Until then it returns all freed memory to
    the system, which clears every page at the next use: a sixth of the time of a claim.
    """
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_MMAP_THRESHOLD, _MOST_KEPT)
        mallopt(_TRIM_THRESHOLD, 2 * _MOST_KEPT)


def give_back() -> None:
    """Return freed memory to the system; arrays of 32 MiB and more are never kept."""
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


def _of_glibc(name: str) -> ctypes._NamedFuncPointer | None:
    """Return a function of the C library; None if it has no function of that name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
