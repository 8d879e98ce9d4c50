"""Train the machines that a population still lacks."""

from __future__ import annotations

import numpy as np

from pipeline.config import MachineConfig
from pipeline.machines.cohorts import CohortPlan, plan_cohorts
from pipeline.machines.margins import Population
from pipeline.machines.one_vs_rest import GRAM_BYTES, RestSolver
from pipeline.machines.pairs import Pairs, Progress, train_pairs
from pipeline.machines.pool import Array, Pool
from pipeline.machines.smo import PoolSolver, SpeakerMachine
from pipeline.machines.workers import LocalThreads, Workers


def train_population(
    pool: Pool,
    settings: MachineConfig,
    *,
    known: Population | None = None,
    plan: CohortPlan | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Population:
    """Train machines over ``pool``; its first speakers are those of ``known``, whose pair and one-class machines stay.

    One-vs-rest machines contain everybody's centroids, so a new speaker requires training all of them again; those of
    ``known`` speakers start from their solution. Added pair and one-class machines are, bit for bit, those of training
    from scratch; all are the same with any ``workers`` (default: one thread). ``plan`` is the result of
    ``plan_cohorts``, if already made. Raises FitError for centroids that are not finite.
    """
    workers = workers or LocalThreads()
    first = 0 if known is None else len(known)
    one_class_coef, one_class_bias = _one_class(pool, settings, known, workers.jobs)
    if progress is not None:
        progress(len(pool) - first)
    pairs = None
    if plan is None:
        plan = plan_cohorts(pool, settings, None if known is None else known.cohort_table, jobs=workers.jobs)
    if "one_vs_one" in settings.kinds:
        everybody = ((later, earlier) for later in range(first, len(pool)) for earlier in range(later))
        wanted = list(everybody) if plan is None else plan[1]
        trained = train_pairs(pool, settings, wanted, workers=workers, progress=progress)
        pairs = Pairs(trained, None if known is None else known.pairs)
    rest_coef, rest_bias = None, None
    if "one_vs_rest" in settings.kinds and len(pool) > 1:
        before = None
        if known is not None and known.one_vs_rest_coef is not None:
            # After a removal, these are over other centroids.
            before = known.one_vs_rest_coef if len(known.one_vs_rest_coef) == len(known.pool.centroids) else None
        rest_coef, rest_bias = one_vs_rest(pool, settings, known=before, jobs=workers.jobs, progress=progress)
    return Population(
        pool,
        one_class_coef,
        one_class_bias,
        pairs=pairs,
        one_vs_rest_coef=rest_coef,
        one_vs_rest_bias=rest_bias,
        cohort_table=None if plan is None else plan[0],
    )


def one_vs_rest(
    pool: Pool,
    settings: MachineConfig,
    *,
    known: Array | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[Array, Array]:
    """Train one-vs-rest machines of two or more speakers; return coefficients (M, N) and biases (N,).

    ``known`` (m, n) are coefficients to start from: of the first n speakers' machines over the first m centroids.
    """
    # Per thread, not divided by the number of threads: machines must not depend on it.
    memory = min(GRAM_BYTES, int(settings.gram_gib * 2**30))
    solver = RestSolver(pool, jobs=jobs, memory=memory)
    coef, bias = np.empty((len(pool.centroids), len(pool))), np.empty(len(pool))
    for made in solver.machines(range(len(pool)), C=settings.C, known=known):
        coef[:, made.speaker], bias[made.speaker] = made.coef, made.bias
        if progress is not None:
            progress(1)
    return coef, bias


def machine_count(speakers: int, first_new: int, settings: MachineConfig, pairs: int | None = None) -> int:
    """Return how many machines ``train_population`` trains for ``speakers``, those before ``first_new`` being known.

    ``pairs`` is the number of new pair machines, if these are not against everybody.
    """
    if pairs is None:
        pairs = speakers * (speakers - 1) // 2 - first_new * (first_new - 1) // 2
    rest = speakers if speakers > 1 else 0
    return speakers - first_new + pairs * ("one_vs_one" in settings.kinds) + rest * ("one_vs_rest" in settings.kinds)


def _one_class(pool: Pool, settings: MachineConfig, known: Population | None, jobs: int) -> tuple[Array, Array]:
    """Return coefficients (M,) and biases (N,), scaled as the settings say; those of known speakers are kept."""
    coef, bias = np.empty(len(pool.centroids)), np.empty(len(pool))
    first = 0
    if known is not None:
        first = len(known)
        coef[: pool.offsets[first]], bias[:first] = known.one_class_coef, known.one_class_bias
    # Each speaker's kernel values are used only once, so none are held.
    solver = PoolSolver(pool, jobs=jobs, memory=0)
    for made in solver.one_class(range(first, len(pool)), nu=settings.nu):
        factor = _one_class_factor(settings, made)
        coef[pool.rows(made.speaker)], bias[made.speaker] = made.coef * factor, made.bias * factor
    return coef, bias


def _one_class_factor(settings: MachineConfig, made: SpeakerMachine) -> float:
    """Return the factor for the coefficients and the bias -rho of a one-class machine."""
    scale = settings.one_class_scale
    if scale == "ratio":
        return -1.0 / made.bias
    total = {"schoelkopf": 1.0, "libsvm": settings.nu * len(made.coef)}[scale] if isinstance(scale, str) else scale
    return float(total / made.coef.sum())
