"""Repeat one paper's experiment and show its numbers beside the published ones.

    python -m benchmarks.papers platt1999|lin2007|implied2020 --out DIR [--tables DIR] [--jobs N]
    python -m benchmarks.papers xin2002 --corpus DIR --out DIR [--trials FILE] [--speakers N] [--set KEY=VALUE]
                                        [--jobs N]

Writes table.json, table.md and the figures. Data files come from --tables, or are downloaded with their checksums.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.papers.outcome import Outcome, as_markdown, write
from pipeline.errors import VoiceclaimError

PAPERS = ("xin2002", "platt1999", "lin2007", "implied2020")


def parser() -> argparse.ArgumentParser:
    """Return the command's arguments."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.papers", description="Repeat a paper's experiment.")
    made.add_argument("paper", choices=PAPERS)
    made.add_argument("--out", type=Path, required=True, help="folder for table.json, table.md and figures")
    made.add_argument("--tables", type=Path, help="folder of the data files (adult/a9a, ...); default: downloaded")
    made.add_argument("--any-version", action="store_true", help="accept data files whose checksum differs")
    made.add_argument("--tasks", help="platt1999: comma-separated tasks to run; default: all")
    made.add_argument("--corpus", type=Path, help="xin2002: folder with ENROLL and VERIFY, like YOHO's")
    made.add_argument("--trials", type=Path, help="xin2002: trial list; default: VERIFY, every claim")
    made.add_argument("--speakers", type=int, help="xin2002: enroll the first N speakers; default: all")
    made.add_argument("--set", action="append", metavar="KEY=VALUE", help="xin2002: a setting to change")
    made.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1, help="threads; default: all cores")
    return made


def check(arguments: argparse.Namespace, fail: Callable[[str], object]) -> None:
    """Call ``fail`` with a message for options that do not apply to the paper."""
    speech = arguments.paper == "xin2002"
    foreign = ("tables", "any_version") if speech else ("corpus", "trials", "speakers", "set")
    for name in (*foreign, *(() if arguments.paper == "platt1999" else ("tasks",))):
        if getattr(arguments, name):
            fail(f"--{name.replace('_', '-')} does not apply to {arguments.paper}")
    if speech and arguments.corpus is None:
        fail("xin2002 needs --corpus: a folder with ENROLL and VERIFY, like YOHO's")


def run(arguments: argparse.Namespace, progress: Callable[[str, int, int], None]) -> Outcome:
    """Return the outcome of the chosen experiment."""
    reproduce: Callable[..., Outcome] = import_module(f"benchmarks.papers.{arguments.paper}").reproduce
    shared = {"jobs": arguments.jobs, "progress": progress}
    if arguments.paper == "xin2002":
        shared["overrides"] = arguments.set or ()
        return reproduce(arguments.corpus, trials=arguments.trials, speakers=arguments.speakers, **shared)
    from benchmarks.papers.source import TableSource

    if arguments.tasks:
        shared["tasks"] = [name.strip() for name in arguments.tasks.split(",") if name.strip()]
    outcome = reproduce(TableSource(arguments.tables, arguments.any_version), **shared)
    if not arguments.any_version:
        return outcome
    return replace(outcome, notes=(*outcome.notes, "The checksums of the data files were not verified."))


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function progress(stage, just done, in all) that draws one bar per stage on standard error."""
    from tqdm import tqdm

    drawn: dict[str, tqdm] = {}

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in drawn:
            drawn[stage] = tqdm(total=total, desc=stage, disable=None)
        drawn[stage].update(done)

    try:
        yield progress
    finally:
        for bar in drawn.values():
            bar.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    made = parser()
    arguments = made.parse_args(argv)
    check(arguments, made.error)
    started = time.perf_counter()
    try:
        with bars() as progress:
            outcome = run(arguments, progress)
        about: dict[str, Any] = {
            "command": shlex.join(["python", "-m", "benchmarks.papers", *(sys.argv[1:] if argv is None else argv)]),
            "seconds": round(time.perf_counter() - started, 1),
            "date": datetime.date.today().isoformat(),
        }
        written = write(outcome, arguments.out, **about)
    except VoiceclaimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(as_markdown(outcome, about))
    print(f"written: {', '.join(str(path) for path in written)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
