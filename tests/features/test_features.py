"""The stages from samples to feature vectors against librosa, scipy and loops, and every cutting of a stream."""

from __future__ import annotations

import math
from dataclasses import replace

import librosa
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.signal import get_window, lfilter
from sounds import CHUNKS, cut, hard_sounds, sound

from pipeline.audio.streams import MAX_MAGNITUDE
from pipeline.config import AnalysisConfig, Config, FeatureSettings, VadConfig
from pipeline.errors import AudioError, StreamClosedError
from pipeline.features.framing import DeltaStream, FrameStream, PreEmphasis, window
from pipeline.features.frontend import FrontEnd
from pipeline.features.mfcc import MELS, mel_cepstrum
from pipeline.features.plp import mel_edges, mel_filters, transform_length
from pipeline.features.stream import FeatureBlock, FeatureStream, joined, static_features
from pipeline.features.vad import SILENCE_DB, VoiceActivityDetector, frame_level, speech_level

RATE = 16_000
LENGTH, STEP = 480, 160
KINDS = ("lpc", "lpcc", "mfcc", "plp")


def pushed(stream: FeatureStream | FrontEnd, samples: np.ndarray, sizes: list[int] | None = None) -> FeatureBlock:
    """All blocks of a stream fed in chunks of ``sizes``, as one."""
    return joined([*(stream.push(chunk) for chunk in cut(samples, sizes or [])), stream.flush()])


def features_of(samples: np.ndarray, sizes: list[int] | None = None, **changes: object) -> FeatureBlock:
    """Perceptual prediction of order 20, or what ``changes`` say; one analysis, unless they name another."""
    own = {"kind": "plp", "order": 20, **changes}
    alike = {name: value for name, value in own.items() if name in AnalysisConfig.model_fields}
    return pushed(FeatureStream(FeatureSettings(**{"supervector": alike, "gmm": alike, **own})), samples, sizes)


def assert_same_bits(result: FeatureBlock, expected: FeatureBlock) -> None:
    assert result.frames == expected.frames
    assert result.vectors.shape == expected.vectors.shape
    assert result.vectors.tobytes() == expected.vectors.tobytes()
    assert result.of("supervector").shape == expected.of("supervector").shape
    assert result.of("supervector").tobytes() == expected.of("supervector").tobytes()
    assert result.below_peak.tobytes() == expected.below_peak.tobytes()


# A gate that lets every frame through that is not digital silence.
OPEN = VadConfig(range_db=200.0, min_margin_db=0.0, max_margin_db=0.0, start_seconds=1e6, start_floor_db=-100.0)


# Framing.


@settings(deadline=None)
@given(
    count=st.integers(0, 400),
    length=st.integers(1, 40),
    step=st.integers(1, 60),
    sizes=st.lists(st.integers(0, 50), max_size=20),
)
def test_frames_are_the_slices_that_a_loop_would_cut(count, length, step, sizes):
    samples = np.random.default_rng(count).standard_normal(count)
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


@pytest.mark.parametrize(("rate", "length", "count"), [(16_000, 480, 12), (8_000, 240, 13), (44_100, 1323, 39)])
def test_mel_cepstrum_is_librosas_on_the_same_windowed_frames(rate, length, count):
    frames = FrameStream(length, length).push(sound(20 * length, rate=rate)) * np.hamming(length)
    size = 2 ** math.ceil(math.log2(max(length, rate / 32)))  # bins of at most 32 Hz
    padded = np.pad(frames, ((0, 0), (0, size - length)))  # one frame a hop: librosa's own window is left flat
    how = {"sr": rate, "n_fft": size, "hop_length": size, "window": "boxcar", "center": False, "n_mels": 40}
    power = librosa.feature.melspectrogram(y=padded.ravel(), dtype=np.float64, **how)
    level = librosa.power_to_db(power, amin=1e-10, top_db=None)
    expected = librosa.feature.mfcc(S=level, n_mfcc=count + 1)[1:].T
    np.testing.assert_allclose(mel_cepstrum(rate, length, count)(frames), expected, rtol=1e-9, atol=1e-8)


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


# The speech gate.


def flags_of(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the speech flag, and the level below the peak, of each frame of a 16 kHz recording."""
    return VoiceActivityDetector(VadConfig(), frames_per_second=100.0).push(
        speech_level(FeatureSettings())(FrameStream(LENGTH, STEP).push(samples))
    )


def noise_at(level_db: float, seconds: float, seed: int = 0) -> np.ndarray:
    """White noise of this root-mean-square level, dB below full scale."""
    return np.random.default_rng(seed).standard_normal(int(seconds * RATE)) * 10 ** (level_db / 20)


def test_frame_level_is_decibels_of_the_variance():
    square = np.tile([0.1, -0.1], 240)
    sine = np.sin(2 * np.pi * np.arange(480) / 48)
    result = frame_level(np.stack((square, square + 0.7, sine, np.ones(480), np.zeros(480))))
    np.testing.assert_allclose(result[:3], [-20.0, -20.0, 10 * np.log10(0.5)], atol=1e-9)
    assert np.isfinite(result[3:]).all()
    assert (result[3:] < SILENCE_DB).all()


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
@given(phase=st.floats(0, 7), start=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_level_is_that_of_the_band_of_speech(rate, phase, start):
    level = speech_level(FeatureSettings(rate=rate))
    seconds = (start + np.arange(rate * 30 // 1000)) / rate

    def of(hertz: float) -> float:
        return float(level(np.sin(2 * np.pi * hertz * seconds + phase)[None])[0])

    full = 10 * np.log10(0.5)
    run = max(1, rate // 8_000)
    for hertz in (0.0, 20.0, 50.0, 60.0, 100.0, 120.0):
        assert of(hertz) < full - 40
    for hertz in (300.0, 500.0, 1_000.0, 2_000.0, 3_000.0):
        # What the mean of ``run`` samples leaves of a sine.
        response = np.sin(np.pi * hertz * run / rate) / (run * np.sin(np.pi * hertz / rate))
        assert of(hertz) == pytest.approx(full + 20 * np.log10(response), abs=0.7)
    if rate > 8_000:
        assert of(0.97 * rate / run) < full - 25


def test_level_of_white_noise_is_that_of_its_share_below_the_upper_edge():
    frames = FrameStream(3 * LENGTH, 3 * LENGTH).push(noise_at(-20.0, 270.0))
    level = speech_level(FeatureSettings(rate=48_000))(frames)
    assert 10 * np.log10(np.mean(10 ** (level / 10))) == pytest.approx(-20.0 + 10 * np.log10(4 / 24), abs=0.3)


def test_without_a_band_the_level_is_that_of_the_frame():
    frames = FrameStream(LENGTH, STEP).push(sound(RATE, 1))
    level = speech_level(FeatureSettings(vad=VadConfig(low_hz=0.0, high_hz=8_000.0)))(frames)
    np.testing.assert_allclose(level, frame_level(frames), rtol=1e-9)


@pytest.mark.parametrize(
    "changes", [{}, {"rate": 48_000}, {"rate": 11_025}, {"rate": 4_000, "frame_ms": 6.0, "step_ms": 5.0}]
)
def test_a_frames_level_is_the_same_bits_whatever_frames_stand_beside_it(changes):
    configuration = FeatureSettings(**{"order": 4, **changes})
    level = speech_level(configuration)
    frames = np.random.default_rng(3).standard_normal((70, configuration.frame_length))
    for count in (1, 2, 3, 8, 33):
        for first in (0, 5, 70 - count):
            np.testing.assert_array_equal(level(frames[first : first + count]), level(frames)[first : first + count])


def words_and_pauses(seed: int) -> np.ndarray:
    """3 s of noise below 3 kHz in bursts of 0.2 s at -30 dB, over a room at -65 dB."""
    count = 3 * RATE
    spectrum = np.fft.rfft(noise_at(-30.0, 3.0, seed))
    spectrum[9_000:] = 0.0
    bursts = np.arange(count) // (RATE // 5) % 2
    return np.fft.irfft(spectrum, count) * bursts + noise_at(-65.0, 3.0, seed + 1000)


@given(seed=st.integers(0, 99), hertz=st.lists(st.floats(20.0, 60.0), min_size=1, max_size=3), phase=st.floats(0, 6))
@settings(max_examples=25, deadline=None)
def test_rumble_twenty_decibels_above_the_speech_does_not_change_what_is_speech(seed, hertz, phase):
    samples = words_and_pauses(seed)
    seconds = np.arange(len(samples)) / RATE
    rumble = np.sum([np.sin(2 * np.pi * one * seconds + phase) for one in hertz], axis=0)
    rumble *= 10.0 * np.std(samples) / np.std(rumble)
    expected, changed = flags_of(samples)[0], flags_of(samples + rumble)[0]
    assert 0.3 < expected.mean() < 0.8
    assert np.mean(expected != changed) < 0.01


@given(seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_hiss_above_the_band_does_not_hide_speech(seed):
    samples = words_and_pauses(seed)
    spectrum = np.fft.rfft(noise_at(-30.0, 3.0, seed + 500))
    spectrum[: 3 * 6_000] = 0.0  # from 6 kHz on, a few dB below the words
    hiss = np.fft.irfft(spectrum, len(samples))
    expected = flags_of(samples)[0]
    mask = flags_of(samples + hiss)[0]
    assert mask[expected].mean() > 0.9


LEVELS = st.lists(st.floats(-150, 0) | st.sampled_from((-150.0, -60.0, -45.0, -30.0)), max_size=60)


@settings(deadline=None)
@given(LEVELS, st.floats(0, 50), st.floats(0, 50), st.floats(0, 1), st.integers(0, 70))
@example([-20.0] * 40, 3.0, 1.0, 0.4, 20)
@example([-70.0] * 5 + [-45.0] * 55, 50.0, 1.0, 0.4, 0)
@example([-10.0] + [-41.0] * 59, 0.0, 5.0, 0.4, 70)
def test_gate_passes_what_its_trackers_in_closed_form_pass(levels, rise, fall, share, starting):
    configuration = VadConfig(
        range_db=30.0,
        min_margin_db=6.0,
        max_margin_db=18.0,
        margin_share=share,
        rise_db_per_second=rise,
        fall_db_per_second=fall,
        start_seconds=starting / 100.0,
        start_floor_db=-55.0,
    )
    result, below = VoiceActivityDetector(configuration, frames_per_second=100.0).push(np.array(levels))
    audible = [t for t, level in enumerate(levels) if level >= SILENCE_DB]
    silent = [t for t in range(len(levels)) if t not in audible]
    assert not result[silent].any()
    for n, t in enumerate(audible):
        before = [(levels[audible[k]], (n - k) / 100.0) for k in range(n + 1)]
        peak = max(level - fall * age for level, age in before)
        assert below[t] == pytest.approx(peak - levels[t], abs=1e-9)
        floor = min(level + rise * age for level, age in before)
        if n < starting:
            floor = min(floor, -55.0)
        margin = min(max(share * (peak - floor), 6.0), 18.0)
        spare = min(levels[t] - (peak - 30.0), levels[t] - (floor + margin))
        if abs(spare) > 1e-9:  # on the edge itself rounding decides
            assert result[t] == (spare > 0)


@settings(deadline=None)
@given(LEVELS, st.integers(0, 60), st.lists(st.integers(0, 9), max_size=20))
def test_gate_is_causal_and_carries_its_state_from_chunk_to_chunk(levels, length, sizes):
    def gate() -> VoiceActivityDetector:
        return VoiceActivityDetector(VadConfig(), frames_per_second=100.0)

    whole = gate().push(np.array(levels))[0]
    np.testing.assert_array_equal(gate().push(np.array(levels[:length]))[0], whole[:length])
    chunked = gate()
    result = np.concatenate([chunked.push(chunk)[0] for chunk in cut(np.array(levels), sizes)])
    np.testing.assert_array_equal(result, whole)


@pytest.mark.parametrize("level", [-np.inf, -90.0, -70.0, -54.0, -50.0, -30.0, -10.0])
def test_steady_noise_passes_no_longer_than_the_start_and_that_of_a_quiet_room_not_at_all(level):
    mask = flags_of(noise_at(level, 10.0))[0]
    assert not mask[0 if level < -52.0 else round(100 * VadConfig().start_seconds) :].any()


def test_start_is_too_short_to_be_scored():
    assert VadConfig().start_seconds < Config().scoring.min_seconds


@pytest.mark.parametrize("noise", [-75.0, -60.0, -50.0])
@pytest.mark.parametrize("first", ["noise", "burst"])
def test_bursts_thirty_decibels_above_the_noise_are_found_and_pauses_rejected(noise, first):
    samples = noise_at(noise, 6.0)
    on = (np.arange(len(samples)) // (RATE * 2 // 5) % 2 == 0) == (first == "burst")
    loud = noise_at(noise + 30.0, 6.0, seed=1)
    mask = flags_of(np.where(on, loud, samples))[0]
    share = FrameStream(LENGTH, STEP).push(on.astype(float)).mean(axis=1)
    assert mask[share == 1.0].all()
    after_start = np.arange(len(mask)) >= 100 * VadConfig().start_seconds
    assert not mask[(share == 0.0) & after_start].any()


@pytest.mark.parametrize("level", [-40.0, -25.0, -10.0])
def test_recording_cut_into_in_mid_word_is_heard_from_its_first_frame(level):
    assert flags_of(noise_at(level, 0.4))[0].all()


# The feature stream.


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(length=st.integers(0, 12_000), seed=st.integers(0, 99), sizes=CHUNKS, deltas=st.booleans())
@example(length=12_000, seed=1, sizes=[1, 0, 79, 80, 81, 4096], deltas=True)
@example(length=1_000, seed=1, sizes=[1] * 1_000, deltas=True)
@example(length=479, seed=1, sizes=[], deltas=False)
@example(length=480, seed=1, sizes=[480], deltas=True)
def test_any_chunking_gives_the_same_features_bit_for_bit(kind, length, seed, sizes, deltas):
    samples = sound(length, seed)
    whole = features_of(samples, kind=kind, deltas=deltas)
    assert whole.frames == max(0, (length - LENGTH) // STEP + 1)
    assert whole.vectors.shape == (len(whole.below_peak), 40 if deltas else 20)
    assert_same_bits(features_of(samples, sizes, kind=kind, deltas=deltas), whole)


@settings(max_examples=12, deadline=None)
@given(length=st.integers(0, 12_000), seed=st.integers(0, 99), sizes=CHUNKS, deltas=st.booleans())
def test_two_analyses_of_a_stream_are_those_of_two_streams(length, seed, sizes, deltas):
    samples = sound(length, seed)
    second = {"kind": "lpcc", "order": 12, "delta_scale": 1.0}
    analyses = {"supervector": {"kind": "plp"}, "gmm": second}
    both = features_of(samples, sizes, kind="plp", deltas=deltas, **analyses)
    plp, lpcc = (features_of(samples, deltas=deltas, **one) for one in ({"kind": "plp"}, second))
    for analysis, alone in (("frames", plp), ("supervector", plp), ("gmm", lpcc)):
        assert_same_bits(replace(alone, others={}), replace(both, vectors=both.of(analysis), others={}))
    assert set(both.others) == {"gmm"}
    assert both.part(slice(3, 9)).of("gmm").tobytes() == both.of("gmm")[3:9].tobytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"rate": 8000, "frame_ms": 32.0, "step_ms": 8.0, "order": 13, "kind": "lpcc"},
        {"rate": 11025, "pre_emphasis": 0.0, "window": "hann", "kind": "plp"},
        {"frame_ms": 10.0, "step_ms": 10.0, "delta_width": 9, "window": "rectangular", "kind": "mfcc"},
        {"rate": 4000, "frame_ms": 5.0, "step_ms": 1.0, "order": 4, "kind": "lpc"},
        {"method": "burg", "kind": "lpcc"},
    ],
    ids=["cepstrum 8 kHz", "odd rate", "no overlap", "tiny frames", "Burg"],
)
def test_other_settings_give_the_same_features_bit_for_bit(changes):
    samples = sound(6_000, 3, rate=changes.get("rate", RATE))
    whole = features_of(samples, **changes)
    assert len(whole.vectors) > 0
    assert_same_bits(features_of(samples, [1] * 700 + [79, 80, 81, 160] * 4 + [4096], **changes), whole)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 99), width=st.integers(1, 9), size=st.integers(200, 9000), deltas=st.booleans())
def test_vectors_are_those_of_a_stream_that_analyses_every_frame(seed, width, size, deltas):
    samples = sound(RATE, seed) + noise_at(-80.0, 1.0, seed)  # pauses that the open gate lets through
    samples[RATE // 2 :] += 0.05 * np.sin(2 * np.pi * 60 * np.arange(RATE // 2) / RATE)  # gone after pre-emphasis
    speech, below_peak = flags_of(samples)
    assert speech.sum() > 10
    every = features_of(samples, deltas=deltas, delta_width=width, vad=OPEN)
    gated = features_of(samples, [size] * (RATE // size), deltas=deltas, delta_width=width)
    assert gated.vectors.tobytes() == every.vectors[speech].tobytes()
    assert gated.below_peak.tobytes() == below_peak[speech].tobytes()


@pytest.mark.parametrize("step_ms", [5.0, 10.0, 20.0])
def test_times_of_the_gate_are_seconds_whatever_the_step(step_ms):
    vectors = features_of(noise_at(-20.0, 2.0), step_ms=step_ms).vectors
    assert len(vectors) == VadConfig().start_seconds * 1000 / step_ms


@pytest.mark.parametrize("pre_emphasis", [0.0, 0.97])
def test_vectors_are_the_named_stages_one_after_the_other(pre_emphasis):
    """Written out with scipy and librosa alone: filter, slice, window, Burg's method, cepstrum by FFT, deltas."""
    changes = {"kind": "lpcc", "method": "burg", "order": 12, "pre_emphasis": pre_emphasis, "delta_scale": 1.5}
    samples = noise_at(-20.0, 0.3)
    emphasised, _ = lfilter([1.0, -pre_emphasis], [1.0], samples, zi=[-pre_emphasis * samples[0]])
    starts = range(0, len(samples) - LENGTH + 1, STEP)
    frames = [emphasised[s : s + LENGTH] - emphasised[s : s + LENGTH].mean() for s in starts]
    models = np.stack([librosa.lpc(frame * np.hamming(LENGTH), order=12) for frame in frames])
    log_spectrum = -np.log(np.abs(np.fft.rfft(models, 4096, axis=1)))
    cepstrum = 2.0 * np.fft.irfft(log_spectrum, axis=1)[:, 1:13]
    deltas = 1.5 * librosa.feature.delta(cepstrum, width=5, axis=0, mode="nearest")
    vectors = features_of(samples, vad=OPEN, delta_width=2, **changes).vectors
    np.testing.assert_allclose(vectors, np.concatenate((cepstrum, deltas), axis=1), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS[:2])
@given(gain=st.floats(0.25, 4.0), offset=st.floats(-0.5, 0.5))
@settings(max_examples=8, deadline=None)
def test_gain_and_offset_change_nothing_once_the_start_is_over(kind, gain, offset):
    samples = np.concatenate((noise_at(-74.0, 0.5), sound(8_000, 4)))
    plain, changed = features_of(samples, kind=kind), features_of(gain * samples + offset, kind=kind)
    assert len(plain.vectors) > 10
    np.testing.assert_allclose(changed.vectors, plain.vectors, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(changed.below_peak, plain.below_peak, rtol=0, atol=1e-6)


@pytest.mark.parametrize("changes", [*({"kind": kind} for kind in KINDS), {"kind": "lpcc", "method": "burg"}])
def test_hard_sounds_give_finite_vectors_without_a_warning(changes):
    static = static_features(FeatureSettings(**changes))
    for samples in (np.empty(0), np.ones(1), *hard_sounds(4_000).values()):
        for more in ({}, {"vad": OPEN, "deltas": False, "window": "rectangular"}):
            result = features_of(samples, **changes, **more)
            assert result.frames == max(0, (len(samples) - LENGTH) // STEP + 1)
            assert np.isfinite(result.vectors).all()
        assert np.isfinite(static(FrameStream(LENGTH, STEP).push(samples) * np.hamming(LENGTH))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, 2, 39])
def test_smallest_and_largest_orders_give_as_many_features(kind, order):
    vectors = features_of(sound(4_000, 2), kind=kind, order=order, bands=40).vectors
    assert vectors.shape == (len(vectors), 2 * order)
    assert len(vectors) > 0
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("deltas", [True, False])
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 22_050, 11_025, 11_060, 7_999])
def test_delay_is_honest_to_the_sample(rate, deltas):
    configuration = FeatureSettings(rate=rate, deltas=deltas)
    samples = sound(rate, 1, rate=rate)
    delay = math.ceil(FeatureStream(configuration).delay_ms * rate / 1000 - 1e-6)
    for position in (0, 1, configuration.frame_step - 1, configuration.frame_step, 3 * configuration.frame_step + 7):
        ready = FeatureStream(configuration).push(samples[: position + delay]).frames
        assert ready > position // configuration.frame_step  # every frame that starts at or before the sound
    assert FeatureStream(configuration).push(samples[: delay - 1]).frames == 0  # no slack


def test_flushed_streams_take_no_more_samples():
    for stream in (FeatureStream(FeatureSettings()), FrontEnd(FeatureSettings(), RATE)):
        stream.push(sound(1_000))
        stream.flush()
        for more in (np.zeros(160), np.empty(0)):
            with pytest.raises(StreamClosedError):
                stream.push(more)


def test_second_flush_gives_nothing_twice():
    stream = FeatureStream(FeatureSettings())
    stream.push(sound(8_000))
    assert stream.flush().frames > 0
    again = stream.flush()
    assert (again.frames, again.vectors.shape, again.of("supervector").shape) == (0, (0, 24), (0, 40))


# The front end.


@pytest.mark.parametrize("rate", [44_100, 16_000, 8_000])
@settings(max_examples=8, deadline=None)
@given(length=st.integers(0, 20_000), sizes=CHUNKS)
@example(length=20_000, sizes=[1, 0, 79, 80, 81, 4096])
@example(length=2_000, sizes=[1] * 2_000)
def test_resampled_features_are_the_same_bit_for_bit_however_the_audio_comes(rate, length, sizes):
    samples = sound(length, 5, rate=rate)
    front_end = FrontEnd(FeatureSettings(), rate)
    result = pushed(front_end, samples, sizes)
    assert front_end.samples == length
    assert_same_bits(result, pushed(FrontEnd(FeatureSettings(), rate), samples))


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000, 8_000])
def test_front_end_delay_is_honest(rate):
    front_end = FrontEnd(FeatureSettings(), rate)
    before = int(0.7 * rate)
    delay = math.ceil(front_end.delay_ms * rate / 1000)
    frames = front_end.push(sound(before + delay, rate=rate)).frames
    assert frames >= int(before / rate * RATE) // STEP + 1


SIGNALLING_NAN = np.array([0x7FF4000000000001], "<u8").view("<f8")[0]  # makes a comparison warn


@pytest.mark.parametrize("bad", [SIGNALLING_NAN, np.nan, np.inf, -np.inf, -2 * MAX_MAGNITUDE])
def test_samples_that_are_not_audio_are_refused_with_their_time(bad):
    front_end = FrontEnd(FeatureSettings(), 8_000, where="pipe")
    front_end.push(np.zeros(4_000))
    samples = np.zeros(100)
    samples[80] = bad
    with pytest.raises(AudioError, match=r"pipe: .*0\.51"):
        front_end.push(samples)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frames_features_are_the_same_bits_whatever_frames_stand_beside_it(kind):
    solve = static_features(FeatureSettings(kind=kind))
    frames = np.random.default_rng(3).standard_normal((70, LENGTH)) * window("hamming", LENGTH)
    together = solve(frames)
    for count in (1, 2, 3, 8, 33):
        for first in (0, 5, 70 - count):
            np.testing.assert_array_equal(solve(frames[first : first + count]), together[first : first + count])
