#!/usr/bin/env python3
"""Orderings of systems in the paper that hold, and the C and one-class scale that make them hold.

    python benchmarks/paper_orderings.py CORPUS/enroll CORPUS/trials.txt [--speakers 50] [--set KEY=VALUE] [--nu]
                                         [--json OUT]

Xin, Wu and Pan 2002 report, on YOHO, POAR < BOAR and RPOAO < POAO < BOAO (EER), and give neither C nor the sum of the
one-class coefficients. Features and codebooks are those of configs/paper.toml and made once; the machines are trained
for each C, and the one-class margins scaled to each sum. A row names the orderings that held. --nu keeps C at 10 and
trains the one-class machines for each nu and scale instead; the scale "ratio" is (f - rho) / rho. --set
features.kind=lpc takes the LPC coefficients themselves in place of their cepstrum.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.config import Config, MachineConfig, load_config
from pipeline.evaluation import Trial, read_trials
from pipeline.features.frontend import read_features
from pipeline.features.stream import FeatureBlock
from pipeline.machines.codebook import fit_codebook
from pipeline.machines.margins import Population
from pipeline.machines.pool import Pool
from pipeline.machines.training import train_population
from pipeline.machines.workers import LocalThreads
from pipeline.metrics import equal_error_rate
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.resources import find_config
from pipeline.scoring.claims import ClaimScorer, ScoringSettings

SYSTEMS = ("boar", "poar", "boao", "poao", "rpoao", "worst_rival", "refined_worst_rival")
COSTS = (0.1, 1.0, 10.0, 100.0)
SCALES = ("schoelkopf", "libsvm", "100", "1000")
NUS = (0.01, 0.05, 0.1, 0.2, 0.5, 0.8)
NU_SCALES = ("schoelkopf", "libsvm", "ratio")
PAIR_SYSTEMS = ("boao", "poao", "rpoao", "refined_worst_rival")


def scaled(population: Population, total: float) -> Population:
    """Return the one-class machines with coefficients that sum to ``total`` per speaker (1 as trained)."""
    assert population.one_class_coef is not None and population.one_class_bias is not None  # noqa: S101
    return replace(
        population,
        one_class_coef=population.one_class_coef * total,
        one_class_bias=population.one_class_bias * total,
    )


def with_one_class(population: Population, settings: MachineConfig) -> Population:
    """Return the population with one-class machines of other ``settings``."""
    alone = train_population(population.pool, settings.model_copy(update={"kinds": ("one_class",)}))
    return replace(population, one_class_coef=alone.one_class_coef, one_class_bias=alone.one_class_bias)


def error_rates(
    population: Population,
    speech: dict[str, FeatureBlock],
    trials: list[Trial],
    names: list[str],
    jobs: int,
    systems: Sequence[str] = SYSTEMS,
) -> dict[str, float]:
    """Return the EER in percent of each system."""
    scorer = ClaimScorer(population, range(len(names)), systems, ScoringSettings(FixedSigmoid()))

    def score(path: str) -> dict[str, np.ndarray]:
        running = scorer.start()
        running.push(speech[path])
        return running.scores()

    scores = dict(
        zip(speech, Parallel(jobs, backend="threading")(delayed(score)(path) for path in speech), strict=True)
    )
    rates = {}
    for system in systems:
        values = np.array([scores[trial.path][system][names.index(trial.speaker)] for trial in trials])
        target = np.array([trial.target for trial in trials])
        rates[system] = 100 * equal_error_rate(values[target], values[~target]).rate
    return rates


def by_cost(
    pool: Pool, config: Config, speech: dict[str, FeatureBlock], trials: list[Trial], names: list[str], jobs: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each C and one-class scale."""
    for cost in tqdm(COSTS, disable=None):
        settings = config.machines.model_copy(update={"C": cost, "one_class_scale": "schoelkopf"})
        population = train_population(pool, settings, workers=LocalThreads(jobs))
        for scale in SCALES:
            totals = {"schoelkopf": 1.0, "libsvm": settings.nu * config.codebook.centroids}
            total = totals.get(scale) or float(scale)
            rates = error_rates(scaled(population, total), speech, trials, names, jobs)
            yield {"C": cost, "nu": settings.nu, "one_class_scale": scale, **rates}


def by_nu(
    pool: Pool, config: Config, speech: dict[str, FeatureBlock], trials: list[Trial], names: list[str], jobs: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each nu and one-class scale."""
    machines = config.machines.model_copy(update={"kinds": ("one_vs_one", "one_class")})
    population = train_population(pool, machines, workers=LocalThreads(jobs))
    for nu, scale in tqdm(list(product(NUS, NU_SCALES)), disable=None):
        settings = machines.model_copy(update={"nu": nu, "one_class_scale": scale})
        rates = error_rates(with_one_class(population, settings), speech, trials, names, jobs, PAIR_SYSTEMS)
        yield {"C": settings.C, "nu": nu, "one_class_scale": scale, **rates}


def main() -> None:
    """Sweep, print a row for each setting, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("enroll", type=Path)
    parser.add_argument("trials", type=Path)
    parser.add_argument("--speakers", type=int)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--nu", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = load_config(find_config("paper"), options.set)
    speakers = dict(list(read_corpus(options.enroll).speakers.items())[: options.speakers])
    names = list(speakers)

    def quantise(utterances: tuple[Utterance, ...]) -> np.ndarray:
        spoken = [read_features(utterance, config.features).vectors for utterance in utterances]
        return fit_codebook(np.concatenate(spoken), config.codebook, seed=config.seed)

    parallel = Parallel(options.jobs, backend="threading")
    rows = []
    with threadpool_limits(1):
        books = parallel(delayed(quantise)(utterances) for utterances in speakers.values())
        pool = Pool.of(books, config.machines.sigma)
        target_files = {
            trial.path for trial in read_trials(options.trials) if trial.speaker in speakers and trial.target
        }
        trials = [
            trial for trial in read_trials(options.trials) if trial.path in target_files and trial.speaker in speakers
        ]
        paths = list(dict.fromkeys(trial.path for trial in trials))
        read = parallel(
            delayed(read_features)(Utterance("", options.trials.parent / path), config.features) for path in paths
        )
        speech = dict(zip(paths, read, strict=True))
        sweep = by_nu if options.nu else by_cost
        for row in sweep(pool, config, speech, trials, names, options.jobs):
            rows.append(row)
            print(_row(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _row(row: dict[str, Any]) -> str:
    held = [
        name
        for name, holds in (
            ("POAR<BOAR", "poar" in row and row["poar"] < row["boar"]),
            ("RPOAO<POAO", row["rpoao"] < row["poao"]),
            ("POAO<BOAO", row["poao"] < row["boao"]),
        )
        if holds
    ]
    rates = "  ".join(f"{system} {row[system]:5.2f}" for system in SYSTEMS if system in row)
    return f"C {row['C']:5g}  nu {row['nu']:4g}  scale {row['one_class_scale']:10}  {rates}  {' '.join(held)}"


if __name__ == "__main__":
    main()
