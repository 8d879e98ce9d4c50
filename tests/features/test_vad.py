"""Voice activity detection: levels of frames, and what passes of words, pauses, noise, rumble and hiss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sounds import LENGTH, RATE, STEP, cut, flags_of, noise_at, sound

from pipeline.config import Config, FeatureSettings, VadConfig
from pipeline.features.framing import FrameStream
from pipeline.features.vad import SILENCE_DB, VoiceActivityDetector, frame_level, speech_level


def test_frame_level_is_decibels_of_the_variance():
    square = np.tile([0.1, -0.1], 240)
    sine = np.sin(2 * np.pi * np.arange(480) / 48)
    result = frame_level(np.stack((square, square + 0.7, sine, np.ones(480), np.zeros(480))))
    np.testing.assert_allclose(result[:3], [-20.0, -20.0, 10 * np.log10(0.5)], atol=1e-9)
    assert np.isfinite(result[3:]).all()
    assert (result[3:] < SILENCE_DB).all()
    assert frame_level(square[None] * 10 / 2**16)[0] > SILENCE_DB, "the last bit of 16-bit audio, on and off"


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
    for hertz in (0.0, 20.0, 50.0, 60.0, 100.0, 120.0, 140.0, 150.0):
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


def test_sound_that_has_nothing_in_the_band_is_no_digital_silence():
    alternating = np.tile([0.5, -0.5], LENGTH // 2)[None]
    assert speech_level(FeatureSettings())(alternating) == SILENCE_DB


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
    assert (below >= 0.0).all()
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


def test_at_the_start_a_floor_below_the_assumed_one_counts():
    """Words at -62 dB over a room at -90: quieter than the floor that louder recordings are given at their start."""
    detector = VoiceActivityDetector(VadConfig(), frames_per_second=100.0)
    speech, _ = detector.push(np.r_[np.full(10, -90.0), np.full(10, -62.0)])
    np.testing.assert_array_equal(speech, np.arange(20) >= 10)
