"""Binary files opened by libsndfile, or an error with the likely cause."""

from __future__ import annotations

from typing import Any, BinaryIO

import soundfile

from pipeline.audio.streams import DECODER_ERRORS, reason
from pipeline.errors import AudioError

# Matrices, feature files and sample dumps, which libsndfile would decode as audio, and samples without a header.
NO_RECORDINGS = frozenset({"HTK", "MAT4", "MAT5", "RAW", "SDS"})
HEADERLESS = "to samples without a header, ffmpeg -f mulaw -ar 8000 -i FILE FILE.wav (or alaw, s16le ...) adds one"
_UNKNOWN_FRAMES = 2**62  # libsndfile reports 2**63 - 1 for "until the end"
# Recognised by libsndfile by the path alone: a file "._" in the current folder makes it take any file for this format.
_SOUND_DESIGNER = "SD2"
# Largest share of non-UTF-8 bytes in text of another encoding; in mu-law and A-law about half of all bytes.
_MOST_UNREADABLE = 0.25


class Source:
    """A binary file that libsndfile reads by callbacks.

    An exception in a callback, an interrupt included, is kept for ``reraise``: otherwise it would be printed, and
    libsndfile would go on as at the end of the file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._error: BaseException | None = None

    def reraise(self, name: str) -> None:
        """Raise the exception of a callback as AudioError, or an interrupt as it is."""
        error, self._error = self._error, None
        if isinstance(error, Exception):
            raise AudioError(
                f"{name}: cannot be read ({error}); a file must be open for reading ('rb') and seekable, a pipe is"
                " read as a stream"
            ) from error
        if error is not None:
            raise error

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as the file goes and return the number of bytes."""
        done = 0
        try:
            while done < len(buffer) and (data := self._file.read(len(buffer) - done)):
                buffer[done : done + len(data)] = data
                done += len(data)
        except BaseException as error:
            self._error = error
        return done

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move and return the new position; -1 for one before the start, which a damaged header may ask for."""
        try:
            if whence < 2 and offset + (self._file.tell() if whence == 1 else 0) < 0:
                return -1
            return self._file.seek(offset, whence)
        except BaseException as error:
            self._error = error
            return 0

    def tell(self) -> int:
        """Return the position."""
        return self.seek(0, 1)

    def bytes_at(self, place: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``place`` on."""
        content = bytearray(count)
        self.seek(place)
        return bytes(content[: self.readinto(content)])


def head_of(source: Source, name: str) -> bytes:
    """Return the first bytes of ``source``; raises AudioError for an empty one."""
    head = source.bytes_at(0, 1024)
    source.seek(0)
    source.reraise(name)
    if not head:
        raise AudioError(f"{name}: an audio file cannot be empty, got 0 bytes; a failed recording?")
    return head


def open_sound(source: Source, head: bytes, name: str) -> soundfile.SoundFile:
    """Open ``source``, which begins with ``head``, by libsndfile; raises AudioError with the likely cause.

    ``SoundFile.read`` seeks to the new position after every block of a seekable file. For MP3 that restarts the
    decoder, and the samples then depend on the block size, so the file is marked as not seekable.
    """
    try:
        sound = soundfile.SoundFile(source)
    except DECODER_ERRORS as error:
        source.reraise(name)
        raise AudioError(f"{name}: cannot be decoded as audio ({reason(error)}); {_likely_cause(head)}") from error
    sound.seekable = lambda: False
    source.reraise(name)
    if sound.format in NO_RECORDINGS or sound.format == _SOUND_DESIGNER:
        sound.close()
        raise AudioError(
            f"{name}: {sound.format} is not a format of recordings; if it is a recording, convert it to WAV"
        )
    return sound


def frames_listed(sound: soundfile.SoundFile) -> int | None:
    """Return how many frames an open file has according to its header; None if the header does not say."""
    return int(sound.frames) if sound.frames < _UNKNOWN_FRAMES else None


def _likely_cause(head: bytes) -> str:
    """Guess from the first bytes of a file why libsndfile refused it."""
    if head.startswith(b"NIST_1A") and b"shorten" in head:
        return "SPHERE with 'shorten' compression, which libsndfile does not read: expand it with sph2pipe"
    text = head.decode("utf-8", "replace")
    is_readable = all(c.isprintable() or c.isspace() for c in text)
    if b"\0" not in head and is_readable and text.count("\ufffd") < _MOST_UNREADABLE * len(text):
        return "it holds text, not audio"
    others = "not in an audio format that libsndfile reads (ffmpeg -i FILE OTHER.wav converts many)"
    return f"it is damaged, cut short, or {others}; {HEADERLESS}"
