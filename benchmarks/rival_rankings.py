#!/usr/bin/env python3
"""How a speaker's hardest rivals are best ranked: worst-rival errors with the first R of several rankings.

    python benchmarks/rival_rankings.py CORPORA

CORPORA holds commands30, whose development list is scored: each claim against the R first rivals alone, of machines
that were trained against everybody.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipeline.codebook import fit_codebook
from pipeline.config import load_config
from pipeline.corpus import Utterance, read_corpus
from pipeline.evaluation import equal_error_rate, read_trials
from pipeline.features.stream import joined
from pipeline.frontend import read_features
from pipeline.machines.assembly import train_population
from pipeline.machines.pool import Pool
from pipeline.machines.rivals import Hardness, hardest
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.scoring import ClaimScorer, ScoringSettings

Array = NDArray[np.float64]
CONFIG = load_config(None, ['machines.kinds=["one_vs_one","one_class"]'])
RIVALS = (3, 5, 10, 15, 29)
DRAWS = 3  # of chance, which are averaged


def codebooks(root: Path) -> dict[str, Array]:
    """Of everybody, by name."""
    books = {}
    for name, utterances in read_corpus(root / "enroll").speakers.items():
        speech = [read_features(utterance, CONFIG.features, None).speech for utterance in utterances]
        heard = joined([block for block in speech if len(block.vectors)])
        books[name] = fit_codebook(heard.vectors, CONFIG.codebook, seed=CONFIG.seed)
    return books


def rankings(pool: Pool) -> dict[str, list[Array]]:
    """Tables (N, N) of how hard each rival is, by the ranking's name; those of chance are several."""

    def table(of: Callable[[int, int], float]) -> Array:
        return np.array([[of(one, other) for other in range(len(pool))] for one in range(len(pool))])

    def largest(one: int, other: int) -> float:
        kernel = pool.gram(one, other)
        return float(kernel.max(axis=0).mean() + kernel.max(axis=1).mean())

    return {
        "cosine of kernel means": [table(Hardness(pool))],
        "mean kernel value": [table(lambda one, other: float(pool.gram(one, other).mean()))],
        "mean of largest kernel values": [table(largest)],
        "chance": [np.random.default_rng(seed).random((len(pool), len(pool))) for seed in range(DRAWS)],
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    root = parser.parse_args().corpora / "commands30"
    with threadpool_limits(1):
        books = codebooks(root)
        pool, names = Pool.of(list(books.values()), CONFIG.machines.sigma), list(books)
        scorer = ClaimScorer(
            train_population(pool, CONFIG.machines), range(len(pool)), ["worst_rival"], ScoringSettings(FixedSigmoid())
        )
        trials, means = list(read_trials(root / "trials_dev.txt")), {}
        for path in {trial.path for trial in trials}:
            running = scorer.start()
            running.push(read_features(Utterance("", root / path), CONFIG.features, None).speech)
            means[path] = running.sums["worst_rival"] / running.frames
    target = np.array([trial.target for trial in trials])
    print("| rivals are ranked by | " + " | ".join(map(str, RIVALS)) + " |\n|---|" + "---:|" * len(RIVALS))
    for ranking, tables in rankings(pool).items():
        rates = np.zeros((len(tables), len(RIVALS)))
        for draw, values in enumerate(tables):
            np.fill_diagonal(values, -np.inf)
            for column, most in enumerate(RIVALS):
                panels = [hardest(row, most) for row in values]
                claims = [names.index(trial.speaker) for trial in trials]
                found = [means[trial.path][n, panels[n]].min() for trial, n in zip(trials, claims, strict=True)]
                scores = np.array(found)
                rates[draw, column] = 100 * equal_error_rate(scores[target], scores[~target]).rate
        print(f"| {ranking} | " + " | ".join(f"{rate:.2f}" for rate in rates.mean(axis=0)) + " |", flush=True)


if __name__ == "__main__":
    main()
