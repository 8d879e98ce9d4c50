"""Lists that hold the scores of several systems: taken apart, and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from pipeline.errors import TrialListError
from pipeline.evaluation.columns import NameColumn, Names, TrialTable, as_names, coded
from pipeline.evaluation.scores import SystemScores


def by_system(table: TrialTable, name: str) -> dict[str, SystemScores]:
    """Labelled scores by system; ``name`` is that of the only one where the list does not say.

    Raises TrialListError for a list without labels or scores, and for a system with a log-likelihood ratio in some of
    its rows only.
    """
    found = {}
    for system, part in parted(table, name).items():
        llrs = checked_llrs(part, system)
        found[system] = SystemScores(part.models, part.segments, part.needed_scores, part.needed_targets, llrs)
    return found


def table_of(scores: Mapping[str, SystemScores]) -> TrialTable:
    """The rows of all systems as one list, system by system; the other way round from ``by_system``."""
    found = list(scores.values())
    llrs = [np.full(part.scores.size, np.nan) if part.llrs is None else part.llrs for part in found]
    sizes = [part.scores.size for part in found]
    return TrialTable(
        _one_after_other([part.speakers for part in found]),
        _one_after_other([part.paths for part in found]),
        np.concatenate([part.is_target for part in found]),
        np.concatenate([part.scores for part in found]),
        np.concatenate(llrs) if any(part.llrs is not None for part in found) else None,
        NameColumn(as_names(scores), np.repeat(np.arange(len(found), dtype=np.int32), sizes)),
    )


def _one_after_other(columns: Sequence[Names]) -> NameColumn:
    first = columns[0]
    if isinstance(first, NameColumn) and all(
        isinstance(column, NameColumn) and column.names is first.names for column in columns
    ):
        return NameColumn(first.names, np.concatenate([coded(column).codes for column in columns]))
    return NameColumn.of(chain.from_iterable(columns))


def parted(table: TrialTable, name: str) -> dict[str, TrialTable]:
    """The rows of each system; ``name`` is that of the only one where the list does not say."""
    if table.systems is None:
        return {name: table}
    codes = table.systems.codes
    return {str(table.systems.names[code]): table[codes == code] for code in np.unique(codes)}


def checked_llrs(table: TrialTable, system: str) -> npt.NDArray[np.float64] | None:
    """Log-likelihood ratios of the rows of one system, None without; TrialListError for some of them only."""
    if table.llrs is None or np.isnan(table.llrs).all():
        return None
    if np.isnan(table.llrs).any():
        raise TrialListError(
            f"system {system!r} must have log-likelihood ratios in all of its rows or in none, got some of each"
        )
    return table.llrs
