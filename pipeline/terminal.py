"""What the commands share on a terminal: tables, JSON lines, progress bars."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def bars(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress callback that draws one bar a stage on a terminal, and nothing elsewhere."""
    from tqdm import tqdm

    drawn: dict[str, tqdm[Any]] = {}

    def advance(stage: str, done: int, total: int) -> None:
        if stage not in drawn:
            drawn[stage] = tqdm(total=total, desc=stage, leave=False, disable=True if quiet else None, file=sys.stderr)
        drawn[stage].update(done)

    try:
        yield advance
    finally:
        for bar in drawn.values():
            bar.close()


def say(text: str) -> None:
    """Print a line at once. When its reader has gone, end quietly with the exit code of an error."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again at exit, and must find somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(2) from None


def print_json(value: Any) -> None:
    """One JSON value on a line of its own, at once."""
    say(json.dumps(value, ensure_ascii=False))


def print_metrics(table: dict[str, Any]) -> None:
    """The content of metrics.json as a table, the default system marked."""

    def percent(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    def interval(low_high: list[float] | None) -> str:
        return "-" if low_high is None else f"{low_high[0]:.2f}-{low_high[1]:.2f}"

    print_table(
        ("system", "EER %", "95 % interval", "FA % at threshold", "FR %", "targets", "nontargets", "failed"),
        [
            (
                f"{name}{' *' if name == table['default_system'] else ''}",
                percent(found["eer_percent"]),
                interval(found["eer_interval_percent"]),
                percent(found["false_accept_percent"]),
                percent(found["false_reject_percent"]),
                found["n_target"],
                found["n_nontarget"],
                found["n_failed"],
            )
            for name, found in table["systems"].items()
        ],
    )


def print_table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Columns as wide as they need to be: the first to the left, the rest to the right."""
    cells = [header, *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        say("  ".join((first, *rest)).rstrip())
