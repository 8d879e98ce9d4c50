"""Panels: the claim and the hardest rivals, among whom it is judged where pair machines are kept for these alone.

A panel of P = min(N, R + 1) speakers, in order of enrollment, is a population of its own to every rule that looks at
one claim. Claims judged together share the kernel values of whoever is in several of their panels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.machines.population import Margins, MarginScorer, Population
from pipeline.machines.rivals import MachineSource

Array = NDArray[np.float64]
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


class PanelPairs:
    """The pair machines of claims, each against its panel, 0 against others (``machines.population.PairSource``)."""

    def __init__(self, population: Population, panels: Panels, source: MachineSource) -> None:
        pool, claims = population.pool, panels.claims
        family = _family(panels, source)
        self._slots = {int(claim): slot for slot, claim in enumerate(claims)}
        self._rows = {claim: np.zeros((len(pool.codebook(claim)), len(pool), *family)) for claim in self._slots}
        self._columns = np.zeros((len(pool.centroids), len(claims), *family))
        self._bias = np.zeros((len(claims), len(pool), *family))
        for slot, claim in enumerate(claims.tolist()):
            for rival in panels.members[slot].tolist():
                if rival == claim:
                    continue
                machine = source.machine(max(claim, rival), min(claim, rival))
                own, against = (machine.own, machine.rival) if claim > rival else (machine.rival, machine.own)
                self._rows[claim][:, rival] = own
                self._columns[pool.rows(rival), slot] = against
                self._bias[slot, rival] = machine.bias if claim > rival else -machine.bias

    def rows(self, speaker: int) -> Array:
        """See PairSource; of a claim."""
        return self._rows[speaker]

    def columns(self, claims: Numbers) -> Array:
        """See PairSource; of claims that have panels."""
        return self._columns[:, [self._slots[int(claim)] for claim in claims]]

    def bias(self, claims: Numbers) -> Array:
        """See PairSource; of claims that have panels."""
        return self._bias[[self._slots[int(claim)] for claim in claims]]


def _family(panels: Panels, source: MachineSource) -> tuple[int, ...]:
    """The axes that families of machines have more."""
    if panels.members.shape[0] == 0 or panels.members.shape[1] < 2:
        return ()
    claim = int(panels.claims[0])
    rival = int(next(member for member in panels.members[0] if member != claim))
    return source.machine(max(claim, rival), min(claim, rival)).bias.shape


class PanelMarginScorer(MarginScorer):
    """Margins of each claim in its panel: ``pair`` and ``one_class`` (T, C, P), ``claims`` (C,) the places in them."""

    def __init__(
        self, population: Population, panels: Panels, kinds: frozenset[str], *, dtype: str = "float64"
    ) -> None:
        if "one_vs_one" in kinds and population.rival_machines is not None:
            population = replace(population, pairs=PanelPairs(population, panels, population.rival_machines))
        super().__init__(population, panels.claims, kinds, dtype=dtype)
        self._panels = panels

    def __call__(self, features: Array) -> Margins:
        """Margins of ``features`` (T, d)."""
        found, members = super().__call__(features), self._panels.members
        return Margins(
            self._panels.slots,
            pair=None if found.pair is None else np.take_along_axis(found.pair, members[None], axis=2),
            one_class=None if found.one_class is None else found.one_class[:, members],
        )
