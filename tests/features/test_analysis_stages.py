"""Frames, pre-emphasis, windows, mel cepstra and deltas against librosa, scipy and loops, however a stream is cut."""

from __future__ import annotations

import math

import librosa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.signal import get_window, lfilter
from sounds import CHUNKS, cut, sound

from pipeline.features.framing import DeltaStream, FrameStream, PreEmphasis, window
from pipeline.features.mfcc import MELS, mel_cepstrum
from pipeline.features.plp import mel_edges, mel_filters, transform_length

# Framing.


@settings(deadline=None)
@given(
    count=st.integers(0, 400),
    length=st.integers(1, 40),
    step=st.integers(1, 60),
    sizes=st.lists(st.integers(0, 50), max_size=20),
)
def test_frames_are_the_slices_that_a_loop_would_cut(count, length, step, sizes):
    samples = np.random.default_rng(count).standard_normal((count, 2))[:, 0]  # one channel of two
    expected = [samples[start : start + length] for start in range(0, count - length + 1, step)]
    stream = FrameStream(length, step)
    result = [frame for chunk in cut(samples, sizes) for frame in stream.push(chunk).copy()]
    np.testing.assert_array_equal(np.reshape(result, (-1, length)), np.reshape(expected, (-1, length)))


def test_reusing_the_pushed_buffer_does_not_change_later_frames():
    samples = np.random.default_rng(0).standard_normal(100)
    stream, buffer, result = FrameStream(30, 10), np.empty(7), []
    for start in range(0, 98, 7):
        buffer[:] = samples[start : start + 7]
        result += [frame.copy() for frame in stream.push(buffer)]
        buffer[:] = np.nan
    np.testing.assert_array_equal(result, [samples[10 * t : 10 * t + 30] for t in range(len(result))])
    assert not FrameStream(30, 10).push(samples).flags.writeable, "they are the caller's samples"


# Pre-emphasis.


@settings(deadline=None)
@given(arrays(np.float64, st.integers(1, 300), elements=st.floats(-1, 1)), st.floats(0, 0.99), CHUNKS)
def test_pre_emphasis_is_the_scipy_filter_started_in_its_steady_state(samples, coefficient, sizes):
    stream = PreEmphasis(coefficient)
    result = np.concatenate([stream.push(chunk) for chunk in cut(samples, sizes)])
    expected, _ = lfilter([1.0, -coefficient], [1.0], samples, zi=[-coefficient * samples[0]])
    np.testing.assert_allclose(result, expected, rtol=1e-14, atol=1e-15)


# Deltas.


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 9), max_size=20))
def test_deltas_are_librosas_with_the_edges_repeated(width, frames, seed, sizes):
    static = np.random.default_rng(seed).standard_normal((frames, 3))
    stream = DeltaStream(width, scale=2.5)
    result = np.concatenate([*(stream.push(chunk) for chunk in cut(static, sizes)), stream.flush()])
    expected = librosa.feature.delta(static, width=2 * width + 1, order=1, axis=0, mode="nearest")
    np.testing.assert_array_equal(result[:, :3], static)
    np.testing.assert_allclose(result[:, 3:], 2.5 * expected, rtol=1e-9, atol=1e-12)


# Mel cepstrum.


@pytest.mark.parametrize("root", [None, 1 / 15, 0.33])
@pytest.mark.parametrize(("rate", "length", "count"), [(16_000, 480, 12), (8_000, 240, 13), (44_100, 1323, 39)])
def test_mel_cepstrum_is_librosas_on_the_same_windowed_frames(rate, length, count, root):
    frames = FrameStream(length, length).push(sound(20 * length, rate=rate)) * np.hamming(length)
    frames[0] *= 1e-2  # below the floor in some bands
    size = 2 ** math.ceil(math.log2(max(length, rate / 32)))  # bins of at most 32 Hz
    padded = np.pad(frames, ((0, 0), (0, size - length)))  # one frame a hop: librosa's own window is left flat
    how = {"sr": rate, "n_fft": size, "hop_length": size, "window": "boxcar", "center": False, "n_mels": 40}
    power = librosa.feature.melspectrogram(y=padded.ravel(), dtype=np.float64, **how)
    level = librosa.power_to_db(power, amin=1e-10, top_db=None) if root is None else np.maximum(power, 1e-10) ** root
    expected = librosa.feature.mfcc(S=level, n_mfcc=count + 1)[1:].T
    np.testing.assert_allclose(mel_cepstrum(rate, length, count, root=root)(frames), expected, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(
    ("rate", "frame_ms"), [(8_000, 30.0), (16_000, 10.0), (16_000, 5.0), (8_000, 10.0), (8_000, 5.0), (4_000, 5.0)]
)
def test_mel_cepstrum_of_short_frames_leaves_no_filter_empty(rate, frame_ms):
    size = transform_length(rate, round(rate * frame_ms / 1000))
    filters = mel_filters(np.fft.rfftfreq(size, 1 / rate), mel_edges(MELS, 0.0, rate / 2))
    assert (filters.max(axis=1) > 0.0).all()


# The window


@pytest.mark.parametrize("name", ["hamming", "hann", "rectangular"])
def test_window_is_scipys_symmetric_one(name):
    expected = get_window({"rectangular": "boxcar"}.get(name, name), 480, fftbins=False)
    np.testing.assert_allclose(window(name, 480), expected, atol=1e-14)
