"""Error rates of an evaluation at some hundred thresholds, for the charts of report.html and of the service's page.

Names and paths of the trials are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from pipeline.evaluation.scores import SystemScores
from pipeline.metrics import DetBand, equal_error_rate_of, error_curve
from pipeline.store.model import SpeakerModel

MOST_FEATURED = 5  # systems that one figure shows in colour
_FEATURED = ("rpoao", "worst_rival", "supervector_rival", "gmm_rival")  # one of each family beside the default
_MOST_POINTS = 400
_DIGITS = 6


class SystemCurve(BaseModel):
    """Error rates (shares) of one system by ascending threshold, without the last step, which has no threshold.

    The thresholds of the store and of the equal error rate are among them. ``featured`` systems are shown at first.
    ``band`` has the interval of the false rejects as (false accept, low, high).
    """

    name: str
    featured: bool
    targets: int
    nontargets: int
    equal_error_rate: float
    equal_error_threshold: float
    store_threshold: float | None
    thresholds: list[float]
    false_accept: list[float]
    false_reject: list[float]
    band: list[tuple[float, float, float]] | None = None


class Evaluation(BaseModel):
    """All systems of an evaluation that have both target and nontarget trials.

    ``state`` is that of the store at the evaluation (``state_of``); ``stale`` is True if the store has changed since.
    """

    default_system: str
    speakers: int | None
    version: str | None
    systems: list[SystemCurve]
    state: str | None = None
    stale: bool | None = None


def state_of(model: SpeakerModel) -> str:
    """Return the identity, revision and digest of a store; revision numbers may repeat after a backup is restored."""
    return f"{model.identity}@{model.revision}@{model.digest}"


def featured(names: Iterable[str], default: str) -> list[str]:
    """Return at most ``MOST_FEATURED`` of ``names``: the default, one of each family, then the first ones."""
    there = list(names)
    ranked = dict.fromkeys([name for name in (default, *_FEATURED) if name in there] + there)
    return list(ranked)[:MOST_FEATURED]


def curves_of(table: Mapping[str, Any], scores: Mapping[str, SystemScores], band: DetBand | None = None) -> Evaluation:
    """Return the curves of ``scores``, with the content ``table`` of metrics.json and its default system's ``band``."""
    default = table["default_system"]
    systems = table.get("systems", {})
    thresholds = {name: systems.get(name, {}).get("store_threshold") for name in scores}
    drawn = {name: of for name, of in scores.items() if of.two_classes}
    first, bands = featured(drawn, default), {default: band}
    order = dict.fromkeys([*first, *drawn])  # colours go by order, and are those of the figure
    speakers, version, state = (table.get(key) for key in ("speakers", "version", "state"))
    return Evaluation(
        default_system=default,
        speakers=speakers if isinstance(speakers, int) else None,
        version=version if isinstance(version, str) else None,
        systems=[_curve(name, drawn[name], thresholds[name], name in first, bands.get(name)) for name in order],
        state=state if isinstance(state, str) else None,
    )


def _curve(name: str, scores: SystemScores, stored: object, is_featured: bool, band: DetBand | None) -> SystemCurve:
    curve = error_curve(scores.target, scores.nontarget)
    eer = equal_error_rate_of(curve)
    threshold = float(stored) if isinstance(stored, int | float) else None
    marked = [eer.threshold] if threshold is None else [eer.threshold, threshold]
    thresholds = np.unique(np.concatenate([curve.thresholds[_shown(len(curve.thresholds) - 1)], marked]))
    steps = np.searchsorted(curve.thresholds, thresholds, side="left")
    return SystemCurve(
        name=name,
        featured=is_featured,
        targets=scores.target.size,
        nontargets=scores.nontarget.size,
        equal_error_rate=eer.rate,
        equal_error_threshold=eer.threshold,
        store_threshold=threshold,
        thresholds=thresholds.tolist(),
        false_accept=curve.false_accept[steps].tolist(),
        false_reject=curve.false_reject[steps].tolist(),
        band=None if band is None else np.stack((band.false_accept, band.low, band.high), 1).round(_DIGITS).tolist(),
    )


def _shown(steps: int) -> npt.NDArray[np.int64]:
    """Return the steps to draw: geometrically spaced towards both ends, where a rate is near zero."""
    if steps <= _MOST_POINTS:
        return np.arange(steps)
    near = np.geomspace(1, steps, _MOST_POINTS // 2).astype(np.int64)
    return np.unique(np.concatenate([near - 1, steps - near]))
