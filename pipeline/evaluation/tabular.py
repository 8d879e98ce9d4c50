"""Parquet files of trials, keys and scores, with the columns of a CSV file; needs pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline.audio.lists import CHANNELS
from pipeline.errors import InputError
from pipeline.evaluation.columns import MOST_VALUES, Metadata, NameColumn, TrialTable, by_channel
from pipeline.evaluation.text_lists import METADATA, MOST_BYTES, TABLE_LABELS, fields_of
from pipeline.extras import library
from pipeline.files import open_regular

MOST_ROWS = 10**8  # about 2 GiB of columns, from a file of any size
_EXTRA = "Parquet", "formats"


def read_parquet(path: Path) -> TrialTable:
    """Read a list of trials with the labels, scores, log-likelihood ratios and systems in it.

    Raises InputError for a file that is damaged, too large or lacks a column, a null or a number that is not finite
    where a value must be, and labels other than target and nontarget, true and false, 1 and 0.
    """
    arrow, parquet = library("pyarrow", *_EXTRA), library("pyarrow.parquet", *_EXTRA)
    try:
        with open_regular(path) as file:
            opened = parquet.ParquetFile(file)
            names = list(opened.schema_arrow.names)
            wanted = {field: names[k] for k, field in enumerate(fields_of(path, names)) if field != METADATA}
            _check_size(path, opened.metadata)
            table = opened.read(columns=list(wanted.values()), use_threads=False)
            return _table(path, {field: (name, table.column(name)) for field, name in wanted.items()})
    except (arrow.ArrowException, OverflowError, TypeError, ValueError) as error:  # damage surfaces as any of these
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise InputError(
            f"{path}: not a Parquet file of trials ({reason}); likely cause: it is cut off or damaged"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise InputError(f"{path}: cannot read it: {reason}; is the path right, the file complete?") from error


def write_parquet(file: BinaryIO, columns: Mapping[str, NameColumn | npt.NDArray[np.float64]]) -> None:
    """Write ``columns`` by their names."""
    arrow, parquet = library("pyarrow", *_EXTRA), library("pyarrow.parquet", *_EXTRA)
    table = {
        title: arrow.DictionaryArray.from_arrays(column.codes, arrow.array(column.names.tolist(), arrow.string()))
        if isinstance(column, NameColumn)
        else arrow.array(column, from_pandas=True)
        for title, column in columns.items()
    }
    # Scores hardly ever repeat, so encoding them by a dictionary would only take time.
    coded = [title for title, column in columns.items() if isinstance(column, NameColumn)]
    parquet.write_table(arrow.table(table), file, compression="zstd", use_dictionary=coded)


def _check_size(path: Path, metadata: Any) -> None:
    unpacked = sum(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))
    if metadata.num_rows > MOST_ROWS or unpacked > MOST_BYTES:
        raise InputError(
            f"{path}: too large: at most {MOST_ROWS:,} rows and {MOST_BYTES:,} bytes are read, got"
            f" {metadata.num_rows:,} and {unpacked:,}"
        )
    if metadata.num_rows == 0:
        raise InputError(f"{path}: a list needs at least one trial, got none")


def _table(path: Path, columns: dict[str, tuple[str, Any]]) -> TrialTable:
    """Return the columns, each given by field as its name and its values, checked and converted to numpy."""
    read = {field: _names_of(path, *columns[field]) for field in ("model", "segment", "system") if field in columns}
    targets = _labels_of(path, *columns["label"]) if "label" in columns else None
    scores = _numbers_of(path, *columns["score"], missing=False) if "score" in columns else None
    llrs = _numbers_of(path, *columns["llr"], missing=scores is not None) if "llr" in columns else None
    scores = llrs if scores is None else scores
    sides = _sides_of(path, *columns["side"]) if "side" in columns else None
    metadata = _metadata(columns)
    table = TrialTable(read["model"], read["segment"], targets, scores, llrs, read.get("system"), metadata, sides)
    return by_channel(table)


def _metadata(columns: dict[str, tuple[str, Any]]) -> Metadata:
    """Return the further columns that hold texts, whole numbers or truth values; nulls are empty values."""
    arrow, found = library("pyarrow", *_EXTRA), {}
    for field, (name, values) in columns.items():
        kind = values.type.value_type if arrow.types.is_dictionary(values.type) else values.type
        tests = (arrow.types.is_string, arrow.types.is_large_string, arrow.types.is_integer, arrow.types.is_boolean)
        if field.startswith(METADATA) and any(test(kind) for test in tests):
            texts = values.cast(arrow.string()).fill_null("")
            few = len(texts.unique()) <= MOST_VALUES
            found[name.strip()] = NameColumn.of(texts.to_pylist()) if few else None
    return found


def _names_of(path: Path, name: str, values: Any) -> NameColumn:
    _refuse_nulls(path, name, values)
    arrow, kind = library("pyarrow", *_EXTRA), values.type
    types = arrow.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
        raise _error(path, name, "must hold texts", kind)
    # Encoded anew: the dictionary in the file may contain a name twice.
    coded = values.cast(arrow.string()).dictionary_encode().unify_dictionaries().combine_chunks()
    chunk = coded.chunk(0) if isinstance(coded, arrow.ChunkedArray) else coded
    names = chunk.dictionary.to_pylist()
    if "" in names or None in names:
        raise _error(path, name, "must not hold empty names", "one")
    return NameColumn.coded(names, np.asarray(chunk.indices.to_numpy(zero_copy_only=False), dtype=np.int32))


def _numbers_of(path: Path, name: str, values: Any, *, missing: bool) -> npt.NDArray[np.float64]:
    arrow = library("pyarrow", *_EXTRA)
    if not (arrow.types.is_floating(values.type) or arrow.types.is_integer(values.type)):
        raise _error(path, name, "must hold numbers", values.type)
    if not missing:
        _refuse_nulls(path, name, values)
    numbers = np.asarray(values.cast(arrow.float64(), safe=False).to_numpy(), dtype=np.float64)
    if np.count_nonzero(~np.isfinite(numbers)) != values.null_count:
        raise _error(path, name, "must hold finite numbers", "others; a failed trial?")
    return numbers


def _labels_of(path: Path, name: str, values: Any) -> npt.NDArray[np.bool_]:
    _refuse_nulls(path, name, values)
    arrow = library("pyarrow", *_EXTRA)
    if arrow.types.is_boolean(values.type):
        return np.asarray(values.to_numpy(), dtype=np.bool_)
    column = _names_of(path, name, values.cast(arrow.string()) if arrow.types.is_floating(values.type) else values)
    labels = {label.decode(): value for label, value in TABLE_LABELS.items()}
    return _meant(path, name, column, labels, "must hold target or nontarget, true or false, 1 or 0").astype(np.bool_)


def _sides_of(path: Path, name: str, values: Any) -> npt.NDArray[np.int8]:
    return _meant(path, name, _names_of(path, name, values), CHANNELS, "must hold sides a and b, or channels 1 to 9")


def _meant(path: Path, name: str, column: NameColumn, known: Mapping[str, int], rule: str) -> npt.NDArray[np.int8]:
    """Return what the texts of a ``column`` mean, (trials,); raises InputError for one that is not ``known``."""
    for text in column.used:
        if text not in known:
            raise _error(path, name, rule, repr(text))
    return np.array([known.get(text, 0) for text in column.names], dtype=np.int8)[column.codes]


def _refuse_nulls(path: Path, name: str, values: Any) -> None:
    if nulls := values.null_count:
        raise _error(path, name, "must have a value in every row", f"{nulls:,} nulls")


def _error(path: Path, name: str, rule: str, got: object) -> InputError:
    return InputError(f"{path}: column {name!r} {rule}, got {got}")
