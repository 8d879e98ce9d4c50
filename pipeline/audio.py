"""Audio files to mono float64 samples in bounded blocks, and streaming resampling.

Conventions. Samples are float64, full scale is [-1, 1], several channels become one by their mean.
Nothing is clipped: a float file may go beyond 1. The suffix of a file is never believed, only its content, and its
header only as far as the file goes. What is decoded of one file is bounded, whatever its header and its packing
promise. Every failure is an ``AudioError`` that names the file, the rule, the value found and the likely cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import soxr

from pipeline.errors import AudioError, StreamClosedError
from pipeline.pcm import Samples, check_channels, check_rate, check_samples, downmix
from pipeline.sound_files import DECODER_ERRORS, Source, open_file, open_sound, reason

BLOCK_FRAMES = 16_384
MAX_SECONDS = 12 * 3600  # of audio decoded from one file
_MOST_DECODED = 2**32  # samples of one file over all its channels: twelve hours of stereo at 48 kHz
# A file may be packed this tightly beyond its first samples. Speech is a hundred times looser, and silence of an Opus
# stream that sends next to nothing just fits; a FLAC of nothing at all may hold ten times as much.
_FRAMES_A_BYTE = 512
_FRAMES_FOR_NOTHING = 2**22
_MOST_VALUES = 2**20  # of one block over all its channels (8 MiB), whatever a header or a caller asks for

# Codings in which a jump to a frame gives the very samples that decoding up to it would have given.
_EXACT_SEEK = {"PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"}
_UNKNOWN_FRAMES = 2**62  # libsndfile reports 2**63 - 1 for "until the end"


def open_audio(source: Path | str | BinaryIO, *, start: float | None = None, end: float | None = None) -> AudioReader:
    """Open an audio file, or a seekable binary file object, for reading in blocks.

    ``start`` and ``end`` are seconds and choose a segment: frames round(start * rate) up to, not including,
    round(end * rate). An ``end`` after the end of the audio is no error; a ``start`` there is.

    Raises ``AudioError`` for a path that is missing or not a regular file, for content that libsndfile cannot
    decode, for a rate or a number of channels out of range, and for a segment without extent.
    """
    if isinstance(source, str | Path):
        file = open_file(Path(source))
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
        self._source = Source(file)
        self._sound: Any = None
        try:
            self._size = self._source.size()
            self._sound = open_sound(self._source, name)
            self.rate = int(self._sound.samplerate)
            self.channels = int(self._sound.channels)
            check_rate(self.rate, name)
            check_channels(self.channels, name)
            self._start, self._stop = self._segment(start, end)
            total = int(self._sound.frames)
            self._total = total if total < _UNKNOWN_FRAMES else None
            self._most = self._most_frames()
        except BaseException:
            self.close()
            raise
        self._position = self._decoded = 0

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
                if wanted > 0:
                    self._refuse_if_cut_short()
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

    def _segment(self, start: float | None, end: float | None) -> tuple[int, int | None]:
        first = 0.0 if start is None else start
        last = np.inf if end is None else end
        if not 0.0 <= first < last or first * self.rate == np.inf:
            raise AudioError(f"{self.name}: a segment must have 0 <= start < end in seconds, got {start} to {end}")
        return round(first * self.rate), None if last * self.rate == np.inf else round(last * self.rate)

    def _most_frames(self) -> int:
        """Frames that may be decoded; raises AudioError for a file that holds more, as far as its size can tell."""
        most = min(MAX_SECONDS * self.rate, _MOST_DECODED // self.channels)
        if self.frames is not None and most < self.frames <= self._size:
            raise self._too_long(most)
        return min(most, _FRAMES_FOR_NOTHING + _FRAMES_A_BYTE * self._size)

    def _too_long(self, most: int) -> AudioError:
        return AudioError(
            f"{self.name}: at most {most / self.rate:.0f} s are decoded from {self._size:,} bytes of"
            f" {self.rate} Hz and {self.channels} channels, and there is more;"
            " a recording that must be cut into parts, or a decompression bomb?"
        )

    def _read(self, count: int) -> Samples:
        """Decode up to ``count`` frames: (n, channels), n = 0 at the end."""
        if self._sound.closed:
            raise AudioError(f"{self.name}: the file has been closed; read it inside the with statement")
        try:
            frames: Samples = self._sound.read(count, dtype="float64", always_2d=True)
        except DECODER_ERRORS as error:
            raise self._damaged(self._position, error) from error
        self._source.reraise(self.name)
        self._position += len(frames)
        self._decoded += len(frames)
        if self._decoded > self._most:
            raise self._too_long(self._most)
        return frames

    def _damaged(self, position: int, error: Exception) -> AudioError:
        self._source.reraise(self.name)
        return AudioError(
            f"{self.name}: decoding fails at {position / self.rate:.3f} s ({reason(error)});"
            " the file is damaged or cut short"
        )

    def _refuse_if_cut_short(self) -> None:
        """Raise AudioError at the end of a FLAC file that counts more samples: cut between two frames, it just ends."""
        if self._sound.format == "FLAC" and self._total is not None and self._position < self._total:
            raise AudioError(
                f"{self.name}: it ends at {self._position / self.rate:.3f} s, and its header says"
                f" {self._total / self.rate:.3f} s; the file is damaged or cut short"
            )

    def _skip(self) -> None:
        """Move to the start of the segment, by decoding where a jump would not land on the same samples."""
        if self._total is not None and self._start < self._total and self._sound.subtype in _EXACT_SEEK:
            try:
                self._position = self._sound.seek(self._start)
            except DECODER_ERRORS as error:
                raise self._damaged(self._start, error) from error
            self._source.reraise(self.name)
        while self._position < self._start:
            if len(self._read(min(BLOCK_FRAMES, self._start - self._position))) == 0:
                raise AudioError(
                    f"{self.name}: a segment must start inside the audio, got a start at"
                    f" {self._start / self.rate:.3f} s of {self._position / self.rate:.3f} s;"
                    " times of another recording, or a file cut short?"
                )


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
