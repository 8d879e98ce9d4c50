"""Machines for a whole population, training only what is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.config import MachineConfig
from pipeline.machines.implied import Family, PairFamily, train_pair_family, train_rest_families
from pipeline.machines.pool import Pool
from pipeline.machines.population import PairBlock, PairSource, Population
from pipeline.machines.training import (
    Machine,
    PairMachine,
    run_parallel,
    train_one_class,
    train_one_vs_rest,
    train_pair,
)

Array = NDArray[np.float64]
Progress = Callable[[int], None]
"""Called with the number of machines that have just been trained."""


def train_population(
    pool: Pool,
    settings: MachineConfig,
    *,
    known: Population | None = None,
    family: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Population:
    """Machines over ``pool``, whose first speakers are those of ``known``: their pair and one-class machines are kept.

    One-vs-rest machines have everybody's centroids in them, so any new speaker means training all of them again.
    Machines of two classes become families of ``family`` reweighted ones (``machines.implied``), if that is a number.
    Raises ValueError where ``known`` has no pair machines and the settings ask for them.
    """
    if known is not None and "one_vs_one" in settings.kinds and known.pairs is None:
        raise ValueError("the known population has no pair machines to keep; train the population from scratch")
    tell = progress or (lambda _count: None)
    first = 0 if known is None else len(known)
    one_class_coef, one_class_bias = _one_class(pool, settings, known, first, jobs)
    tell(len(pool) - first)
    pairs = None
    if "one_vs_one" in settings.kinds:
        pairs = _pairs(pool, settings, None if known is None else known.pairs, first, jobs, tell, family)
    rest_coef, rest_bias = None, None
    if "one_vs_rest" in settings.kinds and len(pool) > 1:
        rest_coef, rest_bias = one_vs_rest(pool, settings, family=family, jobs=jobs)
        tell(len(pool))
    return Population(
        pool,
        pairs=pairs,
        one_class_coef=one_class_coef,
        one_class_bias=one_class_bias,
        one_vs_rest_coef=rest_coef,
        one_vs_rest_bias=rest_bias,
    )


def one_vs_rest(
    pool: Pool, settings: MachineConfig, *, family: int | None = None, jobs: int = 1
) -> tuple[Array, Array]:
    """Coefficients (M, N) and biases (N,) of the one-vs-rest machines of at least two speakers; see ``Population``."""
    if family is None:
        machines: Sequence[Machine | Family] = train_one_vs_rest(pool, C=settings.C, jobs=jobs)
    else:
        machines = train_rest_families(pool, C=settings.C, machines=family, jobs=jobs)
    return np.stack([machine.coef for machine in machines], axis=1), np.array([machine.bias for machine in machines])


def machine_count(speakers: int, first_new: int, settings: MachineConfig) -> int:
    """How many machines ``train_population`` trains for ``speakers``, those before ``first_new`` being known."""
    pairs = speakers * (speakers - 1) // 2 - first_new * (first_new - 1) // 2
    rest = speakers if speakers > 1 else 0
    return speakers - first_new + pairs * ("one_vs_one" in settings.kinds) + rest * ("one_vs_rest" in settings.kinds)


def _one_class(
    pool: Pool, settings: MachineConfig, known: Population | None, first: int, jobs: int
) -> tuple[Array, Array]:
    fit = partial(train_one_class, pool, nu=settings.nu, scale=settings.one_class_scale)
    machines: list[Machine] = run_parallel(fit, ((n,) for n in range(first, len(pool))), jobs=jobs)
    coef, bias = [machine.coef for machine in machines], [machine.bias for machine in machines]
    if known is not None and known.one_class_coef is not None and known.one_class_bias is not None:
        coef, bias = [known.one_class_coef, *coef], [*known.one_class_bias, *bias]
    return np.concatenate(coef), np.array(bias)


def _pairs(
    pool: Pool,
    settings: MachineConfig,
    known: PairSource | None,
    first: int,
    jobs: int,
    tell: Progress,
    family: int | None,
) -> PairBlock:
    speakers, axes = len(pool), () if family is None else (family,)
    weights = tuple(np.zeros((len(pool.codebook(n)), speakers, *axes)) for n in range(speakers))
    biases = np.zeros((speakers, speakers, *axes))
    if known is not None:
        for n in range(first):
            weights[n][:, :first] = known.rows(n)
        biases[:first, :first] = known.bias(np.arange(first))

    fit: Callable[..., PairMachine | PairFamily] = train_pair
    if family is not None:
        fit = partial(train_pair_family, machines=family)

    def fit_against_earlier(own: int) -> None:
        for rival in range(own):
            machine = fit(pool, own, rival, C=settings.C)
            weights[own][:, rival], weights[rival][:, own] = machine.own, machine.rival
            biases[own, rival], biases[rival, own] = machine.bias, -machine.bias
        tell(own)

    # The latest speakers have the most pairs: starting with them keeps all threads busy to the end.
    run_parallel(fit_against_earlier, ((own,) for own in reversed(range(first, speakers))), jobs=jobs)
    return PairBlock(weights, biases)
