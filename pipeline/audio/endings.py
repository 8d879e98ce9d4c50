"""Files that are decoded too short: the length that a header promises, against what there is of it.

A FLAC file cut between two frames just ends. Of others, libsndfile reduces the size to what there is, and says so, or
says nothing. A size that only a recorder into a pipe writes, which cannot know it, promises nothing.
"""

from __future__ import annotations

import re
from typing import Any

# libsndfile's remarks on a header that promises more bytes than follow: of samples, and of the whole file.
_REDUCED = re.compile(r"^ *(?:data|SSND|Data Size|BODY) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
_REDUCED_FILE = re.compile(r"^ *(?:riff|Riff size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
_FRAME_BYTES = re.compile(r"^ *Block Align *: (\d+)", re.MULTILINE)
_SPHERE_COUNT = re.compile(rb"^sample_count -i (\d+)\s*$", re.MULTILINE)
_UNKNOWN_BYTES = 2**31 - 2**16  # from here on, "until the end": 2**31 - 4096 by sox, 2**32 - 1 by ffmpeg
_MISCOUNTED = 256  # bytes by which programs miscount, adding the header to the samples
_OGG_HEADER, LONGEST_OGG_PAGE = 27, 65_307  # bytes
_OGG_STREAM = slice(14, 18)  # of a page's header: the number of its stream


def frames_promised(sound: Any, head: bytes) -> int | None:
    """Return the frames that the header of a file promises; None where it promises no more than there are.

    ``sound`` is the file as libsndfile reads it, which knows where it ends, and ``head`` its first bytes.
    """
    total, remarks = int(sound.frames), sound.extra_info
    if sound.format == "FLAC":
        return total
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


def _sphere_frames(head: bytes, total: int, channels: int) -> int | None:
    """Return the count in a SPHERE header where it is of more frames than there are; some count all channels."""
    found = _SPHERE_COUNT.search(head)
    said = 0 if found is None else int(found[1])
    return said if said - total > _MISCOUNTED and abs(said - total * channels) > _MISCOUNTED else None


def ends_within_ogg_page(tail: bytes) -> bool:
    """Check whether the last page of an Ogg stream is incomplete, by the last ``LONGEST_OGG_PAGE`` bytes of the file.

    A recording of a live stream may end without the flag that marks its last page, but not within a page.
    """
    start = tail.rfind(b"OggS")
    if start < 0:
        return False
    page = tail[start:]
    if len(page) < _OGG_HEADER:
        return True
    segments = page[_OGG_HEADER : _OGG_HEADER + page[26]]
    return len(segments) < page[26] or len(page) < _OGG_HEADER + page[26] + sum(segments)


def is_followed_by_another_ogg_stream(head: bytes, tail: bytes) -> bool:
    """Check whether the last page, in the ``tail`` of a file, is of another stream than the first, in its ``head``.

    So it is in files that were joined end to end, of which libsndfile reads the first stream.
    """
    last = tail[tail.rfind(b"OggS") :]
    return head.startswith(b"OggS") and head[_OGG_STREAM] != last[_OGG_STREAM]
