"""Labelled scores row by row, as tests spell them out, and the columns and score files of such rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.evaluation import NameColumn, SystemScores, TrialTable, write_list


@dataclass(frozen=True)
class ScoreRow:
    """The score that ``system`` gave to one trial, and its log-likelihood ratio, None without a calibration."""

    system: str
    speaker: str
    path: str
    score: float
    target: bool
    llr: float | None = None


def table_from(rows: Iterable[ScoreRow]) -> TrialTable:
    rows = list(rows)
    return TrialTable(
        NameColumn.of(row.speaker for row in rows),
        NameColumn.of(row.path for row in rows),
        np.array([row.target for row in rows], dtype=np.bool_),
        np.array([row.score for row in rows], dtype=np.float64),
        np.array([np.nan if row.llr is None else row.llr for row in rows], dtype=np.float64),
        NameColumn.of(row.system for row in rows),
    )


def scores_from(rows: Iterable[ScoreRow]) -> SystemScores:
    """The rows of one system."""
    table = table_from(rows)
    llrs = None if np.isnan(table.llrs).all() else table.llrs
    return SystemScores(table.models, table.segments, table.scores, table.targets, llrs)


def write_scores(path: Path, rows: Iterable[ScoreRow]) -> None:
    write_list(path, table_from(rows), format_name="voiceclaim", kind="scores")


def rows_of(scores: dict[str, SystemScores]) -> list[ScoreRow]:
    """The rows of every system, one system after the other."""
    return [
        ScoreRow(system, *row)
        for system, of in scores.items()
        for row in zip(
            of.speakers,
            of.paths,
            of.scores.tolist(),
            of.is_target.tolist(),
            [None] * len(of.scores) if of.llrs is None else of.llrs.tolist(),
            strict=True,
        )
    ]
