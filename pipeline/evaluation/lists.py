"""Trial lists, keys and score files of any format, read into columns.

Text is read line by line, in one way for all formats and with the standard library alone; Parquet takes pyarrow.

    enroll test target|nontarget                     Kaldi, key; this project's trial lists
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
- Columns of a table are identified by name, in any order and case (``COLUMNS``); others are ignored.
- Side b of the NIST segment ``x``, a two-channel call, is the segment ``x:b``; side a is ``x``.
- ``llr`` is a natural-log likelihood ratio, empty or ``-`` where the system has no calibration.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.audio.lists import read_spk2utt
from pipeline.errors import InputError, TrialListError
from pipeline.evaluation import FORMATS
from pipeline.evaluation.columns import NameColumn, TrialTable
from pipeline.files import open_regular

Kind = Literal["key", "scores"]
"""Expected content of a file: labels, or scores."""

MOST_BYTES = 2**32  # of a file
MOST_IN_LINE = 2**20  # bytes
SHOWN = 60  # characters of a bad line that a message quotes
LABELS = {b"target": True, b"nontarget": False}
VOXCELEB_LABELS = {b"1": True, b"0": False}
TABLE_LABELS = {**LABELS, **VOXCELEB_LABELS, b"true": True, b"false": False, b"True": True, b"False": False}
COLUMNS: Mapping[str, str] = {
    name: field
    for field, names in {
        "model": "model modelid enroll enrollment speaker claim",
        "segment": "segment segmentid test path file utterance",
        "side": "side",
        "label": "target targettype label key",
        "score": "score",
        "llr": "llr",
        "system": "system",
    }.items()
    for name in names.split()
}
"""Field that a column of this name, in lower case, holds."""

_OWN_HEADER = b"system\tspeaker\tpath\tscore\tlabel"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SIDES = {b"a": b"", b"b": b":b"}
_LOOKED_AT = 100  # lines that decide on a format
_NAMES = ("model", "segment", "system")
_TYPES = {"score": "d", "llr": "d", "label": "b"}

Lines = Iterable[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Trial:
    """The claim that the audio at ``path`` was spoken by ``speaker``; ``target`` if it is true."""

    speaker: str
    path: str
    target: bool


def read_trials(path: Path) -> tuple[Trial, ...]:
    """Read a trial list of any format, in file order.

    Raises
    ------
    TrialListError
        As ``read_list``, and for a list without labels.

    Parameters
    ----------
    path : Path
        Kaldi, VoxCeleb, NIST, CSV or Parquet.

    Returns
    -------
    tuple of Trial

    Examples
    --------
    >>> import pathlib, pipeline
    >>> pipeline.read_trials(pathlib.Path("trials.txt"))[0]
    Trial(speaker='anna', path='call.wav', target=True)
    """
    table = read_list(path, kind="key")
    if table.targets is None:
        raise TrialListError(f"{path}: a key must label its trials as target or nontarget, got a list without labels")
    return tuple(map(Trial, table.models, table.segments, table.targets.tolist()))


def read_list(path: Path, *, kind: Kind | None = None, format_name: str | None = None) -> TrialTable:
    """Read a list of trials with all the labels, scores, log-likelihood ratios and systems in it.

    Parameters
    ----------
    path
        A regular file.
    kind
        Expected content of the file, where its lines could be either.
    format_name
        One of ``FORMATS``; by default recognised from the file. A spk2utt lists target trials only.

    Raises
    ------
    TrialListError
        Naming file and line, for a file that cannot be read or breaks its format.
    InputError
        For an unknown format.
    LibraryMissingError
        For Parquet without pyarrow.
    """
    name = format_of(path, kind) if format_name is None else check_format(format_name)
    if name == "parquet":
        from pipeline.evaluation.tabular import read_parquet

        return read_parquet(path)
    if name == "spk2utt":
        owners = read_spk2utt(path)
        return TrialTable(NameColumn.of(owners.values()), NameColumn.of(owners), np.ones(len(owners), dtype=np.bool_))
    own = name == "voiceclaim"
    if name in {"nist", "csv"} or (own and _first_line(path).startswith(_OWN_HEADER)):
        return _read_table(path, b"," if name == "csv" else b"\t")
    return _read_words(path, *_layout_of(path, kind, None if own else name))


def check_format(name: str) -> str:
    """Return ``name`` if it is that of a format; raises InputError."""
    if name not in FORMATS:
        raise InputError(f"the format must be one of {', '.join(FORMATS)}, got {name!r}")
    return name


def format_of(path: Path, kind: Kind | None = None) -> str:
    """Return the format of a file, recognised by its header, its name or its first lines.

    Raises TrialListError for a file that cannot be read or has no known format.
    """
    line = _first_line(path)
    if line.startswith(b"PAR1"):
        return "parquet"
    if line.startswith(_OWN_HEADER):
        return "voiceclaim"
    for delimiter, name in ((b"\t", "nist"), (b",", "csv")):
        fields = {COLUMNS.get(field.strip(b' "').decode("latin-1").lower()) for field in line.split(delimiter)}
        if {"model", "segment"} <= fields:
            return name
    for name in ("csv", "spk2utt"):
        if path.name.endswith(name):
            return name
    return _layout_of(path, kind, None)[0]


def fields_of(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the field of each column ("other" for unknown ones); raises TrialListError for a missing or double one."""
    fields = tuple(COLUMNS.get(name.strip().lower(), "other") for name in names)
    shown = ", ".join(names)[:SHOWN]
    for needed, example in (("model", "modelid"), ("segment", "segmentid")):
        if needed not in fields:
            raise TrialListError(f"{path}: a table of trials needs a column {example!r} (or alike), got {shown!r}")
    for field in COLUMNS.values():
        if fields.count(field) > 1:
            raise TrialListError(f"{path}: a table may have one column for the {field}, got two or more in {shown!r}")
    return fields


# Lines


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text file with their numbers from 1, without line ends and byte-order mark.

    Raises TrialListError for a file that cannot be read, is no regular file, or exceeds ``MOST_BYTES`` or
    ``MOST_IN_LINE``.
    """
    total = 0
    try:
        with open_regular(path) as file:
            for number, line in enumerate(iter(partial(file.readline, MOST_IN_LINE + 1), b""), start=1):
                total += len(line)
                if len(line) > MOST_IN_LINE:
                    rule = f"a line must not be longer than {MOST_IN_LINE:,} bytes"
                    raise _bad_line(path, number, line, rule, "the file is binary, or not a list of trials")
                if total > MOST_BYTES:
                    raise TrialListError(f"{path}: too large: at most {MOST_BYTES:,} bytes are read")
                text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                yield number, text.removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise TrialListError(f"{path}: cannot read it: {error.strerror or error}; is the path right?") from error


def _first_line(path: Path) -> bytes:
    return next(_numbered_lines(path), (1, b""))[1]


def _without_comments(path: Path) -> Iterator[tuple[int, bytes]]:
    for number, line in _numbered_lines(path):
        if (text := line.strip()) and not text.startswith(b"#"):
            yield number, text


def _bad_line(path: Path, number: int, text: bytes, rule: str, cause: str) -> TrialListError:
    """Return the error for a line, or a field of it, that breaks ``rule``; it quotes the beginning of ``text``."""
    shown = text[: 4 * SHOWN].decode("utf-8", errors="backslashreplace")
    shown = shown if len(shown) <= SHOWN else shown[: SHOWN - 3] + "..."
    return TrialListError(f"{path}, line {number}: {rule}, got {shown!r}; likely cause: {cause}")


# Formats


def _read_words(path: Path, name: str, kind: Kind) -> TrialTable:
    """Read lines of blank-separated fields, in Kaldi's or VoxCeleb's order."""
    field, voxceleb = "label" if kind == "key" else "score", name == "voxceleb"
    shown = ("1|0" if voxceleb else "target|nontarget") if kind == "key" else "score"
    if voxceleb:
        fields, rule, labels = (field, "model", "segment"), f"'{shown} enroll test'", VOXCELEB_LABELS
    else:
        fields, rule, labels = ("model", "segment", field), f"'enroll test {shown}'", LABELS
    split = (lambda line: line.split(None, 2)) if voxceleb else _split_kaldi
    return _read_rows(path, _without_comments(path), fields, rule, split, labels)


def _split_kaldi(line: bytes) -> list[bytes]:
    model, rest = line.split(None, 1)
    return [model, *rest.rsplit(None, 1)]


def _read_table(path: Path, delimiter: bytes) -> TrialTable:
    """Read lines of delimited fields under a header."""
    lines = _numbered_lines(path)
    split = _split_csv if delimiter == b"," else partial(bytes.split, sep=delimiter)
    header = next(lines, (1, b""))[1]
    try:
        names = [name.decode("utf-8", errors="replace") for name in split(header)]
    except csv.Error as error:
        raise _bad_line(path, 1, header, f"a header must be a row of CSV ({error})", "a quote is missing") from error
    fields = fields_of(path, names)
    rule = f"{len(fields)} fields separated by {'commas' if delimiter == b',' else 'tabs'}, as the header"
    return _read_rows(path, ((n, line) for n, line in lines if line), fields, rule, split, TABLE_LABELS)


def _split_csv(line: bytes) -> list[bytes]:
    if b'"' not in line:
        return line.split(b",")
    # Latin-1 maps every byte to a character and back, so that quotes can be resolved before the encoding is checked.
    row = next(csv.reader([line.decode("latin-1")], strict=True))
    return [field.encode("latin-1") for field in row]


def _layout_of(path: Path, kind: Kind | None, name: str | None) -> tuple[str, Kind]:
    """Return the format of blank-separated lines, kaldi or voxceleb, and their kind: ``name`` and ``kind`` if given."""
    lines = [(number, line.split()) for number, line in islice(_without_comments(path), _LOOKED_AT)]
    if not lines:
        raise TrialListError(f"{path}: a list needs at least one trial, got none; it is empty or has only comments")
    number, first = lines[0]
    layouts: tuple[tuple[str, Kind, bool], ...] = (
        ("kaldi", "key", first[-1] in LABELS),
        ("voxceleb", "key", first[0] in VOXCELEB_LABELS and not (kind is None and _is_number(first[-1]))),
        ("kaldi", "scores", all(_is_number(words[-1]) for _, words in lines)),
        ("voxceleb", "scores", all(_is_number(words[0]) for _, words in lines)),
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
    cause = f"a missing or misspelt field, or the file is no {content_name}"
    if b"\0" in b"".join(first):
        cause = "the file is not UTF-8 text (UTF-16 or binary)"
    raise _bad_line(path, number, b" ".join(first), f"the first line must read {expected} or be a header", cause)


def _is_number(word: bytes) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


# Rows to columns


class _NameNumbers(dict[bytes, int]):
    """Numbers of the names of a column, each decoded once however often it occurs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __missing__(self, text: bytes) -> int:
        if not text:
            raise ValueError("a name must not be empty")
        self.names.append(text.decode("utf-8"))
        self[text] = number = len(self)
        return number


def _read_rows(
    path: Path,
    lines: Lines,
    fields: Sequence[str],
    rule: str,
    split: Callable[[bytes], list[bytes]],
    labels: Mapping[bytes, bool],
) -> TrialTable:
    """Read lines of ``fields`` into columns; raises TrialListError for the first that breaks ``rule``, and for none."""
    names = {field: _NameNumbers() for field in _NAMES}
    parsers: dict[str, Callable[[bytes], float]] = {
        **{field: numbers.__getitem__ for field, numbers in names.items()},
        "label": labels.__getitem__,
        "score": _finite,
        "llr": _finite_or_missing if "score" in fields else _finite,
    }
    columns: dict[str, array[Any]] = {field: array(_TYPES.get(field, "i")) for field in parsers}
    order = {field: k for k, field in enumerate(fields) if field != "other"}
    side, segment = order.pop("side", None), order["segment"]
    steps = [(field, k, parsers[field], columns[field].append) for field, k in order.items()]
    for number, line in lines:
        try:
            cells = split(line)
        except (ValueError, csv.Error):
            cells = []
        if len(cells) != len(fields):
            cause = "a missing or extra field, or a list of another format"
            raise _bad_line(path, number, line, f"a line must read {rule}", cause)
        try:
            if side is not None:
                field, k = "side", side
                cells[segment] += _SIDES[cells[side]]
            for field, k, parse, append in steps:  # noqa: B007
                append(parse(cells[k]))
        except (KeyError, ValueError) as error:
            raise _bad_line(path, number, cells[k], *_broken_rule(field, labels, error)) from None
    if not columns["model"]:
        raise TrialListError(
            f"{path}: a list needs at least one trial, got none; the file is empty or has only comments"
        )
    coded = {
        field: NameColumn.coded(numbers.names, np.array(columns[field], dtype=np.int32))
        for field, numbers in names.items()
        if numbers
    }
    targets = np.array(columns["label"], dtype=np.bool_) if "label" in order else None
    llrs = np.array(columns["llr"], dtype=np.float64) if "llr" in order else None
    scores = np.array(columns["score"], dtype=np.float64) if "score" in order else llrs
    return TrialTable(coded["model"], coded["segment"], targets, scores, llrs, coded.get("system"))


def _finite(text: bytes) -> float:
    value = math.nan if b"_" in text else float(text)  # Python reads 1_0 as 10
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _finite_or_missing(text: bytes) -> float:
    return math.nan if text in (b"", b"-") else _finite(text)


def _broken_rule(field: str, labels: Mapping[bytes, bool], error: Exception) -> tuple[str, str]:
    """Return the rule that a field breaks, and the likely cause."""
    if isinstance(error, UnicodeDecodeError):
        return "text must be UTF-8", "it was saved in another encoding"
    words = ", ".join(label.decode() for label in labels)
    number = "must be a finite number", "a failed trial, or a list of another format"
    return {
        "side": ("a side must be a or b", "another column under the name of the side"),
        "label": (f"a label must be one of {words}", "a misspelt label, or a list of two formats"),
        "score": (f"a score {number[0]}", number[1]),
        "llr": (f"an llr {number[0]}", number[1]),
    }.get(field, (f"the {field} must not be empty", "a field is missing"))
