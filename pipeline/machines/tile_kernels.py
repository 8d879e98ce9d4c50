"""Compiled kernel values between frames and many speakers' centroids, and sums over them: one pass for it all.

What comes of a few frames and one speaker's centroids never leaves the nearest cache. A frame's values do not depend on
which frames stand beside it. Importing this module loads numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiling import compiled
from pipeline.machines.kernel_block import COLUMNS, ROWS, kernel_block


@compiled(
    "void(f4[:,::1], f4[:,:,:,::1], f8[:,:,::1], f8[:,:,::1], i8[::1], f4[:,:,::1])",
    "void(f4[:,::1], f4[:,:,:,::1], f4[:,:,::1], f4[:,:,::1], i8[::1], f4[:,:,::1])",
)
def kernel_sums(frames: Any, sides: Any, coefficients: Any, sums: Any, kept: Any, tiles: Any) -> None:
    """Kernel values of T frames with N speakers' k centroids, summed under w coefficients, or kept, or both.

    ``frames`` (T, D) and ``sides`` (N, k / COLUMNS, D, COLUMNS): their product is the exponent. ``coefficients``
    (N, w, k) make ``sums`` (N, T, w), in their type. The values themselves go into ``tiles`` (n, T, k), those of the
    speakers ``kept`` (n,), in order.
    """
    blocks, depth = sides.shape[1], sides.shape[2]
    count, size, found = len(frames), blocks * COLUMNS, 0
    if count < ROWS:
        more = np.zeros((ROWS, depth), np.float32)
        for t in range(count):
            for d in range(depth):
                more[t, d] = frames[t, d]
        frames = more
    rows = np.empty((ROWS, size), np.float32)
    for n in range(len(sides)):
        keep = found < len(kept) and kept[found] == n
        for first in range(0, count, ROWS):
            # The last rows are full, too: some of them for the second time.
            start = max(0, min(first, count - ROWS))
            for block in range(blocks):
                # Addresses are taken here, since numba may free an array after the last use of its name.
                x = frames.ctypes.data + 4 * start * depth
                y = sides.ctypes.data + 4 * (n * blocks + block) * depth * COLUMNS
                out = rows.ctypes.data + 4 * block * COLUMNS
                kernel_block(x, 4 * depth, y, 4 * COLUMNS, depth, out, 4 * size)
            for t in range(first, min(first + ROWS, count)):
                row = rows[t - start]
                if keep:
                    for m in range(size):
                        tiles[found, t, m] = row[m]
                for column in range(coefficients.shape[1]):
                    weights, total = coefficients[n, column], coefficients.dtype.type(0)
                    for m in range(size):
                        total += weights[m] * coefficients.dtype.type(row[m])
                    sums[n, t, column] = total
        if keep:
            found += 1
