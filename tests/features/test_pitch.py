"""Fundamental frequencies against pulses of known frequency, noise, librosa's, and themselves by telephone."""

from __future__ import annotations

from pathlib import Path

import librosa
import numpy as np
import pytest
from features.sounds import sound
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from pipeline.audio.channels import telephone
from pipeline.audio.corpus import Utterance
from pipeline.audio.files import read_samples
from pipeline.config import FeatureSettings
from pipeline.features.frontend import features_of
from pipeline.features.pitch import BAND_HZ, HIGHEST_HZ, LOWEST_HZ, fundamental_frequency

DEMO = Path(__file__).parents[2] / "data" / "demo" / "enroll"


def pitches(samples: np.ndarray, rate: int) -> np.ndarray:
    """Return fundamental frequency and voicing (T, 2) of every frame of 30 ms, without voice activity detection."""
    emphasised = lfilter([1.0, -0.97], [1.0], samples)
    window = np.hamming(rate * 30 // 1000)
    frames = np.lib.stride_tricks.sliding_window_view(emphasised, len(window))[:: rate // 100]
    return fundamental_frequency(rate, window)(frames * window)


def voice(frequency: float, rate: int, rng: np.random.Generator, *, lowest: int = 1) -> np.ndarray:
    """Return a second of harmonics of ``frequency`` Hz from the number ``lowest`` on, through three formants."""
    n = np.arange(rate)
    harmonics = np.arange(lowest, int(0.45 * rate / frequency) + 1)
    source = np.cos(2.0 * np.pi * frequency / rate * np.outer(n, harmonics)).sum(axis=1)
    centres = rng.uniform((300, 900, 2000), (800, 1800, 3000))
    poles = rng.uniform(0.9, 0.97, 3) * np.exp(2j * np.pi * centres / rate)
    return lfilter([1.0], np.poly(np.r_[poles, poles.conj()]).real, source)


@settings(max_examples=150, deadline=None)
@given(
    frequency=st.floats(75.0, 380.0),
    rate=st.sampled_from((8_000, 16_000, 44_100)),
    lowest=st.sampled_from((1, 3)),
    seed=st.integers(0, 2**32 - 1),
)
def test_harmonics_have_their_own_frequency_with_the_first_two_or_without_them(frequency, rate, lowest, seed):
    found = pitches(voice(frequency, rate, np.random.default_rng(seed), lowest=lowest), rate)[10:-10]
    assert np.median(np.abs(found[:, 0] - np.log2(frequency))) < np.log2(1.03)
    assert found[:, 1].mean() > 0.2


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_noise_and_silence_have_no_voice_and_frequencies_in_the_range(rate):
    for samples, most in ((np.random.default_rng(0).standard_normal(rate), 0.1), (np.zeros(rate), 0.0)):
        found = pitches(samples, rate)
        assert found[:, 1].mean() <= most
        assert ((2.0 ** found[:, 0] > LOWEST_HZ - 0.5) & (2.0 ** found[:, 0] < HIGHEST_HZ)).all()


def test_only_the_band_of_harmonics_is_looked_at():
    rng, hertz = np.random.default_rng(0), np.fft.rfftfreq(512, 1.0 / 16_000)
    power = rng.exponential(size=(50, len(hertz)))
    outside = (hertz <= BAND_HZ[0]) | (hertz >= BAND_HZ[1])
    *_, analyse = fundamental_frequency(16_000, np.hamming(480)).steps
    np.testing.assert_array_equal(analyse(np.where(outside, 9.0 * power, power)), analyse(power))


def test_frequencies_are_those_of_librosa_in_voiced_speech_of_synthetic_voices():
    agreed, compared = 0, 0
    for path in sorted(DEMO.glob("*/*"))[::9]:
        samples, rate = read_samples(Utterance(path.parent.name, path))
        found = pitches(samples, rate)
        # pYIN decides on voicing too, and follows a path through the utterance; its frames are twice as long.
        reference, is_voiced, _ = librosa.pyin(
            samples, fmin=LOWEST_HZ, fmax=HIGHEST_HZ, sr=rate, frame_length=rate * 60 // 1000, hop_length=rate // 100
        )
        middle = np.arange(len(found)) + 2  # its frames are centred on steps, ours begin there and last three
        both = is_voiced[middle] & (found[:, 1] > 0.3)
        apart = np.abs(found[both, 0] - np.log2(reference[middle[both]]))
        agreed, compared = agreed + int((apart < 0.1).sum()), compared + len(apart)
    assert compared > 1000
    assert agreed / compared > 0.9


def test_a_telephone_leaves_pitches_where_they_are():
    same, compared = 0, 0
    for path in sorted(DEMO.glob("*/*"))[::9]:
        samples, rate = read_samples(Utterance(path.parent.name, path))
        clean, changed = pitches(samples, rate), pitches(telephone(samples, rate), rate)
        both = (clean[:, 1] > 0.3) & (changed[:, 1] > 0.3)
        same += int((np.abs(clean[both, 0] - changed[both, 0]) < 0.05).sum())
        compared += int(both.sum())
    assert compared > 1000
    assert same / compared > 0.9


def test_a_stream_has_pitches_of_speech_frames_in_step_with_the_others():
    samples = sound(32_000)
    block = features_of(samples, 16_000, FeatureSettings())
    assert block.of("pitch").shape == (len(block.vectors), 2)
    every = pitches(samples, 16_000)
    # Each row is that of one of the frames, in their order; the stream takes the frame's mean away, this does not.
    rows = block.of("pitch")
    places = [int(np.argmin(np.abs(every - row).sum(axis=1))) for row in rows]
    close = np.abs(every[places] - rows).max(axis=1) < 0.05
    assert close.mean() > 0.9
    steps = np.diff(np.array(places)[close])
    assert (steps > 0).mean() > 0.9
    assert "pitch" not in features_of(samples, 16_000, FeatureSettings(pitch=False)).others
