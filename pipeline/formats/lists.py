"""Lists whose fields are parted by blanks: Kaldi's and VoxCeleb's trials and scores, and this project's trial lists.

    enroll test target|nontarget      Kaldi, trials
    enroll test 1.23                  Kaldi, scores
    1|0 enroll test                   VoxCeleb, trials
    1.23 enroll test                  VoxCeleb, scores, as its challenges take them

Any run of ASCII blanks parts two fields; blank lines and those that begin with ``#`` are passed over. The test may
hold blanks, as ``read_trials`` allows, the enrolled name may not. They are written with single spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Literal

from pipeline.evaluation.lines import LABELS
from pipeline.formats.rows import Layout

Kind = Literal["key", "scores"]

BLANKS = b" \t\r\x0b\x0c"  # what bytes.split parts fields at, but for the end of a line
_ONE_BLANK = bytes.maketrans(BLANKS, b" " * len(BLANKS))
_RUN = re.compile(rb"  +")
_AT_EDGE = re.compile(rb"(?m)^ | $")
_COMMENT = re.compile(rb"(?m)^#.*$")
VOXCELEB_LABELS = {b"1": True, b"0": False}


def layout(*, voxceleb: bool, kind: Kind) -> Layout:
    """The layout of such a list of trials with labels ("key") or scores."""
    value: Literal["target", "score"] = "target" if kind == "key" else "score"
    rule = {
        (False, "key"): "a line must read 'enroll test target|nontarget'",
        (False, "scores"): "a line must read 'enroll test score'",
        (True, "key"): "a line must read '1|0 enroll test'",
        (True, "scores"): "a line must read 'score enroll test'",
    }[voxceleb, kind]
    return Layout(
        fields=(value, "model", "segment") if voxceleb else ("model", "segment", value),
        delimiter=" ",
        rule=rule,
        labels=VOXCELEB_LABELS if voxceleb else LABELS,
        split=partial(_split, voxceleb=voxceleb),
        prepare=_prepare,
        blank=_is_blank,
        comments=True,
    )


def _split(line: bytes, *, voxceleb: bool) -> list[bytes] | None:
    first, _, rest = _parted(line.split(None, 1))
    second, found, third = _parted(rest.split(None, 1) if voxceleb else rest.rsplit(None, 1))
    return [first, second, third.rstrip()] if found else None


def _parted(words: list[bytes]) -> tuple[bytes, bool, bytes]:
    """Two words and whether there were so many."""
    return (words[0], True, words[1]) if len(words) == 2 else (b"", False, b"")


def _prepare(block: bytes) -> Iterator[bytes]:
    """The block as it is, if its lines may be plain, and one that surely has plain lines.

    Those have single spaces between fields, none at their ends, and no comments.
    """
    if not any(mark in block for mark in BLANKS[1:]):
        yield block
    text = block.translate(_ONE_BLANK)
    if b"  " in text:
        text = _RUN.sub(b" ", text)
    if b"\n " in text or b" \n" in text or text[:1] == b" " or text[-1:] == b" ":
        text = _AT_EDGE.sub(b"", text)
    yield _COMMENT.sub(b"", text)


def _is_blank(line: bytes) -> bool:
    stripped = line.strip()
    return not stripped or stripped.startswith(b"#")
