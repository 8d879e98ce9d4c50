"""Channels to one, their mean or one of them; and whether channels hold different sounds, of any voices and levels."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio.corpus import Utterance
from pipeline.audio.downmix import Downmix
from pipeline.audio.files import open_audio, open_utterance, read_samples
from pipeline.audio.streams import as_samples
from pipeline.errors import AudioError

VOICES = ("anna", "bruno", "clara", "dexter", "edith", "fergus")
TWO_VOICES = st.permutations(VOICES).map(lambda names: names[:2])
DECIBELS = st.integers(-15, 15)
CUTS = st.lists(st.integers(0, 60_000), max_size=12)


@pytest.fixture(scope="module")
def voice(demo):
    """voice(name): five seconds at 8 kHz and the same power."""
    joined = {}
    for name in VOICES:
        files = sorted((demo / "verify" / name).glob("*.flac"))
        samples = np.concatenate([soundfile.read(file)[0] for file in files])[:40_000]
        joined[name] = 0.05 * samples / np.sqrt(np.mean(samples**2))
    return joined.__getitem__


def differ(*channels: np.ndarray, cuts: list[int] | None = None) -> bool:
    frames, mix = np.stack(channels, axis=1), Downmix("call")
    for part in np.split(frames, sorted(cut % len(frames) for cut in cuts or ())):
        mix.push(part)
    return mix.channels_differ


def late(samples: np.ndarray, lag: int) -> np.ndarray:
    return np.concatenate((np.zeros(lag), samples[: len(samples) - lag]))


def gain(decibels: float) -> float:
    return 10 ** (decibels / 20)


# Which channels differ


@settings(deadline=None, max_examples=30)
@given(names=TWO_VOICES, decibels=DECIBELS)
def test_two_voices_differ_at_any_levels(voice, names, decibels):
    one, other = map(voice, names)
    assert differ(one, gain(decibels) * other)


def test_all_pairs_of_trials_by_two_people_differ_and_no_trial_from_itself_somewhat_later(demo):
    """Trials of three seconds, which is six blocks: 3,276 pairs."""
    trials = [(path.parent.name, soundfile.read(path)[0]) for path in sorted((demo / "verify").glob("*/*.flac"))]
    for (name, one), (another, other) in itertools.combinations(trials, 2):
        size = min(len(one), len(other))
        assert name == another or differ(one[:size], other[:size])
    for number, (_, one) in enumerate(trials):
        assert not differ(one, late(one, 6 * number))


@settings(deadline=None, max_examples=15)
@given(names=TWO_VOICES, decibels=DECIBELS)
def test_two_people_who_take_turns_differ_and_the_first_turn_does_not_tell(voice, names, decibels):
    one, other = map(voice, names)
    silent = np.zeros_like(one)
    call = np.concatenate((one, silent)), gain(decibels) * np.concatenate((silent, other))
    assert differ(*call)
    assert not differ(*(channel[: len(one)] for channel in call))


@settings(deadline=None, max_examples=30)
@given(name=st.sampled_from(VOICES), lag=st.integers(0, 400), decibels=st.integers(-40, 40))
def test_one_voice_at_any_lag_and_level_does_not_differ_and_its_inverse_does(voice, name, lag, decibels):
    copy = gain(decibels) * late(voice(name), lag)
    assert not differ(voice(name), copy)
    assert differ(voice(name), -copy) == (abs(decibels) < 20) or abs(decibels) == 20


@pytest.mark.parametrize("name", VOICES)
def test_a_silent_channel_and_a_hiss_do_not_differ_from_a_voice(voice, name):
    hiss = 0.05 * gain(-25) * np.random.default_rng(0).standard_normal(40_000)
    assert not differ(voice(name), np.zeros(40_000))
    assert not differ(np.zeros(40_000), voice(name))
    assert not differ(voice(name), hiss)
    assert not differ(np.zeros(40_000), np.zeros(40_000))
    assert differ(voice(name), gain(15) * hiss)


@pytest.mark.parametrize("voices", [VOICES[:2], VOICES[2:4], VOICES[4:]])
def test_a_little_of_each_voice_in_the_other_channel_changes_nothing(voice, voices):
    one, other = map(voice, voices)
    assert differ(one + gain(-25) * other, other + gain(-25) * one)


@pytest.mark.parametrize(("correlation", "expected"), [(0.25, True), (0.35, False), (-0.9, True), (0.9, False)])
def test_noises_of_known_correlation(correlation, expected):
    """Of 400,000 samples the estimate has a standard error of 0.002, and its largest of 1025 lags is 0.007 at most."""
    first, second = np.random.default_rng(0).standard_normal((2, 400_000))
    assert differ(first, correlation * first + np.sqrt(1 - correlation**2) * second) == expected


@settings(deadline=None, max_examples=20)
@given(names=TWO_VOICES, share=st.floats(-0.4, 0.4), cuts=CUTS)
def test_the_answer_is_the_same_however_frames_are_cut(voice, names, share, cuts):
    one, other = map(voice, names)
    channels = one, other + share * one
    assert differ(*channels, cuts=cuts) == differ(*channels)


def test_of_three_channels_any_two_may_differ(voice):
    anna, bruno, silent = voice("anna"), voice("bruno"), np.zeros(40_000)
    for channels in itertools.permutations((anna, bruno, silent)):
        assert differ(*channels)
    for channels in itertools.permutations((anna, late(anna, 9), silent)):
        assert not differ(*channels)


def test_sixty_four_channels_of_one_voice_do_not_differ(voice):
    assert not differ(*[late(voice("anna"), lag) for lag in range(64)])


def test_one_channel_alone_has_nothing_to_differ_from(voice):
    call = np.stack([voice("anna"), voice("bruno")], axis=1)
    for mix, frames in ((Downmix("x", 1), call), (Downmix("x", 2), call), (Downmix("x"), call[:, :1])):
        mix.push(frames)
        assert not mix.channels_differ


# One channel


@settings(deadline=None)
@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))), CUTS)
def test_a_channel_is_the_column_of_that_number(chosen, cuts):
    count, channel = chosen
    frames = np.random.default_rng(count).standard_normal((200, count))
    mix = Downmix("x", channel)
    parts = [mix.push(part) for part in np.split(frames, sorted(cut % 200 for cut in cuts))]
    np.testing.assert_array_equal(np.concatenate(parts), frames[:, channel - 1])
    assert all(part.flags.c_contiguous for part in parts)


@pytest.mark.parametrize("name", ["call.wav", "call.flac"])
def test_a_channel_of_a_file_is_that_of_a_file_with_it_alone(tmp_path, voice, name):
    call = np.stack([voice("anna"), -voice("anna"), voice("bruno")], axis=1)
    soundfile.write(tmp_path / name, call, 8000, subtype="PCM_16")
    for channel in (1, 2, 3):
        alone_path = tmp_path / f"alone{Path(name).suffix}"
        soundfile.write(alone_path, call[:, channel - 1], 8000, subtype="PCM_16")
        for start, end in ((None, None), (0.25, 1.5)):
            alone = read_samples(Utterance("x", alone_path, start, end))[0]
            of_call = read_samples(Utterance("x", tmp_path / name, start, end, channel))[0]
            np.testing.assert_array_equal(of_call, alone)


def test_a_channel_that_is_not_there_names_the_file_its_channels_and_the_number(tmp_path, voice):
    soundfile.write(tmp_path / "call.wav", np.stack([voice("anna"), voice("bruno")], axis=1), 8000)
    soundfile.write(tmp_path / "mono.wav", voice("anna"), 8000)
    with pytest.raises(AudioError, match=r"call\.wav: channel 3 was to be read, and the recording has 2 channels"):
        open_utterance(Utterance("x", tmp_path / "call.wav", channel=3))
    with pytest.raises(AudioError, match=r"mono\.wav: channel 2 was to be read, and the recording has 1 channel;"):
        open_utterance(Utterance("x", tmp_path / "mono.wav", channel=2))
    with pytest.raises(AudioError, match=r"claim: channel 2 .* has 1 channel;"):
        as_samples(voice("anna"), "claim", Downmix("claim", 2))
    with open_audio(tmp_path / "mono.wav", mix=Downmix("mono", 1)) as audio:
        assert sum(map(len, audio.blocks())) == 40_000


@pytest.mark.parametrize("channel", [0, -1, 1.5, "1", "left"])
def test_a_channel_is_a_number_from_1(channel):
    with pytest.raises(AudioError, match=r"call\.wav: channels are numbered from 1, got channel "):
        Downmix("call.wav", channel)
