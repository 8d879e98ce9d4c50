"""Folders of results: what the files of an evaluation are called, how they are read back, how text gets there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, TrialListError
from pipeline.files import read_bounded

SCORES = "scores.txt"
SCORES_TABLE = "scores.parquet"  # in place of SCORES where there are very many
METRICS = "metrics.json"
REPORT = "report.html"
_MOST_BYTES = 2**24  # of metrics.json


def read_metrics(folder: Path) -> dict[str, Any]:
    """The content of an evaluation's metrics.json; raises TrialListError for a folder that is no evaluation."""
    path = folder / METRICS
    try:
        table = json.loads(read_bounded(path, _MOST_BYTES))
        return {**table, "default_system": str(table["default_system"])}
    except OSError as error:
        raise TrialListError(
            f"{path}: cannot be read: {error.strerror or error}; name a folder that `voiceclaim evaluate` wrote"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TrialListError(
            f"{path}: not the metrics of an evaluation ({error!r}); name a folder that `voiceclaim evaluate` wrote"
        ) from None


def labels_of(folders: Sequence[Path]) -> list[str]:
    """A name for each folder, no two the same: its own, else its whole path, numbered if it is named twice."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) == len(names):
        return names
    paths = [str(folder) for folder in folders]
    earlier = [paths[:n].count(path) for n, path in enumerate(paths)]
    return [f"{path} ({count + 1})" if count else path for path, count in zip(paths, earlier, strict=True)]


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` as UTF-8, its folder made if new; raises InputError for a place that cannot be written to."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"{path.parent}: results cannot be written there: {error.strerror or error}") from None
    return path
