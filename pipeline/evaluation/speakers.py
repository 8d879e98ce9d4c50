"""What pooling over trials hides: how error rates differ between speakers, and how often the wrong one wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.errors import MetricError
from pipeline.evaluation.columns import coded
from pipeline.evaluation.metrics import equal_error_rate
from pipeline.evaluation.scores import SystemScores


@dataclass(frozen=True, slots=True)
class SpeakerSpread:
    """Five numbers of the speakers' equal error rates, shares; ``worst_speaker`` has the highest, ``worst``."""

    best: float
    lower_quartile: float
    median: float
    upper_quartile: float
    worst: float
    worst_speaker: str


def speaker_error_rates(scores: SystemScores) -> dict[str, float]:
    """Equal error rate of the trials on each claimed speaker, a share, by name in alphabetical order.

    Speakers without trials of both classes are left out. Each rate has the threshold that suits its own
    speaker, so the pooled rate tends to be higher where speakers need different thresholds.
    """
    speakers = coded(scores.speakers)
    order = np.argsort(speakers.codes, kind="stable")
    starts = np.searchsorted(speakers.codes[order], np.arange(speakers.names.size))
    found = {}
    for name, its_trials in zip(speakers.names, np.split(order, starts)[1:], strict=True):
        its_scores, is_target = scores.scores[its_trials], scores.is_target[its_trials]
        if is_target.any() and not is_target.all():
            found[name] = equal_error_rate(its_scores[is_target], its_scores[~is_target]).rate
    return dict(sorted(found.items()))


def speaker_spread(rates: Mapping[str, float]) -> SpeakerSpread:
    """Summary of ``speaker_error_rates``. Of equally bad speakers the first is named. Raises MetricError for none."""
    if not rates:
        raise MetricError("no speaker has trials of both classes: a spread over speakers needs at least one, got none")
    quartiles = np.quantile(list(rates.values()), [0.0, 0.25, 0.5, 0.75, 1.0])
    best, lower, median, upper, worst = map(float, quartiles)
    return SpeakerSpread(best, lower, median, upper, worst, max(rates, key=lambda name: rates[name]))


def identification_error(scores: SystemScores) -> float | None:
    """Share of files in which some false claim scores as high as the true one or higher.

    Counted over the files with trials of both classes, where picking the claim with the highest score would
    identify the speaker; a tie is an error. None without such a file. Of several true claims the best counts.
    """
    paths = coded(scores.paths)
    best = np.full((2, paths.names.size), -np.inf)
    np.maximum.at(best, (scores.is_target.astype(np.intp), paths.codes), scores.scores)
    nontarget, target = best
    both = np.isfinite(nontarget) & np.isfinite(target)
    return float(np.mean(nontarget[both] >= target[both])) if both.any() else None
