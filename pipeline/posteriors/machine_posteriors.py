"""Fitted maps from margins to log-odds, one a machine, evaluated for all machines of a kind at once.

A map is a row of P numbers. With P = 3 it is a, b, c of the log-odds a f^2 + b f + c, which is what sigmoids and
Gaussians come to. Otherwise it is a table: the margins ``low`` and ``high``, then log-odds at knots evenly spaced from
one to the other, straight lines between them and constant beyond. A row of NaN stands for a machine without a map of
its own: it takes the pooled one of its kind.

A pair has one map, kept with the later of its two speakers and read for the margin of the later against the earlier;
the earlier's is its mirror image, -g(-f), so that the two posteriors of a pair sum to 1 exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.posteriors.sigmoid import at_prior

AnyFloat = NDArray[Any]
Array = NDArray[np.float64]

QUADRATIC = 3
"""Numbers of a map that is a quadratic."""
KNOTS = 128
"""Knots of a map that is a table."""

# Sets of claims whose maps are kept at a time: scoring asks for the same ones block after block.
MOST_KEPT = 8

PAIR = "pair"
ONE_CLASS = "one_class"
ONE_VS_REST = "one_vs_rest"
KINDS = (PAIR, ONE_CLASS, ONE_VS_REST)
"""Kinds of machine that have maps."""


def map_name(kind: str) -> str:
    """Name of the arrays that hold the maps of ``kind``: (n, P) for pairs with n earlier speakers, else (1, P)."""
    return f"{kind}_map"


class MapSource(Protocol):
    """Where one speaker's maps are kept: a file of the store, or ``MapArrays``."""

    def read(self, name: str, part: int | slice | None = None) -> AnyFloat:
        """The array ``name``, or ``part`` of it along its first axis."""


class MapArrays:
    """One speaker's arrays in memory."""

    def __init__(self, arrays: Mapping[str, AnyFloat]) -> None:
        self.arrays = dict(arrays)

    def read(self, name: str, part: int | slice | None = None) -> AnyFloat:
        """See MapSource."""
        return self.arrays[name] if part is None else np.asarray(self.arrays[name][part])


class MachinePosterior:
    """The maps of N speakers' machines (``coupling.Posterior``).

    ``sources`` are the speakers' own maps, in order of enrollment, and ``pooled`` (P,) those of each kind of machine.
    Maps of pairs are read when a claim first asks for them; a claim reads its own and one row of each later speaker's.

    Maps are fitted to classes that count alike. A one-vs-rest machine has N - 1 others against its speaker: its
    log-odds are less log(N - 1), for the sum in eq. 12 is over posteriors that compete (with two speakers nothing
    changes). q of eq. 15 stays at even odds, being a membership of each speaker on their own.
    """

    def __init__(self, sources: Sequence[MapSource], pooled: Mapping[str, AnyFloat]) -> None:
        self._sources = sources
        self._pooled = pooled
        self._single = {kind: self._of_kind(kind) for kind in (ONE_CLASS, ONE_VS_REST)}
        self._pairs: dict[bytes, tuple[AnyFloat, AnyFloat]] = {}

    def pair(self, margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
        """Log-odds (T, C, N) of pair margins: see ``coupling.Posterior``."""
        key = np.asarray(claims, dtype=np.int64).tobytes()
        found = self._pairs.get(key)
        if found is None:
            found = self._pair_maps(claims)
            # A new dictionary, not a changed one: other threads may be reading.
            self._pairs = {key: found} if len(self._pairs) >= MOST_KEPT else self._pairs | {key: found}
        maps, sign = found[0], found[1].astype(margins.dtype)
        return np.asarray(evaluate(maps, sign * margins) * sign)

    def one_class(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds (T, N) of one-class margins."""
        return evaluate(self._single[ONE_CLASS], margins)

    def one_vs_rest(self, margins: AnyFloat) -> AnyFloat:
        """Log-odds (T, N) of one-vs-rest margins, at the prior 1 / N."""
        return at_prior(evaluate(self._single[ONE_VS_REST], margins))

    def _of_kind(self, kind: str) -> AnyFloat:
        """Maps (N, P) of ``kind``."""
        return self._completed(np.concatenate([source.read(map_name(kind)) for source in self._sources]), kind)

    def _completed(self, maps: AnyFloat, kind: str) -> AnyFloat:
        """``maps`` (..., P) with the pooled one where there is none."""
        return np.where(np.isnan(maps), self._pooled[kind], maps)

    def _pair_maps(self, claims: NDArray[np.int64]) -> tuple[AnyFloat, AnyFloat]:
        """Maps (C, N, P) of the claims' pairs, and 1 where the claim is the later of the two, -1 where not (C, N)."""
        speakers, name = len(self._sources), map_name(PAIR)
        maps = np.full((len(claims), speakers, len(self._pooled[PAIR])), np.nan)
        for slot, claim in enumerate(claims.tolist()):
            maps[slot, :claim] = self._sources[claim].read(name)
            for later in range(claim + 1, speakers):
                maps[slot, later] = self._sources[later].read(name, claim)
        sign = np.where(np.arange(speakers) <= claims[:, None], 1.0, -1.0)
        return self._completed(maps, PAIR), sign


def evaluate(maps: AnyFloat, margins: AnyFloat) -> AnyFloat:
    """Log-odds, in the precision of ``margins`` (..., n), by the maps (..., n, P) that broadcast against them."""
    maps = maps.astype(margins.dtype, copy=False)
    if maps.shape[-1] == QUADRATIC:
        a, b, c = np.moveaxis(maps, -1, 0)
        return np.asarray((a * margins + b) * margins + c)
    return _interpolated(maps, margins)


def _interpolated(tables: AnyFloat, margins: AnyFloat) -> AnyFloat:
    low, high, values = tables[..., 0], tables[..., 1], tables[..., 2:]
    last = margins.dtype.type(values.shape[-1] - 1)
    place = (margins - low) * (last / (high - low))
    # Just short of the last knot, so that there is always one to the right.
    np.clip(place, 0, np.nextafter(last, last - 1), out=place)
    left = place.astype(np.intp)
    place -= left
    left += np.arange(low.size).reshape(low.shape) * values.shape[-1]
    flat = values.ravel()
    below = flat.take(left)
    left += 1
    above = flat.take(left)
    above -= below
    above *= place
    above += below
    return np.asarray(above)


def identity_map(slope: float, numbers: int) -> Array:
    """The map (``numbers``,) to log-odds slope * margin: what stands where nothing could be fitted."""
    if numbers == QUADRATIC:
        return np.array([0.0, slope, 0.0])
    reach = 40.0 / slope
    return np.concatenate(((-reach, reach), slope * np.linspace(-reach, reach, numbers - 2)))
