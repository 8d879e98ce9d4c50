"""One claim and all claims on 2.4 s of speech, against scikit-learn's ways to evaluate the same machines. One thread.

The machines on both sides are scikit-learn's own, put into the pool. scikit-learn is timed on margins alone, this
package on margins and score.
"""

from __future__ import annotations

import claim_scoring
import numpy as np
from claim_scoring import best_of, scoring
from sklearn.svm import SVC
from speed.measuring import Figures, peak_gib
from speed.options import Options

from pipeline.config import Config
from pipeline.machines.pool import Pool


def measure(options: Options) -> Figures:
    """Measure the seconds of every way to score."""
    config = options.config()
    corpus = None if options.corpora is None else options.corpus / "enroll"
    books, frames = claim_scoring.codebooks(corpus, options.speakers, config)
    pool = Pool.of(books, config.machines.sigma)
    population, pairs, alone = claim_scoring.train(pool, config)
    claim = len(pool) // 2
    worst = claim_scoring.check(population, pairs, alone, frames, claim)
    if worst > 1e-9:
        raise SystemExit(f"the margins are not scikit-learn's: they differ by {worst:.1e}")
    one, everybody = np.array([claim]), np.arange(len(pool))
    ours = {
        f"claim.{what}seconds_{way}": best_of(scoring(population, claims, frames, way), seconds=options.patience)
        for what, claims in (("", one), ("identify_", everybody))
        for way in ("float64", "mixed", "float32")
    }
    needed = [*(machine for pair, machine in pairs.items() if claim in pair), *alone]
    multi = multiclass(pool, config)
    theirs = {
        "claim.multiclass_seconds": best_of(lambda: multi.decision_function(frames), seconds=options.patience),
        "claim.loop_seconds": best_of(lambda: looped(list(pairs.values()), frames), seconds=0),
        "claim.needed_loop_seconds": best_of(lambda: looped(needed, frames), seconds=options.patience),
    }
    return {
        "claim.speakers": len(pool),
        "claim.centroids": len(pool.centroids),
        "claim.frames": len(frames),
        "claim.threads": 1,
        "claim.headline_dtype": config.scoring.dtype,
        "claim.machines_needed": len(needed),
        "claim.machines_looped": len(pairs),
        "claim.margin_difference_float64": worst,
        "claim.multiclass_margin_difference": multiclass_difference(multi, pairs, frames),
        **ours,
        **theirs,
        **ratios(ours, theirs, headline=config.scoring.dtype),
        "claim.peak_gib": peak_gib(),
    }


def ratios(ours: dict[str, float], theirs: dict[str, float], *, headline: str) -> Figures:
    """Return the ratios of every precision; those of the ``headline`` one have no ending."""
    found: Figures = {}
    for way in (key.removeprefix("claim.seconds_") for key in ours if key.startswith("claim.seconds_")):
        claim, identify = ours[f"claim.seconds_{way}"], ours[f"claim.identify_seconds_{way}"]
        ending = "" if way == headline else f"_{way}"
        found[f"claim.ratio_multiclass{ending}"] = theirs["claim.multiclass_seconds"] / claim
        found[f"claim.ratio_loop{ending}"] = theirs["claim.loop_seconds"] / claim
        found[f"claim.ratio_needed_loop{ending}"] = theirs["claim.needed_loop_seconds"] / claim
        found[f"claim.identify_ratio_multiclass{ending}"] = theirs["claim.multiclass_seconds"] / identify
        found[f"claim.identify_ratio_loop{ending}"] = theirs["claim.loop_seconds"] / identify
    return found


def looped(machines: list[SVC], frames: np.ndarray) -> list[np.ndarray]:
    """Return the margins, one machine after another."""
    return [machine.decision_function(frames) for machine in machines]


def multiclass(pool: Pool, config: Config) -> SVC:
    """Return scikit-learn's multi-class machine, which consists of the machines of all pairs."""
    settings = config.machines
    machine = SVC(C=settings.C, gamma=0.5 / settings.sigma**2, decision_function_shape="ovo")
    return machine.fit(pool.centroids, pool.owner)


def multiclass_difference(multi: SVC, pairs: dict[tuple[int, int], SVC], frames: np.ndarray) -> float:
    """Return the largest difference of its margins from the pair machines': both are trained to LIBSVM's tolerance."""
    margins = multi.decision_function(frames)
    if margins.ndim == 1:  # two classes: one machine, and positive is the second
        margins = -margins[:, None]
    order = [
        (first, second) for first in range(len(multi.classes_)) for second in range(first + 1, len(multi.classes_))
    ]
    expected = (-pairs[later, earlier].decision_function(frames) for earlier, later in order)
    return float(max(np.abs(margins[:, n] - margin).max() for n, margin in enumerate(expected)))
