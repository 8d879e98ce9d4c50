#!/usr/bin/env python3
"""Replay known attacks on a live service on loopback, beside honest streams, and check how each ends.

    python scripts/attack_service.py --streams 64 --json attacks.json
    python scripts/attack_service.py --only drips packed_uploads

Voices of data/demo are enrolled into a store in a temporary folder. Attacks that aim to delay other callers run
against a service that also serves --streams honest streams in real time, and /healthz ten times a second. The JSON has
the delays of these callers during each attack, and under ``quiet`` those without an attack. The other attacks have
services of their own. ``held`` says whether an attack ended as it must, ``in_time`` whether honest callers were
answered in time, which only means something if nothing else uses the processors. Ends with 1 if an attack did not end
as it must.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import attacks_on_decisions
import attacks_on_processes
import attacks_on_time
import numpy as np
from attack_target import DEMO, HONEST, TOKENS, Result, Target
from honest_callers import Honest, Sample, seen
from running_service import running_service

from pipeline.audio.corpus import read_corpus
from pipeline.config import load_config
from pipeline.enrollment.enroll import enroll

MOST_UPDATE_MS, MOST_HEALTHZ_MS = 150.0, 50.0
NAMES = ("anna", "bruno", "clara", "dexter", "edith", "fergus", "greta", "hugo", "ivan", "jonas")  # honest callers


def enrolled(folder: Path) -> Path:
    """Enroll the demo voices."""
    speakers = read_corpus(DEMO / "enroll").speakers
    settings = load_config(None, ["features.rate=8000", "supervector.speeds_below=0", "codebook.centroids=30"])
    enroll(folder / "voices.store", speakers, settings, jobs=os.cpu_count() or 1)
    return folder / "voices.store"


async def beside(store: Path, folder: Path, wanted: Iterable[str], streams: int) -> Result:
    """Run the attacks on time beside honest streams."""
    results, spans = dict[str, Result](), dict[str, tuple[float, float]]()
    attacks_on_time.prepare()
    options = ("--failures", "100000", "--caller-failures", "1000000", "--log", str(folder / "log.jsonl"))
    with running_service(store, *options, tokens=TOKENS) as (url, process):
        honest = await asyncio.to_thread(Honest, url, HONEST, DEMO / "verify", NAMES, streams)
        spans["quiet"] = (time.monotonic(), time.monotonic() + 10)
        await asyncio.sleep(10)
        for name in wanted:
            began = time.monotonic()
            results[name] = await getattr(attacks_on_time, name)(Target(url, process, store, folder))
            spans[name] = began, time.monotonic()
            _tell(name, results[name])
            await asyncio.sleep(3)
        samples = await asyncio.to_thread(honest.end)
    return {name: {**results.get(name, {}), **_delays(samples, *span)} for name, span in spans.items()}


def _delays(samples: list[Sample], since: float, until: float) -> Result:
    told = seen(samples, since, until)
    most = {"update_p95_ms": MOST_UPDATE_MS, "healthz_p95_ms": MOST_HEALTHZ_MS}
    return {"honest": told, "in_time": all(told.get(name, np.inf) < value for name, value in most.items())}


async def alone(store: Path, folder: Path, wanted: Iterable[str], _streams: int) -> Result:
    """Run the attacks on decisions on a service with its default bounds."""
    results: Result = {}
    with running_service(store, "--log", str(folder / "log.jsonl"), tokens=TOKENS) as (url, process):
        for name in wanted:
            results[name] = await getattr(attacks_on_decisions, name)(Target(url, process, store, folder))
            _tell(name, results[name])
    return results


async def each(store: Path, folder: Path, wanted: Iterable[str], _streams: int) -> Result:
    """Run the attacks that have services of their own."""
    results: Result = {}
    for name in wanted:
        results[name] = await getattr(attacks_on_processes, name)(store, folder)
        _tell(name, results[name])
    return results


def _tell(name: str, result: Mapping[str, object]) -> None:
    sys.stderr.write(f"{name}: {result}\n")


PARTS = {attacks_on_time: beside, attacks_on_decisions: alone, attacks_on_processes: each}


def main() -> int:
    """Attack, and print how each attack ended; return 1 if one did not end as it must."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [attack.__name__ for module in PARTS for attack in module.ATTACKS]
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    results: Result = {}
    with tempfile.TemporaryDirectory() as temporary:
        store = enrolled(Path(temporary))
        for module, run in PARTS.items():
            wanted = [attack.__name__ for attack in module.ATTACKS if attack.__name__ in options.only]
            if wanted:
                folder = Path(temporary) / module.__name__
                folder.mkdir()
                results |= asyncio.run(run(Path(shutil.copy(store, folder)), folder, wanted, options.streams))
    text = f"{json.dumps({'streams': options.streams, 'attacks': results}, indent=1)}\n"
    sys.stdout.write(text)
    if options.json:
        options.json.write_text(text, encoding="utf-8")
    return 0 if all(result.get("held", True) for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
