"""Trial lists: text in, typed records out.

A trial list says which claims to check. Two line formats are read; the first line that is neither blank nor
a ``#`` comment decides which, and every later line must keep to it:

    speaker path target|nontarget     Kaldi, the label last
    1|0 speaker path                  VoxCeleb, the label first

Fields are parted by spaces or tabs. A path may hold spaces, a speaker may not. Where a first line fits both
(a speaker called ``1``), a last word ``target`` or ``nontarget`` makes it Kaldi. The text is UTF-8, with or
without a byte-order mark, with either kind of line end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import TrialListError
from pipeline.evaluation.lines import LABELS, Decoder, bad_line, numbered_lines

_VOXCELEB_LABELS = {b"1": True, b"0": False}


@dataclass(frozen=True, slots=True)
class Trial:
    """One claim to check: the audio at ``path`` against ``speaker``; ``target`` when the claim is true."""

    speaker: str
    path: str
    target: bool


def read_trials(path: Path) -> tuple[Trial, ...]:
    """Read a trial list in either format.

    Returns the trials in file order. Raises TrialListError, naming file and line, for a file that cannot be
    read, holds no trial, is not UTF-8, or has a line that breaks the format of the first.
    """
    trials = []
    text = Decoder(path)
    kaldi: bool | None = None
    for number, line in numbered_lines(path):
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


def _is_kaldi(path: Path, number: int, line: bytes) -> bool:
    if line.rsplit(None, 1)[-1] in LABELS:
        return True
    if line.split(None, 1)[0] in _VOXCELEB_LABELS:
        return False
    rule = "the first trial must read 'speaker path target|nontarget' or '1|0 speaker path'"
    if b"\0" in line:
        raise bad_line(path, number, line, rule, "the file is not UTF-8 text (UTF-16 or binary)")
    raise bad_line(path, number, line, rule, "the label is missing or misspelt, or it is not a trial list")


def _split_kaldi(line: bytes) -> tuple[bytes, bytes, bool | None]:
    try:
        speaker, rest = line.split(None, 1)
        audio, label = rest.rsplit(None, 1)
    except ValueError:
        return b"", b"", None
    return speaker, audio, LABELS.get(label)


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
    return bad_line(path, number, line, f"like the first trial it must read '{rule}'", cause)
