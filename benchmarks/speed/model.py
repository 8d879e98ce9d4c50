"""The cost model of docs/scale.md: what each stage should take by counting, from rates measured in the same run.

A prediction's key is ``model.`` and the key of what it predicts.
"""

from __future__ import annotations

from speed.growth import SEGMENTS, VECTOR
from speed.measuring import Figures

DIMENSION = 24  # of the vectors that machines over frames read, by the default settings


def predicted(found: Figures) -> Figures:
    """Return predictions of the figures in ``found``, as far as it holds the rates that they need."""
    made: Figures = {}
    if "claim.speakers" in found:
        speakers, centroids, frames = (int(found[f"claim.{name}"]) for name in ("speakers", "centroids", "frames"))
        made["model.claim.seconds_float32"] = claim_seconds(found, centroids, frames)
        made["model.claim.identify_seconds_float32"] = identify_seconds(found, speakers, centroids, frames)
    if "growth.speakers" in found:
        sizes = sorted(int(key.rsplit(".", 1)[1]) for key in found if key.startswith("growth.claim_seconds."))
        for size in sizes:
            made |= {f"model.growth.{name}.{size}": value for name, value in _at_size(found, size).items()}
    if "growth.train_seconds" in found and "train.pair_milliseconds" in found:
        size, threads = int(found["growth.speakers"]), int(found["growth.train_threads"])
        pairs = size * (size - 1) / 2
        made["model.growth.train_seconds"] = 1e-3 * float(found["train.pair_milliseconds"]) * pairs / threads
    return made


def _at_size(found: Figures, speakers: int) -> Figures:
    each = int(found["growth.centroids"])
    made: Figures = {
        "claim_seconds": claim_seconds(found, each * speakers, int(found["growth.frames"])),
        "store_mib": 8 * each * speakers * (speakers + DIMENSION + 1) / 2**20,
        "segment_seconds": segment_seconds(found, speakers),
    }
    if "train.pair_milliseconds" in found:
        made["add_seconds"] = add_seconds(found, speakers)
    return made


def claim_seconds(found: Figures, centroids: int, frames: int) -> float:
    """Return the seconds of T M exponentials and products with centroids, two columns of coefficients and a block."""
    flops = 2.0 * frames * centroids * (DIMENSION + 2 + 2 + 1)
    return frames * centroids * _exponential(found) + flops / _products(found)


def identify_seconds(found: Figures, speakers: int, centroids: int, frames: int) -> float:
    """Return the seconds of the kernel as for one claim, N + 1 columns of coefficients, and an exponential a pair."""
    flops = 2.0 * frames * centroids * (DIMENSION + 2 + speakers + 1)
    exponentials = centroids * _exponential(found) + speakers**2 * _exponential(found)
    return frames * exponentials + flops / _products(found)


def add_seconds(found: Figures, speakers: int) -> float:
    """Return the seconds of N - 1 machines and N speakers' own kernel blocks."""
    pair, block = (float(found[f"train.{name}_milliseconds"]) for name in ("pair", "block"))
    return 1e-3 * (pair * (speakers - 1) + block * speakers)


def segment_seconds(found: Figures, speakers: int) -> float:
    """Return the seconds of a Gram matrix, its factor, three solutions (single precision), and five passes (double)."""
    rows = SEGMENTS * speakers
    single = rows**2 * VECTOR + rows**3 / 3 + 6.0 * rows**2 * speakers
    # A product of twice the width takes twice as long.
    return float((single + 2 * 10.0 * rows * VECTOR * speakers) / _products(found))


def _products(found: Figures) -> float:
    """Return the rate of products, in flops a second."""
    return 1e9 * float(found["machine.sgemm_gflops"])


def _exponential(found: Figures) -> float:
    """Return the seconds of one exponential in single precision."""
    return 1e-9 * float(found["machine.exp_float32_ns"])
