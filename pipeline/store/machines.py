"""Machines of a speaker model, made of its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import StoreFormatError
from pipeline.machines.branches import Background, UtteranceKind, utterance_kinds_of
from pipeline.machines.cohorts import CohortTable
from pipeline.machines.gmm import AdaptedMixtures
from pipeline.machines.margins import Population, UtteranceMachines
from pipeline.machines.pitch import PitchCounts, PitchHistograms
from pipeline.machines.pool import Pool
from pipeline.machines.supervectors import SupervectorMachines
from pipeline.machines.training import one_vs_rest
from pipeline.machines.ubm import UniversalBackgroundModel
from pipeline.scoring.conditions import ConditionClassifier, train_conditions
from pipeline.store.arrays import RenumberedPairs
from pipeline.store.layout import CONDITIONS, AnyArray

if TYPE_CHECKING:
    from pipeline.store.model import SpeakerModel

Array = NDArray[np.float64]
UBM_ARRAYS = ("centre", "scale", "means", "variances", "weights")
ALL_CORES = -1


def read_machines(model: SpeakerModel, kinds: frozenset[str], numbers: Sequence[int] | None) -> Population:
    """Return the machines of ``kinds`` and the one-class machines, of the speakers ``numbers`` (None: everybody)."""
    everybody = numbers is None
    chosen = range(len(model.speakers)) if numbers is None else numbers
    arrays = [model.arrays[number] for number in chosen]
    pool = Pool.of([own["centroids"] for own in arrays], model.config.machines.sigma)
    has_rest = everybody and "one_vs_rest" in kinds and len(arrays) > 1
    rest_coef, rest_bias = _one_vs_rest(model, pool) if has_rest else (None, None)
    pairs = model.pairs if "one_vs_one" in kinds else None
    return Population(
        pool,
        pairs=pairs if pairs is None or everybody else RenumberedPairs(pairs, chosen),
        one_class_coef=np.concatenate([np.empty(0), *(own["one_class"] for own in arrays)]),
        one_class_bias=np.concatenate([np.empty(0), *(own["one_class_bias"] for own in arrays)]),
        one_vs_rest_coef=rest_coef,
        one_vs_rest_bias=rest_bias,
        utterance={kind.name: model.utterance_machines(kind) for kind in utterance_kinds_of(kinds)},
        cohort_table=model.cohort_table if everybody else None,
        numbers=None if everybody else np.array(chosen, dtype=np.int64),
    )


def _one_vs_rest(model: SpeakerModel, pool: Pool) -> tuple[Array, Array]:
    """Return coefficients (M, N) and biases (N,) of the one-vs-rest machines, trained here if enrollment did not."""
    if "one_vs_rest" not in model.config.machines.kinds:
        return one_vs_rest(pool, model.config.machines, jobs=ALL_CORES)
    coef = np.stack([own["one_vs_rest"] for own in model.arrays], axis=1)
    return coef, np.concatenate([own["one_vs_rest_bias"] for own in model.arrays])


def cohort_arrays(table: CohortTable) -> dict[str, AnyArray]:
    """Return the arrays of the population that ``read_cohorts`` reads."""
    return {"cohort.nearest": table.nearest.astype(np.uint32), "cohort.similarity": table.similarity}


def read_cohorts(model: SpeakerModel) -> CohortTable | None:
    """Return each speaker's cohort, where ``machines.cohort`` is a number."""
    if "cohort.nearest" not in model.shared:
        return None
    nearest = model.shared["cohort.nearest"].astype(np.int64)
    ordered = np.sort(nearest, axis=1)
    is_other = bool(np.all(nearest < len(model))) and not bool(np.any(nearest == np.arange(len(model))[:, None]))
    if len(nearest) != len(model) or not is_other or bool(np.any(ordered[:, 1:] == ordered[:, :-1])):
        raise StoreFormatError(
            f"{model.where}: array 'cohort.nearest' must name other speakers, each once per row; damaged?"
        )
    return CohortTable(nearest, model.shared["cohort.similarity"])


def read_ubm(model: SpeakerModel, background: Background) -> UniversalBackgroundModel | None:
    """Return a universal background model; None before anybody was enrolled."""
    if f"{background.name}.means" not in model.shared:
        return None
    settings = background.settings(model.config)
    return UniversalBackgroundModel(
        **{name: model.shared[f"{background.name}.{name}"] for name in UBM_ARRAYS},
        relevance=settings.relevance,
        half_db=settings.half_db,
        mean_prior=background.branch.mean_prior(model.config),
    )


def read_conditions(model: SpeakerModel) -> ConditionClassifier | None:
    """Return the classifier of conditions, trained on everybody's speech; None without augmented versions."""
    return train_conditions(*([own[name] for own in model.arrays if name in own] for name in CONDITIONS))


def read_utterance_machines(model: SpeakerModel, kind: UtteranceKind) -> UtteranceMachines:
    """Return everybody's machines of ``kind``; raises StoreFormatError without a background model."""
    if kind.machine == "histogram":
        return PitchHistograms((PitchCounts(model.config.pitch),), np.stack([own[kind.array] for own in model.arrays]))
    ubms = tuple(ubm for background in kind.backgrounds if (ubm := model.ubm(background)) is not None)
    if len(ubms) < len(kind.backgrounds):
        raise StoreFormatError(f"{model.where}: there is no background model for {kind.name} machines")
    rows = np.stack([arrays[kind.array] for arrays in model.arrays])
    if kind.machine == "gmm":
        return AdaptedMixtures(ubms, rows)
    return SupervectorMachines(ubms, model.shared[f"{kind.array}.mean"], rows)
