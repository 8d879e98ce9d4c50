"""Folders on disk to utterance records: speaker folders, Kaldi data directories, RTTM files, the YOHO tree.

No audio is decoded here. Speaker names are data: any text, never part of a path that this package makes. The same tree
gives the same corpus, in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NoReturn

import soundfile

from pipeline.audio.rttm import read_rttm
from pipeline.errors import InputError
from pipeline.files import open_regular, read_bounded

Kind = Literal["folders", "kaldi", "rttm", "yoho"]
Skipped = tuple[Path, str]


@dataclass(frozen=True)
class Utterance:
    """One recording of one speaker, or its part from ``start`` to ``end`` in seconds (None: its own ends).

    Examples
    --------
    >>> import pathlib, pipeline
    >>> pipeline.Utterance("anna", pathlib.Path("call.wav"), end=1.5).start is None
    True
    """

    speaker: str
    path: Path
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Corpus:
    """Speakers and their utterances.

    ``root`` is the folder that holds the speakers, for YOHO its ENROLL. ``speakers`` maps a name to at least
    one utterance, names sorted, utterances sorted by path and start. ``skipped`` lists every file and folder
    without an utterance, with the reason.

    Examples
    --------
    >>> import pipeline
    >>> corpus = pipeline.read_corpus("recordings")
    >>> corpus.kind, sorted(corpus.speakers)
    ('folders', ['anna', 'ivan'])
    """

    root: Path
    kind: Kind
    speakers: dict[str, tuple[Utterance, ...]]
    skipped: tuple[Skipped, ...] = ()


def read_corpus(root: Path | str) -> Corpus:
    """Find the utterances under ``root``, whose layout is detected from its content.

    - "kaldi": a ``wav.scp`` is there, with ``utt2spk`` (or ``spk2utt``) and maybe ``segments``.
    - "rttm": files ``*.rttm`` are there, with speaker segments of the audio files at any depth.
    - "yoho": a folder ENROLL (in any case) holds the speaker folders; VERIFY beside it is left alone.
    - "folders": otherwise, one folder per speaker with audio files at any depth.

    Raises ``InputError`` for a root that is no folder, holds no utterance or breaks the rules of its layout.

    Parameters
    ----------
    root : path
        The folder.

    Returns
    -------
    Corpus

    Examples
    --------
    >>> import pipeline
    >>> len(pipeline.read_corpus("recordings").speakers["anna"])
    3
    """
    root = Path(root)
    try:
        if not root.is_dir():
            kind = "a file" if root.exists() else "nothing"
            raise InputError(f"{root}: a corpus must be a folder, got {kind}; a mistyped or moved path?")
        if (root / "wav.scp").exists():
            return _read_kaldi(root)
        if marked := sorted(path for path in root.glob("*.rttm") if path.is_file()):
            return _read_rttm(root, marked)
        enroll = _yoho_enroll(root)
        return _read_folders(root, "folders") if enroll is None else _read_folders(enroll, "yoho")
    except (OSError, ValueError) as error:
        raise InputError(f"{root}: the corpus cannot be read ({error})") from error


# Not recordings: parameters missing (RAW), or matrices, features and sample dumps that would be taken for sound.
_NOT_RECORDINGS = {"RAW", "MAT4", "MAT5", "HTK", "SDS"}
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
_UNREADABLE = {".m4a", ".mp4", ".aac", ".wma", ".webm", ".mka", ".amr", ".3gp", ".ape", ".wv", ".shn"}

# Following such a link would never end, or mix two speakers.
_ELSEWHERE = "a link to a folder that is read elsewhere"


@cache
def audio_suffixes() -> frozenset[str]:
    """Return the suffixes, in lower case and with their dot, of the formats that this machine's libsndfile reads."""
    formats = set(soundfile.available_formats()) - _NOT_RECORDINGS
    names = {name.lower() for name in formats}
    return frozenset(f".{name}" for name in names.union(*(_ALIASES.get(key, "").split() for key in formats)))


def _read_folders(root: Path, kind: Kind) -> Corpus:
    speakers: dict[str, tuple[Utterance, ...]] = {}
    skipped: list[Skipped] = []
    loose: list[Path] = []
    for entry in sorted(root.iterdir()):
        if entry.name.startswith("."):
            skipped.append((entry, "hidden"))
        elif entry.is_symlink() and entry.is_dir() and _is_above(entry, root):
            skipped.append((entry, _ELSEWHERE))
        elif entry.is_dir():
            files = sorted(_audio_files(entry, root, skipped), key=str)
            if files:
                speakers[_speaker_name(entry)] = tuple(Utterance(entry.name, path) for path in files)
            else:
                skipped.append((entry, "a folder without audio files"))
        elif (reason := _reason_to_skip(entry)) is not None:
            skipped.append((entry, reason))
        else:
            loose.append(entry)
    if not speakers:
        raise InputError(_no_speakers(root, loose, skipped))
    skipped += [(path, "an audio file outside the speaker folders") for path in loose]
    return Corpus(root, kind, speakers, tuple(sorted(skipped)))


def _no_speakers(root: Path, loose: list[Path], skipped: list[Skipped]) -> str:
    rule = "a corpus must hold one folder per speaker with audio files in it"
    if loose:
        return (
            f"{root}: {rule}, got {len(loose)} audio files and no such folder; is this the folder of one"
            " speaker? Give the folder above it"
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


def _audio_files(folder: Path, root: Path, skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the audio files at any depth under ``folder``; the others are added to ``skipped``."""
    pending, visited = [folder], {_identity(folder)}
    while pending:
        for entry in sorted(pending.pop().iterdir()):
            if entry.name.startswith("."):
                skipped.append((entry, "hidden"))
            elif not entry.is_dir():
                if (reason := _reason_to_skip(entry)) is None:
                    yield entry
                else:
                    skipped.append((entry, reason))
            elif (entry.is_symlink() and _leads_back(entry, root)) or _identity(entry) in visited:
                skipped.append((entry, _ELSEWHERE))
            else:
                visited.add(_identity(entry))
                pending.append(entry)


def _reason_to_skip(entry: Path) -> str | None:
    if not entry.is_file():
        return "a broken link or not a regular file"
    suffix = entry.suffix.lower()
    if suffix in _UNREADABLE:
        return "audio that libsndfile does not read: convert it to WAV or FLAC"
    return None if suffix in audio_suffixes() else "not the name of an audio file"


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _is_above(folder: Path, root: Path) -> bool:
    """Return True for a link to ``root`` or to a folder that contains it."""
    return Path(os.path.realpath(root)).is_relative_to(os.path.realpath(folder))


def _leads_back(link: Path, root: Path) -> bool:
    return _is_above(link, root) or Path(os.path.realpath(link)).is_relative_to(os.path.realpath(root))


def _yoho_enroll(root: Path) -> Path | None:
    """Return the ENROLL folder of a YOHO tree, None where there is none.

    A speaker may be called Enroll: the name alone decides only while no third folder holds audio.
    """
    folders = [entry for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.name.startswith(".")]
    enroll = next((folder for folder in folders if folder.name.lower() == "enroll"), None)
    if enroll is None or not any(entry.is_dir() for entry in enroll.iterdir()):
        return None
    others = [folder for folder in folders if folder.name.lower() not in {"enroll", "verify"}]
    return None if any(_has_audio(folder, root) for folder in others) else enroll


def _has_audio(folder: Path, root: Path) -> bool:
    return next(_audio_files(folder, root, []), None) is not None


def _read_kaldi(root: Path) -> Corpus:
    recordings = {key: _recording_path(root, line, rest) for key, line, rest in _lines(root, "wav.scp")}
    owned, owners = _read_owners(root)
    segmented = (root / "segments").exists()
    listing = "segments" if segmented else "wav.scp"
    speakers: dict[str, list[Utterance]] = {}
    for utterance, line, rest in _lines(root, listing):
        recording, start, end = _segment(root, line, rest) if segmented else (utterance, None, None)
        if utterance not in owners:
            _refuse(root, listing, line, f"every utterance must be in {owned}, {utterance!r} is not")
        if recording not in recordings:
            _refuse(root, listing, line, f"every recording must be in wav.scp, {recording!r} is not")
        speaker = owners.pop(utterance)[1]
        speakers.setdefault(speaker, []).append(Utterance(speaker, recordings[recording], start, end))
    for utterance, (line, _) in owners.items():
        _refuse(root, owned, line, f"every utterance must be in {listing}, {utterance!r} is not")
    if not speakers:
        raise InputError(f"{root / listing}: it must list at least one utterance, got none")
    return Corpus(root, "kaldi", _sorted(speakers))


def _read_owners(root: Path) -> tuple[str, dict[str, tuple[int, str]]]:
    """Return the name of the list of speakers, and the line and speaker of each utterance in it."""
    if (root / "utt2spk").exists() or not (root / "spk2utt").exists():
        return "utt2spk", {key: (line, _speaker(root, line, rest)) for key, line, rest in _lines(root, "utt2spk")}
    return "spk2utt", _spk2utt(root, "spk2utt")


def _spk2utt(root: Path, name: str) -> dict[str, tuple[int, str]]:
    owners: dict[str, tuple[int, str]] = {}
    for speaker, line, rest in _lines(root, name):
        for utterance in rest.replace("\t", " ").split(" "):
            if utterance in owners:
                _refuse(root, name, line, f"{utterance!r} may be given once, it is on line {owners[utterance][0]} too")
            if utterance:
                owners[utterance] = line, speaker
    return owners


def read_spk2utt(path: Path) -> dict[str, str]:
    """Read Kaldi's ``spk2utt`` (``speaker utterance utterance ...``): the speaker of each utterance, in file order.

    Raises InputError, naming file and line, for a file that cannot be read or is empty, a line without utterances,
    and a speaker or an utterance given twice.
    """
    try:
        open_regular(path).close()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    owners = {utterance: speaker for utterance, (_, speaker) in _spk2utt(path.parent, path.name).items()}
    if not owners:
        raise InputError(f"{path}: it must list at least one speaker, got none")
    return owners


def _read_rttm(root: Path, marked: list[Path]) -> Corpus:
    skipped: list[Skipped] = []
    by_name: dict[str, list[Path]] = {}
    for path in _audio_files(root, root, skipped):
        for name in {path.stem, path.name}:
            by_name.setdefault(name, []).append(path)
    channels: dict[Path, str] = {}
    speakers: dict[str, list[Utterance]] = {}
    for source in marked:
        for turn in read_rttm(source):
            files = by_name.get(turn.file, [])
            if len(files) != 1:
                raise InputError(
                    f"{source}: one audio file must be called {turn.file!r}, got {len(files)} under {root}"
                )
            if channels.setdefault(files[0], turn.channel) != turn.channel:
                raise InputError(
                    f"{source}: {turn.file!r} has speech in two channels, which would be mixed; split them first"
                )
            end = turn.start + turn.duration
            speakers.setdefault(turn.speaker, []).append(Utterance(turn.speaker, files[0], turn.start, end))
    unnamed = {path for paths in by_name.values() for path in paths} - channels.keys()
    skipped = [entry for entry in skipped if entry[0] not in marked] + [
        (path, "not in an RTTM file") for path in unnamed
    ]
    return Corpus(root, "rttm", _sorted(speakers), tuple(sorted(skipped)))


def _sorted(speakers: dict[str, list[Utterance]]) -> dict[str, tuple[Utterance, ...]]:
    def place(utterance: Utterance) -> tuple[str, float, float]:
        return str(utterance.path), utterance.start or 0.0, utterance.end or float("inf")

    return {name: tuple(sorted(speakers[name], key=place)) for name in sorted(speakers)}


def _refuse(root: Path, name: str, line: int, problem: str) -> NoReturn:
    raise InputError(f"{root / name}, line {line}: {problem}")


_MOST_BYTES = 2**28  # of one of Kaldi's lists
_BLANKS = " \t\r"  # Kaldi's separators; other white space may be part of a name


def _lines(root: Path, name: str) -> Iterator[tuple[str, int, str]]:
    """Yield the key, line number and rest of every line; blank lines are skipped."""
    if not (root / name).is_file():
        raise InputError(f"{root}: a Kaldi data directory must hold wav.scp and utt2spk, got no {name}")
    seen: dict[str, int] = {}
    try:
        content = read_bounded(root / name, _MOST_BYTES)
    except OSError as error:
        raise InputError(f"{root / name}: cannot be read: {error.strerror or error}") from error
    for line, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            text = raw.decode().strip(_BLANKS)
        except UnicodeDecodeError as error:
            _refuse(root, name, line, f"UTF-8 text was expected ({error})")
        if not text:
            continue
        key, _, rest = text.replace("\t", " ").partition(" ")
        if not rest:
            _refuse(root, name, line, f"a key and a value were expected, got {text!r}")
        if key in seen:
            _refuse(root, name, line, f"{key!r} may be given once, it is on line {seen[key]} too")
        seen[key] = line
        yield key, line, text[len(key) :].strip(_BLANKS)


def _recording_path(root: Path, line: int, text: str) -> Path:
    if text.endswith("|") or text.startswith("|"):
        _refuse(root, "wav.scp", line, f"a file path was expected; commands are not executed, got {text!r}")
    try:
        for path in (Path(text), root / text):
            if path.is_file():
                return path
    except (OSError, ValueError):  # longer than any path, for instance
        pass
    return _refuse(root, "wav.scp", line, f"no such file: {text!r}, looked for from the current folder and from {root}")


def _speaker(root: Path, line: int, text: str) -> str:
    if " " in text or "\t" in text:
        _refuse(root, "utt2spk", line, f"'utterance speaker' was expected, got more words: {text!r}")
    return text


def _segment(root: Path, line: int, text: str) -> tuple[str, float, float | None]:
    """Read 'recording start end' in seconds; an end of -1 stands for the end of the recording."""
    try:
        recording, first, last = text.split()
        start, end = float(first), float(last)
    except ValueError:
        _refuse(root, "segments", line, f"'utterance recording start end' was expected, got {text!r}")
    if end == -1.0 and 0.0 <= start < float("inf"):
        return recording, start, None
    if not 0.0 <= start < end < float("inf"):
        _refuse(root, "segments", line, f"0 <= start < end must hold (in seconds), got {first} to {last}")
    return recording, start, end
