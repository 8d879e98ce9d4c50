"""Two people on two channels of a call: one is chosen, by every command and from Python, or the mean is warned of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import AudioError
from pipeline.scoring.decisions import Update
from pipeline.scoring.sequential import SequentialTest
from pipeline.store.store import Store
from pipeline.verification.audio_warnings import WARNINGS, codes
from pipeline.verification.identifier import Identifier
from pipeline.verification.policies import Sequential
from pipeline.verification.verifier import Verifier
from pipeline.verification.voice_comparison import compare_voices

CUTS = st.lists(st.integers(0, 3) | st.integers(0, 30_000), max_size=12)
WARNING = f"channels: {WARNINGS['channels']}"


@pytest.fixture(scope="module")
def sides(heard) -> np.ndarray:
    """The two sides (n, 2) of a call, who speak at once: anna and ivan."""
    anna, ivan = (soundfile.read(heard(voice))[0] for voice in ("anna", "ivan"))
    return np.stack([side[: min(len(anna), len(ivan))] for side in (anna, ivan)], axis=1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """saved(name, samples): the path of a WAV file of 16 bits at 8 kHz."""
    folder = tmp_path_factory.mktemp("calls")

    def save(name: str, samples: np.ndarray) -> Path:
        soundfile.write(folder / name, samples, 8000, subtype="PCM_16")
        return folder / name

    return save


@pytest.fixture(scope="module")
def call(saved, sides) -> Path:
    return saved("call.wav", sides)


@pytest.fixture(scope="module")
def alone(saved, sides) -> tuple[Path, Path]:
    """Each side of the call as a file of its own."""
    return saved("anna.wav", sides[:, 0]), saved("ivan.wav", sides[:, 1])


@pytest.fixture(scope="module")
def long_calls(saved, demo) -> list[Path]:
    """Two calls of clara, with hugo and with edith on the second channel."""

    def joined(voice: str, part: int) -> np.ndarray:
        files = sorted((demo / "verify" / voice).glob("*.flac"))[part::2]
        return np.concatenate([soundfile.read(file)[0] for file in files])[:60_000]

    sides = [(joined("clara", part), joined(other, part)) for part, other in enumerate(("hugo", "edith"))]
    return [
        saved(f"long{part}.wav", np.stack([side[: min(map(len, both))] for side in both], axis=1))
        for part, both in enumerate(sides)
    ]


# A channel is scored as a file of its own


@pytest.mark.parametrize("channel", [1, 2])
def test_a_channel_is_verified_as_a_file_of_its_own(opened, call, alone, channel):
    samples, rate = soundfile.read(call)
    for voice in ("anna", "ivan"):
        verifier = Verifier(opened, voice)
        expected = verifier.verify_file(alone[channel - 1])
        assert verifier.verify_file(call, channel=channel) == expected
        assert verifier.verify(samples, rate, channel=channel) == verifier.verify(samples[:, channel - 1], rate)
        assert Store(opened.where).verify(voice, call, channel=channel) == expected
        assert (expected.decision == "accepted") == (voice == ("anna", "ivan")[channel - 1])


def test_who_speaks_on_either_channel_is_identified(opened, call, alone):
    identifier, store = Identifier(opened), Store(opened.where)
    samples, rate = soundfile.read(call)
    for channel, name in enumerate(("anna", "ivan"), start=1):
        found = identifier.identify_file(call, channel=channel)
        assert found == identifier.identify_file(alone[channel - 1]) == store.identify(call, channel=channel)
        assert found.name == identifier.identify(samples, rate, channel=channel).name == name
        assert found.warnings == ()
    assert WARNING in identifier.identify_file(call).warnings
    assert WARNING in identifier.identify(samples, rate).warnings


def test_voices_are_compared_on_the_chosen_channel(opened, inside, store, long_calls, saved):
    """Clara is on the first channel of both calls, hugo on the second of one and edith on that of the other."""
    ratios = {}
    for channel, same in ((1, True), (2, False)):
        apart = [
            saved(f"{number}{channel}.wav", soundfile.read(one)[0][:, channel - 1])
            for number, one in enumerate(long_calls)
        ]
        found = compare_voices(opened, *long_calls, channel=channel)
        alone = compare_voices(opened, *apart)
        assert (found.same, found.llr) == (same, pytest.approx(alone.llr, abs=1e-6))
        words = ("compare-voices", *long_calls, "--background", store, "--channel", channel, "--json")
        ratios[channel] = inside(*words).lines[0]["llr"]
        assert ratios[channel] == pytest.approx(found.llr, abs=1e-6)
        assert found.mixed == ()
    assert ratios[1] > ratios[2]
    mixed = inside("compare-voices", *long_calls, "--background", store, "--json")
    assert mixed.lines[0]["mixed"] == [str(long_calls[0]), str(long_calls[1])]
    assert (
        f"note: 2 files were scored by the mean of channels that differ, the first of them {long_calls[0]}" in mixed.err
    )


@settings(deadline=None, max_examples=10)
@given(cuts=CUTS)
def test_a_channel_of_a_stream_is_the_same_however_it_is_cut(opened, sides, cuts):
    stream = Verifier(opened, "ivan").stream(8000, channel=2)
    for part in np.split(sides, sorted(cut for cut in cuts if cut < 20_000)):
        stream.push(part)
    expected = Verifier(opened, "ivan").verify(sides[:, 1], 8000)
    assert stream.close().score == pytest.approx(expected.score, abs=1e-9)


def test_a_channel_that_is_not_there_is_an_error(opened, call, alone, sides):
    for verified, message in (
        (lambda of: of.verify_file(call, channel=3), r"call\.wav: channel 3 was to be read, .* has 2 channels"),
        (lambda of: of.verify_file(alone[0], channel=2), r"anna\.wav: channel 2 .* has 1 channel;"),
        (lambda of: of.verify(sides, 8000, channel=3), "claim 'anna': channel 3 .* has 2 channels"),
        (lambda of: of.verify(sides[:, 0], 8000, channel=2), "claim 'anna': channel 2 .* has 1 channel;"),
        (lambda of: of.verify_file(call, channel=0), r"call\.wav: channels are numbered from 1, got channel 0"),
    ):
        with pytest.raises(AudioError, match=message):
            verified(Verifier(opened, "anna"))
    with pytest.raises(AudioError, match=r"identification: channel 2 .* has 1 channel;"):
        Identifier(opened).identify(sides[:, 0], 8000, channel=2)


# The mean of channels that differ


def outcomes(verifier: Verifier, path: Path) -> list[Update]:
    """Outcomes for the file, for its samples at once, and for its samples in pieces of 20 ms."""
    samples, rate = soundfile.read(path)
    stream = verifier.stream(rate)
    for at in range(0, len(samples), 160):
        stream.push(samples[at : at + 160])
    return [verifier.verify_file(path), verifier.verify(samples, rate), stream.close()]


def test_the_mean_of_two_voices_warns_and_that_of_one_does_not(opened, saved, sides):
    anna, silent = sides[:, 0], np.zeros(len(sides))
    late = np.concatenate((np.zeros(40), anna[:-40]))
    verifier = Verifier(opened, "anna")
    for name, other, warned in (
        ("two.wav", sides[:, 1], True),
        ("inverted.wav", -0.8 * anna, True),
        ("same.wav", anna, False),
        ("late.wav", 0.5 * late, False),
        ("silent.wav", silent, False),
    ):
        for outcome in outcomes(verifier, saved(name, np.stack([anna, other], axis=1))):
            assert (WARNING in outcome.warnings) == warned, name


def test_the_warning_can_be_off_and_changes_no_decision(opened, call, tiny_with):
    warned = Verifier(opened, "anna").verify_file(call)
    quiet = Verifier(replace(opened, config=tiny_with("checks.channels=off")), "anna").verify_file(call)
    assert "channels" in codes(warned.warnings)
    assert replace(warned, warnings=tuple(one for one in warned.warnings if one != WARNING)) == quiet


def test_a_sequential_test_of_a_file_warns_too(opened, saved, sides):
    verifier = Verifier(opened, "anna", decide_by=Sequential(SequentialTest(1e-6, 1e-6)))
    assert WARNING in verifier.verify_file(saved("long.wav", np.tile(sides, (3, 1)))).warnings


@settings(deadline=None, max_examples=10)
@given(cuts=CUTS, share=st.floats(0.2, 0.5))
def test_the_warning_is_the_same_however_audio_is_cut(opened, sides, cuts, share):
    frames = np.stack([sides[:, 0], sides[:, 1] + share * sides[:, 0]], axis=1)
    stream = Verifier(opened, "anna").stream(8000)
    for part in np.split(frames, sorted(cut for cut in cuts if cut < 20_000)):
        stream.push(part)
    assert stream.close().warnings == Verifier(opened, "anna").verify(frames, 8000).warnings


# Commands


def test_verify_and_identify_read_a_channel_of_files_and_pipes(inside, store, call, alone):
    data, pcm = call.read_bytes(), soundfile.read(call, dtype="int16")[0].tobytes()
    words = ("verify", store, "--claim", "ivan")
    expected = inside(*words, "--json", alone[1]).lines[0]
    assert expected["decision"] == "accepted"
    named = inside(*words, "--json", call, "--channel", 2).lines[0]
    assert named | {"file": ""} == expected | {"file": ""}
    for source, sent in (((), data), (("--raw", "8000:2:s16le"), pcm)):
        piped = inside(*words, "-", "--channel", 2, *source, data=sent).lines[-1]
        assert piped["score"] == pytest.approx(expected["score"], abs=1e-6)
        assert piped["warnings"] == []
        assert WARNING in inside(*words, "-", *source, data=sent).lines[-1]["warnings"]
        assert inside("identify", store, "-", "--channel", 1, *source, "--json", data=sent).lines[0]["name"] == "anna"
    assert f"; {WARNING}" in inside(*words, call).out
    found = inside("identify", store, call, "--channel", 2, "--json").lines[0]
    assert (found["name"], found["warnings"]) == ("ivan", [])
    assert WARNING in inside("identify", store, call, "--json").lines[0]["warnings"]


def test_a_channel_that_cannot_be_read_is_an_error_of_the_command(refused, store, call):
    words = ("verify", store, "--claim", "anna")
    reason = ": channel 3 was to be read, and the recording has 2 channels"
    assert f"call.wav{reason}" in refused(*words, call, "--channel", 3)
    assert f"<stdin>{reason}" in refused(*words, "-", "--channel", 3, data=call.read_bytes())
    assert "--channel" in refused(*words, call, "--channel", 0)
    assert "--channel is for files and pipes" in refused(*words, "--mic", "--channel", 1)


def test_trials_are_scored_and_calibrated_on_the_chosen_channel(inside, copied, tmp_path, demo, voices, heard):
    """Each file once alone, and once as the second channel of a call with somebody else on the first."""
    lines = []
    for folder in ("alone", "calls"):
        (tmp_path / folder).mkdir()
    for number in range(3):
        for voice, other in zip(voices, (*voices[1:], voices[0]), strict=True):
            own, theirs = (soundfile.read(heard(name, number))[0] for name in (voice, other))
            name, frames = f"{voice}{number}.wav", np.zeros((len(own), 2))
            frames[:, 1] = own
            frames[: min(len(own), len(theirs)), 0] = theirs[: len(own)]
            soundfile.write(tmp_path / "alone" / name, own, 8000, subtype="PCM_16")
            soundfile.write(tmp_path / "calls" / name, frames, 8000, subtype="PCM_16")
            lines += [f"{claim} {name} {'target' if claim == voice else 'nontarget'}\n" for claim in voices]
    (tmp_path / "trials.txt").write_text("".join(lines))
    scores, fits = [], []
    for folder, more in (("alone", ()), ("calls", ("--channel", 2)), ("calls", ("--channel", 1))):
        words = ("trials.txt", "--root", folder, *more, "--json")
        scored = inside("evaluate", copied, *words, "--out", f"{folder}{len(scores)}").lines[0]["systems"]
        scores.append(scored)
        fitted = inside("calibrate", copied, *words)
        fits.append(fitted.lines[0]["after"])
        assert "note: " not in fitted.err
        inside("calibrate", copied, "--reset")
    assert scores[0] == scores[1] != scores[2]
    assert fits[0] == fits[1] != fits[2]
    with_two = inside("evaluate", copied, "trials.txt", "--root", "alone", "--channel", 2, "--out", "none")
    assert with_two.code == 2
    note = "note: 12 files were scored by the mean of channels that differ, the first of them anna0.wav"
    mixed = ("calls", "--json")
    assert note in inside("evaluate", copied, "trials.txt", "--root", *mixed, "--out", "mixed").err
    assert note in inside("calibrate", copied, "trials.txt", "--root", *mixed).err
    assert "channel 2 was to be read, and the recording has 1 channel" in with_two.err


def test_reading_aloud_through_a_pipe_takes_the_chosen_channel(inside, tmp_path, recordings, tiny, store):
    spoken = np.concatenate([soundfile.read(one.path)[0] for one in recordings["edith"]])
    other = np.concatenate([soundfile.read(one.path)[0] for one in recordings["bruno"]])[: len(spoken)]
    stereo = np.zeros((len(spoken), 2))
    stereo[:, 1] = spoken
    stereo[: len(other), 0] = other
    soundfile.write(tmp_path / "stereo.wav", stereo, 8000, subtype="PCM_16")
    soundfile.write(tmp_path / "mono.wav", spoken, 8000, subtype="PCM_16")
    (tmp_path / "tiny.toml").write_text("[codebook]\ncentroids = 8\n")
    said = {}
    for name, more in (("stereo", ("--channel", 2)), ("mono", ())):
        words = ("record", name, "-", "--store", f"{name}.store", "--config", "tiny.toml", "--seconds", 10, *more)
        said[name] = inside(*words, "--json", data=(tmp_path / f"{name}.wav").read_bytes())
    assert said["stereo"].lines[0]["speech_seconds"] == said["mono"].lines[0]["speech_seconds"]
    assert WARNINGS["channels"] not in said["stereo"].err
    words = ("record", "both", "-", "--store", "both.store", "--config", "tiny.toml", "--seconds", 10)
    assert f"warning: {WARNINGS['channels']}" in inside(*words, data=(tmp_path / "stereo.wav").read_bytes()).err
