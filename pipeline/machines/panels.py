"""Panels: the claim and the hardest rivals, among whom it is judged where pair machines are kept for these alone.

A panel of P = min(N, R + 1) speakers, in order of enrollment, is a population of its own to every rule that looks at
one claim. Claims judged together share the kernel values of whoever is in several of their panels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.pool import Precision
from pipeline.machines.population import Margins, Population, kernel_frames, share_log_odds
from pipeline.machines.rivals import MachineSource, PairMachine

Array = NDArray[np.float64]
AnyFloat = NDArray[Any]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Panels:
    """Panels of C ``claims`` (C,): ``members`` (C, P), speaker numbers in order, the claim's own at ``slots`` (C,)."""

    claims: Numbers
    members: Numbers
    slots: Numbers

    @classmethod
    def of(cls, claims: Iterable[int], nearest: Numbers) -> Panels:
        """Of each claim and their rivals ``nearest`` (C, W), in any order."""
        asked = np.fromiter(claims, dtype=np.int64)
        members = np.sort(np.concatenate((asked[:, None], nearest.reshape(len(asked), -1)), axis=1), axis=1)
        return cls(asked, members, (members < asked[:, None]).sum(axis=1))

    @property
    def speakers(self) -> Numbers:
        """Everybody who is in one of the panels, in order."""
        return np.unique(np.concatenate((self.claims, self.members.ravel())))

    def numbered(self) -> Panels:
        """The same panels with speakers numbered by their places among ``speakers``."""
        everybody = self.speakers
        return Panels(np.searchsorted(everybody, self.claims), np.searchsorted(everybody, self.members), self.slots)


@dataclass(frozen=True)
class _Tile:
    """What one speaker's ``size`` = k centroids are multiplied with: for the kernel, and then as rival and as claim.

    ``shared`` (k, n * L) meets the n claims at ``slots`` whose panels have the speaker at ``places``; ``own``
    (k, P * L) the panel of the claims at ``claimed``, which are the speaker.
    """

    size: int
    kernel_side: AnyFloat
    shared: AnyFloat
    slots: Numbers
    places: Numbers
    own: AnyFloat | None
    claimed: Numbers
    one_class: AnyFloat | None


class PanelMargins:
    """Margins of each claim in its panel: ``pair`` and ``one_class`` (T, C, P), ``claims`` (C,) the places in them.

    Speaker by speaker as ``MarginScorer``, but each speaker's kernel values meet those claims alone whose panels the
    speaker is in: products of C * P columns, not C * N. ``population`` holds everybody in the ``panels``; ``machines``
    is the length L of families, else 1.
    """

    def __init__(
        self,
        population: Population,
        panels: Panels,
        kinds: frozenset[str],
        *,
        dtype: str = "float64",
        compiled: bool = False,
    ) -> None:
        self._pool, self._panels = population.pool, panels
        self._precision = Precision.named(dtype, compiled=compiled)
        self._centre = self._pool.centroids.mean(axis=0)  # what float32 cannot spare, as in MarginScorer
        machines = None
        if "one_vs_one" in kinds and population.rival_machines is not None:
            machines = _Once(population.rival_machines)
        of_one_class = "one_class" in kinds
        self._one_class_bias = population.one_class_bias if of_one_class else None
        coef = population.one_class_coef if of_one_class else None
        self._bias = None if machines is None else _biases(panels, machines)
        self._family = () if self._bias is None else self._bias.shape[2:]
        self.machines = math.prod(self._family)
        self._tiles = [self._tile(n, machines, coef) for n in range(len(self._pool))]

    def _tile(self, n: int, machines: _Once | None, coef: Array | None) -> _Tile:
        rows, members = self._pool.rows(n), self._panels.members
        y = (self._pool.centroids[rows] - self._centre) / self._pool.sigma
        side = np.concatenate((y, np.full((len(y), 1), 1.0), -0.5 * (y * y).sum(1, keepdims=True)), axis=1)
        claimed = np.flatnonzero(self._panels.claims == n)
        slots, places = np.nonzero((members == n) & (self._panels.claims != n)[:, None])
        shared, own = np.zeros((len(y), len(slots), *self._family)), None
        if machines is not None:
            for column, slot in enumerate(slots):
                shared[:, column] = -_weights(machines, n, int(self._panels.claims[slot]))
            if claimed.size:
                own = np.zeros((len(y), members.shape[1], *self._family))
                for place, rival in enumerate(members[claimed[0]].tolist()):
                    if rival != n:
                        own[:, place] = _weights(machines, n, rival)
        return _Tile(
            len(y),
            self._side(side),
            self._flat(shared.reshape(len(y), -1)),
            slots,
            places,
            None if own is None else self._flat(own.reshape(len(y), -1)),
            claimed,
            None if coef is None else self._flat(coef[rows]),
        )

    def _side(self, centroids: Array) -> AnyFloat:
        """Of the kernel's product, one speaker's, ``laid_out``: columns of zeros make up whole blocks."""
        found = np.zeros((1, centroids.shape[1], self._precision.columns(len(centroids))), self._precision.products)
        found[0, :, : len(centroids)] = centroids.T
        return self._precision.laid_out(found)

    def _flat(self, array: Array) -> AnyFloat:
        return np.ascontiguousarray(array, dtype=self._precision.sums)

    def __call__(self, features: Array) -> Margins:
        """Margins of ``features`` (T, d)."""
        frames = kernel_frames(features, self._centre, self._pool.sigma, self._precision.products)
        count = len(frames)
        pair, one_class = self._start(self._bias, count), self._start(self._one_class_bias, count)
        for n, tile in enumerate(self._tiles):
            room = np.empty((1, count, self._precision.columns(tile.size)), dtype=frames.dtype)
            made = self._precision.kernel_values(frames, tile.kernel_side, room)[0]
            kernel = made[:, : tile.size].astype(self._precision.sums, copy=False)
            if pair is not None:
                pair[:, tile.slots, tile.places] += (kernel @ tile.shared).reshape(count, -1, *self._family)
                if tile.own is not None:
                    pair[:, tile.claimed] += (kernel @ tile.own).reshape(count, 1, -1, *self._family)
            if one_class is not None and tile.one_class is not None:
                one_class[:, n] += kernel @ tile.one_class
        return Margins(
            self._panels.slots,
            pair=share_log_odds(pair) if pair is not None and self._family else pair,
            one_class=None if one_class is None else one_class[:, self._panels.members],
        )

    def _start(self, bias: Array | None, frames: int) -> AnyFloat | None:
        return None if bias is None else np.repeat(bias[None].astype(self._precision.sums), frames, axis=0)


class _Once:
    """The machines of a source, each read once: it is met as that of either speaker, and for its bias."""

    def __init__(self, source: MachineSource) -> None:
        self._source = source
        self._read: dict[tuple[int, int], PairMachine] = {}

    def machine(self, one: int, other: int) -> PairMachine:
        """Of two speakers, in any order."""
        pair = max(one, other), min(one, other)
        if pair not in self._read:
            self._read[pair] = self._source.machine(*pair)
        return self._read[pair]


def _biases(panels: Panels, machines: _Once) -> Array:
    """Of each claim against its panel: (C, P), or (C, P, L) of families; 0 against itself."""
    found = []
    for claim, members in zip(panels.claims.tolist(), panels.members.tolist(), strict=True):
        against = [
            machines.machine(claim, rival).bias * (1 if claim > rival else -1) for rival in members if rival != claim
        ]
        family = against[0].shape if against else ()
        against.insert(members.index(claim), np.zeros(family))
        found.append(np.stack(against))
    return np.stack(found)


def _weights(machines: _Once, speaker: int, other: int) -> Array:
    """Coefficients (k,) of the speaker's centroids in the machine of the two."""
    machine = machines.machine(speaker, other)
    return machine.own if speaker > other else machine.rival
