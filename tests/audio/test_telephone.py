"""Telephone lines: mu-law by the values of G.711, and the band against scipy's filter and tones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import firwin
from waves import LENGTHS, RATE, RATES, SEEDS, decibels, middle, noise, rms, tone

from pipeline.audio.channels import band_pass, mu_law, telephone

# Mu-law

# 14-bit inputs around decision values of ITU-T G.711, table 2a, and their outputs: a value on the boundary goes up.
INPUTS = [0, 0.99, 1, 2.99, 3, 30.99, 31, 34.99, 35, 94.99, 95, 223, 479, 991, 2015, 4063, 4062.99, 7902.99, 7903, 8192]
OUTPUTS = [0, 0, 2, 2, 4, 30, 33, 33, 37, 93, 99, 231, 495, 1023, 2079, 4191, 3999, 7775, 8031, 8031]


@pytest.mark.parametrize("sign", [1, -1])
def test_mu_law_gives_the_values_of_g711(sign):
    np.testing.assert_array_equal(mu_law(sign * np.array(INPUTS) / 8192.0) * 8192.0, sign * np.array(OUTPUTS))


@given(st.lists(st.floats(-1.5, 1.5), max_size=50))
def test_mu_law_is_odd_keeps_the_order_and_errs_by_half_a_step(values):
    samples = np.sort(np.array(values, dtype=np.float64))
    coded = mu_law(samples)
    assert np.all(np.diff(coded) >= 0)
    np.testing.assert_array_equal(mu_law(-samples), -coded)
    size = np.minimum(np.abs(samples), 8159 / 8192)
    # A step is 1/32 to 1/16 of the size plus 33/8192, and the output lies in its middle.
    assert np.all(np.abs(np.abs(coded) - size) <= np.maximum(1 / 8192, (size + 33 / 8192) / 32) + 1e-15)
    assert np.all(np.abs(coded) <= 8031 / 8192)


# Telephone


def test_the_taps_of_the_telephone_band_are_scipys():
    theirs = firwin(201, (240.0, 3_460.0), pass_zero=False, fs=8_000)
    np.testing.assert_allclose(band_pass(), theirs, rtol=0, atol=1e-15)


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
@pytest.mark.parametrize("frequency", [300, 350, 1_000, 2_000, 3_300, 3_400])
def test_the_telephone_band_passes(frequency, rate):
    original = tone(frequency, rate)
    output = telephone(original, rate)
    assert abs(decibels(rms(middle(output)) / rms(middle(original)))) < 0.5
    # In phase too: what is left after the tone is taken away is the coder's noise, some 38 dB below.
    assert decibels(rms(middle(output - original)) / rms(middle(original))) < -30


@pytest.mark.parametrize("frequency", [20, 50, 100, 150, 200, 3_550, 4_000, 5_000, 7_500])
def test_what_lies_outside_the_telephone_band_is_gone(frequency):
    original = tone(frequency)
    assert decibels(rms(middle(telephone(original, RATE))) / rms(middle(original))) < -20


def test_the_line_codes_at_the_level_it_is_given():
    """Steps follow the size of the speech down to the smallest step, of 2/8192, and no further."""

    def distortion(size: float) -> float:
        original = tone(1_013, size=size)  # no divisor of 8 kHz, or the same few codes would come again and again
        return decibels(rms(middle(telephone(original, RATE) - original)) / rms(middle(original)))

    # Steps of 1/32 to 1/16 of the size: noise of a step over the root of 12, 38 dB below on average.
    assert -40 < distortion(0.9) < -36
    assert -40 < distortion(0.05) < -36
    # Near zero the steps stay 2/8192: 20 log10(2/8192 / sqrt(12) / (0.001 / sqrt(2))) = -20.0.
    assert distortion(0.001) == pytest.approx(-20.0, abs=2)
    np.testing.assert_array_equal(telephone(tone(1_000, size=0.9 / 8192), RATE), 0.0)


@settings(deadline=None, max_examples=30)
@given(LENGTHS, SEEDS, RATES)
def test_the_telephone_keeps_the_length(n, seed, rate):
    output = telephone(noise(n, seed), rate)
    assert output.shape == (n,)
    assert output.dtype == np.float64
    assert np.all(np.isfinite(output))
