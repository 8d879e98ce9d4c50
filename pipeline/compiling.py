"""Compiled functions: numba's, kept on disk for the next process.

Importing this module loads numba, half a second that a command on one file should not pay: modules of compiled
functions are imported where they are called, by what runs for long.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

# What compiled functions of other modules are made with. numba looks at a function's own file for changes, no further.
SHARED = ("compiling.py", "machines/exponential.py", "machines/kernel_block.py")

# Without these LLVM may not reorder a sum or a maximum, and so not vectorise it.
FAST = {"nnan", "nsz", "reassoc", "contract"}


def _digest() -> str:
    folder = Path(__file__).parent
    return hashlib.blake2b(b"".join((folder / name).read_bytes() for name in SHARED), digest_size=4).hexdigest()


_OF_SHARED = _digest()


def compiled(*signatures: str, exact: bool = False) -> Callable[[Function], Function]:
    """Compile for the ``signatures``; kept on disk for the next process where numba finds a folder to write to.

    ``exact`` sums stay in the order that they are written in, each operation rounded by itself, as numpy's are.
    """

    def compile_one(function: Function) -> Function:
        options: dict[str, Any] = {
            "nogil": True,
            "fastmath": False if exact else FAST,
            "error_model": "numpy",
            "no_cfunc_wrapper": True,
        }
        made: Any
        # Its name on disk: what was compiled with other parts is not found under it.
        function.__qualname__ += f"_{_OF_SHARED}"
        try:
            made = njit(list(signatures), cache=True, **options)(function)
        except (RuntimeError, OSError):  # no such folder, or no room in it
            made = njit(list(signatures), **options)(function)
        return cast(Function, made)

    return compile_one
