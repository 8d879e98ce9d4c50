#!/usr/bin/env python3
"""Error rates in conditions that are absent from the augmentation: one kind is left out at a time.

    pip install '.[bench]'
    python -m benchmarks.left_out CORPORA [--only GLOB] [--kinds KIND ...] [--jobs N] [--json OUT]

CORPORA holds commands30 (docs/results.md says what it is). Its speakers are enrolled with the default settings, and
then once for each kind of augmentation, without that kind; files of trials_dev are degraded as that kind does and
verified against both stores. Other kinds may be close to the one left out: a telephone line is a band with a codec.
Conditions are those of ``benchmarks/robustness.py``; random codecs, bands and noises are drawn as the augmentation
draws them, by the file and not by what was enrolled.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import pipeline
from benchmarks.robustness import Bench, Condition, Scene, conditions
from benchmarks.tables import decimals, markdown_table
from pipeline.audio.augmentation import by_codec, in_a_band, mix_at_snr
from pipeline.audio.channels import coloured_noise
from pipeline.audio.streams import Samples

# Rows of robustness.py that test each kind, by name; the functions below stand in for kinds that have none.
ROWS = {
    "telephone": ("telephone",),
    "babble": ("babble, 10 dB",),
    "noise": ("white noise, 20 dB", "white noise, 10 dB"),
    "room": ("room, RT60 0.3 s", "room, RT60 0.6 s"),
    "codec": ("random codec", "mu-law alone", "MP3", "Opus"),
    "band": ("random band",),
    "coloured": ("coloured noise, 10 dB",),
}


def at_random(
    samples: Samples, scene: Scene, *, channel: Callable[[Samples, int, np.random.Generator], Samples]
) -> Samples:
    """Send through a channel that the file's generator draws."""
    return channel(samples, scene.rate, scene.rng)


def under_coloured_noise(samples: Samples, scene: Scene, *, snr_db: float) -> Samples:
    """Add noise of a random colour at a ratio."""
    return mix_at_snr(samples, coloured_noise(len(samples), scene.rate, scene.rng), snr_db)


def rows_of() -> dict[str, Condition]:
    """Return every condition by name."""
    more = (
        Condition("random codec", partial(at_random, channel=by_codec)),
        Condition("random band", partial(at_random, channel=in_a_band)),
        Condition("coloured noise, 10 dB", partial(under_coloured_noise, snr_db=10.0)),
    )
    return {row.name: row for row in (*conditions(), *more)}


def measured(root: Path, kinds: Sequence[str], *, only: str, jobs: int) -> list[dict[str, Any]]:
    """Return a row per condition, with the rates of the default and of the default without the condition's kind."""
    trials, by_name, config = pipeline.read_trials(root / "trials_dev.txt"), rows_of(), pipeline.load_config()
    known = config.augmentation.kinds
    wanted = {kind: [by_name[name] for name in ROWS[kind] if name in by_name] for kind in kinds}
    rows: list[dict[str, Any]] = []

    def bench_of(taught: Sequence[str], work: str) -> Bench:
        settings = pipeline.load_config(overrides=[f"augmentation.kinds={json.dumps(taught)}"])
        return Bench(root, trials, settings, only=only, work=Path(work), jobs=jobs)

    with tempfile.TemporaryDirectory() as work:
        everything = bench_of(known, work)
        for kind, its_rows in wanted.items():
            rows += [{"kind": kind, **everything.row(row)} for row in its_rows]
    for kind, its_rows in wanted.items():
        with tempfile.TemporaryDirectory() as work:
            without = bench_of([other for other in known if other != kind], work)
            for row in its_rows:
                (at,) = (one for one in rows if one["condition"] == row.name)
                at["left_out"] = rates = without.row(row)
                print(kind, row.name, at["eer_percent"], rates["eer_percent"], flush=True)
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a row for each condition, and the means."""
    fields = ("eer_percent", "false_accept_percent", "false_reject_percent")
    rates = [[one[field] for one in (row, row["left_out"]) for field in fields] for row in rows]
    lines = [(row["kind"], row["condition"], *decimals(*its)) for row, its in zip(rows, rates, strict=True)]
    means = decimals(*map(fmean, zip(*rates, strict=True)))
    head = ("kind left out", "condition", "EER", "FA", "FR", "left out: EER", "FA", "FR")
    return markdown_table(head, [*lines, ("", "mean", *means)], words=2)


def main() -> None:
    """Run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--kinds", nargs="+", choices=tuple(ROWS), default=tuple(ROWS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kinds = [kind for kind in ROWS if kind in options.kinds]
    rows = measured(options.corpora / "commands30", kinds, only=options.only, jobs=options.jobs)
    print(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps({"list": "trials_dev", "only": options.only, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
