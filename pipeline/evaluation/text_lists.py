"""Lines of text to columns: blank-separated fields, and tables under a header.

Text is read line by line, in one way for all formats and with the standard library alone.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.audio.lists import CHANNELS, RECORDING_COLUMNS, SHOWN
from pipeline.errors import InputError
from pipeline.evaluation.columns import MOST_VALUES, NameColumn, TrialTable, by_channel
from pipeline.files import open_regular

Kind = Literal["key", "scores"]
"""Content of every line of a list: a label, or a score."""

MOST_BYTES = 2**32  # of a file
MOST_IN_LINE = 2**20  # bytes
LABELS = {
    **{b"target": True, b"nontarget": False, b"tgt": True, b"imp": False},
    **{b"true": True, b"false": False, b"True": True, b"False": False, b"TRUE": True, b"FALSE": False},
}
VOXCELEB_LABELS = {b"1": True, b"0": False}
TABLE_LABELS = {**LABELS, **VOXCELEB_LABELS, b"1.0": True, b"0.0": False}  # as pandas writes 1 and 0 beside a gap
_TRIAL_COLUMNS: Mapping[str, str] = {
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
_FIELDS = {"speaker": "model", "path": "segment"}  # of tables of recordings
COLUMNS: Mapping[str, str] = {
    **_TRIAL_COLUMNS,
    **{
        name: _FIELDS[field]
        for name, field in RECORDING_COLUMNS.items()
        if field in _FIELDS and name not in _TRIAL_COLUMNS
    },
}
"""Field that a column of this name, in lower case, holds: names of tables of trials, then those of recordings alone."""
DECIMAL_COMMA = "a decimal comma; numbers are written with a point"
METADATA = "metadata:"
"""Begins the field of any other column; its name follows."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SIDES = {name.encode(): channel for name, channel in CHANNELS.items()}
_NAMES = ("model", "segment", "system")
_TYPES = {"score": "d", "llr": "d", "label": "b", "side": "b"}

Lines = Iterable[tuple[int, bytes]]


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text file with their numbers from 1, without line ends and byte-order mark.

    Raises InputError for a file that cannot be read, is no regular file, or exceeds ``MOST_BYTES`` or
    ``MOST_IN_LINE``.
    """
    total = 0
    try:
        with open_regular(path) as file:
            for number, line in enumerate(iter(partial(file.readline, MOST_IN_LINE + 1), b""), start=1):
                total += len(line)
                if len(line) > MOST_IN_LINE:
                    rule = f"a line must not be longer than {MOST_IN_LINE:,} bytes"
                    raise bad_line(path, number, line, rule, "the file is binary, or not a list of trials")
                if total > MOST_BYTES:
                    raise InputError(f"{path}: too large: at most {MOST_BYTES:,} bytes are read")
                text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                text = text.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1 and b"\r" in text and b"\0" not in text:
                    rule = "lines must end in LF or CR LF"
                    raise bad_line(path, number, text, rule, "line ends of an old Mac program")
                yield number, text
    except OSError as error:
        raise InputError(f"{path}: cannot read it: {error.strerror or error}; is the path right?") from error


def first_line(path: Path) -> bytes:
    """Return the first line, empty for an empty file; raises InputError as ``numbered_lines``."""
    return next(numbered_lines(path), (1, b""))[1]


def without_comments(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are neither blank nor a comment, stripped, with their numbers."""
    for number, line in numbered_lines(path):
        if (text := line.strip()) and not text.startswith(b"#"):
            yield number, text


def bad_line(path: Path, number: int, text: bytes, rule: str, cause: str) -> InputError:
    """Return the error for a line, or a field of it, that breaks ``rule``; it quotes the beginning of ``text``."""
    shown = text[: 4 * SHOWN].decode("utf-8", errors="backslashreplace")
    shown = shown if len(shown) <= SHOWN else shown[: SHOWN - 3] + "..."
    return InputError(f"{path}, line {number}: {rule}, got {shown!r}; likely cause: {cause}")


def fields_of(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the field that each column holds; ``METADATA`` and the name for a column that holds none.

    Names that only tables of recordings use count if no other column holds their field: ``speaker_id`` is the model,
    but metadata beside ``model``. Raises InputError for a missing or duplicate field.
    """
    plain = [name.strip() for name in names]
    of_trials = {_TRIAL_COLUMNS.get(name.lower()) for name in plain}
    known = {name: field for name, field in COLUMNS.items() if field not in of_trials} | {**_TRIAL_COLUMNS}
    fields = tuple(known.get(name.lower(), f"{METADATA}{name}") for name in plain)
    shown = ", ".join(names)[:SHOWN]
    for needed, example in (("model", "modelid"), ("segment", "segmentid")):
        if needed not in fields:
            alike = ", ".join(name for name, field in COLUMNS.items() if field == needed)
            cause = f"no header in the first line, or the column has none of the names {alike}"
            if len(names) == 1 and ";" in shown:
                cause = "its fields are separated by semicolons, not by commas"
            if "\0" in shown:
                cause = "the file is not UTF-8 text (UTF-16 or binary)"
            rule = f"a table of trials needs a column {example!r} (or similar)"
            raise InputError(f"{path}: {rule}, got {shown!r}; likely cause: {cause}")
    for field in COLUMNS.values():
        named = [repr(name) for name, one in zip(plain, fields, strict=True) if one == field]
        if len(named) > 1:
            raise InputError(
                f"{path}: a table may have one column for the {field}, got {' and '.join(named)}; rename all but one"
            )
    return fields


def read_words(path: Path, name: str, kind: Kind) -> TrialTable:
    """Read lines of blank-separated fields, in Kaldi's or VoxCeleb's order."""
    field, voxceleb = "label" if kind == "key" else "score", name == "voxceleb"
    shown = ("1|0" if voxceleb else "target|nontarget") if kind == "key" else "score"
    if voxceleb:
        fields, rule, labels = (field, "model", "segment"), f"'{shown} enroll test'", VOXCELEB_LABELS
    else:
        first = next(without_comments(path), (1, b""))[1]
        labels = VOXCELEB_LABELS if first.split()[-1:] in [[b"1"], [b"0"]] else LABELS
        fields, rule = ("model", "segment", field), f"'enroll test {shown}'"
    split = (lambda line: line.split(None, 2)) if voxceleb else _split_kaldi
    return _read_rows(path, without_comments(path), fields, rule, split, labels)


def _split_kaldi(line: bytes) -> list[bytes]:
    model, rest = line.split(None, 1)
    return [model, *rest.rsplit(None, 1)]


def read_table(path: Path, delimiter: bytes) -> TrialTable:
    """Read lines of delimited fields under a header."""
    lines = numbered_lines(path)
    split = _split_csv if delimiter == b"," else partial(bytes.split, sep=delimiter)
    header = next(lines, (1, b""))[1]
    try:
        names = [name.decode("utf-8", errors="replace") for name in split(header)]
    except csv.Error as error:
        raise bad_line(path, 1, header, f"a header must be a row of CSV ({error})", "a quote is missing") from error
    fields = fields_of(path, names)
    rule = f"{len(fields)} fields separated by {'commas' if delimiter == b',' else 'tabs'}, as the header"
    return _read_rows(path, ((n, line) for n, line in lines if line), fields, rule, split, TABLE_LABELS)


def _split_csv(line: bytes) -> list[bytes]:
    if b'"' not in line:
        return line.split(b",")
    # Latin-1 maps every byte to a character and back, so that quotes can be resolved before the encoding is checked.
    row = next(csv.reader([line.decode("latin-1")], strict=True))
    return [field.encode("latin-1") for field in row]


class _NameNumbers(dict[bytes, int]):
    """Numbers of the names of a column, each decoded once however often it occurs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def column(self, codes: array[Any]) -> NameColumn:
        """Return the column with these ``codes``."""
        return NameColumn.coded(self.names, np.array(codes, dtype=np.int32))

    def __missing__(self, text: bytes) -> int:
        if not text:
            raise ValueError("a name must not be empty")
        self.names.append(text.decode("utf-8"))
        self[text] = number = len(self)
        return number


class _ValueNumbers(_NameNumbers):
    """Numbers of the values, which may be empty, of a column by which trials are grouped; too many are not kept."""

    def __missing__(self, text: bytes) -> int:
        if len(self) > MOST_VALUES:
            return 0
        self.names.append(text.decode("utf-8", errors="replace"))
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
    """Read lines of ``fields`` into columns; raises InputError for the first to break ``rule``, or without any line."""
    others = [field for field in fields if field.removeprefix(METADATA) not in {field, ""}]
    names = {**{field: _NameNumbers() for field in _NAMES}, **{field: _ValueNumbers() for field in others}}
    parsers: dict[str, Callable[[bytes], float]] = {
        **{field: numbers.__getitem__ for field, numbers in names.items()},
        "side": _SIDES.__getitem__,
        "label": labels.__getitem__,
        "score": _finite,
        "llr": _finite_or_missing if "score" in fields else _finite,
    }
    columns: dict[str, array[Any]] = {field: array(_TYPES.get(field, "i")) for field in parsers}
    order = {field: k for k, field in enumerate(fields) if field != METADATA}
    steps = [(field, k, parsers[field], columns[field].append) for field, k in order.items()]
    for number, line in lines:
        try:
            cells = split(line)
        except (ValueError, csv.Error):
            cells = []
        if len(cells) != len(fields):
            cause = "a missing or extra field, or a list of another format"
            raise bad_line(path, number, line, f"a line must read {rule}", cause)
        try:
            for field, k, parse, append in steps:  # noqa: B007
                append(parse(cells[k]))
        except (KeyError, ValueError) as error:
            raise bad_line(path, number, cells[k], *_broken_rule(field, cells[k], labels, error)) from None
    if not columns["model"]:
        raise InputError(f"{path}: a list needs at least one trial, got none; the file is empty or has only comments")
    return _table_of(columns, names, others, order)


def _table_of(
    columns: Mapping[str, array[Any]], names: Mapping[str, _NameNumbers], others: Sequence[str], given: Container[str]
) -> TrialTable:
    """Return the table of the ``columns`` that were read; only those ``given`` are in the list."""
    coded = {field: names[field].column(columns[field]) for field in _NAMES if names[field]}
    metadata = {
        field.removeprefix(METADATA): None if len(names[field]) > MOST_VALUES else names[field].column(columns[field])
        for field in others
    }
    targets = np.array(columns["label"], dtype=np.bool_) if "label" in given else None
    llrs = np.array(columns["llr"], dtype=np.float64) if "llr" in given else None
    scores = np.array(columns["score"], dtype=np.float64) if "score" in given else llrs
    sides = np.array(columns["side"], dtype=np.int8) if "side" in given else None
    columns_read = coded["model"], coded["segment"], targets, scores, llrs, coded.get("system"), metadata, sides
    return by_channel(TrialTable(*columns_read))


def _finite(text: bytes) -> float:
    value = math.nan if b"_" in text else float(text)  # Python reads 1_0 as 10
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _finite_or_missing(text: bytes) -> float:
    return math.nan if text in (b"", b"-") else _finite(text)


def has_decimal_comma(text: bytes) -> bool:
    """Return True for a number written with a comma, as many programs do in some languages."""
    return re.fullmatch(rb"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?", text) is not None


def _broken_rule(field: str, text: bytes, labels: Mapping[bytes, bool], error: Exception) -> tuple[str, str]:
    """Return the rule that the ``text`` of a field breaks, and the likely cause."""
    if isinstance(error, UnicodeDecodeError):
        return "text must be UTF-8", "it was saved in another encoding"
    words = ", ".join(label.decode() for label in labels)
    number = "must be a finite number", "a failed trial, or a list of another format"
    if has_decimal_comma(text):
        number = number[0], DECIMAL_COMMA
    return {
        "side": ("a side must be a or b", "another column under the name of the side; channels are numbered 1 to 9"),
        "label": (f"a label must be one of {words}", "a misspelt label, or a list of two formats"),
        "score": (f"a score {number[0]}", number[1]),
        "llr": (f"an llr {number[0]}", number[1]),
    }.get(field, (f"the {field} must not be empty", "a field is missing"))
