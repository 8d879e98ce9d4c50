"""What libsndfile needs from a file, and what is known of a file that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import soundfile

from pipeline.errors import AudioError
from pipeline.files import open_regular

DECODER_ERRORS = (soundfile.SoundFileError, OSError, RuntimeError, TypeError, ValueError)
_HEAD = 1024
_MOST_TAGS = 16
_LONGEST_FRAME = 1441  # bytes of an MP3 frame
_LONGEST_PAGE = 27 + 255 + 255 * 255  # bytes of an Ogg page

# Containers of numbers that libsndfile would play. A resource fork that lies about (a file "._" in the current folder)
# makes it take any file for Sound Designer's.
_NO_SOUND = {
    "HTK": "it holds a feature file of HTK, not sound",
    "MAT4": "it holds a matrix, not sound",
    "MAT5": "it holds a matrix, not sound",
    "SD2": "Sound Designer files are not read",
}


def open_file(path: Path) -> BinaryIO:
    """Open ``path`` for decoding; raises AudioError for anything but a regular file, and never waits for one."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise AudioError(f"{path}: no such file; a mistyped or moved path?") from None
    except IsADirectoryError:
        raise AudioError(f"{path}: an audio file was expected, got a folder; name one file in it") from None
    except OSError as error:
        raise AudioError(
            f"{path}: {error.strerror or error}; what comes through a pipe or a device is read as a stream"
        ) from error


def open_sound(source: Source, name: str) -> SequentialFile:
    """Let libsndfile open ``source``; raises AudioError, with the likely cause."""
    head = source.peek(0, _HEAD)
    source.reraise(name)
    if not head:
        raise AudioError(f"{name}: an audio file cannot be empty, got 0 bytes; a failed recording?")
    _refuse_by_content(source, head, name)
    try:
        sound = SequentialFile(source)
    except DECODER_ERRORS as error:
        source.reraise(name)
        raise AudioError(f"{name}: cannot be decoded as audio ({reason(error)}); {_likely_cause(head)}") from error
    source.reraise(name)
    if sound.format in _NO_SOUND:
        sound.close()
        raise AudioError(f"{name}: {_NO_SOUND[sound.format]}; convert it to WAV or FLAC if it is sound after all")
    return sound


def _refuse_by_content(source: Source, head: bytes, name: str) -> None:
    """Raise AudioError for what libsndfile is not shown at all, and for a file that says itself that it goes on."""
    at, inner = _behind_tags(source, head)
    if len(inner) >= 4 and inner[:2] == b"\xf0\x7e" and inner[2] < 0x80 and inner[3] == 1:
        # Its decoder prints to the standard output what it thinks of a damaged one.
        raise AudioError(f"{name}: a MIDI sample dump is not read; convert it to WAV or FLAC")
    there = source.size() - at
    missing = not _ends_with_last_page(source) if inner[:4] == b"OggS" else _announced_bytes(inner) > there
    source.reraise(name)
    if missing:
        raise AudioError(
            f"{name}: it is cut short: its own headers say that more follows; an unfinished download, or a recorder"
            " that was killed? To use what is there, convert it to WAV or FLAC"
        )


class SequentialFile(soundfile.SoundFile):  # type: ignore[misc]  # soundfile ships no types
    """A sound file that is read from front to back without a seek.

    ``SoundFile.read`` seeks to the new position after every block of a seekable file. For MP3 that
    restarts the decoder, and the samples then depend on the size of the blocks. Read as a stream, every
    format gives the same samples for any blocks.
    """

    def seekable(self) -> bool:
        """Never, whatever the file can do."""
        return False


class Source:
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

    def peek(self, at: int, count: int) -> bytes:
        """The ``count`` bytes from ``at`` on, or fewer where the file ends; the file is then at its start."""
        buffer = bytearray(count)
        self.seek(at)
        head = bytes(buffer[: self.readinto(buffer)])
        self.seek(0)
        return head

    def size(self) -> int:
        """Bytes of the file; it is then at its start."""
        size = self.seek(0, 2)
        self.seek(0)
        return size

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as the file goes; how many bytes that was."""
        done = 0
        try:
            while done < len(buffer) and (data := self._file.read(len(buffer) - done)):
                buffer[done : done + len(data)] = data
                done += len(data)
        except BaseException as error:
            self._error = error
        return done

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move, and tell where to; -1 for a place before the start, where damaged headers point."""
        try:
            if whence < 2 and offset + (self._file.tell() if whence == 1 else 0) < 0:
                return -1
            return self._file.seek(offset, whence)
        except BaseException as error:
            self._error = error
            return 0

    def tell(self) -> int:
        """Where the file is."""
        try:
            return self._file.tell()
        except BaseException as error:
            self._error = error
            return 0


def reason(error: Exception) -> str:
    """What libsndfile says is wrong."""
    return str(getattr(error, "error_string", error)).rstrip(".")


def _behind_tags(source: Source, head: bytes) -> tuple[int, bytes]:
    """Where the content begins behind any ID3 tags, as libsndfile takes it, and its first bytes."""
    at = 0
    for _ in range(_MOST_TAGS):
        if head[:3] != b"ID3" or len(head) < 10:
            break
        at += 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
        head = source.peek(at, _HEAD)
    return at, head


def _announced_bytes(head: bytes) -> int:
    """Bytes that an MP3's first frame, if it is a Xing header, says must follow at the least; else 0."""
    if head[:1] != b"\xff" or head[1:2] < b"\xe0":
        return 0
    found = max(head.find(mark, 0, 64) for mark in (b"Xing", b"Info"))
    if found < 0 or len(head) < found + 16 or not head[found + 7] & 2:
        return 0
    field = found + (12 if head[found + 7] & 1 else 8)  # behind the number of frames, where there is one
    size = int.from_bytes(head[field : field + 4], "big")
    return size - size // 50 - _LONGEST_FRAME  # writers do not agree to a frame what they count


def _ends_with_last_page(source: Source) -> bool:
    """Whether the last whole page of an Ogg file says that it is the last."""
    size = source.size()
    tail = source.peek(max(0, size - 2 * _LONGEST_PAGE), 2 * _LONGEST_PAGE)
    end = len(tail)
    while (at := tail.rfind(b"OggS", 0, end)) >= 0:
        body = at + 27 + (tail[at + 26] if at + 26 < len(tail) else 256)
        if body + sum(tail[at + 27 : body]) <= len(tail):
            return bool(tail[at + 5] & 4)
        end = at
    return False


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
