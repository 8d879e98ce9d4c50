"""Numba kernels of the SMO solver: RBF tiles, and sequential minimal optimisation over them.

Importing this module loads numba and compiles its functions, or reads them from numba's cache; ``machines.smo`` and
``machines.one_vs_rest`` import it only when there is something to train. The kernels do not check their input and
release the interpreter lock.

A problem of n points in signed coefficients b (n,), with margins K b plus a bias: maximise target . b - b' K b / 2,
where every b[t] has a lower and an upper bound and their sum is given. ``up`` and ``down`` are how far a coefficient
may increase and decrease; the residual target - K b is the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  numba calls it for np.dot, and would load it only then, with its own threads
from numba import njit, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

# Without these flags LLVM must not reorder a sum or a maximum, and so cannot vectorise it.
FAST = {"nnan", "nsz", "reassoc", "contract"}

# LIBSVM's floor for the curvature between two points, which is 0 for equal points.
FLATTEST = 1e-12

# Larger than any residual. With infinity instead, LLVM does not vectorise the search for the extremes.
FAR = 1e300

# Rows of a tile that are transposed together, so that both sides of the copy stay in the nearest cache.
STRIP = 16

# Kernel values held at a time where they are only summed: as many as fit the second-level cache.
ROOM = 2**17

two = np.float32(2.0)

# exp(x) = 2^n exp(r), with n the integer nearest to x / ln 2 and r = x - n ln 2, subtracted in two parts; exp(r) by a
# polynomial (Moshier, Cephes mathematical library, 1989).
PER_LN2, LN2, LN2_REST = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
P5, P4, P3 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
P2, P1, P0 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
LEAST, HALF, ONE = np.float32(-87.0), np.float32(0.5), np.float32(1.0)


def compiled(*signatures: str) -> Callable[[Function], Function]:
    """Compile for the ``signatures``; cached on disk for the next process where numba finds a folder to write to."""

    def compile_one(function: Function) -> Function:
        options: dict[str, Any] = {"nogil": True, "fastmath": FAST, "error_model": "numpy", "no_cfunc_wrapper": True}
        made: Any
        try:
            made = njit(list(signatures), cache=True, **options)(function)
        except (RuntimeError, OSError):  # no such folder, or no space in it
            made = njit(list(signatures), **options)(function)
        return cast(Function, made)

    return compile_one


def _choice(order: str) -> Any:
    """Return the greater (">") or the lesser ("<") of two floats by an instruction that LLVM vectorises.

    numba's own ``max`` and ``min`` handle NaN, which prevents that.
    """
    flags = ("nnan", "nsz")

    def choice(_context: Any, first: Any, second: Any) -> Any:
        def generate(_target: Any, builder: Any, _signature: Any, values: Any) -> Any:
            return builder.select(builder.fcmp_ordered(order, *values, flags=flags), *values, flags=flags)

        return first(first, second), generate

    return intrinsic(choice)


greater, lesser = _choice(">"), _choice("<")


def _of_bits(_context: Any, _bits: Any) -> Any:
    """Return the number of single precision that has these bits."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(signature.return_type))

    return types.float32(types.int32), generate


of_bits: Any = intrinsic(_of_bits)


@njit(inline="always", error_model="numpy")
def exponential(x: Any) -> Any:
    """Return exp(``x``) of a number up to 0, in single precision; the C library's is not vectorised."""
    bounded = greater(x, LEAST)
    n = np.int32(bounded * PER_LN2 - HALF)  # rounds towards zero
    r = bounded - np.float32(n) * LN2 - np.float32(n) * LN2_REST
    series = ((((P5 * r + P4) * r + P3) * r + P2) * r + P1) * r + P0
    return (series * r * r + r + ONE) * of_bits((n + np.int32(127)) << np.int32(23))


@compiled("void(f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[::1], f4[:,::1], i8)")
def fill(x: Any, x_norms: Any, y: Any, y_norms: Any, room: Any, gram: Any, column: Any) -> None:
    """Write kernel values between ``x`` (n, d) and ``y`` (m, d) into gram[:n, column : column + m].

    Both are divided by sigma; norms are half the squared lengths; ``room`` has space for at least n m values.
    """
    products = room[: len(x) * len(y)].reshape((len(x), len(y)))
    np.dot(x, y.T, products)
    for i in range(len(x)):
        row = gram[i, column : column + len(y)]
        for t in range(len(y)):
            # K(x, y) = exp(x . y - |x|^2 / 2 - |y|^2 / 2), at most 1 after rounding
            row[t] = exponential(np.float32(lesser(products[i, t] - x_norms[i] - y_norms[t], 0.0)))


@compiled("void(f4[:,::1], i8)")
def mirror(gram: Any, count: Any) -> None:
    """Copy the block of rows :count and columns count: to the other side of the diagonal."""
    size = len(gram)
    for strip in range(0, count, STRIP):
        for j in range(count, size):
            for i in range(strip, min(strip + STRIP, count)):
                gram[j, i] = gram[i, j]


@compiled("UniTuple(f8, 2)(f8[::1], f8[::1], f8[::1], f4[::1], f4[::1], f8)")
def step(residual: Any, up: Any, down: Any, row: Any, other: Any, size: Any) -> Any:
    """Move ``size`` between two coefficients with these kernel rows, and return the extremes of the updated residual.

    They are its largest value among coefficients that may increase, and its smallest among those that may decrease.
    """
    best, least = -FAR, FAR
    for t in range(residual.size):
        left = residual[t] - size * (np.float64(row[t]) - np.float64(other[t]))
        residual[t] = left
        best = greater(best, left if up[t] > 0.0 else -FAR)
        least = lesser(least, left if down[t] > 0.0 else FAR)
    return best, least


@compiled("i8(f8[::1], f8[::1], f8)")
def grower(residual: Any, up: Any, best: Any) -> Any:
    """Return the first coefficient that may increase and has the residual ``best``."""
    first = nowhere = np.int32(residual.size)
    for t in range(residual.size):
        first = min(first, np.int32(t) if residual[t] == best and up[t] > 0.0 else nowhere)
    return first


@compiled("i8(f8[::1], f8[::1], f4[::1], f8, f4[::1])")
def partner(residual: Any, down: Any, row: Any, best: Any, gains: Any) -> Any:
    """Return the coefficient to decrease: largest gain b^2 / a, with b the difference of residuals and a the curvature.

    Second-order working-set selection (Fan, Chen and Lin 2005, algorithm 2).
    """
    most = np.float32(-1.0)
    for t in range(residual.size):
        difference = np.float32(best - residual[t])
        gain = difference * difference / greater(two - two * row[t], np.float32(FLATTEST))
        gains[t] = gain if difference > np.float32(0.0) and down[t] > 0.0 else np.float32(-1.0)
        most = greater(most, gains[t])
    first = nowhere = np.int32(residual.size)
    for t in range(residual.size):
        first = min(first, np.int32(t) if gains[t] == most else nowhere)
    return first


@compiled("i8(f4[:,::1], f8[::1], f8[::1], f8[::1], f8, f8, i8)")
def optimise(gram: Any, residual: Any, up: Any, down: Any, width: Any, tolerance: Any, limit: Any) -> Any:
    """Optimise until no two residuals violate the optimality conditions by ``tolerance``: LIBSVM's rule.

    ``gram`` (n, n) has 1 on its diagonal. ``residual``, ``up`` and ``down`` (n,) are changed in place; up + down is
    ``width``. Returns the number of steps, or -1 if it would exceed ``limit``.
    """
    gains = np.empty(len(residual), np.float32)
    best, least = step(residual, up, down, gram[0], gram[0], 0.0)
    steps = 0
    while best - least >= tolerance:
        if steps == limit:
            return -1
        i = grower(residual, up, best)
        j = partner(residual, down, gram[i], best, gains)
        curvature = max(2.0 - 2.0 * np.float64(gram[i, j]), FLATTEST)
        size = min((residual[i] - residual[j]) / curvature, up[i], down[j])
        # A coefficient at one bound is exactly ``width`` from the other.
        up[i] -= size
        down[i] = width - up[i]
        down[j] -= size
        up[j] = width - down[j]
        best, least = step(residual, up, down, gram[i], gram[j], size)
        steps += 1
    return steps


@compiled("f8(f8[::1], f8[::1], f8[::1])")
def bias_of(residual: Any, up: Any, down: Any) -> Any:
    """Return the mean residual of the coefficients between their bounds, else the middle of the rest: LIBSVM's bias."""
    total, free = 0.0, 0
    best, least = -FAR, FAR
    for t in range(residual.size):
        if up[t] > 0.0 and down[t] > 0.0:
            total += residual[t]
            free += 1
        if up[t] > 0.0:
            best = max(best, residual[t])
        if down[t] > 0.0:
            least = min(least, residual[t])
    return total / free if free > 0 else 0.5 * (best + least)


@compiled("void(f8[:,::1], f8[::1], i8[::1], i8[::1], f4[::1], i8, f8[::1], f4[:,::1], i8)")
def put_block(
    points: Any, norms: Any, offsets: Any, places: Any, blocks: Any, n: Any, room: Any, gram: Any, corner: Any
) -> None:
    """Copy or compute speaker n's block on the diagonal of ``gram``, starting at row and column ``corner``."""
    first, last = offsets[n], offsets[n + 1]
    count = last - first
    if places[n] < 0:
        own, own_norms = points[first:last], norms[first:last]
        fill(own, own_norms, own, own_norms, room, gram[corner:], corner)
        return
    block = blocks[places[n] : places[n] + count * count].reshape((count, count))
    for i in range(count):
        for t in range(count):
            gram[corner + i, corner + t] = block[i, t]


@compiled(
    "void(f8[:,::1], f8[::1], i8[::1], i8[::1], f4[::1], i8[:,::1], f8, f8, i8, f8[:,::1], f8[:,::1], f8[::1], i8[::1])"
)
def solve_pairs(
    points: Any,
    norms: Any,
    offsets: Any,
    places: Any,
    blocks: Any,
    pairs: Any,
    cost: Any,
    tolerance: Any,
    limit: Any,
    own: Any,
    rival: Any,
    bias: Any,
    steps: Any,
) -> None:
    """Solve the soft-margin machines of ``pairs`` (P, 2).

    Coefficients go into ``own`` and ``rival`` (P, most points), biases into ``bias`` (P,).
    """
    most = 0
    for n in range(len(offsets) - 1):
        most = max(most, offsets[n + 1] - offsets[n])
    room, gram_room = np.empty(most * most), np.empty(4 * most * most, np.float32)
    for p in range(len(pairs)):
        i, j = pairs[p]
        a, b = offsets[i + 1] - offsets[i], offsets[j + 1] - offsets[j]
        gram = gram_room[: (a + b) * (a + b)].reshape((a + b, a + b))
        put_block(points, norms, offsets, places, blocks, i, room, gram, 0)
        put_block(points, norms, offsets, places, blocks, j, room, gram, a)
        x, y = slice(offsets[i], offsets[i + 1]), slice(offsets[j], offsets[j + 1])
        fill(points[x], norms[x], points[y], norms[y], room, gram, a)
        mirror(gram, a)
        residual, up, down = np.empty(a + b), np.empty(a + b), np.empty(a + b)
        for t in range(a + b):
            residual[t], up[t], down[t] = (1.0, cost, 0.0) if t < a else (-1.0, 0.0, cost)
        steps[p] = optimise(gram, residual, up, down, cost, tolerance, limit)
        bias[p] = bias_of(residual, up, down)
        for t in range(a):
            own[p, t] = down[t]
        for t in range(b):
            rival[p, t] = up[a + t]


@compiled("void(f4[:,::1], i8[::1], f8[::1], f8[::1])")
def subtract_rows(gram: Any, numbers: Any, coef: Any, residual: Any) -> None:
    """Subtract coef @ gram[numbers] from ``residual`` (n,)."""
    for k in range(len(numbers)):
        row, weight = gram[numbers[k]], coef[k]
        for t in range(residual.size):
            residual[t] -= weight * np.float64(row[t])


@compiled("void(f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[::1], f8[::1])")
def subtract_margins(x: Any, x_norms: Any, y: Any, y_norms: Any, coef: Any, residual: Any) -> None:
    """Subtract K(x, y) @ coef from ``residual`` (n,), a few rows of the kernel matrix at a time."""
    rows = max(1, min(len(x), ROOM // max(1, len(y))))
    room, values = np.empty(rows * len(y)), np.empty((rows, len(y)), np.float32)
    for first in range(0, len(x), rows):
        part = slice(first, min(first + rows, len(x)))
        fill(x[part], x_norms[part], y, y_norms, room, values, 0)
        for i in range(part.stop - part.start):
            total = 0.0
            for t in range(len(y)):
                total += coef[t] * np.float64(values[i, t])
            residual[first + i] -= total
