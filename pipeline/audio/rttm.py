"""Rich Transcription Time Marked (RTTM) files: speaker turns with start and duration.

    SPEAKER file channel start duration <NA> <NA> speaker <NA> <NA>

Fields are separated by blanks; times are in seconds. Lines of other types than SPEAKER are ignored. NIST, The 2009
(RT-09) Rich Transcription Meeting Recognition Evaluation Plan, appendix A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import InputError
from pipeline.files import read_bounded

MOST_BYTES = 2**28
_SHOWN = 60  # characters of a bad line that a message quotes
_FIELDS = 8  # at least, up to the speaker


@dataclass(frozen=True, slots=True)
class Turn:
    """One segment of speech: ``start`` and ``duration`` in seconds, in ``channel`` of the file named ``file``."""

    file: str
    start: float
    duration: float
    speaker: str
    channel: str = "1"


def read_rttm(path: Path) -> tuple[Turn, ...]:
    """Read the turns of an RTTM file, in file order; raises InputError, naming file and line, for a broken one."""
    try:
        content = read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    turns = []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        words = line.split()
        if words and words[0] == b"SPEAKER":
            turns.append(_turn(path, number, line, words))
    if not turns:
        raise InputError(f"{path}: an RTTM file needs at least one SPEAKER line, got none; is it an RTTM file?")
    return tuple(turns)


def _turn(path: Path, number: int, line: bytes, words: list[bytes]) -> Turn:
    shown = line.decode("utf-8", errors="backslashreplace")[:_SHOWN]
    where = f"{path}, line {number}"
    if len(words) < _FIELDS:
        raise InputError(
            f"{where}: 'SPEAKER file channel start duration <NA> <NA> speaker' was expected, got {shown!r}"
        )
    try:
        start, duration = float(words[3]), float(words[4])
        file, channel, speaker = (words[k].decode() for k in (1, 2, 7))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: UTF-8 text was expected ({error})") from error
    except ValueError:
        start = duration = math.nan
    if not (0.0 <= start < math.inf and 0.0 < duration < math.inf):
        raise InputError(
            f"{where}: a start of 0 or more and a duration above 0 were expected, in seconds, got {shown!r}"
        )
    return Turn(file, start, duration, speaker, channel)
