"""Feature vectors of a stream and of the front end: the same bits however it is cut, and honest delays."""

from __future__ import annotations

import math
from dataclasses import replace

import librosa
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter
from sounds import CHUNKS, LENGTH, RATE, STEP, cut, flags_of, hard_sounds, noise_at, sound

from pipeline.audio.streams import MAX_MAGNITUDE
from pipeline.config import AnalysisConfig, FeatureSettings, VadConfig
from pipeline.errors import AudioError, StreamClosedError
from pipeline.features.framing import FrameStream, window
from pipeline.features.frontend import FrontEnd
from pipeline.features.stream import FeatureBlock, FeatureStream, joined, joined_to, static_features

KINDS = ("lpc", "lpcc", "mfcc", "plp", "root_mfcc")


def pushed(stream: FeatureStream | FrontEnd, samples: np.ndarray, sizes: list[int] | None = None) -> FeatureBlock:
    """All blocks of a stream fed in chunks of ``sizes``, as one."""
    return joined([*(stream.push(chunk) for chunk in cut(samples, sizes or [])), stream.flush()])


def features_of(samples: np.ndarray, sizes: list[int] | None = None, **changes: object) -> FeatureBlock:
    """Perceptual prediction of order 20, or what ``changes`` say; one analysis, unless they name another."""
    own = {"kind": "plp", "order": 20, **changes}
    alike = {name: value for name, value in own.items() if name in AnalysisConfig.model_fields}
    return pushed(
        FeatureStream(FeatureSettings(**{"supervector": alike, "gmm": alike, "normalised": alike, **own})),
        samples,
        sizes,
    )


def assert_same_bits(result: FeatureBlock, expected: FeatureBlock) -> None:
    assert result.frames == expected.frames
    assert result.vectors.shape == expected.vectors.shape
    assert result.vectors.tobytes() == expected.vectors.tobytes()
    for analysis in ("supervector", "pitch"):
        assert result.of(analysis).shape == expected.of(analysis).shape
        assert result.of(analysis).tobytes() == expected.of(analysis).tobytes()
    assert result.below_peak.tobytes() == expected.below_peak.tobytes()


# A gate that lets every frame through that is not digital silence.
OPEN = VadConfig(range_db=200.0, min_margin_db=0.0, max_margin_db=0.0, start_seconds=1e6, start_floor_db=-100.0)


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gain_db", [-12.0, 6.0])
def test_recordings_at_any_gain_have_the_same_features(kind, gain_db):
    """The level that the noise floor starts from is the only absolute one, and moves with the gain here."""
    samples = sound(12_000, 1)
    expected = features_of(samples, kind=kind, vad={"start_floor_db": -60.0})
    made = features_of(10.0 ** (gain_db / 20.0) * samples, kind=kind, vad={"start_floor_db": -60.0 + gain_db})
    assert len(expected.vectors) > 0
    np.testing.assert_allclose(made.vectors, expected.vectors, rtol=1e-6, atol=1e-6)


def test_frames_keep_their_level_below_the_loudest_so_far():
    """A half second three times, the last time 20 dB lower: root cepstra are as much smaller as the root of powers."""
    half, gate = noise_at(-20.0, 0.5), OPEN.model_copy(update={"fall_db_per_second": 0.0})
    samples = np.concatenate((half, half, 0.1 * half))
    vectors = features_of(samples, kind="root_mfcc", compression=0.2, deltas=False, vad=gate).vectors
    np.testing.assert_allclose(vectors[101:148], 0.01**0.2 * vectors[51:98], rtol=1e-6, atol=1e-9)


@given(sizes=st.lists(st.integers(0, 30), max_size=12), frames=st.integers(1, 40))
def test_utterances_are_joined_in_order_until_there_are_enough_frames_and_what_is_left_goes_with_the_last(
    sizes, frames
):
    numbers = np.split(np.arange(float(sum(sizes)))[:, None], np.cumsum(sizes))[: len(sizes)]
    blocks = joined_to([FeatureBlock(own, len(own), own[:, 0]) for own in numbers], frames)
    enough = [0]
    for size in sizes:
        enough[-1] += size
        enough += [0] if enough[-1] >= frames else []
    *whole, rest = enough
    if sizes:
        assert [len(block.vectors) for block in blocks] == [*whole[:-1], sum(whole[-1:]) + rest]
        np.testing.assert_array_equal(joined(blocks).vectors[:, 0], np.arange(sum(sizes)))
    else:
        assert blocks == []


@settings(max_examples=12, deadline=None)
@given(length=st.integers(0, 12_000), seed=st.integers(0, 99), sizes=CHUNKS, deltas=st.booleans())
def test_two_analyses_of_a_stream_are_those_of_two_streams(length, seed, sizes, deltas):
    samples = sound(length, seed)
    second = {"kind": "lpcc", "order": 12, "delta_scale": 1.0}
    analyses = {"supervector": {"kind": "plp"}, "gmm": second, "normalised": second}
    both = features_of(samples, sizes, kind="plp", deltas=deltas, **analyses)
    plp, lpcc = (features_of(samples, deltas=deltas, **one) for one in ({"kind": "plp"}, second))
    for analysis, alone in (("frames", plp), ("supervector", plp), ("gmm", lpcc), ("normalised", lpcc)):
        assert_same_bits(replace(alone, others={}), replace(both, vectors=both.of(analysis), others={}))
    assert set(both.others) == {"gmm", "normalised", "pitch"}
    assert both.part(slice(3, 9)).of("gmm").tobytes() == both.of("gmm")[3:9].tobytes()


@settings(max_examples=12, deadline=None)
@given(only=st.frozensets(st.sampled_from(["supervector", "gmm", "normalised", "pitch"])), sizes=CHUNKS)
def test_analyses_that_are_left_out_change_nothing_of_the_others(only, sizes):
    samples, configuration = sound(12_000, 3), FeatureSettings()
    whole = pushed(FeatureStream(configuration), samples, sizes)
    some = pushed(FeatureStream(configuration, only=only), samples, sizes)
    assert some.vectors.tobytes() == whole.vectors.tobytes()
    for name in whole.others:
        assert some.of(name).tobytes() == (whole.of(name).tobytes() if name in only else b"")


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
