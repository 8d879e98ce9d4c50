#!/usr/bin/env python3
"""Try to break speaker stores: kill writers, let many processes use one store, damage audio and store files.

    python scripts/break_store.py --kills 500 --seconds 60 --mutations 20000 --seed 0 --json broken.json

Everything happens in a temporary folder, on stores made there from the demo corpus and from numbers. What must hold:

- a writer that is killed leaves the old store or the new one, in every number, and the next writer leaves no file over;
- readers beside writers see whole revisions only, and in the end exactly those enrolled and not removed are there;
- a damaged file is refused by an error of this project, within 2 s of computing, in 200 MiB more than at rest, and a
  store that was tampered with is never read from.

Writes the findings as JSON and ends with exit code 1 if any of this does not hold. POSIX only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEMORY = 200.0  # MiB over what a process holds at rest


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Print on standard error how long the block took."""
    started = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - started:.0f} s", file=sys.stderr)


def main() -> None:
    """Run the harnesses, write the findings, and return 0 if everything held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0, help="of two writers and six readers at one store")
    parser.add_argument("--mutations", type=int, default=20_000, help="of audio files")
    parser.add_argument("--store-mutations", type=int, help="of store files (a quarter of --mutations)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write what was found")
    asked = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # what the tests make stores and damage with
    from torture.concurrency import concurrency
    from torture.damage import mutations
    from torture.kills import kills

    stores = asked.mutations // 4 if asked.store_mutations is None else asked.store_mutations
    found: dict[str, object] = {"seed": asked.seed}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="torture") as name:
        for what, work in {
            "kills": lambda folder: kills(folder, asked.kills, asked.seed),
            "concurrency": lambda folder: concurrency(folder, asked.seconds, asked.seed),
            "mutations": lambda folder: mutations(folder, asked.mutations, stores, asked.seed),
        }.items():
            folder = Path(name) / what
            folder.mkdir()
            with timed(what):
                part = work(folder)
            wrong += part.pop("wrong")
            found |= part
    found |= {"wrong": wrong}
    text = json.dumps(found, indent=1)
    if asked.json is None:
        print(text)
    else:
        asked.json.write_text(f"{text}\n", encoding="utf-8")
    held = not wrong and not found["accepted_tampered"] and found["peak_mib_over_baseline"] <= MEMORY
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
