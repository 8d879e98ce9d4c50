"""Augmentation: levels, voices and speeds against tones and arithmetic; versions of an utterance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import welch
from waves import LEVELS, RATE, decibels, middle, noise, rms, tone

from pipeline.audio.augmentation import (
    BAND_SNR_DB,
    LEAST_VERSIONS,
    LEAST_VOICES,
    ROOM_RT60,
    SOURCE_SECONDS,
    Augmenter,
    babble,
    has_version,
    mix_at_snr,
    speed_perturbation,
)
from pipeline.audio.channels import CLIPPING_DB, random_equaliser, telephone
from pipeline.audio.corpus import Utterance
from pipeline.config import Config, load_config
from pipeline.errors import AudioError, ConfigError

# Noise at a ratio


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
    uses = [(mix_at_snr, bad, good, 0.0), (mix_at_snr, good, bad, 0.0), (babble, [bad], 10, rng)]
    uses += [(speed_perturbation, bad, RATE, 0.9)]
    for use, *arguments in uses:
        with pytest.raises(AudioError, match=r"finite|mono|sound"):
            use(*arguments)


# Versions of an utterance

FEATURE_RATE = 8_000
KINDS = ("telephone", "babble", "noise", "room", "codec", "band", "coloured")
# Each speaker hums a note of their own, so the spectrum of a version shows whose voice is in it.
NOTES = {"ada": 500.0, "bea": 1_000.0, "cyd": 1_500.0, "dov": 2_000.0}


def settings_of(*, rate: int = FEATURE_RATE, share: float = 1.0, **changes: object) -> Config:
    """Settings that make versions of every utterance, unless a ``share`` of them is asked for."""
    overrides = [f"augmentation.{name}={value}" for name, value in {"share": share, **changes}.items()]
    return load_config(None, [f"features.rate={rate}", *overrides])


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

    one, other = Augmenter(settings_of(), hummers, kinds=KINDS), Augmenter(settings_of(), hummers, kinds=KINDS)
    expected, before = {task: made(one, task) for task in tasks}, speech.copy()
    with ThreadPoolExecutor(4) as threads:
        backwards = tasks[::-1]
        assert dict(zip(backwards, threads.map(lambda task: made(other, task), backwards), strict=True)) == expected
    assert len(set(expected.values())) == len(tasks), "two utterances met the same noise"
    np.testing.assert_array_equal(speech, before)
    another = Augmenter(settings_of().model_copy(update={"seed": 1}), hummers, kinds=KINDS)
    pairs = zip(versions_of(another, speech), versions_of(one, speech), strict=True)
    assert not any(np.array_equal(*pair) for pair in pairs)


@pytest.fixture
def nothing_clipped(monkeypatch):
    """Microphones that stand any level."""
    monkeypatch.setattr("pipeline.audio.channels.CLIPPING_DB", (-20.0, -20.0))


@pytest.fixture
def perfect_microphones(nothing_clipped, monkeypatch):
    """Microphones without a frequency response of their own, too."""
    monkeypatch.setattr("pipeline.audio.augmentation.EQUALISER_DB", 0.0)


def by_perfect_microphone(samples: np.ndarray) -> np.ndarray:
    """The telephone version behind a microphone that changes no more than rounding does."""
    flat = random_equaliser(samples, FEATURE_RATE, np.random.default_rng(0), 0.0)
    np.testing.assert_allclose(flat, samples, atol=1e-12)
    return telephone(flat, FEATURE_RATE)


@pytest.mark.parametrize("kinds", [("telephone",), ("noise", "telephone"), ("babble", "noise"), ()])
def test_there_is_one_version_a_kind_in_their_order(hummers, speech, perfect_microphones, kinds):
    versions = versions_of(Augmenter(settings_of(), hummers, kinds=kinds), speech)
    for kind, version in zip(kinds, versions, strict=True):
        if kind == "telephone":
            np.testing.assert_array_equal(version, by_perfect_microphone(speech))
        else:
            assert (flatness(version - speech) > 0.8) == (kind == "noise")


@pytest.mark.parametrize("kind", ["babble", "noise", "coloured"])
@pytest.mark.parametrize(("least", "most"), [(5.0, 15.0), (-10.0, 30.0), (12.0, 12.0)])
def test_signal_to_noise_ratios_lie_in_the_range_of_the_settings_and_fill_it(hummers, speech, kind, least, most):
    augmenter = Augmenter(settings_of(min_snr_db=least, max_snr_db=most), hummers, kinds=[kind])
    ratios = [10 * np.log10(np.mean(speech**2) / np.mean(added**2)) for added in noises_of(augmenter, speech, 40)]
    # Of 40 uniform draws none in the lowest quarter, or none in the highest: one chance in 100,000 each.
    quarter = (most - least) / 4
    assert least - 1e-6 <= min(ratios) <= least + quarter + 1e-6
    assert most - quarter - 1e-6 <= max(ratios) <= most + 1e-6


def test_a_band_has_noise_in_its_own_range_of_ratios(hummers, nothing_clipped):
    """A tone within every band: what is left without it is noise."""
    pure, augmenter, ratios = tone(1_000, FEATURE_RATE, 2.0), Augmenter(settings_of(), hummers, kinds=["band"]), []
    for number in range(40):
        version = middle(versions_of(augmenter, pure, number=number)[0])
        phases = 2 * np.pi * 1_000 / FEATURE_RATE * np.arange(len(version))
        waves = np.column_stack((np.sin(phases), np.cos(phases)))
        heard = waves @ np.linalg.lstsq(waves, version, rcond=None)[0]
        ratios.append(decibels(rms(heard) / rms(version - heard)))
    least, most = BAND_SNR_DB
    # Noise is not quite as loud in the middle as over all.
    assert least - 1 <= min(ratios) <= least + (most - least) / 4
    assert most - (most - least) / 4 <= max(ratios) <= most + 1


def test_a_codec_is_at_telephone_bandwidth_and_another_for_each_utterance(hummers):
    augmenter, wide = Augmenter(settings_of(rate=RATE), hummers, kinds=["codec"]), noise(2 * RATE)
    versions = [augmenter.versions(wide, RATE, speaker="ada", number=number)[0] for number in range(10)]
    for version in versions:
        frequencies, power = welch(version, RATE, nperseg=512)
        below, above = power[(frequencies > 300) & (frequencies < 3_400)], power[frequencies > 4_300]
        assert np.median(below) > 1e5 * above.max()
    assert len({version.tobytes() for version in versions}) == len(versions)


def test_a_room_rings_on_after_the_sound_and_is_another_for_each_utterance(hummers):
    clap = np.zeros(2 * FEATURE_RATE)
    clap[FEATURE_RATE // 2] = 1.0
    augmenter = Augmenter(settings_of(), hummers, kinds=["room"])
    rooms = [versions_of(augmenter, clap, number=n)[0] for n in range(5)]
    for room in rooms:
        assert np.abs(room[: FEATURE_RATE // 2]).max() < 1e-12, "an echo before the sound"
        later = room[FEATURE_RATE // 2 + 1 :]
        assert np.any(later[: round(0.2 * FEATURE_RATE)])
        assert np.abs(later[round(ROOM_RT60[1] * FEATURE_RATE) :]).max() < 1e-12
    assert len({room.tobytes() for room in rooms}) == len(rooms)


def test_babble_is_of_others_and_never_of_the_speaker(hummers, speech):
    augmenter = Augmenter(settings_of(), hummers, kinds=["babble"])
    for name, frequency in NOTES.items():
        (added,) = noises_of(augmenter, speech, speaker=name)
        assert power_at(added, frequency) < 0.01
        assert all(power_at(added, pitch) > 0.05 for other, pitch in NOTES.items() if other != name)


def test_no_more_voices_than_the_settings_say(hummers, speech):
    for added in noises_of(Augmenter(settings_of(voices=2), hummers, kinds=["babble"]), speech, 10):
        assert sum(power_at(added, pitch) > 0.01 for pitch in NOTES.values()) == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_without_enough_other_voices_there_is_white_noise(hummers, speech, count):
    few = dict(list(hummers.items())[:count])
    (added,) = noises_of(Augmenter(settings_of(), few, kinds=["babble"]), speech)
    assert (flatness(added) > 0.8) == (count - 1 < LEAST_VOICES)


def test_speakers_without_sound_are_no_voices(hummers, speech, tmp_path):
    some = {"ada": hummers["ada"], "bea": hummers["bea"], "cyd": [Utterance("cyd", tmp_path / "gone.wav")]}
    (added,) = noises_of(Augmenter(settings_of(), some, kinds=["babble"]), speech)
    assert flatness(added) > 0.8


def test_each_version_meets_noise_of_its_own(hummers, speech):
    one, other = versions_of(Augmenter(settings_of(), hummers, kinds=["noise", "noise"]), speech)
    assert abs(np.corrcoef(one - speech, other - speech)[0, 1]) < 0.05


LINES = ("telephone", "codec", "band")


@pytest.mark.parametrize("kind", LINES)
def test_a_microphone_stands_before_a_line_a_codec_and_a_band(hummers, speech, monkeypatch, kind):
    (heard,) = versions_of(Augmenter(settings_of(), hummers, kinds=[kind]), speech)
    monkeypatch.setattr("pipeline.audio.augmentation.EQUALISER_DB", 0.0)
    (flat,) = versions_of(Augmenter(settings_of(), hummers, kinds=[kind]), speech)
    assert rms(heard - flat) > 0.02 * rms(flat)


@pytest.mark.parametrize("kind", LINES)
def test_some_microphones_clip(hummers, speech, kind, request):
    augmenter = Augmenter(settings_of(), hummers, kinds=[kind])
    versions = [versions_of(augmenter, speech, number=number)[0] for number in range(40)]
    request.getfixturevalue("nothing_clipped")
    unclipped = [versions_of(augmenter, speech, number=number)[0] for number in range(40)]
    changed = [not np.array_equal(*pair) for pair in zip(versions, unclipped, strict=True)]
    share = CLIPPING_DB[1] / (CLIPPING_DB[1] - CLIPPING_DB[0])
    assert np.mean(changed) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 40))


# Shares of the utterances

PLACES = st.tuples(st.integers(1, 60), st.integers(1, 9), st.floats(0.0, 1.0, exclude_min=True))


def utterances_of(count: int, kinds: int, share: float) -> np.ndarray:
    """Flags (kinds, count): which utterances have a version of each kind."""
    return np.array(
        [[has_version(n, count, which=k, kinds=kinds, share=share) for n in range(count)] for k in range(kinds)]
    )


@given(PLACES)
def test_each_kind_has_its_share_spread_evenly(place):
    count, _, share = place
    for row in utterances_of(*place):
        wanted = min(count, max(LEAST_VERSIONS, round(share * count)))
        chosen = np.flatnonzero(row)
        assert len(chosen) == wanted
        # Round the circle of utterances, no two neighbours are nearer or farther than others by more than one.
        gaps = np.diff([*chosen, chosen[0] + count])
        assert count // wanted <= gaps.min() <= gaps.max() <= -(-count // wanted)


@given(PLACES)
def test_kinds_take_turns(place):
    kinds_of_each = utterances_of(*place).sum(axis=0)
    assert kinds_of_each.max() - kinds_of_each.min() <= 1


@given(st.integers(1, 60), st.integers(1, 9))
def test_every_utterance_has_every_kind_unless_a_share_is_asked_for(count, kinds):
    assert utterances_of(count, kinds, 1.0).all()


def test_a_share_leaves_versions_out_and_changes_none(hummers, speech):
    many = {name: [hummers[name][0]] * 10 for name in NOTES}
    everything, some = Augmenter(settings_of(), many, kinds=KINDS), Augmenter(settings_of(share=0.3), many, kinds=KINDS)
    for number in range(10):
        whole, part = versions_of(everything, speech, number=number), versions_of(some, speech, number=number)
        for which, (version, other) in enumerate(zip(whole, part, strict=True)):
            if has_version(number, 10, which=which, kinds=len(KINDS), share=0.3):
                np.testing.assert_array_equal(version, other)
            else:
                assert other is None


@pytest.mark.parametrize("rate", [8_000, 16_000, 11_025, 48_000])
def test_versions_are_at_the_rate_of_the_features_and_last_as_long(hummers, perfect_microphones, rate):
    samples = noise(2 * rate)
    versions = Augmenter(settings_of(), hummers, kinds=KINDS).versions(samples, rate, speaker="ada", number=0)
    assert all(len(version) == pytest.approx(2 * FEATURE_RATE, abs=1) for version in versions)
    samples = samples if rate == FEATURE_RATE else soxr.resample(samples, rate, FEATURE_RATE)
    np.testing.assert_array_equal(versions[0], by_perfect_microphone(samples))
    # The noise is added to the resampled utterance: what is left correlates with nothing of it.
    assert abs(np.corrcoef(versions[2] - samples, samples)[0, 1]) < 0.05


def test_sources_at_other_rates_keep_their_pitch(hummers, tmp_path, speech):
    others = {"ada": hummers["ada"]}
    for name in ("bea", "cyd"):
        others[name] = [recorded(name, tmp_path / f"{name}.wav", note(NOTES[name], 2.0, 44_100), 44_100)]
    # One voice for each note: two could cancel.
    (added,) = noises_of(Augmenter(settings_of(voices=2), others, kinds=["babble"]), speech)
    assert all(power_at(added, NOTES[name]) > 0.3 for name in ("bea", "cyd"))


@pytest.mark.parametrize("bad", ["garbage", "silence", "nothing"])
def test_a_recording_without_sound_is_passed_over(hummers, speech, garbage, silence, tmp_path, bad):
    path = {"garbage": garbage, "silence": silence, "nothing": tmp_path / "gone.wav"}[bad]
    longer = {**hummers, "bea": [Utterance("bea", path), *hummers["bea"]]}
    with_it, without = (versions_of(Augmenter(settings_of(), of, kinds=KINDS), speech) for of in (longer, hummers))
    for version, other in zip(with_it, without, strict=True):
        np.testing.assert_array_equal(version, other)


@pytest.mark.parametrize(("together", "each"), [(1800.0, SOURCE_SECONDS), (6.0, 2.0)])
def test_no_more_of_a_speaker_is_kept_than_babble_needs(hummers, tmp_path, speech, monkeypatch, together, each):
    """Audio after the first seconds of a long recording is in no version."""
    monkeypatch.setattr("pipeline.audio.augmentation.ALL_SOURCE_SECONDS", together)
    long = np.concatenate([note(NOTES["bea"], each), note(3_000.0, 30.0)])
    others = {**hummers, "bea": [recorded("bea", tmp_path / "long.wav", long)]}
    del others["dov"]
    for added in noises_of(Augmenter(settings_of(voices=2), others, kinds=["babble"]), speech, 10):
        assert power_at(added, 3_000.0) < 0.01
        assert power_at(added, NOTES["bea"]) > 0.1


def test_pseudo_speakers_have_other_pitches(hummers, speech):
    place = {"speaker": "ada", "number": 0}
    augmenter = Augmenter(settings_of(), hummers, kinds=["telephone"], speeds=[0.8, 1.5])
    slow, fast = augmenter.pseudo_speakers(speech, FEATURE_RATE, **place)
    assert abs(len(slow) - len(speech) / 0.8) <= 1
    assert power_at(slow, 0.8 * NOTES["ada"]) > 0.9
    assert power_at(fast, 1.5 * NOTES["ada"]) > 0.9
    assert Augmenter(settings_of(), hummers, kinds=["telephone"]).pseudo_speakers(speech, FEATURE_RATE, **place) == []


@pytest.mark.parametrize("speeds", ["[1.0]", "[0.9, 0.9]", "[0.4]", "[2.5]"])
def test_speeds_that_are_no_other_voice_are_refused(speeds):
    with pytest.raises(ConfigError, match="speeds"):
        load_config(None, [f"supervector.speeds={speeds}"])
