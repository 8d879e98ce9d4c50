"""Machines for a whole population, training only what is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.backends import LocalThreads, Workers
from pipeline.config import MachineConfig
from pipeline.machines.grown_pairs import GrownPairs
from pipeline.machines.implied import train_pair_family, train_rest_families
from pipeline.machines.pair_batches import by_tiles, pairs_elsewhere
from pipeline.machines.pool import Pool
from pipeline.machines.population import PairBlock, PairSource, Population
from pipeline.machines.rest_solver import GRAM_BYTES, RestSolver
from pipeline.machines.rivals import PairMachine, RivalMachines, RivalPlan, plan_rivals
from pipeline.machines.solver import PoolSolver
from pipeline.threads import in_order, jobs_of

Array = NDArray[np.float64]
Progress = Callable[[int], None]
"""Called with the number of machines that have just been trained."""


def train_population(
    pool: Pool,
    settings: MachineConfig,
    *,
    known: Population | None = None,
    family: int | None = None,
    plan: RivalPlan | None = None,
    jobs: int = 1,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Population:
    """Machines over ``pool``, whose first speakers are those of ``known``: their pair and one-class machines are kept.

    One-vs-rest machines have everybody's centroids in them, so any new speaker means training all of them again.
    Machines of two classes become families of ``family`` reweighted ones (``machines.implied``), if that is a number.
    Pair and one-class machines that are added are bit for bit those of training from scratch; so are all whatever
    ``jobs`` is, and whichever ``workers`` train the pair machines. Where each speaker has pair machines against some
    rivals alone, ``plan`` is ``plan_of`` the same, if it was made already. Raises ValueError where ``known`` has no
    pair machines and the settings ask for them, FitError for centroids that are not finite.
    """
    if known is not None and "one_vs_one" in settings.kinds and known.pairs is None and known.rivals is None:
        raise ValueError("the known population has no pair machines to keep; train the population from scratch")
    tell = progress or (lambda _count: None)
    workers = LocalThreads(jobs) if workers is None else workers
    first = 0 if known is None else len(known)
    one_class_coef, one_class_bias = _one_class(pool, settings, known, workers.jobs)
    tell(len(pool) - first)
    pairs, rivals = None, None
    plan = plan_of(pool, settings, known, workers.jobs) if plan is None else plan
    if plan is not None:
        trained = train_pairs(pool, settings, plan.pairs, family=family, workers=workers, progress=tell)
        rivals = RivalMachines(trained, None if known is None else known.rival_machines)
    elif "one_vs_one" in settings.kinds:
        pairs = _pairs(pool, settings, None if known is None else known.pairs, first, workers, tell, family)
    rest_coef, rest_bias = None, None
    if "one_vs_rest" in settings.kinds and len(pool) > 1:
        rest_coef, rest_bias = one_vs_rest(pool, settings, family=family, jobs=workers.jobs, progress=tell)
    return Population(
        pool,
        pairs=pairs,
        one_class_coef=one_class_coef,
        one_class_bias=one_class_bias,
        one_vs_rest_coef=rest_coef,
        one_vs_rest_bias=rest_bias,
        rivals=None if plan is None else plan.table,
        rival_machines=rivals,
    )


def plan_of(pool: Pool, settings: MachineConfig, known: Population | None = None, jobs: int = 1) -> RivalPlan | None:
    """The pair machines to train where each speaker has them against some rivals alone; None where against all."""
    if settings.rivals == "all" or "one_vs_one" not in settings.kinds:
        return None
    return plan_rivals(pool, settings.rivals, None if known is None else known.rivals, jobs=jobs)


def one_vs_rest(
    pool: Pool,
    settings: MachineConfig,
    *,
    family: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[Array, Array]:
    """Coefficients (M, N) and biases (N,) of the one-vs-rest machines of at least two speakers; see ``Population``."""
    tell = progress or (lambda _count: None)
    if family is not None:
        machines = train_rest_families(pool, C=settings.C, machines=family, jobs=jobs)
        tell(len(pool))
        return np.stack([made.coef for made in machines], axis=1), np.array([made.bias for made in machines])
    # For each thread, whatever their number: what a machine is must not depend on it.
    memory = min(GRAM_BYTES, int(settings.gram_gib * 2**30))
    solver = RestSolver(pool, jobs=jobs, memory=memory)
    coef, bias = np.empty((len(pool.centroids), len(pool))), np.empty(len(pool))
    for made in solver.machines(range(len(pool)), C=settings.C):
        coef[:, made.speaker], bias[made.speaker] = made.coef, made.bias
        tell(1)
    return coef, bias


def machine_count(speakers: int, first_new: int, settings: MachineConfig, pairs: int | None = None) -> int:
    """How many machines ``train_population`` trains for ``speakers``, those before ``first_new`` being known.

    ``pairs`` is the number of pair machines among them where these are not against everybody.
    """
    if pairs is None:
        pairs = speakers * (speakers - 1) // 2 - first_new * (first_new - 1) // 2
    rest = speakers if speakers > 1 else 0
    return speakers - first_new + pairs * ("one_vs_one" in settings.kinds) + rest * ("one_vs_rest" in settings.kinds)


def _one_class(pool: Pool, settings: MachineConfig, known: Population | None, jobs: int) -> tuple[Array, Array]:
    """Coefficients (M,) and biases (N,), those of the known speakers kept, at the scale of the settings."""
    coef, bias = np.empty(len(pool.centroids)), np.empty(len(pool))
    first = 0
    if known is not None and known.one_class_coef is not None and known.one_class_bias is not None:
        first = len(known)
        coef[: pool.offsets[first]], bias[:first] = known.one_class_coef, known.one_class_bias
    # Each speaker's kernel values are wanted once, so that there is nothing to hold.
    solver = PoolSolver(pool, jobs=jobs, memory=0)
    for made in solver.one_class(range(first, len(pool)), nu=settings.nu):
        factor = _one_class_sum(settings, len(made.coef)) / made.coef.sum()
        coef[pool.rows(made.speaker)], bias[made.speaker] = made.coef * factor, made.bias * factor
    return coef, bias


def _one_class_sum(settings: MachineConfig, centroids: int) -> float:
    """What the coefficients of a one-class machine of so many centroids are to sum to."""
    if settings.one_class_scale == "libsvm":
        return settings.nu * centroids
    return 1.0 if settings.one_class_scale == "schoelkopf" else settings.one_class_scale


def _pairs(
    pool: Pool,
    settings: MachineConfig,
    known: PairSource | None,
    first: int,
    workers: Workers,
    tell: Progress,
    family: int | None,
) -> PairSource:
    speakers, axes = len(pool), () if family is None else (family,)
    own_coefs = tuple(np.zeros((len(pool.codebook(n)), speakers, *axes)) for n in range(first, speakers))
    against = tuple(np.zeros((len(pool.codebook(n)), speakers - first, *axes)) for n in range(first))
    biases = np.zeros((speakers - first, speakers, *axes))
    pairs = [(own, rival) for own in range(first, speakers) for rival in range(own)]
    if workers.remote:
        pairs = by_tiles(pairs)
    machines = _pair_machines(pool, settings, pairs, family, workers)
    for (own, rival), (own_coef, rival_coef, bias) in zip(pairs, machines, strict=True):
        own_coefs[own - first][:, rival], biases[own - first, rival] = own_coef, bias
        if rival < first:
            against[rival][:, own - first] = rival_coef
        else:
            own_coefs[rival - first][:, own], biases[rival - first, own] = rival_coef, -bias
        tell(1)
    return PairBlock(own_coefs, biases) if known is None else GrownPairs(known, own_coefs, against, biases)


def train_pairs(
    pool: Pool,
    settings: MachineConfig,
    pairs: Sequence[tuple[int, int]],
    *,
    family: int | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> dict[tuple[int, int], PairMachine]:
    """The machines of these ``pairs`` (later, earlier) of speakers alone, by ``workers`` (None: one thread)."""
    tell = progress or (lambda _count: None)
    trained = {}
    machines = _pair_machines(pool, settings, pairs, family, workers or LocalThreads())
    for pair, (own, rival, bias) in zip(pairs, machines, strict=True):
        trained[pair] = PairMachine(own, rival, np.asarray(bias))
        tell(1)
    return trained


def _pair_machines(
    pool: Pool, settings: MachineConfig, pairs: Sequence[tuple[int, int]], family: int | None, workers: Workers
) -> Iterator[tuple[Array, Array, Array | float]]:
    """Own and rival coefficients and bias of each pair's machine, or of its family, in order."""
    if workers.remote:
        yield from pairs_elsewhere(pool, settings, pairs, family, workers)
        return
    if family is None:
        for made in PoolSolver(pool, jobs=workers.jobs).pairs(pairs, C=settings.C):
            yield made.own_coef, made.rival_coef, made.bias
        return
    # By LIBSVM: the solver knows no class weights.
    fit = partial(train_pair_family, pool, C=settings.C, machines=family)
    for members in in_order(lambda pair: fit(*pair), pairs, jobs_of(workers.jobs)):
        yield members.own, members.rival, members.bias
