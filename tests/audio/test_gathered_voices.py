"""Background voices gathered from what Debian's packages install: voices told apart, left out, and as they sound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import pipeline

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("klettres", "ktuberling/sounds", "tuxpaint/stamps", "asterisk/sounds", "gcin-voice/ogg")


@pytest.fixture
def share(tmp_path) -> Path:
    """Folders as the packages install them, with tones: a pitch per voice."""
    for folder in FOLDERS:
        (tmp_path / "share" / folder).mkdir(parents=True)
    return tmp_path / "share"


def write(path: Path, hz: float, *, seconds: float = 4.0, rate: int = 22_050) -> None:
    """Write a tone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tone = 0.1 * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)
    soundfile.write(path, tone, rate)


def gather(share: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "gather_background_voices", out, "--share", share]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_voice_is_a_folder_of_its_own_recordings(share, tmp_path):
    for number in range(12):
        write(share / "klettres" / "de" / "alpha" / f"{number}.ogg", 440)
        write(share / "klettres" / "fr" / "syllab" / f"{number}.wav", 880)
        write(share / "tuxpaint" / "stamps" / "animals" / f"{number}_desc_da.ogg", 660)
    for number in range(3):
        write(share / "tuxpaint" / "stamps" / "animals" / f"{number}_desc.ogg", 550)
        write(share / "klettres" / "tn" / "alpha" / f"{number}.ogg", 440)  # the same person as another voice
        write(share / "klettres" / "hu" / "alpha" / f"{number}.ogg", 330, rate=11_025)
    write(share / "klettres" / "nl" / "alpha" / "a.ogg", 330)
    (share / "klettres" / "de" / "alpha" / "sounds.txt").write_text("a.ogg: A")
    result = gather(share, tmp_path / "people")
    assert result.returncode == 0, result.stderr
    assert "left out klettres-nl: 4.0 s, 10 s needed\n" in result.stdout
    assert "left out klettres-hu: 0.0 s" in result.stdout
    assert "4 voices, " in result.stdout
    speakers = pipeline.read_corpus(tmp_path / "people").speakers
    pitches = {"klettres-de": 440, "klettres-fr": 880, "tuxpaint-da": 660, "tuxpaint-en": 550}
    assert list(speakers) == list(pitches)
    for name, hz in pitches.items():
        [utterance] = speakers[name]
        samples, rate = soundfile.read(utterance.path)
        assert rate == 16_000
        assert 12 <= len(samples) / rate < 35
        loudest = np.abs(np.fft.rfft(samples)).argmax() * rate / len(samples)
        assert loudest == pytest.approx(hz, abs=2)
    assert gather(share, tmp_path / "again").returncode == 0
    again, _ = soundfile.read(tmp_path / "again" / "klettres-de" / "voice.opus")
    assert np.array_equal(again, soundfile.read(tmp_path / "people" / "klettres-de" / "voice.opus")[0])


def test_a_package_that_is_not_there_is_named(share, tmp_path):
    (share / "gcin-voice" / "ogg").rmdir()
    result = gather(share, tmp_path / "people")
    assert result.returncode == 1
    assert "gcin-voice/ogg: not there; install the packages that --help names" in result.stderr
    assert not (tmp_path / "people").exists()
