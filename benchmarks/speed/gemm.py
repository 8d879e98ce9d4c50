"""Rate of identification's float32 matrix products, as a share of the machine's rate on large squares. One thread.

Every matrix product is timed inside the scorer: the frames are arrays of a class that reads the clock around each
product, so operands, memory and caches are the scorer's own. Nothing of the scorer is copied here, and the exponentials
between the products are not counted. Coefficients are made up: the time of a product does not depend on their values.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from claim_scoring import codebooks
from speed.measuring import Figures, sgemm_gflops
from speed.options import Options

from pipeline.machines.margins import MarginScorer, Population
from pipeline.machines.pairs import PairMachine, Pairs
from pipeline.machines.pool import Pool

FRAMES = 256  # what the scorer takes at a time
ROUNDS = 30
KINDS = frozenset({"one_vs_one", "one_class"})


class Timed(np.ndarray):
    """An array whose matrix products note (frames, inner length, columns, seconds) in ``Timed.noted``."""

    __array_priority__ = 1.0  # so that arrays joined to one are of this class, too
    noted: list[tuple[int, int, int, float]] = []  # noqa: RUF012

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **others: Any) -> Any:
        plain = [value.view(np.ndarray) if isinstance(value, Timed) else value for value in inputs]
        out = others.get("out")
        if out is not None:
            others["out"] = tuple(value.view(np.ndarray) if isinstance(value, Timed) else value for value in out)
        started = time.perf_counter()
        made = getattr(ufunc, method)(*plain, **others)
        spent = time.perf_counter() - started
        if ufunc is np.matmul:
            rows = made.size // made.shape[-1]  # of all the products that are made at once
            self.noted.append((rows, plain[0].shape[-1], made.shape[-1], spent))
        return made.view(Timed) if isinstance(made, np.ndarray) else made


def measure(options: Options) -> Figures:
    """Measure the rate of the pairwise products, and of the kernel's, beside the best rate of a large square."""
    config = options.config()
    corpus = None if options.corpora is None else options.corpus / "enroll"
    books, frames = codebooks(corpus, options.speakers, config)
    population = made_up(Pool.of(books, config.machines.sigma), seed=config.seed)
    scorer = MarginScorer(population, np.arange(len(books)), KINDS, dtype="float32")
    heard = np.resize(frames, (FRAMES, frames.shape[1])).view(Timed)
    best = max(sgemm_gflops(size) for size in (1024, 2048))
    rounds = [products(scorer, heard, dimension=frames.shape[1]) for _ in range(ROUNDS)]
    pairwise, kernel = (np.array([a for a, _ in rounds]), np.array([b for _, b in rounds]))
    best = max(best, *(sgemm_gflops(size) for size in (1024, 2048)))
    rate, kernel_rate = (float(1e-9 * part[0, 0] / np.median(part[:, 1])) for part in (pairwise, kernel))
    return {
        "gemm.speakers": len(books),
        "gemm.frames": FRAMES,
        "gemm.threads": 1,
        "gemm.dtype": "float32",
        "gemm.flops": float(pairwise[0, 0]),
        "gemm.seconds": float(np.median(pairwise[:, 1])),
        "gemm.gflops": rate,
        "gemm.sgemm_gflops": best,
        "gemm.fraction": rate / best,
        "gemm.best_fraction": float(1e-9 * pairwise[0, 0] / pairwise[:, 1].min()) / best,
        "gemm.kernel_gflops": kernel_rate,
        "gemm.kernel_fraction": kernel_rate / best,
        "gemm.shapes": ", ".join(sorted({f"{t}x{k} @ {k}x{c}" for t, k, c, _ in Timed.noted})),
    }


def made_up(pool: Pool, *, seed: int) -> Population:
    """Return a population over ``pool`` with random coefficients."""
    rng, speakers = np.random.default_rng(seed), len(pool)
    sizes = [len(pool.codebook(n)) for n in range(speakers)]
    machines = {
        (later, earlier): PairMachine(rng.random(sizes[later]), rng.random(sizes[earlier]), rng.standard_normal())
        for later in range(speakers)
        for earlier in range(later)
    }
    return Population(
        pool,
        pairs=Pairs(machines),
        one_class_coef=rng.random(len(pool.centroids)),
        one_class_bias=-rng.random(speakers),
    )


def products(scorer: MarginScorer, frames: Timed, *, dimension: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return flops and seconds of one call's pairwise products, then of its kernel's."""
    Timed.noted.clear()
    scorer(frames)
    # Between frames and centroids the inner length is the features' and the two columns of the norms.
    is_kernel = {inner: 0 <= inner - dimension <= 2 for _, inner, _, _ in Timed.noted}
    parts = [[row for row in Timed.noted if is_kernel[row[1]] != pairwise] for pairwise in (True, False)]
    if not parts[0]:
        raise SystemExit("gemm: the scorer made no product that numpy's arrays see")
    pairwise, kernel = ((sum(2.0 * t * k * c for t, k, c, _ in part), sum(row[3] for row in part)) for part in parts)
    return pairwise, kernel if kernel[1] else (0.0, np.inf)
