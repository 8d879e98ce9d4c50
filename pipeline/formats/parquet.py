"""Parquet files of trials, keys and scores: columns by name, as in a CSV file, with types of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import TrialListError
from pipeline.evaluation.columns import NameColumn, TrialTable
from pipeline.files import open_regular
from pipeline.formats.blocks import MOST_BYTES, MOST_ROWS
from pipeline.formats.libraries import load
from pipeline.formats.rows import NAMES, NUMBERS, name_column
from pipeline.formats.tables import TABLE_LABELS, fields_of
from pipeline.formats.writing import check_texts, replacing

MAGIC = b"PAR1"
_BATCH = 2**20  # rows
_LABELS = {True: "target", False: "nontarget"}
_NEEDED_FOR = "reading and writing Parquet"


def read_parquet(path: Path) -> TrialTable:
    """A list of trials with what it has of labels, scores, log-likelihood ratios and systems.

    Raises TrialListError for a file that is damaged, too large, or lacks what a list needs; a null or a number that is
    not finite where a value must be; and labels other than target and nontarget, true and false, 1 and 0.
    """
    arrow, parquet = load("pyarrow", _NEEDED_FOR), load("pyarrow.parquet", _NEEDED_FOR)
    try:
        with open_regular(path) as file:
            opened = parquet.ParquetFile(file)
            names = list(opened.schema_arrow.names)
            wanted = {field: names[k] for k, field in enumerate(fields_of(path, names)) if field != "other"}
            wanted.pop("side", None)
            _check_size(path, opened.metadata)
            texts = [name for field, name in wanted.items() if field in NAMES]
            reader = parquet.ParquetFile(file, read_dictionary=texts)
            batches = reader.iter_batches(_BATCH, columns=list(wanted.values()), use_threads=False)
            return _table(arrow, path, wanted, batches)
    except (arrow.ArrowException, OverflowError, TypeError, ValueError) as error:  # whatever damage may come out as
        raise _damaged(path, error) from error
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise TrialListError(f"{path}: cannot read it: {reason}; is the path right, the file whole?") from error


def _damaged(path: Path, error: object) -> TrialListError:
    reason = str(error).splitlines()[0] if str(error) else repr(error)
    return TrialListError(f"{path}: not a Parquet file of trials ({reason}); likely cause: it is cut off or damaged")


def _check_size(path: Path, metadata: Any) -> None:
    unpacked = sum(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))
    if metadata.num_rows > MOST_ROWS or unpacked > MOST_BYTES:
        raise TrialListError(
            f"{path}: too large: at most {MOST_ROWS:,} rows and {MOST_BYTES:,} bytes are read, got"
            f" {metadata.num_rows:,} and {unpacked:,}"
        )


def _table(arrow: Any, path: Path, wanted: dict[str, str], batches: Iterator[Any]) -> TrialTable:
    names: dict[str, list[Any]] = {field: [] for field in wanted if field in NAMES}
    values: dict[str, list[npt.NDArray[Any]]] = {field: [] for field in wanted if field not in NAMES}
    rows = 0
    for batch in batches:
        for field, name in wanted.items():
            column = batch.column(name)
            if field in NAMES:
                names[field].append(_texts(arrow, path, name, column))
            elif field in NUMBERS:
                values[field].append(_numbers(arrow, path, name, column, empty=field == "llr"))
            else:
                values[field].append(_labels(arrow, path, name, column))
        rows += batch.num_rows
    if not rows:
        raise TrialListError(f"{path}: a list needs at least one row, got none")
    columns = {field: name_column(arrow, path, chunks) for field, chunks in names.items()}
    numbers = {field: np.concatenate(chunks) for field, chunks in values.items()}
    llrs = numbers.get("llr")
    return TrialTable(
        columns["model"],
        columns["segment"],
        numbers.get("target"),
        numbers.get("score", llrs),
        llrs,
        columns.get("system"),
    )


def _texts(arrow: Any, path: Path, name: str, column: Any) -> Any:
    _refuse_nulls(path, name, column)
    kind = column.type.value_type if arrow.types.is_dictionary(column.type) else column.type
    if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_integer(kind)):
        raise TrialListError(f"{path}: column {name!r} must hold texts, got {kind}")
    # Encoded anew: what a file calls its dictionary may name one text twice.
    encoded = column.cast(arrow.string()).dictionary_encode()
    if "" in (texts := encoded.dictionary.to_pylist()) or None in texts:
        raise TrialListError(f"{path}: column {name!r} must not hold empty names")
    return encoded


def _numbers(arrow: Any, path: Path, name: str, column: Any, *, empty: bool) -> npt.NDArray[np.float64]:
    if not (arrow.types.is_floating(column.type) or arrow.types.is_integer(column.type)):
        raise TrialListError(f"{path}: column {name!r} must hold numbers, got {column.type}")
    if not empty:
        _refuse_nulls(path, name, column)
    values = np.asarray(column.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    if np.count_nonzero(~np.isfinite(values)) != column.null_count:
        raise TrialListError(f"{path}: column {name!r} must hold finite numbers, got others; a failed trial?")
    return values


def _labels(arrow: Any, path: Path, name: str, column: Any) -> npt.NDArray[np.bool_]:
    _refuse_nulls(path, name, column)
    if arrow.types.is_boolean(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)
    encoded = _texts(arrow, path, name, column)
    texts = [text.encode() for text in encoded.dictionary.to_pylist()]
    if unknown := [text for text in texts if text not in TABLE_LABELS]:
        raise TrialListError(
            f"{path}: column {name!r} must hold target or nontarget, true or false, 1 or 0, got {unknown[0].decode()!r}"
        )
    of_text = np.array([TABLE_LABELS[text] for text in texts], dtype=np.bool_)
    return np.asarray(of_text[encoded.indices.to_numpy(zero_copy_only=False)], dtype=np.bool_)


def _refuse_nulls(path: Path, name: str, column: Any) -> None:
    if column.null_count:
        raise TrialListError(f"{path}: column {name!r} must have a value in every row, got {column.null_count:,} nulls")


def write_parquet(path: Path, table: TrialTable) -> None:
    """Write all columns of ``table``, replacing any file at ``path``: system, model, segment, label, score and llr.

    Raises TrialListError for names that are no UTF-8 text and a place that cannot be written to.
    """
    arrow, parquet = load("pyarrow", _NEEDED_FOR), load("pyarrow.parquet", _NEEDED_FOR)
    columns = {}
    for name, column in (("system", table.systems), ("model", table.models), ("segment", table.segments)):
        if column is not None:
            check_texts(path, "Parquet", column.names)
            columns[name] = _dictionary(arrow, column)
    if table.targets is not None:
        columns["label"] = _dictionary(
            arrow, NameColumn(np.array([_LABELS[False], _LABELS[True]], object), table.targets.astype(np.int32))
        )
    if table.scores is not None:
        columns["score"] = arrow.array(table.scores)
    if table.llrs is not None:
        columns["llr"] = arrow.array(table.llrs, from_pandas=True)
    with replacing(path) as file:
        # Scores hardly ever repeat: a dictionary of them would only take time.
        named = [name for name in columns if name not in NUMBERS]
        parquet.write_table(arrow.table(columns), file, compression="zstd", use_dictionary=named)


def _dictionary(arrow: Any, column: NameColumn) -> Any:
    names = arrow.array(column.names.tolist(), arrow.string())
    return arrow.DictionaryArray.from_arrays(arrow.array(column.codes), names)
