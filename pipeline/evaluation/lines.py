"""Lines and fields of the two list formats, and how a bad one is reported. They stay bytes until a field is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import TrialListError
from pipeline.files import read_bounded

LABELS = {b"target": True, b"nontarget": False}
MOST_BYTES = 2**28  # of a list: some five million lines
SHOWN = 60  # characters of a bad line that a message quotes
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Decoder(dict[bytes, str]):
    """UTF-8 text of a field, one string object for each distinct field however often it comes.

    Lists name the same few speakers and files over and over, so this is what keeps a million lines small. A field
    that is not UTF-8 raises TrialListError, which names ``path`` and the line that ``line`` was last set to.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.line = 0

    def __missing__(self, field: bytes) -> str:
        try:
            text = field.decode("utf-8")
        except UnicodeDecodeError as error:
            raise bad_line(
                self.path, self.line, field, "text must be UTF-8", "it was saved in another encoding"
            ) from error
        self[field] = text
        return text


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1; as bytes, which splitting parts only at ASCII blanks.

    A byte-order mark and carriage returns are left out. Raises TrialListError for a file that cannot be read, for
    one over ``MOST_BYTES``, and for a pipe or device, which is not waited for.
    """
    try:
        content = read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise TrialListError(f"{path}: cannot read it: {error.strerror or error}; is the path right?") from error
    for number, line in enumerate(content.removeprefix(_BYTE_ORDER_MARK).split(b"\n"), start=1):
        yield number, line.removesuffix(b"\r")


def bad_line(path: Path, number: int, line: bytes, rule: str, cause: str) -> TrialListError:
    """The error for a line (or field) that breaks ``rule``, quoting its beginning."""
    shown = line.decode("utf-8", errors="backslashreplace")
    shown = shown if len(shown) <= SHOWN else shown[: SHOWN - 3] + "..."
    return TrialListError(f"{path}, line {number}: {rule}, got {shown!r}; likely cause: {cause}")
