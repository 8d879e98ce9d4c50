"""Degraded copies of enrollment audio: always the same ones, as loud as asked, and of other people's voices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from scipy.signal import welch

from pipeline.config import Config, load_config
from pipeline.copies import LEAST_VOICES, ROOM_RT60, SOURCE_SECONDS, CopyMaker
from pipeline.corpus import Utterance
from pipeline.degradation import telephone
from pipeline.errors import ConfigError

RATE = 8_000
KINDS = ("telephone", "babble", "noise", "room")
# Each speaker hums a note of their own: whose voice is in a copy can be told from its spectrum.
NOTES = {"ada": 500.0, "bea": 1_000.0, "cyd": 1_500.0, "dov": 2_000.0}


def settings_of(*overrides: str) -> Config:
    kinds = ", ".join(f'"{kind}"' for kind in KINDS)
    return load_config(None, [f"features.rate={RATE}", f"copies.kinds=[{kinds}]", *overrides])


def note(frequency: float, seconds: float, rate: int = RATE) -> np.ndarray:
    return 0.2 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


@pytest.fixture(scope="module")
def hummers(tmp_path_factory) -> dict[str, list[Utterance]]:
    """Four speakers, two recordings each."""
    folder, found = tmp_path_factory.mktemp("hummers"), {}
    for name, frequency in NOTES.items():
        found[name] = []
        for n in range(2):
            path = folder / f"{name}{n}.wav"
            soundfile.write(path, note(frequency, 1.0 + n), RATE, subtype="FLOAT")
            found[name].append(Utterance(name, path))
    return found


@pytest.fixture
def speech() -> np.ndarray:
    """Two seconds of somebody who hums the first note, with noise in it."""
    return note(NOTES["ada"], 2.0) + 0.02 * np.random.default_rng(3).standard_normal(2 * RATE)


def added(copy: np.ndarray, samples: np.ndarray) -> np.ndarray:
    return copy - samples


def snr_db(samples: np.ndarray, noise: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(samples**2) / np.mean(noise**2)))


def flatness(noise: np.ndarray) -> float:
    """Geometric over arithmetic mean of the power spectrum: 1 for white noise, near 0 for notes."""
    power = welch(noise, RATE, nperseg=256)[1][2:-2]
    return float(np.exp(np.mean(np.log(power + 1e-30))) / np.mean(power))


def power_at(noise: np.ndarray, frequency: float) -> float:
    """Share of the power within 50 Hz of a frequency."""
    power, at = np.abs(np.fft.rfft(noise)) ** 2, np.fft.rfftfreq(len(noise), 1 / RATE)
    return float(power[np.abs(at - frequency) < 50.0].sum() / power.sum())


# The same again


def test_the_same_seed_and_utterance_give_the_same_copies_in_any_order_and_on_any_thread(hummers, speech):
    tasks = [(name, number) for name in NOTES for number in range(3)]

    def made(maker: CopyMaker, task: tuple[str, int]) -> bytes:
        return b"".join(copy.tobytes() for copy in maker.copies(speech, RATE, speaker=task[0], number=task[1]))

    one, other = CopyMaker(settings_of(), hummers), CopyMaker(settings_of(), hummers)
    expected = {task: made(one, task) for task in tasks}
    with ThreadPoolExecutor(4) as threads:
        backwards = tasks[::-1]
        found = dict(zip(backwards, threads.map(lambda task: made(other, task), backwards), strict=True))
    assert found == expected
    assert len(set(expected.values())) == len(tasks), "two utterances met the same noise"


def test_another_seed_gives_other_noise_and_the_same_telephone(hummers, speech):
    line, crowd, hiss, room = CopyMaker(settings_of(), hummers).copies(speech, RATE, speaker="ada", number=0)
    line1, crowd1, hiss1, room1 = CopyMaker(settings_of("seed=1"), hummers).copies(
        speech, RATE, speaker="ada", number=0
    )
    np.testing.assert_array_equal(line1, line)
    assert not np.array_equal(crowd1, crowd)
    assert not np.array_equal(hiss1, hiss)
    assert not np.array_equal(room1, room)


def test_making_copies_leaves_the_audio_as_it_was(hummers, speech):
    before = speech.copy()
    CopyMaker(settings_of(), hummers).copies(speech, RATE, speaker="ada", number=0)
    np.testing.assert_array_equal(speech, before)


# What the copies are


@pytest.mark.parametrize("kinds", [("telephone",), ("noise", "telephone"), ("babble", "noise"), ()])
def test_there_is_one_copy_a_kind_in_the_settings_order(hummers, speech, kinds):
    chosen = ", ".join(f'"{kind}"' for kind in kinds)
    copies = CopyMaker(settings_of(f"copies.kinds=[{chosen}]"), hummers).copies(speech, RATE, speaker="ada", number=0)
    assert len(copies) == len(kinds)
    for kind, copy in zip(kinds, copies, strict=True):
        if kind == "telephone":
            np.testing.assert_array_equal(copy, telephone(speech, RATE))
        else:
            assert (flatness(added(copy, speech)) > 0.8) == (kind == "noise")


@pytest.mark.parametrize("kind", ["babble", "noise"])
@pytest.mark.parametrize(("least", "most"), [(5.0, 15.0), (-10.0, 30.0), (12.0, 12.0)])
def test_signal_to_noise_ratios_lie_in_the_range_of_the_settings_and_fill_it(hummers, speech, kind, least, most):
    settings = settings_of(f'copies.kinds=["{kind}"]', f"copies.least_snr_db={least}", f"copies.most_snr_db={most}")
    maker = CopyMaker(settings, hummers)
    copies = [maker.copies(speech, RATE, speaker="ada", number=number)[0] for number in range(40)]
    found = [snr_db(speech, added(copy, speech)) for copy in copies]
    assert least - 1e-6 <= min(found)
    assert max(found) <= most + 1e-6
    # Of 40 uniform draws none in the lowest quarter, or none in the highest: one chance in 100,000 each.
    assert min(found) <= least + (most - least) / 4 + 1e-6
    assert max(found) >= most - (most - least) / 4 - 1e-6


def test_a_room_rings_on_after_the_sound_and_is_another_for_each_utterance(hummers):
    clap = np.zeros(2 * RATE)
    clap[RATE // 2] = 1.0
    maker = CopyMaker(settings_of('copies.kinds=["room"]'), hummers)
    rooms = [maker.copies(clap, RATE, speaker="ada", number=n)[0] for n in range(5)]
    for room in rooms:
        assert np.abs(room[: RATE // 2]).max() < 1e-12, "an echo before the sound"
        assert np.argmax(np.abs(room)) == RATE // 2
        later = room[RATE // 2 + 1 :]
        assert np.any(later[: round(0.2 * RATE)])
        assert np.abs(later[round(ROOM_RT60[1] * RATE) :]).max() < 1e-12
    assert len({room.tobytes() for room in rooms}) == len(rooms)


def test_babble_is_of_others_and_never_of_the_speaker(hummers, speech):
    maker = CopyMaker(settings_of('copies.kinds=["babble"]'), hummers)
    for name, frequency in NOTES.items():
        (copy,) = maker.copies(speech, RATE, speaker=name, number=0)
        noise = added(copy, speech)
        assert power_at(noise, frequency) < 0.01
        for other, pitch in NOTES.items():
            assert other == name or power_at(noise, pitch) > 0.05


def test_no_more_voices_than_the_settings_say(hummers, speech):
    maker = CopyMaker(settings_of('copies.kinds=["babble"]', "copies.voices=2"), hummers)
    for number in range(10):
        noise = added(maker.copies(speech, RATE, speaker="ada", number=number)[0], speech)
        assert sum(power_at(noise, pitch) > 0.01 for pitch in NOTES.values()) == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_without_a_crowd_there_is_white_noise(hummers, speech, count):
    others = dict(list(hummers.items())[:count])
    (copy,) = CopyMaker(settings_of('copies.kinds=["babble"]'), others).copies(speech, RATE, speaker="ada", number=0)
    assert (flatness(added(copy, speech)) > 0.8) == (count - 1 < LEAST_VOICES)


# What goes in


@pytest.mark.parametrize("length", [0, 1, 79, 8_000, 12_345])
def test_copies_are_as_long_as_the_utterance(hummers, length):
    samples = 0.1 * np.random.default_rng(0).standard_normal(length)
    copies = CopyMaker(settings_of(), hummers).copies(samples, RATE, speaker="ada", number=0)
    assert [copy.shape for copy in copies] == [(length,)] * len(KINDS)
    assert all(np.isfinite(copy).all() for copy in copies)


@pytest.mark.parametrize("rate", [8_000, 16_000, 11_025, 44_100, 48_000])
def test_copies_are_at_the_rate_of_the_features_and_last_as_long(hummers, rate):
    samples = 0.1 * np.random.default_rng(0).standard_normal(2 * rate)
    copies = CopyMaker(settings_of(), hummers).copies(samples, rate, speaker="ada", number=0)
    for copy in copies:
        assert copy.dtype == np.float64
        assert len(copy) == pytest.approx(2 * RATE, abs=1)
    if rate != RATE:
        samples = soxr.resample(samples, rate, RATE)
    np.testing.assert_array_equal(copies[0], telephone(samples, RATE))
    # The noise is added to the resampled utterance: what is left correlates with nothing of it.
    noise = added(copies[2], samples)
    assert abs(np.corrcoef(noise, samples)[0, 1]) < 0.05


def test_silence_stays_silent(hummers):
    copies = CopyMaker(settings_of(), hummers).copies(np.zeros(4_000), RATE, speaker="ada", number=0)
    assert len(copies) == len(KINDS)
    assert not any(copy.any() for copy in copies)


def test_sources_at_other_rates_keep_their_pitch(hummers, tmp_path, speech):
    others = {"ada": hummers["ada"]}
    for name in ("bea", "cyd"):
        soundfile.write(tmp_path / f"{name}.wav", note(NOTES[name], 2.0, 44_100), 44_100, subtype="FLOAT")
        others[name] = [Utterance(name, tmp_path / f"{name}.wav")]
    settings = settings_of('copies.kinds=["babble"]', "copies.voices=2")  # one note each: two could cancel
    (copy,) = CopyMaker(settings, others).copies(speech, RATE, speaker="ada", number=0)
    for name in ("bea", "cyd"):
        assert power_at(added(copy, speech), NOTES[name]) > 0.3


def with_first(hummers: dict[str, list[Utterance]], name: str, path: Path) -> dict[str, list[Utterance]]:
    """The hummers, one of them with one more recording before the others."""
    return {who: [*([Utterance(who, path)] if who == name else []), *said] for who, said in hummers.items()}


@pytest.mark.parametrize("bad", ["garbage", "silence", "nothing"])
def test_a_recording_without_sound_is_passed_over(hummers, speech, garbage, silence, tmp_path, bad):
    path = {"garbage": garbage, "silence": silence, "nothing": tmp_path / "gone.wav"}[bad]
    expected = CopyMaker(settings_of(), hummers).copies(speech, RATE, speaker="ada", number=0)
    found = CopyMaker(settings_of(), with_first(hummers, "bea", path)).copies(speech, RATE, speaker="ada", number=0)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_somebody_with_no_recording_that_can_be_decoded_is_nobody_in_the_crowd(hummers, speech, garbage):
    three = {name: hummers[name] for name in ("ada", "bea")} | {"cyd": [Utterance("cyd", garbage)]}
    (copy,) = CopyMaker(settings_of('copies.kinds=["babble"]'), three).copies(speech, RATE, speaker="ada", number=0)
    assert flatness(added(copy, speech)) > 0.8


def test_no_more_of_a_speaker_is_kept_than_babble_needs(hummers, tmp_path, speech):
    """What comes after the first seconds of a long recording is in no copy."""
    parts = [note(NOTES["bea"], SOURCE_SECONDS), note(3_000.0, 30.0)]
    soundfile.write(tmp_path / "long.wav", np.concatenate(parts), RATE, subtype="FLOAT")
    others = {"ada": hummers["ada"], "bea": [Utterance("bea", tmp_path / "long.wav")], "cyd": hummers["cyd"]}
    maker = CopyMaker(settings_of('copies.kinds=["babble"]', "copies.voices=2"), others)
    for number in range(10):
        noise = added(maker.copies(speech, RATE, speaker="ada", number=number)[0], speech)
        assert power_at(noise, 3_000.0) < 0.01
        assert power_at(noise, NOTES["bea"]) > 0.1


def test_without_babble_no_recording_is_read_for_it(tmp_path, speech):
    nobody = {name: [Utterance(name, tmp_path / "gone.wav")] for name in ("ada", "bea", "cyd")}
    line, hiss = CopyMaker(settings_of('copies.kinds=["telephone", "noise"]'), nobody).copies(
        speech, RATE, speaker="ada", number=0
    )
    np.testing.assert_array_equal(line, telephone(speech, RATE))
    assert flatness(added(hiss, speech)) > 0.8


# Strangers


def test_strangers_hum_other_notes(hummers, speech):
    maker = CopyMaker(settings_of("segments.speeds=[0.8, 1.5]"), hummers, strangers=True)
    slow, fast = maker.strangers(speech, RATE)
    assert abs(len(slow) - len(speech) / 0.8) <= 1
    assert power_at(slow, 0.8 * NOTES["ada"]) > 0.9
    assert power_at(fast, 1.5 * NOTES["ada"]) > 0.9
    assert CopyMaker(settings_of(), hummers).strangers(speech, RATE) == []


@pytest.mark.parametrize("speeds", ["[1.0]", "[0.9, 0.9]", "[0.4]", "[2.5]"])
def test_speeds_that_are_no_other_voice_are_refused(speeds):
    with pytest.raises(ConfigError, match="speeds"):
        load_config(None, [f"segments.speeds={speeds}"])
