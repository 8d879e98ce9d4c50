"""What the files of a store must hold: names of arrays, kinds of numbers, lengths that belong together.

A checksum says that a file is the one the manifest means, not that it can be computed with: whoever can write the one
can write the other. Files are compared with these tables before anything is read from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lengths = dict[str, int | tuple[int, ...]]
REST = "..."  # further axes, the same ones in every array that may have them
ANY = ""  # a length of its own


@dataclass(frozen=True, slots=True)
class Expected:
    """One array: ``kind`` of its numbers as numpy's letter, its ``shape`` in lengths, named lengths and their products.

    Arrays without ``needed`` may be missing. A ``positive`` one holds no zero, one with ``gaps`` NaN where there was
    too little to fit, and one of ``maps`` rows that are maps from margins to log-odds.
    """

    kind: str
    shape: tuple[str | int, ...]
    needed: bool = True
    positive: bool = False
    gaps: bool = False
    maps: bool = False


Layout = Mapping[str, Expected]
"""By name; a name that ends in ``*`` stands for all that begin like it. Names that are not there may hold anything."""

_KINDS = ("pair", "one_class", "one_vs_rest")  # of machines that have maps
_LEAST_MAP = 3  # numbers: a quadratic, or a table with its two ends
_LEAST_REACH = 1e-30  # of a table, in the units of margins: what single precision can still divide by


def _own_map(rows: str | int) -> Expected:
    return Expected("f", (rows, "P"), needed=False, gaps=True, maps=True)


# k centroids of d features; n earlier speakers, with r centroids in all; S stretches of D numbers, and strangers' own;
# maps of P numbers and samples of margins.
SPEAKER: Layout = {
    "centroids": Expected("f", ("k", "d")),
    "one_class": Expected("f", ("k",)),
    "one_class_bias": Expected("f", (1,)),
    "earlier": Expected("u", ("n",), needed=False),
    "own": Expected("f", ("n", "k", REST), needed=False),
    "rival": Expected("f", ("r", REST), needed=False),
    "bias": Expected("f", ("n", REST), needed=False),
    "stretches": Expected("f", ("S", "D"), needed=False),
    "stranger.*": Expected("f", (ANY, "D"), needed=False),
    "fingerprints": Expected("u", (ANY,), needed=False),
    "pair_map": _own_map("n"),
    "one_class_map": _own_map(1),
    "one_vs_rest_map": _own_map(1),
} | {
    f"{kind}_{side}_sample": Expected("f", (ANY,), needed=False, gaps=True)
    for kind in _KINDS
    for side in ("own", "others")
}
# M centroids of N speakers.
ONE_VS_REST: Layout = {"coef": Expected("f", ("M", "N", REST)), "bias": Expected("f", ("N", REST))}
# A mixture of K Gaussians in d dimensions, N machines, and N models.
SEGMENTS: Layout = {
    "centre": Expected("f", ("d",)),
    "scale": Expected("f", ("d",), positive=True),
    "means": Expected("f", ("K", "d")),
    "variances": Expected("f", ("K", "d"), positive=True),
    "weights": Expected("f", ("K",), positive=True),
    "mean": Expected("f", ("K*d",)),
    "coef": Expected("f", ("K*d", "N")),
    "shifts": Expected("f", ("N", "K", "d"), needed=False),
}
CALIBRATION: Layout = {
    "claims": Expected("u", ("T",)),
    "speakers": Expected("u", ("T",)),
    "population": Expected("i", ("T",), positive=True),
    "frames": Expected("i", ("T",), positive=True),
    "outsider": Expected("b", ("T",)),
    "score.*": Expected("f", ("T",)),
    "beginning.*": Expected("f", ("T",), needed=False),
}
# The W hardest rivals of each of N speakers.
RIVALS: Layout = {"nearest": Expected("u", ("N", "W")), "hardness": Expected("f", ("N", "W"))}
# What serves where a speaker has no map.
POSTERIORS: Layout = {f"{kind}_map": Expected("f", ("P",), maps=True) for kind in _KINDS}


def are_maps(rows: NDArray[Any]) -> bool:
    """Whether the last axis of ``rows`` can be maps (``posteriors.machine_posteriors``): tables have two ends apart."""
    if rows.shape[-1] < _LEAST_MAP:
        return False
    ends = rows[..., :2].astype(np.float32)
    return rows.shape[-1] == _LEAST_MAP or not bool(np.any(ends[..., 1] - ends[..., 0] < _LEAST_REACH))  # NaN passes


def expected_of(layout: Layout, name: str) -> Expected | None:
    """What ``layout`` says of the array ``name``."""
    if name in layout:
        return layout[name]
    return next((found for key, found in layout.items() if key.endswith("*") and name.startswith(key[:-1])), None)


def fits(shape: tuple[int, ...], expected: tuple[str | int, ...], lengths: Lengths) -> bool:
    """Whether ``shape`` is the ``expected`` one; a length named for the first time is what it is here, from then on."""
    if expected[-1] == REST:
        expected = expected[:-1]
        if shape[len(expected) :] != lengths.setdefault(REST, shape[len(expected) :]):
            return False
        shape = shape[: len(expected)]
    return len(shape) == len(expected) and all(
        _is(have, want, lengths) for have, want in zip(shape, expected, strict=True)
    )


def _is(have: int, want: str | int, lengths: Lengths) -> bool:
    if isinstance(want, int) or want == ANY:
        return want in (have, ANY)
    if "*" in want:
        product = 1
        for factor in want.split("*"):
            length = lengths.get(factor, 0)
            product *= length if isinstance(length, int) else 0
        return have == product
    return have == lengths.setdefault(want, have)
