"""Raw sample bytes to mono float64 samples, and WAV or raw audio read live from a pipe.

Conventions. Samples are float64, full scale is [-1, 1], several channels become one by their mean, nothing
is clipped. Integers are divided by 2**(bits - 1); mu-law and A-law follow ITU-T G.711, as 16-bit integers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import AudioError, StreamClosedError

Samples = NDArray[np.float64]
Encoding = Literal["u8", "s16le", "s24le", "s32le", "f32le", "f64le", "mulaw", "alaw"]

MIN_RATE = 2_000
MAX_RATE = 768_000
MAX_CHANNELS = 64
MAX_MAGNITUDE = 2.0**32  # leaves room for integers stored as floats; beyond it the bytes were never samples


def check_rate(rate: int, where: str) -> None:
    """Refuse a sampling rate in Hz outside [MIN_RATE, MAX_RATE] with an ``AudioError`` about ``where``."""
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(
            f"{where}: the sampling rate must lie between {MIN_RATE} and {MAX_RATE} Hz, got {rate};"
            " a damaged header, or a rate given in kHz?"
        )


def check_channels(channels: int, where: str) -> None:
    """Refuse a number of channels outside [1, MAX_CHANNELS] with an ``AudioError`` about ``where``."""
    if not 1 <= channels <= MAX_CHANNELS:
        raise AudioError(
            f"{where}: 1 to {MAX_CHANNELS} channels can be read, got {channels};"
            " a damaged header, or audio stored with channels and frames exchanged?"
        )


def check_samples(samples: Samples, where: str, *, rate: int, first: int = 0) -> None:
    """Refuse NaN, infinite and absurdly large samples.

    ``samples`` has shape (n,) or (n, channels); ``first`` is the index of their first frame in the recording.
    Raises ``AudioError`` naming the time of the first offender.
    """
    if samples.size == 0:
        return
    with np.errstate(all="ignore"):  # a signalling NaN would make the comparisons themselves warn
        # Where the sum of squares is small, every sample is: one look instead of two. False for NaN.
        if samples.ndim == 1 and np.dot(samples, samples) <= MAX_MAGNITUDE**2:
            return
        if max(samples.max(), -samples.min()) <= MAX_MAGNITUDE:  # false for NaN too
            return
        usable = np.abs(samples) <= MAX_MAGNITUDE
    place = tuple(np.argwhere(~usable)[0])
    frame = first + int(place[0])
    raise AudioError(
        f"{where}: samples must be finite and at most {MAX_MAGNITUDE:g} in size, got {samples[place]} at"
        f" {frame / rate:.6f} s (frame {frame}); a failed float conversion, or data that is not audio?"
    )


def downmix(frames: Samples) -> Samples:
    """Mean of the channels: (n, channels) to (n,).

    Summed channel by channel, not by ``mean``: its order of summation, and so the last bit, may depend on n.
    """
    mono: Samples = frames[:, 0]
    for channel in range(1, frames.shape[1]):
        mono = mono + frames[:, channel]
    return mono if frames.shape[1] == 1 else mono / frames.shape[1]


@dataclass(frozen=True)
class PcmFormat:
    """What headerless audio consists of: ``rate`` in Hz, ``channels`` interleaved, ``encoding``.

    Raises ``AudioError`` for a rate, a number of channels or an encoding out of range.
    """

    rate: int
    channels: int = 1
    encoding: Encoding = "s16le"

    def __post_init__(self) -> None:
        check_rate(self.rate, "raw audio format")
        check_channels(self.channels, "raw audio format")
        if self.encoding not in _WIDTHS:
            raise AudioError(
                f"raw audio format: the encoding must be one of {', '.join(_WIDTHS)}, got {self.encoding!r}"
            )

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of every channel."""
        return _WIDTHS[self.encoding] * self.channels


class PcmDecoder:
    """Bytes in pieces of any length to mono samples; a frame cut in two waits for its second part."""

    def __init__(self, pcm: PcmFormat, *, where: str = "raw audio") -> None:
        self.pcm = pcm
        self._where = where
        self._rest = b""
        self._frames = 0
        self._closed = False

    def push(self, data: bytes | bytearray | memoryview) -> Samples:
        """Decode every frame completed by ``data``: samples (n,).

        Raises ``AudioError`` for a sample that is not finite, ``StreamClosedError`` after ``flush``.
        """
        if self._closed:
            raise StreamClosedError(f"{self._where}: the decoder has been flushed and takes no more bytes")
        data = self._rest + bytes(data)
        whole = len(data) - len(data) % self.pcm.frame_bytes
        self._rest = data[whole:]
        frames = _decode(data[:whole], self.pcm.encoding).reshape(-1, self.pcm.channels)
        check_samples(frames, self._where, rate=self.pcm.rate, first=self._frames)
        self._frames += len(frames)
        return downmix(frames)

    def flush(self) -> Samples:
        """Close the decoder; an unfinished frame is dropped, so this is always empty."""
        self._closed = True
        return np.empty(0)


def _mulaw_table() -> Samples:
    code = ~np.arange(256) & 0xFF  # sent inverted
    size = (((code & 0x0F) << 3) + 0x84 << (code >> 4 & 7)) - 0x84
    return np.where(code & 0x80, -size, size) / 2.0**15


def _alaw_table() -> Samples:
    code = np.arange(256) ^ 0x55  # sent with every other bit inverted
    segment = code >> 4 & 7
    size = ((code & 0x0F) << 4) + 8
    size = np.where(segment > 0, size + 0x100 << np.maximum(segment - 1, 0), size)
    return np.where(code & 0x80, size, -size) / 2.0**15


_WIDTHS: dict[str, int] = dict(zip(get_args(Encoding), (1, 2, 3, 4, 4, 8, 1, 1), strict=True))
_TABLES = {"u8": (np.arange(256) - 128) / 128.0, "mulaw": _mulaw_table(), "alaw": _alaw_table()}
_NUMBERS = {
    "s16le": ("<i2", 2.0**15),
    "s32le": ("<i4", 2.0**31),
    "f32le": ("<f4", 1.0),
    "f64le": ("<f8", 1.0),
}


def _decode(data: bytes, encoding: str) -> Samples:
    """Whole samples to float64 (n,)."""
    if encoding in _TABLES:
        return _TABLES[encoding][np.frombuffer(data, np.uint8)]
    if encoding == "s24le":
        wide = np.zeros((len(data) // 3, 4), np.uint8)  # as the upper three bytes of 32-bit integers
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return _decode(wide.tobytes(), "s32le")
    kind, scale = _NUMBERS[encoding]
    with np.errstate(invalid="ignore"):  # widening a signalling NaN warns; check_samples refuses it
        return np.frombuffer(data, kind).astype(np.float64) / scale


def stream_pipe(file: BinaryIO, raw: PcmFormat | None = None, block_bytes: int = 4096) -> tuple[int, Iterator[Samples]]:
    """Read audio from a pipe as it arrives: the rate in Hz and an iterator over mono samples (n,), n >= 1.

    With ``raw`` None the pipe must carry a WAV file, whose header is read before this returns: PCM of 8, 16,
    24 or 32 bits, float of 32 or 64, mu-law or A-law. A data size that its writer could not know (0, or near
    2 or 4 GiB) means until the end of the pipe. Every block is what one read gave, at most ``block_bytes`` of
    it, never held back to fill up. The pipe is not closed.

    Raises ``AudioError``, here or from the iterator, for a header that breaks these rules, a pipe that fails
    and samples that are not finite. A pipe that ends early is no error: what came counts.
    """
    pipe = _Pipe(file)
    if block_bytes < 1:
        raise AudioError(f"{pipe.name}: a block must hold at least 1 byte, got block_bytes {block_bytes}")
    length: int | None = None
    if raw is None:
        raw, length = _read_wav_header(pipe)
    return raw.rate, _arriving(pipe, PcmDecoder(raw, where=pipe.name), length, block_bytes)


def _arriving(pipe: _Pipe, decoder: PcmDecoder, length: int | None, block_bytes: int) -> Iterator[Samples]:
    while data := pipe.some(block_bytes if length is None else min(block_bytes, length)):
        length = None if length is None else length - len(data)
        samples = decoder.push(data)
        if samples.size:
            yield samples


class _Pipe:
    """A binary file that is only ever read forwards."""

    def __init__(self, file: BinaryIO) -> None:
        name = getattr(file, "name", None)
        self.name = name if isinstance(name, str) else "pipe"
        # A buffered file's read() waits until it has all it was asked for, its read1() does not.
        self._read: Callable[[int], bytes | None] = getattr(file, "read1", file.read)
        if not _is_blocking(file):  # its read1() would give nothing, as at the end
            raise AudioError(f"{self.name}: a pipe must be in blocking mode, got one that is not")

    def some(self, most: int) -> bytes:
        """Wait for at least one byte and return what is there, up to ``most``; nothing at the end."""
        try:
            data = self._read(most) if most else b""
        except (OSError, ValueError) as error:
            raise AudioError(f"{self.name}: the pipe cannot be read ({error})") from error
        return data or b""

    def exactly(self, count: int) -> bytes:
        """Wait for ``count`` bytes of a header."""
        parts = bytearray()
        while len(parts) < count:
            if not (data := self.some(min(count - len(parts), 65_536))):
                raise AudioError(
                    f"{self.name}: the pipe ended inside the WAV header, {len(parts)} of {count} bytes"
                    " into one of its parts; did the recording program fail to start?"
                )
            parts += data
        return bytes(parts)

    def skip(self, count: int) -> None:
        """Drop ``count`` bytes without holding them all."""
        while count > 0:
            count -= len(self.exactly(min(count, 65_536)))


def _is_blocking(file: BinaryIO) -> bool:
    try:
        return os.get_blocking(file.fileno())
    except (AttributeError, OSError, ValueError):  # not a descriptor, or a system without the notion
        return True


_WAV_ENCODINGS: dict[tuple[int, int], Encoding] = {
    (1, 8): "u8",
    (1, 16): "s16le",
    (1, 24): "s24le",
    (1, 32): "s32le",
    (3, 32): "f32le",
    (3, 64): "f64le",
    (6, 8): "alaw",
    (7, 8): "mulaw",
}
_EXTENSIBLE = 0xFFFE
_EXTENSIBLE_TAIL = bytes.fromhex("000000001000800000aa00389b71")  # of a sub-format GUID that holds a plain tag
# Before the samples: room for pictures and broadcast notes, and an end to a pipe of zeros.
_MOST_HEADER = 2**26  # bytes
_MOST_PARTS = 1000
_PLACEHOLDER = 0x7FFF0000  # sizes from here on are what programs write when they cannot seek back


def _read_wav_header(pipe: _Pipe) -> tuple[PcmFormat, int | None]:
    """Read up to the first sample: the format, and the bytes of data, None for until the end of the pipe."""
    magic = pipe.exactly(12)
    if magic[:4] not in (b"RIFF", b"RF64") or magic[8:] != b"WAVE":
        raise AudioError(
            f"{pipe.name}: a pipe must carry a WAV file, got one that begins with {magic!r}; for headerless"
            " samples give their format with --raw, for anything else convert to WAV on the way"
        )
    pcm: PcmFormat | None = None
    passed = 12
    for _ in range(_MOST_PARTS):
        chunk = pipe.exactly(8)
        kind, size = chunk[:4], int.from_bytes(chunk[4:], "little")
        passed += 8 + size
        if kind == b"data" or passed > _MOST_HEADER:
            break
        used = 0
        if kind == b"fmt ":
            used = min(size, 40)
            pcm = _wav_format(pipe.exactly(used), pipe.name)
        pipe.skip(size + size % 2 - used)  # chunks are padded to even lengths
    if kind != b"data":
        raise AudioError(
            f"{pipe.name}: a WAV file's samples must begin within {_MOST_HEADER >> 20} MiB and {_MOST_PARTS} parts, and"
            " there are more before them; damaged?"
        )
    if pcm is None:
        raise AudioError(f"{pipe.name}: a WAV file must have a 'fmt ' chunk before its data, got none; damaged?")
    return pcm, size if 0 < size < _PLACEHOLDER else None


def _wav_format(fmt: bytes, name: str) -> PcmFormat:
    """Read the body of a 'fmt ' chunk."""
    if len(fmt) < 16:
        raise AudioError(f"{name}: a WAV 'fmt ' chunk has at least 16 bytes, got {len(fmt)}; damaged?")
    tag, channels, rate, _, frame_bytes, bits = np.frombuffer(fmt[:16], "<u2,<u2,<u4,<u4,<u2,<u2")[0].tolist()
    if tag == _EXTENSIBLE and fmt[26:40] == _EXTENSIBLE_TAIL:
        tag = int.from_bytes(fmt[24:26], "little")
    check_rate(rate, name)
    check_channels(channels, name)
    encoding = _WAV_ENCODINGS.get((tag, bits))
    if encoding is None or frame_bytes * 8 != bits * channels:
        raise AudioError(
            f"{name}: a WAV pipe must carry PCM of 8, 16, 24 or 32 bits, float of 32 or 64, mu-law or A-law,"
            f" got format tag {tag:#x} with {bits} bits, {channels} channels and {frame_bytes} bytes a frame"
        )
    return PcmFormat(rate, channels, encoding)
