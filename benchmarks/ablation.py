#!/usr/bin/env python3
"""What each idea gives: one table, every row the default settings with one thing changed.

    python benchmarks/ablation.py CORPORA [--only GROUP] [--json OUT]

CORPORA holds commands30 (see the README). Only its development list is looked at: as it is, through a telephone, and
under six other voices at 10 dB (made here from the phrases and the enrollment audio). Columns are EER in percent of
systems on those lists, and of the default system on utterances held out at enrollment claimed by outsiders, whom no
machine ever heard. --only runs one group; a JSON file that exists is added to, row by row, so that a run can go on.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from pipeline.assessment import assess
from pipeline.config import load_config
from pipeline.corpus import read_corpus
from pipeline.degradation import babble, mix_at_snr, telephone
from pipeline.enrollment import enroll
from pipeline.evaluation import equal_error_rate, read_trials
from pipeline.store import SpeakerStore

CONFIGS = Path(__file__).parent.parent / "configs"
SHOWN = ("boao", "poao", "worst_rival", "refined_worst_rival", "segment", "segment_rival", "fused")
LISTS = ("clean", "telephone", "babble10")
BOTH = 'machines.kinds=["one_vs_one","one_class","segment"]'
SEGMENT = 'machines.kinds=["one_class","segment"]'
ALONE = (SEGMENT, "scoring.system=segment_rival")

# (group, idea, settings file, overrides)
ROWS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("rules", "default", "default", (BOTH,)),
    ("features", "12th-order LPC cepstrum (order12.toml)", "order12", (BOTH,)),
    ("features", "20th-order LPC cepstrum", "default", (BOTH, "features.kind=lpcc", "machines.sigma=0.5")),
    ("features", "12th-order perceptual LPC", "default", (BOTH, "features.order=12")),
    ("features", "24th-order perceptual LPC", "default", (BOTH, "features.order=24")),
    ("features", "no compression", "default", (BOTH, "features.compression=1.0")),
    ("features", "20 MFCC", "default", (BOTH, "features.kind=mfcc")),
    ("features", "no deltas", "default", (BOTH, "features.deltas=false")),
    ("features", "8 kHz", "default", (BOTH, "features.rate=8000")),
    ("features", "lenient speech gate", "default", (BOTH, "features.gate.most_margin_db=8.0")),
    ("frames", "sigma 0.5", "default", (BOTH, "machines.sigma=0.5")),
    ("frames", "sigma 0.2", "default", (BOTH, "machines.sigma=0.2")),
    ("frames", "400 centroids", "default", (BOTH, "codebook.centroids=400")),
    ("segments", "64 components", "default", (*ALONE, "segments.components=64")),
    ("segments", "512 components", "default", (*ALONE, "segments.components=512")),
    ("segments", "ridge 0.3", "default", (*ALONE, "segments.ridge=0.3")),
    ("segments", "stretches of 1 s", "default", (*ALONE, "segments.seconds=1.0")),
    ("segments", "loud frames count (15 dB)", "default", (*ALONE, "segments.half_db=15.0")),
    ("copies", "no copies", "robust", ("copies.kinds=[]",)),
    ("copies", "telephone", "robust", ('copies.kinds=["telephone"]',)),
    ("copies", "babble", "robust", ('copies.kinds=["babble"]',)),
    ("copies", "robust.toml", "robust", ()),
    ("copies", "all frames count alike (30 dB)", "robust", ("segments.half_db=30.0",)),
    ("copies", "512 components", "robust", ("segments.components=512",)),
    ("copies", "12th-order LPC cepstrum", "robust", ("features.kind=lpcc", "features.order=12")),
)


def degraded_lists(root: Path, work: Path) -> dict[str, Path]:
    """Folder of each version of the development phrases, under the paths that the trial list names."""
    sources = [soundfile.read(utterances[0].path)[0] for utterances in read_corpus(root / "enroll").speakers.values()]
    random = np.random.default_rng(0)
    for path in sorted({trial.path for trial in read_trials(root / "trials_dev.txt")}):
        samples, rate = soundfile.read(root / path)
        versions = {
            "telephone": telephone(samples, rate),
            "babble10": mix_at_snr(samples, babble(sources, len(samples), random), 10.0),
        }
        for name, version in versions.items():
            (work / name / path).parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(work / name / path, np.clip(version, -1.0, 1.0), rate)
    return {"clean": root, "telephone": work / "telephone", "babble10": work / "babble10"}


def measure(
    root: Path, folders: dict[str, Path], config: str, overrides: tuple[str, ...], work: Path
) -> dict[str, Any]:
    """Enroll and score one row."""
    settings = load_config(CONFIGS / f"{config}.toml", overrides)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=work) as folder:
        store = enroll(Path(folder) / "store", read_corpus(root / "enroll").speakers, settings, jobs=2).store
        seconds = time.perf_counter() - started
        trials = read_trials(root / "trials_dev.txt")
        rates = {}
        for name, audio in folders.items():
            found = assess(store, trials, audio, systems=[s for s in SHOWN if s in store.systems], jobs=2).scores
            rates[name] = {s: 100 * equal_error_rate(x.target, x.nontarget).rate for s, x in found.items()}
        return {"enroll_seconds": seconds, "eer_percent": rates, "outsiders_percent": outsiders(store)}


def outsiders(store: SpeakerStore) -> float:
    """EER in percent of the default system on the held-out trials, false claims by outsiders only."""
    trials, system = store.trials, store.config.scoring.system
    calibration = store.calibration(system)
    if trials is None or calibration is None:
        raise SystemExit(f"{store.path}: no held-out trials to measure")
    llrs = calibration.llr(trials.scores, trials.frames.astype(float))
    return 100 * equal_error_rate(llrs[trials.claims == trials.speakers], llrs[trials.outsider]).rate


def markdown(rows: list[dict[str, Any]]) -> str:
    """One line a row."""
    columns = [("clean", s) for s in SHOWN] + [(name, s) for name in LISTS[1:] for s in ("segment_rival", "fused")]
    titles = [s if name == "clean" else f"{s}, {name}" for name, s in columns]
    lines = [
        "| group | idea | " + " | ".join(titles) + " | outsiders, held out | enroll s |",
        "|---|---|" + "---:|" * (len(columns) + 2),
    ]
    for row in rows:
        rates = [row["eer_percent"][name].get(s) for name, s in columns]
        cells = ["-" if rate is None else f"{rate:.2f}" for rate in rates]
        lines.append(
            f"| {row['group']} | {row['idea']} | {' | '.join(cells)} | {row['outsiders_percent']:.2f} |"
            f" {row['enroll_seconds']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the rows that are not in the JSON file yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--only", default="*", metavar="GROUP")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    root = options.corpora / "commands30"
    rows = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    done = {(row["group"], row["idea"]) for row in rows}
    with tempfile.TemporaryDirectory() as work:
        folders = degraded_lists(root, Path(work))
        for group, idea, config, overrides in ROWS:
            if (group, idea) in done or not fnmatch(group, options.only):
                continue
            found = measure(root, folders, config, overrides, Path(work))
            rows.append({"group": group, "idea": idea, "config": config, "overrides": overrides, **found})
            print(markdown(rows[-1:]).splitlines()[-1], flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(markdown(rows))


if __name__ == "__main__":
    main()
