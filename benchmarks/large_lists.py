#!/usr/bin/env python3
"""Ten million scores from a file: how long `voiceclaim evaluate --scores` takes, in how much memory, and whether the
equal error rate is right.

    python benchmarks/large_lists.py [--trials 10000000] [--models 5000] [--segments 20000] [--format kaldi]
                                     [--folder DIR] [--json OUT]

The lists are made up: different pairs of a model and a segment, one true claim in a hundred, scores from two normal
distributions rounded to six decimals (so that there are ties), the score file in another order than the key. Three
processes:

- the command itself, from start to end, figures and report included;
- its stages one by one: reading the scores, reading the key, joining, metrics;
- the equal error rate by scikit-learn's roc_curve and linear interpolation, from the numbers and not from the files.

Memory is the most that a process held at one time, as the system reports it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

TARGETS = 0.01
SEED = 8
Outcome = TypeVar("Outcome")


def made_up(trials: int, models: int, segments: int) -> dict[str, Any]:
    """Return different pairs of models and segments, their labels and their scores."""
    rng = np.random.default_rng(SEED)
    if trials > models * segments // 2:
        raise SystemExit(f"of {models:,} models and {segments:,} segments at most half of all pairs can be made up")
    pairs = np.unique(rng.integers(models * segments, size=trials + trials // 5))
    while pairs.size < trials:
        pairs = np.union1d(pairs, rng.integers(models * segments, size=trials // 5))
    pairs = rng.permutation(pairs)[:trials]
    targets = rng.random(trials) < TARGETS
    scores = np.round(rng.normal(np.where(targets, 3.0, -3.0), np.where(targets, 2.5, 2.0)), 6)
    return {"models": pairs // segments, "segments": pairs % segments, "targets": targets, "scores": scores}


def write_lists(folder: Path, made: dict[str, Any], models: int, segments: int, form: str) -> tuple[Path, Path]:
    """Return the score file and the key, in that order."""
    from pipeline.evaluation import NameColumn, TrialTable, write_list

    enrolled = [f"id{k:05d}" for k in range(models)]
    tested = [f"id{k % 1000:05d}/recording{k:06d}.wav" for k in range(segments)]
    table = TrialTable(
        NameColumn.coded(enrolled, made["models"].astype(np.int32)),
        NameColumn.coded(tested, made["segments"].astype(np.int32)),
        made["targets"],
        made["scores"],
        made["scores"],
    )
    suffix = {"parquet": ".parquet", "csv": ".csv", "nist": ".tsv"}.get(form, ".txt")
    key, scores = folder / f"key{suffix}", folder / f"scores{suffix}"
    write_list(key, table, format_name=form, kind="key")
    order = np.random.default_rng(SEED).permutation(len(table))
    write_list(scores, table[order], format_name=form, kind="scores")
    return scores, key


def stages(scores: Path, key: Path) -> dict[str, Any]:
    """Return seconds of each stage, and the most memory that the process has held by its end."""
    from pipeline.evaluation import read_list
    from pipeline.evaluation.joining import join
    from pipeline.evaluation.measure import measure

    found: dict[str, Any] = {}

    def timed(name: str, work: Callable[[], Outcome]) -> Outcome:
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = work()
        found[name] = {
            "seconds": round(time.perf_counter() - wall, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
        return outcome

    lists = {
        "scores": timed("read scores", lambda: read_list(scores, kind="scores")),
        "key": timed("read key", lambda: read_list(key, kind="key")),
    }
    joined, _ = timed("join", lambda: join(lists["key"], lists["scores"], names=("key", "scores")))
    lists.clear()
    timed("metrics", lambda: measure(joined, threshold=None, seed=0, bounded=True))
    return found


def independent_eer(trials: int, models: int, segments: int) -> float:
    """Return the equal error rate by scikit-learn's ROC curve, interpolated where its two errors cross."""
    from sklearn.metrics import roc_curve

    made = made_up(trials, models, segments)
    accepted, detected, _ = roc_curve(made["targets"], made["scores"], drop_intermediate=False)
    gap = accepted - (1.0 - detected)
    k = int(np.argmax(gap >= 0.0))
    share = -gap[k - 1] / (gap[k] - gap[k - 1])
    return float(accepted[k - 1] + share * (accepted[k] - accepted[k - 1]))


def run(command: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the output of a process, its seconds and its memory."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed = process.stdout.read() if process.stdout else ""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return printed, {
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_mib": round(used.ru_maxrss / 1024),
    }


def measured(trials: int, models: int, segments: int, form: str, folder: Path) -> dict[str, Any]:
    """Measure lists of that many trials in that format."""
    start = time.perf_counter()
    scores, key = write_lists(folder, made_up(trials, models, segments), models, segments, form)
    made_in = time.perf_counter() - start
    this = [sys.executable, str(Path(__file__).resolve())]
    command = [sys.executable, "-c", "from pipeline.cli.main import main; main()", "evaluate", "--llr", "--json"]
    printed, whole = run([*command, "--scores", str(scores), "--key", str(key), "--out", str(folder / "out")])
    eer = json.loads(printed)["systems"]["scores"]["eer_percent"] / 100.0
    parts, _ = run([*this, "--stages", str(scores), str(key)])
    other, took = run([*this, f"--trials={trials}", f"--models={models}", f"--segments={segments}", "--independent"])
    return {
        "command": shlex.join(["python", "benchmarks/large_lists.py", *sys.argv[1:]]),
        "trials": trials,
        "models": models,
        "segments": segments,
        "format": form,
        "bytes": {"scores": scores.stat().st_size, "key": key.stat().st_size},
        "seconds_to_make": round(made_in, 1),
        "whole": whole,
        "stages": json.loads(parts),
        "eer": eer,
        "eer_scikit_learn": float(other),
        "difference": abs(eer - float(other)),
        "scikit_learn": took,
        "machine": {
            "cores": os.cpu_count(),
            "load": [round(load, 1) for load in os.getloadavg()],
            "processor": platform.machine(),
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "pyarrow", "scikit-learn")},
        },
    }


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000_000)
    parser.add_argument("--models", type=int, default=5_000)
    parser.add_argument("--segments", type=int, default=20_000)
    parser.add_argument("--format", default="kaldi", choices=("kaldi", "nist", "csv", "parquet"))
    parser.add_argument("--folder", type=Path, help="where the lists go; by default a temporary folder")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--stages", nargs=2, type=Path, metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--independent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = options.trials, options.models, options.segments
    if options.stages:
        print(json.dumps(stages(*options.stages)))
        return
    if options.independent:
        print(repr(independent_eer(*size)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measured(*size, options.format, Path(folder))
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
