"""Supervectors in half precision: rounding, and conversion of rows to single precision, a block of columns at a time.

numpy's own conversions take several times as long, and allocating all rows in single precision takes longer than the
sums over them. A half-precision number has a sign bit, 5 bits of exponent and 10 of mantissa; a single-precision number
a sign bit, 8 and 23.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Half = NDArray[np.float16]

# Smallest number with a full mantissa in half precision.
SMALLEST_NORMAL = 2.0**-14
# Additional mantissa bits of single precision, and the ratio of numbers whose other bits are the same.
MORE_PLACES, RATIO = 13, np.float32(2.0**112)
# In single precision, the sign and the bits of exponent and mantissa that half precision has.
KEPT_BITS = np.uint32(0x8FFFE000).astype(np.int32)
# Columns converted at a time: with a few thousand rows they fit the last-level cache. Independent of the number of
# rows, so that sums over columns always have the same parts.
COLUMNS = 512


def at_half_precision(rows: Vectors) -> Half:
    """Return ``rows``, all below 65504, rounded to half precision, ties to even; ``rows`` are overwritten."""
    near_zero = np.abs(rows) < SMALLEST_NORMAL  # there, half precision has the spacing of single precision near 0.75
    subnormal = (rows[near_zero] + np.float32(0.75)) - np.float32(0.75)
    bits = rows.view(np.int32)
    last = bits >> MORE_PLACES
    last &= 1
    last += 0xFFF  # half a unit in the last place less one bit where that place is even
    bits += last
    bits &= np.int32(-1 << MORE_PLACES)
    rows[near_zero] = subnormal
    rows /= RATIO
    half = (bits >> MORE_PLACES).astype(np.int16)
    half |= (bits >> 16).astype(np.int16) & np.int16(-0x8000)  # the sign
    return half.view(np.float16)


@dataclass(frozen=True)
class Rows:
    """Rows (S, D) of finite numbers in ``parts`` (n, D), all in half precision, or in any other."""

    parts: Sequence[NDArray[Any]]

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Return S and D."""
        return sum(map(len, self.parts)), self.parts[0].shape[1]

    @property
    def starts(self) -> range:
        """Return the first column of each block that is converted together."""
        return range(0, self.shape[1], COLUMNS)

    def by_columns(self, starts: Iterable[int] | None = None) -> Iterator[tuple[slice, Vectors]]:
        """Yield column numbers and those columns (S, c) in single precision, in a buffer that is reused.

        By default all blocks of columns, otherwise those that begin at ``starts``.
        """
        size, dimension = self.shape
        is_half = all(part.dtype == np.float16 for part in self.parts)
        single = np.empty(size * COLUMNS, dtype=np.float32)
        half = np.empty(size * COLUMNS if is_half else 0, dtype=np.float16)
        for first in self.starts if starts is None else starts:
            columns = slice(first, min(first + COLUMNS, dimension))
            width = columns.stop - first
            out = single[: size * width].reshape(size, width)
            read = half[: size * width].reshape(size, width) if is_half else out
            np.concatenate([part[:, columns] for part in self.parts], out=read)
            if is_half:
                _convert(read, out)
            yield columns, out

    def picked(self, numbers: NDArray[np.intp]) -> Vectors:
        """Return the rows with these ascending ``numbers`` (k,)."""
        ends = np.cumsum([0, *map(len, self.parts)])
        spans = np.searchsorted(numbers, ends)
        rows = [part[numbers[a:b] - end] for part, end, a, b in zip(self.parts, ends, spans, spans[1:], strict=False)]
        return np.concatenate(rows, dtype=np.float32)


def _convert(half: NDArray[Any], single: Vectors) -> None:
    """Write ``half`` to ``single``: shift the bits, correct the exponent's offset, and handle subnormal numbers."""
    bits = single.view(np.int32)
    bits[:] = half.view(np.int16)  # the sign is extended into the upper bits
    bits <<= MORE_PLACES
    bits &= KEPT_BITS
    single *= RATIO
