"""Scores meet their key: which trials are true, and whether every one has a score.

Scores and key may list the trials in any order. What the key lists is what counts:

- a trial of the key without a score raises TrialListError, which says how many there are and the first of them;
- a score for a trial that the key does not list is left out and counted;
- a trial listed twice in the key counts twice, and is counted; with two labels it raises TrialListError;
- a score given twice is counted; with two values it raises TrialListError;
- labels beside the scores must be those of the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.errors import TrialListError
from pipeline.evaluation.columns import NameColumn, TrialTable
from pipeline.evaluation.scores import SystemScores

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class JoinCounts:
    """What became of the trials: in the key, scores beyond them, and those that came more than once."""

    trials: int
    extra_scores: int
    repeated_trials: int
    repeated_scores: int


def join(key: TrialTable, scores: TrialTable, *, names: tuple[str, str]) -> tuple[SystemScores, JoinCounts]:
    """Scores of one system in the order of ``key``, whose labels they get; ``names`` are those of key and scores.

    Takes O(n log n). Raises TrialListError as the module says, and where
    ``key`` has no labels or ``scores`` no scores.
    """
    ids = _pair_numbers(key, key.models.codes, key.segments.codes)
    order = np.argsort(ids)
    repeated_trials = _count_repeated_trials(key, ids, order, names[0])
    known = _as_numbered_in(key.models, scores.models), _as_numbered_in(key.segments, scores.segments)
    keyed = (known[0] >= 0) & (known[1] >= 0)
    rows = np.flatnonzero(keyed)
    scored_ids = _pair_numbers(key, known[0][rows], known[1][rows])
    scored_order = np.argsort(scored_ids)
    rows, scored_ids = rows[scored_order], scored_ids[scored_order]
    repeated_scores = _count_repeated_scores(scores, rows, scored_ids, names[1])
    ids = ids[order]
    found = np.empty(len(key), dtype=np.intp)
    found[order] = _looked_up(rows, scored_ids, ids)
    _refuse_missing(key, found, names)
    _refuse_other_labels(key, scores, found, names)
    unlisted = rows.size - int(np.count_nonzero(_looked_up(order, ids, scored_ids) >= 0))
    counts = JoinCounts(len(key), len(scores) - rows.size + unlisted, repeated_trials, repeated_scores)
    llrs = None if scores.llrs is None else scores.llrs[found]
    return SystemScores(key.models, key.segments, scores.needed_scores[found], key.needed_targets, llrs), counts


def labelled_by_owner(
    owners: Mapping[str, str], scores: TrialTable, *, names: tuple[str, str]
) -> tuple[SystemScores, JoinCounts]:
    """Scores of one system, true where the segment is one of the model's own; ``owners`` maps segments to models.

    Scores with a model or a segment that is not among them are left out and counted. Raises TrialListError for a
    score given twice with two values, and where none is left.
    """
    models = NameColumn.of(dict.fromkeys(owners.values()))
    segments = NameColumn.of(owners)
    numbers = dict(zip(models.names, range(models.names.size), strict=True))
    owner = np.array([numbers[model] for model in owners.values()], dtype=np.int32)
    of_model, of_segment = _as_numbered_in(models, scores.models), _as_numbered_in(segments, scores.segments)
    kept = np.flatnonzero((of_model >= 0) & (of_segment >= 0))
    if kept.size == 0:
        raise TrialListError(
            f"{names[1]}: some model and segment must be in {names[0]}, got none; likely cause: another data set"
        )
    judged = scores[kept]
    ids = _pair_numbers(judged, judged.models.codes, judged.segments.codes)
    order = np.argsort(ids)
    repeated = _count_repeated_scores(judged, order, ids[order], names[1])
    counts = JoinCounts(len(judged), len(scores) - kept.size, 0, repeated)
    is_target = owner[of_segment[kept]] == of_model[kept]
    return SystemScores(judged.models, judged.segments, judged.needed_scores, is_target, judged.llrs), counts


def _pair_numbers(table: TrialTable, models: npt.NDArray[np.int32], segments: npt.NDArray[np.int32]) -> Rows:
    """One number for each pair of codes of ``table``, different for different pairs."""
    pairs: Rows = models.astype(np.int64)
    pairs *= max(table.segments.names.size, 1)
    pairs += segments
    return pairs


def _as_numbered_in(known: NameColumn, other: NameColumn) -> npt.NDArray[np.int32]:
    """Codes that the names of ``other`` have in ``known``, shape (trials of other,); -1 for names that it lacks."""
    numbers = {name: number for number, name in enumerate(known.names)}
    codes = np.array([numbers.get(name, -1) for name in other.names], dtype=np.int32)
    return codes[other.codes]


def _count_repeated_trials(key: TrialTable, ids: Rows, order: Rows, name: str) -> int:
    targets, ordered = key.needed_targets, ids[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    first, second = order[again], order[again + 1]
    if (at := np.flatnonzero(targets[first] != targets[second])).size:
        raise TrialListError(
            f"{name}: a trial must have one label, got target and nontarget for {key.trial(int(first[at[0]]))};"
            " likely cause: two keys in one file"
        )
    return int(again.size)


def _count_repeated_scores(scores: TrialTable, rows: Rows, ids: Rows, name: str) -> int:
    """``rows`` and their pair numbers ``ids`` are sorted by the latter."""
    again = np.flatnonzero(ids[1:] == ids[:-1])
    first, second = rows[again], rows[again + 1]
    values = scores.needed_scores
    if (at := np.flatnonzero(values[first] != values[second])).size:
        low, high = sorted((float(values[first[at[0]]]), float(values[second[at[0]]])))
        raise TrialListError(
            f"{name}: a trial must have one score, got {low!r} and {high!r} for {scores.trial(int(first[at[0]]))};"
            " likely cause: the scores of two systems in one file"
        )
    return int(again.size)


def _looked_up(rows: Rows, ids: Rows, wanted: Rows) -> Rows:
    """Of ``rows``, which have ``ids``, those of the ``wanted`` ids, -1 where there is none; both ids are sorted."""
    if ids.size == 0:
        return np.full(wanted.size, -1, dtype=np.intp)
    at = np.searchsorted(ids, wanted)
    at[at == ids.size] = 0
    return np.where(ids[at] == wanted, rows[at], -1)


def _refuse_other_labels(key: TrialTable, scores: TrialTable, found: Rows, names: tuple[str, str]) -> None:
    """Raise unless labels beside the scores, where there are any, are those of the key."""
    if scores.targets is None:
        return
    others = np.flatnonzero(scores.targets[found] != key.needed_targets)
    if others.size:
        raise TrialListError(
            f"{names[1]}: labels beside the scores must be those of the key, {names[0]}, {others.size:,} are not, the"
            f" first is {key.trial(int(others[0]))}; likely cause: the key of another list"
        )


def _refuse_missing(key: TrialTable, found: Rows, names: tuple[str, str]) -> None:
    missing = np.flatnonzero(found < 0)
    if missing.size:
        raise TrialListError(
            f"{names[1]}: every trial of the key, {names[0]}, needs a score, {missing.size:,} of {found.size:,} have"
            f" none, the first is {key.trial(int(missing[0]))}; likely cause: failed trials were left out, or names are"
            " spelt otherwise than in the key"
        )
