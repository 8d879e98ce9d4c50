"""Audio files to mono float64 samples in bounded blocks, and streaming resampling.

Conventions. Samples are float64, full scale is [-1, 1], several channels become one by their mean.
Nothing is clipped: a float file may go beyond 1. The suffix of a file is never believed, only its content.
Every failure is an ``AudioError`` that names the file, the rule, the value found and the likely cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import soundfile
import soxr

from pipeline.errors import AudioError, StreamClosedError
from pipeline.pcm import Samples, check_channels, check_rate, check_samples, downmix

BLOCK_FRAMES = 16_384
_MOST_VALUES = 2**20  # of one block over all its channels (8 MiB), whatever a header or a caller asks for

# Codings in which a jump to a frame gives the very samples that decoding up to it would have given.
_EXACT_SEEK = {"PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"}
_UNKNOWN_FRAMES = 2**62  # libsndfile reports 2**63 - 1 for "until the end"

_DECODER_ERRORS = (soundfile.SoundFileError, OSError, RuntimeError, TypeError, ValueError)


def open_audio(source: Path | str | BinaryIO, *, start: float | None = None, end: float | None = None) -> AudioReader:
    """Open an audio file, or a seekable binary file object, for reading in blocks.

    ``start`` and ``end`` are seconds and choose a segment: frames round(start * rate) up to, not including,
    round(end * rate). An ``end`` after the end of the audio is no error; a ``start`` there is.

    Raises ``AudioError`` for a path that is missing or not a regular file, for content that libsndfile cannot
    decode, for a rate or a number of channels out of range, and for a segment without extent.
    """
    if isinstance(source, str | Path):
        file = _open_file(Path(source))
        return AudioReader(file, str(source), start=start, end=end, owned=True)
    name = getattr(source, "name", None)
    return AudioReader(source, name if isinstance(name, str) else "audio", start=start, end=end, owned=False)


class AudioReader:
    """An open audio file; a context manager, made by ``open_audio``.

    ``rate`` is in Hz and ``channels`` counts what the file holds, before the downmix.
    """

    def __init__(self, file: BinaryIO, name: str, *, start: float | None, end: float | None, owned: bool) -> None:
        self.name = name
        self._file = file if owned else None
        self._source = _Source(file)
        self._sound: Any = None
        try:
            self._sound = self._open()
            self.rate = int(self._sound.samplerate)
            self.channels = int(self._sound.channels)
            check_rate(self.rate, name)
            check_channels(self.channels, name)
            self._start, self._stop = self._segment(start, end)
        except BaseException:
            self.close()
            raise
        total = int(self._sound.frames)
        self._total = total if total < _UNKNOWN_FRAMES else None
        self._position = 0

    @property
    def frames(self) -> int | None:
        """Samples that ``blocks`` will yield if the header tells the truth; None where it does not say."""
        if self._total is None:
            return None
        stop = self._total if self._stop is None else min(self._stop, self._total)
        return max(0, stop - self._start)

    def blocks(self, size: int = BLOCK_FRAMES) -> Iterator[Samples]:
        """Yield the samples in order, in arrays (n,) with 1 <= n <= ``size``.

        What one call leaves unread the next one continues with. Raises ``AudioError`` where decoding
        fails, for a block with a sample that is not finite, and when a segment starts after the audio ends.
        """
        if size < 1:
            raise AudioError(f"{self.name}: a block must hold at least 1 sample, got size {size}")
        most = min(size, _MOST_VALUES // self.channels)
        if self._position < self._start:
            self._skip()
        while True:
            wanted = most if self._stop is None else min(most, self._stop - self._position)
            frames = self._read(wanted) if wanted > 0 else np.empty((0, 1))
            if len(frames) == 0:
                return
            check_samples(frames, self.name, rate=self.rate, first=self._position - len(frames))
            yield downmix(frames)

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        if self._sound is not None:
            self._sound.close()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Any:
        head = self._source.peek(1024)
        self._source.reraise(self.name)
        if not head:
            raise AudioError(f"{self.name}: an audio file cannot be empty, got 0 bytes; a failed recording?")
        try:
            sound = _Sequential(self._source)
        except _DECODER_ERRORS as error:
            self._source.reraise(self.name)
            raise AudioError(
                f"{self.name}: cannot be decoded as audio ({_reason(error)}); {_likely_cause(head)}"
            ) from error
        self._source.reraise(self.name)
        return sound

    def _segment(self, start: float | None, end: float | None) -> tuple[int, int | None]:
        first = 0.0 if start is None else start
        last = np.inf if end is None else end
        if not 0.0 <= first < last or first == np.inf:
            raise AudioError(f"{self.name}: a segment must have 0 <= start < end in seconds, got {start} to {end}")
        return round(first * self.rate), None if last == np.inf else round(last * self.rate)

    def _read(self, count: int) -> Samples:
        """Decode up to ``count`` frames: (n, channels), n = 0 at the end."""
        if self._sound.closed:
            raise AudioError(f"{self.name}: the file has been closed; read it inside the with statement")
        try:
            frames: Samples = self._sound.read(count, dtype="float64", always_2d=True)
        except _DECODER_ERRORS as error:
            raise self._damaged(self._position, error) from error
        self._source.reraise(self.name)
        self._position += len(frames)
        return frames

    def _damaged(self, position: int, error: Exception) -> AudioError:
        self._source.reraise(self.name)
        return AudioError(
            f"{self.name}: decoding fails at {position / self.rate:.3f} s ({_reason(error)});"
            " the file is damaged or cut short"
        )

    def _skip(self) -> None:
        """Move to the start of the segment, by decoding where a jump would not land on the same samples."""
        if self._total is not None and self._start < self._total and self._sound.subtype in _EXACT_SEEK:
            try:
                self._position = self._sound.seek(self._start)
            except _DECODER_ERRORS as error:
                raise self._damaged(self._start, error) from error
            self._source.reraise(self.name)
        while self._position < self._start:
            if len(self._read(min(BLOCK_FRAMES, self._start - self._position))) == 0:
                raise AudioError(
                    f"{self.name}: a segment must start inside the audio, got a start at"
                    f" {self._start / self.rate:.3f} s of {self._position / self.rate:.3f} s;"
                    " times of another recording, or a file cut short?"
                )


class _Sequential(soundfile.SoundFile):  # type: ignore[misc]  # soundfile ships no types
    """A sound file that is read from front to back without a seek.

    ``SoundFile.read`` seeks to the new position after every block of a seekable file. For MP3 that
    restarts the decoder, and the samples then depend on the size of the blocks. Read as a stream, every
    format gives the same samples for any blocks.
    """

    def seekable(self) -> bool:
        return False


class _Source:
    """A binary file as libsndfile's callbacks need it.

    An exception inside is kept for ``reraise``: one that left a callback, an interrupt included, would
    be printed, dropped and taken for the end of the file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._error: BaseException | None = None

    def reraise(self, name: str) -> None:
        """Raise what a callback caught: as ``AudioError``, but an interrupt as itself."""
        error, self._error = self._error, None
        if isinstance(error, Exception):
            raise AudioError(
                f"{name}: cannot be read ({error}); audio files must be seekable, a pipe is read as a stream"
            ) from error
        if error is not None:
            raise error

    def peek(self, count: int) -> bytes:
        """The first ``count`` bytes, or fewer in a shorter file."""
        buffer = bytearray(count)
        self.seek(0)
        head = bytes(buffer[: self.readinto(buffer)])
        self.seek(0)
        return head

    def readinto(self, buffer: Any) -> int:
        done = 0
        try:
            while done < len(buffer) and (data := self._file.read(len(buffer) - done)):
                buffer[done : done + len(data)] = data
                done += len(data)
        except BaseException as error:
            self._error = error
        return done

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._file.seek(offset, whence)
        except BaseException as error:
            self._error = error
            return 0

    def tell(self) -> int:
        try:
            return self._file.tell()
        except BaseException as error:
            self._error = error
            return 0


def _open_file(path: Path) -> BinaryIO:
    try:
        if path.is_dir():
            raise AudioError(f"{path}: an audio file was expected, got a folder; name one file in it")
        if not path.exists():
            raise AudioError(f"{path}: no such file; a mistyped or moved path?")
        if not path.is_file():
            raise AudioError(f"{path}: a regular file was expected; a pipe or device is read as a stream")
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise AudioError(f"{path}: cannot be opened ({error})") from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "error_string", error)).rstrip(".")


def _likely_cause(head: bytes) -> str:
    """Guess from the first bytes of a file why libsndfile refused it."""
    if head.startswith(b"NIST_1A"):
        if b"shorten" in head:
            return (
                "its SPHERE header says sample_coding 'shorten', a compression that libsndfile does not know:"
                " expand the file once, for instance with sph2pipe"
            )
        return "a SPHERE file with a damaged header or an unusual sample_coding"
    if head[4:8] == b"ftyp" or head[:2] in (b"\xff\xf1", b"\xff\xf9") or head[:4] == b"\x1aE\xdf\xa3":
        return "it looks like AAC, M4A or WebM, which libsndfile does not read: convert it to WAV or FLAC"
    if head[:4] in (b"RIFF", b"RIFX", b"RF64", b"riff", b"FORM", b"fLaC", b"OggS", b"caff", b".snd") or (
        head[:3] == b"ID3"
    ):
        return "it begins like audio, so it is damaged, cut short or in a rare coding"
    if b"\0" not in head and all(c.isprintable() or c.isspace() for c in head.decode("utf-8", "ignore")):
        return "it holds text, not audio"
    return "it is not in an audio format that libsndfile knows, or damaged from its first bytes on"


class Resampler:
    """Streaming conversion from ``in_rate`` to ``out_rate`` Hz: libsoxr's HQ quality, one channel.

    The concatenated output is the same bit for bit however the input is cut into pushes. With equal rates
    every push returns its argument. Raises ``AudioError`` for a rate out of range.
    """

    def __init__(self, in_rate: int, out_rate: int) -> None:
        check_rate(in_rate, "resampler input")
        check_rate(out_rate, "resampler output")
        self.in_rate = in_rate
        self.out_rate = out_rate
        self._stream = None if in_rate == out_rate else _soxr_stream(in_rate, out_rate)
        self._closed = False

    @property
    def delay_ms(self) -> float:
        """Milliseconds that audio can wait inside, at most; 0 for equal rates. Measured, not quoted.

        libsoxr filters in whole blocks, so the wait swings between a few milliseconds and this.
        """
        return 0.0 if self._stream is None else _longest_wait_ms(self.in_rate, self.out_rate)

    def push(self, samples: Samples) -> Samples:
        """Take finite ``samples`` (n,) and return the output (m,) that is ready, often none.

        Raises ``StreamClosedError`` after ``flush``.
        """
        self._refuse_if_closed()
        if self._stream is None:
            return samples
        ready: Samples = self._stream.resample_chunk(np.ascontiguousarray(samples, dtype=np.float64))
        return ready

    def flush(self) -> Samples:
        """Return the rest of the output (m,) and close; a second flush raises ``StreamClosedError``."""
        self._refuse_if_closed()
        self._closed = True
        if self._stream is None:
            return np.empty(0)
        rest: Samples = self._stream.resample_chunk(np.empty(0), last=True)
        return rest

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StreamClosedError("resampler: it has been flushed and takes no more audio; make a new one")


def _soxr_stream(in_rate: int, out_rate: int) -> Any:
    return soxr.ResampleStream(in_rate, out_rate, 1, dtype="float64", quality="HQ")


@lru_cache
def _longest_wait_ms(in_rate: int, out_rate: int) -> float:
    """Feed silence, a millisecond at a time, and watch when the output comes.

    How many samples are out depends on how many went in and on nothing else, so silence will do. Two seconds
    or 2**16 samples hold enough of the filter's blocks to meet their worst position to within a sample.
    """
    stream = _soxr_stream(in_rate, out_rate)
    chunk = np.zeros(max(1, in_rate // 1000))
    came_out, longest = 0, 0.0
    for went_in in range(len(chunk), max(2 * in_rate, 2**16), len(chunk)):
        longest = max(longest, went_in / in_rate - came_out / out_rate)
        came_out += len(stream.resample_chunk(chunk))
    return 1000.0 * (longest + 1.0 / out_rate)
