"""Rounding to half precision against numpy's own conversion."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.enrollment.utterance_training import at_half_precision


def assert_as_numpy_converts(rows: np.ndarray) -> None:
    np.testing.assert_array_equal(at_half_precision(rows.copy()), rows.astype(np.float16).astype(np.float32))


@given(arrays(np.float32, (3, 5), elements=st.floats(-65504, 65504, width=32)))
def test_rounding_is_that_of_a_conversion_there_and_back(rows):
    assert_as_numpy_converts(rows)


def test_every_number_of_half_precision_stays_and_every_tie_goes_to_even():
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2
    for rows in (halves, between, np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(1e9))):
        assert_as_numpy_converts(rows[None])
        assert_as_numpy_converts(-rows[None])
