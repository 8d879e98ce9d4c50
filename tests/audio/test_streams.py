"""Raw sample bytes, and audio that arrives through a pipe."""

from __future__ import annotations

import io
import os
import signal
import struct
import threading
from contextlib import contextmanager

import hostile
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio.downmix import Downmix
from pipeline.audio.streams import PcmDecoder, PcmFormat, as_samples, check_rate, stream_pipe
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


def encoded(encoding: str, channels: int = 1, kind: str = "WAV") -> tuple[bytes, np.ndarray]:
    """A file in memory as libsndfile writes it, and the mono samples that libsndfile reads from it."""
    file, how = io.BytesIO(), {"format": kind, "subtype": SUBTYPES[encoding]}
    soundfile.write(file, np.random.default_rng(0).uniform(-0.9, 0.9, (400, channels)), RATE, endian="FILE", **how)
    file.seek(0)
    raw = {**how, "samplerate": RATE, "channels": channels} if kind == "RAW" else {}
    samples, _ = soundfile.read(file, dtype="float64", always_2d=True, **raw)
    return file.getvalue(), samples.mean(axis=1)


def wav_header(size: int, *, fmt: tuple = (1, 1, RATE, 2 * RATE, 2, 16), before: bytes = b"") -> bytes:
    head = b"RIFF\xff\xff\xff\xffWAVE" + before + b"fmt " + struct.pack("<IHHIIHH", 16, *fmt)
    return head + b"data" + struct.pack("<I", size)


@contextmanager
def writing_to_a_pipe(write):
    """The reading end of a pipe, into which a thread writes."""
    reading, writing = os.pipe()

    def run() -> None:
        try:
            with os.fdopen(writing, "wb", buffering=0) as pipe:
                write(pipe)
        except BrokenPipeError:
            pass

    writer = threading.Thread(target=run)
    writer.start()
    try:
        with os.fdopen(reading, "rb") as pipe:
            yield pipe
    finally:
        writer.join()


def collect(data: bytes, raw: PcmFormat | None = None) -> tuple[int, np.ndarray]:
    with writing_to_a_pipe(lambda pipe: pipe.write(data)) as pipe:
        rate, blocks = stream_pipe(pipe, raw)
        return rate, np.concatenate([np.empty(0), *blocks])


# Decoding bytes


@pytest.mark.parametrize("encoding", SUBTYPES)
@settings(max_examples=15, deadline=None)
@given(st.sampled_from([1, 2, 3, 5]), st.lists(st.integers(0, 40), max_size=100))
def test_bytes_cut_anywhere_decode_as_libsndfile_decodes_them(encoding, channels, sizes):
    data, expected = encoded(encoding, channels, "RAW")
    decoder, parts, rest = PcmDecoder(PcmFormat(RATE, channels, encoding)), [], memoryview(data)
    for size in [*sizes, len(data)]:
        parts.append(decoder.push(rest[:size]))
        rest = rest[size:]
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("encoding", "data", "expected"),
    [
        ("s16le", np.array([-(2**15), 2**15 - 1, 0], "<i2").tobytes(), [-1.0, 1 - 2**-15, 0.0]),
        ("s24le", b"\0\0\x80\xff\xff\x7f\0\0\0", [-1.0, 1 - 2**-23, 0.0]),
        ("u8", b"\x00\x80\xff", [-1.0, 0.0, 1 - 2**-7]),
    ],
)
def test_the_ends_of_the_scale(encoding, data, expected):
    assert PcmDecoder(PcmFormat(RATE, 1, encoding)).push(data).tolist() == expected


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
    data, expected = encoded(encoding, channels, kind)
    rate, samples = collect(data, PcmFormat(RATE, channels, encoding) if kind == "RAW" else None)
    assert rate == RATE
    np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-15)


def test_channels_of_a_pipe_that_cancel_each_other_are_refused_at_its_end():
    sound = np.arange(-500, 500).astype("<i2")
    cut = np.stack([sound, np.where(np.arange(1000) < 500, -sound, 0)], axis=1).astype("<i2")
    assert len(collect(cut.tobytes(), PcmFormat(RATE, 2))[1]) == 1000  # half of it cancels
    with pytest.raises(AudioError, match="pipe: the channels cancel each other"):
        collect(np.stack([sound, -sound], axis=1).tobytes(), PcmFormat(RATE, 2))


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x80000000, 0x7FFFF000, 5000])
def test_an_unknown_or_too_large_data_size_means_until_the_end(size):
    samples = np.arange(-500, 500).astype("<i2")
    assert np.array_equal(collect(wav_header(size) + samples.tobytes())[1], samples / 2**15)


def test_chunks_before_and_after_the_data_are_no_audio():
    junk = b"LIST" + struct.pack("<I", 5) + b"hello\0" + b"JUNK" + struct.pack("<I", 200_000) + bytes(200_000)
    data = wav_header(20, before=junk) + bytes(20) + b"LIST\x04\0\0\0abcd"
    assert np.array_equal(collect(data)[1], np.zeros(10))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a WAV file was expected"),
        (wav_header(20)[:30], "a WAV file was expected"),
        (b"fLaC" + bytes(100), "must carry a WAV file, got FLAC"),
        (hostile.encoded("FLAC", "PCM_16"), "must carry a WAV file, got FLAC"),
        (wav_header(0) + bytes(100), "no samples follow.*0xFFFFFFFF"),
        (hostile.encoded("AIFF", "PCM_16"), "must carry a WAV file, got AIFF"),
        (wav_header(20, fmt=(1, 1, 100, 200, 2, 16)) + bytes(20), "2000 and 768000 Hz, got 100"),
        (wav_header(260, fmt=(1, 65, RATE, 130 * RATE, 130, 16)) + bytes(260), "1 to 64 channels can be read, got 65"),
    ],
)
def test_headers_that_cannot_be_used(data, message):
    with pytest.raises(AudioError, match=f"(?s)pipe: .*{message}"):
        collect(data)


@pytest.mark.parametrize(
    ("data", "raw"), [(b"", PcmFormat(RATE)), (b"\0", PcmFormat(RATE)), (wav_header(0xFFFFFFFF), None)]
)
def test_a_pipe_of_nothing_is_no_silence(data, raw):
    with pytest.raises(AudioError, match=r"pipe: .*got none; did the program before the pipe fail\?"):
        collect(data, raw)


@pytest.mark.parametrize("channels", [1, 2])
def test_a_wav_file_is_no_headerless_audio(channels):
    with pytest.raises(AudioError, match=r"headerless samples were expected, got a WAV file.*without --raw"):
        collect(hostile.encoded("WAV", "PCM_16"), PcmFormat(RATE, channels))


def damaged(changes: list[tuple[int, int]]) -> bytes:
    data = bytearray(wav_header(0xFFFFFFFF) + bytes(200))
    for position, value in changes:
        data[position] = value
    return bytes(data)


ANY = st.binary(max_size=300)
DAMAGED = st.lists(st.tuples(st.integers(0, 43), st.integers(0, 255)), min_size=1, max_size=6).map(damaged)


@settings(max_examples=100, deadline=None)
@given(ANY | ANY.map(b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0".__add__) | DAMAGED)
def test_any_bytes_and_damaged_headers_are_audio_or_an_audio_error(data):
    try:
        assert np.isfinite(collect(data)[1]).all()
    except AudioError as error:
        assert "pipe: " in str(error)


@pytest.mark.parametrize("raw", [None, PcmFormat(RATE)])
def test_audio_is_returned_while_the_writer_still_writes(raw):
    """Each piece is written only after the one before has come out: a reader that fills long blocks would hang."""
    taken, hung, pieces = threading.Semaphore(0), threading.Event(), 5

    def write(pipe) -> None:
        pipe.write(wav_header(0xFFFFFFFF) if raw is None else b"")
        for _ in range(pieces):
            pipe.write(bytes(640))
            if not taken.acquire(timeout=10):
                hung.set()
                return

    sizes = []
    with writing_to_a_pipe(write) as pipe:
        _, blocks = stream_pipe(pipe, raw)
        for block in blocks:
            sizes.append(len(block))
            taken.release()
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
    for pipe in (closed, io.BytesIO(wav_header(20) + bytes(20))):
        with pytest.raises(AudioError, match="pipe: "):
            stream_pipe(pipe)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with os.fdopen(reading, "rb") as pipe, pytest.raises(AudioError, match="blocking mode"):
            stream_pipe(pipe, PcmFormat(RATE))
    finally:
        os.close(writing)


# Arrays


class OnADevice:
    """Samples that another library holds and will not hand over."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("use cpu() first")


@pytest.mark.parametrize("kind", ["float64", "float32", "int16", "int32", "uint8"])
def test_samples_of_any_usual_type_are_the_same_sound(kind):
    sound = 0.5 * np.sin(np.arange(400) / 7)
    scale, middle = {"int16": (2**15, 0), "int32": (2**31, 0), "uint8": (2**7, 128)}.get(kind, (1, 0))
    given = np.round(sound * scale + middle).astype(kind) if scale > 1 else sound.astype(kind)
    mono = as_samples(given, "x")
    assert (mono.dtype, mono.shape) == (np.float64, (400,))
    np.testing.assert_allclose(mono, sound, atol=1 / scale if scale > 1 else 1e-7)
    stereo = as_samples(np.stack([given, given[::-1]], axis=1), "x")
    np.testing.assert_allclose(stereo, (mono + mono[::-1]) / 2)
    assert as_samples(sound.tolist(), "x").tolist() == sound.tolist()
    assert not np.shares_memory(as_samples(sound, "x"), sound)
    assert as_samples([], "x").shape == as_samples(np.empty((0, 2)), "x").shape == (0,)


@settings(deadline=None)
@given(channels=st.integers(1, 8), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_an_array_has_a_row_a_frame_however_few_follow_the_first(channels, cuts):
    frames, mix = np.random.default_rng(channels).standard_normal((40, channels)), Downmix("x")
    parts = [as_samples(part, "x", mix) for part in np.split(frames, [1, *sorted(max(1, cut) for cut in cuts)])]
    np.testing.assert_allclose(np.concatenate(parts), frames.mean(axis=1))


@pytest.mark.parametrize("after", [(9,), (9, 1), (9, 3), (1, 3), (2, 40)])
def test_the_number_of_channels_stays_that_of_the_first_frame(after):
    mix = Downmix("claim")
    assert as_samples([[0.25, 0.75]], "claim", mix).tolist() == [0.5]
    with pytest.raises(AudioError, match=r"claim: .* the same number of channels, got [0-9]+ after 2"):
        as_samples(np.zeros(after), "claim", mix)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([1, 2, 3], "int64"),
        (np.zeros((2, 40)), "transpose"),
        (np.zeros(3, bool), "bool"),
        (np.zeros(3, complex), "complex128"),
        (["a"], "<U1"),
        (np.zeros((2, 400)), r"\(n, channels\), got \(2, 400\); transpose"),
        (np.zeros((1, 400), np.int16), "transpose"),
        (np.zeros((400, 65)), "shape"),
        ([[0.1, 0.2], [0.3]], "array of numbers.*unequal length"),
        (np.zeros((4, 4, 4)), "shape"),
        (np.float64(0.5), "shape"),
        (bytes(800), "bytes; name the type of the samples.*frombuffer"),
        (bytearray(800), "bytearray; name the type"),
        (memoryview(bytes(800)), "memoryview; name the type"),
        ((value / 9 for value in range(9)), r"generator \(object\); collect"),
        ({"array": np.zeros(9), "sampling_rate": RATE}, r"dict \(object\)"),
        ([0.1, None], r"list \(object\)"),
        ((np.zeros(9), RATE), "the samples with their rate"),
        (np.ma.array([0.1, 0.2], mask=[False, True]), r"filled\(\)"),
        (OnADevice(), r"OnADevice \(use cpu\(\) first\); a tensor is given by detach"),
    ],
)
def test_arrays_that_are_no_sound_are_refused(given, problem):
    with pytest.raises(AudioError, match=f"claim: .*{problem}"):
        as_samples(given, "claim")


@pytest.mark.parametrize("rate", ["8000", None, np.array([8000]), 8000j, np.complex128(8000)], ids=repr)
def test_a_rate_that_is_no_number_is_refused(rate):
    with pytest.raises(AudioError, match=r"must be a number of Hz, got .*; are rate and samples exchanged"):
        check_rate(rate, "claim")
