"""Speech made worse: levels, bands and codes against G.711, libsndfile, tones and arithmetic."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.degradation import babble, mix_at_snr, mu_law, reverberant, room_response, speed, telephone, white_noise
from pipeline.errors import AudioError
from pipeline.pcm import PcmDecoder, PcmFormat

RATE = 16_000
LENGTHS = st.integers(0, 3_000)
SEEDS = st.integers(0, 2**32 - 1)
RATES = st.sampled_from([6_000, 8_000, 11_025, 16_000, 44_100, 48_000])


def noise(n: int, seed: int = 0) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).standard_normal(n)


def tone(frequency: float, rate: int = RATE, seconds: float = 1.0, size: float = 0.25) -> np.ndarray:
    return size * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def middle(samples: np.ndarray) -> np.ndarray:
    """Without the tenths at both ends, where a tone is switched on and off."""
    return samples[len(samples) // 10 : -len(samples) // 10]


def rms(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(samples**2)))


def lag(heard: np.ndarray, said: np.ndarray) -> int:
    """By how many samples ``heard`` comes after ``said``: where their cross-correlation is largest."""
    return int(np.argmax(np.correlate(heard, said, "full"))) - (len(said) - 1)


def decibels(ratio: float) -> float:
    return float(20 * np.log10(ratio))


# Mu-law

# (14-bit input, output) around decision values of ITU-T G.711, table 2a: a value on the boundary goes up.
G711 = [
    (0, 0),
    (0.99, 0),
    (1, 2),
    (2.99, 2),
    (3, 4),
    (30.99, 30),
    (31, 33),
    (34.99, 33),
    (35, 37),
    (94.99, 93),
    (95, 99),
    (223, 231),
    (479, 495),
    (991, 1023),
    (2015, 2079),
    (4063, 4191),
    (4062.99, 3999),
    (7902.99, 7775),
    (7903, 8031),
    (8159, 8031),
    (8192, 8031),
]


@pytest.mark.parametrize(("value", "expected"), G711)
def test_mu_law_gives_the_values_of_g711(value, expected):
    samples = np.array([value, -value]) / 8192.0
    np.testing.assert_array_equal(mu_law(samples) * 8192.0, [expected, -expected])


def test_mu_law_agrees_with_libsndfile_on_every_14_bit_sample():
    integers = np.arange(-(2**15), 2**15, 4, dtype=np.int16)
    file = io.BytesIO()
    soundfile.write(file, integers[1:], RATE, format="WAV", subtype="ULAW")  # all but -32768, which it cannot negate
    file.seek(0)
    expected, _ = soundfile.read(file, dtype="float64")
    np.testing.assert_array_equal(mu_law(integers[1:] / 2.0**15), expected)


def test_mu_law_gives_every_value_that_the_decoder_of_pipes_knows_and_no_other():
    known = PcmDecoder(PcmFormat(8_000, 1, "mulaw")).push(bytes(range(256)))
    np.testing.assert_array_equal(mu_law(known), known)
    assert set(mu_law(np.linspace(-1, 1, 50_001))) == set(known)


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


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
@pytest.mark.parametrize("frequency", [300, 350, 500, 1_000, 2_000, 3_000, 3_300, 3_400])
def test_the_telephone_band_passes(frequency, rate):
    said = tone(frequency, rate)
    heard = telephone(said, rate)
    assert abs(decibels(rms(middle(heard)) / rms(middle(said)))) < 0.5
    # In phase too: what is left after the tone is taken away is the coder's noise, some 38 dB below.
    assert decibels(rms(middle(heard - said)) / rms(middle(said))) < -30


@pytest.mark.parametrize("frequency", [20, 50, 100, 150, 200, 3_550, 4_000, 5_000, 7_500])
def test_what_lies_outside_the_telephone_band_is_gone(frequency):
    said = tone(frequency)
    assert decibels(rms(middle(telephone(said, RATE))) / rms(middle(said))) < -20


def test_above_the_band_of_the_line_there_is_nothing():
    heard = middle(telephone(noise(RATE), RATE))
    spectrum = np.abs(np.fft.rfft(heard * np.hanning(len(heard))))
    upper = len(spectrum) * 4_400 // 8_000
    lower = slice(len(spectrum) * 300 // 8_000, len(spectrum) * 3_400 // 8_000)
    assert decibels(rms(spectrum[upper:]) / rms(spectrum[lower])) < -60


def test_the_line_codes_at_the_level_it_is_given():
    """Steps follow the size of the speech down to the smallest step, of 2/8192, and no further."""

    def distortion(size: float) -> float:
        said = tone(1_013, size=size)  # no divisor of 8 kHz, or the same few codes would come again and again
        return decibels(rms(middle(telephone(said, RATE) - said)) / rms(middle(said)))

    # Steps of 1/32 to 1/16 of the size: noise of a step over the root of 12, 38 dB below on average.
    assert -40 < distortion(0.9) < -36
    assert -40 < distortion(0.05) < -36
    # Near zero the steps stay 2/8192: 20 log10(2/8192 / sqrt(12) / (0.001 / sqrt(2))) = -20.0.
    assert distortion(0.001) == pytest.approx(-20.0, abs=2)
    np.testing.assert_array_equal(telephone(tone(1_000, size=0.9 / 8192), RATE), 0.0)


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 44_100])
def test_the_telephone_adds_no_delay(rate):
    said = noise(4_000, seed=3)
    assert lag(telephone(said, rate), said) == 0


@settings(deadline=None, max_examples=50)
@given(LENGTHS, SEEDS, RATES)
def test_the_telephone_keeps_the_length_and_is_deterministic(n, seed, rate):
    said = noise(n, seed)
    heard = telephone(said, rate)
    assert heard.shape == (n,)
    assert heard.dtype == np.float64
    assert np.all(np.isfinite(heard))
    np.testing.assert_array_equal(heard, telephone(said, rate))


def test_what_comes_later_changes_nothing_much_earlier():
    """The filters reach 50 ms at most: the start of a recording sounds the same however it goes on."""
    said = noise(RATE)
    early = slice(0, RATE // 2 - RATE // 20)
    np.testing.assert_allclose(telephone(said, RATE)[early], telephone(said[: RATE // 2], RATE)[early], atol=1e-6)


# Noise at a ratio


@given(st.integers(1, 3_000), st.integers(1, 4_000), SEEDS, st.floats(-20, 60))
def test_the_ratio_is_what_was_asked_for(n, m, seed, snr_db):
    said = noise(n, seed)
    added = mix_at_snr(said, noise(m, seed + 1), snr_db) - said
    assert 10 * np.log10(np.mean(said**2) / np.mean(added**2)) == pytest.approx(snr_db, abs=1e-9)


def test_the_ratio_by_hand():
    # Mean squares 1 and 4: at 0 dB the noise is halved, at 20 dB it is a twentieth.
    said, added = np.array([1.0, -1.0, 1.0, 1.0]), np.array([2.0, 2.0, -2.0, -2.0])
    np.testing.assert_allclose(mix_at_snr(said, added, 0.0), [2.0, 0.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(mix_at_snr(said, added, 20.0), [1.1, -0.9, 0.9, 0.9], atol=1e-15)


@given(st.integers(1, 50), st.integers(1, 50), SEEDS)
def test_short_noise_is_looped_and_long_noise_cut(n, m, seed):
    said, added = noise(n, seed), noise(m, seed + 1)
    looped = np.array([added[k % m] for k in range(n)])
    np.testing.assert_allclose(mix_at_snr(said, added, 5.0), mix_at_snr(said, looped, 5.0), atol=1e-15)
    direction = mix_at_snr(said, added, 5.0) - said
    np.testing.assert_allclose(direction * rms(looped), looped * rms(direction), atol=1e-12)


def test_without_sound_on_either_side_nothing_is_added():
    said, silence = noise(100), np.zeros(100)
    np.testing.assert_array_equal(mix_at_snr(said, silence, 0.0), said)
    np.testing.assert_array_equal(mix_at_snr(silence, said, 0.0), silence)
    np.testing.assert_array_equal(mix_at_snr(said, np.empty(0), 0.0), said)
    assert mix_at_snr(np.empty(0), said, 0.0).shape == (0,)


@given(st.integers(-300, 0), st.integers(-300, 300))
def test_no_level_is_too_small_or_too_large(said_at, added_at):
    said, added = noise(64) * 10.0**said_at, noise(64, seed=1) * 10.0**added_at
    mixed = mix_at_snr(said, added, 10.0)
    assert np.all(np.isfinite(mixed))
    expected = mix_at_snr(noise(64), noise(64, seed=1), 10.0)
    np.testing.assert_allclose(mixed / 10.0**said_at, expected, rtol=1e-9)


# White noise and babble


def test_white_noise_is_gaussian_of_unit_variance_and_flat():
    samples = white_noise(2**16, np.random.default_rng(1))
    assert samples.mean() == pytest.approx(0, abs=0.02)
    assert samples.var() == pytest.approx(1, abs=0.03)
    power = np.abs(np.fft.rfft(samples)[1:]) ** 2 / 2**16
    np.testing.assert_allclose([part.mean() for part in np.array_split(power, 16)], 1.0, atol=0.1)
    np.testing.assert_array_equal(samples, np.random.default_rng(1).standard_normal(2**16))


def loudness_of_parts(total: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Rms of the tones that were summed; they must be whole periods long."""
    spectrum = np.abs(np.fft.rfft(total)) * np.sqrt(2) / len(total)
    return spectrum[np.round(frequencies * len(total) / RATE).astype(int)]


@pytest.mark.parametrize(("people", "voices"), [(10, 6), (6, 6), (4, 6), (1, 3), (3, 9), (8, 1)])
def test_babble_takes_different_voices_at_equal_loudness(people, voices):
    frequencies = 200.0 * np.arange(1, people + 1)
    # Louder and louder recordings: each must still count as one. Tones of one frequency add up as vectors, so where a
    # voice comes twice only its being there is certain.
    sources = [tone(f, size=0.01 * 2.0**k) for k, f in enumerate(frequencies)]
    total = babble(sources, RATE // 2, np.random.default_rng(5), voices)
    parts = loudness_of_parts(total, frequencies)
    if voices <= people:
        assert np.sum(parts > 0.5) == voices
        np.testing.assert_allclose(parts[parts > 0.5], 1.0, rtol=1e-9)
        assert rms(total) == pytest.approx(np.sqrt(voices), rel=1e-9)
    else:
        assert np.all(parts > 1e-3)


def test_the_voices_of_babble_change_with_the_generator_and_only_with_it():
    sources = [noise(4_000, seed) for seed in range(12)]
    first, second = (babble(sources, 1_000, np.random.default_rng(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(first, babble(sources, 1_000, np.random.default_rng(1)))
    assert np.corrcoef(first, second)[0, 1] < 0.9


def test_a_stretch_of_babble_is_a_piece_of_its_source():
    source = noise(5_000)
    piece = babble([source], 700, np.random.default_rng(3), voices=1)
    stretches = np.lib.stride_tricks.sliding_window_view(source, 700)
    differences = np.abs(piece * np.sqrt(np.mean(stretches**2, axis=1, keepdims=True)) - stretches).max(axis=1)
    assert np.sum(differences < 1e-12) == 1


@given(LENGTHS, st.lists(st.integers(0, 500), min_size=1, max_size=8), st.integers(1, 9), SEEDS)
def test_babble_has_the_length_asked_for(n, sizes, voices, seed):
    sources = [noise(size, seed=k) for k, size in enumerate([*sizes, 10])]
    total = babble(sources, n, np.random.default_rng(seed), voices)
    assert total.shape == (n,)
    assert np.all(np.isfinite(total))


def test_silence_is_no_voice():
    sources = [np.zeros(500), np.empty(0), tone(400, seconds=0.1)]
    total = babble(sources, 1_600, np.random.default_rng(0), voices=1)
    assert rms(total) == pytest.approx(1.0)
    with pytest.raises(AudioError, match="at least one source must hold sound, got 2"):
        babble(sources[:2], 100, np.random.default_rng(0))
    with pytest.raises(AudioError, match="at least one source must hold sound, got 0"):
        babble([], 100, np.random.default_rng(0))


def test_a_pause_is_no_voice_either():
    """A recording that is nearly all silence: stretches that miss its sound begin at it instead."""
    source = np.zeros(10_000)
    source[7_000:7_010] = 0.5
    for seed in range(20):
        assert rms(babble([source], 100, np.random.default_rng(seed), voices=1)) == pytest.approx(1.0)


# Rooms


def test_reverberation_is_convolution_from_the_direct_sound_on():
    said, response = noise(800), np.zeros(400)
    response[[50, 90, 300]] = [1.0, -0.6, 0.2]
    expected = said.copy()
    expected[40:] -= 0.6 * said[:-40]
    expected[250:] += 0.2 * said[:-250]
    expected *= rms(said) / rms(expected)
    np.testing.assert_allclose(reverberant(said, response), expected, atol=1e-12)


@given(st.integers(1, 3_000), st.integers(1, 3_000), SEEDS)
def test_a_room_keeps_length_loudness_and_time(n, m, seed):
    said = noise(n, seed)
    response = noise(m, seed + 1) * np.exp(-np.arange(m) / 200)
    heard = reverberant(said, response)
    assert heard.shape == (n,)
    assert rms(heard) == pytest.approx(rms(said), rel=1e-9)


def test_a_room_with_a_clear_direct_sound_adds_no_delay():
    said = noise(4_000, seed=7)
    response = np.concatenate((np.zeros(120), [1.0], 0.05 * noise(1_500, seed=8) * np.exp(-np.arange(1_500) / 300)))
    assert lag(reverberant(said, response), said) == 0


@given(LENGTHS, st.integers(-300, 300), st.floats(-9, 9).filter(lambda gain: abs(gain) > 1e-9))
def test_a_room_without_echoes_changes_nothing(n, level, gain):
    said = noise(n) * 10.0 ** min(level, 0)
    heard = reverberant(said, np.array([gain * 10.0**level]))
    np.testing.assert_allclose(heard, np.sign(gain) * said, rtol=1e-9, atol=1e-12 * np.abs(said).max(initial=0.0))


@pytest.mark.parametrize("rate", [8_000, 48_000])
@pytest.mark.parametrize("rt60", [0.2, 0.5, 1.5])
def test_a_made_up_room_fades_by_60_db_in_its_time(rt60, rate):
    """By Schroeder's backward integration, the slope between 5 and 35 dB down (ISO 3382-1's T30)."""
    tail = room_response(rate, np.random.default_rng(1), rt60=rt60, direct_db=0.0)[1:]
    left = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1] / (tail @ tail))
    between = np.flatnonzero((left < -5) & (left > -35))
    slope = np.polyfit(between / rate, left[between], 1)[0]
    assert -60 / slope == pytest.approx(rt60, rel=0.07)


@given(st.floats(0.05, 2.0), st.floats(-20, 20), RATES, SEEDS)
def test_a_made_up_room_has_the_direct_sound_that_was_asked_for(rt60, direct_db, rate, seed):
    response = room_response(rate, np.random.default_rng(seed), rt60=rt60, direct_db=direct_db)
    assert response[0] == 1.0
    assert len(response) == 1 + round(rt60 * rate)
    assert 10 * np.log10(1.0 / (response[1:] @ response[1:])) == pytest.approx(direct_db, abs=1e-9)


def test_a_made_up_room_is_another_each_time_and_too_short_a_one_is_none():
    rng = np.random.default_rng(0)
    first, second = (room_response(RATE, rng, rt60=0.3, direct_db=0.0) for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(room_response(RATE, rng, rt60=1e-6, direct_db=0.0), [1.0])


@pytest.mark.parametrize(
    ("rate", "rt60", "direct_db", "message"),
    [(0, 0.3, 0.0, "at least 1 Hz"), (RATE, 0.0, 0.0, "decay"), (RATE, float("nan"), 0.0, "decay"),
     (RATE, 21.0, 0.0, "decay"), (RATE, 0.3, 301.0, "direct"), (RATE, 0.3, float("nan"), "direct")],
)  # fmt: skip
def test_rooms_that_cannot_be(rate, rt60, direct_db, message):
    with pytest.raises(AudioError, match=message):
        room_response(rate, np.random.default_rng(0), rt60=rt60, direct_db=direct_db)


def test_silence_in_a_room_is_silence():
    np.testing.assert_array_equal(reverberant(np.zeros(50), noise(20)), np.zeros(50))
    assert reverberant(np.empty(0), noise(20)).shape == (0,)
    for response in (np.zeros(9), np.empty(0)):
        with pytest.raises(AudioError, match="other than zeros"):
            reverberant(noise(50), response)


# What cannot be used


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_speed_scales_pitch_and_length(factor, rate):
    tone = 0.5 * np.sin(2 * np.pi * 500.0 * np.arange(rate) / rate)
    found = speed(tone, rate, factor)
    assert abs(len(found) - rate / factor) <= 1
    inside = slice(len(found) // 10, -len(found) // 10)
    expected = 0.5 * np.sin(2 * np.pi * 500.0 * factor * np.arange(len(found)) / rate)
    np.testing.assert_allclose(found[inside], expected[inside], atol=2e-3)


def test_speed_refuses_what_is_no_speed_of_a_voice():
    for factor in (0.0, 0.4, 2.1, -1.0, float("nan")):
        with pytest.raises(AudioError, match="factor"):
            speed(np.zeros(100), 8_000, factor)
    with pytest.raises(AudioError, match="rate"):
        speed(np.zeros(100), 0, 1.1)
    with pytest.raises(AudioError, match="finite"):
        speed(np.array([0.0, np.nan]), 8_000, 1.1)


@pytest.mark.parametrize("bad", [np.array([0.0, np.nan]), np.array([np.inf]), np.zeros((3, 2))])
def test_samples_must_be_mono_and_finite(bad):
    good, rng = noise(10), np.random.default_rng(0)
    uses = [
        lambda: telephone(bad, RATE),
        lambda: mu_law(bad),
        lambda: mix_at_snr(bad, good, 0.0),
        lambda: mix_at_snr(good, bad, 0.0),
        lambda: babble([good, bad], 10, rng),
        lambda: reverberant(bad, good),
        lambda: reverberant(good, bad),
    ]
    for use in uses:
        with pytest.raises(AudioError, match=r"finite|mono"):
            use()


def test_settings_out_of_range_are_refused():
    with pytest.raises(AudioError, match="rate must be at least 1 Hz, got 0"):
        telephone(noise(10), 0)
    for snr_db in (float("nan"), float("inf"), -float("inf"), -1e5):
        with pytest.raises(AudioError, match=f"within ..300 dB, got {snr_db}"):
            mix_at_snr(noise(10), noise(10), snr_db)
    with pytest.raises(AudioError, match="at least 1 voice is needed, got 0"):
        babble([noise(10)], 10, np.random.default_rng(0), voices=0)
