"""Raw sample bytes, and audio that arrives through a pipe."""

from __future__ import annotations

import io
import os
import signal
import struct
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio.streams import PcmDecoder, PcmFormat, stream_pipe
from pipeline.errors import AudioError

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


def encoded(encoding: str, channels: int = 1, frames: int = 500, kind: str = "WAV") -> tuple[bytes, np.ndarray]:
    """A file in memory as libsndfile writes it, and the mono samples that libsndfile reads from it."""
    file, how = io.BytesIO(), {"format": kind, "subtype": SUBTYPES[encoding]}
    soundfile.write(file, np.random.default_rng(0).uniform(-0.9, 0.9, (frames, channels)), RATE, endian="FILE", **how)
    file.seek(0)
    raw = {**how, "samplerate": RATE, "channels": channels} if kind == "RAW" else {}
    samples, _ = soundfile.read(file, dtype="float64", always_2d=True, **raw)
    return file.getvalue(), samples.mean(axis=1)


def wav_header(size: int, *, fmt: bytes | None = None, before: bytes = b"", magic: bytes = b"RIFF") -> bytes:
    fmt = struct.pack("<HHIIHH", 1, 1, RATE, 2 * RATE, 2, 16) if fmt is None else fmt
    fmt_chunk = b"fmt " + struct.pack("<I", len(fmt)) + fmt
    return magic + b"\xff\xff\xff\xffWAVE" + before + fmt_chunk + b"data" + struct.pack("<I", size)


@contextmanager
def piped(data: bytes):
    """The reading end of a pipe that carries ``data``."""
    reading, writing = os.pipe()

    def write() -> None:
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(data)
        except BrokenPipeError:
            pass

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with os.fdopen(reading, "rb") as pipe:
            yield pipe
    finally:
        writer.join()


def collect(data: bytes, raw: PcmFormat | None = None) -> tuple[int, np.ndarray]:
    with piped(data) as pipe:
        rate, blocks = stream_pipe(pipe, raw)
        return rate, np.concatenate([np.empty(0), *blocks])


# Decoding bytes


@pytest.mark.parametrize("encoding", SUBTYPES)
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_bytes_decode_as_libsndfile_decodes_them(encoding, channels):
    data, expected = encoded(encoding, channels, kind="RAW")
    samples = PcmDecoder(PcmFormat(RATE, channels, encoding)).push(data)
    assert samples.dtype == np.float64
    assert np.abs(samples - expected).max() < 1e-15


def test_the_ends_of_the_scale():
    extremes = np.array([-(2**15), 2**15 - 1, 0], "<i2").tobytes()
    assert PcmDecoder(PcmFormat(RATE)).push(extremes).tolist() == [-1.0, 1 - 2**-15, 0.0]
    extremes = b"\0\0\x80\xff\xff\x7f\0\0\0"
    assert PcmDecoder(PcmFormat(RATE, 1, "s24le")).push(extremes).tolist() == [-1.0, 1 - 2**-23, 0.0]
    extremes = np.array([0, 128, 255], np.uint8).tobytes()
    assert PcmDecoder(PcmFormat(RATE, 1, "u8")).push(extremes).tolist() == [-1.0, 0.0, 1 - 2**-7]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(SUBTYPES)), st.integers(1, 3), st.lists(st.integers(0, 40), max_size=200))
def test_bytes_may_be_cut_anywhere(encoding, channels, sizes):
    data, _ = encoded(encoding, channels, 100, "RAW")
    pcm = PcmFormat(RATE, channels, encoding)
    decoder, parts = PcmDecoder(pcm), []
    rest = memoryview(data)
    for size in [*sizes, len(data)]:
        parts.append(decoder.push(rest[:size]))
        rest = rest[size:]
    assert np.array_equal(np.concatenate(parts), PcmDecoder(pcm).push(data))


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
@pytest.mark.parametrize(("channels", "kind"), [(1, "WAV"), (2, "WAVEX"), (2, "RAW")])
def test_audio_through_a_pipe(encoding, channels, kind):
    data, expected = encoded(encoding, channels, kind=kind)
    rate, samples = collect(data, PcmFormat(RATE, channels, encoding) if kind == "RAW" else None)
    assert rate == RATE
    assert samples.shape == expected.shape
    assert np.abs(samples - expected).max() < 1e-15


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x80000000, 0x7FFFF000, 5000])
def test_an_unknown_or_too_large_data_size_means_until_the_end(size):
    samples = np.arange(-500, 500).astype("<i2")
    assert np.array_equal(collect(wav_header(size) + samples.tobytes())[1], samples / 2**15)


def test_what_follows_the_data_is_not_audio():
    assert np.array_equal(collect(wav_header(20) + bytes(20) + b"LIST\x04\0\0\0abcd")[1], np.zeros(10))


def test_unknown_chunks_are_skipped_and_odd_ones_padded():
    junk = b"LIST" + struct.pack("<I", 5) + b"hello\0" + b"JUNK" + struct.pack("<I", 200_000) + bytes(200_000)
    assert len(collect(wav_header(20, before=junk) + bytes(20))[1]) == 10


def aiff() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(100), RATE, format="AIFF")
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a WAV file was expected"),
        (wav_header(20)[:30], "a WAV file was expected"),
        (b"fLaC" + bytes(100), "a WAV file was expected .*--raw"),
        (wav_header(0) + bytes(100), "no samples follow.*0xFFFFFFFF"),
        (aiff(), "must carry a WAV file, got AIFF"),
        (wav_header(20, fmt=struct.pack("<HHIIHH", 1, 1, 100, 200, 2, 16)) + bytes(20), "2000 and 768000 Hz, got 100"),
        (
            wav_header(260, fmt=struct.pack("<HHIIHH", 1, 65, RATE, 130 * RATE, 130, 16)) + bytes(260),
            "1 to 64 channels can be read, got 65",
        ),
    ],
)
def test_headers_that_cannot_be_used(data, message):
    with pytest.raises(AudioError, match=f"(?s)pipe: .*{message}"):
        collect(data)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_audio_or_an_audio_error(data, magic):
    try:
        _, samples = collect((b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" if magic else b"") + data)
    except AudioError:
        return
    assert np.isfinite(samples).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 43), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_header_gives_audio_or_an_audio_error(changes):
    damaged = bytearray(wav_header(0xFFFFFFFF) + bytes(200))
    for position, value in changes:
        damaged[position] = value
    try:
        collect(bytes(damaged))
    except AudioError:
        return


@pytest.mark.parametrize("with_header", [True, False])
def test_audio_is_returned_while_the_writer_still_writes(with_header):
    """Each piece is written only after the one before has come out: a reader that fills long blocks would hang."""
    reading, writing = os.pipe()
    taken, pieces = threading.Semaphore(0), 5
    hung = threading.Event()

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            pipe.write(wav_header(0xFFFFFFFF) if with_header else b"")
            for _ in range(pieces):
                pipe.write(bytes(640))
                if not taken.acquire(timeout=10):
                    hung.set()
                    return

    writer = threading.Thread(target=write)
    writer.start()
    sizes = []
    with os.fdopen(reading, "rb") as pipe:
        rate, blocks = stream_pipe(pipe, None if with_header else PcmFormat(RATE))
        for block in blocks:
            sizes.append(len(block))
            taken.release()
    writer.join()
    assert rate == RATE
    assert not hung.is_set()
    assert sizes == [320] * pieces


def test_a_pipe_that_waits_for_its_writer_can_be_interrupted():
    reading, writing = os.pipe()
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        with os.fdopen(reading, "rb") as pipe, pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            stream_pipe(pipe)
    finally:
        signal.signal(signal.SIGALRM, before)
        os.close(writing)


def test_what_is_no_open_blocking_pipe_is_an_audio_error():
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(AudioError, match="pipe: "):
        stream_pipe(closed)
    with pytest.raises(AudioError, match="pipe: "):
        stream_pipe(io.BytesIO(wav_header(20) + bytes(20)))
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with os.fdopen(reading, "rb") as pipe, pytest.raises(AudioError, match="blocking mode"):
            stream_pipe(pipe, PcmFormat(RATE))
    finally:
        os.close(writing)
