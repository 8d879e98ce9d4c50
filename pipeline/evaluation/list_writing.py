"""Trial lists, keys and score files written for other tools, so that they read back to the same trials and numbers.

A file appears complete or not at all. Numbers are written with the fewest digits that read back to the same number. A
name that a format cannot hold is an error, never changed.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import numpy as np
import numpy.typing as npt

from pipeline.audio.lists import SHOWN
from pipeline.errors import InputError, check_type
from pipeline.evaluation import WRITTEN
from pipeline.evaluation.columns import NameColumn, TrialTable, as_names, checked_llrs, split_by_system
from pipeline.files import beside, obstacle

Kind = Literal["key", "scores", "trials"]
"""Part of a list to write: labels, scores, or the trials alone."""

Column = NameColumn | npt.NDArray[np.float64]

_STEP = 2**17  # rows
_DELIMITERS = {"kaldi": " ", "nist": "\t", "csv": ",", "voiceclaim": "\t"}
# What no format can hold in a name, and what each cannot; the rules are part of the message.
_NOWHERE = {"not be empty": r"\A\Z", "be writable as UTF-8 (is it of a file in another encoding?)": "[\ud800-\udfff]"}
_NO_TABS = {"not contain a line break or a tab": "[\t\n\r]"}
_NOT_HELD = {
    "kaldi": {"be one word that does not begin with '#'": "^[#\ufeff]|[ \t\n\r\x0b\x0c]"},
    "nist": _NO_TABS,
    "voiceclaim": _NO_TABS,
    "csv": {"not contain a line break": "[\n\r]"},
    "parquet": {},
}


def write_list(path: Path | str, table: TrialTable, *, format_name: str, kind: Kind | None = None) -> None:
    """Write a list, replacing any file at ``path``.

    Parameters
    ----------
    path : path
        The file to write.
    table : TrialTable
        At least one trial.
    format_name : str
        One of ``WRITTEN``; "voiceclaim" is the score file of this project.
    kind : {"key", "scores", "trials"}, optional
        Part to write, by default the scores, else the labels, else the trials. CSV and Parquet take all columns by
        default.

    Raises
    ------
    InputError
        For a name that the format cannot hold, a missing column (NIST's score files hold log-likelihood ratios, this
        project's need labels), several systems in a format that holds one, a place that cannot be written to, and a
        format or a part that is not written.

    Examples
    --------
    >>> from pipeline.evaluation import read_list, write_list
    >>> write_list("trials.csv", read_list("trials.txt"), format_name="csv")
    >>> read_list("trials.csv").models.used
    ['anna', 'ivan']
    """
    check_type("path", path, os.PathLike | str, "the path of a list")
    check_type("table", table, TrialTable, "a TrialTable, as read_list returns,")
    if kind not in (None, *get_args(Kind)):
        raise InputError(f"kind: one of {', '.join(get_args(Kind))}, or None, was expected, got {kind!r}")
    path = Path(path)
    if format_name not in WRITTEN:
        raise InputError(f"the format to write must be one of {', '.join(WRITTEN)}, got {format_name!r}")
    if len(table) == 0:
        raise InputError(f"{path}: a list needs at least one trial, got none; nothing was scored")
    part = kind or ("scores" if table.scores is not None else "key" if table.targets is not None else "trials")
    if part != "scores" and (format_name == "voiceclaim" or (format_name == "kaldi" and part == "trials")):
        raise InputError(f"{path}: {part} cannot be written as {format_name}")
    if format_name == "voiceclaim":
        table = _with_systems(path, table)
    elif kind is not None or format_name not in {"csv", "parquet"}:
        table = _part(path, table, part, format_name)
    _check_numbers(path, table)
    for column in (table.systems, table.models, table.segments):
        _check_names(path, () if column is None else column.used, format_name)
    columns = {title: column for title, column in _columns(table, format_name).items() if column is not None}
    with _replacing(path) as file:
        if format_name == "parquet":
            from pipeline.evaluation.tabular import write_parquet

            write_parquet(file, columns)
        else:
            file.writelines(_lines(columns, format_name, len(table)))


def _part(path: Path, table: TrialTable, kind: Kind, name: str) -> TrialTable:
    """Return the columns of one part, for a format that may hold one system only."""
    if name in {"kaldi", "nist"} and table.systems is not None and len(systems := table.systems.used) > 1:
        raise InputError(
            f"{path}: {name} holds the scores of one system, got {len(systems)}: {', '.join(systems)}; choose one"
        )
    if kind != "scores":
        return TrialTable(table.models, table.segments, table.needed_targets if kind == "key" else None)
    scored = replace(table, targets=None, scores=table.needed_scores)
    if name == "nist" and (table.llrs is None or np.isnan(table.llrs).any()):
        raise InputError(
            f"{path}: a NIST score file holds log-likelihood ratios, got scores of another unit; if they are such"
            " ratios after all, give --llr"
        )
    return scored


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
    return replace(table, systems=systems_column, llrs=llrs)


def _lines(columns: Mapping[str, Column], name: str, rows: int) -> Iterator[bytes]:
    """Yield the header, where there is one, and the rows."""
    delimiter, missing = _DELIMITERS[name], "-" if name == "voiceclaim" else ""
    if name != "kaldi":
        yield f"{delimiter.join(columns)}\n".encode()
    for start in range(0, rows, _STEP):
        cells = (_cells(column[start : start + _STEP], missing) for column in columns.values())
        yield from (f"{delimiter.join(row)}\n".encode() for row in zip(*cells, strict=True))


def _columns(table: TrialTable, name: str) -> dict[str, Column | None]:
    """Return the columns in the order and with the names of a format; None for what the list lacks."""
    systems, models, segments, scores, llrs = table.systems, table.models, table.segments, table.scores, table.llrs
    labels = None
    if table.targets is not None:
        labels = NameColumn(as_names(("nontarget", "target")), table.targets.astype(np.int32))
    if name == "kaldi":
        return {"model": models, "segment": segments, "value": labels if scores is None else scores}
    if name == "voiceclaim":
        return {"system": systems, "speaker": models, "path": segments, "score": scores, "label": labels, "llr": llrs}
    if name == "nist":
        pairs = [(n[:-2], "b") if n.endswith(":b") and n != ":b" else (n, "a") for n in segments.names]
        stems, sides = (_renamed(segments, part) for part in zip(*pairs, strict=True))
        return {"modelid": models, "segmentid": stems, "side": sides, "targettype": labels, "LLR": llrs}
    named = {"system": systems, "model": models, "segment": segments, "label": labels}
    if name == "csv":
        named = {title: column and _renamed(column, map(_quoted, column.names)) for title, column in named.items()}
    return {**named, "score": scores, "llr": llrs}


def _renamed(column: NameColumn, names: Iterable[str]) -> NameColumn:
    return NameColumn(as_names(names), column.codes)


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""')) if '"' in name or "," in name else name


def _cells(column: Column, missing: str) -> Iterable[str]:
    if isinstance(column, NameColumn):
        return column
    return (missing if math.isnan(value) else repr(value) for value in column.tolist())


def _check_numbers(path: Path, table: TrialTable) -> None:
    for name, values, missing in (("a score", table.scores, False), ("an llr", table.llrs, True)):
        if values is not None and (bad := np.flatnonzero(~np.isfinite(values) & ~(missing & np.isnan(values)))).size:
            got = f"{values[bad[0]]} for {table.trial(int(bad[0]))}"
            raise InputError(f"{path}, row {bad[0] + 1}: {name} must be finite, got {got}")


def _check_names(path: Path, names: Iterable[str], format_name: str) -> None:
    """Raise InputError for a name that the format cannot hold."""
    for rule, pattern in {**_NOWHERE, **_NOT_HELD[format_name]}.items():
        for name in filter(re.compile(pattern).search, names):
            unheld = any(re.search(other, name) for other in (_NOWHERE | _NOT_HELD["csv"]).values())
            remedy = "" if unheld else "; CSV holds it (trials --out FILE.csv, convert --to csv)"
            raise InputError(f"{path}: a name must {rule} to be written as {format_name}, got {name[:SHOWN]!r}{remedy}")


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` once it is complete; raises InputError where it cannot."""
    try:
        partial = beside(path, f".{os.getpid()}.partial")
        try:
            with partial.open("w+b") as file:
                yield file
            partial.replace(path)
        finally:
            with suppress(OSError):  # the first error is the one to tell
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot write the list: {obstacle(path, error)}") from error
