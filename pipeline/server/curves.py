"""Error rates of the last evaluation for the page."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pipeline.errors import ServiceError, VoiceclaimError
from pipeline.evaluation.curves import Evaluation, curves_of
from pipeline.evaluation.report import METRICS, kept_scores, read_metrics, read_results


def last_evaluation(folder: Path | None) -> Evaluation:
    """Return the evaluation in ``folder``, read again when its files change; raises ServiceError without one."""
    if folder is None:
        raise ServiceError(404, "the service was started without an evaluation (--evaluation)", kind="NotFound")
    try:
        files = [path.stat() for path in (kept_scores(folder), folder / METRICS)]
        return _evaluation(folder, tuple((file.st_ino, file.st_mtime_ns, file.st_size) for file in files))
    except (OSError, VoiceclaimError):
        raise ServiceError(404, "the folder of --evaluation has none that can be read", kind="NotFound") from None


@lru_cache(1)
def _evaluation(folder: Path, _stamp: tuple[tuple[int, ...], ...]) -> Evaluation:
    return curves_of(read_metrics(folder), read_results(folder))
