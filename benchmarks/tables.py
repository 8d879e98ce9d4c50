"""Tables in Markdown, as the benchmarks print them and the pages beside them show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> str:
    """Return a table whose first ``words`` columns are text, and the others numbers, which end at one edge."""
    rule = "|---" * words + "|---:" * (len(head) - words) + "|"
    return "\n".join([_line(head), rule, *map(_line, rows)])


def _line(cells: Sequence[object]) -> str:
    return "".join("| " if cell == "" else f"| {cell} " for cell in cells) + "|"


def decimals(*values: float | None) -> list[str]:
    """Return each value with two decimals, and a dash for a missing one."""
    return ["-" if value is None else f"{value:.2f}" for value in values]
