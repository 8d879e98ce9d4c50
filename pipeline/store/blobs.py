"""Arrays as blobs of a store: their kinds of numbers and shapes, and the parts of long ones.

A long one-dimensional array of the population is stored in parts, one row each: if it grows, only the rows at its end
are written anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np

from pipeline.errors import StoreError
from pipeline.store.layout import AnyArray

DTYPES = ("<f2", "<f4", "<f8", "<u4", "<u8", "<i8", "|b1")
# A part is as long as the smallest power of two, from LEAST_PART on, that divides an array into at most MOST_PARTS.
LEAST_PART, MOST_PARTS = 2**13, 16
_MARK = "+"  # between the name of an array and the number of a part after the first
Row = tuple[str, str, bytes]
"""Data type, shape and digest of a part."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of an array in the list of arrays: its data type, and the shape and the digest of each part."""

    dtype: str
    parts: tuple[tuple[str, bytes], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the whole array; raises ValueError."""
        first, *others = (shape_of(shape) for shape, _ in self.parts)
        if not others:
            return first
        return (sum(length for (length,) in (first, *others)),)


def entries_of(rows: Mapping[str, Row]) -> dict[str, Entry]:
    """Return, by name, the arrays whose parts are listed in ``rows``; raises ValueError for parts of no array."""
    entries = {}
    for name in rows:
        if _MARK not in name:
            own = [rows[part] for part in takewhile(rows.__contains__, (part_name(name, n) for n in count()))]
            entries[name] = Entry(own[0][0], tuple((shape, digest) for _, shape, digest in own))
            if any(dtype != own[0][0] for dtype, _, _ in own):
                raise ValueError(f"parts of {name!r} are of different types")
    if sum(len(entry.parts) for entry in entries.values()) != len(rows):
        raise ValueError("some parts belong to no array")
    return entries


def part_name(name: str, number: int) -> str:
    """Return the name of the row with part ``number``, from 0, of an array."""
    return f"{name}{_MARK}{number}" if number else name


def shape_of(text: str) -> tuple[int, ...]:
    """Return the shape that is written as a JSON list; raises ValueError."""
    shape = json.loads(text)
    if not isinstance(shape, list) or not all(type(length) is int and 0 <= length < 2**40 for length in shape):
        raise ValueError("a shape must be a list of lengths")
    return tuple(shape)


def encoded(array: AnyArray, *, in_parts: bool) -> tuple[str, Iterator[tuple[str, bytes]]]:
    """Return the data type of ``array``, and the shape and bytes of each part, or of the whole if not ``in_parts``.

    Raises StoreError.
    """
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    if little.dtype.str not in DTYPES:
        raise StoreError(f"an array of {array.dtype} cannot be stored")
    length, parts = LEAST_PART, [little]
    while length * MOST_PARTS < array.size:
        length *= 2
    if in_parts and array.ndim == 1:
        parts = [little[start : start + length] for start in range(0, max(1, array.size), length)]
    return little.dtype.str, ((json.dumps(list(part.shape)), part.tobytes()) for part in parts)


def decoded(dtype: str, shape: tuple[int, ...], data: bytes) -> AnyArray:
    """Return the array that was ``encoded``; raises ValueError."""
    if dtype not in DTYPES:
        raise ValueError(f"unknown data type {dtype[:20]!r}")
    return np.frombuffer(data, dtype).reshape(shape)
