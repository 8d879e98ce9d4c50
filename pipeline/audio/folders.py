"""Audio files in folders: audio files by their names, reasons for skipping the others, and the speaker of each.

No audio is decoded here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import soundfile

from pipeline.audio import ffmpeg
from pipeline.audio.libsndfile import HEADERLESS, NO_RECORDINGS
from pipeline.audio.utterance import Utterance
from pipeline.errors import InputError

Skipped = tuple[Path, str]
"""A file or folder without an utterance, and the reason."""

_ALIASES = {
    "AIFF": "aif aifc",
    "AU": "snd",
    "FLAC": "fla",
    "IRCAM": "sf",
    "MP3": "mp2 mpga",
    "NIST": "sph sphere",
    "OGG": "oga opus",
    "SVX": "8svx 16sv iff",
    "WAV": "wave",
}

_HEADERLESS = frozenset({".al", ".alaw", ".pcm", ".raw", ".ul", ".ulaw"})
HIDDEN, NO_AUDIO = "hidden", "not the name of an audio file"
TEXTGRID = "a TextGrid of Praat is not read: write its intervals as RTTM, or as a table with start and end"
# Following such a link might never end, or mix two speakers.
ELSEWHERE = "a link to a folder that is read elsewhere"


@cache
def audio_suffixes() -> frozenset[str]:
    """Return the suffixes, in lower case and with the dot, of the formats that the installed libsndfile reads."""
    formats = set(soundfile.available_formats()) - NO_RECORDINGS
    names = {name.lower() for name in formats}
    return frozenset(f".{name}" for name in names.union(*(_ALIASES.get(key, "").split() for key in formats)))


def audio_files(folder: Path, root: Path, skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the audio files at any depth under ``folder``; other files are added to ``skipped``."""
    home, pending, visited = Path(os.path.realpath(root)), [folder], {Path(os.path.realpath(folder))}
    while pending:
        inner = pending.pop()
        try:
            entries = [(entry, entry.is_dir()) for entry in sorted(inner.iterdir())]
        except OSError as error:
            skipped.append((inner, f"a folder that cannot be read ({error.strerror})"))
            continue
        for entry, is_folder in entries:
            real = Path(os.path.realpath(entry))
            if entry.name.startswith("."):
                skipped.append((entry, HIDDEN))
            elif not is_folder:
                if (reason := reason_to_skip(entry)) is None:
                    yield entry
                else:
                    skipped.append((entry, reason))
            elif real in visited or (entry.is_symlink() and (real.is_relative_to(home) or home.is_relative_to(real))):
                skipped.append((entry, ELSEWHERE))
            else:
                visited.add(real)
                pending.append(entry)


def reason_to_skip(entry: Path) -> str | None:
    """Return why this machine cannot decode ``entry`` as an audio file; None if it can."""
    if not entry.is_file():
        return "a broken link or not a regular file"
    suffix = entry.suffix.lower()
    if suffix in ffmpeg.SUFFIXES:
        return None if ffmpeg.is_available() else ffmpeg.advice(entry)
    if suffix in _HEADERLESS:
        return HEADERLESS
    return None if suffix in audio_suffixes() else NO_AUDIO


def read_folders(root: Path) -> tuple[list[Utterance], list[Skipped]]:
    """Return the audio files of the speaker folders in ``root``, and all other files; raises InputError without any."""
    utterances: list[Utterance] = []
    skipped: list[Skipped] = []
    loose: list[Path] = []
    home = Path(os.path.realpath(root))
    for entry in sorted(root.iterdir()):
        if entry.name.startswith("."):
            skipped.append((entry, HIDDEN))
        elif entry.is_symlink() and entry.is_dir() and home.is_relative_to(os.path.realpath(entry)):
            skipped.append((entry, ELSEWHERE))
        elif entry.is_dir():
            if files := list(audio_files(entry, root, skipped)):
                speaker = _speaker_name(entry)
                utterances += [Utterance(speaker, path) for path in files]
            elif all(path != entry for path, _ in skipped):  # it could be read
                skipped.append((entry, "a folder without audio files"))
        elif (reason := reason_to_skip(entry)) is not None:
            skipped.append((entry, reason))
        else:
            loose.append(entry)
    if not utterances:
        raise InputError(_no_speakers(root, loose, skipped))
    return utterances, skipped + [(path, "an audio file outside the speaker folders") for path in loose]


def _no_speakers(root: Path, loose: list[Path], skipped: list[Skipped]) -> str:
    rule = "a corpus must hold one folder per speaker with audio files in it"
    if loose and any(path.suffix.lower() == ".textgrid" for path, _ in skipped):
        return f"{root}: {rule}, got {len(loose)} audio files and no such folder; {TEXTGRID}"
    if loose:
        return (
            f"{root}: {rule}, got {len(loose)} audio files and no such folder; is this the folder of one"
            " speaker? Give the folder above it. Or are speakers in the names of the files? Give --speaker-pattern"
            " (speaker_pattern=)"
        )
    reasons = "; ".join(f"{path.name}: {reason}" for path, reason in sorted(skipped)[:3])
    return f"{root}: {rule}, got none" + (f" (skipped {len(skipped)} entries: {reasons})" if skipped else "")


def _speaker_name(folder: Path) -> str:
    try:
        folder.name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{folder.parent}: a speaker folder's name must be valid text, got {folder.name!r};"
            " a name in another encoding than the file system's?"
        ) from error
    return folder.name


def read_names(root: Path, pattern: str) -> tuple[list[Utterance], list[Skipped]]:
    """Return the files under ``root`` whose speakers ``pattern`` finds in their names, and the others.

    A pattern with a slash is matched to their paths from ``root`` on, with slashes between the folders.

    Raises InputError for a pattern without a group, and where it matches no name.
    """
    try:
        names = re.compile(pattern)
    except re.error as error:
        raise InputError(f"speaker pattern: {pattern!r} is not a regular expression ({error})") from None
    if not names.groups:
        raise InputError(f"speaker pattern: a group in brackets must be the speaker, as in ([^_-]+), got {pattern!r}")
    group = names.groupindex.get("speaker", 1)
    skipped: list[Skipped] = []
    utterances: list[Utterance] = []
    for path in audio_files(root, root, skipped):
        found = names.match(path.relative_to(root).as_posix() if "/" in pattern else path.name)
        if speaker := found and found[group]:
            utterances.append(Utterance(speaker, path))
        else:
            skipped.append((path, "an audio file whose name the speaker pattern does not match"))
    if not utterances:
        raise InputError(f"{root}: the name of an audio file must match the speaker pattern {pattern!r}, got none")
    return utterances, skipped


def yoho_enroll(root: Path) -> Path | None:
    """Return the ENROLL folder of a YOHO tree, None in other trees.

    A speaker may be called Enroll, too: if a third folder holds audio, the tree is not YOHO's.
    """
    folders = [entry for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.name.startswith(".")]
    enroll = next((folder for folder in folders if folder.name.lower() == "enroll"), None)
    if enroll is None or not any(entry.is_dir() for entry in enroll.iterdir()):
        return None
    others = [folder for folder in folders if folder.name.lower() not in {"enroll", "verify"}]
    return enroll if next((file for folder in others for file in audio_files(folder, root, [])), None) is None else None
