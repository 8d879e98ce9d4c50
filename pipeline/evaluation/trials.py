"""Trial lists and score files: text in, typed records out.

A trial list says which claims to check. Two line formats are read; the first line that is neither blank nor
a ``#`` comment decides which, and every later line must keep to it:

    speaker path target|nontarget     Kaldi, the label last
    1|0 speaker path                  VoxCeleb, the label first

Fields are parted by spaces or tabs. A path may hold spaces, a speaker may not. Where a first line fits both
(a speaker called ``1``), a last word ``target`` or ``nontarget`` makes it Kaldi.

A score file is a table of five tab-separated columns under the header ``system speaker path score label``.
Scores are written with the fewest digits that read back to the same number. There is no escaping: a name or
path that holds a tab or a line break is refused.

Both are UTF-8, with or without a byte-order mark, with either kind of line end.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.errors import TrialListError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KALDI_LABELS = {b"target": True, b"nontarget": False}
_VOXCELEB_LABELS = {b"1": True, b"0": False}
_HEADER = ("system", "speaker", "path", "score", "label")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Trial:
    """One claim to check: the audio at ``path`` against ``speaker``; ``target`` when the claim is true."""

    speaker: str
    path: str
    target: bool


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One line of a score file: the score that ``system`` gave to one trial."""

    system: str
    speaker: str
    path: str
    score: float
    target: bool


@dataclass(frozen=True, slots=True, eq=False)
class SystemScores:
    """All scores of one system, in file order: four arrays of shape (trials,)."""

    speakers: npt.NDArray[np.object_]
    paths: npt.NDArray[np.object_]
    scores: npt.NDArray[np.float64]
    is_target: npt.NDArray[np.bool_]

    @property
    def target(self) -> npt.NDArray[np.float64]:
        """Scores of the true claims."""
        return self.scores[self.is_target]

    @property
    def nontarget(self) -> npt.NDArray[np.float64]:
        """Scores of the false claims."""
        return self.scores[~self.is_target]

    @property
    def target_speakers(self) -> npt.NDArray[np.object_]:
        """Claimed speaker of each entry of ``target``."""
        return self.speakers[self.is_target]

    @property
    def nontarget_speakers(self) -> npt.NDArray[np.object_]:
        """Claimed speaker of each entry of ``nontarget``."""
        return self.speakers[~self.is_target]


def read_trials(path: Path) -> tuple[Trial, ...]:
    """Read a trial list in either format.

    Returns the trials in file order. Raises TrialListError, naming file and line, for a file that cannot be
    read, holds no trial, is not UTF-8, or has a line that breaks the format of the first.
    """
    trials = []
    text = _Decoder(path)
    kaldi: bool | None = None
    for number, line in _lines(path):
        stripped = line.strip()
        if not stripped or stripped.startswith(b"#"):
            continue
        if kaldi is None:
            kaldi = _is_kaldi(path, number, stripped)
        speaker, audio, target = _split_kaldi(stripped) if kaldi else _split_voxceleb(stripped)
        if target is None:
            raise _bad_trial(path, number, stripped, kaldi=kaldi)
        text.line = number
        trials.append(Trial(text[speaker], text[audio], target))
    if not trials:
        raise TrialListError(
            f"{path}: a trial list needs at least one trial, got none; the file is empty or holds only comments"
        )
    return tuple(trials)


def write_scores(path: Path, rows: Iterable[ScoreRow]) -> None:
    """Write a score file, replacing any file at ``path`` only once every row has been accepted.

    Raises TrialListError for no rows at all, a score that is not finite, an empty or unwritable name or path
    (a tab, a line break, an unpaired surrogate), or a place that cannot be written to.
    """
    lines = [_format_row(path, number, row) for number, row in enumerate(rows, start=1)]
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

    Raises TrialListError, naming file and line, for a file that cannot be read, a wrong header, a line
    without five fields, an empty name, a score that is not a finite number, or a label other than ``target``
    and ``nontarget``.
    """
    lines = _lines(path)
    number, header = next(lines, (1, b""))
    if tuple(header.split(b"\t")) != tuple(name.encode() for name in _HEADER):
        raise _bad_line(path, number, header, f"the header must be {'<tab>'.join(_HEADER)}", "it is not a score file")
    text = _Decoder(path)
    columns: dict[str, tuple[list[str], list[str], list[float], list[bool]]] = {}
    for number, line in lines:
        if not line:
            continue
        text.line = number
        system, speaker, audio, score, target = _split_row(path, number, line)
        speakers, paths, scores, labels = columns.setdefault(text[system], ([], [], [], []))
        speakers.append(text[speaker])
        paths.append(text[audio])
        scores.append(score)
        labels.append(target)
    if not columns:
        raise TrialListError(f"{path}: a score file needs at least one row below its header, got none")
    return {
        system: SystemScores(
            np.array(speakers, dtype=np.object_),
            np.array(paths, dtype=np.object_),
            np.array(scores),
            np.array(labels),
        )
        for system, (speakers, paths, scores, labels) in columns.items()
    }


class _Decoder(dict[bytes, str]):
    """UTF-8 text of a field, one string object for each distinct field however often it comes.

    Lists name the same few speakers and files over and over, so this is what keeps a million lines small.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.line = 0

    def __missing__(self, field: bytes) -> str:
        try:
            text = field.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _bad_line(
                self.path, self.line, field, "text must be UTF-8", "it was saved in another encoding"
            ) from error
        self[field] = text
        return text


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1. They stay bytes: splitting those parts only at ASCII blanks."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TrialListError(f"{path}: cannot read it: {error.strerror or error}; is the path right?") from error
    for number, line in enumerate(content.removeprefix(_BYTE_ORDER_MARK).split(b"\n"), start=1):
        yield number, line.removesuffix(b"\r")


def _is_kaldi(path: Path, number: int, line: bytes) -> bool:
    if line.rsplit(None, 1)[-1] in _KALDI_LABELS:
        return True
    if line.split(None, 1)[0] in _VOXCELEB_LABELS:
        return False
    rule = "the first trial must read 'speaker path target|nontarget' or '1|0 speaker path'"
    if b"\0" in line:
        raise _bad_line(path, number, line, rule, "the file is not UTF-8 text (UTF-16 or binary)")
    raise _bad_line(path, number, line, rule, "the label is missing or misspelt, or it is not a trial list")


def _split_kaldi(line: bytes) -> tuple[bytes, bytes, bool | None]:
    try:
        speaker, rest = line.split(None, 1)
        audio, label = rest.rsplit(None, 1)
    except ValueError:
        return b"", b"", None
    return speaker, audio, _KALDI_LABELS.get(label)


def _split_voxceleb(line: bytes) -> tuple[bytes, bytes, bool | None]:
    try:
        label, speaker, audio = line.split(None, 2)
    except ValueError:
        return b"", b"", None
    return speaker, audio, _VOXCELEB_LABELS.get(label)


def _bad_trial(path: Path, number: int, line: bytes, *, kaldi: bool) -> TrialListError:
    rule = "speaker path target|nontarget" if kaldi else "1|0 speaker path"
    _, _, other = (_split_voxceleb if kaldi else _split_kaldi)(line)
    cause = "the list mixes two formats" if other is not None else "a field is missing or the label misspelt"
    return _bad_line(path, number, line, f"like the first trial it must read '{rule}'", cause)


def _bad_line(path: Path, number: int, line: bytes, rule: str, cause: str) -> TrialListError:
    shown = line.decode("utf-8", errors="backslashreplace")
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    return TrialListError(f"{path}, line {number}: {rule}, got {shown!r}; likely cause: {cause}")


def _split_row(path: Path, number: int, line: bytes) -> tuple[bytes, bytes, bytes, float, bool]:
    fields = line.split(b"\t")
    if len(fields) != len(_HEADER) or not all(fields):
        raise _bad_line(
            path,
            number,
            line,
            f"a row must hold {len(_HEADER)} tab-separated fields, none empty",
            "spaces for tabs, or a cut-off write",
        )
    system, speaker, audio, score_text, label = fields
    try:
        score = float(score_text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise _bad_line(
            path,
            number,
            score_text,
            "a score must be a finite number",
            "a failed trial was written as a score",
        )
    if label not in _KALDI_LABELS:
        raise _bad_line(path, number, label, "a label must be 'target' or 'nontarget'", "a misspelt label")
    return system, speaker, audio, score, _KALDI_LABELS[label]


def _format_row(path: Path, number: int, row: ScoreRow) -> bytes:
    for name, value in (("system", row.system), ("speaker", row.speaker), ("path", row.path)):
        if not value or any(mark in value for mark in "\t\n\r"):
            raise TrialListError(
                f"{path}, row {number}: a {name} must be a non-empty text without tabs and line breaks,"
                f" got {value[:_SHOWN]!r}"
            )
    score = float(row.score)
    if not math.isfinite(score):
        raise TrialListError(
            f"{path}, row {number}: a score must be finite, got {score} from {row.system!r} for {row.path!r}"
        )
    label = "target" if row.target else "nontarget"
    try:
        return f"{row.system}\t{row.speaker}\t{row.path}\t{score!r}\t{label}\n".encode()
    except UnicodeEncodeError as error:
        raise TrialListError(
            f"{path}, row {number}: names and paths must be writable as UTF-8, got {row.path[:_SHOWN]!r};"
            " likely cause: a file name in another encoding"
        ) from error
