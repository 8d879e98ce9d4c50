"""Decoding, segments and errors, on real encoded files."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from permissions import as_another_user, open_folder
from waves import RATE, decode

from pipeline.audio.files import open_audio
from pipeline.errors import AudioError

# Coding: the largest error of a sample.
STEPS = {"PCM_16": 2**-15, "PCM_24": 2**-23, "PCM_U8": 2**-7, "PCM_S8": 2**-7, "ALAC_16": 2**-15, "DOUBLE": 0.0}
LOSSLESS = [f"{kind} PCM_16" for kind in ("WAV", "WAVEX", "RF64", "FLAC", "AIFF", "AU", "CAF", "NIST")]
LOSSLESS += ["WAV PCM_U8", "WAV DOUBLE", "W64 PCM_24", "FLAC PCM_24", "FLAC PCM_S8", "CAF ALAC_16"]
# Coding: rate in Hz, and the least signal-to-noise ratio in dB.
LOSSY = {
    "OGG VORBIS": (16_000, 15.0),
    "OGG OPUS": (16_000, 8.0),
    "MP3 MPEG_LAYER_III": (16_000, 15.0),
    "WAV ULAW": (8_000, 25.0),
    "WAV ALAW": (8_000, 25.0),
    "NIST ULAW": (8_000, 25.0),
    "WAV IMA_ADPCM": (8_000, 15.0),
    "WAV MS_ADPCM": (8_000, 15.0),
    "WAV GSM610": (8_000, 3.0),
}


def voice(seconds: float = 1.0, rate: int = RATE) -> np.ndarray:
    """A decaying chord with a little noise: something every codec can follow."""
    t = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(0).standard_normal(len(t))
    return 0.3 * np.sin(880 * np.pi * t) + 0.2 * np.sin(2345 * np.pi * t) * np.cos(4 * t) + 0.002 * noise


def encode(path: Path, samples: np.ndarray, rate: int = RATE, coding: str = "WAV PCM_16") -> Path:
    kind, subtype = coding.split()
    if kind not in soundfile.available_formats() or subtype not in soundfile.available_subtypes(kind):
        pytest.skip(f"this libsndfile was built without {coding}")
    soundfile.write(path, samples, rate, format=kind, subtype=subtype)
    return path


@pytest.mark.parametrize("coding", LOSSLESS)
def test_lossless_formats_give_the_samples_within_their_quantisation(tmp_path, coding):
    x = voice()
    with open_audio(encode(tmp_path / "a.bin", x, coding=coding)) as audio:
        assert (audio.rate, audio.channels, audio.frames) == (RATE, 1, len(x))
        y = np.concatenate(list(audio.blocks(1000)))
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, x, rtol=0, atol=STEPS[coding.split()[1]])


@pytest.mark.parametrize("coding", LOSSY)
def test_lossy_formats_stay_close(tmp_path, coding):
    rate, decibels = LOSSY[coding]
    x = voice(2.0, rate)
    y = decode(encode(tmp_path / "a.bin", x, rate, coding))
    assert abs(len(y) - len(x)) < 0.1 * rate
    x, y = x[: len(y)], y[: len(x)]
    assert 10 * np.log10(np.sum(x**2) / np.sum((x - y) ** 2)) > decibels


@pytest.mark.parametrize("coding", [*LOSSLESS, *LOSSY])
def test_samples_do_not_depend_on_the_size_of_the_blocks(tmp_path, coding):
    path = encode(tmp_path / "a.bin", voice(), coding=coding)
    whole = decode(path, 10**12)
    for size in (79, 1000, 16_384):
        assert np.array_equal(decode(path, size), whole)
    with path.open("rb") as file:
        assert np.array_equal(decode(file), whole)
        assert not file.closed


@pytest.mark.parametrize("channels", [2, 3, 17, 64])
def test_channels_become_their_mean(tmp_path, channels):
    x = np.random.default_rng(1).uniform(-1, 1, (1000, channels))
    path = encode(tmp_path / "a.wav", x, coding="WAV DOUBLE")
    y = decode(path)
    np.testing.assert_allclose(y, x.mean(axis=1), rtol=0, atol=1e-14)
    assert np.array_equal(decode(path, 1), y)


def test_float_files_are_not_clipped(tmp_path):
    x = np.array([0.0, 3.5, -40_000.0, 2.0**31])
    assert np.array_equal(decode(encode(tmp_path / "a.wav", x, coding="WAV DOUBLE")), x)


def test_no_block_is_longer_than_asked_for(tmp_path):
    path = encode(tmp_path / "a.wav", voice())
    with open_audio(path) as audio:
        assert [len(block) for block in audio.blocks(7000)] == [7000, 7000, 2000]
        assert list(audio.blocks()) == []
        with pytest.raises(AudioError, match="at least 1 sample, got size 0"):
            next(audio.blocks(0))


@pytest.mark.parametrize("name", ["a.raw", "a.mp3", "a.gsm", "a.vox", "a", "a.txt"])
def test_the_suffix_is_not_believed(tmp_path, name):
    np.testing.assert_allclose(decode(encode(tmp_path / name, voice())), voice(), rtol=0, atol=2**-15)


def sphere(samples: np.ndarray, coding: str) -> bytes:
    """A NIST SPHERE file of 16-bit samples at 8 kHz, as the LDC's corpora have them."""
    header = (
        f"NIST_1A\n   1024\ndatabase_id -s4 YOHO\nsample_count -i {len(samples)}\nsample_rate -i 8000\n"
        "channel_count -i 1\nsample_n_bytes -i 2\nsample_byte_format -s2 01\nsample_sig_bits -i 16\n"
        f"{coding}end_head\n"
    )
    return header.encode().ljust(1024, b"\0") + np.round(samples * 2**15).astype("<i2").tobytes()


def test_a_sphere_file_called_wav(tmp_path):
    x, path = voice(1.0, 8000), tmp_path / "26_81_57.WAV"
    for coding in ("", "sample_coding -s3 pcm\n"):
        path.write_bytes(sphere(x, coding))
        with open_audio(path) as audio:
            assert audio.rate == 8000
            np.testing.assert_allclose(np.concatenate(list(audio.blocks())), x, rtol=0, atol=2**-15)
    path.write_bytes(sphere(x, "sample_coding -s26 pcm,embedded-shorten-v2.00\n"))
    with pytest.raises(AudioError, match=r"26_81_57\.WAV.*shorten.*sph2pipe"):
        open_audio(path)


# Segments

SEEKING = ["WAV PCM_16", "FLAC PCM_16", "OGG VORBIS", "OGG OPUS", "MP3 MPEG_LAYER_III", "WAV GSM610", "AU ULAW"]


@pytest.mark.parametrize("coding", SEEKING)
def test_a_segment_is_the_slice_of_the_whole(tmp_path, coding):
    path = encode(tmp_path / "a.bin", voice(2.0), coding=coding)
    whole = decode(path)
    for start, end in [(0.25, 0.75), (None, 0.5), (1.1, None), (1.99, 2.4), (0.0, 1e308)]:
        last = len(whole) if end is None else round(min(end, 9.0) * RATE)
        with open_audio(path, start=start, end=end) as audio:
            frames = audio.frames
            part = np.concatenate(list(audio.blocks(777)))
        assert np.array_equal(part, whole[round((start or 0.0) * RATE) : last])
        assert frames == len(part)


@pytest.mark.parametrize(
    ("start", "end"),
    [(-1.0, None), (1.0, 1.0), (1.0, 0.5), (np.nan, None), (0.0, np.nan), (np.inf, None), ("0", 1.0), (0.0, "1")],
)
def test_a_segment_without_extent_is_refused(tmp_path, start, end):
    path = encode(tmp_path / "a.wav", voice())
    with pytest.raises(AudioError, match=r"a\.wav.*0 <= start < end"):
        open_audio(path, start=start, end=end)


@pytest.mark.parametrize("coding", ["WAV PCM_16", "MP3 MPEG_LAYER_III"])
def test_a_segment_must_start_inside_the_audio_and_end_there_or_soon_after(tmp_path, coding):
    path = encode(tmp_path / "a.bin", voice(), coding=coding)
    with pytest.raises(AudioError, match=r"a\.bin.*start at 3\.000 s of 1\.0"):
        decode(path, start=3.0)
    assert len(decode(path, end=1.45)) == len(decode(path))
    with pytest.raises(AudioError, match=r"a\.bin.*at most 0\.5 s after the audio, got an end at 1\.750 s of"):
        decode(path, start=0.5, end=1.75)


# Errors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be empty"),
        (b"hello, this is no audio at all\n" * 20, "text"),
        ("Grüße an alle Zuhörer\n".encode() * 5, "text"),
        (b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(200), "ffmpeg -i"),
        (b"\x1aE\xdf\xa3" + bytes(200), "ffmpeg -i"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "damaged"),
        (bytes(500), "not in an audio format"),
    ],
)
def test_content_that_is_not_audio(tmp_path, content, message, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no ffmpeg
    (tmp_path / "claim.wav").write_bytes(content)
    for source, name in ((tmp_path / "claim.wav", r"claim\.wav"), (io.BytesIO(content), "audio")):
        with pytest.raises(AudioError, match=rf"(?s){name}: .*{message}"):
            decode(source)


@pytest.mark.parametrize("coding", ["ULAW", "ALAW"])
def test_samples_without_a_header_are_not_taken_for_text(tmp_path, coding):
    samples = np.pad(voice(), 4000) + np.random.default_rng(0).normal(0.0, 1e-4, RATE + 8000)
    soundfile.write(tmp_path / "call.ul", samples, 8000, format="RAW", subtype=coding)
    with pytest.raises(AudioError, match="to samples without a header, ffmpeg -f mulaw") as caught:
        open_audio(tmp_path / "call.ul")
    assert "text" not in str(caught.value)
    (tmp_path / "note.wav").write_bytes("Größe und Länge\n".encode("latin-1") * 20)
    with pytest.raises(AudioError, match="it holds text"):
        open_audio(tmp_path / "note.wav")


def test_a_damaged_flac_names_the_time(tmp_path):
    path = encode(tmp_path / "a.flac", voice(3.0), coding="FLAC PCM_16")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    path.write_bytes(data)
    for start in (None, 1.5):
        with pytest.raises(AudioError, match=r"a\.flac: decoding fails at \d\.\d{3} s \(.*damaged"):
            decode(path, start=start)


@pytest.mark.parametrize("coding", [*LOSSLESS, *LOSSY])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.8])
def test_a_truncated_file_gives_its_beginning_or_an_audio_error(tmp_path, coding, share):
    path = encode(tmp_path / "a.bin", voice(), coding=coding)
    whole = decode(path)
    data = path.read_bytes()
    path.write_bytes(data[: round(len(data) * share)])
    try:
        part = decode(path)
    except AudioError as error:
        assert "a.bin" in str(error)
    else:
        assert len(part) <= len(whole)
        sure = max(0, len(part) - RATE // 5)  # a codec may change its last, incomplete packets
        np.testing.assert_allclose(part[:sure], whole[:sure], rtol=0, atol=1e-3)


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (-np.inf, "-inf"), (1e300, r"1e\+300")])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_that_are_not_finite_are_named_by_their_time(tmp_path, value, shown, channels):
    x = np.zeros((20_000, channels))
    x[8000, -1] = x[12_000, 0] = value
    path = encode(tmp_path / "a.wav", x, coding="WAV DOUBLE")
    with pytest.raises(AudioError, match=rf"a\.wav: .*got {shown} at 0\.500000 s \(frame 8000\)"):
        decode(path, 999)
    assert len(decode(path, start=0.6, end=0.7)) == 1600


@pytest.mark.parametrize(
    ("rate", "channels", "problem"),
    [
        *((rate, 1, f".*between 2000 and 768000 Hz, got {rate}") for rate in (1, 1999, 768_001, 2**31 - 1)),
        (RATE, 65, "1 to 64 channels can be read, got 65"),
    ],
)
def test_rates_and_channels_out_of_range(tmp_path, rate, channels, problem):
    with pytest.raises(AudioError, match=rf"a\.wav: {problem}"):
        open_audio(encode(tmp_path / "a.wav", np.zeros((10, channels)), rate))


class Broken(io.BytesIO):
    """Fails after a number of reads, and counts them."""

    def __init__(self, data: bytes, good_reads: float, error: BaseException) -> None:
        super().__init__(data)
        self.good_reads, self.error, self.reads = good_reads, error, 0

    def read(self, *args):
        self.reads += 1
        if self.reads > self.good_reads:
            raise self.error
        return super().read(*args)


@pytest.mark.parametrize("coding", ["WAV PCM_16", "FLAC PCM_16"])
@pytest.mark.parametrize("error", [OSError("disk on fire"), KeyboardInterrupt()], ids=["OSError", "Ctrl-C"])
def test_a_file_that_fails_under_way_is_not_taken_for_its_end(tmp_path, coding, error, capfd):
    data = encode(tmp_path / "a", voice(), coding=coding).read_bytes()
    healthy = Broken(data, np.inf, error)
    decode(healthy, 100)
    for good_reads in range(min(healthy.reads, 12)):
        with pytest.raises(AudioError if isinstance(error, OSError) else KeyboardInterrupt):
            decode(Broken(data, good_reads, error), 100)
    assert capfd.readouterr().err == ""


def test_a_pipe_is_not_a_file():
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as file, pytest.raises(AudioError, match="seekable"):
        open_audio(file)


def test_a_closed_reader_says_so(tmp_path):
    with open_audio(encode(tmp_path / "a.wav", voice())) as audio:
        blocks = audio.blocks(100)
        next(blocks)
    with pytest.raises(AudioError, match=r"a\.wav: the file has been closed"):
        next(blocks)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs users whom permissions stop")
def test_a_file_without_read_permission_is_named_with_what_to_do():
    with open_folder() as folder:
        (folder / "a.wav").write_bytes(b"RIFF")
        (folder / "a.wav").chmod(0)

        def check() -> None:
            with pytest.raises(AudioError, match=r"a\.wav: this user may not read it; change its permissions"):
                open_audio(folder / "a.wav")

        as_another_user(check)
