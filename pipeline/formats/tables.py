"""Tables of trials with a header: NIST's tab-separated files, CSV, and the names of columns that they may have.

    modelid <tab> segmentid <tab> side                    NIST, trials
    modelid <tab> segmentid <tab> side <tab> targettype   NIST, key
    modelid <tab> segmentid <tab> side <tab> LLR          NIST, scores: natural-log likelihood ratios

Columns are found by their names, in any order and case; others are passed over. The side of a NIST segment, a or b, is
that of a two-channel call: side b of ``x`` is the segment ``x:b`` here. CSV is parted by commas, quoted as RFC 4180
says, one row a line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from pipeline.errors import TrialListError
from pipeline.evaluation.lines import LABELS, SHOWN
from pipeline.formats.rows import Field, Layout

COLUMNS: Mapping[str, Field] = {
    name: of
    for of, names in {
        "model": "model modelid enroll enrollment speaker claim",
        "segment": "segment segmentid test path file utterance",
        "side": "side",
        "target": "target targettype label key",
        "score": "score",
        "llr": "llr",
        "system": "system",
    }.items()
    for name in names.split()
}
"""What a column of this name, in lower case, holds."""

TABLE_LABELS = {**LABELS, b"1": True, b"0": False, b"true": True, b"false": False, b"True": True, b"False": False}


def layout(path: Path, header: bytes, *, tabs: bool) -> Layout:
    """The layout of a table with this header line; raises TrialListError for one that lacks what a list needs."""
    line = header.strip(b"\r\n")
    names = [name.decode("utf-8", errors="replace") for name in (_split_tabs if tabs else _split_commas)(line) or []]
    fields = fields_of(path, names)
    return Layout(
        fields=fields,
        delimiter="\t" if tabs else ",",
        rule=f"a row must hold {len(fields)} fields parted by {'tabs' if tabs else 'commas'}, as the header does",
        labels=LABELS if tabs else TABLE_LABELS,
        split=partial(_split_row, tabs=tabs, columns=len(fields)),
        prepare=_prepare,
        blank=lambda line: not line,
        quoted=not tabs,
        empty_llr=not tabs,
    )


def fields_of(path: Path, names: Sequence[str]) -> tuple[Field, ...]:
    """What each column of these names holds; raises TrialListError for none of a kind that is needed, or two."""
    fields = tuple(COLUMNS.get(name.strip().lower(), "other") for name in names)
    shown = ", ".join(names)[:SHOWN]
    for needed, example in (("model", "modelid"), ("segment", "segmentid")):
        if needed not in fields:
            raise TrialListError(f"{path}: a table of trials needs a column {example!r} (or alike), got {shown!r}")
    for field in COLUMNS.values():
        if fields.count(field) > 1:
            raise TrialListError(f"{path}: a table may have one column for the {field}, got two or more in {shown!r}")
    return fields


def _split_row(line: bytes, *, tabs: bool, columns: int) -> list[bytes] | None:
    fields = _split_tabs(line) if tabs else _split_commas(line)
    return fields if fields is not None and len(fields) == columns else None


def _split_tabs(line: bytes) -> list[bytes]:
    return line.split(b"\t")


def _split_commas(line: bytes) -> list[bytes] | None:
    # Latin-1 takes every byte there and back, so that quoting can be read before the encoding is looked at.
    reader = csv.reader(io.StringIO(line.decode("latin-1"), newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error:
        return None
    return [field.encode("latin-1") for field in rows[0]] if len(rows) == 1 else None


def _prepare(block: bytes) -> Iterator[bytes]:
    """The block with a line feed at each end of a line; nothing where a carriage return stands elsewhere."""
    text = block.replace(b"\r\n", b"\n").removesuffix(b"\r") if b"\r" in block else block
    if b"\r" not in text:
        yield text
