"""Error rates of the last evaluation for the page: those of every system at some hundred thresholds.

Names and paths of the trials are left out.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from pipeline.errors import MetricError, ServiceError, VoiceclaimError
from pipeline.evaluation import SystemScores, read_scores
from pipeline.evaluation.report import METRICS, SCORES, read_metrics
from pipeline.metrics import equal_error_rate, error_curve

_MOST_POINTS = 400


class SystemCurve(BaseModel):
    """Error rates (shares) of one system by ascending threshold, without the last step, which has no threshold."""

    name: str
    targets: int
    nontargets: int
    equal_error_rate: float
    equal_error_threshold: float
    store_threshold: float | None
    thresholds: list[float]
    false_accept: list[float]
    false_reject: list[float]


class Evaluation(BaseModel):
    """All systems of an evaluation that have both target and nontarget trials."""

    default_system: str
    speakers: int | None
    version: str | None
    systems: list[SystemCurve]


def last_evaluation(folder: Path | None) -> Evaluation:
    """Return the evaluation in ``folder``, read again when its files change; raises ServiceError if there is none."""
    if folder is None:
        raise ServiceError(404, "the service was started without an evaluation (--evaluation)", kind="NotFound")
    try:
        files = [(folder / name).stat() for name in (SCORES, METRICS)]
        return _evaluation(folder, tuple((file.st_ino, file.st_mtime_ns, file.st_size) for file in files))
    except (OSError, VoiceclaimError):
        raise ServiceError(404, "the folder of the evaluation has none that can be read", kind="NotFound") from None


@lru_cache(1)
def _evaluation(folder: Path, _stamp: tuple[tuple[int, ...], ...]) -> Evaluation:
    table, scores = read_metrics(folder), read_scores(folder / SCORES)
    curves = [_curve(name, of_system, table) for name, of_system in scores.items()]
    speakers, version = table.get("speakers"), table.get("version")
    return Evaluation(
        default_system=table["default_system"],
        speakers=speakers if isinstance(speakers, int) else None,
        version=version if isinstance(version, str) else None,
        systems=[curve for curve in curves if curve is not None],
    )


def _curve(name: str, scores: SystemScores, table: dict[str, Any]) -> SystemCurve | None:
    try:
        curve, eer = error_curve(scores.target, scores.nontarget), equal_error_rate(scores.target, scores.nontarget)
    except MetricError:  # trials of one kind only
        return None
    shown = _shown(len(curve.thresholds) - 1)
    threshold = table.get("systems", {}).get(name, {}).get("store_threshold")
    return SystemCurve(
        name=name,
        targets=scores.target.size,
        nontargets=scores.nontarget.size,
        equal_error_rate=eer.rate,
        equal_error_threshold=eer.threshold,
        store_threshold=threshold if isinstance(threshold, int | float) else None,
        thresholds=curve.thresholds[shown].tolist(),
        false_accept=curve.false_accept[shown].tolist(),
        false_reject=curve.false_reject[shown].tolist(),
    )


def _shown(steps: int) -> NDArray[np.int64]:
    """Return the steps to draw: geometrically spaced towards both ends, where a rate is near zero."""
    if steps <= _MOST_POINTS:
        return np.arange(steps)
    near = np.geomspace(1, steps, _MOST_POINTS // 2).astype(np.int64)
    return np.unique(np.concatenate([near - 1, steps - near]))
