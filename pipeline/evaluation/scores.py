"""Labelled scores of systems: as arrays, and in score files; error rates by speaker and of identification.

A score file is a tab-separated table under the header ``system speaker path score label llr``. ``llr`` is the score as
a calibrated natural-log likelihood ratio, ``-`` where the system has no calibration: all rows of a system have it, or
none. Numbers are written with the fewest digits that read back to the same number. Names that contain a tab or a line
break are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.errors import InputError, MetricError
from pipeline.evaluation.columns import Metadata, NameColumn, TrialTable, checked_llrs, split_by_system
from pipeline.evaluation.lists import read_list
from pipeline.metrics.error_rates import equal_error_rate


@dataclass(frozen=True, slots=True, eq=False)
class SystemScores:
    """All labelled scores of one system, in file order: columns of shape (trials,).

    ``llrs`` are the calibrated natural-log likelihood ratios of ``scores``, None without a calibration. ``metadata``
    are the further columns of the list.
    """

    speakers: NameColumn
    paths: NameColumn
    scores: npt.NDArray[np.float64]
    is_target: npt.NDArray[np.bool_]
    llrs: npt.NDArray[np.float64] | None = None
    metadata: Metadata = field(default_factory=dict)

    @property
    def target(self) -> npt.NDArray[np.float64]:
        """Return the scores of the target trials."""
        return self.scores[self.is_target]

    @property
    def nontarget(self) -> npt.NDArray[np.float64]:
        """Return the scores of the nontarget (impostor) trials."""
        return self.scores[~self.is_target]

    @property
    def target_speakers(self) -> NameColumn:
        """Return the claimed speaker of each entry of ``target``."""
        return self.speakers[self.is_target]

    @property
    def nontarget_speakers(self) -> NameColumn:
        """Return the claimed speaker of each entry of ``nontarget``."""
        return self.speakers[~self.is_target]

    @property
    def two_classes(self) -> bool:
        """Return True if there are target and nontarget trials, without which no error rate is defined."""
        return bool(self.is_target.any() and not self.is_target.all())


def read_scores(path: Path | str) -> dict[str, SystemScores]:
    """Read labelled scores by system in order of first appearance, from ``scores.txt`` or a list of another format.

    Without a column of systems there is one, named after the file. Raises InputError as ``read_list``, for a file
    without labels or scores, and for a system with log-likelihood ratios in only some of its rows.
    """
    table = read_list(path)
    path = Path(path)
    if table.targets is None or table.scores is None:
        raise InputError(f"{path}: a score file must have scores and labels, got none; is it a trial list?")
    return {
        system: SystemScores(
            part.models, part.segments, part.needed_scores, part.needed_targets, checked_llrs(part, system, path)
        )
        for system, part in split_by_system(table, path).items()
    }


def table_of(scores: Mapping[str, SystemScores]) -> TrialTable:
    """Concatenate the rows of all systems, in the order in which ``read_scores`` returns them."""
    parts = list(scores.values())
    sizes = [part.scores.size for part in parts]
    llrs = [np.full(part.scores.size, np.nan) if part.llrs is None else part.llrs for part in parts]
    return TrialTable(
        _concatenated([part.speakers for part in parts]),
        _concatenated([part.paths for part in parts]),
        np.concatenate([part.is_target for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate(llrs) if any(part.llrs is not None for part in parts) else None,
        NameColumn.coded(scores, np.repeat(np.arange(len(parts), dtype=np.int32), sizes)),
    )


def _concatenated(columns: Sequence[NameColumn]) -> NameColumn:
    if all(column.names is columns[0].names for column in columns):
        return NameColumn(columns[0].names, np.concatenate([column.codes for column in columns]))
    return NameColumn.of(chain.from_iterable(columns))


# Metrics that pooling over trials hides


@dataclass(frozen=True, slots=True)
class SpeakerSpread:
    """Quartiles of the speakers' equal error rates, as shares; ``worst_speaker`` has the highest."""

    best: float
    lower_quartile: float
    median: float
    upper_quartile: float
    worst: float
    worst_speaker: str


def speaker_error_rates(scores: SystemScores) -> dict[str, float]:
    """Return the equal error rate of each claimed speaker's trials.

    Each rate has a threshold of its own, so the pooled rate tends to be higher where speakers need different ones.

    Parameters
    ----------
    scores : SystemScores
        Scores of one system.

    Returns
    -------
    dict of str to float
        Rates, as shares, by name in alphabetical order, without speakers who lack trials of a class.

    Examples
    --------
    >>> import numpy as np
    >>> from pipeline.evaluation.columns import NameColumn
    >>> from pipeline.evaluation.scores import SystemScores, identification_error, speaker_error_rates
    >>> claims = NameColumn.of(["anna", "ivan", "anna", "ivan"])
    >>> files = NameColumn.of(["a.wav", "a.wav", "b.wav", "b.wav"])
    >>> is_target = np.array([True, False, False, True])
    >>> scores = SystemScores(claims, files, np.array([2.0, 1.0, 1.0, 0.0]), is_target)
    >>> speaker_error_rates(scores), identification_error(scores)
    ({'anna': 0.0, 'ivan': 1.0}, 0.5)
    """
    speakers = scores.speakers
    order = np.argsort(speakers.codes, kind="stable")
    starts = np.searchsorted(speakers.codes[order], np.arange(speakers.names.size))
    rates = {}
    for name, its_trials in zip(speakers.names, np.split(order, starts)[1:], strict=True):
        its_scores, is_target = scores.scores[its_trials], scores.is_target[its_trials]
        if is_target.any() and not is_target.all():
            rates[name] = equal_error_rate(its_scores[is_target], its_scores[~is_target]).rate
    return dict(sorted(rates.items()))


def speaker_spread(rates: Mapping[str, float]) -> SpeakerSpread:
    """Summarise ``speaker_error_rates``; of equally bad speakers the first is named. Raises MetricError for none."""
    if not rates:
        raise MetricError("no speaker has trials of both classes: a spread over speakers needs at least one, got none")
    quartiles = np.quantile(list(rates.values()), [0.0, 0.25, 0.5, 0.75, 1.0])
    best, lower, median, upper, worst = map(float, quartiles)
    return SpeakerSpread(best, lower, median, upper, worst, max(rates, key=lambda name: rates[name]))


def identification_error(scores: SystemScores) -> float | None:
    """Return the share of files in which a nontarget trial scores as high as the target trial or higher.

    Counted over the files with trials of both classes, where the claim with the highest score identifies the speaker; a
    tie is an error, and of several target trials the best counts. None without such a file. ``speaker_error_rates`` has
    an example.
    """
    paths = scores.paths
    best = np.full((2, paths.names.size), -np.inf)
    np.maximum.at(best, (scores.is_target.astype(np.intp), paths.codes), scores.scores)
    nontarget, target = best
    both = np.isfinite(nontarget) & np.isfinite(target)
    return float(np.mean(nontarget[both] >= target[both])) if both.any() else None
