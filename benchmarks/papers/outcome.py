"""Results of a repeated experiment: rows with the paper's number and ours, notes and figures, and writing them."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import __version__
from pipeline.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = float | str | None
FigureBuilder = Callable[[], "Figure"]

TABLE = "table.json"
MARKDOWN = "table.md"
FORMATS = ("png", "pdf")


@dataclass(frozen=True)
class Row:
    """One number of the paper, and the same here; None where there is none. ``note`` names the difference."""

    name: str
    paper: Value
    here: Value
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """A paper's table again: its ``name`` on the command line, and ``notes`` for the reader.

    ``figures`` maps file names, without suffix, to functions that draw them. ``extra`` goes into table.json.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    figures: Mapping[str, FigureBuilder] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def write(
    outcome: Outcome, out: Path, *, command: str = "", seconds: float | None = None, date: str | None = None
) -> tuple[Path, ...]:
    """Write table.json, table.md and the figures (PNG and PDF) into ``out``, created if missing; returns their paths.

    Everything is drawn first, then files of the same names are replaced; others are left alone. Raises InputError for
    a folder that cannot be written to.
    """
    from pipeline.evaluation.plots.style import save_figure

    about = {"command": command, "date": date, "seconds": seconds}
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".making-") as making:
            folder = Path(making)
            drawn = [p for name, draw in outcome.figures.items() for p in save_figure(draw(), folder / name, FORMATS)]
            (folder / TABLE).write_text(as_json(outcome, about), encoding="utf-8", newline="\n")
            (folder / MARKDOWN).write_text(as_markdown(outcome, about), encoding="utf-8", newline="\n")
            return tuple(path.replace(out / path.name) for path in (folder / TABLE, folder / MARKDOWN, *drawn))
    except OSError as error:
        raise InputError(f"{out}: results cannot be written there: {error.strerror or error}") from None


def as_json(outcome: Outcome, about: Mapping[str, Any]) -> str:
    """Return the content of table.json: one object; infinities as text ("inf"), NaN as null."""
    table = {
        "name": outcome.name,
        "title": outcome.title,
        "rows": [
            {"name": row.name, "paper": _plain(row.paper), "here": _plain(row.here), "note": row.note}
            for row in outcome.rows
        ],
        "notes": list(outcome.notes),
        "figures": list(outcome.figures),
        **outcome.extra,
        **about,
        "version": __version__,
    }
    return json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_markdown(outcome: Outcome, about: Mapping[str, Any]) -> str:
    """Return the content of table.md: a heading, the table, the notes, and how it was made."""
    lines = [f"# {outcome.title}", "", "| | paper | here | note |", "|---|---:|---:|---|"]
    lines += [f"| {' | '.join(_escaped(cell) for cell in (row.name, *cells(row)))} |" for row in outcome.rows]
    if outcome.notes:
        lines += ["", *(f"- {note}" for note in outcome.notes)]
    made = [f"`{about['command']}`" if about["command"] else "", f"voiceclaim {__version__}", about["date"]]
    if about["seconds"] is not None:
        made.append(f"{about['seconds']:.1f} s")
    return "\n".join([*lines, "", f"Made by {', '.join(part for part in made if part)}.", ""])


def cells(row: Row) -> tuple[str, str, str]:
    """Return the paper's value, ours to at least as many decimals, and the note, as text."""
    paper = _text(row.paper)
    return paper, _text(row.here, len(paper.partition(".")[2]) if isinstance(row.paper, float) else 0), row.note


def _plain(value: Value) -> Value:
    if isinstance(value, str) or value is None:
        return value
    number = value.item() if hasattr(value, "item") else value
    if math.isnan(number):
        return None
    return number if math.isfinite(number) else str(number)


def _text(value: Value, decimals: int = 0) -> str:
    """Format to four digits without trailing zeros, from a thousand on one decimal, whole numbers in full."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return str(float(value))
    if float(value).is_integer():
        return f"{value:.{decimals}f}"
    text = f"{value:.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text if len(text.partition(".")[2]) >= decimals or "e" in text else f"{value:.{decimals}f}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
