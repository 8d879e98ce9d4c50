"""RTTM files and the audio files under one folder: speaker turns to segments of recordings."""

from __future__ import annotations

from pathlib import Path

from pipeline.audio.folders import Skipped, audio_files
from pipeline.audio.lists import Segment, read_rttm
from pipeline.errors import InputError


def rttm_segments(root: Path, marked: list[Path]) -> tuple[list[Segment], list[Skipped]]:
    """Return the turns of the ``marked`` RTTM files in audio files under ``root``, and audio files without any.

    Raises InputError for a turn in no audio file or in one of several, and as ``read_rttm``.
    """
    skipped: list[Skipped] = []
    by_name: dict[str, list[Path]] = {}
    for path in audio_files(root, root, skipped):
        for name in {path.stem, path.name}:
            by_name.setdefault(name, []).append(path)
    turns: list[tuple[Path, str, str, Segment]] = []
    channels: dict[Path, set[str]] = {}
    for source in marked:
        for file, channel, speaker, start, end in read_rttm(source):
            files = by_name.get(file, [])
            if len(files) != 1:
                raise InputError(f"{source}: one audio file must be called {file!r}, got {len(files)} under {root}")
            channels.setdefault(files[0], set()).add(channel)
            turns.append((source, file, channel, (speaker, files[0], start, end, None)))
    unnamed = {path for paths in by_name.values() for path in paths} - channels.keys()
    skipped = [entry for entry in skipped if entry[0] not in marked]
    skipped += [(path, "not in an RTTM file") for path in unnamed]
    segments = [
        (*segment[:-1], _channel_number(source, file, channel)) if len(channels[segment[1]]) > 1 else segment
        for source, file, channel, segment in turns
    ]
    return segments, skipped


def _channel_number(source: Path, file: str, channel: str) -> int:
    """Return the channel of a turn in a recording whose turns name several; raises InputError unless it is a number.

    Where all turns are in one channel, as many programs write for audio that was mixed, it says nothing.
    """
    if not (channel.isascii() and channel.isdecimal() and int(channel) > 0):
        raise InputError(
            f"{source}: {file!r} has turns in several channels, which must be numbers from 1, got {channel!r}"
        )
    return int(channel)
