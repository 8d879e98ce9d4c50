#!/usr/bin/env python3
"""Ablation: a table in which every row is the default settings with one thing changed.

    python benchmarks/ablation.py CORPORA [--only GROUP] [--json OUT]

CORPORA holds commands30 (docs/results.md says what it is). Only its development list is used: as it is, through a
telephone, and under six other voices at 10 dB (made here from the phrases and the enrollment audio). Columns are EER in
percent of systems on those lists, and of the default system on utterances held out at enrollment claimed by unknown
impostors. --only runs one group. Rows are added one by one to an existing JSON file, so an interrupted run can go on.
No row has one-vs-rest machines, which none of these systems reads; those of "segments" and "branches" have machines
over utterances alone. Group "posteriors" compares maps from margins to posteriors under the systems that read them, on
the list as it is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.tables import decimals, markdown_table
from pipeline.audio.augmentation import babble, mix_at_snr
from pipeline.audio.channels import telephone
from pipeline.audio.corpus import read_corpus
from pipeline.config import load_config
from pipeline.enrollment.enroll import enroll
from pipeline.evaluation import read_trials
from pipeline.evaluation.assess import assess
from pipeline.metrics import equal_error_rate
from pipeline.store.model import SpeakerModel

CONFIGS = Path(__file__).parent.parent / "configs"
SHOWN = (
    *("boao", "poao", "worst_rival", "refined_worst_rival", "supervector", "supervector_rival", "gmm", "gmm_rival"),
    *("normalised_supervector", "normalised_supervector_rival", "normalised_gmm_rival", "pitch_rival", "fused"),
)
CHANGED = ("supervector_rival", "normalised_supervector_rival", "fused")  # shown on the changed lists
LISTS = ("clean", "telephone", "babble10")
READING_POSTERIORS = ("poao", "rpoao", "worst_rival", "refined_worst_rival", "fused")
POSTERIORS = "posteriors"
ALONE = ('machines.kinds=["one_class","supervector"]', "scoring.system=supervector_rival")
NORMALISED = (
    'machines.kinds=["one_class","normalised_supervector"]',
    "scoring.system=normalised_supervector_rival",
)
FRAMES = 'machines.kinds=["one_vs_one","one_class","supervector","normalised_supervector"]'
RAW = 'machines.kinds=["one_vs_one","one_class","supervector","gmm"]'

# (group, idea, settings file, overrides)
ROWS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("rules", "default", "default", ()),
    ("rules", "lean.toml", "lean", ()),
    ("rules", "no machines over normalised utterances", "default", (RAW,)),
    ("features", "8 kHz", "default", ("features.rate=8000",)),
    ("features", "no deltas", "default", ("features.deltas=false",)),
    ("features of frames", "12 LPC coefficients", "default", ("features.kind=lpc",)),
    ("features of frames", "20th-order LPC cepstrum", "default", ("features.order=20",)),
    (
        "features of utterances",
        "12th-order LPC cepstrum",
        "default",
        ("features.supervector.kind=lpcc", "features.supervector.order=12"),
    ),
    ("features of utterances", "20th-order LPC cepstrum", "default", ("features.supervector.kind=lpcc",)),
    ("features of utterances", "no compression", "default", ("features.supervector.compression=1.0",)),
    ("features of utterances", "20 MFCC", "default", ("features.supervector.kind=mfcc",)),
    ("frames", "sigma 0.3", "default", ("machines.sigma=0.3",)),
    ("frames", "400 centroids", "default", ("codebook.centroids=400",)),
    ("segments", "64 components", "default", (*ALONE, "ubm.components=64")),
    ("segments", "512 components", "default", (*ALONE, "ubm.components=512")),
    ("segments", "ridge 0.3", "default", (*ALONE, "supervector.ridge=0.3")),
    ("segments", "segments of 1 s", "default", (*ALONE, "supervector.segment_seconds=1.0")),
    ("gmm", "no speaker models", "default", (FRAMES,)),
    ("gmm", "512 components", "default", ("ubm.components=512",)),
    ("gmm", "no pseudo-speakers", "default", ("supervector.speeds_below=0",)),
    ("branches", "normalised machines alone", "default", NORMALISED),
    ("branches", "no augmentation", "default", (*NORMALISED, "augmentation.kinds=[]")),
    ("branches", "telephone alone", "default", (*NORMALISED, 'augmentation.kinds=["telephone"]')),
    ("branches", "babble alone", "default", (*NORMALISED, 'augmentation.kinds=["babble"]')),
    (
        "branches",
        "telephone, babble and white noise",
        "default",
        (*NORMALISED, 'augmentation.kinds=["telephone","babble","noise"]'),
    ),
    ("branches", "versions of every utterance", "default", (*NORMALISED, "augmentation.share=1.0")),
    (POSTERIORS, "fixed", "default", ()),
    (POSTERIORS, "fixed, slope 4", "default", ("posterior.slope=4.0",)),
)


def shown(group: str) -> list[tuple[str, str]]:
    """Return the columns of a group's table: (list, system)."""
    if group == POSTERIORS:
        return [("clean", system) for system in READING_POSTERIORS]
    return [("clean", s) for s in SHOWN] + [(name, s) for name in LISTS[1:] for s in CHANGED]


def degraded_lists(root: Path, work: Path) -> dict[str, Path]:
    """Return the folder of each version of the development phrases, under the paths that the trial list names."""
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
    root: Path,
    folders: dict[str, Path],
    config: str,
    overrides: tuple[str, ...],
    work: Path,
    systems: tuple[str, ...],
) -> dict[str, Any]:
    """Enroll one row and score it under those of ``systems`` that it has machines for."""
    settings = load_config(CONFIGS / f"{config}.toml", overrides)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        path = Path(folder) / "store"
        store = enroll(path, read_corpus(root / "enroll").speakers, settings, jobs=2).model
        trials = read_trials(root / "trials_dev.txt")
        rates = {}
        for name, audio in folders.items():
            scores = assess(store, trials, audio, systems=[s for s in systems if s in store.systems], jobs=2).scores
            rates[name] = {s: 100 * equal_error_rate(x.target, x.nontarget).rate for s, x in scores.items()}
        return {"eer_percent": rates, "outsiders_percent": unknown_impostors(store)}


def unknown_impostors(store: SpeakerModel) -> float:
    """Return the EER in percent of the default system on held-out trials, false claims by unknown impostors only."""
    trials, system = store.trials(), store.config.scoring.system
    calibration = store.calibration(system)
    if trials is None or calibration is None:
        raise SystemExit(f"{store.where}: no held-out trials to measure")
    llrs = calibration.llr(trials.scores, trials.frames.astype(float))
    return 100 * equal_error_rate(llrs[trials.claims == trials.speakers], llrs[trials.unknown]).rate


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table for each set of columns, one line for each row."""
    by_columns: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for row in rows:
        by_columns.setdefault(tuple(shown(row["group"])), []).append(row)
    return "\n\n".join(table(its_rows, columns) for columns, its_rows in by_columns.items())


def table(rows: list[dict[str, Any]], columns: tuple[tuple[str, str], ...]) -> str:
    """Return a table with one line for each row."""
    titles = [s if name == "clean" else f"{s}, {name}" for name, s in columns]
    lines = []
    for row in rows:
        rates = [row["eer_percent"][name].get(s) for name, s in columns]
        lines.append([row["group"], row["idea"], *decimals(*rates, row["outsiders_percent"])])
    return markdown_table(("group", "idea", *titles, "unknown impostors, held out"), lines, words=2)


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
        rest = [row for row in ROWS if fnmatch(row[0], options.only) and row[:2] not in done]
        clean_only = all(group == POSTERIORS for group, *_ in rest)
        folders = {"clean": root} if clean_only else degraded_lists(root, Path(work))
        for group, idea, config, overrides in rest:
            systems = READING_POSTERIORS if group == POSTERIORS else SHOWN
            lists = {name: folders[name] for name, _ in shown(group)}
            measured = measure(root, lists, config, overrides, Path(work), systems)
            rows.append({"group": group, "idea": idea, "config": config, "overrides": overrides, **measured})
            print(markdown(rows[-1:]).splitlines()[-1], flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(markdown(rows))


if __name__ == "__main__":
    main()
