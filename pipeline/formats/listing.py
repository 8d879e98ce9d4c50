"""Lists of trials, keys and scores written in any format, as text that reads back to the same trials and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.errors import InputError, TrialListError
from pipeline.evaluation.columns import NameColumn, TrialTable, as_names
from pipeline.evaluation.scores import rows_of, write_scores
from pipeline.evaluation.systems import by_system
from pipeline.formats.bosaris import write_bosaris
from pipeline.formats.libraries import load
from pipeline.formats.parquet import write_parquet
from pipeline.formats.reading import check_format
from pipeline.formats.rows import SIDES
from pipeline.formats.spk2utt import write_spk2utt
from pipeline.formats.writing import check_cells, check_phrases, check_words, replacing

Kind = Literal["key", "scores", "trials"]
"""What of a list is written: labels, scores, or the trials alone."""

Texts = Callable[[slice], Any]
"""A column as arrow's texts of some of its rows."""

_STEP = 2**17  # rows
_NEEDED_FOR = "writing lists of trials"
_LABELS = {"voxceleb": ("0", "1")}
_WORDS = ("nontarget", "target")


def kind_of(table: TrialTable) -> Kind:
    """What a list holds first of all: scores, else labels, else trials alone."""
    return "scores" if table.scores is not None else "key" if table.targets is not None else "trials"


def write_list(path: Path, table: TrialTable, *, format_name: str, kind: Kind | None = None) -> None:
    """Write what ``kind`` says of ``table``, by default ``kind_of`` it, replacing any file at ``path``.

    CSV and Parquet take every column where no ``kind`` is given; a spk2utt takes the true claims. Raises TrialListError
    for a name that the format cannot hold, for what the list lacks (NIST's score files hold log-likelihood ratios, this
    project's need labels), for several systems in a format that holds one, and for a place that cannot be written to;
    InputError for a format that lists of trials are not written in.
    """
    name = check_format(format_name)
    if name in {"csv", "parquet"}:
        columns = table if kind is None else _only(table, kind)
        (_write_csv if name == "csv" else write_parquet)(path, columns)
        return
    kind = kind_of(table) if kind is None else kind
    if name == "voiceclaim" and kind == "scores":
        _write_own_scores(path, table)
        return
    if table.systems is not None and len(systems := table.systems.used) > 1:
        raise TrialListError(
            f"{path}: {name} holds the scores of one system, got {len(systems)}: {', '.join(systems)}; choose one"
        )
    if name == "bosaris":
        write_bosaris(path, table, kind)
    elif name == "nist":
        _write_nist(path, table, kind)
    elif name == "spk2utt" and kind == "key":
        true = table[table.needed_targets]
        by_model: dict[str, list[str]] = {}
        for model, segment in zip(true.models, true.segments, strict=True):
            by_model.setdefault(model, []).append(segment)
        write_spk2utt(path, by_model)
    elif name == "spk2utt" or kind == "trials":
        raise InputError(f"{path}: {kind} cannot be written as {name}")
    else:
        _write_words(path, table, name, kind)


def _only(table: TrialTable, kind: Kind) -> TrialTable:
    labels = table.needed_targets if kind == "key" else None
    scores = table.needed_scores if kind == "scores" else None
    of_scores = (table.llrs, table.systems) if kind == "scores" else (None, None)
    return TrialTable(table.models, table.segments, labels, scores, *of_scores)


def _write_own_scores(path: Path, table: TrialTable) -> None:
    if table.targets is None:
        raise TrialListError(
            f"{path}: a score file of this project has labels, got scores without; `evaluate --scores --key` joins them"
            " and writes one"
        )
    write_scores(path, rows_of(by_system(table, path.stem)))


def _write_words(path: Path, table: TrialTable, name: str, kind: Kind) -> None:
    check_words(path, name, table.models.used)
    (check_phrases if name == "voiceclaim" else check_words)(path, name, table.segments.used)
    models, segments = _texts(table.models), _texts(table.segments)
    value = _numbers(table.needed_scores) if kind == "scores" else _labels(table.needed_targets, name)
    columns = (value, models, segments) if name == "voxceleb" else (models, segments, value)
    _write_rows(path, "", columns, " ", trials=len(table))


def _write_nist(path: Path, table: TrialTable, kind: Kind) -> None:
    for names in (table.models.used, table.segments.used):
        check_cells(path, "nist", names, tabs=True)
    sides = {ending: side.decode() for side, ending in SIDES.items() if ending}
    stems, of_side = [], []
    for name in table.segments.names:
        ending = next((ending for ending in sides if name.endswith(ending) and name != ending), "")
        stems.append(name.removesuffix(ending))
        of_side.append(sides.get(ending, "a"))
    columns = [_texts(table.models)]
    columns += [_texts(NameColumn(as_names(texts), table.segments.codes)) for texts in (stems, of_side)]
    header = ["modelid", "segmentid", "side"]
    if kind == "key":
        header.append("targettype")
        columns.append(_labels(table.needed_targets, "nist"))
    if kind == "scores":
        header.append("LLR")
        columns.append(_numbers(_ratios(path, table)))
    _write_rows(path, "\t".join(header) + "\n", columns, "\t", trials=len(table))


def _ratios(path: Path, table: TrialTable) -> npt.NDArray[np.float64]:
    if table.llrs is None or np.isnan(table.llrs).any():
        raise TrialListError(
            f"{path}: a NIST score file holds log-likelihood ratios, got scores of another unit; if they are such"
            " ratios after all, say --llr"
        )
    return table.llrs


def _write_csv(path: Path, table: TrialTable) -> None:
    columns: dict[str, Texts] = {}
    for name, column in (("system", table.systems), ("model", table.models), ("segment", table.segments)):
        if column is not None:
            check_cells(path, "csv", column.used, tabs=False)
            columns[name] = _texts(NameColumn(as_names(map(_quoted, column.names)), column.codes))
    if table.targets is not None:
        columns["label"] = _labels(table.targets, "csv")
    for name, values in (("score", table.scores), ("llr", table.llrs)):
        if values is not None:
            columns[name] = _numbers(values)
    _write_rows(path, ",".join(columns) + "\n", columns.values(), ",", trials=len(table))


def _quoted(name: str) -> str:
    return (
        '"{}"'.format(name.replace('"', '""')) if any(mark in name for mark in '",') or name != name.strip() else name
    )


def _labels(targets: npt.NDArray[np.bool_], name: str) -> Texts:
    return _texts(NameColumn(as_names(_LABELS.get(name, _WORDS)), targets.astype(np.int32)))


def _texts(column: NameColumn) -> Texts:
    """A column of names to write."""
    arrow, compute = load("pyarrow", _NEEDED_FOR), load("pyarrow.compute", _NEEDED_FOR)
    names = arrow.array(column.names.tolist(), arrow.string())
    return lambda rows: compute.take(names, arrow.array(column.codes[rows]))


def _numbers(values: npt.NDArray[np.float64]) -> Texts:
    """A column of numbers to write with the fewest digits that read back to them, nothing for NaN."""
    arrow, compute = load("pyarrow", _NEEDED_FOR), load("pyarrow.compute", _NEEDED_FOR)
    return lambda rows: compute.fill_null(arrow.array(values[rows], from_pandas=True).cast(arrow.string()), "")


def _write_rows(path: Path, header: str, columns: Iterable[Texts], delimiter: str, *, trials: int) -> None:
    join = load("pyarrow.compute", _NEEDED_FOR).binary_join_element_wise
    columns = list(columns)
    with replacing(path) as file:
        file.write(header.encode())
        for start in range(0, trials, _STEP):
            fields = [column(slice(start, start + _STEP)) for column in columns]
            file.write(_text_of(join(join(*fields, delimiter), "", "\n")))


def _text_of(lines: Any) -> bytes:
    """All the lines in a row: an array of texts keeps them so already."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(data[int(ends[0]) : int(ends[-1])])
