#!/usr/bin/env python3
"""Costs of perfect log-likelihood ratios on lists as short as ours, beside those of the shipped ratios.

    python benchmarks/perfect_ratios.py [--draws N] [--json OUT]

Reads benchmarks/results/real_speech.json. For each list as many true and false claims are drawn, independently, from
the two normal distributions whose log-likelihood ratio is the number drawn itself (means m and -m, variances 2 m, in
nats) and whose equal error rate is the one measured: every ratio is then exactly right. The library's own functions
compute the actual and the minimum cost of each draw. The minimum is fitted to the list itself by pooling, and exploits
every gap that chance leaves between few trials, so the actual cost of even perfect ratios stays above it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from tqdm import tqdm

from pipeline.metrics import (
    OperatingPoint,
    actual_cost,
    detection_cost,
    log_likelihood_ratio_cost,
    minimum_cllr,
)

RESULTS = Path(__file__).parent / "results" / "real_speech.json"
LISTS = (("commands30", "trials_test"), ("commands30", "trials_open"), ("libri158", "trials"), ("libri158", "unseen"))
SYSTEM = "fused"
POINT = OperatingPoint(prior=0.05)
WITHIN = {"cllr": 1.15, "dcf": 1.10}


def ratios(eer: float, targets: int, nontargets: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the actual Cllr and DCF of one draw, each divided by its minimum; infinite where the minimum is 0."""
    mean = 2.0 * norm.isf(eer) ** 2
    target = rng.normal(mean, np.sqrt(2 * mean), targets)
    nontarget = rng.normal(-mean, np.sqrt(2 * mean), nontargets)
    found = {
        "cllr": (log_likelihood_ratio_cost(target, nontarget), minimum_cllr(target, nontarget)),
        "dcf": (
            actual_cost(target, nontarget, prior=POINT.prior),
            detection_cost(target, nontarget, prior=POINT.prior).cost,
        ),
    }
    return {name: actual / least if least > 0 else np.inf for name, (actual, least) in found.items()}


def row(measured: dict[str, Any], stated: dict[str, Any], draws: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return quantiles for perfect ratios on one list, and the shipped ratios with its unknown impostors stated."""
    eer, counts = measured["eer_percent"] / 100, (measured["n_target"], measured["n_nontarget"])
    drawn = [ratios(eer, *counts, rng) for _ in tqdm(range(draws), disable=None)]
    found: dict[str, Any] = {"eer_percent": measured["eer_percent"], "targets": counts[0], "nontargets": counts[1]}
    ours, default = (
        {"cllr": figures["cllr"] / figures["min_cllr"], "dcf": figures["act_dcf"] / figures["min_dcf"]}
        for figures in (stated, measured)
    )
    for name, values in ((name, np.array([draw[name] for draw in drawn])) for name in WITHIN):
        low, median, high = np.quantile(values, (0.05, 0.5, 0.95), method="nearest").tolist()
        found |= {f"{name}_low": low, f"{name}_median": median, f"{name}_high": high}
        found |= {f"{name}_share_within": float(np.mean(values <= WITHIN[name]))}
        found |= {f"{name}_ours": ours[name], f"{name}_as_it_comes": default[name]}
        found[f"{name}_share_above_ours"] = float(np.mean(values >= ours[name]))
    return found


def markdown(rows: dict[str, dict[str, Any]]) -> str:
    """Return a table with a row for each list and cost."""
    head = "| list | EER % | true, false claims | cost | as it comes | stated | perfect: 5 %, median, 95 % | "
    lines = [head + "perfect, within | perfect, no better than stated |", "|---|---:|---:|---|---:|---:|---|---:|---:|"]
    for name, found in rows.items():
        what = f"| {name} | {found['eer_percent']:.2f} | {found['targets']}, {found['nontargets']} "
        for cost, most in WITHIN.items():
            quantiles = ", ".join(f"{found[f'{cost}_{part}']:.2f}" for part in ("low", "median", "high"))
            shares = f"{100 * found[f'{cost}_share_within']:.0f} % within {most:g}"
            above = f"{100 * found[f'{cost}_share_above_ours']:.0f} %"
            ours = f"{found[f'{cost}_as_it_comes']:.2f} | {found[f'{cost}_ours']:.2f}"
            lines.append(f"{what}| {cost} | {ours} | {quantiles} | {shares} | {above} |")
    return "\n".join(lines)


def main() -> None:
    """Draw, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    of_default = {(r["corpus"], r["list"]): r for r in json.loads(RESULTS.read_text()) if r["config"] == "default"}
    rng, rows = np.random.default_rng(0), {}
    for corpus, name in LISTS:
        found = of_default[corpus, name]
        stated = found["stated"]["systems"][SYSTEM]
        rows[f"{corpus} {name}"] = row(found["systems"][SYSTEM], stated, options.draws, rng)
    print(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps({"draws": options.draws, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
