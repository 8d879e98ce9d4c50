"""Lists of trials, keys and scores of any format: which one a file has, and what it holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from pipeline.errors import InputError, TrialListError
from pipeline.evaluation.columns import NameColumn, TrialTable
from pipeline.evaluation.lines import LABELS, SHOWN
from pipeline.evaluation.scores import read_scores
from pipeline.evaluation.systems import table_of
from pipeline.formats import FORMATS, bosaris, lists, parquet, tables
from pipeline.formats.blocks import HEAD, blocks, head
from pipeline.formats.rows import read_rows
from pipeline.formats.spk2utt import owners, read_spk2utt

Kind = Literal["key", "scores"]
"""What is wanted of a file: which trials are true, or what a system answered."""

_OWN_HEADER = b"system\tspeaker\tpath\tscore\tlabel"
_LOOKED_AT = 100  # lines that tell a format


def check_format(name: str) -> str:
    """``name`` if it is that of a format; raises InputError."""
    if name not in FORMATS:
        raise InputError(f"formats are {', '.join(FORMATS)}, got {name!r}")
    return name


def format_of(path: Path, kind: Kind | None = None) -> str:
    """The format of a file, told from its first bytes, its header or its first lines.

    ``kind`` is what is looked for in it, if that is known. Raises TrialListError for a file that cannot be read or that
    looks like none.
    """
    start = head(path)
    if start.startswith(parquet.MAGIC):
        return "parquet"
    if start.startswith(bosaris.MAGIC) or path.suffix in {".h5", ".hdf5"}:
        return "bosaris"
    if (of_header := _format_of_header(start)) is not None:
        return of_header
    if (ending := next((ending for ending in ("csv", "spk2utt") if path.name.endswith(ending)), None)) is not None:
        return ending
    return "voxceleb" if _shape(path, start, kind)[0] else "kaldi"


def _format_of_header(start: bytes) -> str | None:
    """The format of a table, None for lines without a header."""
    line = start.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].strip()
    if line.startswith(_OWN_HEADER):
        return "voiceclaim"
    for delimiter, name in ((b"\t", "nist"), (b",", "csv")):
        fields = {tables.COLUMNS.get(field.strip(b' "').decode("latin-1").lower()) for field in line.split(delimiter)}
        if {"model", "segment"} <= fields:
            return name
    return None


def read_list(path: Path, *, kind: Kind | None = None, format_name: str | None = None) -> TrialTable:
    """The rows of a list of trials with all that it holds of labels, scores, log-likelihood ratios and systems.

    ``format_name`` is one of ``FORMATS``, by default what the file looks like; ``kind`` is what is wanted, where the
    lines alone could be either. A spk2utt lists true claims only. Raises TrialListError, naming file and line, for a
    file that breaks its format, InputError for an unknown format, and LibraryMissingError where pyarrow or h5py is not
    installed.
    """
    name = format_of(path, kind) if format_name is None else check_format(format_name)
    if name == "parquet":
        return parquet.read_parquet(path)
    if name == "bosaris":
        return bosaris.read_bosaris(path)
    if name in {"nist", "csv"}:
        return _read_table(path, tabs=name == "nist")
    if name == "spk2utt":
        own = owners(read_spk2utt(path))
        return TrialTable(NameColumn.of(own.values()), NameColumn.of(own), np.ones(len(own), dtype=np.bool_))
    if name == "voiceclaim" and head(path).removeprefix(b"\xef\xbb\xbf").startswith(_OWN_HEADER):
        return _read_own_scores(path)
    voxceleb, found = _shape(path, head(path), kind, None if name == "voiceclaim" else name)
    return read_rows(path, blocks(path), lists.layout(voxceleb=voxceleb, kind=found))


def _read_table(path: Path, *, tabs: bool) -> TrialTable:
    pieces = blocks(path)
    number, first = next(pieces, (1, b""))
    header, _, rest = first.partition(b"\n")
    layout = tables.layout(path, header, tabs=tabs)

    def below_header() -> Iterator[tuple[int, bytes]]:
        yield number + 1, rest
        yield from pieces

    return read_rows(path, below_header(), layout)


def _read_own_scores(path: Path) -> TrialTable:
    return table_of(read_scores(path))


def _shape(path: Path, start: bytes, kind: Kind | None, name: str | None = None) -> tuple[bool, Kind]:
    """Whether a list parted by blanks is VoxCeleb's, and whether it has labels ("key") or scores.

    ``name`` is kaldi, voxceleb, or None where that is to be found out too.
    """
    lines = list(islice(_first_lines(start), _LOOKED_AT))
    if not lines:
        raise TrialListError(f"{path}: a list needs at least one row, got none; the file is empty or has only comments")
    tests: tuple[tuple[bool, Kind, bool], ...] = (
        (False, "key", lines[0][-1] in LABELS),
        (True, "key", lines[0][0] in lists.VOXCELEB_LABELS and not (kind is None and _is_number(lines[0][-1]))),
        (False, "scores", all(_is_number(words[-1]) for words in lines)),
        (True, "scores", all(_is_number(words[0]) for words in lines)),
    )
    for voxceleb, found, fits in tests:
        if fits and kind in {None, found} and (name is None or voxceleb == (name == "voxceleb")):
            return voxceleb, found
    if name is not None and kind is not None:
        return name == "voxceleb", kind  # the reader says which line is wrong
    shown = b" ".join(lines[0]).decode("utf-8", errors="backslashreplace")[:SHOWN]
    raise TrialListError(
        f"{path}: the format must be one of {', '.join(FORMATS)}, and cannot be told from {shown!r}; is it"
        f" {'a key' if kind == 'key' else 'a score file' if kind == 'scores' else 'a list of trials'} at all?"
    )


def _first_lines(start: bytes) -> Iterator[list[bytes]]:
    """Words of the first lines; where ``start`` is not the whole file, without the last, which may be cut off."""
    lines = start.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for line in lines[:-1] if len(start) == HEAD and len(lines) > 1 else lines:
        words = line.split()
        if words and not words[0].startswith(b"#"):
            yield words


def _is_number(word: bytes) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False
