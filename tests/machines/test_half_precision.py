"""Rounding to half precision, and back, against numpy's own conversions."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.machines.half_precision import COLUMNS, Rows, at_half_precision


def assert_as_numpy_converts(rows: np.ndarray) -> None:
    np.testing.assert_array_equal(at_half_precision(rows.copy()), rows.astype(np.float16))


@given(arrays(np.float32, (3, 5), elements=st.floats(-65504, 65504, width=32)))
def test_rounding_is_that_of_numpys_conversion(rows):
    assert_as_numpy_converts(rows)


def test_every_number_of_half_precision_stays_and_every_tie_goes_to_even():
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2
    for rows in (halves, between, np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(1e9))):
        assert_as_numpy_converts(rows[None])
        assert_as_numpy_converts(-rows[None])


def columns_of(parts: list[np.ndarray]) -> np.ndarray:
    """All columns of the rows, as they were read."""
    rows = Rows(parts)
    joined = np.empty(rows.shape, dtype=np.float32)
    for columns, block in rows.by_columns():
        joined[:, columns] = block
    return joined


def test_every_number_of_half_precision_is_itself_in_single_precision():
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
    for part in (halves[None], -halves[None]):
        np.testing.assert_array_equal(columns_of([part]).view(np.uint32), part.astype(np.float32).view(np.uint32))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(any), st.booleans(), st.integers(0, 99), st.data())
def test_rows_in_parts_are_those_that_numpy_joins(sizes, half, seed, data):
    random, width = np.random.default_rng(seed), 2 * COLUMNS + 3
    dtype = np.float16 if half else np.float32
    parts = [random.standard_normal((size, width), dtype=np.float32).astype(dtype) for size in sizes]
    expected = np.concatenate(parts, dtype=np.float32)
    np.testing.assert_array_equal(columns_of(parts), expected)
    numbers = np.array(sorted(data.draw(st.sets(st.integers(0, sum(sizes) - 1)))), dtype=int)
    np.testing.assert_array_equal(Rows(parts).picked(numbers), expected[numbers])
