"""Formats that libsndfile does not read: decoded by a real ffmpeg; without one, the error says how to convert them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hostile import two_faced
from waves import decode, noise, tone

from pipeline.audio import ffmpeg
from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.audio.files import open_audio, read_samples
from pipeline.errors import AudioError

RATE = 16_000
needs_ffmpeg = pytest.mark.skipif(not ffmpeg.is_available(), reason="needs ffmpeg")
CODINGS = {
    "memo.m4a": ("-c:a", "aac"),
    "lossless.m4a": ("-c:a", "alac"),
    "memo.aac": ("-c:a", "aac"),
    "page.webm": ("-c:a", "libopus"),
    "page.weba": ("-c:a", "libopus", "-f", "webm"),
    "film.mp4": ("-c:a", "aac"),
    "phone.3gp": ("-c:a", "aac"),
    "memo.wma": ("-c:a", "wmav2"),
    "memo.mka": ("-c:a", "flac"),
    "memo.wv": ("-c:a", "wavpack"),
}


@pytest.fixture
def without_ffmpeg(monkeypatch, tmp_path):
    """A PATH on which no program is."""
    monkeypatch.setenv("PATH", str(tmp_path / "no programs"))


@pytest.fixture
def encoded(tmp_path):
    """encoded(name): a file in that container, and the samples that were encoded."""

    def encode(name: str, channels: int = 1, seconds: int = 2) -> tuple[Path, np.ndarray]:
        samples = tone(440.0, seconds=seconds) + 0.1 * noise(seconds * RATE)
        soundfile.write(tmp_path / "given.wav", np.repeat(samples[:, None], channels, axis=1), RATE)
        words = ["ffmpeg", "-v", "error", "-y", "-i", tmp_path / "given.wav", *CODINGS[name], tmp_path / name]
        subprocess.run(words, check=True)
        return tmp_path / name, samples

    return encode


@needs_ffmpeg
@pytest.mark.parametrize("name", CODINGS)
def test_a_file_is_decoded_to_the_sound_that_went_in(encoded, name):
    path, samples = encoded(name)
    with open_audio(path) as audio:
        rate, channels = audio.rate, audio.channels
    assert (rate, channels) == (48_000 if name.startswith("page") else RATE, 1)
    decoded = decode(path)
    assert len(decoded) / rate == pytest.approx(2.0, abs=0.2)
    spectrum, given = (np.abs(np.fft.rfft(x, 2 * r)) / r for x, r in ((decoded, rate), (samples, RATE)))
    kept = slice(20, 8000)  # up to 4 kHz, in steps of half a hertz
    assert np.corrcoef(spectrum[kept], given[kept])[0, 1] > 0.9
    if name.startswith("lossless"):
        np.testing.assert_allclose(decoded[: len(samples)], samples, atol=2**-15)


@needs_ffmpeg
def test_blocks_and_segments_are_those_of_any_file(encoded):
    path, samples = encoded("lossless.m4a", channels=2)
    whole = decode(path)
    for size in (1, 160, 10**6):
        np.testing.assert_array_equal(decode(path, size, start=0.5, end=0.75), whole[8000:12_000])
    np.testing.assert_array_equal(read_samples(Utterance("anna", path))[0], whole)
    np.testing.assert_allclose(whole, samples, atol=2**-15)
    with pytest.raises(AudioError, match=r"start at 3\.000 s of 2\.000 s"):
        decode(path, start=3.0)


@needs_ffmpeg
def test_a_file_cut_short_is_no_shorter_recording(encoded):
    path, _ = encoded("memo.wv", seconds=30)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(1000))
    with pytest.raises(AudioError, match=r"memo\.wv: .*ffmpeg.*damaged or cut short"):
        decode(path)
    path, _ = encoded("memo.m4a")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(AudioError, match=r"memo\.m4a: ffmpeg cannot decode it \([^\[].*cut short.*interrupted"):
        open_audio(path)


@needs_ffmpeg
@pytest.mark.parametrize("name", ["page.webm", "memo.mka"])
@pytest.mark.parametrize("live", ["0", "1"])
@pytest.mark.parametrize("share", [0.4, 0.7, 0.95])
def test_a_matroska_file_cut_short_is_no_shorter_recording(encoded, tmp_path, name, live, share):
    path, _ = encoded(name, seconds=12)
    copy = tmp_path / f"live-{name}"
    subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-c", "copy", "-live", live, copy], check=True)
    assert len(decode(copy)) == pytest.approx(len(decode(path)), rel=0.01)
    data = copy.read_bytes()
    copy.write_bytes(data[: round(share * len(data))])
    with pytest.raises(AudioError, match=rf"{name}: decoding fails at \d.*File ended prematurely.*cut short"):
        decode(copy)


@needs_ffmpeg
def test_a_film_without_sound_is_said_to_have_none(tmp_path):
    words = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=d=1:s=64x64", "-c:v", "mpeg4"]
    subprocess.run([*words, tmp_path / "film.mp4"], check=True)
    with pytest.raises(AudioError, match=r"film\.mp4: ffmpeg cannot decode it \(.*matches no streams.*has no sound"):
        open_audio(tmp_path / "film.mp4")


@needs_ffmpeg
def test_a_reader_that_is_left_leaves_no_process(encoded):
    path, _ = encoded("memo.m4a")
    with open_audio(path) as audio:
        next(audio.blocks(10))
        process = audio._decoder._process
    assert process.returncode is not None
    audio.close()


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_a_decoder_that_hangs_is_given_up(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "ffmpeg"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ffmpeg, "_PATIENCE", 0.2)
    (tmp_path / "a.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(200))
    with pytest.raises(AudioError, match=r"a\.m4a: ffmpeg gave nothing for 0\.2 s"):
        open_audio(tmp_path / "a.m4a")


def test_without_ffmpeg_the_line_that_converts_is_given(tmp_path, without_ffmpeg):
    (tmp_path / "an na").mkdir()
    memo, sound = tmp_path / "an na" / "memo.m4a", tmp_path / "an na" / "1.wav"
    memo.write_bytes(b"\0\0\0\x20ftypM4A " + bytes(200))
    line = f"ffmpeg -i '{memo}' '{memo.with_suffix('.wav')}'"
    with pytest.raises(AudioError) as caught:
        open_audio(memo)
    assert str(caught.value).startswith(f"{memo}: ") and line in str(caught.value)
    soundfile.write(sound, np.zeros(10), 8000)
    corpus = read_corpus(tmp_path)
    assert [utterance.path for utterance in corpus.speakers["an na"]] == [sound]
    ((path, reason),) = corpus.skipped
    assert path == memo and line in reason


@needs_ffmpeg
def test_with_ffmpeg_such_files_are_utterances(tmp_path):
    (tmp_path / "anna").mkdir()
    for name in CODINGS:
        (tmp_path / "anna" / name).touch()
    assert len(read_corpus(tmp_path).speakers["anna"]) == len(CODINGS)


def test_a_film_that_libsndfile_would_play_is_refused_where_it_has_no_path(tmp_path):
    content = two_faced()
    assert soundfile.info(io.BytesIO(content)).format == "MPC2K"
    with pytest.raises(AudioError, match=r"audio: it looks like AAC.*ffmpeg -i") as unnamed:
        open_audio(io.BytesIO(content))
    assert "path" not in str(unnamed.value)
    (tmp_path / "film.mp4").write_bytes(content)
    with (
        (tmp_path / "film.mp4").open("rb") as file,
        pytest.raises(AudioError, match=r"film\.mp4: .*: give its path, from which ffmpeg decodes it, or convert"),
    ):
        open_audio(file)


@needs_ffmpeg
def test_a_playlist_or_a_name_like_an_option_reads_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    soundfile.write("secret.wav", noise(RATE // 2), RATE)
    Path("list.m4a").write_text("ffconcat version 1.0\nfile secret.wav\n")
    Path("hls.m4a").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nsecret.wav\n#EXT-X-ENDLIST\n")
    for name in ("list.m4a", "hls.m4a"):
        with pytest.raises(AudioError, match="it holds text"):
            open_audio(name)
    subprocess.run(["ffmpeg", "-v", "error", "-i", "secret.wav", "-c:a", "alac", "memo.m4a"], check=True)
    shutil.copy("memo.m4a", "-y.m4a")
    assert len(decode(Path("-y.m4a"))) == 8000
