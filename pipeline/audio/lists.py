"""Recordings and speakers in lists: Kaldi's data directories, and tables.

Kaldi's ``wav.scp`` has one recording per line, ``utt2spk`` an utterance and its speaker (``spk2utt`` a speaker and all
utterances), ``segments`` an utterance, its recording, start, end and, optionally, channel, from 0.

Fields are separated by blanks; times are in seconds. Every failure is a ``InputError`` that names the file and line.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NoReturn

from pipeline.audio.utterance import Utterance
from pipeline.errors import InputError
from pipeline.files import read_bounded

_MOST_BYTES = 2**28  # of one list
SHOWN = 60  # characters of a bad line that a message quotes
_BLANKS = " \t"  # Kaldi's separators; other white space may be part of a name
# Programs allowed in pipes of a wav.scp, and the options with which they do no more than decode the file that follows.
_DECODERS = {
    "cat": re.compile(""),
    "flac": re.compile(r"(?=.* (?:-[cs]*d|--decode))(?: (?:-[cds]+|--decode|--stdout|--silent|--totally-silent))+"),
    "sph2pipe": re.compile(r"(?: -p| -f (?:wav|rif)| -c (?P<channel>[1-9]))*"),
}
RECORDING_COLUMNS = {
    name: field
    for field, names in {
        "path": "path file filename file_name audio audio_path wav",
        "speaker": "speaker speaker_id spk_id label client_id",
        "start": "start",
        "end": "end",
        "channel": "channel",
    }.items()
    for name in names.split()
}
"""Fields of a table of recordings by the column's name in lower case; client_id is Common Voice's."""
CHANNELS = {"a": 1, "b": 2, "A": 1, "B": 2, **{str(number): number for number in range(1, 10)}}
"""Channel number, from 1, by its name in a column ``side`` or ``channel``."""


def read_kaldi(root: Path) -> list[Utterance]:
    """Return the utterances of the Kaldi data directory ``root``, in the order of its list; raises InputError."""
    listing, parts = _parts(root)
    by_speaker = (root / "spk2utt").exists() and not (root / "utt2spk").exists()
    owned = root / ("spk2utt" if by_speaker else "utt2spk")
    if not owned.exists():
        way = "; of a test set, give the trial list: its trials" if (root / "trials").is_file() else ""
        raise InputError(f"{root}: a Kaldi data directory must hold wav.scp and utt2spk, got no utt2spk{way}")
    owners = _owners(owned) if by_speaker else _speakers(owned)
    utterances: list[Utterance] = []
    for name, (line, part) in parts.items():
        if name not in owners:
            refuse(listing, line, f"every utterance must be in {owned.name}, {name!r} is not")
        utterances.append(replace(part, speaker=owners.pop(name)[1]))
    for name, (line, _) in owners.items():
        refuse(owned, line, f"every utterance must be in {listing.name}, {name!r} is not")
    if not utterances:
        raise InputError(f"{listing}: it must list at least one utterance, got none")
    return utterances


def read_kaldi_utterances(root: Path) -> dict[str, Utterance]:
    """Return the utterances of the Kaldi data directory ``root`` by name, without speakers; raises InputError."""
    return {name: part for name, (_, part) in _parts(root)[1].items()}


def _parts(root: Path) -> tuple[Path, dict[str, tuple[int, Utterance]]]:
    """Return the path of a data directory's list, and the line and utterance of each name in it, without speakers."""
    recordings = {key: _recording(root, line, rest) for key, line, rest in _keyed(root / "wav.scp")}
    segmented = (root / "segments").exists()
    listing = root / ("segments" if segmented else "wav.scp")
    parts: dict[str, tuple[int, Utterance]] = {}
    for name, line, rest in _keyed(listing):
        recording, start, end, side = _segment(listing, line, rest) if segmented else (name, None, None, None)
        if recording not in recordings:
            refuse(listing, line, f"every recording must be in wav.scp, {recording!r} is not")
        path, channel = recordings[recording]
        if channel is not None and side not in {None, 1}:
            refuse(listing, line, f"the pipe of {recording!r} in wav.scp gives one channel, 0, got {rest!r}")
        parts[name] = line, Utterance("", path, start, end, channel or side)
    return listing, parts


def read_spk2utt(path: Path) -> dict[str, str]:
    """Read Kaldi's ``spk2utt`` (``speaker utterance utterance ...``): the speaker of each utterance, in file order.

    Raises InputError, naming file and line, for a file that cannot be read or is empty, a line without utterances,
    and a speaker or an utterance given twice.
    """
    owners = {utterance: speaker for utterance, (_, speaker) in _owners(path).items()}
    if not owners:
        raise InputError(f"{path}: it must list at least one speaker, got none")
    return owners


def read_recordings_table(path: Path) -> list[Utterance]:
    """Return the utterances of a table under a header, CSV or tab-separated; raises InputError, naming file and line.

    Columns are found by name (``RECORDING_COLUMNS``), others are ignored; ``start`` and ``end``, in seconds, may be
    empty or missing, and so may ``channel``, which is ignored if any of its cells is not a channel. Files are looked
    for in the folder of the table and in its subfolder ``clips``, as in Common Voice.
    """
    rows = ((number, text_of(path, number, raw)) for number, raw in lines_of(path) if raw.strip())
    line, header = next(rows, (1, ""))
    if header.count(";") > header.count(",") + header.count("\t"):
        refuse(path, line, f"commas or tabs between the columns were expected, got semicolons: {header[:SHOWN]!r}")
    split = _split_csv if "\t" not in header else lambda _path, _line, text: text.split("\t")
    fields = [RECORDING_COLUMNS.get(name.strip().lower(), "") for name in split(path, line, header)]
    if [fields.count(one) for one in ("path", "speaker", "start")] != [1, 1, fields.count("end")]:
        refuse(
            path,
            line,
            "a header with one column path (or file, audio, wav) and one speaker (or speaker_id, label, client_id) was"
            f" expected, and start and end, in seconds, both or neither, got {header[:SHOWN]!r}",
        )
    folders = path.parent, path.parent / "clips"
    utterances: list[Utterance] = []
    channels: list[str] = []
    for line, text in rows:
        cells = split(path, line, text)
        if len(cells) != len(fields):
            refuse(path, line, f"{len(fields)} fields were expected, as in the header, got {len(cells)}")
        row = {field: cell.strip() for field, cell in zip(fields, cells, strict=True)}
        if not row["speaker"] or not row["path"]:
            refuse(path, line, f"a path and a speaker were expected, got {text[:SHOWN]!r}")
        rule = f"a start and an end in seconds were expected, got {text[:SHOWN]!r}"
        ends = _ends(path, line, row.get("start") or "0", row.get("end") or "-1", rule)
        utterances.append(Utterance(row["speaker"], _found(path, line, row["path"], folders), *ends))
        channels.append(row.get("channel", ""))
    if not utterances:
        raise InputError(f"{path}: it must list at least one recording below its header, got none")
    if not {"", *CHANNELS}.issuperset(channels):
        return utterances
    return [replace(one, channel=CHANNELS.get(channel)) for one, channel in zip(utterances, channels, strict=True)]


def _split_csv(path: Path, line: int, text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error as error:
        refuse(path, line, f"a row of CSV was expected ({error}); a quote that is missing?")


def refuse(path: Path, line: int, problem: str) -> NoReturn:
    """Raise InputError for a line of the file at ``path``."""
    raise InputError(f"{path}, line {line}: {problem}")


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers from 1; raises InputError for one that cannot be read."""
    try:
        content = read_bounded(path, _MOST_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    yield from enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1)


def text_of(path: Path, line: int, raw: bytes) -> str:
    """Return the text of ``raw``, a part of a line; raises InputError unless it is UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        refuse(path, line, f"UTF-8 text was expected ({error}); saved in another encoding?")


def _keyed(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the key, line number and rest of every line; blank lines are skipped."""
    seen: dict[str, int] = {}
    for line, raw in lines_of(path):
        text = text_of(path, line, raw).strip(_BLANKS)
        if not text:
            continue
        key, _, rest = text.replace("\t", " ").partition(" ")
        if not rest:
            refuse(path, line, f"a key and a value were expected, got {text!r}")
        if key in seen:
            refuse(path, line, f"{key!r} may be given once, it is on line {seen[key]} too")
        seen[key] = line
        yield key, line, text[len(key) :].strip(_BLANKS)


def _recording(root: Path, line: int, text: str) -> tuple[Path, int | None]:
    """Return the file named in ``wav.scp``, directly or in a pipe that only decodes it, and the pipe's channel."""
    scp = root / "wav.scp"
    if not text.endswith("|") and not text.startswith("|"):
        return _found(scp, line, text, (Path(), root)), None
    try:
        words = shlex.split(text.removesuffix("|"))  # words alone: no shell sees them
    except ValueError:
        words = []
    known = _DECODERS.get(PurePosixPath(words[0]).name if words else "")
    options = None if known is None else known.fullmatch("".join(f" {word}" for word in words[1:-1]))
    if options is None or len(words) < 2:
        pipes = sum(raw.rstrip().endswith(b"|") for _, raw in lines_of(scp))
        refuse(
            scp,
            line,
            "a file path was expected, or a pipe in which sph2pipe, flac -d or cat decodes one file and does no more;"
            f" commands are not executed, got {text!r}: convert the recordings to files, and list these"
            f" (pipes in this list: {pipes}; docs/howto/lists.md has a loop that converts all)",
        )
    channel = options.groupdict().get("channel")
    return _found(scp, line, words[-1], (Path(), root)), None if channel is None else int(channel)


def _found(path: Path, line: int, text: str, folders: tuple[Path, ...]) -> Path:
    """Return the first file called ``text`` in ``folders``; raises InputError for the line of ``path``."""
    try:
        for folder in folders:
            if (folder / text).is_file():
                return folder / text
    except (OSError, ValueError):  # longer than any path, for instance
        pass
    places = " and from ".join("the current folder" if folder == Path() else str(folder) for folder in folders)
    cause = "; offsets into archives are not read, list files" if re.search(":[0-9]+$", text) else ""
    cause = "; folders are separated by / here, not by \\ as in Windows" if "\\" in text else cause
    refuse(path, line, f"no such file: {text!r}, looked for from {places}{cause}")


def _speakers(path: Path) -> dict[str, tuple[int, str]]:
    """Return the line and speaker of each utterance in a ``utt2spk``."""
    owners = {}
    for utterance, line, speaker in _keyed(path):
        if " " in speaker or "\t" in speaker:
            refuse(path, line, f"'utterance speaker' was expected, got more words: {speaker!r}")
        owners[utterance] = line, speaker
    return owners


def _owners(path: Path) -> dict[str, tuple[int, str]]:
    """Return the line and speaker of each utterance in a ``spk2utt``."""
    owners: dict[str, tuple[int, str]] = {}
    for speaker, line, rest in _keyed(path):
        for utterance in filter(None, rest.replace("\t", " ").split(" ")):
            if utterance in owners:
                refuse(path, line, f"{utterance!r} may be given once, it is on line {owners[utterance][0]} too")
            owners[utterance] = line, speaker
    return owners


def _segment(path: Path, line: int, text: str) -> tuple[str, float, float | None, int | None]:
    """Read recording, start, end and channel, from 1; Kaldi counts channels from 0, and they may be missing."""
    rule = f"'utterance recording start end' was expected, and maybe a channel (0, 1 ...), got {text!r}"
    words = text.split()
    if len(words) not in {3, 4} or not re.fullmatch("[0-9]{1,3}", words[-1] if len(words) == 4 else "0"):
        refuse(path, line, rule)
    channel = int(words[3]) + 1 if len(words) == 4 else None
    return words[0], *_ends(path, line, words[1], words[2], rule), channel


def _ends(path: Path, line: int, first: str, last: str, rule: str) -> tuple[float, float | None]:
    """Read a start and an end in seconds; an end of -1 stands for the end of the recording."""
    try:
        start, end = float(first), float(last)
    except ValueError:
        refuse(path, line, rule)
    if end == -1.0 and 0.0 <= start < float("inf"):
        return start, None
    if not 0.0 <= start < end < float("inf"):
        refuse(path, line, f"0 <= start < end must hold (in seconds), got {first} to {last}")
    return start, end
