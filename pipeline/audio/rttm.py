"""RTTM files and the audio files under one folder: speaker turns to utterances.

A Rich Transcription Time Marked (RTTM) file has one speaker turn per line (NIST, The 2009 (RT-09) Rich Transcription
Meeting Recognition Evaluation Plan, appendix A), fields separated by blanks, times in seconds:

    SPEAKER file channel start duration <NA> <NA> speaker <NA> <NA>
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.audio.folders import Skipped, audio_files
from pipeline.audio.lists import SHOWN, lines_of, refuse, text_of
from pipeline.audio.utterance import Utterance
from pipeline.errors import InputError

_FIELDS = 8  # at least, up to the speaker


def read_marked(root: Path, marked: list[Path]) -> tuple[list[Utterance], list[Skipped]]:
    """Return the turns in the ``marked`` RTTM files, for audio files under ``root``, and the audio files without turns.

    Raises InputError unless exactly one audio file has the name in a turn, and as ``read_rttm``.
    """
    skipped: list[Skipped] = []
    by_name: dict[str, list[Path]] = {}
    for path in audio_files(root, root, skipped):
        for name in {path.stem, path.name}:
            by_name.setdefault(name, []).append(path)
    turns: list[tuple[Path, str, str, Utterance]] = []
    channels: dict[Path, set[str]] = {}
    for source in marked:
        for file, channel, speaker, start, end in read_rttm(source):
            files = by_name.get(file, [])
            if len(files) != 1:
                raise InputError(f"{source}: one audio file must be called {file!r}, got {len(files)} under {root}")
            channels.setdefault(files[0], set()).add(channel)
            turns.append((source, file, channel, Utterance(speaker, files[0], start, end)))
    unnamed = {path for paths in by_name.values() for path in paths} - channels.keys()
    skipped = [entry for entry in skipped if entry[0] not in marked]
    skipped += [(path, "not in an RTTM file") for path in unnamed]
    utterances = [
        replace(turn, channel=_channel_number(source, file, channel)) if len(channels[turn.path]) > 1 else turn
        for source, file, channel, turn in turns
    ]
    return utterances, skipped


def _channel_number(source: Path, file: str, channel: str) -> int:
    """Return a turn's channel in a recording with turns in several channels; raises InputError unless it is a number.

    Many programs write the same channel for all turns of mixed audio: such a channel is ignored.
    """
    if not (channel.isascii() and channel.isdecimal() and int(channel) > 0):
        raise InputError(
            f"{source}: {file!r} has turns in several channels, which must be numbers from 1, got {channel!r}"
        )
    return int(channel)


def read_rttm(path: Path) -> list[tuple[str, str, str, float, float]]:
    """Return file name, channel, speaker, start and end of each turn in an RTTM file; raises InputError.

    Lines of other types than SPEAKER are ignored.
    """
    turns = []
    for number, line in lines_of(path):
        words = line.split()
        if words and words[0] == b"SPEAKER":
            turns.append(_turn(path, number, line, words))
    if not turns:
        raise InputError(f"{path}: an RTTM file needs at least one SPEAKER line, got none; is it an RTTM file?")
    return turns


def _turn(path: Path, number: int, line: bytes, words: list[bytes]) -> tuple[str, str, str, float, float]:
    shown = line.decode("utf-8", errors="backslashreplace")[:SHOWN]
    if len(words) < _FIELDS:
        refuse(path, number, f"'SPEAKER file channel start duration <NA> <NA> speaker' was expected, got {shown!r}")
    file, channel, speaker = (text_of(path, number, words[k]) for k in (1, 2, 7))
    try:
        start, duration = float(words[3]), float(words[4])
    except ValueError:
        start = duration = -1.0
    if not (0.0 <= start < float("inf") and 0.0 < duration < float("inf")):
        refuse(path, number, f"a start of 0 or more and a duration above 0 were expected, in seconds, got {shown!r}")
    return file, channel, speaker, start, start + duration
