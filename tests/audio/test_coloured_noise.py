"""Coloured noise: slopes that are drawn evenly, hum at harmonics of one pitch, and loudness."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import median_filter
from scipy.signal import find_peaks
from waves import LENGTHS, RATE, SEEDS, random, rms

from pipeline.audio.channels import (
    HUM_HARMONICS,
    HUM_HZ,
    MOST_HUM,
    NOISE_EQUALISER_DB,
    NOISE_SLOPE,
    _hum,
    coloured_noise,
)


@pytest.fixture(scope="module")
def colours() -> np.ndarray:
    """Power spectra (200, 8001) of a second each, in steps of 1 Hz, by a Hann window."""
    noises = np.stack([coloured_noise(RATE, RATE, random(seed)) for seed in range(200)])
    return np.abs(np.fft.rfft(noises * np.hanning(RATE))) ** 2


def test_the_slope_of_coloured_noise_is_drawn_evenly(colours):
    """By regression over the medians of a third of an octave each, which no line of a hum can move."""
    edges = np.geomspace(60, 7_600, 22).astype(int)
    bands = np.stack([np.median(colours[:, a:b], axis=1) for a, b in pairwise(edges)], axis=1)
    octaves = 0.5 * np.log10(edges[:-1] * edges[1:])
    levels = 0.5 * np.log10(bands).T
    slopes, at_one = np.polyfit(octaves, levels, 1)
    least, most = NOISE_SLOPE
    assert np.mean(slopes) == pytest.approx(-(least + most) / 2, abs=0.12)
    # Uniform draws, and the slopes of equalisers on top of them.
    assert (most - least) / np.sqrt(12) < np.std(slopes) < 1.4 * (most - least) / np.sqrt(12)
    assert slopes.max() > -least - 0.3
    assert slopes.min() < -most + 0.3
    # What an equaliser leaves beside the line: some of its draws' deviation, of which it joins the gains.
    beside, drawn = np.std(20.0 * (levels - at_one - octaves[:, None] * slopes)), NOISE_EQUALISER_DB / np.sqrt(3)
    assert 0.5 * drawn < beside < drawn


def test_coloured_noise_is_flat_below_the_audible_range(colours):
    ratio = 10 * np.log10(colours[:, 4:22].mean(axis=1) / colours[:, 24:42].mean(axis=1))
    # f^-1/2, the mean slope, would make it 20 log10(33 / 13) / 2 = 4 dB.
    assert np.mean(ratio) == pytest.approx(0.0, abs=0.4)


def lines_of(noise: np.ndarray, rate: int) -> np.ndarray:
    """Frequencies at which the spectrum stands 15 dB above the median around it, as noise does once in 10^9."""
    power = np.abs(np.fft.rfft(noise * np.hanning(len(noise)))) ** 2
    level = median_filter(power, 101)
    return find_peaks(power / level, height=10**1.5)[0] * rate / len(noise)


@pytest.mark.parametrize("rate", [4_000, RATE])
def test_about_half_of_the_noises_hum_at_harmonics_of_one_pitch(rate):
    """At 4 kHz too, where some harmonics would have to be aliases."""
    shares, pitches = [], np.arange(HUM_HZ[0], HUM_HZ[1], 0.05)
    harmonics = pitches[:, None] * np.arange(1, HUM_HARMONICS + 1)
    for seed in range(40):
        noise = coloured_noise(4 * rate, rate, random(seed))
        lines = lines_of(noise, rate)
        if len(lines):
            power, hertz = (
                np.abs(np.fft.rfft(noise * np.hanning(len(noise)))) ** 2,
                np.fft.rfftfreq(len(noise), 1 / rate),
            )
            shares.append(power[np.abs(hertz[:, None] - lines).min(axis=1) < 1.0].sum() / power.sum())
        distances = np.abs(harmonics[:, :, None] - lines).min(axis=1).max(axis=1, initial=0.0)
        assert distances.min() < 0.5, f"seed {seed}: {lines} Hz are of no one pitch"
    assert 10 <= len(shares) <= 28
    # Hums of all sizes, up to ``MOST_HUM`` times that of the noise.
    assert min(shares) < 0.1
    assert 0.5 < max(shares) < MOST_HUM**2 / (1 + MOST_HUM**2) + 0.02


def test_harmonics_of_a_hum_fall_with_their_number_and_have_any_phase():
    """By their correlation with waves of the pitch, the first number that is drawn, and of twice that."""
    found = []
    for seed in range(300):
        turns = random(seed).uniform(*HUM_HZ) / RATE * np.outer([1, 2], np.arange(8_000))
        found.append(np.exp(-2j * np.pi * turns) @ _hum(8_000, RATE, random(seed)))
    first, second = np.array(found).T
    assert np.median(np.abs(second / first)) == pytest.approx(0.5, abs=0.12)
    assert abs(np.mean(first / np.abs(first))) < 0.2


@settings(deadline=None, max_examples=40)
@given(LENGTHS, SEEDS, st.sampled_from([4_000, 8_000, 16_000, 48_000]))
def test_coloured_noise_has_an_rms_of_1(n, seed, rate):
    output = coloured_noise(n, rate, random(seed))
    assert output.shape == (n,)
    assert n == 0 or rms(output) == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_array_equal(output, coloured_noise(n, rate, random(seed)))
