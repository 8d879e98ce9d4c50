"""Lists of trials as columns: names coded as integers, so that ten million trials fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pipeline.audio.lists import CHANNELS
from pipeline.errors import InputError

Codes = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.intp]
Rows = npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice

MOST_VALUES = 20  # of a column by which trials are grouped
_BASE = 10  # above any channel


@dataclass(frozen=True, slots=True, eq=False)
class NameColumn:
    """A categorical column: distinct ``names`` (names,), and ``codes`` (trials,), the index of each trial's name.

    Names are sorted, so that results do not depend on the order of the rows. Names that no trial has are allowed.
    Behaves like the array of names (trials,) that it encodes.
    """

    names: npt.NDArray[np.object_]
    codes: Codes

    @classmethod
    def of(cls, names: Iterable[str]) -> NameColumn:
        """Encode one name per trial.

        Examples
        --------
        >>> from pipeline.evaluation.columns import NameColumn
        >>> NameColumn.of(["ivan", "anna", "ivan"]).codes.tolist()
        [1, 0, 1]
        """
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int32)
        return cls.coded(numbers, codes)

    @classmethod
    def coded(cls, names: Iterable[str], codes: Codes) -> NameColumn:
        """Return the column of ``names[codes]``: ``names`` (names,) distinct, in any order, ``codes`` (trials,)."""
        given = as_names(names)
        order = np.argsort(given)
        new_codes = np.empty(order.size, dtype=np.int32)
        new_codes[order] = np.arange(order.size, dtype=np.int32)
        return cls(given[order], new_codes[codes])

    def __len__(self) -> int:
        return self.codes.size

    def __iter__(self) -> Iterator[str]:
        return iter(self.names[self.codes])

    @overload
    def __getitem__(self, rows: int) -> str: ...
    @overload
    def __getitem__(self, rows: Rows) -> NameColumn: ...
    def __getitem__(self, rows: int | Rows) -> str | NameColumn:
        if isinstance(rows, int):
            return str(self.names[self.codes[rows]])
        return NameColumn(self.names, self.codes[rows])

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the names themselves, shape (trials,)."""
        return np.asarray(self.names[self.codes], dtype=dtype)

    @property
    def used(self) -> list[str]:
        """Return the names that occur in a trial, sorted."""
        return list(self.names[np.bincount(self.codes, minlength=self.names.size) > 0])


def as_names(names: Iterable[str]) -> npt.NDArray[np.object_]:
    """Return names as an array of objects, shape (names,)."""
    return np.array(list(names), dtype=np.object_)


Metadata = Mapping[str, NameColumn | None]
"""Further columns of a list by name, such as a channel; None for one of more than ``MOST_VALUES`` values."""


def suffix_of(channel: int | None) -> str:
    """Return what is appended to a recording's name for this channel, from 1; None is the mean of all.

    Sides of a call are named as NIST names them: side a of ``x`` is ``x``, side b ``x:b``, further ones ``x:3`` ...
    """
    return "" if channel in {None, 1} else ":b" if channel == 2 else f":{channel}"


@dataclass(frozen=True, slots=True, eq=False)
class TrialTable:
    """A list of trials, row by row as in its file; all columns have shape (trials,).

    A trial is the claim that the audio ``segments`` (a file or a part of one) was spoken by the person enrolled as
    ``models``. ``targets`` is True for target trials, ``scores`` are those of a system, ``llrs`` their natural-log
    likelihood ratios (NaN where missing), ``systems`` the name of the system. Columns that the list lacks are None.
    ``channels`` are those to read, from 1, which the names of ``segments`` show too (``suffix_of``). ``metadata`` are
    the other columns.
    """

    models: NameColumn
    segments: NameColumn
    targets: npt.NDArray[np.bool_] | None = None
    scores: npt.NDArray[np.float64] | None = None
    llrs: npt.NDArray[np.float64] | None = None
    systems: NameColumn | None = None
    metadata: Metadata = field(default_factory=dict)
    channels: npt.NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, rows: Rows) -> TrialTable:
        columns = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "metadata"}
        kept = {name: column[rows] for name, column in columns.items() if column is not None}
        metadata = {name: None if column is None else column[rows] for name, column in self.metadata.items()}
        return replace(self, **kept, metadata=metadata)

    @property
    def needed_targets(self) -> npt.NDArray[np.bool_]:
        """Return ``targets``; raises InputError for a list without labels."""
        if self.targets is None:
            raise InputError("a key must label its trials as target or nontarget, got a list without labels")
        return self.targets

    @property
    def needed_scores(self) -> npt.NDArray[np.float64]:
        """Return ``scores``; raises InputError for a list without scores."""
        if self.scores is None:
            raise InputError("a score file must have scores, got a list of trials without any")
        return self.scores

    def trial(self, row: int) -> str:
        """Describe the trial in ``row``, from 0, for a message."""
        return f"model {self.models[row]!r}, segment {self.segments[row]!r}"


def by_channel(table: TrialTable) -> TrialTable:
    """Return a table of recordings with the suffixes of their ``channels`` appended to the names of ``segments``.

    Without ``channels``, a metadata column called ``channel`` is read in their place, if it holds nothing but channels.
    """
    channels, metadata = table.channels, dict(table.metadata)
    if channels is None:
        name = next((name for name in metadata if name.lower() == "channel"), "")
        column = metadata.get(name)
        if column is None or not CHANNELS.keys() >= set(column.names):
            return table
        channels = np.array([CHANNELS[value] for value in column.names], dtype=np.int8)[column.codes]
        del metadata[name]
    codes, rows = np.unique(table.segments.codes.astype(np.int64) * _BASE + channels, return_inverse=True)
    pairs = (divmod(int(code), _BASE) for code in codes)
    named = NameColumn.of(table.segments.names[segment] + suffix_of(channel) for segment, channel in pairs)
    return replace(table, segments=NameColumn(named.names, named.codes[rows]), channels=channels, metadata=metadata)


def check_whole(table: TrialTable, name: str) -> None:
    """Raise InputError for the list ``name`` if it has a start and an end, by which recordings are not cut."""
    if {"start", "end"} <= {column.lower() for column in table.metadata}:
        raise InputError(
            f"{name}: the columns start and end of a trial list cut no recording: whole files would be scored; cut"
            " the files, or list utterances of a Kaldi data directory with segments; or rename the columns if they are"
            " something else"
        )


def split_by_system(table: TrialTable, path: Path) -> dict[str, TrialTable]:
    """Return the rows of each system in order of first appearance; without systems, one named after ``path``."""
    if table.systems is None:
        return {path.stem.encode("utf-8", "backslashreplace").decode(): table}
    codes, first = np.unique(table.systems.codes, return_index=True)
    return {str(table.systems.names[code]): table[table.systems.codes == code] for code in codes[np.argsort(first)]}


def checked_llrs(table: TrialTable, system: str, path: Path) -> npt.NDArray[np.float64] | None:
    """Return the log-likelihood ratios of one system's rows, or None; raises InputError if only some rows have them."""
    if table.llrs is None or np.isnan(table.llrs).all():
        return None
    if np.isnan(table.llrs).any():
        raise InputError(
            f"{path}: system {system!r} must have log-likelihood ratios in all of its rows or in none, got some of each"
        )
    return table.llrs


def pair_ids(table: TrialTable, models: Codes, segments: Codes) -> Numbers:
    """Return an integer per pair of codes of ``table``, different for different pairs."""
    return np.asarray(models.astype(np.int64) * max(table.segments.names.size, 1) + segments)


def first_rows(
    table: TrialTable, ids: Numbers, values: npt.NDArray[np.generic], rule: str, name: str, cause: str
) -> tuple[Numbers, Numbers]:
    """Return the distinct ids, sorted, and the first row of each; raises InputError if rows of one id differ."""
    unique, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    differing = np.flatnonzero(values != values[first[inverse]])
    if differing.size:
        row = int(differing[0])
        low, high = sorted((values[row].item(), values[first[inverse[row]]].item()))
        raise InputError(
            f"{name}: a trial must have {rule.format(low, high)} for {table.trial(row)}; likely cause: {cause}"
        )
    return unique, first


def rows_by_label(table: TrialTable, ids: Numbers, name: str) -> tuple[Numbers, Numbers]:
    """Return ``first_rows`` of the key ``name``; raises InputError for a trial that is both target and nontarget."""
    cause = "two keys in one file"
    return first_rows(table, ids, table.needed_targets, "one label, got target and nontarget", name, cause)
