"""Stores of narrow-band recordings: features at 8 kHz, by which speech of any bandwidth can be verified."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.audio.channels import telephone
from pipeline.audio.corpus import Utterance
from pipeline.config import ChecksConfig, FeatureSettings
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.removal import remove_speaker
from pipeline.errors import ConfigError, EnrollmentRefusedError
from pipeline.store.model import SpeakerModel
from pipeline.verification.verifier import Verifier

VOICES = ("anna", "dexter", "ivan")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory, wide_band) -> dict[str, list[Utterance]]:
    """Wide-band speech by telephone, at 16 kHz."""
    folder, lines = tmp_path_factory.mktemp("narrow"), {}
    for voice, utterances in wide_band.items():
        for one in utterances:
            path = folder / one.path.name
            soundfile.write(path, telephone(soundfile.read(one.path)[0], 16_000), 16_000)
            lines.setdefault(voice, []).append(Utterance(voice, path))
    return lines


@pytest.fixture(scope="module")
def config(tiny_with):
    return tiny_with("features.rate=16000")


def test_recordings_that_end_at_4_khz_make_a_store_at_8_khz(tmp_path, recordings, config, tiny):
    speakers = {name: recordings[name] for name in VOICES}
    report = enroll(tmp_path / "found", speakers, config)
    assert report.narrow_band
    assert report.model.config == config.narrowed == tiny
    told = enroll(tmp_path / "told", speakers, tiny)
    assert not told.narrow_band
    for found, expected in zip(report.model.arrays, told.model.arrays, strict=True):
        assert set(found) == set(expected)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize(("lines", "rate"), [((), 16_000), (VOICES[:1], 16_000), (VOICES[:2], 8000), (VOICES, 8000)])
def test_most_speakers_decide(tmp_path, wide_band, narrow, config, lines, rate):
    speakers = {name: (narrow if name in lines else wide_band)[name] for name in VOICES}
    assert enroll(tmp_path / "s", speakers, config).model.config.features.rate == rate


def test_speakers_of_a_narrower_band_than_most_are_named(tmp_path, wide_band, narrow, config):
    first, second, third = VOICES

    def named(store: str, speakers: dict[str, list[Utterance]], **changes: object) -> list[str]:
        findings = enroll(tmp_path / store, speakers, config, **changes).findings
        return [finding.speaker for finding in findings if finding.check == "narrow_band"]

    assert named("together", {**wide_band, third: narrow[third]}) == [third]
    assert named("later", {first: wide_band[first], second: wide_band[second]}) == []
    assert named("later", {third: narrow[third]}) == [third]
    assert named("narrow", {first: narrow[first], second: narrow[second]}) == []
    assert named("narrow", {third: wide_band[third]}) == []
    refusing = ChecksConfig(narrow_band="refuse")
    with pytest.raises(EnrollmentRefusedError, match="end at about 4 kHz"):
        named("together", {"later": narrow[first]}, quality=refusing)


def test_later_enrollments_keep_the_rate_and_one_anew_chooses_it(tmp_path, wide_band, narrow, config, tiny_with):
    first, second, third = VOICES
    path = tmp_path / "s"
    enroll(path, {first: narrow[first]}, config)
    assert enroll(path, {second: wide_band[second]}, config).model.config.features.rate == 8000
    with pytest.raises(ConfigError, match=r"other settings \(they differ in features\)"):
        enroll(path, {third: narrow[third]}, tiny_with("features.rate=16000", "features.frame_ms=25"))
    everybody = {name: wide_band[name] for name in (first, second)}
    assert enroll(path, everybody, config, anew=True).model.config.features.rate == 16_000
    assert enroll(path, {third: narrow[third]}, config).model.config.features.rate == 16_000
    for name in VOICES:
        remove_speaker(path, name)
    assert enroll(path, {third: narrow[third]}).model.config.features.rate == 8000
    off = tiny_with("features.rate=16000", "features.narrow_band=false")
    assert enroll(tmp_path / "off", narrow, off).model.config.features.rate == 16_000


def test_an_encoder_keeps_its_rate():
    assert FeatureSettings(log_mel=True).narrowed == FeatureSettings(log_mel=True)
    assert FeatureSettings(rate=6000, frame_ms=30.0).narrowed.rate == 6000


def test_speech_by_a_wide_band_microphone_is_verified_against_lines(tmp_path, narrow, heard, config, tiny_with):
    off = tiny_with("features.rate=16000", "features.narrow_band=false")
    margins = []
    for number, settings in enumerate((config, off)):
        model = enroll(tmp_path / str(number), narrow, settings).model
        table = np.array([[scored(model, claim, heard(voice)) for voice in VOICES] for claim in VOICES])
        margins.append(np.diag(table).min() - table[~np.eye(len(VOICES), dtype=bool)].max())
    assert margins[0] > max(0.0, margins[1]), margins


def scored(model: SpeakerModel, claim: str, path: Path) -> float:
    """Return the score of a file that is played twice as fast."""
    return Verifier(model, claim).verify(soundfile.read(path)[0], 16_000).score


def test_the_command_says_what_it_found(inside, demo):
    settings = ("--set", "codebook.centroids=8", "--set", "supervector.speeds_below=0")
    named = ("--only", "anna", "--only", "ivan", *settings)
    assert "features are at 8 kHz" in inside("enroll", demo / "enroll", "--store", "s", *named).err
    assert json.loads(inside("enroll", demo / "enroll", "--store", "t", *named, "--json").out)["narrow_band"]
