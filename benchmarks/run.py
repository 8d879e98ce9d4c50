#!/usr/bin/env python3
"""Speed, compared with peers in the same run: one flat JSON object and a Markdown table.

    python benchmarks/run.py [--only train,claim,features,gemm,stream,growth,waiting] [--quick] [--corpora DIR]
                             --json OUT [--markdown OUT]

--corpora is a folder with libri158 and commands30 (for the part "waiting"); without it the demo corpus's voices, and
voices made of them, stand in. --quick ends within five minutes on two cores. benchmarks/SPEED.md explains the keys.
Each part runs in a process of its own, with BLAS on one thread.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from speed import table
from speed.measuring import Figures, in_child, machine
from speed.model import predicted
from speed.options import QUICK_SIZES, Options

PARTS = ("train", "claim", "features", "gemm", "stream", "growth", "waiting")
QUICK = {"sizes": QUICK_SIZES, "minutes": 3.0, "patience": 1.0}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--corpora", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path, help="a page whose marked place, or a file that, gets the table")
    parser.add_argument("--speakers", type=int, default=50)
    parser.add_argument("--centroids", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", help="populations of the growth part")
    parser.add_argument("--minutes", type=float, help="of audio through the stream")
    parser.add_argument("--patience", type=float, help="seconds over which a call is repeated")
    options = parser.parse_args(arguments)
    options.only = tuple(options.only.split(","))
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"--only: no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.speakers < 3 or options.centroids < 2:
        parser.error("at least 3 speakers of 2 centroids")
    return options


def settings(given: argparse.Namespace) -> Options:
    """Return the options of the parts."""
    found = Options(given.corpora, given.quick, given.speakers, given.centroids)
    asked = {name: getattr(given, name) for name in QUICK if getattr(given, name) is not None}
    if "sizes" in asked:
        asked["sizes"] = tuple(sorted(asked["sizes"]))
    return replace(found, **((QUICK if given.quick else {}) | asked))


def measured(options: Options, parts: tuple[str, ...]) -> Figures:
    """Measure all figures, part by part in the usual order."""
    found: Figures = {"run.quick": int(options.quick), "run.corpus": "demo" if options.corpora is None else "libri158"}
    found |= in_child(machine)
    for part in PARTS:
        if part in parts:
            started = time.perf_counter()
            function = import_module(f"speed.{part}").measure
            # These start processes themselves.
            found |= function(options) if part in ("growth", "waiting") else in_child(function, options)
            found[f"{part}.elapsed_seconds"] = time.perf_counter() - started
            print(f"{part}: {found[f'{part}.elapsed_seconds']:.0f} s", file=sys.stderr)
    return found | predicted(found)


def main() -> None:
    """Measure, print and write."""
    given = parse()
    started = time.perf_counter()
    found = measured(settings(given), given.only)
    found["run.elapsed_seconds"] = time.perf_counter() - started
    text = table.markdown(found)
    print(text)
    given.json.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if given.markdown:
        table.write(given.markdown, text)
    whole = set(given.only) == set(PARTS)
    if missing := [key for key in table.CONTRACT if whole and not math.isfinite(float(found.get(key, math.nan)))]:
        sys.exit(f"no figure for {', '.join(missing)}")


if __name__ == "__main__":
    main()
