"""Memory that was freed and that the C library keeps for later: given back to the system, where it can be."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Give freed memory back to the system, where the C library is glibc.

    Of arrays below 32 MB glibc keeps the memory, and larger ones are never made in it.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
