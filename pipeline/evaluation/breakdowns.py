"""Error rates by trial metadata: trials are grouped by the values of a column, such as a channel or a condition.

Columns are those of the list that are not part of a trial and, where files were scored, the length of the speech. All
groups share one threshold, as in use, and their rates show for which of them it is worst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipeline.evaluation.columns import MOST_VALUES, Metadata, NameColumn
from pipeline.evaluation.scores import SystemScores
from pipeline.metrics import ErrorRates, equal_error_rate, rates_at
from pipeline.metrics.sample_size import ERRORS_NEEDED

SPEECH = "speech"
"""Name of the column of lengths of speech."""

SPEECH_SECONDS = (0, 1, 2, 4, 8, 16)
"""Lengths of speech, in seconds, at which groups begin."""

_DIGITS = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """Metrics of the trials with one value of a column; ``eer``, a share, is None where they are of one class.

    ``rule_of_30`` is True if there are 30 errors of each kind at the equal error rate, which is then reliable.
    """

    n_target: int
    n_nontarget: int
    eer: float | None
    at_threshold: ErrorRates
    rule_of_30: bool


def breakdowns(scores: SystemScores, threshold: float | None) -> dict[str, dict[str, GroupMetrics]]:
    """Return the metrics by value of each metadata column with at least two values, numbers in their order.

    Rates are at ``threshold`` or, if that is None, at the threshold of the equal error rate over all trials.

    Examples
    --------
    >>> import numpy as np
    >>> from pipeline.evaluation import NameColumn, SystemScores
    >>> from pipeline.evaluation.breakdowns import breakdowns
    >>> names, line = NameColumn.of("aabb"), NameColumn.of(["office", "phone"] * 2)
    >>> values, labels = np.array([3.0, 1.0, 0.0, 2.0]), np.array([True, True, False, False])
    >>> scores = SystemScores(names, names, values, labels, metadata={"line": line})
    >>> {value: group.eer for value, group in breakdowns(scores, 1.5)["line"].items()}
    {'office': 0.0, 'phone': 1.0}
    """
    if threshold is None and scores.two_classes:
        threshold = equal_error_rate(scores.target, scores.nontarget).threshold
    found: dict[str, dict[str, GroupMetrics]] = {}
    for name, column in scores.metadata.items():
        if column is not None and len(values := sorted(column.used, key=_natural)) > 1:
            of_value = np.asarray(column)
            found[name] = {value: group_metrics(scores, of_value == value, threshold) for value in values}
    return found


def group_metrics(scores: SystemScores, rows: np.ndarray | slice, threshold: float | None) -> GroupMetrics:
    """Return the metrics of the trials in ``rows``."""
    is_target = scores.is_target[rows]
    target, nontarget = scores.scores[rows][is_target], scores.scores[rows][~is_target]
    eer = equal_error_rate(target, nontarget).rate if target.size and nontarget.size else None
    fewer = min(target.size, nontarget.size)
    return GroupMetrics(
        n_target=target.size,
        n_nontarget=nontarget.size,
        eer=eer,
        at_threshold=ErrorRates(None, None) if threshold is None else rates_at(target, nontarget, threshold),
        rule_of_30=eer is not None and eer >= ERRORS_NEEDED / fewer,
    )


def _natural(value: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers within texts by their size."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(value) if part]


def speech_groups(seconds: Iterable[float]) -> NameColumn:
    """Return the group of each length of speech: "0 to 1 s" and so on."""
    names = [f"{low} to {high} s" for low, high in pairwise(SPEECH_SECONDS)]
    names.append(f"{SPEECH_SECONDS[-1]} s or more")
    codes = np.searchsorted(SPEECH_SECONDS, list(seconds), side="right") - 1
    return NameColumn.coded(names, codes.astype(np.int32))


def left_out_columns(metadata: Metadata) -> list[str]:
    """Return, in words, the columns that have too many values to group trials by."""
    many = [name for name, column in metadata.items() if column is None]
    return [f"error rates by {name!r}: that column has more than {MOST_VALUES} values" for name in many]


def metadata_of(rows: Iterable[Mapping[str, str]]) -> dict[str, NameColumn]:
    """Return, as columns, metadata that is given trial by trial; a missing value is empty."""
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    return {name: NameColumn.of(row.get(name, "") for row in listed) for name in names}
