"""Scores joined with the labels of a key, by model and segment.

Conventions
-----------
Scores and key may list the trials in any order. The key decides which trials count:

- a trial of the key without a score raises InputError, with the number of such trials and the first of them;
- a score for a trial that is not in the key is dropped and counted;
- a trial listed twice in the key counts twice, and is reported; with two labels it raises InputError;
- a score given twice is reported; with two values it raises InputError;
- labels beside the scores must be those of the key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipeline.audio.lists import read_spk2utt
from pipeline.errors import InputError, check_type
from pipeline.evaluation.columns import (
    Codes,
    NameColumn,
    Numbers,
    TrialTable,
    checked_llrs,
    first_rows,
    pair_ids,
    rows_by_label,
    split_by_system,
)
from pipeline.evaluation.lists import format_of, read_list
from pipeline.evaluation.scores import SystemScores

JoinCounts = dict[str, int]
"""Numbers of ``trials`` of the key, of ``extra_scores`` for others, of ``repeated_trials`` and ``repeated_scores``."""

Labelled = tuple[SystemScores, JoinCounts]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredList:
    """Labelled scores and ``JoinCounts`` by system, and the formats of the score file and of the key."""

    scores: dict[str, SystemScores]
    joined: dict[str, JoinCounts]
    scores_format: str
    key_format: str | None


def read_scored(
    scores: Path | str,
    key: Path | str | None = None,
    *,
    scores_format: str | None = None,
    key_format: str | None = None,
    llr: bool | None = None,
    systems: Collection[str] | str | None = None,
) -> ScoredList:
    """Read a score file and label its scores by a key.

    Parameters
    ----------
    scores : path
        A score file; if it names no systems, its one system is named after the file.
    key : path, optional
        The key; by default the labels in the score file. With a spk2utt, a trial is a target trial where the segment
        is one of the model's own.
    scores_format, key_format : str, optional
        One of ``FORMATS``; by default recognised from the files.
    llr : bool, optional
        True if scores are natural-log likelihood ratios, False if not; by default those of a NIST file or of a column
        ``llr`` are.
    systems : collection of str, or str, optional
        Systems to keep, or one; by default all.

    Returns
    -------
    ScoredList

    Raises
    ------
    InputError
        For files that break their formats or do not match (see ``join``), and an unknown format or system.
    UnavailableError
        For Parquet without pyarrow.

    Examples
    --------
    >>> from pathlib import Path
    >>> from pipeline.evaluation import read_scored
    >>> size = Path("scores.txt").write_text("anna call.wav 2.5\\nivan call.wav -1.0\\n")
    >>> read_scored("scores.txt", "trials.txt").scores["scores"].target.tolist()
    [2.5]
    """
    check_type("scores", scores, os.PathLike | str, "the path of a score file")
    check_type("key", key, os.PathLike | str | None, "the path of a key")
    scores, key = Path(scores), None if key is None else Path(key)
    systems = [systems] if isinstance(systems, str) else systems
    name = format_of(scores, "scores", scores_format)
    table = read_list(scores, kind="scores", format_name=name)
    if llr is not None:
        table = replace(table, llrs=table.scores if llr else None)
    parts = split_by_system(table, scores)
    if missing := [system for system in systems or () if system not in parts]:
        raise InputError(f"{scores}: it has the systems {', '.join(parts)}, got {', '.join(missing)}")
    of_key = None if key is None else format_of(key, "key", key_format)
    label, labelled, joined = _labelling(key, of_key, scores, name), {}, {}
    for system in systems or parts:
        part = replace(parts[system], llrs=checked_llrs(parts[system], system, scores))
        labelled[system], joined[system] = label(part)
    return ScoredList(labelled, joined, name, of_key)


def _labelling(
    key: Path | None, key_format: str | None, scores: Path, scores_format: str
) -> Callable[[TrialTable], Labelled]:
    """Return a function that labels the scores of one system by the key, or by the labels beside them."""
    names = str(key), str(scores)
    if key is None:
        return lambda part: _with_own_labels(part, scores, scores_format)
    if key_format == "spk2utt":
        owners = read_spk2utt(key)
        return lambda part: label_by_owner(owners, part, names=names)
    table = read_list(key, kind="key", format_name=key_format)
    return lambda part: join(table, part, names=names)


def _with_own_labels(part: TrialTable, path: Path, format_name: str) -> Labelled:
    if part.targets is None:
        long = next((name for name in part.segments.used if " " in name), None)
        cause = ""
        if long is not None and format_name in {"kaldi", "voxceleb"}:
            cause = (
                f"; {long!r} was read as the name of a recording: lines of more than three words, as SpeechBrain's and"
                " ASVspoof's, need a header that says what they hold (docs/formats.md)"
            )
        raise InputError(f"{path}: its scores have no labels; give their key with --key{cause}")
    return join(part, part, names=(str(path), str(path)))


def join(key: TrialTable, scores: TrialTable, *, names: tuple[str, str]) -> Labelled:
    """Return the scores of one system in the order of ``key``, with its labels, and the counts.

    ``names`` are those of key and scores, for messages. Takes O(n log n). Raises InputError for the cases that the
    module lists, for a key without labels and for a list without scores.
    """
    targets, values = key.needed_targets, scores.needed_scores
    models, segments = _codes_in(key.models, scores.models), _codes_in(key.segments, scores.segments)
    rows = np.flatnonzero((models >= 0) & (segments >= 0))
    key_ids = pair_ids(key, key.models.codes, key.segments.codes)
    score_ids = pair_ids(key, models, segments)[rows]
    in_key = rows_by_label(key, key_ids, names[0])
    cause = "the scores of two systems in one file"
    ids, first = first_rows(scores[rows], score_ids, values[rows], "one score, got {} and {}", names[1], cause)
    if scores.llrs is not None:
        rule = "one log-likelihood ratio, got {} and {}"
        first_rows(scores[rows], score_ids, scores.llrs[rows], rule, names[1], cause)
    at = np.minimum(np.searchsorted(ids, key_ids), max(ids.size - 1, 0))
    missing = np.flatnonzero(ids[at] != key_ids) if ids.size else np.arange(len(key))
    if missing.size:
        others = np.setdiff1d(np.arange(len(scores)), rows[np.isin(score_ids, key_ids)])
        raise _missing(key, scores, missing, others, names)
    matched = rows[first[at]]
    _check_labels(key, scores, matched, names)
    unlisted = int(np.count_nonzero(~np.isin(score_ids, in_key[0])))
    counts = {
        "trials": len(key),
        "extra_scores": len(scores) - rows.size + unlisted,
        "repeated_trials": len(key) - in_key[0].size,
        "repeated_scores": score_ids.size - ids.size,
    }
    llrs = None if scores.llrs is None else scores.llrs[matched]
    return SystemScores(key.models, key.segments, values[matched], targets, llrs, key.metadata), counts


def label_by_owner(owners: Mapping[str, str], scores: TrialTable, *, names: tuple[str, str]) -> Labelled:
    """Label the scores of one system: target trials are those of a model's own segments.

    ``owners`` maps segments to models. Scores with another model or segment are dropped and counted. Raises
    InputError for a score given twice with two values, and where none is left.
    """
    models, segments = NameColumn.of(owners.values()), NameColumn.of(owners)
    owner = np.empty(len(owners), dtype=np.int32)
    owner[segments.codes] = models.codes
    of_model, of_segment = _codes_in(models, scores.models), _codes_in(segments, scores.segments)
    kept = np.flatnonzero((of_model >= 0) & (of_segment >= 0))
    if kept.size == 0:
        raise InputError(
            f"{names[1]}: some model and segment must be in {names[0]}, got none; likely cause: another data set"
        )
    part = replace(scores[kept], targets=owner[of_segment[kept]] == of_model[kept])
    labelled, counts = join(part, part, names=names)
    return labelled, {**counts, "extra_scores": len(scores) - kept.size, "repeated_trials": 0}


def _codes_in(known: NameColumn, other: NameColumn) -> Codes:
    """Return the codes that the names of ``other`` have in ``known``, shape (trials of other,); -1 if missing there."""
    numbers = {name: number for number, name in enumerate(known.names)}
    codes = np.array([numbers.get(name, -1) for name in other.names], dtype=np.int32)
    return codes[other.codes]


def _missing(
    key: TrialTable, scores: TrialTable, missing: Numbers, others: Numbers, names: tuple[str, str]
) -> InputError:
    """Return the error for the rows ``missing`` of the key without a score; ``others`` are scores not in the key."""
    cause = "failed trials were left out, or names are spelt otherwise than in the key"
    if set(scores.models.used) <= set(key.segments.names) and set(scores.segments.used) <= set(key.models.names):
        cause = "the columns of one of them are swapped"
    unlisted = f"; a score whose trial is not in the key: {scores.trial(int(others[0]))}" if others.size else ""
    return InputError(
        f"{names[1]}: every trial of the key, {names[0]}, needs a score; {missing.size:,} of {len(key):,} have none,"
        f" the first is {key.trial(int(missing[0]))}{unlisted}; likely cause: {cause}"
    )


def _check_labels(key: TrialTable, scores: TrialTable, matched: Numbers, names: tuple[str, str]) -> None:
    """Raise InputError if the list of scores has labels that differ from those of the key."""
    if scores.targets is None:
        return
    others = np.flatnonzero(scores.targets[matched] != key.needed_targets)
    if others.size:
        raise InputError(
            f"{names[1]}: labels beside the scores must be those of the key, {names[0]}, {others.size:,} are not, the"
            f" first is {key.trial(int(others[0]))}; likely cause: the key of another list"
        )
