"""Enrollment from one channel of a recording, and what is said of channels that differ and were mixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from populations import assert_same

from pipeline.audio.corpus import Utterance, as_corpus, read_corpus
from pipeline.config import ChecksConfig
from pipeline.enrollment.enroll import enroll
from pipeline.errors import AudioError, EnrollmentRefusedError, NotEnoughSpeechError

NAMES = ("anna", "ivan")


@pytest.fixture(scope="module")
def calls(tmp_path_factory, recordings) -> list[Path]:
    """Calls with anna on the first channel and ivan on the second."""
    folder = tmp_path_factory.mktemp("calls")
    paths = []
    for number, pair in enumerate(zip(*(recordings[name] for name in NAMES), strict=False)):
        sides = [soundfile.read(one.path)[0] for one in pair]
        frames = np.stack([side[: min(map(len, sides))] for side in sides], axis=1)
        paths.append(folder / f"{number:02d}.wav")
        soundfile.write(paths[-1], frames, 8000, subtype="PCM_16")
    return paths


@pytest.fixture(scope="module")
def alone(tmp_path_factory, calls) -> Callable[[int], list[Path]]:
    """alone(channel): a file for each call, with one channel of it."""
    folder = tmp_path_factory.mktemp("alone")

    def parted(channel: int) -> list[Path]:
        paths = [folder / f"{channel}-{call.name}" for call in calls]
        for call, path in zip(calls, paths, strict=True):
            soundfile.write(path, soundfile.read(call)[0][:, channel - 1], 8000, subtype="PCM_16")
        return paths

    return parted


def of_channel(name: str, paths: Sequence[Path], channel: int) -> list[Utterance]:
    return [Utterance(name, path, channel=channel) for path in paths]


def test_two_channels_of_the_same_files_are_two_speakers(tmp_path, calls, alone, tiny):
    """Their models are those of files of their own, and neither is taken for a copy of the other."""
    both = {name: of_channel(name, calls, channel) for channel, name in enumerate(NAMES, start=1)}
    report = enroll(tmp_path / "channels", both, tiny, quality=ChecksConfig(duplicates="refuse", channels="refuse"))
    assert (report.refused, report.skipped) == ((), ())
    files = {name: alone(channel) for channel, name in enumerate(NAMES, start=1)}
    assert_same(report.model, enroll(tmp_path / "files", files, tiny).model)


def test_new_recordings_are_told_from_enrolled_ones_by_channel(tmp_path, calls, tiny):
    first, both = (
        {name: of_channel(name, paths, channel) for channel, name in enumerate(NAMES, start=1)}
        for paths in (calls[:-1], calls)
    )
    enroll(tmp_path / "s", first, tiny)
    report = enroll(tmp_path / "s", both, new=True)
    assert report.left_out == dict.fromkeys(NAMES, len(calls) - 1)
    assert [one.utterances for one in report.model.speakers] == [len(calls)] * 2


def test_augmented_versions_are_of_the_channel(tmp_path, calls, alone, recordings, tiny_with):
    config = tiny_with("scoring.system=fused", 'augmentation.kinds=["telephone", "babble"]')
    both = {name: of_channel(name, calls, channel) for channel, name in enumerate(NAMES, start=1)}
    report = enroll(tmp_path / "channels", both, config)
    files = {name: alone(channel) for channel, name in enumerate(NAMES, start=1)}
    assert_same(report.model, enroll(tmp_path / "files", files, config).model)
    assert not [one for one in report.findings if one.check == "channels"]
    mixed = enroll(tmp_path / "mixed", {"both": calls, "lars": recordings["lars"]}, config)
    assert [one.speaker for one in mixed.warnings if one.check == "channels"] == ["both"]


def test_a_channel_for_all_leaves_an_utterance_its_own(tmp_path, calls, alone, tiny):
    given = {"anna": calls, "ivan": of_channel("ivan", calls, 2)}
    report = enroll(tmp_path / "channels", given, tiny, channel=1)
    assert_same(report.model, enroll(tmp_path / "files", {"anna": alone(1), "ivan": alone(2)}, tiny).model)
    corpus = as_corpus(given)
    assert corpus.of_channel(None) == corpus
    with pytest.raises(AudioError, match="channels are numbered from 1, got channel 0"):
        enroll(tmp_path / "none", given, tiny, channel=0)
    assert not (tmp_path / "none").exists()


def test_files_without_the_channel_are_skipped_with_the_reason(tmp_path, calls, alone, tiny):
    mono = alone(1)
    report = enroll(tmp_path / "s", {"ivan": [*calls, mono[0]], "anna": of_channel("anna", mono, 1)}, tiny, channel=2)
    assert [path for path, _ in report.skipped] == [mono[0]]
    assert report.skipped[0][1].startswith("channel 2 was to be read, and the recording has 1 channel;")
    with pytest.raises(NotEnoughSpeechError, match="channel 3 was to be read, and the recording has 2 channels"):
        enroll(tmp_path / "t", {"ivan": calls}, tiny, channel=3)


def test_channels_that_differ_and_are_mixed_warn_or_are_refused(tmp_path, calls, alone, recordings, tiny):
    inverted = [tmp_path / f"inverted{number}.wav" for number in range(6)]
    for path, one in zip(inverted, recordings["dexter"], strict=False):
        samples = soundfile.read(one.path)[0]
        soundfile.write(path, np.stack([samples, -0.8 * samples], axis=1), 8000)
    same = [tmp_path / f"same{number}.wav" for number in range(6)]
    for path, one in zip(same, recordings["lars"], strict=False):
        samples = soundfile.read(one.path)[0]
        soundfile.write(path, np.stack([samples, samples], axis=1), 8000)
    speakers = {"both": [*alone(1)[:2], *calls], "dexter": inverted, "lars": same}
    warned = [one for one in enroll(tmp_path / "warned", speakers, tiny).warnings if one.check == "channels"]
    assert [one.speaker for one in warned] == ["both", "dexter"]
    assert warned[0].reason == (
        f"speaker 'both': {len(calls)} of {len(calls) + 2} recordings are the mean of channels that differ, the first"
        f" of them {calls[0]}. Two people, or one channel inverted? Enroll one channel: --channel N (channel=N)"
    )
    strict = enroll(tmp_path / "strict", speakers, tiny, quality=ChecksConfig(channels="refuse"))
    assert [name for name, _ in strict.refused] == ["both", "dexter"]
    off = enroll(tmp_path / "off", speakers, tiny, quality=ChecksConfig(channels="off"))
    assert not [one for one in off.findings if one.check == "channels"]
    with pytest.raises(EnrollmentRefusedError, match="channels that differ"):
        enroll(tmp_path / "none", {"both": calls}, tiny, quality=ChecksConfig(channels="refuse"))


def test_the_command_enrolls_a_channel_and_warns_of_a_mixture(inside, tmp_path, calls, alone):
    for channel, name in enumerate(NAMES, start=1):
        for folder, paths in (("calls", calls), ("alone", alone(channel))):
            (tmp_path / folder / name).mkdir(parents=True)
            for number, path in enumerate(paths):
                (tmp_path / folder / name / f"{number}.wav").write_bytes(path.read_bytes())
    (tmp_path / "tiny.toml").write_text("[codebook]\ncentroids = 8\n[checks]\nduplicates = 'off'\nmatches = 'off'\n")
    words = ("--config", "tiny.toml", "--only", "anna", "--json")
    mixed = inside("enroll", "calls", "--store", "mixed", *words).lines[0]
    assert [one["check"] for one in mixed["warnings"]] == ["channels"]
    chosen = inside("enroll", "calls", "--store", "chosen", "--channel", 1, *words).lines[0]
    files = inside("enroll", "alone", "--store", "files", *words).lines[0]
    assert (chosen["warnings"], chosen["enrolled"]) == ([], files["enrolled"])
    assert chosen["enrolled"] != mixed["enrolled"]
    missing = inside("enroll", "alone", "--store", "none", "--channel", 2, *words)
    assert missing.code == 3
    assert "channel 2 was to be read, and the recording has 1 channel" in missing.err


def test_turns_of_an_rttm_file_in_two_channels_are_read_from_theirs(tmp_path, calls, alone, tiny):
    turns = []
    for call in calls:
        (tmp_path / call.name).write_bytes(call.read_bytes())
        seconds = soundfile.info(call).duration
        for channel, name in enumerate(NAMES, start=1):
            turns.append(f"SPEAKER {call.stem} {channel} 0.0 {seconds} <NA> <NA> {name} <NA> <NA>\n")
    (tmp_path / "calls.rttm").write_text("".join(turns))
    corpus = read_corpus(tmp_path)
    for channel, name in enumerate(NAMES, start=1):
        assert [(one.path.name, one.channel) for one in corpus.speakers[name]] == [(c.name, channel) for c in calls]
    files = {name: alone(channel) for channel, name in enumerate(NAMES, start=1)}
    assert_same(enroll(tmp_path / "turns", corpus, tiny).model, enroll(tmp_path / "files", files, tiny).model)
    (tmp_path / "calls.rttm").write_text("".join(turn for turn in turns if " 1 " in turn))
    assert {one.channel for one in read_corpus(tmp_path).speakers["anna"]} == {None}
