"""Score matrices of the BOSARIS toolkit as HDF5: Scores, Key and Ndx, a row a model and a column a segment.

    modelset, segset        names of the rows and columns; ID/row_ids and ID/column_ids in MATLAB's files
    scores, score_mask      Scores: a score in each cell whose mask is not 0
    trial_mask              Key: 1 for a true claim, -1 for a false one, 0 for no trial; Ndx: 1 for a trial

Files are written with the names of both kinds. Brummer and de Villiers, The BOSARIS Toolkit, 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.errors import TrialListError
from pipeline.evaluation.columns import NameColumn, TrialTable, as_names
from pipeline.files import open_regular
from pipeline.formats.libraries import load
from pipeline.formats.writing import check_texts, replacing

MAGIC = b"\x89HDF\r\n\x1a\n"
MOST_CELLS = 2**27  # of a matrix: 1 GiB of scores
_MOST_NAMES = 2**24
_MOST_NAME = 2**12  # bytes
_MOST_TEXT = 2**28  # bytes of all names
_NEEDED_FOR = "reading and writing score matrices"
_ROWS = ("modelset", "ID/row_ids")
_COLUMNS = ("segset", "ID/column_ids")
_SCORES = ("scores", "scoremat", "score_mat")
_SCORE_MASK = ("score_mask", "scoremask")
_TRIAL_MASK = ("trial_mask", "trialmask")

Kind = Literal["scores", "key", "trials"]


def read_bosaris(path: Path) -> TrialTable:
    """The trials of a matrix, row by row: with scores of a Scores file, labels of a Key, neither of an Ndx.

    Raises TrialListError for a file that is damaged, larger than ``MOST_CELLS``, holds no trial, leads to other files,
    or whose names and matrices do not fit together.
    """
    hdf5 = load("h5py", _NEEDED_FOR)
    try:
        with open_regular(path) as file, hdf5.File(file, "r") as opened:
            models = _read_names(hdf5, path, opened, _ROWS)
            segments = _read_names(hdf5, path, opened, _COLUMNS)
            shape = len(models), len(segments)
            scores = _find(hdf5, path, opened, _SCORES)
            mask = _find(hdf5, path, opened, _SCORE_MASK if scores is not None else _TRIAL_MASK)
            cells = None if mask is None else _matrix(path, mask, shape, np.int8)
            values = None if scores is None else _matrix(path, scores, shape, np.float64)
    except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0] if str(error) else repr(error)
        raise TrialListError(f"{path}: cannot read it as a score matrix: {reason}") from error
    return _table(path, models, segments, cells, values)


def _table(
    path: Path,
    models: list[str],
    segments: list[str],
    cells: npt.NDArray[np.int8] | None,
    values: npt.NDArray[np.float64] | None,
) -> TrialTable:
    if cells is None and values is None:
        raise TrialListError(f"{path}: a score matrix needs {_SCORES[0]} or {_TRIAL_MASK[0]}, got neither")
    kept = np.ones((len(models), len(segments)), dtype=np.bool_) if cells is None else cells != 0
    rows, columns = np.nonzero(kept)
    if rows.size == 0:
        raise TrialListError(f"{path}: a list needs at least one trial, got none: the mask leaves out every cell")
    columns_of = (
        NameColumn(as_names(models), rows.astype(np.int32)),
        NameColumn(as_names(segments), columns.astype(np.int32)),
    )
    if values is not None:
        scores = values[kept]
        if not np.isfinite(scores).all():
            first = int(np.argmin(np.isfinite(scores)))
            where = TrialTable(*columns_of).trial(first)
            raise TrialListError(f"{path}: a score must be a finite number, got {scores[first]} at {where}")
        return TrialTable(*columns_of, scores=scores)
    labels = np.asarray(cells)[kept]
    # An Ndx says which trials there are, and nothing about them.
    return TrialTable(*columns_of, targets=labels > 0 if (labels < 0).any() else None)


def _find(hdf5: Any, path: Path, opened: Any, names: Sequence[str]) -> Any:
    """The dataset of the first of ``names`` that is there, None without; never one that leads to another file."""
    for name in names:
        group, _, leaf = name.rpartition("/")
        home = opened if not group else _group(hdf5, path, opened, group)
        if home is None or leaf not in home:
            continue
        found = home[leaf] if isinstance(home.get(leaf, getlink=True), hdf5.HardLink) else None
        if not isinstance(found, hdf5.Dataset) or found.external or found.is_virtual:
            raise _elsewhere(path, name, "dataset")
        return found
    return None


def _group(hdf5: Any, path: Path, opened: Any, name: str) -> Any:
    if name not in opened:
        return None
    if not isinstance(opened.get(name, getlink=True), hdf5.HardLink) or not isinstance(opened[name], hdf5.Group):
        raise _elsewhere(path, name, "group")
    return opened[name]


def _elsewhere(path: Path, name: str, kind: str) -> TrialListError:
    return TrialListError(f"{path}: {name} must be a {kind} of this very file; links elsewhere are not followed")


def _read_names(hdf5: Any, path: Path, opened: Any, names: Sequence[str]) -> list[str]:
    found = _find(hdf5, path, opened, names)
    if found is None:
        raise TrialListError(f"{path}: a score matrix needs the names {' or '.join(names)}, got none")
    if len(found.shape) != 1 or found.shape[0] > _MOST_NAMES or found.dtype.itemsize > _MOST_NAME:
        raise TrialListError(
            f"{path}: {names[0]} must be one row of at most {_MOST_NAMES:,} names of at most {_MOST_NAME:,} bytes, got"
            f" shape {found.shape} of {found.dtype}"
        )
    if hdf5.check_string_dtype(found.dtype) is None:
        raise TrialListError(f"{path}: {names[0]} must hold texts, got {found.dtype}")
    texts = _texts(path, names[0], found)
    if len(set(texts)) < len(texts) or "" in texts:
        raise TrialListError(f"{path}: the names in {names[0]} must be different and none empty")
    return texts


def _texts(path: Path, name: str, found: Any) -> list[str]:
    # Names of any length may stand for one long text that the file holds once: they are read a few at a time.
    texts: list[str] = []
    size, step = 0, 2**12
    for start in range(0, found.shape[0], step):
        part = [bytes(text) for text in found[start : start + step]]
        size += sum(map(len, part))
        if size > _MOST_TEXT:
            raise TrialListError(f"{path}: {name} is too large: at most {_MOST_TEXT:,} bytes of names are read")
        texts += [text.decode() for text in part]
    return texts


def _matrix(path: Path, found: Any, shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    if found.shape != shape:
        raise TrialListError(f"{path}: {found.name} must have the shape of its names, {shape}, got {found.shape}")
    if shape[0] * shape[1] > MOST_CELLS:
        raise TrialListError(f"{path}: {found.name} is too large: at most {MOST_CELLS:,} cells are read, got {shape}")
    if found.dtype.kind not in "biuf":
        raise TrialListError(f"{path}: {found.name} must hold numbers, got {found.dtype}")
    cells = found[()]
    if dtype is np.int8:
        return np.asarray(np.subtract(cells > 0, cells < 0, dtype=np.int8))
    return np.asarray(cells, dtype=dtype)


def write_bosaris(path: Path, table: TrialTable, kind: Kind) -> None:
    """Write the scores, the labels ("key") or the trials alone of ``table``, replacing any file at ``path``.

    Cells without a trial have score 0. Raises TrialListError for a trial that comes twice, names with a zero byte or
    of more than 4096 bytes, a matrix over ``MOST_CELLS``, and a list without what is to be written.
    """
    hdf5 = load("h5py", _NEEDED_FOR)
    models, segments = _compact(table.models), _compact(table.segments)
    shape = models.names.size, segments.names.size
    if shape[0] * shape[1] > MOST_CELLS:
        raise TrialListError(f"{path}: {shape[0]:,} models by {shape[1]:,} segments are too many for a matrix")
    kept = np.zeros(shape, dtype=np.int8)
    kept[models.codes, segments.codes] = 1
    if np.count_nonzero(kept) < len(table):
        raise TrialListError(f"{path}: a matrix has one cell a trial, got a trial twice")
    encoded = [_encoded(path, names.names) for names in (models, segments)]
    with replacing(path) as file, hdf5.File(file, "w") as opened:
        for (name, alias), names in zip((_ROWS, _COLUMNS), encoded, strict=True):
            opened.create_dataset(name, data=names.astype(hdf5.string_dtype("utf-8", names.itemsize)))
            opened[alias] = opened[name]
        if kind == "scores":
            cells = np.zeros(shape)
            cells[models.codes, segments.codes] = table.needed_scores
            opened.create_dataset(_SCORES[0], data=cells, compression="gzip")
            opened.create_dataset(_SCORE_MASK[0], data=kept, compression="gzip")
        else:
            if kind == "key":
                kept[models.codes, segments.codes] = np.where(table.needed_targets, 1, -1)
            opened.create_dataset(_TRIAL_MASK[0], data=kept, compression="gzip")


def _compact(column: NameColumn) -> NameColumn:
    """The same without names that no trial has."""
    used, codes = np.unique(column.codes, return_inverse=True)
    return NameColumn(column.names[used], codes.astype(np.int32))


def _encoded(path: Path, names: npt.NDArray[np.object_]) -> npt.NDArray[np.bytes_]:
    check_texts(path, "a score matrix", names, zeros=False)
    encoded = np.array([name.encode() for name in names])
    if encoded.itemsize > _MOST_NAME:
        raise TrialListError(f"{path}: a name of a score matrix has at most {_MOST_NAME:,} bytes")
    return encoded
