"""Training pair and one-class machines: the package's solver against a loop over scikit-learn."""

from __future__ import annotations

import os

import numpy as np
import training
from claim_scoring import warped
from sklearn.svm import SVC, OneClassSVM
from speed.measuring import Figures, peak_gib
from speed.options import Options

from pipeline.machines.pairs import Pair, PairMachine
from pipeline.machines.pool import Pool
from pipeline.machines.smo import PoolSolver, SpeakerMachine

QUICK_PAIRS = 400  # scikit-learn machines that are timed in a quick run
Machines = tuple[list[SVC], list[OneClassSVM]]
Solutions = tuple[list[tuple[Pair, PairMachine, int]], list[SpeakerMachine]]


def measure(options: Options) -> Figures:
    """Measure both sides' seconds, and how far their margins are apart on speech frames."""
    config = options.config()
    settings = config.machines
    books, frames = training.codebooks(options.corpus, options.speakers, config)
    books = warped(books, options.speakers, seed=config.seed)
    training.here(books[:2], settings, 1)  # compiles
    pairs = training.all_pairs(len(books))
    step = -(-len(pairs) // QUICK_PAIRS) if options.quick else 1
    repeats, threads = 1 if options.quick else 3, os.cpu_count() or 1
    ours = [training.timed(lambda: training.here(books, settings, 1)) for _ in range(3)]
    threaded = [training.timed(lambda: training.here(books, settings, threads)) for _ in range(3)]
    theirs = [training.timed(lambda: training.peer(books, settings, pairs[::step])) for _ in range(repeats)]
    # One-class machines are a hundredth of the work, so they are scaled by the pairs' share.
    scale = (len(pairs) + len(books)) / (len(pairs[::step]) + len(books))
    blocks = training.timed(lambda: PoolSolver(Pool.of(books, settings.sigma)))
    seconds, their_seconds = (float(np.median([run.elapsed for run in runs])) for runs in (ours, theirs))
    return {
        "train.speakers": len(books),
        "train.centroids": len(books[0]),
        "train.dimension": books[0].shape[1],
        "train.machines": len(pairs) + len(books),
        "train.sampled_machines": len(pairs[::step]) + len(books),
        "train.threads": 1,
        "train.seconds": seconds,
        "train.sklearn_seconds": scale * their_seconds,
        "train.ratio_sklearn": scale * their_seconds / seconds,
        "train.all_threads": threads,
        "train.all_threads_seconds": float(np.median([run.elapsed for run in threaded])),
        "train.pair_milliseconds": 1e3 * seconds / len(pairs),
        "train.block_milliseconds": 1e3 * blocks.elapsed / len(books),
        "train.frames": len(frames),
        **agreement(theirs[-1].made, sampled(ours[-1].made, step), books, frames, settings.sigma),
        "train.peak_gib": peak_gib(),
    }


def sampled(solutions: Solutions, step: int) -> Solutions:
    """Return the machines that scikit-learn trains, too."""
    return solutions[0][::step], solutions[1]


def agreement(theirs: Machines, ours: Solutions, books: list[np.ndarray], frames: np.ndarray, sigma: float) -> Figures:
    """Return the largest difference of margins, and the share of frames decided alike, the worse of both kinds."""
    found = training.compared(theirs, ours, books, frames, sigma)
    return {
        "train.margin_difference": max(found["pair_margin_difference"], found["one_class_margin_difference"]),
        "train.alike": min(found["pair_alike"], found["one_class_alike"]),
    }
