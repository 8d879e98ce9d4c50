"""Rows of text to columns of trials: a fast way for the lines that are plain, an exact one for all others.

A ``Layout`` says what the fields of a line are. Blocks of lines go through pyarrow; a block that it refuses, or in
which a rule is broken, goes through ``Layout.split`` line by line, which either reads what pyarrow could not (a path
with spaces in it) or finds the line to complain of. Both ways give the same columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import TrialListError
from pipeline.evaluation.columns import NameColumn, TrialTable, as_names
from pipeline.evaluation.lines import bad_line
from pipeline.formats.blocks import MOST_ROWS
from pipeline.formats.libraries import load

Field = str
"""What a field holds: model, segment, side, target, score, llr, system, or other, which is passed over."""
NAMES = ("model", "segment", "side", "system")
NUMBERS = ("score", "llr")
SIDES: Mapping[bytes, str] = {b"a": "", b"b": ":b"}
"""What the side of a two-channel recording adds to the segment's name: the first adds nothing."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a line in order, and how they are told apart.

    ``split`` gives the fields of a stripped line, None for one that breaks ``rule``. ``prepare`` gives texts that say
    what a block does and that pyarrow may read with ``delimiter``, to be tried in turn. ``blank`` says whether a line
    holds no row, ``comments`` whether one that begins with ``#`` is such.
    """

    fields: tuple[Field, ...]
    delimiter: str
    rule: str
    labels: Mapping[bytes, bool]
    split: Callable[[bytes], list[bytes] | None]
    prepare: Callable[[bytes], Iterator[bytes]]
    blank: Callable[[bytes], bool]
    quoted: bool = False
    empty_llr: bool = False
    comments: bool = False


@dataclass(slots=True)
class _Parts:
    """Columns of the blocks read so far: dictionary arrays of the names, numpy arrays of the rest."""

    names: dict[str, list[Any]] = field(default_factory=dict)
    values: dict[str, list[npt.NDArray[Any]]] = field(default_factory=dict)
    rows: int = 0


def read_rows(path: Path, blocks: Iterable[tuple[int, bytes]], layout: Layout) -> TrialTable:
    """The rows of ``blocks`` (number of the first line, lines) of the file at ``path``, at least one.

    Raises TrialListError, naming file and line, for a line that breaks the layout, a name that is empty or not UTF-8,
    a number that is not finite, an unknown label, no row at all and more than ``MOST_ROWS``.
    """
    arrow, csv = load("pyarrow", "reading lists of trials"), load("pyarrow.csv", "reading lists of trials")
    parts = _Parts()
    for number, block in blocks:
        ways = (_read_fast(arrow, csv, text, layout) for text in layout.prepare(block))
        columns = next((found for found in ways if found is not None), None)
        if columns is None:
            columns = _read_exactly(arrow, path, number, block, layout)
        _collect(path, parts, columns)
    if not parts.rows:
        raise TrialListError(f"{path}: a list needs at least one row, got none; the file is empty or has a header only")
    return _table(arrow, path, parts)


def _read_fast(arrow: Any, csv: Any, prepared: bytes, layout: Layout) -> dict[str, Any] | None:
    """Columns of a block that has been prepared, None where it must be read in another way."""
    if not prepared.strip(b"\n"):
        return {}
    text = arrow.dictionary(arrow.int32(), arrow.string())
    wanted = [name for name in layout.fields if name != "other"]
    positions = [f"{name}{k}" if name == "other" else name for k, name in enumerate(layout.fields)]
    try:
        table = csv.read_csv(
            arrow.BufferReader(prepared),
            csv.ReadOptions(column_names=positions, use_threads=False, block_size=len(prepared) + 1),
            csv.ParseOptions(
                delimiter=layout.delimiter,
                quote_char='"' if layout.quoted else False,
                double_quote=layout.quoted,
                escape_char=False,
            ),
            csv.ConvertOptions(
                column_types={name: arrow.float64() if name in NUMBERS else text for name in wanted},
                include_columns=wanted,
                null_values=[""] if layout.empty_llr else [],
                quoted_strings_can_be_null=False,
            ),
        )
    except arrow.ArrowInvalid:
        return None
    return _checked(arrow, {name: table.column(name).chunk(0) for name in wanted}, layout)


def _checked(arrow: Any, columns: dict[str, Any], layout: Layout) -> dict[str, Any] | None:
    """Columns with labels and numbers as numpy arrays, None where one of them breaks a rule."""
    checked: dict[str, Any] = {}
    for name, column in columns.items():
        if name in NUMBERS:
            values = column.to_numpy(zero_copy_only=False)
            if not np.isfinite(values).all() and (name == "score" or column.null_count != np.isnan(values).sum()):
                return None
            checked[name] = values
            continue
        texts = column.dictionary.to_pylist()
        if name == "target":
            if not all(text.encode() in layout.labels for text in texts):
                return None
            checked[name] = np.array([layout.labels[text.encode()] for text in texts], dtype=np.bool_)[_codes(column)]
        elif _may_be_names(name, texts, layout):
            checked[name] = column
        else:
            return None
    return _with_sides(arrow, checked)


def _may_be_names(name: Field, texts: list[str], layout: Layout) -> bool:
    if name == "side":
        return all(text.encode() in SIDES for text in texts)
    comment = layout.comments and name == layout.fields[0] and any(text.startswith("#") for text in texts)
    return "" not in texts and not comment


def _codes(column: Any) -> npt.NDArray[np.int32]:
    return np.asarray(column.indices.to_numpy(zero_copy_only=False), dtype=np.int32)


def _with_sides(arrow: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """The side of a recording made part of the segment's name."""
    side = columns.pop("side", None)
    if side is None or side.dictionary.to_pylist() in ([], ["a"]):
        return columns
    endings = as_names(SIDES[text.encode()] for text in side.dictionary.to_pylist())[_codes(side)]
    segments = as_names(columns["segment"].dictionary.to_pylist())[_codes(columns["segment"])]
    columns["segment"] = arrow.array(segments + endings, arrow.string()).dictionary_encode()
    return columns


def _read_exactly(arrow: Any, path: Path, first: int, block: bytes, layout: Layout) -> dict[str, Any]:
    """Columns of a block, line by line; raises TrialListError for the first line that breaks a rule."""
    found: dict[str, list[Any]] = {name: [] for name in layout.fields if name != "other"}
    for number, line in _lines(first, block, layout):
        fields = layout.split(line)
        if fields is None:
            raise bad_line(path, number, line, layout.rule, "a field is missing, too many, or spaces for tabs")
        for name, text in zip(layout.fields, fields, strict=True):
            if name != "other":
                found[name].append(_value(path, number, name, text, layout))
    columns: dict[str, Any] = {}
    for name, values in found.items():
        if name in NAMES:
            columns[name] = arrow.array(values, arrow.string()).dictionary_encode()
        else:
            columns[name] = np.array(values, dtype=np.bool_ if name == "target" else np.float64)
    return _with_sides(arrow, columns)


def _lines(first: int, block: bytes, layout: Layout) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(block.split(b"\n"), start=first):
        text = line.removesuffix(b"\r")
        if not layout.blank(text):
            yield number, text


def _value(path: Path, number: int, name: Field, text: bytes, layout: Layout) -> str | float | bool:
    if name in NUMBERS:
        return math.nan if not text and name == "llr" and layout.empty_llr else _number(path, number, name, text)
    if name == "target":
        if text not in layout.labels:
            rule = f"a label must be one of {', '.join(label.decode() for label in layout.labels)}"
            raise bad_line(path, number, text, rule, "a misspelt label, or a list of another format")
        return layout.labels[text]
    if not text:
        raise bad_line(path, number, text, f"the {name} must not be empty", "a field is missing")
    if name == "side" and text not in SIDES:
        raise bad_line(path, number, text, "a side must be a or b", "another column under the name of the side")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise bad_line(path, number, text, "text must be UTF-8", "it was saved in another encoding") from error


def _number(path: Path, number: int, name: str, text: bytes) -> float:
    try:
        value = math.nan if b"_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise bad_line(
            path, number, text, f"a {name} must be a finite number", "a failed trial, or a list of another format"
        )
    return value


def _collect(path: Path, parts: _Parts, columns: dict[str, Any]) -> None:
    for name, column in columns.items():
        (parts.names if name in NAMES else parts.values).setdefault(name, []).append(column)
    parts.rows += len(next(iter(columns.values()), ()))
    if parts.rows > MOST_ROWS:
        raise TrialListError(f"{path}: too many rows: at most {MOST_ROWS:,} are read")


def _table(arrow: Any, path: Path, parts: _Parts) -> TrialTable:
    names = {name: name_column(arrow, path, chunks) for name, chunks in parts.names.items()}
    values = {name: np.concatenate(chunks) for name, chunks in parts.values.items()}
    llrs = values.get("llr")
    return TrialTable(
        names["model"],
        names["segment"],
        values.get("target"),
        values.get("score", llrs),
        llrs,
        names.get("system"),
    )


def name_column(arrow: Any, path: Path, chunks: list[Any]) -> NameColumn:
    """Dictionary arrays of texts, one after the other, as one column; each name once, whatever they had."""
    try:
        whole = arrow.chunked_array(chunks).unify_dictionaries()
    except arrow.ArrowException as error:
        raise TrialListError(f"{path}: its names are too long together to be read ({error})") from error
    codes = np.concatenate([_codes(chunk) for chunk in whole.chunks])
    return NameColumn(as_names(whole.chunk(0).dictionary.to_pylist()), codes)
