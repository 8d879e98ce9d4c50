"""Channels: codes, bands, responses and colours against G.711, libsndfile, scipy, tones and arithmetic."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import median_filter
from scipy.signal import butter, correlate, find_peaks, firwin, freqs
from waves import LENGTHS, LEVELS, RATE, RATES, SEEDS, decibels, middle, noise, rms, tone

from pipeline.audio.channels import (
    CODEC_PEAK,
    CODECS,
    EQUALISER_HZ,
    HIGH_EDGES_HZ,
    HUM_HARMONICS,
    HUM_HZ,
    LOW_EDGE_HZ,
    NOISE_SLOPE,
    band_pass,
    coloured_noise,
    mu_law,
    random_band,
    random_codec,
    random_equaliser,
    reverberate,
    room_response,
    telephone,
)
from pipeline.errors import AudioError

random_curve = partial(random_equaliser, most_db=6.0)
RANDOM = [random_codec, random_band, random_curve]


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


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


# Rooms


def test_reverberation_is_convolution_from_the_direct_sound_on():
    original, response = noise(800), np.zeros(400)
    response[[50, 90, 300]] = [1.0, -0.6, 0.2]
    expected = original.copy()
    expected[40:] -= 0.6 * original[:-40]
    expected[250:] += 0.2 * original[:-250]
    expected *= rms(original) / rms(expected)
    np.testing.assert_allclose(reverberate(original, response), expected, atol=1e-12)


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
@pytest.mark.parametrize("channel", RANDOM, ids=["codec", "band", "equaliser"])
def test_random_channels_delay_nothing(spoken, channel, rate):
    samples = spoken if rate == 8_000 else soxr.resample(spoken, 8_000, rate)
    for seed in range(10):
        match = correlate(channel(samples, rate, random(seed)), samples, method="fft")
        # Where the match is best, to a sample of the 8 kHz line.
        assert abs(int(np.argmax(match)) - (len(samples) - 1)) <= rate / 16_000


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
    """Where ``values`` that rise reach one half."""
    return float(np.interp(0.5, values, frequencies))


def edges_of(frequencies: np.ndarray, response: np.ndarray) -> tuple[float, float]:
    """Where the response is one half, below and above 1 kHz, which is in every band."""
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


@pytest.mark.parametrize("channel", RANDOM, ids=["codec", "band", "equaliser"])
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
    """What a file of libsndfile has of ``samples`` at 8 kHz, cut to 16 bits."""
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
    """What an 8 kHz line cannot carry is gone, and coded with nothing of it."""
    for seed in range(10):
        assert rms(middle(random_codec(tone(6_000), RATE, random(seed)))) < 1e-3


# Coloured noise


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
    slopes = np.polyfit(octaves, 0.5 * np.log10(bands).T, 1)[0]
    least, most = NOISE_SLOPE
    assert np.mean(slopes) == pytest.approx(-(least + most) / 2, abs=0.12)
    # Uniform draws, and the slopes of equalisers on top of them.
    assert (most - least) / np.sqrt(12) < np.std(slopes) < 1.4 * (most - least) / np.sqrt(12)
    assert slopes.max() > -least - 0.3
    assert slopes.min() < -most + 0.3


def test_coloured_noise_is_flat_where_nothing_is_heard(colours):
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
    humming, pitches = 0, np.arange(HUM_HZ[0], HUM_HZ[1], 0.05)
    harmonics = pitches[:, None] * np.arange(1, HUM_HARMONICS + 1)
    for seed in range(40):
        lines = lines_of(coloured_noise(4 * rate, rate, random(seed)), rate)
        humming += len(lines) > 0
        distances = np.abs(harmonics[:, :, None] - lines).min(axis=1).max(axis=1, initial=0.0)
        assert distances.min() < 0.5, f"seed {seed}: {lines} Hz are of no one pitch"
    assert 10 <= humming <= 28


@settings(deadline=None, max_examples=40)
@given(LENGTHS, SEEDS, st.sampled_from([4_000, 8_000, 16_000, 48_000]))
def test_coloured_noise_has_an_rms_of_1(n, seed, rate):
    output = coloured_noise(n, rate, random(seed))
    assert output.shape == (n,)
    assert n == 0 or rms(output) == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_array_equal(output, coloured_noise(n, rate, random(seed)))


@pytest.mark.parametrize("bad", [np.array([0.0, np.nan]), np.array([np.inf]), np.zeros((3, 2))])
def test_samples_must_be_mono_and_finite(bad):
    uses = [(telephone, bad, RATE), (mu_law, bad), (reverberate, bad, noise(10)), (reverberate, noise(10), bad)]
    uses += [(channel, bad, RATE, random(0)) for channel in RANDOM]
    for use, *arguments in uses:
        with pytest.raises(AudioError, match=r"finite|mono"):
            use(*arguments)
