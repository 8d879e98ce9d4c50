"""Terminal output that the commands share: lines, errors, JSON, tables, a progress bar and a line redrawn in place."""

from __future__ import annotations

import io
import json
import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer

_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # change the writing direction
_MOST_SKIPPED = 10  # files skipped for one reason that are named one by one
_UNBOUNDED = 10_000  # columns of a table that goes to a file or a pipe


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_terminal(stream: TextIO | None) -> bool:
    """Return True if ``stream`` is a terminal; it is None if the parent process closed it."""
    return stream is not None and stream.isatty()


def escape(text: str) -> str:
    """Replace control characters, line breaks and changes of direction by escapes: names may be hostile."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in _BIDI
        else character
        for character in text
    )


def separate_output() -> None:
    """Move the command's output to its own descriptor, and redirect what C libraries print to the error output.

    A decoder may print warnings about a damaged file, which must not end up between lines of JSON.
    """
    old = sys.stdout
    try:
        shown, errors = old.fileno(), sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed by the parent process, or not a file
        return
    # Help has characters that ASCII, and many other encodings, do not have.
    lenient = old.errors if old.encoding.lower() == "utf-8" else "backslashreplace"
    sys.stdout = os.fdopen(
        os.dup(shown), "w", 1 if old.isatty() else -1, encoding=old.encoding, errors=lenient, closefd=False
    )
    os.dup2(errors, shown)


def print_line(text: str) -> None:
    """Print a line and flush; if the reader is gone, exit quietly with the exit code of an error."""
    if sys.stdout is None:  # closed by the parent process
        return
    try:
        try:
            sys.stdout.write(f"{text}\n")
        except UnicodeEncodeError:
            encoding = sys.stdout.encoding
            sys.stdout.write(f"{text}\n".encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            print_error(f"the output cannot be written: {error.strerror or error}")
        _discard(sys.stdout)
        raise SystemExit(2) from None


def _discard(stream: TextIO) -> None:
    """Discard what ``stream`` still holds: Python flushes again at exit, which must not fail a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_error(problem: object) -> None:
    """Print an error on the error output, escaped, after the program's name."""
    print_note(str(problem), before="voiceclaim: ")


def print_note(text: str, *, before: str = "") -> None:
    """Print an escaped note on the error output, apart from the results."""
    if sys.stderr is not None:
        start = coloured(before, "red", sys.stderr) if before else ""
        try:
            sys.stderr.write(start + "\n".join(map(escape, text.split("\n"))) + "\n")
            sys.stderr.flush()
        except OSError:  # a full disk, or a reader that is gone; the exit code stays what it is
            _discard(sys.stderr)


def print_skipped(skipped: Sequence[tuple[Path, str]]) -> None:
    """Print the skipped files and the reasons; of many with one reason, only the first."""
    counts = Counter(reason for _, reason in skipped)
    for path, reason in skipped:
        if counts[reason] > _MOST_SKIPPED:
            print_note(f"skipped {counts[reason]} files, the first {path}: {reason}")
            counts[reason] = 0
        elif counts[reason]:
            print_note(f"skipped {path}: {reason}")


def coloured(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Return ``text`` in bold and colour where ``stream`` (the output) is a terminal and NO_COLOR is not set."""
    shown = sys.stdout if stream is None else stream
    if not is_terminal(shown) or os.environ.get("NO_COLOR"):
        return text
    return typer.style(text, fg=colour, bold=True)


def print_json(value: Any) -> None:
    """Print one JSON value on a line of its own; in ASCII if the output's encoding requires it."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding if sys.stdout is not None else "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value)
    print_line(text)


def print_table(header: tuple[str, ...], rows: list[tuple[Any, ...]], *, optional: str | None = None) -> None:
    """Print columns, the first aligned left, the others right.

    In a terminal that is too narrow, cells are cut before the text ``optional``, and wrap if that is not enough.
    """
    from rich.console import Console

    width = Console().width if is_terminal(sys.stdout) else _UNBOUNDED
    cells = [[escape(str(cell)) for cell in row] for row in (header, *rows)]
    text = _rendered(cells, _UNBOUNDED, 2)
    if optional is not None and _too_wide(text, width):
        cells = [[cell.partition(optional)[0] for cell in row] for row in cells]
        text = _rendered(cells, _UNBOUNDED, 2)
    print_line(_rendered(cells, width, 1) if _too_wide(text, width) else text)


def _too_wide(text: str, width: int) -> bool:
    from rich.cells import cell_len

    return max(map(cell_len, text.splitlines())) > width


def _rendered(cells: list[list[str]], width: int, gap: int) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for number, title in enumerate(cells[0]):
        table.add_column(Text(title), justify="right" if number else "left", overflow="fold")
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback ``(stage, steps just done, steps in all)`` that draws one bar; without a terminal, nothing."""
    if quiet or not is_terminal(sys.stderr):
        yield lambda _stage, _steps, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        stages: dict[str, TaskID] = {}

        def advance(stage: str, steps: int, total: int) -> None:
            if is_new := stage not in stages:
                stages[stage] = bar.add_task(stage, total=total, visible=False)
            for task in set(stages.values()) - {stages[stage]}:  # one is shown, and stages may alternate
                bar.update(task, visible=False)
            bar.update(stages[stage], advance=steps, visible=True, refresh=is_new)

        yield advance


@contextmanager
def live_line(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line of text in place on the error output; without a terminal, nothing."""
    if quiet or not is_terminal(sys.stderr):
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True, color_system=None)
    with Live(
        console=console, transient=True, refresh_per_second=12, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield lambda text: live.update(Text(escape(text), no_wrap=True, overflow="crop"))
