#!/usr/bin/env python3
"""Cost of cohorts: errors, bytes and time with pair machines against each speaker's most similar speakers only.

    python benchmarks/rivals.py CORPORA [--rivals 10 20 50 100 all] [--jobs N] [--json OUT]

CORPORA holds libri158 (docs/results.md says what it is). For each number of rivals everybody is enrolled under the
default settings without one-vs-rest machines, and trials.txt is scored. The number of rivals changes nothing else.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.tables import decimals, markdown_table
from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.config import load_config
from pipeline.enrollment.enroll import enroll
from pipeline.evaluation import Trial, read_trials
from pipeline.evaluation.assess import assess
from pipeline.features.frontend import read_features
from pipeline.metrics import equal_error_rate
from pipeline.store.store import Store
from pipeline.verification.policies import Threshold
from pipeline.verification.verifier import Verifier

SYSTEMS = ("worst_rival", "refined_worst_rival", "poao", "rpoao", "supervector_rival", "gmm_rival", "fused")
RIVALS = ("10", "20", "50", "100", "all")
CLAIMS = 20  # that are timed


def claim_times(path: Path, trials: list[Trial], root: Path) -> dict[str, float]:
    """Return the median times of opening the store for one claim, cold, and then of scoring one utterance's frames."""
    opened, scored = [], []
    for trial in [t for t in trials if t.target][: 2 * CLAIMS : 2]:
        started = time.perf_counter()
        verifier = Verifier(Store(path).load(), trial.speaker, system="worst_rival", decide_by=Threshold(0.5))
        opened.append(1000 * (time.perf_counter() - started))
        model = verifier.model
        speech = read_features(Utterance("", root / trial.path), model.config.features)
        scores, started = verifier.scores(), time.perf_counter()
        scores.push(speech)
        scored.append(1000 * (time.perf_counter() - started))
    return {"open_ms": median(opened), "score_ms": median(scored)}


def measure(rivals: str, corpora: Path, work: Path, jobs: int) -> dict[str, Any]:
    """Enroll with so many rivals and score the lists: one row."""
    root, path = corpora / "libri158", work / f"{rivals}.store"
    config = load_config(None, [f"machines.cohort={rivals}"])
    report = enroll(path, read_corpus(root / "enroll").speakers, config, jobs=jobs)
    row: dict[str, Any] = {
        "competing": rivals,
        "speakers": len(report.enrolled),
        "machines": report.machines,
        "enroll_seconds": report.elapsed_seconds,
        "store_bytes": path.stat().st_size,
        "eer_percent": {},
    }
    store = Store(path).load()
    trials = list(read_trials(root / "trials.txt"))
    assessed = assess(store, trials, root, systems=SYSTEMS, jobs=jobs)
    for system, scores in assessed.scores.items():
        row["eer_percent"][system] = 100 * equal_error_rate(scores.target, scores.nontarget).rate
    with threadpool_limits(1):
        return row | claim_times(path, trials, root)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = []
    for row in rows:
        cells = [row["competing"], *decimals(*(row["eer_percent"][system] for system in SYSTEMS))]
        cells += [f"{row['machines']:,}", f"{row['store_bytes'] / 1e6:.0f}", f"{row['enroll_seconds']:.0f}"]
        cells += [f"{row['open_ms']:.0f}", f"{row['score_ms']:.1f}" if "score_ms" in row else "-"]
        lines.append(cells)
    head = ("competing", *SYSTEMS, "machines", "store MB", "enroll s", "open ms", "score ms")
    return markdown_table(head, lines, words=0)


def _order(row: dict[str, Any]) -> float:
    return float("inf") if row["competing"] == "all" else int(row["competing"])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--rivals", nargs="+", default=list(RIVALS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="rows of other numbers of rivals that are there already stay")
    options = parser.parse_args()
    known = options.json is not None and options.json.exists()
    rows = {row["competing"]: row for row in (json.loads(options.json.read_text()) if known else [])}
    for rivals in options.rivals:
        with tempfile.TemporaryDirectory() as work:
            rows[rivals] = measure(rivals, options.corpora, Path(work), options.jobs)
        print(json.dumps(rows[rivals]), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(sorted(rows.values(), key=_order), indent=1) + "\n")
    print(table(sorted(rows.values(), key=_order)))


if __name__ == "__main__":
    main()
