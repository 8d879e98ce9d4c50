"""The cost model of docs/scale.md: what each stage should take by counting, from rates measured in the same run."""

from __future__ import annotations

from speed.measuring import Figures

DIMENSION = 40  # of the default settings


def predicted(found: Figures) -> Figures:
    """Predictions beside those figures of ``found`` whose ingredients it holds."""
    made: Figures = {}
    if "claim.speakers" in found:
        made |= _claims(found)
    if "growth.speakers" in found and "claim.speakers" in found:
        made |= _growth(found)
    return made


def _claims(found: Figures) -> Figures:
    """One claim and identification: exponentials and products."""
    speakers, centroids, frames = (int(found[f"claim.{name}"]) for name in ("speakers", "centroids", "frames"))
    claim = claim_seconds(found, speakers, centroids, frames)
    flops = 2.0 * frames * centroids * (2 * speakers + 1)
    return {
        "model.claim_seconds_float32": claim,
        "model.identify_products_seconds_float32": flops / (1e9 * float(found["machine.sgemm_gflops"])),
    }


def claim_seconds(found: Figures, speakers: int, centroids: int, frames: int) -> float:
    """T M exponentials, 2 T M (d + 4) flops of products, and 2 T k N of the claim's own block."""
    exponentials = 1e-9 * float(found["machine.exp_float32_ns"]) * frames * centroids
    own = 2.0 * frames * centroids / speakers * speakers
    flops = 2.0 * frames * centroids * (DIMENSION + 4) + own
    return exponentials + flops / (1e9 * float(found["machine.sgemm_gflops"]))


def _growth(found: Figures) -> Figures:
    made: Figures = {}
    each = int(found["claim.centroids"]) / int(found["claim.speakers"])
    for key in [key for key in found if key.startswith("growth.claim_seconds.")]:
        size = int(key.rsplit(".", 1)[1])
        made[f"model.claim_seconds.{size}"] = claim_seconds(found, size, int(each * size), int(found["claim.frames"]))
        made[f"model.store_mib.{size}"] = 8 * each * size * (size + DIMENSION + 1) / 2**20
        if "train.pair_milliseconds" in found:
            made[f"model.add_seconds.{size}"] = add_seconds(found, size, each)
    if "growth.train_seconds" in found and "train.pair_milliseconds" in found:
        size, threads = int(found["growth.train_speakers"]), int(found["growth.train_threads"])
        pairs = size * (size - 1) / 2
        made["model.train_seconds"] = 1e-3 * float(found["train.pair_milliseconds"]) * pairs / threads
    return made


def add_seconds(found: Figures, size: int, each: float) -> float:
    """N - 1 machines, N speakers' own kernel blocks, and everybody's coefficients copied to a wider array."""
    machines = float(found["train.pair_milliseconds"]) * (size - 1) + float(found["train.block_milliseconds"]) * size
    rate = float(found["machine.copy_to_new_memory_gib_per_second"]) * 2**30
    return 1e-3 * machines + 8 * each * size * size / rate
