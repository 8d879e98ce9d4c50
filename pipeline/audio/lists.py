"""Recordings and speakers in lists: Kaldi's data directories, and RTTM files.

Kaldi's ``wav.scp`` has a recording a line, ``utt2spk`` an utterance and its speaker (``spk2utt`` a speaker and the
utterances), ``segments`` an utterance, its recording, start and end. A Rich Transcription Time Marked (RTTM) file has a
speaker turn a line (NIST, The 2009 (RT-09) Rich Transcription Meeting Recognition Evaluation Plan, appendix A):

    SPEAKER file channel start duration <NA> <NA> speaker <NA> <NA>

Fields are separated by blanks; times are in seconds. Every failure is a ``InputError`` that names the file and line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from pipeline.errors import InputError
from pipeline.files import read_bounded

Segment = tuple[str, Path, float | None, float | None, int | None]
"""Speaker, recording, start and end in seconds (None: its own ends), and channel from 1 (None: the mean of all)."""

_MOST_BYTES = 2**28  # of one list
_SHOWN = 60  # characters of a bad line that a message quotes
_BLANKS = " \t\r"  # Kaldi's separators; other white space may be part of a name
_RTTM_FIELDS = 8  # at least, up to the speaker


def read_kaldi(root: Path) -> list[Segment]:
    """Return the utterances of the Kaldi data directory ``root``, in the order of its list; raises InputError."""
    recordings = {key: _recording_path(root, line, rest) for key, line, rest in _keyed(root / "wav.scp")}
    by_speaker = (root / "spk2utt").exists() and not (root / "utt2spk").exists()
    owned = root / ("spk2utt" if by_speaker else "utt2spk")
    if not owned.exists():
        raise InputError(f"{root}: a Kaldi data directory must hold wav.scp and utt2spk, got no utt2spk")
    owners = _owners(owned) if by_speaker else _speakers(owned)
    segmented = (root / "segments").exists()
    listing = root / ("segments" if segmented else "wav.scp")
    utterances: list[Segment] = []
    for utterance, line, rest in _keyed(listing):
        recording, start, end = _segment(listing, line, rest) if segmented else (utterance, None, None)
        if utterance not in owners:
            _refuse(listing, line, f"every utterance must be in {owned.name}, {utterance!r} is not")
        if recording not in recordings:
            _refuse(listing, line, f"every recording must be in wav.scp, {recording!r} is not")
        utterances.append((owners.pop(utterance)[1], recordings[recording], start, end, None))
    for utterance, (line, _) in owners.items():
        _refuse(owned, line, f"every utterance must be in {listing.name}, {utterance!r} is not")
    if not utterances:
        raise InputError(f"{listing}: it must list at least one utterance, got none")
    return utterances


def read_spk2utt(path: Path) -> dict[str, str]:
    """Read Kaldi's ``spk2utt`` (``speaker utterance utterance ...``): the speaker of each utterance, in file order.

    Raises InputError, naming file and line, for a file that cannot be read or is empty, a line without utterances,
    and a speaker or an utterance given twice.
    """
    owners = {utterance: speaker for utterance, (_, speaker) in _owners(path).items()}
    if not owners:
        raise InputError(f"{path}: it must list at least one speaker, got none")
    return owners


def read_rttm(path: Path) -> list[tuple[str, str, str, float, float]]:
    """Return file name, channel, speaker, start and end of each turn in an RTTM file; raises InputError.

    Lines of other types than SPEAKER are ignored.
    """
    turns = []
    for number, line in _lines(path):
        words = line.split()
        if words and words[0] == b"SPEAKER":
            turns.append(_turn(path, number, line, words))
    if not turns:
        raise InputError(f"{path}: an RTTM file needs at least one SPEAKER line, got none; is it an RTTM file?")
    return turns


def _turn(path: Path, number: int, line: bytes, words: list[bytes]) -> tuple[str, str, str, float, float]:
    shown = line.decode("utf-8", errors="backslashreplace")[:_SHOWN]
    if len(words) < _RTTM_FIELDS:
        _refuse(path, number, f"'SPEAKER file channel start duration <NA> <NA> speaker' was expected, got {shown!r}")
    file, channel, speaker = (_text(path, number, words[k]) for k in (1, 2, 7))
    try:
        start, duration = float(words[3]), float(words[4])
    except ValueError:
        start = duration = -1.0
    if not (0.0 <= start < float("inf") and 0.0 < duration < float("inf")):
        _refuse(path, number, f"a start of 0 or more and a duration above 0 were expected, in seconds, got {shown!r}")
    return file, channel, speaker, start, start + duration


def _refuse(path: Path, line: int, problem: str) -> NoReturn:
    raise InputError(f"{path}, line {line}: {problem}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        content = read_bounded(path, _MOST_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    yield from enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1)


def _text(path: Path, line: int, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        _refuse(path, line, f"UTF-8 text was expected ({error})")


def _keyed(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the key, line number and rest of every line; blank lines are skipped."""
    seen: dict[str, int] = {}
    for line, raw in _lines(path):
        text = _text(path, line, raw).strip(_BLANKS)
        if not text:
            continue
        key, _, rest = text.replace("\t", " ").partition(" ")
        if not rest:
            _refuse(path, line, f"a key and a value were expected, got {text!r}")
        if key in seen:
            _refuse(path, line, f"{key!r} may be given once, it is on line {seen[key]} too")
        seen[key] = line
        yield key, line, text[len(key) :].strip(_BLANKS)


def _recording_path(root: Path, line: int, text: str) -> Path:
    scp = root / "wav.scp"
    if text.endswith("|") or text.startswith("|"):
        _refuse(scp, line, f"a file path was expected; commands are not executed, got {text!r}")
    try:
        for path in (Path(text), root / text):
            if path.is_file():
                return path
    except (OSError, ValueError):  # longer than any path, for instance
        pass
    _refuse(scp, line, f"no such file: {text!r}, looked for from the current folder and from {root}")


def _speakers(path: Path) -> dict[str, tuple[int, str]]:
    """Return the line and speaker of each utterance in a ``utt2spk``."""
    owners = {}
    for utterance, line, speaker in _keyed(path):
        if " " in speaker or "\t" in speaker:
            _refuse(path, line, f"'utterance speaker' was expected, got more words: {speaker!r}")
        owners[utterance] = line, speaker
    return owners


def _owners(path: Path) -> dict[str, tuple[int, str]]:
    """Return the line and speaker of each utterance in a ``spk2utt``."""
    owners: dict[str, tuple[int, str]] = {}
    for speaker, line, rest in _keyed(path):
        for utterance in filter(None, rest.replace("\t", " ").split(" ")):
            if utterance in owners:
                _refuse(path, line, f"{utterance!r} may be given once, it is on line {owners[utterance][0]} too")
            owners[utterance] = line, speaker
    return owners


def _segment(path: Path, line: int, text: str) -> tuple[str, float, float | None]:
    """Read 'recording start end' in seconds; an end of -1 stands for the end of the recording."""
    try:
        recording, first, last = text.split()
        start, end = float(first), float(last)
    except ValueError:
        _refuse(path, line, f"'utterance recording start end' was expected, got {text!r}")
    if end == -1.0 and 0.0 <= start < float("inf"):
        return recording, start, None
    if not 0.0 <= start < end < float("inf"):
        _refuse(path, line, f"0 <= start < end must hold (in seconds), got {first} to {last}")
    return recording, start, end
