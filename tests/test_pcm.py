"""Raw sample bytes, and audio that arrives through a pipe."""

from __future__ import annotations

import io
import os
import struct
import threading
import time

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import AudioError, StreamClosedError
from pipeline.pcm import PcmDecoder, PcmFormat, stream_pipe

RATE = 16_000
SUBTYPES = {
    "u8": "PCM_U8",
    "s16le": "PCM_16",
    "s24le": "PCM_24",
    "s32le": "PCM_32",
    "f32le": "FLOAT",
    "f64le": "DOUBLE",
    "mulaw": "ULAW",
    "alaw": "ALAW",
}


def noise(frames: int, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.9, 0.9, (frames, channels))


def wav_and_samples(encoding: str, channels: int = 1, frames: int = 500, kind: str = "WAV") -> tuple[bytes, np.ndarray]:
    """A WAV file as libsndfile writes it, and the mono samples that libsndfile reads from it."""
    file = io.BytesIO()
    soundfile.write(file, noise(frames, channels), RATE, format=kind, subtype=SUBTYPES[encoding])
    file.seek(0)
    samples, _ = soundfile.read(file, dtype="float64", always_2d=True)
    return file.getvalue(), samples.mean(axis=1)


def raw(encoding: str, channels: int = 1, frames: int = 500) -> tuple[bytes, np.ndarray]:
    file = io.BytesIO()
    values = noise(frames, channels)
    soundfile.write(file, values, RATE, format="RAW", subtype=SUBTYPES[encoding], endian="LITTLE")
    file.seek(0)
    samples, _ = soundfile.read(
        file,
        format="RAW",
        subtype=SUBTYPES[encoding],
        endian="LITTLE",
        samplerate=RATE,
        channels=channels,
        always_2d=True,
    )
    return file.getvalue(), samples.mean(axis=1)


def wav_header(size: int, *, fmt: bytes | None = None, before: bytes = b"", magic: bytes = b"RIFF") -> bytes:
    fmt = struct.pack("<HHIIHH", 1, 1, RATE, 2 * RATE, 2, 16) if fmt is None else fmt
    fmt_chunk = b"fmt " + struct.pack("<I", len(fmt)) + fmt
    return magic + b"\xff\xff\xff\xffWAVE" + before + fmt_chunk + b"data" + struct.pack("<I", size)


def collect(data: bytes, *args, **options) -> tuple[int, np.ndarray]:
    rate, blocks = stream_pipe(io.BytesIO(data), *args, **options)
    return rate, np.concatenate([np.empty(0), *blocks])


# Decoding bytes


@pytest.mark.parametrize("encoding", SUBTYPES)
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_bytes_decode_as_libsndfile_decodes_them(encoding, channels):
    data, expected = raw(encoding, channels)
    samples = PcmDecoder(PcmFormat(RATE, channels, encoding)).push(data)
    assert samples.dtype == np.float64
    assert np.abs(samples - expected).max() < 1e-15


@pytest.mark.parametrize("encoding", ["u8", "mulaw", "alaw"])
def test_all_256_codes(encoding):
    codes = bytes(range(256))
    expected, _ = soundfile.read(
        io.BytesIO(codes), format="RAW", subtype=SUBTYPES[encoding], samplerate=8000, channels=1
    )
    assert np.array_equal(PcmDecoder(PcmFormat(8000, 1, encoding)).push(codes), expected)


def test_the_ends_of_the_scale():
    extremes = np.array([-(2**15), 2**15 - 1, 0], "<i2").tobytes()
    assert PcmDecoder(PcmFormat(RATE)).push(extremes).tolist() == [-1.0, 1 - 2**-15, 0.0]
    extremes = b"\0\0\x80\xff\xff\x7f\0\0\0"
    assert PcmDecoder(PcmFormat(RATE, 1, "s24le")).push(extremes).tolist() == [-1.0, 1 - 2**-23, 0.0]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(SUBTYPES)), st.integers(1, 3), st.lists(st.integers(0, 40), max_size=200))
def test_bytes_may_be_cut_anywhere(encoding, channels, sizes):
    data, _ = raw(encoding, channels, 100)
    pcm = PcmFormat(RATE, channels, encoding)
    decoder, parts = PcmDecoder(pcm), []
    rest = memoryview(data)
    for size in [*sizes, len(data)]:
        parts.append(decoder.push(rest[:size]))
        rest = rest[size:]
    assert np.array_equal(np.concatenate(parts), PcmDecoder(pcm).push(data))


def test_an_unfinished_frame_is_dropped():
    decoder = PcmDecoder(PcmFormat(RATE, 2))
    assert decoder.push(b"\0\x40\0\x40\0\x40\0").tolist() == [0.5]
    assert decoder.flush().shape == (0,)
    with pytest.raises(StreamClosedError, match="flushed"):
        decoder.push(b"\0")


@pytest.mark.parametrize(("encoding", "kind"), [("f32le", "<f4"), ("f64le", "<f8")])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_samples_that_are_not_finite_are_named_by_their_time(encoding, kind, value):
    x = np.zeros(1000, kind)
    x[800] = value
    decoder = PcmDecoder(PcmFormat(8000, 2, encoding), where="stdin")
    decoder.push(x[:500].tobytes())
    with pytest.raises(AudioError, match=r"stdin: .*at 0\.050000 s \(frame 400\)"):
        decoder.push(x[500:].tobytes())


def test_a_signalling_nan_is_an_error_and_no_warning():
    with pytest.raises(AudioError, match="got nan"):
        PcmDecoder(PcmFormat(8000, 1, "f32le")).push(struct.pack("<I", 0x7FA00001))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((1999,), "between 2000 and 768000 Hz, got 1999"),
        ((RATE, 0), "1 to 64 channels can be read, got 0"),
        ((RATE, 65), "got 65"),
        ((RATE, 1, "s16be"), "one of u8, s16le, .*got 's16be'"),
    ],
)
def test_formats_out_of_range(fields, message):
    with pytest.raises(AudioError, match=f"raw audio format: .*{message}"):
        PcmFormat(*fields)


# Pipes


@pytest.mark.parametrize("encoding", SUBTYPES)
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", ["WAV", "WAVEX"])
def test_a_wav_through_a_pipe(encoding, channels, kind):
    data, expected = wav_and_samples(encoding, channels, kind=kind)
    rate, samples = collect(data)
    assert rate == RATE
    assert samples.shape == expected.shape
    assert np.abs(samples - expected).max() < 1e-15


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x80000000, 0x7FFFF000, 5000])
def test_an_unknown_data_size_means_until_the_end(size):
    samples = np.arange(-500, 500).astype("<i2")
    assert np.array_equal(collect(wav_header(size) + samples.tobytes())[1], samples / 2**15)


def test_what_follows_the_data_is_not_audio():
    data = wav_header(20) + bytes(20) + b"LIST\x04\0\0\0abcd"
    assert np.array_equal(collect(data, block_bytes=8)[1], np.zeros(10))


def test_unknown_chunks_are_skipped_and_odd_ones_padded():
    junk = b"LIST" + struct.pack("<I", 5) + b"hello\0" + b"JUNK" + struct.pack("<I", 200_000) + bytes(200_000)
    assert len(collect(wav_header(20, before=junk) + bytes(20))[1]) == 10


def test_rf64():
    ds64 = b"ds64" + struct.pack("<IQQQI", 28, 92, 20, 10, 0)
    assert len(collect(wav_header(0xFFFFFFFF, before=ds64, magic=b"RF64") + bytes(20))[1]) == 10


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ended inside the WAV header, 0 of 12 bytes"),
        (b"RIFF\0\0", "6 of 12 bytes"),
        (wav_header(0)[:30], "10 of 16 bytes"),
        (b"fLaC" + bytes(100), r"begins with b'fLaC.*--raw"),
        (b"RIFF\0\0\0\0AVI " + bytes(100), "must carry a WAV file"),
        (b"RIFF\0\0\0\0WAVEdata\0\0\0\0" + bytes(100), "'fmt ' chunk before its data"),
        (wav_header(0, fmt=bytes(14)), "at least 16 bytes, got 14"),
        (wav_header(0, fmt=struct.pack("<HHIIHH", 0x11, 1, RATE, 0, 256, 4)), r"format tag 0x11 with 4 bits"),
        (wav_header(0, fmt=struct.pack("<HHIIHH", 1, 1, RATE, 0, 2, 12)), "with 12 bits"),
        (wav_header(0, fmt=struct.pack("<HHIIHH", 1, 2, RATE, 0, 2, 16)), "2 channels and 2 bytes a frame"),
        (
            wav_header(0, fmt=struct.pack("<HHIIHH", 1, 1, 100, 0, 2, 16)),
            "between 2000 and 768000 Hz, got 100",
        ),
        (wav_header(0, fmt=struct.pack("<HHIIHH", 1, 0, RATE, 0, 0, 16)), "got 0"),
        (
            wav_header(0, fmt=struct.pack("<HHIIHH", 0xFFFE, 1, RATE, 0, 2, 16) + bytes(24)),
            "format tag 0xfffe",
        ),
    ],
)
def test_headers_that_cannot_be_used(data, message):
    with pytest.raises(AudioError, match=f"(?s)pipe: .*{message}"):
        stream_pipe(io.BytesIO(data))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_audio_or_an_audio_error(data, magic):
    try:
        _, samples = collect((b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" if magic else b"") + data)
    except AudioError:
        return
    assert np.isfinite(samples).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_header_gives_audio_or_an_audio_error(changes):
    damaged = bytearray(wav_header(0) + bytes(200))
    for position, value in changes:
        damaged[position] = value
    try:
        collect(bytes(damaged))
    except AudioError:
        return


@pytest.mark.parametrize("block_bytes", [1, 3, 4096])
def test_the_block_size_changes_nothing(block_bytes):
    data, expected = raw("s16le", 2)
    rate, samples = collect(data, PcmFormat(48_000, 2), block_bytes=block_bytes)
    assert rate == 48_000
    assert np.array_equal(samples, expected)


def test_a_block_must_have_a_size():
    with pytest.raises(AudioError, match="at least 1 byte, got block_bytes 0"):
        stream_pipe(io.BytesIO(b""), PcmFormat(RATE), 0)


@pytest.mark.parametrize("buffering", [-1, 0])
@pytest.mark.parametrize("with_header", [True, False])
def test_audio_is_handed_on_while_the_writer_still_writes(buffering, with_header):
    """Each piece is written only after the one before has come out: a reader that fills blocks would hang."""
    reading, writing = os.pipe()
    taken, pieces = threading.Semaphore(0), 5
    hung = threading.Event()

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            pipe.write(wav_header(0xFFFFFFFF) if with_header else b"")
            for _ in range(pieces):
                pipe.write(bytes(320))
                if not taken.acquire(timeout=10):
                    hung.set()
                    return

    writer = threading.Thread(target=write)
    writer.start()
    came = []
    with os.fdopen(reading, "rb", buffering=buffering) as pipe:
        rate, blocks = stream_pipe(pipe, None if with_header else PcmFormat(RATE))
        for block in blocks:
            came.append(len(block))
            assert writer.is_alive() or len(came) == pieces
            taken.release()
    writer.join()
    assert rate == RATE
    assert not hung.is_set()
    assert came == [160] * pieces


def test_a_slow_header_is_waited_for():
    reading, writing = os.pipe()
    data = wav_header(20) + bytes(20)

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            for at in range(0, len(data), 7):
                pipe.write(data[at : at + 7])
                time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, "rb") as pipe:
        _, blocks = stream_pipe(pipe)
        assert sum(map(len, blocks)) == 10
    writer.join()


def test_a_pipe_that_fails_is_an_audio_error():
    class Broken(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            raise OSError("unplugged")

    with pytest.raises(AudioError, match=r"pipe: .*unplugged"):
        stream_pipe(Broken())
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(AudioError, match="closed"):
        stream_pipe(closed)


@pytest.mark.skipif(not hasattr(os, "set_blocking"), reason="this system has no non-blocking pipes")
@pytest.mark.parametrize("buffering", [-1, 0])
def test_a_non_blocking_pipe_is_refused(buffering):
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        pipe = os.fdopen(reading, "rb", buffering=buffering)
        with pipe, pytest.raises(AudioError, match="blocking mode"):
            stream_pipe(pipe, PcmFormat(RATE))
    finally:
        os.close(writing)
