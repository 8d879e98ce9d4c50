"""Augmentation: levels, bands and codes against G.711, libsndfile, tones and arithmetic; versions of an utterance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import welch

from pipeline.audio.augmentation import (
    LEAST_VOICES,
    ROOM_RT60,
    SOURCE_SECONDS,
    Augmenter,
    babble,
    mix_at_snr,
    mu_law,
    reverberate,
    room_response,
    speed_perturbation,
    telephone,
)
from pipeline.audio.corpus import Utterance
from pipeline.config import Config, load_config
from pipeline.errors import AudioError, ConfigError

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


def decibels(ratio: float) -> float:
    return float(20 * np.log10(ratio))


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


# Noise at a ratio


LEVELS = st.integers(-300, 300)


@given(st.integers(1, 3_000), st.integers(1, 4_000), st.floats(-20, 60), LEVELS, LEVELS)
def test_the_ratio_is_what_was_asked_for_at_any_level(n, m, snr_db, level, noise_level):
    mixed = mix_at_snr(noise(n), noise(m, seed=1), snr_db)
    added = mixed - noise(n)
    assert 10 * np.log10(np.mean(noise(n) ** 2) / np.mean(added**2)) == pytest.approx(snr_db, abs=1e-9)
    level = min(level, 0)
    scaled = mix_at_snr(noise(n) * 10.0**level, noise(m, seed=1) * 10.0**noise_level, snr_db)
    np.testing.assert_allclose(scaled / 10.0**level, mixed, rtol=1e-9, atol=1e-12)


def test_the_ratio_by_hand():
    # Mean squares 1 and 4: at 0 dB the noise is halved, at 20 dB it is a twentieth.
    original, added = np.array([1.0, -1.0, 1.0, 1.0]), np.array([2.0, 2.0, -2.0, -2.0])
    np.testing.assert_allclose(mix_at_snr(original, added, 0.0), [2.0, 0.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(mix_at_snr(original, added, 20.0), [1.1, -0.9, 0.9, 0.9], atol=1e-15)


def test_without_sound_on_either_side_nothing_is_added():
    original, silence = noise(100), np.zeros(100)
    np.testing.assert_array_equal(mix_at_snr(original, silence, 0.0), original)
    np.testing.assert_array_equal(mix_at_snr(silence, original, 0.0), silence)
    np.testing.assert_array_equal(mix_at_snr(original, np.empty(0), 0.0), original)
    assert mix_at_snr(np.empty(0), original, 0.0).shape == (0,)


# Babble


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


def test_a_segment_of_babble_is_a_piece_of_its_source():
    source = noise(5_000)
    piece = babble([source], 700, np.random.default_rng(3), voices=1)
    segments = np.lib.stride_tricks.sliding_window_view(source, 700)
    differences = np.abs(piece * np.sqrt(np.mean(segments**2, axis=1, keepdims=True)) - segments).max(axis=1)
    assert np.sum(differences < 1e-12) == 1


def test_silence_is_no_voice():
    sources = [np.zeros(500), np.empty(0), tone(400, seconds=0.1)]
    assert rms(babble(sources, 1_600, np.random.default_rng(0), voices=1)) == pytest.approx(1.0)
    for silent in (sources[:2], []):
        with pytest.raises(AudioError, match=f"at least one source must hold sound, got {len(silent)}"):
            babble(silent, 100, np.random.default_rng(0))


def test_a_pause_is_no_voice_either():
    """A recording that is nearly all silence: segments that miss its sound begin at it instead."""
    source = np.zeros(10_000)
    source[7_000:7_010] = 0.5
    for seed in range(20):
        assert rms(babble([source], 100, np.random.default_rng(seed), voices=1)) == pytest.approx(1.0)


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


# Speed


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_speed_scales_pitch_and_length(factor, rate):
    result = speed_perturbation(tone(500.0, rate), rate, factor)
    assert abs(len(result) - rate / factor) <= 1
    expected = tone(500.0 * factor, rate, len(result) / rate)
    np.testing.assert_allclose(middle(result), middle(expected), atol=1e-3)


@pytest.mark.parametrize("bad", [np.array([0.0, np.nan]), np.array([np.inf]), np.zeros((3, 2))])
def test_samples_must_be_mono_and_finite(bad):
    good, rng = noise(10), np.random.default_rng(0)
    uses = [(telephone, bad, RATE), (mu_law, bad), (mix_at_snr, bad, good, 0.0), (mix_at_snr, good, bad, 0.0)]
    uses += [(babble, [bad], 10, rng), (reverberate, bad, good), (reverberate, good, bad)]
    for use, *arguments in uses:
        with pytest.raises(AudioError, match=r"finite|mono|sound"):
            use(*arguments)


# Versions of an utterance

FEATURE_RATE = 8_000
KINDS = ("telephone", "babble", "noise", "room")
# Each speaker hums a note of their own, so the spectrum of a version shows whose voice is in it.
NOTES = {"ada": 500.0, "bea": 1_000.0, "cyd": 1_500.0, "dov": 2_000.0}


def settings_of(*kinds: str, **changes: object) -> Config:
    overrides = [f"augmentation.{name}={value}" for name, value in changes.items()]
    return load_config(None, [f"features.rate={FEATURE_RATE}", f"augmentation.kinds={list(kinds)}", *overrides])


def versions_of(augmenter: Augmenter, samples: np.ndarray, *, speaker: str = "ada", number: int = 0) -> list:
    return augmenter.versions(samples, FEATURE_RATE, speaker=speaker, number=number)


def noises_of(augmenter: Augmenter, speech: np.ndarray, count: int = 1, *, speaker: str = "ada") -> list[np.ndarray]:
    """The noise added to the first ``count`` utterances of a speaker."""
    return [versions_of(augmenter, speech, speaker=speaker, number=n)[0] - speech for n in range(count)]


def note(frequency: float, seconds: float, rate: int = FEATURE_RATE) -> np.ndarray:
    return tone(frequency, rate, seconds, size=0.2)


def recorded(name: str, path: Path, samples: np.ndarray, rate: int = FEATURE_RATE) -> Utterance:
    soundfile.write(path, samples, rate, subtype="FLOAT")
    return Utterance(name, path)


@pytest.fixture(scope="module")
def hummers(tmp_path_factory) -> dict[str, list[Utterance]]:
    """Four speakers, two recordings each."""
    folder = tmp_path_factory.mktemp("hummers")
    return {
        name: [recorded(name, folder / f"{name}{n}.wav", note(frequency, 1.0 + n)) for n in range(2)]
        for name, frequency in NOTES.items()
    }


@pytest.fixture
def speech() -> np.ndarray:
    """Two seconds of the first note, with noise in it."""
    return note(NOTES["ada"], 2.0) + 0.02 * np.random.default_rng(3).standard_normal(2 * FEATURE_RATE)


def flatness(noise: np.ndarray) -> float:
    """Geometric over arithmetic mean of the power spectrum: 1 for white noise, near 0 for notes."""
    power = welch(noise, FEATURE_RATE, nperseg=256)[1][2:-2]
    return float(np.exp(np.mean(np.log(power + 1e-30))) / np.mean(power))


def power_at(noise: np.ndarray, frequency: float) -> float:
    """Share of the power within 50 Hz of a frequency."""
    power, at = np.abs(np.fft.rfft(noise)) ** 2, np.fft.rfftfreq(len(noise), 1 / FEATURE_RATE)
    return float(power[np.abs(at - frequency) < 50.0].sum() / power.sum())


def test_the_same_seed_and_utterance_give_the_same_versions_in_any_order_and_on_any_thread(hummers, speech):
    tasks = [(name, number) for name in NOTES for number in range(3)]

    def made(augmenter: Augmenter, task: tuple[str, int]) -> bytes:
        return b"".join(part.tobytes() for part in versions_of(augmenter, speech, speaker=task[0], number=task[1]))

    one, other = Augmenter(settings_of(*KINDS), hummers), Augmenter(settings_of(*KINDS), hummers)
    expected, before = {task: made(one, task) for task in tasks}, speech.copy()
    with ThreadPoolExecutor(4) as threads:
        backwards = tasks[::-1]
        assert dict(zip(backwards, threads.map(lambda task: made(other, task), backwards), strict=True)) == expected
    assert len(set(expected.values())) == len(tasks), "two utterances met the same noise"
    np.testing.assert_array_equal(speech, before)
    another = Augmenter(settings_of(*KINDS).model_copy(update={"seed": 1}), hummers)
    pairs = zip(versions_of(another, speech), versions_of(one, speech), strict=True)
    assert [np.array_equal(*pair) for pair in pairs] == [
        True,
        False,
        False,
        False,
    ]  # a telephone is no matter of chance


@pytest.mark.parametrize("kinds", [("telephone",), ("noise", "telephone"), ("babble", "noise"), ()])
def test_there_is_one_version_a_kind_in_the_settings_order(hummers, speech, kinds):
    versions = versions_of(Augmenter(settings_of(*kinds), hummers), speech)
    for kind, version in zip(kinds, versions, strict=True):
        if kind == "telephone":
            np.testing.assert_array_equal(version, telephone(speech, FEATURE_RATE))
        else:
            assert (flatness(version - speech) > 0.8) == (kind == "noise")


@pytest.mark.parametrize("kind", ["babble", "noise"])
@pytest.mark.parametrize(("least", "most"), [(5.0, 15.0), (-10.0, 30.0), (12.0, 12.0)])
def test_signal_to_noise_ratios_lie_in_the_range_of_the_settings_and_fill_it(hummers, speech, kind, least, most):
    augmenter = Augmenter(settings_of(kind, min_snr_db=least, max_snr_db=most), hummers)
    ratios = [10 * np.log10(np.mean(speech**2) / np.mean(added**2)) for added in noises_of(augmenter, speech, 40)]
    # Of 40 uniform draws none in the lowest quarter, or none in the highest: one chance in 100,000 each.
    quarter = (most - least) / 4
    assert least - 1e-6 <= min(ratios) <= least + quarter + 1e-6
    assert most - quarter - 1e-6 <= max(ratios) <= most + 1e-6


def test_a_room_rings_on_after_the_sound_and_is_another_for_each_utterance(hummers):
    clap = np.zeros(2 * FEATURE_RATE)
    clap[FEATURE_RATE // 2] = 1.0
    augmenter = Augmenter(settings_of("room"), hummers)
    rooms = [versions_of(augmenter, clap, number=n)[0] for n in range(5)]
    for room in rooms:
        assert np.abs(room[: FEATURE_RATE // 2]).max() < 1e-12, "an echo before the sound"
        later = room[FEATURE_RATE // 2 + 1 :]
        assert np.any(later[: round(0.2 * FEATURE_RATE)])
        assert np.abs(later[round(ROOM_RT60[1] * FEATURE_RATE) :]).max() < 1e-12
    assert len({room.tobytes() for room in rooms}) == len(rooms)


def test_babble_is_of_others_and_never_of_the_speaker(hummers, speech):
    augmenter = Augmenter(settings_of("babble"), hummers)
    for name, frequency in NOTES.items():
        (noise,) = noises_of(augmenter, speech, speaker=name)
        assert power_at(noise, frequency) < 0.01
        assert all(power_at(noise, pitch) > 0.05 for other, pitch in NOTES.items() if other != name)


def test_no_more_voices_than_the_settings_say(hummers, speech):
    for noise in noises_of(Augmenter(settings_of("babble", voices=2), hummers), speech, 10):
        assert sum(power_at(noise, pitch) > 0.01 for pitch in NOTES.values()) == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_without_enough_other_voices_there_is_white_noise(hummers, speech, count):
    few = dict(list(hummers.items())[:count])
    (noise,) = noises_of(Augmenter(settings_of("babble"), few), speech)
    assert (flatness(noise) > 0.8) == (count - 1 < LEAST_VOICES)


@pytest.mark.parametrize("rate", [8_000, 16_000, 11_025, 48_000])
def test_versions_are_at_the_rate_of_the_features_and_last_as_long(hummers, rate):
    samples = noise(2 * rate)
    versions = Augmenter(settings_of(*KINDS), hummers).versions(samples, rate, speaker="ada", number=0)
    assert all(len(version) == pytest.approx(2 * FEATURE_RATE, abs=1) for version in versions)
    samples = samples if rate == FEATURE_RATE else soxr.resample(samples, rate, FEATURE_RATE)
    np.testing.assert_array_equal(versions[0], telephone(samples, FEATURE_RATE))
    # The noise is added to the resampled utterance: what is left correlates with nothing of it.
    assert abs(np.corrcoef(versions[2] - samples, samples)[0, 1]) < 0.05


def test_sources_at_other_rates_keep_their_pitch(hummers, tmp_path, speech):
    others = {"ada": hummers["ada"]}
    for name in ("bea", "cyd"):
        others[name] = [recorded(name, tmp_path / f"{name}.wav", note(NOTES[name], 2.0, 44_100), 44_100)]
    # One voice for each note: two could cancel.
    (noise,) = noises_of(Augmenter(settings_of("babble", voices=2), others), speech)
    assert all(power_at(noise, NOTES[name]) > 0.3 for name in ("bea", "cyd"))


@pytest.mark.parametrize("bad", ["garbage", "silence", "nothing"])
def test_a_recording_without_sound_is_passed_over(hummers, speech, garbage, silence, tmp_path, bad):
    path = {"garbage": garbage, "silence": silence, "nothing": tmp_path / "gone.wav"}[bad]
    longer = {**hummers, "bea": [Utterance("bea", path), *hummers["bea"]]}
    expected = versions_of(Augmenter(settings_of(*KINDS), hummers), speech)
    for version, other in zip(versions_of(Augmenter(settings_of(*KINDS), longer), speech), expected, strict=True):
        np.testing.assert_array_equal(version, other)


def test_no_more_of_a_speaker_is_kept_than_babble_needs(hummers, tmp_path, speech):
    """Audio after the first seconds of a long recording is in no version."""
    long = np.concatenate([note(NOTES["bea"], SOURCE_SECONDS), note(3_000.0, 30.0)])
    others = {**hummers, "bea": [recorded("bea", tmp_path / "long.wav", long)]}
    del others["dov"]
    for noise in noises_of(Augmenter(settings_of("babble", voices=2), others), speech, 10):
        assert power_at(noise, 3_000.0) < 0.01
        assert power_at(noise, NOTES["bea"]) > 0.1


def test_pseudo_speakers_hum_other_notes(hummers, speech):
    settings = load_config(None, [f"features.rate={FEATURE_RATE}", "supervector.speeds=[0.8, 1.5]"])
    slow, fast = Augmenter(settings, hummers, speed_perturbed=True).pseudo_speakers(speech, FEATURE_RATE)
    assert abs(len(slow) - len(speech) / 0.8) <= 1
    assert power_at(slow, 0.8 * NOTES["ada"]) > 0.9
    assert power_at(fast, 1.5 * NOTES["ada"]) > 0.9
    assert Augmenter(settings, hummers).pseudo_speakers(speech, FEATURE_RATE) == []


@pytest.mark.parametrize("speeds", ["[1.0]", "[0.9, 0.9]", "[0.4]", "[2.5]"])
def test_speeds_that_are_no_other_voice_are_refused(speeds):
    with pytest.raises(ConfigError, match="speeds"):
        load_config(None, [f"supervector.speeds={speeds}"])
