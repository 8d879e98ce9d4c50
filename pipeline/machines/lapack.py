"""LAPACK's Cholesky factorisation without the interpreter lock, which SciPy's own functions hold.

Matrices are symmetric and stored by rows, but by columns in LAPACK: its upper triangle is the lower one here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyFloat = NDArray[np.floating[Any]]

# Python's own functions for what Cython modules export: SciPy's interface for compiled code (``__pyx_capi__``).
_CAPSULE_NAME = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_CAPSULE_POINTER = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def cholesky(matrix: AnyFloat) -> AnyFloat:
    """Return L with L L' = ``matrix`` (n, n) in the lower triangle; values above the diagonal are undefined.

    Raises LinAlgError if the matrix is not positive definite to its precision.
    """
    factor = np.array(matrix, order="C")
    if _call("potrf", [len(factor)], [factor]):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return factor


def cholesky_solve(factor: AnyFloat, right: AnyFloat) -> AnyFloat:
    """Return the solution (n, k) of L L' x = ``right``, with L the lower triangle of ``factor`` (n, n)."""
    solution = np.array(right.T, dtype=factor.dtype, order="C")
    _call("potrs", [len(factor), len(solution)], [factor, solution])
    return solution.T


def _call(name: str, sizes: Sequence[int], arrays: Sequence[AnyFloat]) -> int:
    """Call a LAPACK routine on the upper triangle of the first of ``arrays``, all of n rows; return its ``info``."""
    numbers, info = [ctypes.c_int(size) for size in sizes], ctypes.c_int()
    with_lengths = [(array.ctypes.data_as(ctypes.c_void_p), ctypes.byref(numbers[0])) for array in arrays]
    upper = ctypes.byref(ctypes.c_char(b"U"))
    arguments = [upper, *map(ctypes.byref, numbers), *chain.from_iterable(with_lengths), ctypes.byref(info)]
    _routine(name, arrays[0].dtype.char, len(arguments))(*arguments)
    return info.value


@cache
def _routine(name: str, precision: str, arguments: int) -> Any:
    """Return the routine for a ``precision``, "f" or "d", and this number of ``arguments``."""
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__[{"f": "s", "d": "d"}[precision] + name]
    signature = _CAPSULE_NAME(capsule)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(_CAPSULE_POINTER(capsule, signature))
