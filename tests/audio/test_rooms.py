"""Rooms: reverberation against convolution written out, and the fading and loudness of rooms that are made up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waves import LEVELS, RATES, SEEDS, noise, rms

from pipeline.audio.channels import reverberate, room_response
from pipeline.errors import AudioError


def test_reverberation_is_convolution_from_the_direct_sound_on():
    original, response = noise(800), np.zeros(400)
    response[[50, 90, 300]] = [1.0, -0.6, 0.2]
    expected = original.copy()
    expected[40:] -= 0.6 * original[:-40]
    expected[250:] += 0.2 * original[:-250]
    expected *= rms(original) / rms(expected)
    for sign in (1, -1):  # of the direct sound, too
        np.testing.assert_allclose(reverberate(original, sign * response), sign * expected, atol=1e-12)


@given(st.integers(1, 3_000), st.integers(1, 3_000), LEVELS, LEVELS)
def test_a_room_keeps_length_and_loudness_at_any_level(n, m, level, response_level):
    original = noise(n) * 10.0 ** min(level, 0)
    response = noise(m, seed=1) * np.exp(-np.arange(m) / 200) * 10.0**response_level
    output = reverberate(original, response)
    assert output.shape == (n,)
    size = np.abs(original).max()
    assert rms(output / size) == pytest.approx(rms(original / size), rel=1e-9)
    np.testing.assert_allclose(reverberate(original, -response[:1]) / size, -original / size, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("rt60", "rate"), [(0.2, 8_000), (0.5, 16_000), (1.5, 48_000)])
def test_a_made_up_room_fades_by_60_db_in_its_time(rt60, rate):
    """By Schroeder's backward integration, the slope between 5 and 35 dB down (ISO 3382-1's T30)."""
    tail = room_response(rate, np.random.default_rng(1), rt60=rt60, direct_db=0.0)[1:]
    left = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1] / (tail @ tail))
    between = np.flatnonzero((left < -5) & (left > -35))
    slope = np.polyfit(between / rate, left[between], 1)[0]
    assert -60 / slope == pytest.approx(rt60, rel=0.07)


@settings(max_examples=40)
@given(st.floats(0.05, 2.0), st.floats(-20, 20), RATES, SEEDS)
def test_a_made_up_room_has_the_direct_sound_that_was_asked_for(rt60, direct_db, rate, seed):
    response = room_response(rate, np.random.default_rng(seed), rt60=rt60, direct_db=direct_db)
    assert response[0] == 1.0
    assert len(response) == 1 + round(rt60 * rate)
    assert 10 * np.log10(1.0 / (response[1:] @ response[1:])) == pytest.approx(direct_db, abs=1e-9)


def test_silence_in_a_room_is_silence():
    np.testing.assert_array_equal(reverberate(np.zeros(50), noise(20)), np.zeros(50))
    assert reverberate(np.empty(0), noise(20)).shape == (0,)
    for response in (np.zeros(9), np.empty(0)):
        with pytest.raises(AudioError, match="other than zeros"):
            reverberate(noise(50), response)
