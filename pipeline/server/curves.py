"""The last evaluation as the page draws it: both error rates of every system at some hundred thresholds.

Names and paths of the trials stay here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from pipeline.errors import MetricError, ServiceError, VoiceclaimError
from pipeline.evaluation import SystemScores, equal_error_rate, error_curve, read_scores
from pipeline.results import METRICS, SCORES, read_metrics

_MOST_POINTS = 400


class SystemCurve(BaseModel):
    """One system: rates are shares, thresholds ascend, the last step (accept nobody) has none and is left out."""

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
    """Every system of an evaluation that has both kinds of trials."""

    default_system: str
    speakers: int | None
    version: str | None
    systems: list[SystemCurve]


class LastEvaluation:
    """The evaluation in ``folder``, read again when its files were replaced."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._stamp: tuple[int, ...] = ()
        self._read: Evaluation | None = None

    def current(self) -> Evaluation:
        """The evaluation; raises ServiceError where there is none."""
        if self._folder is None:
            raise ServiceError(404, "the service was started without an evaluation (--evaluation)", kind="NotFound")
        try:
            files = [(self._folder / name).stat() for name in (SCORES, METRICS)]
            stamp = tuple(number for file in files for number in (file.st_ino, file.st_mtime_ns, file.st_size))
            if self._read is None or stamp != self._stamp:
                self._read, self._stamp = _evaluation(self._folder), stamp
        except (OSError, VoiceclaimError):
            raise ServiceError(
                404, "the folder of the evaluation holds none that can be read", kind="NotFound"
            ) from None
        return self._read


def _evaluation(folder: Path) -> Evaluation:
    table, scores = read_metrics(folder), read_scores(folder / SCORES)
    found = [_curve(name, of_system, table) for name, of_system in scores.items()]
    speakers, version = table.get("speakers"), table.get("version")
    return Evaluation(
        default_system=table["default_system"],
        speakers=speakers if isinstance(speakers, int) else None,
        version=version if isinstance(version, str) else None,
        systems=[curve for curve in found if curve is not None],
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
    """Steps to draw: closer together towards both ends, where rates change by their own size."""
    if steps <= _MOST_POINTS:
        return np.arange(steps)
    near = np.geomspace(1, steps, _MOST_POINTS // 2).astype(np.int64)
    return np.unique(np.concatenate([near - 1, steps - near]))
