"""Streaming resampling against soxr on whole signals, and against the clock."""

from __future__ import annotations

import numpy as np
import pytest
import soxr
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.audio.resampling import Resampler
from pipeline.errors import AudioError, StreamClosedError

RATES = [8000, 11_025, 16_000, 22_050, 44_100, 48_000]


def resample(x: np.ndarray, in_rate: int, out_rate: int, sizes: list[int]) -> np.ndarray:
    stream, out, at, turn = Resampler(in_rate, out_rate), [], 0, 0
    while at < len(x):
        size = sizes[turn % len(sizes)]
        out.append(stream.push(x[at : at + size]))
        at, turn = at + size, turn + 1
    return np.concatenate([*out, stream.flush()])


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(RATES),
    st.sampled_from([8000, 16_000]),
    st.integers(0, 12_000),
    st.lists(st.sampled_from([0, 1, 2, 79, 80, 81, 1000, 4096]), max_size=5).map(lambda sizes: [*sizes, 997]),
)
@example(44_100, 16_000, 6_000, [1])
def test_any_chunks_give_the_bits_of_soxr_on_the_whole_signal(in_rate, out_rate, length, sizes):
    x = 0.3 * np.random.default_rng(length).standard_normal(length)
    expected = x if in_rate == out_rate else soxr.resample(x, in_rate, out_rate, quality="HQ")
    assert np.array_equal(resample(x, in_rate, out_rate, [max(1, length)]), expected)
    assert np.array_equal(resample(x, in_rate, out_rate, sizes), expected)


@pytest.mark.parametrize("in_rate", [8000, 16_000])
def test_a_finished_resampler_refuses_more(in_rate):
    stream = Resampler(in_rate, 16_000)
    stream.flush()
    with pytest.raises(StreamClosedError, match="resampler"):
        stream.push(np.zeros(10))
    with pytest.raises(StreamClosedError):
        stream.flush()


def test_strided_and_narrow_input():
    x = np.random.default_rng(0).standard_normal((4000, 2)).astype(np.float32)[:, 0]
    expected = soxr.resample(x.astype(np.float64), 8000, 16_000)
    assert np.array_equal(resample(x, 8000, 16_000, [4000]), expected)


@pytest.mark.parametrize("rates", [(1999, 16_000), (16_000, 0), (768_001, 8000), (-5, 8000)])
def test_a_resampler_refuses_rates_out_of_range(rates):
    with pytest.raises(AudioError, match=r"resampler .*between 2000 and 768000 Hz"):
        Resampler(*rates)


@pytest.mark.parametrize("in_rate", [2000, 11_025, 44_100, 47_999, 768_000])
@pytest.mark.parametrize("out_rate", [7999, 16_000])
def test_no_audio_waits_longer_than_the_delay_says(in_rate, out_rate):
    stream = Resampler(in_rate, out_rate)
    delay, rng = stream.delay_ms / 1000, np.random.default_rng(0)
    went_in = came_out = 0
    longest = 0.0
    while went_in < 6 * in_rate:
        size = int(rng.integers(1, in_rate // 100))
        came_out += len(stream.push(np.zeros(size)))
        went_in += size
        longest = max(longest, went_in / in_rate - came_out / out_rate)
    assert longest <= delay <= 1.15 * longest
