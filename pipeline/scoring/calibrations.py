"""Calibrations that a store keeps, and their JSON: plain numbers and names, checked when they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from pipeline.scoring.calibration import Fits, LogisticCalibration, Origin, SystemCalibration
from pipeline.scoring.conditions import CONDITION, DistanceLimit
from pipeline.scoring.rules import RULES


@dataclass(frozen=True)
class Calibrations:
    """Calibrations of a store's default system: over whole utterances, and over speech of any length."""

    whole: Mapping[str, SystemCalibration] = field(default_factory=dict)
    sequential: Mapping[str, SystemCalibration] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers and names, for ``from_json``."""
        return {
            kind: {name: _calibration_json(one) for name, one in calibrations.items()}
            for kind, calibrations in (("whole", self.whole), ("sequential", self.sequential))
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``as_json`` gives; raises ValueError, KeyError or TypeError for anything else."""
        whole, sequential = (
            {_known(name): _calibration(name, one) for name, one in table[kind].items()}
            for kind in ("whole", "sequential")
        )
        return cls(whole, sequential)


def _calibration_json(one: SystemCalibration) -> dict[str, Any]:
    table: dict[str, Any] = {"ratio": _fits_json(one.ratio), "weights": _fits_json(one.weights), "changed": None}
    table["shifts"] = {str(claim): shift for claim, shift in one.shifts.items()}
    table["limit"] = None if one.limit is None else asdict(one.limit)
    if one.changed is not None and one.condition is not None:
        table |= {"changed": _calibration_json(one.changed), "condition": _fits_json((("all", one.condition),))}
    return table


def _calibration(system: str, table: Mapping[str, Any]) -> SystemCalibration:
    shifts = {int(claim): float(shift) for claim, shift in table.get("shifts", {}).items()}
    if not all(map(math.isfinite, shifts.values())):
        raise ValueError("a calibration must have finite shifts")
    limit = None if table.get("limit") is None else _limit(table["limit"])
    made = SystemCalibration(system, _fits(table["ratio"]), _fits(table["weights"]), shifts=shifts, limit=limit)
    if table["changed"] is None:
        return made
    ((_, condition),) = _fits(table["condition"])
    return replace(made, changed=_calibration(system, {**table["changed"], "changed": None}), condition=condition)


def _limit(table: Mapping[str, Any]) -> DistanceLimit:
    least, more, factor, most_frames = (float(table[one.name]) for one in fields(DistanceLimit))
    sound = all(math.isfinite(one) and one >= 0.0 for one in (least, more, factor, most_frames))
    if not sound or least + more == 0.0 or factor <= 1.0 or most_frames == 0.0:
        raise ValueError("a limit of distances must have finite numbers, some above 0, and a factor above 1")
    return DistanceLimit(least, more, factor, most_frames)


def _fits_json(fits: Fits) -> list[dict[str, Any]]:
    return [
        {"against": origin, **asdict(fit), "systems": list(fit.systems), "weights": fit.weights.tolist()}
        for origin, fit in fits
    ]


def _fits(rows: Sequence[Mapping[str, Any]]) -> Fits:
    fits: list[tuple[Origin, LogisticCalibration]] = []
    for row in rows:
        numbers = [float(row[name]) for name in ("offset", "duration", "usual_frames")]
        weights = np.array([float(weight) for weight in row["weights"]])
        systems = tuple(_known(name) for name in row["systems"])
        is_sound = all(map(math.isfinite, (*numbers, *weights))) and len(weights) == len(systems) and numbers[2] > 0
        if row["against"] not in ("enrolled", "unknown", "all") or not is_sound:
            raise ValueError("a calibration must have finite weights, one a system")
        fits.append((row["against"], LogisticCalibration(systems, weights, *numbers)))
    return tuple(fits)


def _known(system: object) -> str:
    if not isinstance(system, str) or (system not in RULES and system != CONDITION):
        raise ValueError(f"there is no system {str(system)[:40]!r}")
    return system
