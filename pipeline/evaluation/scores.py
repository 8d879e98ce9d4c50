"""Score files: the scores that systems gave to trials, as text and as arrays.

A score file is a table of six tab-separated columns under the header ``system speaker path score label llr``.
``llr`` is the score as a calibrated natural-log likelihood ratio, ``-`` where the system has no calibration: of
one system all rows have it or none. Files of the first five columns alone, which earlier versions wrote, are
read too. Numbers are written with the fewest digits that read back to the same number. There is no escaping: a
name or path that holds a tab or a line break is refused. The text is UTF-8, with or without a byte-order mark,
with either kind of line end.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.errors import TrialListError
from pipeline.evaluation.columns import Names
from pipeline.evaluation.lines import LABELS, SHOWN, Decoder, bad_line, numbered_lines

_HEADER = ("system", "speaker", "path", "score", "label", "llr")
_OLD_HEADER = _HEADER[:5]
_NO_LLR = "-"


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One line of a score file: the score that ``system`` gave to one trial.

    ``llr`` is the same score as a calibrated natural-log likelihood ratio, None without a calibration.
    """

    system: str
    speaker: str
    path: str
    score: float
    target: bool
    llr: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SystemScores:
    """All scores of one system, in file order: columns of shape (trials,).

    ``speakers`` and ``paths`` are arrays of texts or, for long lists, ``NameColumn`` that stand for such. ``llrs`` are
    the calibrated natural-log likelihood ratios of ``scores``, None without a calibration.
    """

    speakers: Names
    paths: Names
    scores: npt.NDArray[np.float64]
    is_target: npt.NDArray[np.bool_]
    llrs: npt.NDArray[np.float64] | None = None

    @classmethod
    def from_rows(cls, rows: Sequence[ScoreRow]) -> SystemScores:
        """The rows of one system as arrays; without ``llrs`` unless there are rows and every one has its own."""
        llrs = [row.llr for row in rows if row.llr is not None]
        return cls(
            np.array([row.speaker for row in rows], dtype=np.object_),
            np.array([row.path for row in rows], dtype=np.object_),
            np.array([row.score for row in rows], dtype=np.float64),
            np.array([row.target for row in rows], dtype=np.bool_),
            np.array(llrs, dtype=np.float64) if llrs and len(llrs) == len(rows) else None,
        )

    @property
    def target(self) -> npt.NDArray[np.float64]:
        """Scores of the true claims."""
        return self.scores[self.is_target]

    @property
    def nontarget(self) -> npt.NDArray[np.float64]:
        """Scores of the false claims."""
        return self.scores[~self.is_target]

    @property
    def target_llrs(self) -> npt.NDArray[np.float64] | None:
        """Log-likelihood ratios of the true claims, in the order of ``target``; None without a calibration."""
        return None if self.llrs is None else self.llrs[self.is_target]

    @property
    def nontarget_llrs(self) -> npt.NDArray[np.float64] | None:
        """Log-likelihood ratios of the false claims, in the order of ``nontarget``; None without a calibration."""
        return None if self.llrs is None else self.llrs[~self.is_target]

    @property
    def target_speakers(self) -> Names:
        """Claimed speaker of each entry of ``target``."""
        return self.speakers[self.is_target]

    @property
    def nontarget_speakers(self) -> Names:
        """Claimed speaker of each entry of ``nontarget``."""
        return self.speakers[~self.is_target]

    @property
    def two_classes(self) -> bool:
        """Whether there are true claims and false ones: without either there is no error rate."""
        return bool(self.is_target.any() and not self.is_target.all())


def rows_of(scores: Mapping[str, SystemScores]) -> Iterator[ScoreRow]:
    """The rows of a score file that hold these scores, system by system."""
    for system, found in scores.items():
        llrs = [None] * found.scores.size if found.llrs is None else found.llrs.tolist()
        columns = found.speakers, found.paths, found.scores.tolist(), found.is_target.tolist(), llrs
        for speaker, path, score, target, llr in zip(*columns, strict=True):
            yield ScoreRow(system, speaker, path, score, target, llr)


def write_scores(path: Path, rows: Iterable[ScoreRow]) -> None:
    """Write a score file, replacing any file at ``path`` only once every row has been accepted.

    Raises TrialListError for no rows at all, a score or log-likelihood ratio that is not finite, a system that
    has the ratio of some rows only, an empty or unwritable name or path (a tab, a line break, an unpaired
    surrogate), or a place that cannot be written to.
    """
    calibrated: dict[str, bool] = {}
    lines = []
    for number, row in enumerate(rows, start=1):
        lines.append(_format_row(path, number, row))
        if calibrated.setdefault(row.system, row.llr is not None) != (row.llr is not None):
            raise TrialListError(f"{path}, row {number}: {_all_or_none(row.system)}, got some of each")
    if not lines:
        raise TrialListError(f"{path}: a score file needs at least one row, got none; nothing was scored")
    # Readers, and a later run after a crash, must never meet half a table.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write("\t".join(_HEADER).encode() + b"\n")
            file.writelines(lines)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TrialListError(f"{path}: cannot write the score file: {error.strerror or error}") from error


def read_scores(path: Path) -> dict[str, SystemScores]:
    """Read a score file into arrays by system, systems in order of first appearance.

    Raises TrialListError, naming file and line, for a file that cannot be read, a wrong header, a line without
    as many fields as the header, an empty name, a score or log-likelihood ratio that is not a finite number, a
    system that has the ratio of some rows only, or a label other than ``target`` and ``nontarget``.
    """
    lines = numbered_lines(path)
    number, header = next(lines, (1, b""))
    names = tuple(header.decode("utf-8", errors="replace").split("\t"))
    if names not in (_HEADER, _OLD_HEADER):
        raise bad_line(path, number, header, f"the header must be {'<tab>'.join(_HEADER)}", "it is not a score file")
    text = Decoder(path)
    columns: dict[str, _Columns] = {}
    for number, line in lines:
        if not line:
            continue
        text.line = number
        system, speaker, audio, score, target, llr = _split_row(path, number, line, len(names))
        found = columns.setdefault(text[system], _Columns())
        if llr is not None:
            found.llrs.append(llr)
        found.speakers.append(text[speaker])
        found.paths.append(text[audio])
        found.scores.append(score)
        found.is_target.append(target)
        if len(found.llrs) not in (0, len(found.scores)):
            raise bad_line(path, number, line, _all_or_none(text[system]), "two evaluations in one file")
    if not columns:
        raise TrialListError(f"{path}: a score file needs at least one row below its header, got none")
    return {system: found.as_scores() for system, found in columns.items()}


@dataclass(slots=True)
class _Columns:
    """What has been read of one system."""

    speakers: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    is_target: list[bool] = field(default_factory=list)
    llrs: list[float] = field(default_factory=list)

    def as_scores(self) -> SystemScores:
        return SystemScores(
            np.array(self.speakers, dtype=np.object_),
            np.array(self.paths, dtype=np.object_),
            np.array(self.scores),
            np.array(self.is_target),
            np.array(self.llrs) if self.llrs else None,
        )


def _split_row(
    path: Path, number: int, line: bytes, columns: int
) -> tuple[bytes, bytes, bytes, float, bool, float | None]:
    fields = line.split(b"\t")
    if len(fields) != columns or not all(fields):
        rule = f"a row must hold {columns} tab-separated fields, none empty"
        raise bad_line(path, number, line, rule, "spaces for tabs, or a cut-off write")
    system, speaker, audio, score, label, *llr = fields
    if label not in LABELS:
        raise bad_line(path, number, label, "a label must be 'target' or 'nontarget'", "a misspelt label")
    ratio = None if not llr or llr[0] == _NO_LLR.encode() else _number(path, number, llr[0], "an llr")
    return system, speaker, audio, _number(path, number, score, "a score"), LABELS[label], ratio


def _number(path: Path, number: int, text: bytes, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise bad_line(path, number, text, f"{what} must be a finite number", "a failed trial was written as a score")
    return value


def _format_row(path: Path, number: int, row: ScoreRow) -> bytes:
    for name, value in (("system", row.system), ("speaker", row.speaker), ("path", row.path)):
        if not value or any(mark in value for mark in "\t\n\r"):
            raise TrialListError(
                f"{path}, row {number}: a {name} must be a non-empty text without tabs and line breaks,"
                f" got {value[:SHOWN]!r}"
            )
    score = float(row.score)
    llr = None if row.llr is None else float(row.llr)
    for name, number_ in (("a score", score), ("an llr", llr)):
        if number_ is not None and not math.isfinite(number_):
            raise TrialListError(
                f"{path}, row {number}: {name} must be finite, got {number_} from {row.system!r} for {row.path!r}"
            )
    label = "target" if row.target else "nontarget"
    ratio = _NO_LLR if llr is None else repr(llr)
    try:
        return f"{row.system}\t{row.speaker}\t{row.path}\t{score!r}\t{label}\t{ratio}\n".encode()
    except UnicodeEncodeError as error:
        raise TrialListError(
            f"{path}, row {number}: names and paths must be writable as UTF-8, got {row.path[:SHOWN]!r};"
            " likely cause: a file name in another encoding"
        ) from error


def _all_or_none(system: str) -> str:
    return f"system {system!r} must have log-likelihood ratios in all of its rows or in none"
