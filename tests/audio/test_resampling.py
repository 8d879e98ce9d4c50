"""Streaming resampling against soxr on whole signals, tones and the clock."""

from __future__ import annotations

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio.resampling import Resampler
from pipeline.errors import AudioError, StreamClosedError

RATES = [8000, 11_025, 16_000, 22_050, 44_100, 48_000]


def noise(length: int) -> np.ndarray:
    return 0.3 * np.random.default_rng(length).standard_normal(length)


def resample(x: np.ndarray, in_rate: int, out_rate: int, sizes: list[int]) -> np.ndarray:
    stream, out, at, turn = Resampler(in_rate, out_rate), [], 0, 0
    while at < len(x):
        size = sizes[turn % len(sizes)]
        out.append(stream.push(x[at : at + size]))
        at, turn = at + size, turn + 1
    return np.concatenate([*out, stream.flush()])


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(RATES),
    st.sampled_from([8000, 16_000]),
    st.integers(0, 12_000),
    st.lists(st.sampled_from([0, 1, 2, 79, 80, 81, 1000, 4096]), max_size=5).map(lambda sizes: [*sizes, 997]),
)
def test_the_output_is_the_same_for_any_chunks(in_rate, out_rate, length, sizes):
    x = noise(length)
    whole = resample(x, in_rate, out_rate, [max(1, len(x))])
    assert np.array_equal(resample(x, in_rate, out_rate, sizes), whole)
    expected = x if in_rate == out_rate else soxr.resample(x, in_rate, out_rate, quality="HQ")
    assert np.array_equal(whole, expected)


def test_one_sample_at_a_time():
    x = noise(22_050)
    assert np.array_equal(resample(x, 44_100, 16_000, [1]), resample(x, 44_100, 16_000, [len(x)]))


def test_a_sine_keeps_its_frequency_and_amplitude():
    t = np.arange(44_100 * 2) / 44_100
    y = resample(0.5 * np.sin(2 * np.pi * 1000 * t), 44_100, 16_000, [441])
    assert len(y) == 32_000
    middle = slice(4000, 28_000)
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(32_000) / 16_000)
    assert np.abs(y[middle] - expected[middle]).max() < 1e-4
    spectrum = np.abs(np.fft.rfft(y[middle] * np.hanning(24_000)))
    assert spectrum.argmax() * 16_000 / 24_000 == pytest.approx(1000.0, abs=0.01)


def test_what_the_new_rate_cannot_hold_is_gone():
    t = np.arange(48_000) / 48_000
    y = resample(np.sin(2 * np.pi * 11_000 * t), 48_000, 16_000, [480])
    assert np.abs(y[2000:14_000]).max() < 1e-4


def test_equal_rates_pass_through():
    stream = Resampler(16_000, 16_000)
    x = noise(1_600)
    assert stream.push(x) is x
    assert stream.flush().shape == (0,)
    assert stream.delay_ms == 0.0


@pytest.mark.parametrize("in_rate", [8000, 16_000])
def test_a_finished_resampler_refuses_more(in_rate):
    stream = Resampler(in_rate, 16_000)
    stream.flush()
    with pytest.raises(StreamClosedError, match="resampler"):
        stream.push(np.zeros(10))
    with pytest.raises(StreamClosedError):
        stream.flush()


def test_strided_and_narrow_input():
    x = np.random.default_rng(0).standard_normal((4000, 2)).astype(np.float32)
    stream = Resampler(8000, 16_000)
    y = np.concatenate([stream.push(x[:, 0]), stream.flush()])
    assert np.array_equal(y, soxr.resample(x[:, 0].astype(np.float64), 8000, 16_000))


@pytest.mark.parametrize("rates", [(1999, 16_000), (16_000, 0), (768_001, 8000), (-5, 8000)])
def test_a_resampler_refuses_rates_out_of_range(rates):
    with pytest.raises(AudioError, match=r"resampler .*between 2000 and 768000 Hz"):
        Resampler(*rates)


@pytest.mark.parametrize("in_rate", [2000, 8000, 11_025, 44_100, 47_999, 48_000, 768_000])
@pytest.mark.parametrize("out_rate", [7999, 16_000])
def test_no_audio_waits_longer_than_the_delay_says(in_rate, out_rate):
    stream = Resampler(in_rate, out_rate)
    delay = stream.delay_ms / 1000
    rng = np.random.default_rng(0)
    went_in = came_out = 0
    longest = 0.0
    while went_in < 6 * in_rate:
        size = int(rng.integers(1, in_rate // 100))
        came_out += len(stream.push(np.zeros(size)))
        went_in += size
        longest = max(longest, went_in / in_rate - came_out / out_rate)
    assert longest <= delay
    assert delay <= 1.15 * longest
