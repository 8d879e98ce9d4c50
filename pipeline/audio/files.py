"""Audio files to mono float64 samples in bounded blocks.

Conventions. Samples are float64, full scale is [-1, 1], and a ``Downmix`` makes several channels one. Nothing is
clipped: a float file may go beyond 1. The format is detected from the content, not the suffix. Formats that libsndfile
does not read are left to ffmpeg (``pipeline.audio.ffmpeg``). The number of samples from one file is bounded, whatever
its header says and however it is compressed. Every failure is an ``AudioError``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pipeline.audio import ffmpeg
from pipeline.audio.downmix import Downmix
from pipeline.audio.endings import fault_at_end
from pipeline.audio.libsndfile import Source, frames_listed, head_of, open_sound
from pipeline.audio.paths import open_path
from pipeline.audio.streams import DECODER_ERRORS, Samples, check_channels, check_rate, check_samples, reason
from pipeline.audio.utterance import Utterance
from pipeline.errors import AudioError

BLOCK_FRAMES = 32_768
MAX_SECONDS = 12 * 3600  # of audio decoded from one file
_MOST_DECODED = 2**32  # samples of one file over all its channels: twelve hours of stereo at 48 kHz
_MOST_WHOLE = 2**27  # samples of an utterance held in memory, 1 GiB: two hours at 16 kHz
# Most frames decoded per byte of a file, beyond ``_FRAMES_FOR_NOTHING``. Speech has a hundredth of this, and an Opus
# stream of silence just fits; digital silence in FLAC may have ten times as many.
_FRAMES_A_BYTE = 512
_FRAMES_FOR_NOTHING = 2**22
_MOST_VALUES = 2**20  # of one block over all its channels (8 MiB), whatever a header or a caller asks for
_OTHER_TIMES = "times in milliseconds, or of another recording, or a file cut short?"
_NO_NAME = "audio"  # as of an upload
_MOST_OVERSHOOT = 0.5  # seconds by which a segment may end after the audio, as in Kaldi's extract-segments

# Codings in which samples read after a seek are the same as when decoding from the beginning.
_EXACT_SEEK = {"PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"}


def open_audio(
    source: Path | str | BinaryIO, *, start: float | None = None, end: float | None = None, mix: Downmix | None = None
) -> AudioReader:
    """Open an audio file, or a seekable binary file object, for reading in blocks.

    ``start`` and ``end``, in seconds, choose a segment: frames round(start * rate) up to, not including,
    round(end * rate). An ``end`` up to half a second after the audio means its end; a later one is an error, and so is
    a ``start`` after the audio. ``mix`` makes one channel of several, by default their mean.

    Raises ``AudioError`` for a path that is missing or not a regular file, content that libsndfile cannot decode, a
    rate or a number of channels out of range, a missing channel, and an empty segment.
    """
    if isinstance(source, str | Path):
        return AudioReader(open_path(Path(source)), str(source), start=start, end=end, owned=True, mix=mix)
    if not hasattr(source, "seek"):
        raise AudioError(
            f"audio: a path or a binary file was expected, got {type(source).__name__}; an array of samples is verified"
            " by verify(samples, rate), and soundfile.read(io.BytesIO(data)) makes one of a file's bytes"
        )
    name = getattr(source, "name", None)
    name = name if isinstance(name, str) else _NO_NAME
    if isinstance(source, io.TextIOBase):
        raise AudioError(f"{name}: a binary file was expected, got a text file; open it with open(path, 'rb')")
    return AudioReader(source, name, start=start, end=end, owned=False, mix=mix)


def open_utterance(utterance: Utterance, mix: Downmix | None = None) -> AudioReader:
    """Open one utterance as ``open_audio``; ``mix``, if given, must take the utterance's channel."""
    mix = Downmix(str(utterance.path), utterance.channel) if mix is None else mix
    return open_audio(utterance.path, start=utterance.start, end=utterance.end, mix=mix)


def read_samples(utterance: Utterance, mix: Downmix | None = None) -> tuple[Samples, int]:
    """Decode one utterance whole: mono samples (n,) and their rate in Hz; ``mix`` and errors as ``open_utterance``."""
    blocks, count = [np.empty(0)], 0
    with open_utterance(utterance, mix) as audio:
        for samples in audio.blocks():
            blocks.append(samples)
            count += len(samples)
            if count > _MOST_WHOLE:
                raise AudioError(
                    f"{utterance.path}: an utterance to augment is held in memory whole, and may have at most"
                    f" {_MOST_WHOLE / audio.rate / 60:.0f} minutes at {audio.rate} Hz; cut it into parts"
                )
    return np.concatenate(blocks), audio.rate


class AudioReader(AbstractContextManager["AudioReader"]):
    """An open audio file; a context manager, made by ``open_audio``.

    ``rate`` is in Hz; ``channels`` is the number in the file, before the downmix.
    """

    def __init__(
        self, file: BinaryIO, name: str, *, start: float | None, end: float | None, owned: bool, mix: Downmix | None
    ) -> None:
        self.name = name
        self._file = file if owned else None
        self._source = Source(file)
        self._sound: Any = None
        self._decoder: ffmpeg.Decoder | None = None
        try:
            self._size = self._source.seek(0, 2)
            self._head = head_of(self._source, name)
            self._sound = self._opened()
            self.rate = int(self._sound.samplerate)
            self.channels = int(self._sound.channels)
            check_rate(self.rate, name)
            check_channels(self.channels, name)
            self._mix = Downmix(name) if mix is None else mix
            self._mix.check_has(self.channels)
            self._start, self._stop = self._segment(start, end)
            self._total = frames_listed(self._sound) if self._decoder is None else None
            self._most = self._most_frames()
        except BaseException:
            self.close()
            raise
        self._position = self._decoded = 0

    @property
    def frames(self) -> int | None:
        """Return the number of samples that ``blocks`` yields according to the header; None if it does not say."""
        if self._total is None:
            return None
        stop = self._total if self._stop is None else min(self._stop, self._total)
        return max(0, stop - self._start)

    def blocks(self, size: int = BLOCK_FRAMES) -> Iterator[Samples]:
        """Yield the samples in order, in arrays (n,) with 1 <= n <= ``size``.

        A second call continues where the first one stopped. Raises ``AudioError`` where decoding fails, for a sample
        that is not finite, for a segment that starts or ends after the audio, and, at the end, for channels that cancel
        each other.
        """
        if size < 1:
            raise AudioError(f"{self.name}: a block must hold at least 1 sample, got size {size}")
        most = min(size, _MOST_VALUES // self.channels)
        if self._position < self._start:
            self._skip()
        while (wanted := most if self._stop is None else min(most, self._stop - self._position)) > 0:
            frames = self._read(wanted)
            if len(frames) == 0:
                self._refuse_if_cut_short()
                self._refuse_if_far_past_the_end()
                break
            check_samples(frames, self.name, rate=self.rate, first=self._position - len(frames))
            yield self._mix.push(frames)
        self._mix.check()

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        if self._sound is not None:
            self._sound.close()
        if self._decoder is not None:
            self._decoder.close()
        if self._file is not None:
            self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> Any:
        """Return the file opened by libsndfile, by way of ffmpeg if necessary."""
        if (kind := ffmpeg.container(self._head)) is None:
            return open_sound(self._source, self._head, self.name)
        if self._file is None:  # libsndfile might decode it to other samples than ffmpeg does from a path
            path = "" if self.name == _NO_NAME else "give its path, from which ffmpeg decodes it, or "
            raise AudioError(
                f"{self.name}: it looks like AAC, M4A, WebM or the like, which is not decoded from an open file:"
                f" {path}convert it to WAV or FLAC (ffmpeg -i FILE FILE.wav)"
            )
        self._decoder = ffmpeg.Decoder(self.name, kind)
        return self._decoder.sound

    def _segment(self, start: float | None, end: float | None) -> tuple[int, int | None]:
        first = 0.0 if start is None else start
        last = np.inf if end is None else end
        are_numbers = isinstance(first, int | float | np.number) and isinstance(last, int | float | np.number)
        if not are_numbers or not 0.0 <= first < last or first * self.rate == np.inf:
            raise AudioError(f"{self.name}: a segment must have 0 <= start < end in seconds, got {start!r} to {end!r}")
        return round(first * self.rate), None if last * self.rate == np.inf else round(last * self.rate)

    def _most_frames(self) -> int:
        """Return how many frames may be decoded; raises AudioError if the header says more."""
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
        if self._decoder is not None:
            self._decoder.wait()
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
        """Raise AudioError where ffmpeg failed, or a file ended too early (``audio.endings``)."""
        if self._decoder is not None:
            self._decoder.check(self._position / self.rate)
            return
        fault = fault_at_end(self._sound, self._source, self._head, self._position)
        self._source.reraise(self.name)
        if fault is not None:
            raise AudioError(f"{self.name}: {fault}")

    def _refuse_if_far_past_the_end(self) -> None:
        """Raise AudioError if the segment should end later than the audio does."""
        if self._stop is not None and self._stop - self._position > _MOST_OVERSHOOT * self.rate:
            raise AudioError(
                f"{self.name}: a segment must end at most {_MOST_OVERSHOOT:g} s after the audio, got an end at"
                f" {self._stop / self.rate:.3f} s of {self._position / self.rate:.3f} s; {_OTHER_TIMES}"
            )

    def _skip(self) -> None:
        """Move to the start of the segment, by decoding up to it where a seek might be inexact."""
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
                    f" {self._start / self.rate:.3f} s of {self._position / self.rate:.3f} s; {_OTHER_TIMES}"
                )
