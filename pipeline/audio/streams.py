"""Raw audio in memory, and WAV or raw audio from a pipe as it arrives, to mono float64 samples.

Conventions. Samples are float64, full scale is [-1, 1], a ``Downmix`` makes several channels one, and nothing is
clipped. libsndfile decodes every encoding: integers are divided by 2**(bits - 1).
"""

from __future__ import annotations

import io
import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any, BinaryIO, Literal

import numpy as np
import soundfile
from numpy.typing import ArrayLike, NDArray

from pipeline.audio.downmix import Downmix
from pipeline.errors import AudioError

Samples = NDArray[np.float64]
Encoding = Literal["u8", "s16le", "s24le", "s32le", "f32le", "f64le", "mulaw", "alaw"]

MIN_RATE = 2_000
MAX_RATE = 768_000
MAX_CHANNELS = 64
MAX_MAGNITUDE = 2.0**32  # leaves room for integers stored as floats; beyond it the data cannot be audio
DECODER_ERRORS = (soundfile.SoundFileError, OSError, RuntimeError, TypeError, ValueError)
_BLOCK_SECONDS = 0.02  # of audio in each read from a pipe
# Encoding: libsndfile's name, and bytes a sample.
_CODINGS: dict[str, tuple[str, int]] = {
    "u8": ("PCM_U8", 1),
    "s16le": ("PCM_16", 2),
    "s24le": ("PCM_24", 3),
    "s32le": ("PCM_32", 4),
    "f32le": ("FLOAT", 4),
    "f64le": ("DOUBLE", 8),
    "mulaw": ("ULAW", 1),
    "alaw": ("ALAW", 1),
}
# Zero level and full scale of integer samples.
_FULL_SCALE = {"uint8": (128.0, 2.0**7), "int16": (0.0, 2.0**15), "int32": (0.0, 2.0**31)}


def check_rate(rate: int, where: str) -> None:
    """Refuse a sampling rate in Hz outside [MIN_RATE, MAX_RATE] with an ``AudioError`` about ``where``."""
    if not isinstance(rate, Real):
        raise AudioError(
            f"{where}: the sampling rate must be a number of Hz, got {type(rate).__name__}; are rate and samples"
            " exchanged?"
        )
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


def check_samples(samples: Samples, where: str, *, rate: int, first: int) -> None:
    """Refuse NaN, infinite and absurdly large samples.

    ``samples`` has shape (n,) or (n, channels); ``first`` is the index of their first frame in the recording.
    Raises ``AudioError`` naming the time of the first offender.
    """
    if samples.size == 0:
        return
    with np.errstate(all="ignore"):  # a signalling NaN would make the comparisons themselves warn
        # If the sum of squares is small, so is every sample: one pass instead of two. False for NaN.
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


def as_samples(given: ArrayLike, where: str, mix: Downmix | None = None) -> Samples:
    """Return a copy of ``given`` as mono samples (n,), full scale 1; ``mix`` is the downmix of the whole recording.

    ``given`` are floats of full scale 1, or integers of 8 (unsigned), 16 or 32 bits, of shape (n,) or (n, channels).
    Raises AudioError for any other array, and for one without the channel that ``mix`` takes.
    """
    array = _as_array(given, where)
    mix = Downmix(where) if mix is None else mix
    if array.ndim == 1 and array.size:
        mix.check_has(1)
    if array.dtype.name in _FULL_SCALE:
        middle, scale = _FULL_SCALE[array.dtype.name]
        samples = (array.astype(np.float64) - middle) / scale
    elif array.dtype.kind == "f" or array.size == 0:
        samples = array.astype(np.float64)
    else:
        raise AudioError(
            f"{where}: samples must be floats of full scale 1, or uint8, int16 or int32, got {array.dtype};"
            " divide them by the full scale, or give an array of the type that was recorded"
        )
    if samples.ndim == 1 or samples.size == 0:
        return samples.ravel()
    # At the start of a recording, several frames but fewer than channels are refused; a single frame is not.
    if samples.ndim != 2 or not (
        samples.shape[1] <= MAX_CHANNELS
        and (mix.channels is not None or samples.shape[0] == 1 or samples.shape[0] >= samples.shape[1])
    ):
        raise AudioError(
            f"{where}: samples must have the shape (n,) or (n, channels), got {samples.shape}; transpose an array of"
            " (channels, n)"
        )
    return np.ascontiguousarray(mix.push(samples))


def _as_array(given: ArrayLike, where: str) -> NDArray[Any]:
    """Return ``given`` as an array of numbers; raises AudioError with the likely mistake."""
    problem, cause = type(given).__name__, ""
    if given is None or isinstance(given, str | os.PathLike):
        cause = "a file is verified by verify_file"
    elif isinstance(given, bytes | bytearray) or (isinstance(given, memoryview) and given.itemsize == 1):
        cause = "name the type of the samples that the bytes are: numpy.frombuffer(data, numpy.int16)"
    elif np.ma.is_masked(given):
        cause = "masked samples have no value: replace them by filled()"
    if not cause:
        try:
            array = np.asarray(given)
            if array.size == 0 or array.dtype.kind not in "OSU":
                return array
            problem, cause = f"{problem} ({array.dtype})", "collect samples one by one in a list"
        except (ValueError, TypeError, RuntimeError) as error:  # and errors of the tensor's library
            problem, cause = f"{problem} ({error})", "a tensor is given by detach().cpu().numpy()"
            if isinstance(given, list):
                cause = "lists of unequal length?"
            elif isinstance(given, tuple):
                cause = "the samples with their rate? Give them as two arguments"
    raise AudioError(f"{where}: samples must be an array of numbers, got {problem}; {cause}")


@dataclass(frozen=True)
class PcmFormat:
    """Format of headerless audio: ``rate`` in Hz, ``channels`` interleaved, ``encoding``.

    Raises ``AudioError`` for a rate, a number of channels or an encoding out of range.
    """

    rate: int
    channels: int = 1
    encoding: Encoding = "s16le"

    def __post_init__(self) -> None:
        check_rate(self.rate, "raw audio format")
        check_channels(self.channels, "raw audio format")
        if self.encoding not in _CODINGS:
            raise AudioError(
                f"raw audio format: the encoding must be one of {', '.join(_CODINGS)}, got {self.encoding!r}"
            )

    @property
    def frame_bytes(self) -> int:
        """Return the number of bytes of one sample of every channel."""
        return _CODINGS[self.encoding][1] * self.channels

    @property
    def as_soundfile(self) -> dict[str, Any]:
        """Return the arguments of ``soundfile.SoundFile``."""
        return {
            "format": "RAW",
            "subtype": _CODINGS[self.encoding][0],
            "endian": "LITTLE",
            "samplerate": self.rate,
            "channels": self.channels,
        }


class PcmDecoder:
    """Decoder of raw bytes, in pieces of any length, to mono samples; a frame cut in two waits for its second part."""

    def __init__(self, pcm: PcmFormat, *, where: str = "raw audio") -> None:
        self.pcm = pcm
        self._where = where
        self._rest = b""
        self._frames = 0

    def push(self, data: bytes | bytearray | memoryview) -> Samples:
        """Decode every frame completed by ``data``: samples (n,); raises AudioError for one that is not finite."""
        data = self._rest + bytes(data)
        whole = len(data) - len(data) % self.pcm.frame_bytes
        self._rest = data[whole:]
        if whole == 0:
            return np.empty(0)
        frames, _ = soundfile.read(io.BytesIO(data[:whole]), always_2d=True, **self.pcm.as_soundfile)
        check_samples(frames, self._where, rate=self.pcm.rate, first=self._frames)
        self._frames += len(frames)
        return Downmix(self._where).push(frames)


def stream_pipe(
    pipe: BinaryIO, raw: PcmFormat | None = None, *, mix: Downmix | None = None
) -> tuple[int, Iterator[Samples]]:
    """Read audio from a pipe as it arrives: the rate in Hz and an iterator over mono samples (n,), n >= 1.

    If ``raw`` is None, the pipe must carry a WAV file, whose header is read before this returns; its data may end
    before the size in the header. Blocks last 20 ms, the last may be shorter. The pipe must have a file descriptor,
    from which nothing has been read yet; it is not closed. ``mix`` makes one channel of several, by default their mean.

    Raises ``AudioError``, here or from the iterator, for an unusable header, a missing channel, a pipe that fails,
    samples that are not finite and, at the end, channels that cancel each other.
    """
    name = pipe.name if isinstance(getattr(pipe, "name", None), str) else "pipe"
    try:
        descriptor = pipe.fileno()
        if not os.get_blocking(descriptor):  # a read would return nothing, as at the end
            raise AudioError(f"{name}: a pipe must be in blocking mode, got one that is not")
        _wait(descriptor)
        sound = soundfile.SoundFile(descriptor, closefd=False, **({} if raw is None else raw.as_soundfile))
    except DECODER_ERRORS as error:
        if "flac" in reason(error).lower():  # the one format whose header is not read from a pipe
            raise _no_wav(name, "FLAC") from error
        raise AudioError(
            f"{name}: a WAV file was expected on the pipe ({reason(error)}); for headerless samples give their format"
            " with --raw, convert anything else to WAV on the way; or did the program before the pipe fail?"
        ) from error
    if raw is None:
        _check_header(sound, name)
    mix = Downmix(name) if mix is None else mix
    mix.check_has(sound.channels)
    return sound.samplerate, _blocks(sound, descriptor, name, mix)


def _check_header(sound: soundfile.SoundFile, name: str) -> None:
    if sound.format not in ("WAV", "WAVEX"):
        raise _no_wav(name, sound.format)
    check_rate(sound.samplerate, name)
    check_channels(sound.channels, name)
    if sound.frames == 0:
        raise AudioError(
            f"{name}: the WAV header says that no samples follow; a recorder that cannot know the size must write"
            " 0xFFFFFFFF there, or send headerless samples for --raw"
        )


def _no_wav(name: str, found: str) -> AudioError:
    return AudioError(f"{name}: a pipe must carry a WAV file, got {found}; convert it to WAV on the way")


def _blocks(sound: soundfile.SoundFile, descriptor: int, name: str, mix: Downmix) -> Iterator[Samples]:
    size, position = max(1, round(_BLOCK_SECONDS * sound.samplerate)), 0
    with sound:
        while True:
            try:
                _wait(descriptor)
                frames: Samples = sound.read(size, always_2d=True)
            except DECODER_ERRORS as error:
                raise AudioError(f"{name}: the pipe cannot be read ({reason(error)})") from error
            if len(frames) == 0 and position == 0:
                raise AudioError(f"{name}: a pipe must carry audio, got none; did the program before the pipe fail?")
            if len(frames) == 0:
                mix.check()
                return
            if position == 0 and _is_wav_header(sound, frames):
                raise AudioError(f"{name}: headerless samples were expected, got a WAV file; it is read without --raw")
            check_samples(frames, name, rate=sound.samplerate, first=position)
            position += len(frames)
            yield mix.push(frames)


def _is_wav_header(sound: soundfile.SoundFile, frames: Samples) -> bool:
    """Check whether the first ``frames`` of headerless 16-bit samples were the beginning of a WAV file."""
    if (sound.format, sound.subtype) != ("RAW", "PCM_16"):
        return False
    return bool((frames.ravel()[:2] * 2.0**15).astype("<i2").tobytes() == b"RIFF")


def _wait(descriptor: int) -> None:
    """Wait for bytes or the end here, not inside libsndfile, so that an interrupt can be delivered."""
    if os.name != "nt":
        select.select([descriptor], [], [])


def reason(error: Exception) -> str:
    """Return the error message of libsndfile or of the system."""
    return str(getattr(error, "error_string", error)).rstrip(".")
