"""Text files in blocks of whole lines, bounded in every direction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import TrialListError
from pipeline.evaluation.lines import bad_line
from pipeline.files import open_regular

MOST_BYTES = 2**32  # of a file
MOST_ROWS = 10**8  # of a list: about 2 GiB of numbers
MOST_IN_LINE = 2**20  # bytes
HEAD = 2**16  # bytes that tell a format
BLOCK = 2**24  # bytes
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, and the number from 1 of the first line of each; the last line may lack its end.

    A byte-order mark is left out. Raises TrialListError for a file that cannot be read, is over ``MOST_BYTES``, or has
    a line over ``MOST_IN_LINE``, and for a pipe or device, which is not waited for.
    """
    number, total, rest = 1, 0, b""
    try:
        with open_regular(path) as file:
            while data := file.read(BLOCK):
                total += len(data)
                if total > MOST_BYTES:
                    raise TrialListError(f"{path}: too large: at most {MOST_BYTES:,} bytes are read")
                if total == len(data):
                    data = data.removeprefix(_BYTE_ORDER_MARK)
                cut = data.rfind(b"\n") + 1
                block, rest = (rest + data[:cut], data[cut:]) if cut else (b"", rest + data)
                if len(rest) > MOST_IN_LINE:
                    raise _too_long(path, number + block.count(b"\n"), rest)
                if block:
                    yield number, block
                    number += block.count(b"\n")
    except OSError as error:
        raise TrialListError(f"{path}: cannot read it: {error.strerror or error}; is the path right?") from error
    if rest:
        yield number, rest


def _too_long(path: Path, number: int, line: bytes) -> TrialListError:
    rule = f"a line must not be longer than {MOST_IN_LINE:,} bytes"
    return bad_line(path, number, line, rule, "the file is binary, or not a list of trials")


def head(path: Path) -> bytes:
    """The first bytes of a file, ``HEAD`` or all there are; raises TrialListError as ``blocks`` does."""
    try:
        with open_regular(path) as file:
            return file.read(HEAD)
    except OSError as error:
        raise TrialListError(f"{path}: cannot read it: {error.strerror or error}; is the path right?") from error
