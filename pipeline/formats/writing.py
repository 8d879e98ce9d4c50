"""What the writers of lists share: names that a format can hold, and files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import TrialListError
from pipeline.evaluation.lines import SHOWN

_BLANKS = " \t\n\r\x0b\x0c"
_MARK = "\ufeff"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of any at ``path`` once it is done; TrialListError where it cannot."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w+b") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise TrialListError(f"{path}: cannot write the list: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def check_words(path: Path, what: str, names: Iterable[str]) -> None:
    """Raise TrialListError for a name that is no single word of a line of ``what``."""
    rule = "a name must be one word that does not begin with '#' or a byte-order mark"
    _check(path, what, names, rule, lambda name: not any(mark in name for mark in _BLANKS) and name[0] not in "#\ufeff")


def check_phrases(path: Path, what: str, names: Iterable[str]) -> None:
    """Raise TrialListError for a name that holds a line break, or blanks at its ends."""
    rule = "a path must not hold a line break, or blanks at its ends"
    _check(path, what, names, rule, lambda name: "\n" not in name and name == name.strip(_BLANKS))


def check_cells(path: Path, what: str, names: Iterable[str], *, tabs: bool) -> None:
    """Raise TrialListError for a name that cannot stand in a cell of a table."""
    marks = "\t\n\r" if tabs else "\n\r"
    rule = f"a name must not hold a line break{' or a tab' if tabs else ''}, nor begin with a byte-order mark"
    _check(path, what, names, rule, lambda name: not any(mark in name for mark in marks) and name[0] != _MARK)


def check_texts(path: Path, what: str, names: Iterable[str], *, zeros: bool = True) -> None:
    """Raise TrialListError for a name that is no text, or that holds a zero byte unless ``zeros`` may be there."""
    _check(path, what, names, "a name must not hold a zero byte", lambda name: zeros or "\0" not in name)


def _check(path: Path, what: str, names: Iterable[str], rule: str, holds: Callable[[str], bool]) -> None:
    for name in names:
        if not name:
            raise TrialListError(f"{path}: a name must not be empty to be written as {what}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise TrialListError(
                f"{path}: names must be writable as UTF-8, got {name[:SHOWN]!r}; likely cause: a file name in another"
                " encoding"
            ) from error
        if not holds(name):
            raise TrialListError(f"{path}: {rule} to be written as {what}, got {name[:SHOWN]!r}")
