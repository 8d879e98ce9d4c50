"""Trial lists, keys and score files written in any format, so that they read back to the same trials and numbers.

A file appears complete or not at all. Numbers are written with the fewest digits that read back to the same number. A
name that a format cannot hold is an error, never changed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from pipeline.errors import InputError
from pipeline.evaluation.columns import Codes, NameColumn, TrialTable, as_names, checked_llrs, split_by_system
from pipeline.evaluation.lists import check_format
from pipeline.evaluation.text_lists import SHOWN

Kind = Literal["key", "scores", "trials"]
"""Part of a list to write: labels, scores, or the trials alone."""

Cells = Callable[[slice], Iterable[str]]
"""Texts of some rows of a column."""

_STEP = 2**17  # rows
_BLANKS = " \t\n\r\x0b\x0c"

# Delimiter and, by name in the header, field of each column; the formats without a header have their fields in order.
# A field "value" is the label in a key and the score in a score file; other fields that a list lacks are left out.
_TEXT: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "kaldi": (" ", {"1": "model", "2": "segment", "3": "value"}),
    "voxceleb": (" ", {"1": "value", "2": "model", "3": "segment"}),
    "nist": ("\t", {"modelid": "model", "segmentid": "stem", "side": "side", "targettype": "label", "LLR": "llr"}),
    "csv": (",", {name: name for name in ("system", "model", "segment", "label", "score", "llr")}),
    "voiceclaim": (
        "\t",
        {"system": "system", "speaker": "model", "path": "segment", "score": "score", "label": "label", "llr": "llr"},
    ),
}


def write_list(path: Path, table: TrialTable, *, format_name: str, kind: Kind | None = None) -> None:
    """Write a list, replacing any file at ``path``.

    Parameters
    ----------
    path : Path
        The file to write.
    table : TrialTable
        At least one trial.
    format_name : str
        One of ``FORMATS``. A spk2utt takes the target trials.
    kind : {"key", "scores", "trials"}, optional
        Part to write, by default the scores, else the labels, else the trials. CSV and Parquet take all columns by
        default.

    Raises
    ------
    InputError
        For a name that the format cannot hold, a missing column (NIST's score files hold log-likelihood ratios, this
        project's need labels), several systems in a format that holds one, and a place that cannot be written to.
    InputError
        For a format that such lists are not written in.
    """
    name = check_format(format_name)
    if len(table) == 0:
        raise InputError(f"{path}: a list needs at least one trial, got none; nothing was scored")
    every_column = name in {"csv", "parquet"}
    part = kind or ("scores" if table.scores is not None else "key" if table.targets is not None else "trials")
    own_scores = name == "voiceclaim" and part == "scores"
    if not (every_column or own_scores) and table.systems is not None and len(systems := table.systems.used) > 1:
        raise InputError(
            f"{path}: {name} holds the scores of one system, got {len(systems)}: {', '.join(systems)}; choose one"
        )
    if own_scores:
        table = _with_systems(path, table)
    elif not (every_column and kind is None):
        table = _part(table, part)
    _check_numbers(path, table)
    if name == "spk2utt" and part == "key":
        _write_spk2utt(path, table)
    elif name == "spk2utt" or (part == "trials" and name in {"kaldi", "voxceleb", "voiceclaim"}):
        raise InputError(f"{path}: {part} cannot be written as {name}")
    elif name == "parquet":
        _write_parquet(path, table)
    else:
        if name == "nist" and part == "scores" and (table.llrs is None or np.isnan(table.llrs).any()):
            raise InputError(
                f"{path}: a NIST score file holds log-likelihood ratios, got scores of another unit; if they are such"
                " ratios after all, say --llr"
            )
        _write_text(path, table, name, own_scores=own_scores)


def _part(table: TrialTable, kind: Kind) -> TrialTable:
    if kind == "scores":
        return replace(table, targets=None, scores=table.needed_scores)
    return TrialTable(table.models, table.segments, table.needed_targets if kind == "key" else None)


def _with_systems(path: Path, table: TrialTable) -> TrialTable:
    """Return the columns of this project's score files."""
    if table.targets is None:
        raise InputError(
            f"{path}: a score file of this project has labels, got scores without; `evaluate --scores --key` joins them"
            " and writes one"
        )
    systems = split_by_system(table, path)
    for system, part in systems.items():
        checked_llrs(part, system, path)
    llrs = np.full(len(table), np.nan) if table.llrs is None else table.llrs
    systems_column = table.systems or NameColumn.of([*systems] * len(table))
    return replace(table, systems=systems_column, scores=table.needed_scores, llrs=llrs)


def _write_text(path: Path, table: TrialTable, name: str, *, own_scores: bool) -> None:
    layout = "kaldi" if name == "voiceclaim" and not own_scores else name  # its trial lists are Kaldi's keys
    delimiter, columns = _TEXT[layout]
    _check_names(path, table, name, delimiter, layout)
    cells = _cells(table, name)
    header = [column for column, field in columns.items() if field in cells]
    taken = [cells[columns[column]] for column in header]
    with _replacing(path) as file:
        if delimiter != " ":
            file.write(f"{delimiter.join(header)}\n".encode())
        for start in range(0, len(table), _STEP):
            rows = slice(start, start + _STEP)
            texts = zip(*(cell(rows) for cell in taken), strict=True)
            file.writelines(f"{delimiter.join(row)}\n".encode() for row in texts)


def _cells(table: TrialTable, name: str) -> dict[str, Cells]:
    """Return the cells of every field that the list has."""
    spelt = _quoted if name == "csv" else str
    names = {"system": table.systems, "model": table.models, "segment": table.segments}
    cells = {
        field: _texts(map(spelt, column.names), column.codes) for field, column in names.items() if column is not None
    }
    if name == "nist":
        codes, on_b = table.segments.codes, [*map(_on_side_b, table.segments.names)]
        stems = (s.removesuffix(":b") if b else s for s, b in zip(table.segments.names, on_b, strict=True))
        cells |= {"stem": _texts(stems, codes), "side": _texts(("ab"[b] for b in on_b), codes)}
    if table.targets is not None:
        words = ("0", "1") if name == "voxceleb" else ("nontarget", "target")
        cells["label"] = _texts(words, table.targets.astype(np.int32))
    for field, values in (("score", table.scores), ("llr", table.llrs)):
        if values is not None:
            cells[field] = _numbers(values, missing="-" if name == "voiceclaim" else "")
    if value := cells.get("score") or cells.get("label"):
        cells["value"] = value
    return cells


def _texts(names: Iterable[str], codes: Codes) -> Cells:
    array = as_names(names)
    return lambda rows: array[codes[rows]]


def _numbers(values: npt.NDArray[np.float64], *, missing: str) -> Cells:
    return lambda rows: (missing if math.isnan(value) else repr(value) for value in values[rows].tolist())


def _on_side_b(name: str) -> bool:
    return name.endswith(":b") and name != ":b"


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""')) if '"' in name or "," in name else name


def _write_spk2utt(path: Path, table: TrialTable) -> None:
    targets = table[table.needed_targets]
    lines: dict[str, list[str]] = {}
    for model, segment in zip(targets.models, targets.segments, strict=True):
        lines.setdefault(model, [model]).append(segment)
    if not lines or len(set(targets.segments)) < len(targets):
        raise InputError(f"{path}: a spk2utt lists each utterance once, got one of two speakers, or none at all")
    for column in (targets.models, targets.segments):
        _check_column(path, "spk2utt", column, "a name must be one word", _without(_BLANKS))
    with _replacing(path) as file:
        file.writelines(f"{' '.join(words)}\n".encode() for words in lines.values())


def _write_parquet(path: Path, table: TrialTable) -> None:
    from pipeline.evaluation.tabular import write_parquet

    _check_names(path, table, "parquet", "", "parquet")
    with _replacing(path) as file:
        write_parquet(file, table)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` once it is complete; raises InputError where it cannot."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w+b") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot write the list: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


# Checks


def _check_numbers(path: Path, table: TrialTable) -> None:
    for name, values in (("a score", table.scores), ("an llr", table.llrs)):
        if values is None:
            continue
        bad = np.flatnonzero(~np.isfinite(values) if name == "a score" else np.isinf(values))
        if bad.size:
            row = int(bad[0])
            raise InputError(f"{path}, row {row + 1}: {name} must be finite, got {values[row]} for {table.trial(row)}")


def _check_names(path: Path, table: TrialTable, name: str, delimiter: str, layout: str) -> None:
    """Raise InputError for a name that the format cannot hold."""
    word = "a name must be one word that does not begin with '#'"
    if delimiter == " ":
        _check_column(path, name, table.models, word, _is_word)
        if name == layout:
            _check_column(path, name, table.segments, word, _is_word)
        else:
            rule = "a path must not contain a line break, or blanks at its ends"
            _check_column(path, name, table.segments, rule, lambda x: "\n" not in x and x == x.strip(_BLANKS))
        return
    marks = {"\t": "\t\n\r", ",": "\n\r", "": ""}[delimiter]
    rule = "a name must not contain a line break" + (" or a tab" if delimiter == "\t" else "")
    for column in (table.systems, table.models, table.segments):
        if column is not None:
            _check_column(path, name, column, rule, _without(marks))


def _is_word(name: str) -> bool:
    return _without(_BLANKS)(name) and name[0] not in "#\ufeff"


def _without(marks: str) -> Callable[[str], bool]:
    return lambda name: not any(mark in name for mark in marks)


def _check_column(path: Path, format_name: str, column: NameColumn, rule: str, holds: Callable[[str], bool]) -> None:
    for name in column.used:
        if not name:
            raise InputError(f"{path}: a name must not be empty to be written as {format_name}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{path}: names must be writable as UTF-8, got {name[:SHOWN]!r}; likely cause: a file name in another"
                " encoding"
            ) from error
        if not holds(name):
            raise InputError(f"{path}: {rule} to be written as {format_name}, got {name[:SHOWN]!r}")
