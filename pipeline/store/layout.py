"""Arrays of a speaker model: names, kinds of numbers and shapes, checked before anything is computed with them.

A digest shows that an array is the one that was written, not that it fits: whoever can write to the file can write
both the array and its digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Config
from pipeline.errors import StoreFormatError
from pipeline.machines.branches import BACKGROUNDS, UTTERANCE_KINDS, utterance_kinds_of
from pipeline.scoring.trials import COLUMNS, TRIAL_KINDS

AnyArray = NDArray[Any]
Lengths = Mapping[str, int]

LARGEST = 1e15  # squares and products of such numbers are still finite
SMALLEST = 1e-15
# The bits of a number of half precision that are all set in infinity and NaN alone; others are no larger than 65504.
HALF_EXPONENT = np.uint16(0x7C00)


@dataclass(frozen=True, slots=True)
class Expected:
    """Rules for an array: ``kind`` is numpy's letter, ``shape`` names lengths ("" for any), ``positive`` is above 0."""

    kind: str
    shape: tuple[str, ...]
    positive: bool = False


PSEUDO = "pseudo."  # begins the name of a pseudo-speaker's supervectors
CONDITIONS = ("condition.recorded", "condition.changed")

# Lengths in shapes: k centroids of one speaker, M of all N speakers, W others in a cohort, T held-out trials; for each
# analysis ("frames", "supervector", "gmm", "normalised"), under its name, the dimensions of its feature vectors; C,
# those of "supervector" with its static features counted twice. For each kind of machine: K components of its UBM, D
# the length of its supervectors, B bins of its histograms, S segments that it was solved from and I pairs of these.
# A name that ends in "*" stands for every name with that beginning.
SPEAKER: dict[str, Expected] = {
    "centroids": Expected("f", ("k", "frames")),
    "one_class": Expected("f", ("k",)),
    "one_class_bias": Expected("f", ("1",)),
    "one_vs_rest": Expected("f", ("M",)),
    "one_vs_rest_bias": Expected("f", ("1",)),
    f"{PSEUDO}*": Expected("f", ("", "supervector.D")),
    **dict.fromkeys(CONDITIONS, Expected("f", ("", "C"))),
    "fingerprints": Expected("u", ("",)),
    "high_band": Expected("f", ("1",)),
}

COHORTS = frozenset({"cohort.nearest", "cohort.similarity"})  # they number the speakers
SHARED: dict[str, Expected] = {
    "cohort.nearest": Expected("u", ("N", "W")),
    "cohort.similarity": Expected("f", ("N", "W")),
}

for _p in TRIAL_KINDS:
    SHARED |= {
        f"{_p}trials.claims": Expected("u", (f"{_p}T",)),
        f"{_p}trials.speakers": Expected("u", (f"{_p}T",)),
        f"{_p}trials.population": Expected("i", (f"{_p}T",), positive=True),
        f"{_p}trials.frames": Expected("i", (f"{_p}T",), positive=True),
        f"{_p}trials.unknown": Expected("b", (f"{_p}T",)),
        f"{_p}trials.score.*": Expected("f", (f"{_p}T",)),
        f"{_p}trials.prefix.*": Expected("f", (f"{_p}T",)),
    }

for _kind in UTTERANCE_KINDS:
    _p = _kind.array
    if _kind.machine == "gmm":
        SPEAKER[_p] = Expected("f", (f"{_kind.backgrounds[0].name}.K", *_kind.analyses))
    elif _kind.machine == "histogram":
        SPEAKER[_p] = Expected("f", (f"{_p}.B",), positive=True)
    else:
        SPEAKER |= {_p: Expected("f", (f"{_p}.D",)), _kind.branch.segments: Expected("f", ("", f"{_p}.D"))}
        SHARED |= {
            f"{_p}.mean": Expected("f", (f"{_p}.D",)),
            f"{_p}.inner": Expected("f", (f"{_p}.I",)),
            f"{_p}.inner.speakers": Expected("u", (f"{_p}.S",)),
            f"{_p}.inner.segments": Expected("u", (f"{_p}.S",)),
        }

for _background in (one for one in BACKGROUNDS if one.is_trained):
    _p, _e = _background.name, _background.analysis
    SHARED |= {
        f"{_p}.centre": Expected("f", (_e,)),
        f"{_p}.scale": Expected("f", (_e,), positive=True),
        f"{_p}.means": Expected("f", (f"{_p}.K", _e)),
        f"{_p}.variances": Expected("f", (f"{_p}.K", _e), positive=True),
        f"{_p}.weights": Expected("f", (f"{_p}.K",), positive=True),
    }

TRIAL_ARRAYS = tuple(f"trials.{column}" for column in COLUMNS)


def required_arrays(config: Config, speakers: int) -> tuple[set[str], set[str]]:
    """Return the names of the arrays that each speaker, and the population, must have with so many ``speakers``."""
    kinds = config.machines.kinds
    own = {"centroids", "one_class", "one_class_bias"} | ({"fingerprints"} if config.duplicate_audio.keep else set())
    shared = set[str]()
    if not speakers:
        return own, shared
    if "one_vs_rest" in kinds and speakers > 1:
        own |= {"one_vs_rest", "one_vs_rest_bias"}
    if "one_vs_one" in kinds and config.machines.cohort != "all":
        shared |= COHORTS
    for kind in utterance_kinds_of(kinds):
        own |= {kind.array} | ({kind.branch.segments} if kind.machine == "supervector" else set())
        begins = (f"{kind.array}.mean", *(f"{background.name}." for background in kind.backgrounds))
        shared |= {name for name in SHARED if name.startswith(begins)}
    return own, shared


def check_array(where: str, layout: Mapping[str, Expected], name: str, array: AnyArray, lengths: Lengths) -> None:
    """Raise StoreFormatError unless ``array`` has the kind, the shape and values that ``layout`` allows."""
    starts = (entry for key, entry in layout.items() if key.endswith("*") and name.startswith(key[:-1]))
    expected = layout[name] if name in layout else next(starts, None)
    if expected is None:
        raise StoreFormatError(f"{where}: array {name!r} is not one that a store holds; changed by hand?")
    fits = len(array.shape) == len(expected.shape) and all(
        want == "" or have == int(lengths.get(want, want if want.isdecimal() else have))
        for have, want in zip(array.shape, expected.shape, strict=True)
    )
    if array.dtype.kind != expected.kind or not fits:
        wanted = ", ".join(f"{name} = {lengths[name]}" if name in lengths else name or "any" for name in expected.shape)
        raise StoreFormatError(
            f"{where}: array {name!r} must have the shape ({wanted}) of kind {expected.kind!r}, got {array.shape} of"
            f" kind {array.dtype.kind!r}; damaged, or changed by hand"
        )
    _check_values(where, name, array, expected)


def _check_values(where: str, name: str, array: AnyArray, expected: Expected) -> None:
    low = SMALLEST if expected.positive else -LARGEST
    halves = array.dtype == np.float16 and not expected.positive
    if array.size == 0 or (halves and not ((array.view(np.uint16) & HALF_EXPONENT) == HALF_EXPONENT).any()):
        return
    if array.dtype.kind == "f" and not (float(array.min()) >= low and float(array.max()) <= LARGEST):  # or NaN
        raise StoreFormatError(
            f"{where}: array {name!r} must hold numbers from {low:g} to {LARGEST:g}, got {array.min()} to {array.max()}"
        )
    if array.dtype.kind == "i" and expected.positive and array.min() < 1:
        raise StoreFormatError(f"{where}: array {name!r} must hold numbers from 1 on, got {array.min()}")
