"""Tables of results as CSV and as LaTeX (booktabs), for papers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

# Columns by title: key of metrics.json, and the form that LaTeX shows.
SYSTEM_COLUMNS: dict[str, tuple[str, str]] = {
    "EER %": ("eer_percent", ".2f"),
    "minDCF": ("min_dcf", ".3f"),
    "actDCF": ("act_dcf", ".3f"),
    "Cllr": ("cllr", ".3f"),
    "min. Cllr": ("min_cllr", ".3f"),
    "rank-1 identification error %": ("identification_error_percent", ".2f"),
    "FA %": ("false_accept_percent", ".2f"),
    "FR %": ("false_reject_percent", ".2f"),
}
COMPARED_COLUMNS = {title: SYSTEM_COLUMNS[title] for title in ("EER %", "minDCF", "Cllr", "min. Cllr")}
_SPECIAL = re.compile(r"([&%$#_{}])|([\\~^])")
_COMMANDS = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def tables(
    rows: Mapping[str, Mapping[str, Any]], columns: Mapping[str, tuple[str, str]], *, first: str
) -> dict[str, str]:
    """Return the table by suffix: ".csv" with all digits, and ".tex", rounded.

    ``rows`` map the label in the column ``first`` to entries as in metrics.json; intervals that entries have
    (KEY_ci95) are written too. The LaTeX table is a ``tabular`` and needs the package booktabs.
    """
    bounded = {key for key, _ in columns.values() if any(entry.get(f"{key}_ci95") for entry in rows.values())}
    titles = [
        (title, f"{title} low", f"{title} high") if key in bounded else (title,) for title, (key, _) in columns.items()
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([first, *chain(*titles)])
    body = []
    for label, entry in rows.items():
        ends = {key: entry.get(f"{key}_ci95") or (None, None) for key in bounded}
        writer.writerow([label, *chain(*((entry[key], *ends.get(key, ())) for key, _ in columns.values()))])
        body.append([label, *(_cell(entry[key], ends.get(key), form) for key, form in columns.values())])
    lines = [
        "% \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
        "\\toprule",
        _line([first, *columns]),
        "\\midrule",
        *map(_line, body),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return {".csv": text.getvalue(), ".tex": "\n".join(lines) + "\n"}


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


def _cell(value: float | None, ends: Sequence[float | None] | None, form: str) -> str:
    if value is None:
        return "--"
    low, high = ends or (None, None)
    return f"{value:{form}}" + ("" if low is None or high is None else f" [{low:{form}}, {high:{form}}]")


def _escaped(text: str) -> str:
    """Escape ``text`` for LaTeX; line breaks become spaces."""
    shown = _SPECIAL.sub(lambda match: f"\\{match[1]}" if match[1] else _COMMANDS[match[2]], text)
    return " ".join(shown.split())
