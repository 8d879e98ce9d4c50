#!/usr/bin/env python3
"""Scoring one claim: this package against looping over scikit-learn's SVC.decision_function, in one run.

    python benchmarks/claim_scoring.py [--corpus DIR] [--speakers 50] [--json OUT]

The machines are the same: scikit-learn trains each on the codebooks, and its support vectors' coefficients are put
into the pool. Margins are checked to agree before anything is timed. Three rows: the machines that one claim needs
(N - 1 pairs and N one-class), the same in float32, and every machine (identification). scikit-learn is timed on
margins alone, this package on margins and the score. One thread.

--corpus is a folder of speakers to take codebooks from; without it, speakers are made from the centroids of the demo
corpus's voices by random rotation and shift, which does not change the computing time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import SVC, OneClassSVM
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from pipeline.audio.corpus import read_corpus
from pipeline.config import Config, load_config
from pipeline.features.frontend import read_features
from pipeline.features.stream import FeatureBlock
from pipeline.machines.codebook import fit_codebook
from pipeline.machines.margins import MarginScorer, Population
from pipeline.machines.pairs import PairMachine, Pairs
from pipeline.machines.pool import Pool
from pipeline.posteriors.sigmoid import FixedSigmoid
from pipeline.resources import demo_folder
from pipeline.scoring.claims import ClaimScorer, ScoringSettings

SYSTEM = "refined_worst_rival"
FRAMES = 238  # 30 ms frames every 10 ms in 2.4 s


def codebooks(corpus: Path | None, count: int, config: Config) -> tuple[list[np.ndarray], np.ndarray]:
    """Return ``count`` speakers' centroids, and the speech vectors of one 2.4 s utterance."""
    speakers = list(read_corpus(corpus or demo_folder() / "enroll").speakers.values())[:count]
    spoken = [
        np.concatenate([read_features(utterance, config.features).vectors for utterance in utterances])
        for utterances in tqdm(speakers, desc="reading", disable=None)
    ]
    books = [fit_codebook(vectors, config.codebook, seed=config.seed) for vectors in spoken]
    frames = np.resize(spoken[0], (FRAMES, spoken[0].shape[1]))
    return warped(books, count, seed=config.seed), frames


def warped(books: list[np.ndarray], count: int, *, seed: int) -> list[np.ndarray]:
    """Return ``count`` codebooks: ``books``, and others made of these by a small random rotation and shift."""
    rng, made, dimension = np.random.default_rng(seed), list(books), books[0].shape[1]
    while len(made) < count:
        rotation, _ = np.linalg.qr(np.eye(dimension) + 0.1 * rng.standard_normal((dimension, dimension)))
        made.append(made[len(made) % len(books)] @ rotation + 0.05 * rng.standard_normal(dimension))
    return made


def train(pool: Pool, config: Config) -> tuple[Population, dict[tuple[int, int], SVC], list[OneClassSVM]]:
    """Return scikit-learn's machines, and the same as arrays over the pool."""
    settings, gamma = config.machines, 1 / (2 * config.machines.sigma**2)
    pairs, machines = {}, {}
    for own in tqdm(range(len(pool)), desc="training", disable=None):
        for rival in range(own):
            count = len(pool.codebook(own))
            points = np.concatenate((pool.codebook(own), pool.codebook(rival)))
            machine = SVC(C=settings.C, gamma=gamma).fit(points, np.where(np.arange(len(points)) < count, 1, -1))
            coef = np.zeros(len(points))
            coef[machine.support_] = machine.dual_coef_[0]
            machines[own, rival] = PairMachine(coef[:count], -coef[count:], float(machine.intercept_[0]))
            pairs[own, rival] = machine
    alone = [OneClassSVM(nu=settings.nu, gamma=gamma).fit(pool.codebook(n)) for n in range(len(pool))]
    coefs = []
    for n, machine in enumerate(alone):
        coefs.append(np.zeros(len(pool.codebook(n))))
        coefs[n][machine.support_] = machine.dual_coef_[0]
    population = Population(
        pool,
        pairs=Pairs(machines),
        one_class_coef=np.concatenate(coefs),
        one_class_bias=np.array([machine.intercept_[0] for machine in alone]),
    )
    return population, pairs, alone


def scoring(population: Population, claims: np.ndarray, frames: np.ndarray, dtype: str) -> Callable[[], Any]:
    """Return the call that scores ``frames`` for ``claims`` by SYSTEM, its machines made ready beforehand."""
    speech = FeatureBlock(frames, len(frames), np.zeros(len(frames)))
    scorer = ClaimScorer(population, claims, [SYSTEM], ScoringSettings(FixedSigmoid(), dtype))

    def score() -> Any:
        running = scorer.start()
        running.push(speech)
        return running.scores()

    return score


def best_of(function: Callable[[], Any], *, seconds: float = 2.0) -> float:
    """Return the median seconds of a call, over as many calls as fit in ``seconds`` (three at least)."""
    times: list[float] = []
    function()
    while sum(times) < seconds or len(times) < 3:
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def main() -> None:
    """Measure, print a table, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--speakers", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = load_config(None, [] if options.corpus else ["features.rate=8000"])
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("error")
        books, frames = codebooks(options.corpus, options.speakers, config)
        pool = Pool.of(books, config.machines.sigma)
        population, pairs, alone = train(pool, config)
        claim = len(pool) // 2
        everybody = np.arange(len(pool))

        def loop_claim() -> list[np.ndarray]:
            needed = [machine for pair, machine in pairs.items() if claim in pair]
            return [machine.decision_function(frames) for machine in [*needed, *alone]]

        def loop_all() -> list[np.ndarray]:
            return [machine.decision_function(frames) for machine in [*pairs.values(), *alone]]

        worst = check(population, pairs, alone, frames, claim)
        one = np.array([claim])
        claim_loop, all_loop = best_of(loop_claim), best_of(loop_all, seconds=0)
        rows = [
            ("one claim, float64", 2 * len(pool) - 1, claim_loop, best_of(scoring(population, one, frames, "float64"))),
            ("one claim, float32", 2 * len(pool) - 1, claim_loop, best_of(scoring(population, one, frames, "float32"))),
            (
                *("every machine, float64", len(pairs) + len(alone)),
                *(all_loop, best_of(scoring(population, everybody, frames, "float64"))),
            ),
        ]
    print(f"{len(pool)} speakers, {len(pool.centroids)} centroids, {len(frames)} frames, one thread;")
    print(f"margins agree with decision_function to {worst:.1e} (float64)")
    print(f"{'':24}{'machines':>9}{'scikit-learn ms':>17}{'here ms':>9}{'ratio':>7}")
    for name, machines, loop, here in rows:
        print(f"{name:24}{machines:9}{1e3 * loop:17.1f}{1e3 * here:9.2f}{loop / here:7.0f}")
    if options.json:
        keys = ("case", "machines", "scikit_learn_seconds", "seconds")
        options.json.write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1) + "\n")
    if worst > 1e-9:
        sys.exit("the margins do not agree")


def check(
    population: Population,
    pairs: dict[tuple[int, int], SVC],
    alone: list[OneClassSVM],
    frames: np.ndarray,
    claim: int,
) -> float:
    """Return the largest difference of the claim's pair margins and all one-class margins from decision_function."""
    margins = MarginScorer(population, np.array([claim]), frozenset({"one_vs_one", "one_class"}))(frames)
    assert margins.pair is not None and margins.one_class is not None  # noqa: S101
    worst = 0.0
    for (own, rival), machine in pairs.items():
        if claim in (own, rival):
            sign, other = (1, rival) if own == claim else (-1, own)
            worst = max(worst, np.abs(sign * machine.decision_function(frames) - margins.pair[:, 0, other]).max())
    for n, machine in enumerate(alone):
        worst = max(worst, np.abs(machine.decision_function(frames) - margins.one_class[:, n]).max())
    return float(worst)


if __name__ == "__main__":
    main()
