"""A score file of any system and the key to it, of any formats, as labelled scores by system."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.errors import InputError, TrialListError
from pipeline.evaluation.columns import TrialTable
from pipeline.evaluation.joining import JoinCounts, join, labelled_by_owner
from pipeline.evaluation.scores import SystemScores
from pipeline.evaluation.systems import by_system, checked_llrs, parted
from pipeline.formats.reading import check_format, format_of, read_list
from pipeline.formats.spk2utt import owners, read_spk2utt


@dataclass(frozen=True, slots=True, eq=False)
class ScoredList:
    """Labelled scores by system, what became of the trials of each, and the formats of the scores and of the key."""

    scores: dict[str, SystemScores]
    joined: dict[str, JoinCounts]
    scores_format: str
    key_format: str | None


def read_scored(
    scores: Path,
    key: Path | None = None,
    *,
    scores_format: str | None = None,
    key_format: str | None = None,
    llr: bool | None = None,
    systems: Collection[str] | None = None,
) -> ScoredList:
    """Scores that meet the labels of ``key``, or their own where there is no key.

    ``key`` may be a spk2utt: then a trial is true where the segment is one of the model's own. ``llr`` says whether
    scores are natural-log likelihood ratios; by default those of a NIST file or of a column ``llr`` are. ``systems``
    chooses among those of the file; a file that names none has one, called as the file is. Raises TrialListError for
    files that break their formats or do not fit together (see ``join``), InputError for a format or system that is
    unknown, and LibraryMissingError.
    """
    shape = format_of(scores, "scores") if scores_format is None else check_format(scores_format)
    table = _with_llrs(read_list(scores, kind="scores", format_name=shape), llr)
    if table.scores is None:
        raise TrialListError(f"{scores}: scores were expected, got a list without any; were scores and key exchanged?")
    parts = _chosen(parted(table, _printable(scores.stem)), systems, scores)
    if key is None:
        labelled = {name: _own_labels(scores, name, part) for name, part in parts.items()}
        counts = {name: JoinCounts(found.scores.size, 0, 0, 0) for name, found in labelled.items()}
        return ScoredList(labelled, counts, shape, None)
    of_key = format_of(key, "key") if key_format is None else check_format(key_format)
    meet = _meeting(key, of_key, scores)
    met = {name: meet(replace(part, llrs=checked_llrs(part, name))) for name, part in parts.items()}
    labelled = {name: found for name, (found, _) in met.items()}
    return ScoredList(labelled, {name: counts for name, (_, counts) in met.items()}, shape, of_key)


def _meeting(key: Path, key_format: str, scores: Path) -> Callable[[TrialTable], tuple[SystemScores, JoinCounts]]:
    """What gives the scores of one system the labels of ``key``; ``scores`` is the file that they are from."""
    names = str(key), str(scores)
    if key_format == "spk2utt":
        own = owners(read_spk2utt(key))
        return lambda part: labelled_by_owner(own, part, names=names)
    listed = read_list(key, kind="key", format_name=key_format)
    if listed.targets is None:
        raise TrialListError(f"{key}: a key must say which trials are true, got a list without labels")
    return lambda part: join(listed, part, names=names)


def _printable(name: str) -> str:
    """A file's name as text, whatever its bytes were."""
    return name.encode("utf-8", "backslashreplace").decode()


def _with_llrs(table: TrialTable, llr: bool | None) -> TrialTable:
    if llr is None:
        return table
    return replace(table, llrs=table.scores if llr else None)


def _chosen(parts: dict[str, TrialTable], systems: Collection[str] | None, path: Path) -> dict[str, TrialTable]:
    if systems is None:
        return parts
    if missing := [name for name in systems if name not in parts]:
        raise InputError(f"{path}: it has the systems {', '.join(parts)}, got {', '.join(missing)}")
    return {name: parts[name] for name in systems}


def _own_labels(path: Path, name: str, table: TrialTable) -> SystemScores:
    if table.targets is None:
        raise TrialListError(f"{path}: its scores have no labels; give the key to them with --key")
    return by_system(replace(table, systems=None), name)[name]
