"""Truncated files: the length in a header compared with the samples that follow it.

A FLAC file that is cut between two frames decodes without an error. For other formats, libsndfile reduces the length to
the samples present, with or without a remark. Programs that write into a pipe cannot know the length and put a very
large one into the header, which is ignored here. The first frame of an MP3 file may hold the number of frames (Xing).
An interrupted recorder leaves a WAV header of 0 bytes. Decoders skip damaged pages of an Ogg file: each page is
checked. In samples without a header, decoders find frames of MPEG audio: of layer I, which nothing records any more, or
frames with most of the file between them. Without a number of frames, they guess the length of MP3, in a WAV
file too, from its first frames, and stop there.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from pipeline.audio.libsndfile import Source, frames_listed

# libsndfile's remarks on a header that gives more bytes than follow: bytes of samples, and of the whole file.
_REDUCED = re.compile(r"^ *(?:data|SSND|Data Size|BODY) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
_REDUCED_FILE = re.compile(r"^ *(?:riff|Riff size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
_FRAME_BYTES = re.compile(r"^ *Block Align *: (\d+)", re.MULTILINE)
_SPHERE_COUNT = re.compile(rb"^sample_count -i (\d+)\s*$", re.MULTILINE)
_UNKNOWN_BYTES = 2**31 - 2**16  # this or more means "until the end": 2**31 - 4096 from sox, 2**32 - 1 from ffmpeg
_NO_SAMPLES = b"data" + bytes(4)  # of a WAV file: its chunk of samples has 0 bytes
_MISCOUNTED = 256  # bytes: some programs count the header among the samples
_OGG, _OGG_HEADER = b"OggS", 27  # the beginning of a page, and bytes of its header
_OGG_FLAGS, _OGG_FIRST, _OGG_CHECKSUM = 5, 2, slice(22, 26)  # in a page's header; the flag of a stream's first page
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))  # the bits of each byte
# In the first frame of an MP3 file: flags, the number of frames, and of bytes.
_MP3_COUNTS = re.compile(rb"\xff[\xe0-\xff].{7,40}?(?:Xing|Info)...([\x03\x07\x0b\x0f])(.{4})(.{4})", re.DOTALL)
_MP3_MISCOUNTED = 2 * 1152  # samples: the first frame, which has no sound, may be counted too
_MP3_UNCOUNTED = 2048  # bytes: some encoders count without the first frame, at most 1441, and tags follow the last
_MP3_BYTES_A_SECOND = 96_000  # of a file: the highest rate, of layer II, is half of it
_APE_TAG, _APE_END = b"APETAGEX", 32 + 128  # begins the last 32 bytes of a tag, which an ID3 tag of 128 may follow
_CHUNK = 2**16  # bytes
_DAMAGED = "the file is damaged or cut short"


def fault_at_end(sound: Any, source: Source, head: bytes, position: int) -> str | None:
    """Return what is wrong with a file that ended after ``position`` decoded frames; None if it is complete.

    ``sound`` is the file as libsndfile reads it from ``source``, and ``head`` its first bytes.
    """
    place, end = source.tell(), f"{position / sound.samplerate:.3f} s"
    if position == 0 and (size := _unlisted_bytes(source, head)):
        return (
            f"its header says 0 bytes of samples, and {size:,} bytes follow: a recording that was interrupted before"
            " its header was written? ffmpeg -ignore_length 1 -i FILE OTHER.wav decodes all"
        )
    said, slack, joined, fault = _frames_promised(sound, head), 0, None, None
    if sound.format == "OGG":
        fault, joined = _ogg_pages(source)
    elif sound.format == "MP3":
        said, joined = _mp3_counts(source, int(sound.frames))
        slack = _MP3_MISCOUNTED
        most = _MP3_UNCOUNTED + _MP3_BYTES_A_SECOND * position / sound.samplerate
        size = source.seek(0, 2)
        tagged = head.startswith(b"ID3") or _APE_TAG in source.bytes_at(max(0, size - _APE_END), _APE_END)
        if said is None and not tagged and (sound.subtype == "MPEG_LAYER_I" or size > most):
            return (
                f"its {size:,} bytes give {end} of {sound.subtype}: samples without a header, in which a decoder finds"
                " MPEG frames? To such samples, ffmpeg -f s16le -ar 16000 -i FILE OTHER.wav (or mulaw, alaw ...) adds a"
                " header; true MPEG audio is converted by ffmpeg -i FILE OTHER.wav"
            )
    is_guessed = sound.subtype.startswith("MPEG") and said is None and position == sound.frames
    more = is_guessed and _goes_on(source, place, position)
    source.seek(place)
    if said is not None and position < said - slack:
        return f"it ends at {end}, and its header says {said / sound.samplerate:.3f} s; {_DAMAGED}"
    if fault is not None:
        return f"it ends at {end}, {fault}; {_DAMAGED}"
    if joined is None and not more:
        return None
    what = "more MP3 audio" if more else f"another {joined} stream"
    why = "in files of a variable bit rate that do not count their frames" if more else "in files joined end to end"
    return f"{what} follows at {end}, as {why}, and would not be read; ffmpeg -i FILE OTHER.wav decodes all"


def _frames_promised(sound: Any, head: bytes) -> int | None:
    """Return the number of frames that a file's header gives; None unless it exceeds the frames in the file.

    ``sound`` is the file as libsndfile reads it, which reduces the number, and ``head`` its first bytes.
    """
    total, remarks = int(sound.frames), sound.extra_info
    if sound.format == "FLAC":
        return frames_listed(sound)
    if sound.format == "NIST":
        return _sphere_frames(head, total, int(sound.channels))
    lacks_samples, lacks_bytes = _REDUCED.search(remarks), _REDUCED_FILE.search(remarks)
    found, size = lacks_samples or lacks_bytes, _FRAME_BYTES.search(remarks)
    if found is None:
        return None
    said, there = map(int, found.groups())
    if said >= _UNKNOWN_BYTES or said - there <= _MISCOUNTED or there <= 0:
        return None
    if lacks_samples is not None:
        return round(total * said / there)
    return None if size is None else total + (said - there) // max(1, int(size[1]))


def _unlisted_bytes(source: Source, head: bytes) -> int:
    """Return how many bytes follow an empty data chunk in the ``head`` of a WAV file; 0 if they are another chunk."""
    start = head.find(_NO_SAMPLES) + len(_NO_SAMPLES)
    if not head.startswith(b"RIFF") or start < len(_NO_SAMPLES):
        return 0
    place, size = source.tell(), source.seek(0, 2) - start
    following = source.bytes_at(start, 8)
    source.seek(place)
    is_chunk = (
        all(0x20 <= byte < 0x7F for byte in following[:4]) and int.from_bytes(following[4:], "little") <= size - 8
    )
    return 0 if size <= _MISCOUNTED or is_chunk else size


def _sphere_frames(head: bytes, total: int, channels: int) -> int | None:
    """Return the SPHERE header's sample count if it exceeds the frames in the file; some headers count all channels."""
    found = _SPHERE_COUNT.search(head)
    said = 0 if found is None else int(found[1])
    return said if said - total > _MISCOUNTED and abs(said - total * channels) > _MISCOUNTED else None


def _mp3_counts(source: Source, total: int) -> tuple[int | None, str | None]:
    """Return the number of samples that an MP3 file's first frame declares, and "MP3" where another file follows.

    ``total`` is the number that libsndfile, which reads the same field, expects.
    """
    tag = source.bytes_at(0, 10)
    start = 0
    if tag.startswith(b"ID3"):
        start = 10 + sum(byte << shift for byte, shift in zip(tag[6:], (21, 14, 7, 0), strict=True))
    frame = source.bytes_at(start, 80)
    if (found := _MP3_COUNTS.match(frame)) is None:
        return None, None
    frames, size = (int.from_bytes(count) for count in found.groups()[1:])
    samples = 1152 if frame[1] & 0x18 == 0x18 else 576  # in a frame of MPEG 1, or of MPEG 2
    after = source.bytes_at(start + size, _MP3_UNCOUNTED + 1)
    follows = after.startswith(b"ID3") or (len(after) > _MP3_UNCOUNTED and after[0] == 0xFF and after[1] >= 0xE0)
    return min(total, frames * samples), "MP3" if follows and size > 0 else None


def _goes_on(source: Source, place: int, position: int) -> bool:
    """Return True if MP3 frames follow at ``place``, of more samples than may be miscounted; ``position`` precede."""
    after, size = source.bytes_at(place, 2), source.seek(0, 2)
    return after >= b"\xff\xe0" and (size - place) * position > _MP3_MISCOUNTED * place


def _ogg_pages(source: Source) -> tuple[str | None, str | None]:
    """Return where the pages of an Ogg file are broken, and "Ogg" if more than one stream begins in it.

    Other bytes after the last page do not count as damage.
    """
    place = begun = 0
    while (head := source.bytes_at(place, _OGG_HEADER)).startswith(_OGG):
        sizes = source.bytes_at(place + _OGG_HEADER, head[-1] if len(head) == _OGG_HEADER else 0)
        page = head + sizes + source.bytes_at(place + _OGG_HEADER + len(sizes), sum(sizes))
        if len(page) < _OGG_HEADER or len(page) < _OGG_HEADER + head[-1] + sum(sizes):
            return "within a page of its Ogg stream", None
        if _ogg_checksum(page) != page[_OGG_CHECKSUM]:
            return f"and the page of its Ogg stream at byte {place:,} breaks its checksum", None
        begun += bool(head[_OGG_FLAGS] & _OGG_FIRST)
        place += len(page)
    if _is_further(source, _OGG, place):
        return f"and its Ogg stream is interrupted at byte {place:,}", None
    return None, "Ogg" if begun > 1 else None


def _ogg_checksum(page: bytes) -> bytes:
    """Return the checksum of a page: a CRC-32 of the usual polynomial with its bits reversed, and initial value 0."""
    blank = page[: _OGG_CHECKSUM.start] + bytes(4) + page[_OGG_CHECKSUM.stop :]
    checksum = zlib.crc32(blank.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return checksum.to_bytes(4, "big").translate(_REVERSED)


def _is_further(source: Source, pattern: bytes, place: int) -> bool:
    """Check whether ``pattern`` is anywhere from ``place`` to the end."""
    while len(chunk := source.bytes_at(place, _CHUNK)) >= len(pattern):
        if pattern in chunk:
            return True
        place += len(chunk) - len(pattern) + 1
    return False
