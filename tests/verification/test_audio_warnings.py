"""Warnings about the audio of a claim: speech through lines, limiters and noise, and none where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio.augmentation import mix_at_snr
from pipeline.audio.channels import telephone
from pipeline.audio.levels import Clipping
from pipeline.config import FeatureSettings
from pipeline.enrollment.enroll import enroll
from pipeline.features.frontend import FrontEnd
from pipeline.features.quality import SpeechMeter
from pipeline.scoring.decisions import Decision, Update
from pipeline.scoring.sequential import SequentialTest
from pipeline.verification.audio_warnings import WARNINGS, codes
from pipeline.verification.policies import Sequential
from pipeline.verification.verifier import Verifier

CUTS = st.lists(st.integers(0, 30_000), max_size=12)


def verified(verifier: Verifier, samples: np.ndarray, rate: int) -> Update:
    stream = verifier.stream(rate)
    stream.push(samples)
    return stream.close()


def measured(features: FeatureSettings, rate: int, *parts: np.ndarray) -> SpeechMeter:
    """Measurements of a front end on the speech in ``parts``, one after another."""
    meter = SpeechMeter(features)
    front_end = FrontEnd(features, rate, meter=meter)
    for part in parts:
        front_end.push(part)
    front_end.flush()
    return meter


def clipped(samples: np.ndarray) -> np.ndarray:
    return 0.5 * np.clip(4 * samples / np.abs(samples).max(), -1, 1)


def noisy(samples: np.ndarray, snr_db: float) -> np.ndarray:
    return mix_at_snr(samples, np.random.default_rng(0).standard_normal(len(samples)), snr_db)


@pytest.fixture(scope="module")
def wide(tmp_path_factory, wide_band, tiny_with) -> Verifier:
    """Anna's claim on a wide-band store."""
    speakers = {voice: wide_band[voice] for voice in ("anna", "ivan")}
    path = tmp_path_factory.mktemp("verified") / "s"
    return Verifier(enroll(path, speakers, tiny_with("features.rate=16000")).model, "anna")


# What warns, and what does not


def test_no_verification_file_of_the_demo_warns(opened, demo):
    verifier = Verifier(opened, "anna")
    files = sorted((demo / "verify").glob("*/*.flac"))
    assert len(files) == 84
    assert {file.name: verifier.verify_file(file).warnings for file in files} == {file.name: () for file in files}


def test_telephone_audio_warns_on_a_wide_band_store_and_the_original_does_not(wide, heard):
    for voice in ("anna", "ivan", "lars"):
        samples = soundfile.read(heard(voice))[0]
        line = telephone(samples, 16_000)
        assert "narrow_band" not in codes(verified(wide, samples, 16_000).warnings)
        assert "narrow_band" in codes(verified(wide, line, 16_000).warnings)
        assert "narrow_band" in codes(verified(wide, line[::2], 8000).warnings)


def test_narrow_band_audio_is_as_expected_where_the_enrollment_was_so_too(tmp_path, recordings, heard, tiny_with):
    speakers = {name: recordings[name] for name in ("anna", "ivan")}
    kept = enroll(tmp_path / "kept", speakers, tiny_with("features.rate=16000", "features.narrow_band=false")).model
    assert kept.high_band("anna") < -90
    narrowed = enroll(tmp_path / "narrowed", speakers, tiny_with("features.rate=16000")).model
    assert narrowed.high_band("anna") is None
    for model in (kept, narrowed):
        assert Verifier(model, "anna").verify_file(heard("anna")).warnings == ()


@pytest.mark.parametrize(
    ("change", "code", "check"),
    [(clipped, "clipping", "clipping"), (lambda samples: noisy(samples, 0), "noise", "noise")],
)
def test_clipped_and_noisy_audio_warns_unless_the_check_is_off(opened, heard, tiny_with, change, code, check):
    off = replace(opened, config=tiny_with(f"checks.{check}=off"))
    for voice in ("anna", "dexter", "ivan"):
        samples, rate = soundfile.read(heard(voice))
        changed = change(samples)
        assert code in codes(verified(Verifier(opened, voice), changed, rate).warnings)
        assert code not in codes(verified(Verifier(off, voice), changed, rate).warnings)


def test_little_speech_warns_but_for_a_sequential_test_which_decides_when_it_suffices(opened, said):
    samples, rate = said
    stream = Verifier(opened, "anna", update_ms=0).stream(rate)
    updates = [stream.push(part) for part in np.array_split(samples, 100)]
    least = opened.config.min_frames
    for update in updates:
        if update.frames < least:
            assert update.warnings == ()
    short = next(number for number, update in enumerate(updates) if update.frames >= least)
    audio = np.concatenate(np.array_split(samples, 100)[: short + 1])
    result = verified(Verifier(opened, "anna"), audio, rate)
    assert least <= result.frames < 2 * least
    assert codes(result.warnings) == ["little_speech"]
    assert codes(updates[short].warnings) == ["little_speech"]
    assert stream.close().warnings == ()
    early = Verifier(opened, "anna", decide_by=Sequential(SequentialTest(0.001, 0.001)))
    assert verified(early, audio, rate).warnings == ()


def test_a_changed_condition_warns_where_the_enrollment_was_augmented(tmp_path, recordings, voices, heard, tiny_with):
    config = tiny_with("scoring.system=fused", 'augmentation.kinds=["telephone", "noise"]', "augmentation.min_snr_db=0")
    model = enroll(tmp_path / "s", {name: recordings[name] for name in voices}, config).model
    found = {"recorded": 0, "line": 0}
    for voice in voices:
        verifier = Verifier(model, voice)
        for number in range(3):
            samples, rate = soundfile.read(heard(voice, number))
            for name, audio in (("recorded", samples), ("line", telephone(samples, rate))):
                found[name] += "condition" in codes(verified(verifier, audio, rate).warnings)
    assert found["recorded"] == 0
    assert found["line"] >= 9, found


def test_music_and_noise_in_bursts_warn_as_outliers_and_are_rejected_and_speech_does_not(
    tmp_path, recordings, voices, heard, tiny_with
):
    config = tiny_with("scoring.system=fused", 'augmentation.kinds=["telephone", "noise"]')
    model = enroll(tmp_path / "s", {name: recordings[name] for name in voices}, config).model
    random, seconds = np.random.default_rng(0), np.arange(3 * 8000) / 8000
    bursts = np.abs(np.sin(np.pi * 3 * seconds)) ** 2
    for voice in voices:
        verifier = Verifier(model, voice)
        for number in range(3):
            samples, rate = soundfile.read(heard(voice, number))
            assert "outlier" not in codes(verified(verifier, samples, rate).warnings)
            notes = sum(np.sin(2 * np.pi * pitch * seconds) for pitch in random.uniform(200, 900, 3))
            for sound in (notes * bursts, random.standard_normal(len(seconds)) * bursts):
                result = verified(verifier, 0.1 * sound, 8000)
                assert result.decision == Decision.REJECTED
                assert "outlier" in codes(result.warnings)


@pytest.mark.parametrize("kind", ["float32", "float64", "int32"])
def test_integers_that_keep_their_size_in_another_type_warn_of_their_scale(opened, heard, kind):
    for voice in ("anna", "dexter", "ivan"):
        samples, rate = soundfile.read(heard(voice), dtype="int16")
        verifier = Verifier(opened, voice)
        assert "scale" not in codes(verifier.verify(samples, rate).warnings)
        assert "scale" in codes(verifier.verify(samples.astype(kind), rate).warnings)


@pytest.mark.parametrize(
    ("largest", "warns"),
    [(2.0**-16, True), (1.1 * 2.0**-16, False), (1.0, False), (4.0, False), (16.0, False), (16.1, True)],
)
def test_audio_warns_of_its_scale_where_no_recording_has_it(opened, said, largest, warns):
    samples, rate = said
    scaled = samples * (largest / np.abs(samples).max())
    assert ("scale" in codes(Verifier(opened, "anna").verify(scaled, rate).warnings)) is warns


def test_silence_and_no_audio_have_nothing_to_warn_of(opened, silence):
    result = Verifier(opened, "anna").verify_file(silence)
    assert (result.decision, result.warnings) == (Decision.NOT_ENOUGH_SPEECH, ())
    assert Verifier(opened, "anna").stream(8000).close().warnings == ()


def test_a_warning_changes_no_decision(opened, said, tiny_with):
    samples, rate = said
    warned, unwarned = (
        verified(Verifier(replace(opened, config=tiny_with(*checks)), "anna"), noisy(clipped(samples), 10), rate)
        for checks in (("checks.min_snr_db=60",), ("checks.clipping=off", "checks.noise=off"))
    )
    assert warned.warnings
    assert replace(warned, warnings=unwarned.warnings) == unwarned
    assert warned.warnings == tuple(f"{code}: {WARNINGS[code]}" for code in codes(warned.warnings))


# Any chunking


@settings(deadline=None, max_examples=10)
@given(cuts=CUTS)
def test_warnings_are_the_same_however_audio_is_cut(opened, said, tiny_with, cuts):
    """The bounds lie just beside what is measured, so that a single sample or frame would change the answer."""
    samples, rate = said
    audio = clipped(samples)
    audio = np.where(np.abs(audio) == 0.5, audio, noisy(audio, 30).clip(-0.49, 0.49))
    meter, counter, block = measured(opened.config.features, rate, audio), Clipping(), rate // 4
    for start in range(0, len(audio) - block + 1, block):
        counter.push(audio[start : start + block])
    assert counter.share > 0.01
    for sign, expected in ((-1, ["clipping"]), (1, ["noise"])):
        bounds = (
            f"checks.max_clipped={counter.share * (1 + sign * 1e-9)!r}",
            f"checks.min_snr_db={meter.snr_db + sign * 1e-9!r}",
        )
        stream = Verifier(replace(opened, config=tiny_with(*bounds)), "anna").stream(rate)
        for part in np.split(audio, sorted(cut % len(audio) for cut in cuts)):
            stream.push(part)
        assert codes(stream.close().warnings) == expected


@settings(deadline=None, max_examples=10)
@given(cuts=CUTS)
def test_the_meter_measures_the_same_however_audio_is_cut(said, cuts):
    samples, rate = said
    parts = np.split(samples, sorted(cut % len(samples) for cut in cuts))
    whole, cut = (measured(FeatureSettings(), rate, *of) for of in ([samples], parts))
    assert cut.snr_db == whole.snr_db
    assert cut.high_db == pytest.approx(whole.high_db, abs=1e-6)


# The measures


def test_the_ratio_is_that_of_steady_tones_and_the_band_that_of_their_powers():
    """Frames of known level: nine of speech at -20 dB to one of noise at -50, and a tenth of the power at 6 kHz."""
    features = FeatureSettings()
    seconds = np.arange(features.frame_length) / features.rate
    tone = np.sqrt(2) * (np.sqrt(0.9) * np.sin(2e3 * np.pi * seconds) + np.sqrt(0.1) * np.sin(12e3 * np.pi * seconds))
    levels = np.tile(np.r_[np.full(8, -20.0), -50.0, -50.0], 10)
    meter = SpeechMeter(features)
    meter.push(10 ** (levels / 20)[:, None] * tone, levels, levels == -20.0)
    assert meter.snr_db == pytest.approx(10 * np.log10((10**-2 - 10**-5) / 10**-5), abs=0.2)
    assert meter.high_db == pytest.approx(10 * np.log10(0.1 / 0.9), abs=0.1)
    assert SpeechMeter(features).snr_db is SpeechMeter(features).high_db is None


def test_a_store_at_eight_kilohertz_has_no_band_above_four(tiny, recordings):
    meter = measured(tiny.features, 8000, soundfile.read(recordings["anna"][0].path)[0])
    assert meter.snr_db > 10
    assert meter.high_db is None


# What shows them


def test_the_command_prints_warnings_and_the_log_names_their_codes(inside, store, said, tmp_path):
    samples, rate = said
    path = tmp_path / "loud.wav"
    soundfile.write(path, clipped(samples), rate)
    words = ("verify", store, "--claim", "anna", path)
    shown = inside(*words, "--log", "log")
    assert f"s of speech; clipping: {WARNINGS['clipping']}\n" in shown.out
    assert inside(*words, "--json").lines[0]["warnings"] == [f"clipping: {WARNINGS['clipping']}"]
    assert '"warnings":"clipping"' in Path(tmp_path / "log").read_text()
