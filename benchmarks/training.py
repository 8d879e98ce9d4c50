#!/usr/bin/env python3
"""Training pair and one-class machines: this package's solver against a loop over scikit-learn, in one run.

    python benchmarks/training.py CORPORA [--speakers 50] [--repeats 3] [--only GLOB] [--rest 8] [--adding 50 158]
                                  [--random 1000] [--json OUT]

CORPORA holds commands30 and libri158 (docs/results.md says what they are). Codebooks are made from the first speakers'
enrollment audio with the settings of each row. scikit-learn fits SVC(kernel="rbf") to each pair and
OneClassSVM(kernel="rbf") to each speaker, at the same C, nu, gamma and tolerance, one after the other on one thread;
the solver does the same on one and on two threads. Each repetition times all three; the reported ratios are the median,
minimum and maximum of elapsed time. The ratio of processor time on one thread does not depend on other programs.

Every machine's margins are then compared on speech frames of the utterances to be verified. Beside these rows: a few
one-vs-rest machines over all speakers of libri158 (--rest), on one thread; adding one speaker to populations of it
(--adding, sizes with the new speaker), which must give the same bits as training all; the dual objectives and the
duality gaps on problems made up at random (--random); and the time that the first training of an installation takes to
compile the kernels, and later ones to read them from numba's cache.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, OneClassSVM
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from pipeline.audio.corpus import read_corpus
from pipeline.config import Config, MachineConfig, load_config
from pipeline.features.frontend import read_features
from pipeline.machines.codebook import fit_codebook
from pipeline.machines.one_vs_rest import RestSolver
from pipeline.machines.pairs import Pair, PairMachine
from pipeline.machines.pool import Pool
from pipeline.machines.smo import TOLERANCE, PoolSolver, SpeakerMachine
from pipeline.machines.training import one_vs_rest, train_population

CONFIGS = Path(__file__).parent.parent / "configs"
ROWS = (("libri158", "default"), ("libri158", "paper"), ("commands30", "default"))
FRAMES_A_SPEAKER = 20
COMPILING = (
    "import time; started = time.perf_counter(); import pipeline.machines.smo_kernels; "
    "print(time.perf_counter() - started)"
)


@dataclass
class Timed:
    """Result of one repetition, with its elapsed and processor seconds."""

    made: Any
    elapsed: float
    processor: float


def timed(function: Callable[[], Any]) -> Timed:
    """Call once."""
    elapsed, processor = time.perf_counter(), time.process_time()
    made = function()
    return Timed(made, time.perf_counter() - elapsed, time.process_time() - processor)


def codebooks(corpus: Path, speakers: int, config: Config) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the first speakers' centroids, and speech frames (T, d) of their recordings to verify."""
    books, frames = [], []
    spoken = read_corpus(corpus / "verify").speakers
    for name, utterances in tqdm(list(read_corpus(corpus / "enroll").speakers.items())[:speakers], disable=None):
        vectors = np.concatenate([read_features(utterance, config.features).vectors for utterance in utterances])
        books.append(fit_codebook(vectors, config.codebook, seed=config.seed))
        vectors = read_features(spoken[name][0], config.features).vectors
        frames.append(vectors[np.linspace(0, len(vectors) - 1, FRAMES_A_SPEAKER).astype(int)])
    return books, np.concatenate(frames)


def all_pairs(speakers: int) -> list[tuple[int, int]]:
    """Return every pair, the later speaker first."""
    return [(own, rival) for own in range(speakers) for rival in range(own)]


def peer(
    books: list[np.ndarray], settings: MachineConfig, wanted: list[tuple[int, int]] | None = None
) -> tuple[list[SVC], list[OneClassSVM]]:
    """Return scikit-learn's machines, of the pairs ``wanted`` or all."""
    gamma = 0.5 / settings.sigma**2
    pairs = []
    for own, rival in all_pairs(len(books)) if wanted is None else wanted:
        points = np.concatenate((books[own], books[rival]))
        labels = np.where(np.arange(len(points)) < len(books[own]), 1, -1)
        pairs.append(SVC(kernel="rbf", C=settings.C, gamma=gamma, tol=TOLERANCE).fit(points, labels))
    return pairs, [OneClassSVM(kernel="rbf", nu=settings.nu, gamma=gamma, tol=TOLERANCE).fit(book) for book in books]


def here(
    books: list[np.ndarray], settings: MachineConfig, jobs: int
) -> tuple[list[tuple[Pair, PairMachine, int]], list[SpeakerMachine]]:
    """Return the solver's machines."""
    solver = PoolSolver(Pool.of(books, settings.sigma), jobs=jobs, tolerance=TOLERANCE)
    return (
        list(solver.pairs(all_pairs(len(books)), C=settings.C)),
        list(solver.one_class(range(len(books)), nu=settings.nu)),
    )


def compared(
    theirs: tuple[list[SVC], list[OneClassSVM]],
    ours: tuple[list[tuple[Pair, PairMachine, int]], list[SpeakerMachine]],
    books: list[np.ndarray],
    frames: np.ndarray,
    sigma: float,
) -> dict[str, float]:
    """Return the largest difference of margins, and share of frames on which both machines decide alike."""
    kernels = [rbf_kernel(frames, book, 0.5 / sigma**2) for book in books]
    comparison: dict[str, float] = {}
    pair_margins = (
        kernels[own] @ mine.own - kernels[rival] @ mine.rival + mine.bias for (own, rival), mine, _ in ours[0]
    )
    alone_margins = (kernels[mine.speaker] @ mine.coef + mine.bias for mine in ours[1])
    for kind, machines, margins in (("pair", theirs[0], pair_margins), ("one_class", theirs[1], alone_margins)):
        differences, alike = [], []
        for machine, margin in zip(machines, margins, strict=True):
            expected = machine.decision_function(frames)
            differences.append(np.abs(margin - expected).max())
            alike.append(np.mean((margin > 0) == (expected > 0)))
        comparison |= {f"{kind}_margin_difference": float(max(differences)), f"{kind}_alike": float(np.mean(alike))}
    return comparison


def row(corpora: Path, corpus: str, name: str, speakers: int, repeats: int) -> dict[str, Any]:
    """Time and compare one corpus with one settings file."""
    config = load_config(CONFIGS / f"{name}.toml", [])
    books, frames = codebooks(corpora / corpus, speakers, config)
    here(books[:2], config.machines, 1)  # compiles
    runs = []
    for _ in tqdm(range(repeats), desc=f"{corpus}, {name}", disable=None):
        runs.append(
            (
                timed(lambda: peer(books, config.machines)),
                timed(lambda: here(books, config.machines, 1)),
                timed(lambda: here(books, config.machines, 2)),
            )
        )
    theirs, one, two = runs[-1]
    pairs = one.made[0]
    return {
        "corpus": corpus,
        "settings": name,
        "speakers": len(books),
        "centroids": sum(map(len, books)),
        "sigma": config.machines.sigma,
        "C": config.machines.C,
        "machines": len(pairs) + len(books),
        "frames": len(frames),
        "scikit_learn_seconds": [run[0].elapsed for run in runs],
        "one_thread_seconds": [run[1].elapsed for run in runs],
        "two_threads_seconds": [run[2].elapsed for run in runs],
        "one_thread_ratio": spread([run[0].elapsed / run[1].elapsed for run in runs]),
        "two_threads_ratio": spread([run[0].elapsed / run[2].elapsed for run in runs]),
        "one_thread_processor_ratio": spread([run[0].processor / run[1].processor for run in runs]),
        "steps": float(np.mean([steps for _, _, steps in pairs])),
        "scikit_learn_steps": float(np.mean([machine.n_iter_[0] for machine in theirs.made[0]])),
        "same_on_two_threads": all(
            np.array_equal(a.own, b.own) for (_, a, _), (_, b, _) in zip(pairs, two.made[0], strict=True)
        ),
        **compared(theirs.made, one.made, books, frames, config.machines.sigma),
    }


def rest_row(corpora: Path, corpus: str, name: str, machines: int) -> dict[str, Any]:
    """Time a few one-vs-rest machines over every speaker's centroids on one thread, and compare them as above."""
    config = load_config(CONFIGS / f"{name}.toml", [])
    settings = config.machines
    books, frames = codebooks(corpora / corpus, sys.maxsize, config)
    pool = Pool.of(books, settings.sigma)
    speakers = np.linspace(0, len(pool) - 1, machines).astype(int).tolist()
    rest_here(pool, speakers[:1], settings)  # compiles
    ours = timed(lambda: rest_here(pool, speakers, settings))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    theirs = timed(lambda: [rest_peer(pool, speaker, settings) for speaker in speakers])
    kernel = rbf_kernel(frames, pool.centroids, 0.5 / pool.sigma**2)
    differences, alike = [], []
    for machine, mine in zip(theirs.made, ours.made, strict=True):
        expected, margin = machine.decision_function(frames), kernel @ mine.coef + mine.bias
        differences.append(np.abs(margin - expected).max())
        alike.append(np.mean((margin > 0) == (expected > 0)))
    return {
        "corpus": corpus,
        "settings": name,
        "speakers": len(pool),
        "centroids": len(pool.centroids),
        "machines": machines,
        "scikit_learn_seconds": theirs.elapsed,
        "one_thread_seconds": ours.elapsed,
        "one_thread_ratio": theirs.elapsed / ours.elapsed,
        "one_thread_processor_ratio": theirs.processor / ours.processor,
        "active": float(np.mean([mine.active for mine in ours.made])),
        "rounds": float(np.mean([mine.rounds for mine in ours.made])),
        "peak_gib_until_then": memory,
        "margin_difference": float(max(differences)),
        "alike": float(np.mean(alike)),
    }


def adding_row(corpora: Path, corpus: str, name: str, speakers: int) -> dict[str, Any]:
    """Return processor seconds, on one thread, of adding the last of ``speakers`` to a population of the others.

    Pair and one-class machines are the new speaker's alone; one-vs-rest machines are everybody's, trained again.
    """
    config = load_config(CONFIGS / f"{name}.toml")
    settings = config.machines.model_copy(update={"kinds": ("one_vs_one", "one_class")})
    books, _ = codebooks(corpora / corpus, speakers, config)
    pool, before = Pool.of(books, settings.sigma), Pool.of(books[:-1], settings.sigma)
    known = train_population(before, settings)
    added = timed(lambda: train_population(pool, settings, known=known))
    whole = timed(lambda: train_population(pool, settings))
    rest = timed(lambda: one_vs_rest(pool, settings))
    machines = zip(*(one.made.pairs.against(len(pool) - 1).values() for one in (added, whole)), strict=True)
    alike = all(np.array_equal(ours.own, theirs.own) for ours, theirs in machines)
    return {
        "corpus": corpus,
        "settings": name,
        "speakers": len(pool),
        "own_machines_seconds": added.processor,
        "one_vs_rest_seconds": rest.processor,
        "from_scratch_seconds": whole.processor + rest.processor,
        "same_bits": alike and np.array_equal(added.made.one_class_coef, whole.made.one_class_coef),
    }


def rest_here(pool: Pool, speakers: list[int], settings: MachineConfig) -> list[SpeakerMachine]:
    """Return one-vs-rest machines of the solver."""
    return list(RestSolver(pool, tolerance=TOLERANCE).machines(speakers, C=settings.C))


def rest_peer(pool: Pool, speaker: int, settings: MachineConfig) -> SVC:
    """Return scikit-learn's one-vs-rest machine of one speaker."""
    machine = SVC(kernel="rbf", C=settings.C, gamma=0.5 / settings.sigma**2, tol=TOLERANCE)
    return machine.fit(pool.centroids, np.where(pool.owner == speaker, 1, -1))


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and greatest."""
    return {"median": float(np.median(values)), "least": min(values), "greatest": max(values)}


def random_problems(count: int, *, seed: int = 0) -> dict[str, float]:
    """Return the dual objectives and duality gaps on problems of every shape, ours beside LIBSVM's.

    1 to 200 points a side in 1 to 40 dimensions, sigma from 0.03 to 30, C from 0.01 to 10 000, a fifth with repeated
    points and a tenth with points on both sides. Both are relative to 1 + the objective; gaps are the greatest.
    """
    random = np.random.default_rng(seed)
    rows = []
    for number in tqdm(range(count), desc="random problems", disable=None):
        dimension, a, b = random.integers(1, 41), *random.integers(1, 201, 2)
        own = 0.5 * random.standard_normal((a, dimension)) + random.choice([0.0, 0.3, 1.0])
        rival = 0.5 * random.standard_normal((b, dimension))
        if number % 5 == 0:
            own[random.integers(a, size=a // 2)] = own[0]
        if number % 10 == 0:
            rival[: min(a, b) // 2] = own[: min(a, b) // 2]
        sigma, cost = 10 ** random.uniform(-1.5, 1.5), 10 ** random.uniform(-2, 4)
        _, made, _ = next(PoolSolver(Pool.of([own, rival], sigma)).pairs([(0, 1)], C=cost))
        points, labels = np.concatenate((own, rival)), np.repeat([1.0, -1.0], [a, b])
        machine = SVC(C=cost, gamma=0.5 / sigma**2, tol=TOLERANCE).fit(points, labels)
        theirs = np.zeros(len(points))
        theirs[machine.support_] = machine.dual_coef_[0]
        gram = rbf_kernel(points, points, 0.5 / sigma**2)
        dual, gap = objectives(gram, labels, np.concatenate((made.own, -made.rival)), made.bias, cost)
        their_dual, their_gap = objectives(gram, labels, theirs, machine.intercept_[0], cost)
        rows.append((abs(dual - their_dual) / (1 + their_dual), gap / (1 + dual), their_gap / (1 + their_dual)))
    greatest, median = np.max(rows, axis=0), np.median(rows, axis=0)
    return {
        "problems": count,
        "dual_difference": float(greatest[0]),
        "gap": float(greatest[1]),
        "scikit_learn_gap": float(greatest[2]),
        "median_gap": float(median[1]),
        "scikit_learn_median_gap": float(median[2]),
    }


def objectives(gram: np.ndarray, labels: np.ndarray, coef: np.ndarray, bias: float, cost: float) -> tuple[float, float]:
    """Return the dual objective of signed coefficients, and how far above it the primal one is."""
    norm = coef @ gram @ coef
    slack = np.maximum(0.0, 1.0 - labels * (gram @ coef + bias)).sum()
    dual = np.abs(coef).sum() - 0.5 * norm
    return float(dual), float(0.5 * norm + cost * slack - dual)


def first_training() -> dict[str, float]:
    """Return the seconds to import the kernels in a new process, first with an empty cache, then with a filled one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        seconds = [
            float(subprocess.check_output([sys.executable, "-c", COMPILING], env=environment, text=True))
            for _ in range(3)
        ]
    return {"compiling_seconds": seconds[0], "cached_seconds": min(seconds[1:])}


def shown(result: dict[str, Any]) -> str:
    """Return one row of the Markdown table."""
    name = f"{result['corpus']}, {result['settings']}"
    theirs, one, two = (
        f"{1e3 * np.median(result[key]) / result['machines']:.2f}"
        for key in ("scikit_learn_seconds", "one_thread_seconds", "two_threads_seconds")
    )
    ratios = (
        f"{result[key]['median']:.1f} ({result[key]['least']:.1f}-{result[key]['greatest']:.1f})"
        for key in ("one_thread_ratio", "two_threads_ratio", "one_thread_processor_ratio")
    )
    worst = max(result["pair_margin_difference"], result["one_class_margin_difference"])
    alike = 100 * min(result["pair_alike"], result["one_class_alike"])
    cells = (name, str(result["machines"]), theirs, one, two, *ratios, f"{worst:.1e}", f"{alike:.3f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure, print a table, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--speakers", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="*", help="rows, as CORPUS-SETTINGS")
    parser.add_argument("--random", type=int, default=1000, help="problems made up")
    parser.add_argument("--rest", type=int, default=8, help="one-vs-rest machines over all of libri158")
    parser.add_argument("--adding", type=int, nargs="*", default=[50], help="populations that libri158's last joins")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"first_training": first_training(), "rows": []}
    with threadpool_limits(1):
        result["one_vs_rest"] = rest_row(options.corpora, "libri158", "default", options.rest) if options.rest else None
        result["adding"] = [adding_row(options.corpora, "libri158", "default", count) for count in options.adding]
        result["random"] = random_problems(options.random) if options.random else None
        for corpus, name in ROWS:
            if fnmatchcase(f"{corpus}-{name}", options.only):
                result["rows"].append(row(options.corpora, corpus, name, options.speakers, options.repeats))
    print("| machines of | number | scikit-learn, ms each | 1 thread | 2 threads | ratio, 1 | ratio, 2 |", end="")
    print(" ratio of processor time, 1 | margins within | decisions alike, % |")
    print("|---" * 10 + "|")
    print("\n".join(map(shown, result["rows"])))
    print(json.dumps({key: result[key] for key in ("first_training", "one_vs_rest", "adding", "random")}, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
