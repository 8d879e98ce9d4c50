"""Posterior maps (per-machine calibration): fitted maps from margins to log-odds, evaluated for all machines at once.

A map is a row of P numbers. With P = 3 it is a, b, c of the log-odds a f^2 + b f + c, which covers sigmoids and
Gaussians. Otherwise it is a table: margins ``low`` and ``high``, then log-odds at evenly spaced knots between them,
linearly interpolated and constant beyond. A row of NaN marks a machine without a map of its own: the pooled map of its
kind replaces it.

A pair has one map, stored with the later of its two speakers and evaluated at the margin of the later against the
earlier; the earlier's is its mirror image, -g(-f), so that the two posteriors of a pair sum to 1 exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyFloat = NDArray[Any]
Array = NDArray[np.float64]

QUADRATIC = 3
"""Numbers of a map that is a quadratic."""
KNOTS = 128
"""Knots of a map that is a table."""

# Sets of claims whose pair maps are cached: scoring asks for the same ones block after block.
MAX_CACHED = 8

PAIR = "pair"
ONE_CLASS = "one_class"
ONE_VS_REST = "one_vs_rest"
KINDS = (PAIR, ONE_CLASS, ONE_VS_REST)
"""Kinds of machine that have maps."""


def map_name(kind: str) -> str:
    """Return the name of the arrays of ``kind``: (n, P) for pairs with n earlier speakers, else (1, P)."""
    return f"{kind}_map"


class MachinePosterior:
    """Posterior by the maps of N speakers' machines: a ``coupling.Posterior``.

    ``sources`` are the speakers' own maps, in order of enrollment, and ``pooled`` (P,) those of each kind of machine.
    Pair maps are read when a claim first needs them: its own, and one row of each later speaker's.

    Maps are fitted at even odds. A one-vs-rest machine has N - 1 speakers against one: its log-odds are reduced by
    log(N - 1), since eq. 12 sums posteriors that compete (no change with two speakers). q of eq. 15 stays at even odds.
    """

    def __init__(self, sources: Sequence[Mapping[str, AnyFloat]], pooled: Mapping[str, AnyFloat]) -> None:
        self._sources = sources
        self._pooled = pooled
        self._single = {
            kind: self._completed(np.concatenate([source[map_name(kind)] for source in sources]), kind)
            for kind in (ONE_CLASS, ONE_VS_REST)
        }
        self._pairs: dict[bytes, tuple[AnyFloat, AnyFloat]] = {}

    def pair(self, margins: AnyFloat, claims: NDArray[np.int64]) -> AnyFloat:
        """Return the log-odds (T, C, N) of pair margins: see ``coupling.Posterior``."""
        key = np.asarray(claims, dtype=np.int64).tobytes()
        cached = self._pairs.get(key)
        if cached is None:
            cached = self._pair_maps(claims)
            # A new dictionary, not a changed one: other threads may be reading.
            self._pairs = {key: cached} if len(self._pairs) >= MAX_CACHED else self._pairs | {key: cached}
        maps, sign = cached[0], cached[1].astype(margins.dtype)
        return np.asarray(evaluate(maps, sign * margins) * sign)

    def one_class(self, margins: AnyFloat) -> AnyFloat:
        """Return the log-odds (T, N) of one-class margins."""
        return evaluate(self._single[ONE_CLASS], margins)

    def one_vs_rest(self, margins: AnyFloat) -> AnyFloat:
        """Return the log-odds (T, N) of one-vs-rest margins, at the prior 1 / N."""
        log_odds = evaluate(self._single[ONE_VS_REST], margins)
        return np.asarray(log_odds - log_odds.dtype.type(np.log(max(1, log_odds.shape[-1] - 1))))

    def _completed(self, maps: AnyFloat, kind: str) -> AnyFloat:
        """Return ``maps`` (..., P) with rows of NaN replaced by the pooled map."""
        return np.where(np.isnan(maps), self._pooled[kind], maps)

    def _pair_maps(self, claims: NDArray[np.int64]) -> tuple[AnyFloat, AnyFloat]:
        """Return the maps (C, N, P) of the claims' pairs, and 1 where the claim is the later of the two, else -1."""
        speakers, name = len(self._sources), map_name(PAIR)
        maps = np.full((len(claims), speakers, len(self._pooled[PAIR])), np.nan)
        for slot, claim in enumerate(claims.tolist()):
            maps[slot, :claim] = self._sources[claim][name]
            for later in range(claim + 1, speakers):
                maps[slot, later] = self._sources[later][name][claim]
        sign = np.where(np.arange(speakers) <= claims[:, None], 1.0, -1.0)
        return self._completed(maps, PAIR), sign


def evaluate(maps: AnyFloat, margins: AnyFloat) -> AnyFloat:
    """Return log-odds, in the precision of ``margins`` (..., n), by the maps (..., n, P) that broadcast with them."""
    maps = maps.astype(margins.dtype, copy=False)
    if maps.shape[-1] == QUADRATIC:
        a, b, c = np.moveaxis(maps, -1, 0)
        return np.asarray((a * margins + b) * margins + c)
    low, high, values = maps[..., 0], maps[..., 1], maps[..., 2:]
    last = margins.dtype.type(values.shape[-1] - 1)
    # Just short of the last knot, so that there is always one to the right.
    place = np.clip((margins - low) * (last / (high - low)), 0, np.nextafter(last, last - 1))
    left = place.astype(np.intp)
    place -= left
    left += np.arange(low.size).reshape(low.shape) * values.shape[-1]
    flat = values.ravel()
    below = flat.take(left)
    return np.asarray(below + place * (flat.take(left + 1) - below))


def identity_map(slope: float, numbers: int) -> Array:
    """Return the map (``numbers``,) to log-odds slope * margin, for want of a fit."""
    if numbers == QUADRATIC:
        return np.array([0.0, slope, 0.0])
    reach = 40.0 / slope
    return np.concatenate(((-reach, reach), slope * np.linspace(-reach, reach, numbers - 2)))
