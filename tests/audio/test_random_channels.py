"""Random channels: equalisers, bands, clipping and codecs against scipy and libsndfile; what none may change."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import butter, correlate, freqs
from waves import LENGTHS, RATE, RATES, SEEDS, decibels, middle, noise, random, rms, tone

from pipeline.audio.channels import (
    CLIPPING_DB,
    CODEC_PEAK,
    CODECS,
    EQUALISER_HZ,
    HIGH_EDGES_HZ,
    LOW_EDGE_HZ,
    mu_law,
    random_band,
    random_clipping,
    random_codec,
    random_equaliser,
    reverberate,
    telephone,
)
from pipeline.errors import AudioError

random_curve = partial(random_equaliser, most_db=6.0)


def clipping(samples: np.ndarray, _rate: int, rng: np.random.Generator) -> np.ndarray:
    """Clip at random, as the other channels are called."""
    return random_clipping(samples, rng)


RANDOM = [random_codec, random_band, random_curve, clipping]


# What all random channels have in common


@settings(deadline=None, max_examples=25)
@given(LENGTHS, SEEDS, RATES)
def test_random_channels_keep_the_length_and_follow_the_generator(n, seed, rate):
    original = noise(n, seed)
    before = original.copy()
    for channel in RANDOM:
        output = channel(original, rate, random(seed))
        assert output.shape == (n,)
        assert output.dtype == np.float64
        assert np.all(np.isfinite(output))
        np.testing.assert_array_equal(output, channel(original, rate, random(seed)))
        np.testing.assert_array_equal(channel(np.zeros(n), rate, random(seed)), np.zeros(n))
    np.testing.assert_array_equal(original, before)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 2_000), SEEDS, st.integers(-300, 300))
def test_the_level_of_the_input_is_that_of_the_output(n, seed, power):
    """Powers of two change no digit."""
    for channel in RANDOM:
        output = channel(noise(n), RATE, random(seed))
        np.testing.assert_array_equal(channel(noise(n) * 2.0**power, RATE, random(seed)), output * 2.0**power)


@pytest.fixture(scope="module")
def spoken(demo) -> np.ndarray:
    """A recording of the demo corpus, 8 kHz."""
    return soundfile.read(min((demo / "enroll" / "anna").glob("*.flac")))[0]


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
@pytest.mark.parametrize("channel", RANDOM, ids=["codec", "band", "equaliser", "clipping"])
def test_random_channels_delay_nothing(spoken, channel, rate):
    samples = spoken if rate == 8_000 else soxr.resample(spoken, 8_000, rate)
    for seed in range(10):
        match = correlate(channel(samples, rate, random(seed)), samples, method="fft")
        # Where the match is best, to a sample of the 8 kHz line.
        assert abs(int(np.argmax(match)) - (len(samples) - 1)) <= rate / 16_000


# Clipping


def test_clipping_levels_are_uniform_in_decibels_and_all_below_them_is_left():
    samples, depths = noise(RATE), []
    for seed in range(200):
        clipped = random_clipping(samples, random(seed))
        level = np.abs(clipped).max()
        np.testing.assert_array_equal(clipped, samples.clip(-level, level))
        depths.append(decibels(np.abs(samples).max() / level))
    least, most = CLIPPING_DB
    assert 0 <= min(depths) < max(depths) <= most
    # Draws below 0 dB clip nothing: their share, within four standard errors, and quartiles of the others.
    share = -least / (most - least)
    assert np.mean(np.equal(depths, 0)) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 200))
    deep = [depth for depth in depths if depth > 0]
    np.testing.assert_allclose(np.quantile(deep, (0.25, 0.5, 0.75)) / most, (0.25, 0.5, 0.75), atol=0.2)


# Equalisers and bands


def response_of(channel, seed: int, rate: int = RATE) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies up to half the rate, in steps of 1 Hz, and the response to a click: real, without delay."""
    click = np.zeros(rate)
    click[rate // 2] = 1.0
    spectrum = np.fft.rfft(np.roll(channel(click, rate, random(seed)), -(rate // 2)))
    np.testing.assert_allclose(spectrum.imag, 0.0, atol=1e-3)
    return np.fft.rfftfreq(rate, 1 / rate), spectrum.real


@pytest.mark.parametrize("most_db", [0.0, 6.0, 20.0])
def test_an_equaliser_joins_gains_within_its_range_by_lines(most_db):
    gains = []
    for seed in range(40):
        frequencies, response = response_of(partial(random_equaliser, most_db=most_db), seed)
        curve = 20 * np.log10(response)
        gains.append(np.interp(EQUALISER_HZ, frequencies, curve))
        lines = np.interp(np.log(np.maximum(frequencies, 1)), np.log(EQUALISER_HZ), gains[-1])
        # The response lasts a second here, which blurs the corners of the curve a little.
        np.testing.assert_allclose(curve, lines, atol=0.01 * most_db + 1e-9)
    assert np.abs(gains).max() <= 1.001 * most_db + 1e-9
    # Uniform draws: their standard deviation is the range over the root of 3; the 8 frequencies know nothing of
    # each other.
    assert np.std(gains) == pytest.approx(most_db / np.sqrt(3), rel=0.1)
    if most_db:
        assert np.abs(np.corrcoef(np.transpose(gains)) - np.eye(len(EQUALISER_HZ))).max() < 0.6


def crossing(frequencies: np.ndarray, values: np.ndarray) -> float:
    """Position at which rising ``values`` reach one half."""
    return float(np.interp(0.5, values, frequencies))


def edges_of(frequencies: np.ndarray, response: np.ndarray) -> tuple[float, float]:
    """Frequencies below and above 1 kHz, which is in every band, at which the response is one half."""
    top = 1_000
    assert response[top] > 0.99
    return crossing(frequencies[:top], response[:top]), crossing(frequencies[top:][::-1], response[top:][::-1])


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_a_band_is_that_of_butterworth_filters_forwards_and_backwards(rate):
    lows, highs = [], []
    for seed in range(60 if rate == RATE else 10):
        frequencies, response = response_of(random_band, seed, rate)
        low, high = edges_of(frequencies, response)
        up, down = (
            np.abs(freqs(*butter(order, edge, kind, analog=True), frequencies)[1]) ** 2
            for order, edge, kind in ((3, low, "high"), (5, high, "low"))
        )
        np.testing.assert_allclose(response, up * down, atol=3e-3)
        lows.append(low)
        highs.append(high)
    room = 3.0  # Hz, of this measurement
    assert LOW_EDGE_HZ[0] - room <= min(lows) < max(lows) <= LOW_EDGE_HZ[1] + room
    assert HIGH_EDGES_HZ[0][0] - room <= min(highs) < max(highs) <= min(HIGH_EDGES_HZ[1][1], 0.95 * rate / 2) + room
    if rate == RATE:
        # 60 draws: of low edges some in each third, of high edges about half by telephone.
        assert np.histogram(lows, 3, LOW_EDGE_HZ)[0].min() > 5
        assert 20 <= np.sum(np.array(highs) < HIGH_EDGES_HZ[0][1]) <= 40


@pytest.mark.parametrize("channel", RANDOM, ids=["codec", "band", "equaliser", "clipping"])
def test_the_end_does_not_come_round_to_the_start(channel):
    click = np.zeros(RATE)
    click[-1] = 1.0
    for seed in range(10):
        output = np.abs(channel(click, RATE, random(seed)))
        # A codec that has next to nothing to code leaves the smallest of its steps.
        assert output[: RATE // 2].max() < 1e-3
        assert output[-5:].max() > 0.1


# Codecs


def by_file(samples: np.ndarray, path: Path, codec: tuple[str, str]) -> np.ndarray:
    """Samples that libsndfile reads from a file to which it wrote ``samples`` at 8 kHz, rounded to 16 bits."""
    soundfile.write(path, (samples * 2.0**15).astype(np.int16), 8_000, format=codec[0], subtype=codec[1])
    return soundfile.read(path)[0][: len(samples)]


@pytest.fixture(scope="module")
def coded_speech(spoken, tmp_path_factory) -> dict[str, np.ndarray]:
    """The recording by each codec."""
    folder, peak = tmp_path_factory.mktemp("coded"), np.abs(spoken).max()
    scaled = spoken / peak * CODEC_PEAK
    return {codec[1]: by_file(scaled, folder / codec[1], codec) * (peak / CODEC_PEAK) for codec in CODECS}


def test_codecs_are_those_of_libsndfile_each_drawn_as_often(spoken, coded_speech):
    drawn = dict.fromkeys(coded_speech, 0)
    for seed in range(60):
        output = random_codec(spoken, 8_000, random(seed))
        (name,) = (name for name, expected in coded_speech.items() if np.allclose(output, expected, rtol=1e-12, atol=0))
        drawn[name] += 1
    # 12 are expected of each: fewer than 4 or more than 24 come by chance less than once in 200.
    assert all(4 <= count <= 24 for count in drawn.values()), drawn


def test_codecs_distort_as_much_as_they_are_known_to(spoken, coded_speech):
    ratios = {name: decibels(rms(spoken) / rms(output - spoken)) for name, output in coded_speech.items()}
    # Mu-law: steps of 1/32 to 1/16 of the sample, 38 dB on average. One bit a sample, as between ADPCM at 24 and at
    # 32 kbit/s, is worth 6 dB. GSM's full rate codes an excitation at 13 kbit/s, and its waveform only roughly.
    assert ratios["ULAW"] == pytest.approx(38, abs=1)
    assert ratios["G721_32"] - ratios["G723_24"] == pytest.approx(6, abs=1.5)
    assert 15 < ratios["IMA_ADPCM"] < 30
    assert ratios["G723_24"] > 15
    assert 8 < ratios["GSM610"] < 16


def test_a_codec_ends_at_the_telephone_band():
    """Sound that an 8 kHz line cannot carry is removed, and has no effect on the coding."""
    for seed in range(10):
        assert rms(middle(random_codec(tone(6_000), RATE, random(seed)))) < 1e-3


@pytest.mark.parametrize("bad", [np.array([0.0, np.nan]), np.array([np.inf]), np.zeros((3, 2))])
def test_samples_must_be_mono_and_finite(bad):
    uses = [(telephone, bad, RATE), (mu_law, bad), (reverberate, bad, noise(10)), (reverberate, noise(10), bad)]
    uses += [(channel, bad, RATE, random(0)) for channel in RANDOM]
    for use, *arguments in uses:
        with pytest.raises(AudioError, match=r"finite|mono"):
            use(*arguments)
