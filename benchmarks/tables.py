"""Tables in Markdown: what a benchmark prints, and the pages beside it hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> str:
    """Return a table whose first ``words`` columns are text, and the others numbers, which end at one edge."""
    rule = "|---" * words + "|---:" * (len(head) - words) + "|"
    return "\n".join([_line(head), rule, *map(_line, rows)])


def _line(cells: Sequence[object]) -> str:
    return "".join("| " if cell == "" else f"| {cell} " for cell in cells) + "|"


def decimals(*values: float | None) -> list[str]:
    """Return each value with two decimals, a dash for what there is none of."""
    return ["-" if value is None else f"{value:.2f}" for value in values]
