"""What pair machines against the hardest rivals are left, and what it takes more, when a speaker goes.

Only who has a machine against the speaker who goes ever had them among their hardest rivals. The others of these move
up: the machines that are left are those that enrolling the rest without the speaker would have given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.backends import LocalThreads
from pipeline.config import MachineConfig
from pipeline.machines.assembly import train_pairs
from pipeline.machines.pool import Pool
from pipeline.machines.rivals import Hardness, MachineSource, PairMachine, RivalTable, ever_hardest
from pipeline.threads import in_order, jobs_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RivalsLeft:
    """The ``table`` of the rest, numbered anew, and the machines ``trained`` now, by (later, earlier)."""

    table: RivalTable
    trained: Mapping[tuple[int, int], PairMachine]

    def trained_by(self, later: int) -> dict[int, PairMachine]:
        """The machines trained now that stand in the file of the speaker ``later``, by the earlier speaker."""
        return {earlier: machine for (second, earlier), machine in self.trained.items() if second == later}


def rivals_without(
    gone: int,
    pool: Pool,
    table: RivalTable,
    machines: MachineSource,
    settings: MachineConfig,
    *,
    family: int | None = None,
    jobs: int = 1,
) -> RivalsLeft:
    """What is left of a population of ``pool`` with ``table`` and ``machines`` when the speaker ``gone`` goes.

    ``pool`` is that of the rest. Costs a look at everybody for each who has a machine against the speaker.
    """
    if settings.rivals == "all":
        raise AssertionError("where machines are kept against everybody, there is none to train when a speaker goes")
    against = _against(gone, len(table), machines)
    most = settings.rivals

    hardness = Hardness(pool)

    def to_rest(number: int) -> Array:
        return hardness.to(number, range(len(pool)))

    left = [number - (number > gone) for number in against]
    changed = dict(zip(left, in_order(to_rest, left, jobs_of(jobs)), strict=True))
    wanted = {
        (max(number, int(other)), min(number, int(other)))
        for number, values in changed.items()
        for other in np.flatnonzero(ever_hardest(values, number, most))
    }
    missing = [pair for pair in sorted(wanted) if not _is_there(pair, gone, machines)]
    trained = train_pairs(pool, settings, missing, family=family, workers=LocalThreads(jobs))
    return RivalsLeft(table.without(gone, changed, most), trained)


def _against(gone: int, speakers: int, machines: MachineSource) -> list[int]:
    """Numbers of those who have a machine against the speaker ``gone``."""
    later = [number for number in range(gone + 1, speakers) if gone in machines.earlier(number)]
    return [*machines.earlier(gone).tolist(), *later]


def _is_there(pair: tuple[int, int], gone: int, machines: MachineSource) -> bool:
    """Whether there is a machine of the ``pair``, numbered anew."""
    later, earlier = (number + (number >= gone) for number in pair)
    return earlier in machines.earlier(later)
