"""What the commands share on a terminal: tables, JSON lines, progress bars."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

_TURNING = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # directions of writing


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


def own_output() -> None:
    """Move the command's output to a descriptor of its own, and let what libraries print go to the error output.

    A decoder may print what it thinks of a damaged file, in the middle of what is written for machines.
    """
    old = sys.stdout
    try:
        shown, errors = old.fileno(), sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed by whoever started the command, or no files at all
        return
    sys.stdout = os.fdopen(
        os.dup(shown), "w", 1 if old.isatty() else -1, encoding=old.encoding, errors=old.errors, newline=None
    )
    os.dup2(errors, shown)


def plain(text: str) -> str:
    """``text`` with what would move the cursor, end the line or turn it around spelt out: names come from anywhere."""
    return "".join(_spelt(character) if _moves(character) else character for character in text)


def _moves(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in _TURNING


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode()


def say(text: str) -> None:
    """Print a line at once. When nobody can read it any more, end quietly with the exit code of an error."""
    if sys.stdout is None:  # closed by whoever started the command
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
            complain(f"the output cannot be written: {error.strerror or error}")
        # Python flushes again at exit, and must find somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(2) from None


def complain(problem: object) -> None:
    """Say what is wrong on the error output."""
    if sys.stderr is not None:
        sys.stderr.write("\n".join(map(plain, f"voiceclaim: {problem}".split("\n"))) + "\n")


def print_json(value: Any) -> None:
    """One JSON value on a line of its own, at once; in ASCII where the output can hold no more."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding if sys.stdout is not None else "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value)
    say(text)


def print_metrics(table: dict[str, Any]) -> None:
    """The content of metrics.json as a table, the default system marked, in no more than 120 columns."""
    default = table["systems"][table["default_system"]]
    print_table(
        ("system", "EER % [95 %]", "minDCF p05", "actDCF p05", "Cllr/minCllr", "ident. err %", "FA % at thr.", "FR %"),
        [
            (
                f"{name}{' *' if name == table['default_system'] else ''}",
                _with_interval(found["eer_percent"], found["eer_percent_ci95"], ".2f"),
                _number(found["min_dcf"], ".3f"),
                _number(found["act_dcf"], ".3f"),
                f"{_number(found['cllr'], '.3f')}/{_number(found['min_cllr'], '.3f')}",
                _number(found["identification_error_percent"], ".2f"),
                _number(found["false_accept_percent"], ".2f"),
                _number(found["false_reject_percent"], ".2f"),
            )
            for name, found in table["systems"].items()
        ],
    )
    claims = f"{default['n_target']} true and {default['n_nontarget']} false claims, {default['n_failed']} not scored"
    say(f"* the default; {claims}; thr. is the store's threshold")


def print_comparison(table: dict[str, Any]) -> None:
    """The content of compare.json as two tables: what each evaluation has, and its differences from the first."""
    titles, digits = ("EER %", "minDCF p05", "Cllr"), {"eer_percent": ".2f", "min_dcf": ".3f", "cllr": ".3f"}
    print_table(
        ("evaluation", *(f"{title} [95 %]" for title in titles), "minCllr"),
        [
            (
                f"{found['label']}: {found['system']}",
                *(_with_interval(found[key], found[f"{key}_ci95"], form) for key, form in digits.items()),
                _number(found["min_cllr"], ".3f"),
            )
            for found in table["evaluations"]
        ],
    )
    say("")
    print_table(
        (f"difference from {table['reference']}", *(f"{title} [95 %]" for title in titles), "claims"),
        [
            (
                found["label"],
                *(_difference(found[key], form) for key, form in digits.items()),
                found["n_target"] + found["n_nontarget"],
            )
            for found in table["differences"]
        ],
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _with_interval(value: float | None, low_high: list[float] | None, form: str) -> str:
    ends = "" if low_high is None else f" [{low_high[0]:{form}}, {low_high[1]:{form}}]"
    return f"{_number(value, form)}{ends}"


def _difference(found: dict[str, Any] | None, form: str) -> str:
    return "-" if found is None else _with_interval(found["difference"], found["ci95"], f"+{form}")


def print_table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Columns as wide as they need to be: the first to the left, the rest to the right."""
    cells = [header, *(tuple(plain(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        say("  ".join((first, *rest)).rstrip())
