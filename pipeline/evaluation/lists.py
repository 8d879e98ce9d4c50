"""Trial lists, keys and score files of any format, read into columns.

Text is read line by line, in one way for all formats and with the standard library alone; Parquet takes pyarrow.

    enroll test target|nontarget                     Kaldi, key; this project's trial lists; also tgt|imp, or 1|0
    enroll test 1.23                                 Kaldi, scores
    1|0 enroll test                                  VoxCeleb, key; this project's trial lists
    1.23 enroll test                                 VoxCeleb, scores
    system speaker path score label llr              this project's scores, tab-separated under this header
    modelid segmentid side [targettype | LLR]        NIST, tab-separated under this header; LLR in nats
    model,segment,label,score,...                    CSV under a header, quoted as RFC 4180 says, one row per line

Conventions
-----------
- Text is UTF-8, with or without a byte-order mark, with either line end. A line has at most 1 MiB, a file 4 GiB.
- Kaldi's and VoxCeleb's fields are separated by any run of ASCII blanks. The test may contain blanks, the enrolled name
  may not. Blank lines and lines that begin with ``#`` are skipped.
- Columns of a table are identified by name, in any order and case (``COLUMNS``); others are metadata, by which trials
  are grouped where they have few values.
- A column ``side`` gives the channel of the recording, as a or b or as 1 to 9; so does a column ``channel`` if all its
  values are such. Side b of ``x``, its second channel, is the segment ``x:b``, side a is ``x``.
- ``llr`` is a natural-log likelihood ratio, empty or ``-`` where the system has no calibration.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import get_args

import numpy as np

from pipeline.audio.lists import read_spk2utt
from pipeline.errors import InputError, check_type
from pipeline.evaluation import FORMATS
from pipeline.evaluation.columns import NameColumn, TrialTable, check_whole, pair_ids, rows_by_label, suffix_of
from pipeline.evaluation.text_lists import (
    COLUMNS,
    DECIMAL_COMMA,
    LABELS,
    VOXCELEB_LABELS,
    Kind,
    bad_line,
    first_line,
    has_decimal_comma,
    read_table,
    read_words,
    without_comments,
)

_OWN_HEADER = b"system\tspeaker\tpath\tscore\tlabel"
_LOOKED_AT = 100  # lines that decide on a format
_NO_LISTS = {
    b"PK\x03\x04": "a ZIP file, as .xlsx and .npz are: export it as CSV",
    b"\x1f\x8b": "a gzip file: decompress it",
    b"\x89HDF": "an HDF5 file, as of BOSARIS and SIDEKIT: export its trials as CSV or Parquet",
    b"File type = ": "a TextGrid of Praat, which has no trials: write them as CSV, under speaker,path,label",
    b"SQLite format 3": "a speaker store: it is given once, before the list",
    b"RIFF": "a recording: a folder of recordings, or a list of them, was expected",
    b"fLaC": "a recording: a folder of recordings, or a list of them, was expected",
    b"SPEAKER ": "RTTM, which has no trials: write them as CSV, under speaker,path,label",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The claim that the audio at ``path`` was spoken by ``speaker``; ``target`` if it is true.

    ``metadata`` are the values of the list's further columns, such as a language. ``channel`` is the one to read, from
    1; None is the mean of all.
    """

    speaker: str
    path: str
    target: bool
    metadata: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    channel: int | None = None

    @property
    def segment(self) -> str:
        """Return the name of the audio in results: its path, followed by ``:b`` for a second channel."""
        return self.path + suffix_of(self.channel)


def read_trials(path: Path | str) -> tuple[Trial, ...]:
    """Read a trial list of any format, in file order.

    Parameters
    ----------
    path : path
        Kaldi, VoxCeleb, NIST, CSV or Parquet, with labels.

    Returns
    -------
    tuple of Trial

    Raises
    ------
    InputError
        Naming file and line, for a list that cannot be read or lacks labels, and for a trial with two labels.

    Examples
    --------
    >>> import pathlib, pipeline
    >>> pipeline.read_trials(pathlib.Path("trials.txt"))[0]
    Trial(speaker='anna', path='call.wav', target=True, channel=None)
    """
    return trials_of(read_list(path, kind="key"), str(path))


def as_trials(trials: Sequence[Trial] | Path | str) -> Sequence[Trial]:
    """Return the ``trials``, read from a list if they are its path; raises InputError for anything else."""
    if isinstance(trials, os.PathLike | str):
        if Path(trials).is_dir():
            raise InputError(f"{trials}: a trial list was expected, got a folder; trials_of_folder makes trials of one")
        return read_trials(trials)
    expected = "the path of a list, or a sequence of Trial(speaker, path, target),"
    check_type("trials", trials, Sequence, expected)
    for trial in trials:
        check_type("trials", trial, Trial, expected)
        are_texts = isinstance(trial.speaker, str) and isinstance(trial.path, str)
        if not are_texts or not isinstance(trial.target, bool | np.bool_):  # the text "nontarget" would count as true
            raise InputError(f"trials: two texts, and True or False, were expected in a Trial, got {trial!r}")
    return trials


def names_given(parameter: str, given: Iterable[str] | str, expected: str) -> list[str]:
    """Return the names ``given`` for a ``parameter``, or one name as a list; raises InputError for anything else."""
    check_type(parameter, given, Iterable, expected)
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        check_type(parameter, name, str, "a name")
    return names


def trials_of(table: TrialTable, name: str) -> tuple[Trial, ...]:
    """Return the trials of the list ``name``, in order; raises InputError for two labels, or parts of recordings."""
    check_whole(table, name)
    rows_by_label(table, pair_ids(table, table.models.codes, table.segments.codes), name)
    channels = [None] * len(table) if table.channels is None else table.channels.tolist()
    columns = {name: column for name, column in table.metadata.items() if column is not None}
    values = zip(*columns.values(), strict=True) if columns else [()] * len(table)
    rows = zip(table.models, table.segments, table.needed_targets.tolist(), values, channels, strict=True)
    return tuple(
        Trial(model, segment.removesuffix(suffix_of(channel)), target, dict(zip(columns, row, strict=True)), channel)
        for model, segment, target, row, channel in rows
    )


def read_list(path: Path | str, *, kind: Kind | None = None, format_name: str | None = None) -> TrialTable:
    """Read a list of trials with all the labels, scores, log-likelihood ratios and systems in it.

    Parameters
    ----------
    path : path
        A regular file.
    kind : {"key", "scores"}, optional
        Labels or scores: the list must have them, and lines that could hold either are read as holding them.
    format_name : str, optional
        One of ``FORMATS``; by default recognised from the file. A spk2utt lists target trials only.

    Returns
    -------
    TrialTable

    Raises
    ------
    InputError
        For an unknown format or kind; naming file and line, for a file that cannot be read or breaks its format, or
        that lacks what ``kind`` asks for.
    UnavailableError
        For Parquet without pyarrow.

    Examples
    --------
    >>> from pipeline.evaluation import read_list
    >>> read_list("trials.txt", kind="key").targets.tolist()
    [True, False]
    """
    check_type("path", path, os.PathLike | str, "the path of a list")
    if kind not in (None, *get_args(Kind)):
        raise InputError(f"kind: one of {', '.join(get_args(Kind))}, or None, was expected, got {kind!r}")
    path = Path(path)
    table = _read(path, kind, format_of(path, kind, format_name))
    if kind == "key" and table.targets is None:
        raise InputError(f"{path}: a key must label its trials as target or nontarget, got a list without labels")
    if kind == "scores" and table.scores is None:
        raise InputError(
            f"{path}: scores were expected, got a list without any; were scores and key exchanged? In a table, the"
            " column of scores is called score or llr"
        )
    return table


def _read(path: Path, kind: Kind | None, name: str) -> TrialTable:
    if name == "parquet":
        from pipeline.evaluation.tabular import read_parquet

        return read_parquet(path)
    if name == "spk2utt":
        owners = read_spk2utt(path)
        return TrialTable(NameColumn.of(owners.values()), NameColumn.of(owners), np.ones(len(owners), dtype=np.bool_))
    own = name == "voiceclaim"
    if name in {"nist", "csv"} or (own and first_line(path).startswith(_OWN_HEADER)):
        return read_table(path, b"," if name == "csv" else b"\t")
    return read_words(path, *_layout_of(path, kind, None if own else name))


def format_of(path: Path, kind: Kind | None = None, name: str | None = None) -> str:
    """Return the format of a file: ``name`` if given, else recognised by its header, its name or its first lines.

    Raises InputError for an unknown name, and for a file that cannot be read or has no known format.
    """
    if name is not None:
        if name not in FORMATS:
            raise InputError(f"the format must be one of {', '.join(FORMATS)}, got {name!r}")
        return name
    line = first_line(path)
    if line.startswith(b"PAR1"):
        return "parquet"
    if line.startswith(_OWN_HEADER):
        return "voiceclaim"
    for delimiter, table in ((b"\t", "nist"), (b",", "csv")):
        fields = {COLUMNS.get(field.strip(b' "').decode("latin-1").lower()) for field in line.split(delimiter)}
        if {"model", "segment"} <= fields:
            return table
    for ending in ("csv", "spk2utt"):
        if path.name.endswith(ending):
            return ending
    return _layout_of(path, kind, None)[0]


def _layout_of(path: Path, kind: Kind | None, name: str | None) -> tuple[str, Kind]:
    """Return the format of blank-separated lines, kaldi or voxceleb, and their kind: ``name`` and ``kind`` if given."""
    lines = [(number, line.split()) for number, line in islice(without_comments(path), _LOOKED_AT)]
    if not lines:
        raise InputError(f"{path}: a list needs at least one trial, got none; it is empty or has only comments")
    number, first = lines[0]
    layouts: tuple[tuple[str, Kind, bool], ...] = (
        ("kaldi", "key", first[-1] in LABELS or (kind == "key" and _ends_in_label(first))),
        ("voxceleb", "key", first[0] in VOXCELEB_LABELS and not (kind is None and _is_number(first[-1]))),
        ("kaldi", "scores", _are_numbers(words[-1] for _, words in lines)),
        ("voxceleb", "scores", _are_numbers(words[0] for _, words in lines)),
    )
    for layout, content, fits in layouts:
        if fits and kind in {None, content} and name in {None, layout}:
            return layout, content
    if name is not None and kind is not None:
        return name, kind  # _read_rows names the line that is wrong
    expected, content_name = {
        "key": ("'speaker path target|nontarget', '1|0 speaker path'", "key"),
        "scores": ("'enroll test score', 'score enroll test'", "score file"),
        None: ("'enroll test target|nontarget', '1|0 enroll test', 'enroll test score'", "list of trials"),
    }[kind]
    rule, cause = f"the first line must read {expected} or be a header", _why_unknown(first, content_name)
    raise bad_line(path, number, b" ".join(first), rule, cause)


def _ends_in_label(first: Sequence[bytes]) -> bool:
    """Return True for a line such as CN-Celeb's, whose label is 1 or 0 and stands last, where a key is expected."""
    return len(first) > 2 and first[-1] in VOXCELEB_LABELS and first[0] not in VOXCELEB_LABELS


def _why_unknown(first: Sequence[bytes], content_name: str) -> str:
    """Return the likely reason why a first line has no known layout."""
    for begin, kind_of_file in _NO_LISTS.items():
        if b" ".join(first).startswith(begin):
            return f"the file is {kind_of_file}"
    if b"\0" in b"".join(first):
        return "the file is not UTF-8 text (UTF-16 or binary)"
    if b"," in first[0] and not has_decimal_comma(first[0]):
        value = "score" if content_name == "score file" else "label"
        return f"comma-separated fields need a header: speaker,path,{value}"
    if all(word.decode(errors="replace").lower() in COLUMNS for word in first):
        return "the names of a header must be separated by commas or tabs, like the fields below it"
    if has_decimal_comma(first[-1]) or has_decimal_comma(first[0]):
        return DECIMAL_COMMA
    cause = f"a missing or misspelt field, or the file is not a {content_name}"
    if content_name == "score file" and first[-1] in LABELS:
        cause = "it is a key; were scores and key exchanged?"
        if _are_numbers(first[2:-1]):
            cause = "lines with scores and labels, as WeSpeaker's, need a header and are CSV then (docs/formats.md)"
    return cause


def _are_numbers(words: Iterable[bytes]) -> bool:
    """Return True if most words are numbers or nan: an error then names the line of a wrong score, not the format."""
    fit = [_is_number(word) or word.lower() == b"nan" for word in words]
    return 2 * sum(fit) > len(fit)


def _is_number(word: bytes) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False
