#!/usr/bin/env python3
"""Error rates on real speech: the README's table, from the README's commands.

    python benchmarks/real_speech.py CORPORA [--quick] [--config NAME] [--json OUT]

CORPORA holds commands30 and libri158 (see the README for what they are). Every store is enrolled and every list
evaluated by the command line, as a user would. --quick leaves libri158 to the pair and one-class machines of the
default settings; --config runs one set of settings only. Exits with 1 if an error rate of the default settings on
commands30 is above its bound.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# EER percent on commands30/trials_test.txt that the default settings must not exceed.
BOUNDS = {"poao": 5.3, "rpoao": 5.7, "boao": 3.6, "worst_rival": 2.8}

NO_REST = ("--set", 'machines.kinds=["one_vs_one","one_class"]')
RUNS = (
    ("commands30", "xin2002", (), ("trials_dev", "trials_test")),
    ("commands30", "default", (), ("trials_dev", "trials_test")),
    ("commands30", "order20", (), ("trials_dev", "trials_test")),
    ("libri158", "xin2002", (), ("trials", "unseen")),
    ("libri158", "default", (), ("trials", "unseen")),
    ("libri158", "order20", (), ("trials", "unseen")),
)


def voiceclaim(*arguments: str) -> dict[str, Any]:
    """Run one command with --json and return what it printed."""
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", *arguments, "--json"]
    print("voiceclaim", *arguments, flush=True)
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(result.stdout))


def unseen_list(corpus: Path, out: Path) -> Path:
    """The target trials of trials.txt with the nontarget trials of voices that nobody enrolled."""
    targets = [line for line in (corpus / "trials.txt").read_text().splitlines() if line.endswith(" target")]
    nontargets = (corpus / "trials_unseen.txt").read_text().splitlines()
    path = out / "unseen.txt"
    path.write_text("\n".join([*targets, *nontargets]) + "\n")
    return path


def run(corpora: Path, work: Path, *, quick: bool, only: str | None) -> list[dict[str, Any]]:
    """Enroll and evaluate everything; one row a corpus, settings and list."""
    rows = []
    for corpus, config, extra, lists in RUNS:
        if only not in {None, config}:
            continue
        if quick and (config == "order20" or (corpus == "libri158" and config != "default")):
            continue
        options = NO_REST if quick and corpus == "libri158" else extra
        store, root = work / f"{corpus}-{config}", corpora / corpus
        enrolled = voiceclaim("enroll", str(root / "enroll"), "--store", str(store), "--config", config, *options)
        for name in lists:
            trials = unseen_list(root, work) if name == "unseen" else root / f"{name}.txt"
            out = work / f"{corpus}-{config}-{name}"
            found = voiceclaim("evaluate", str(store), str(trials), "--root", str(root), "--out", str(out))
            rows.append(
                {
                    "corpus": corpus,
                    "config": config,
                    "list": name,
                    "enroll_seconds": enrolled["elapsed_seconds"],
                    "machines": enrolled["machines"],
                    "systems": found["systems"],
                }
            )
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """EER percent, a row each."""
    systems = ("boar", "poar", "boao", "poao", "rpoao", "worst_rival", "refined_worst_rival")
    lines = [
        "| corpus | settings | list | " + " | ".join(systems) + " | enroll s |",
        "|---|---|---|" + "---:|" * (len(systems) + 1),
    ]
    for row in rows:
        rates = [row["systems"].get(system, {}).get("eer_percent") for system in systems]
        cells = ["-" if rate is None else f"{rate:.2f}" for rate in rates]
        lines.append(
            f"| {row['corpus']} | {row['config']} | {row['list']} | "
            + " | ".join(cells)
            + f" | {row['enroll_seconds']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run, print the table, check the bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--config")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        rows = run(options.corpora, Path(work), quick=options.quick, only=options.config)
    print(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    over = {
        name: rate
        for row in rows
        if (row["corpus"], row["config"], row["list"]) == ("commands30", "default", "trials_test")
        for name, bound in BOUNDS.items()
        if (rate := row["systems"][name]["eer_percent"]) > bound
    }
    if over:
        sys.exit(f"EER above its bound on commands30/trials_test.txt: {over}, bounds {BOUNDS}")


if __name__ == "__main__":
    main()
