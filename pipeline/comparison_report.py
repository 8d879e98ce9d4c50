"""Evaluation folders side by side: one system of each, and what parts it from that of the first folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, MetricError, TrialListError
from pipeline.evaluation import (
    MAIN_POINT,
    Interval,
    PairedDifference,
    Statistic,
    SystemScores,
    bootstrap_interval,
    equal_error_rate,
    log_likelihood_ratio_cost,
    minimum_cllr,
    minimum_costs,
    paired_bootstrap,
    read_scores,
)
from pipeline.html_comparison import comparison_page
from pipeline.results import SCORES, labels_of, read_metrics, write_text

STATISTICS: dict[str, Statistic] = {
    "eer_percent": "eer",
    "min_dcf": "min_dcf",
    "cllr": "cllr",
    "min_cllr": "min_cllr",
}
"""The statistics of ``bootstrap_interval`` by their names in metrics.json; EERs there are in percent."""
SEED = 0  # the same folders give the same numbers
LEVEL = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """One system of one evaluation folder; ``about`` is the folder's metrics.json."""

    label: str
    folder: Path
    system: str
    scores: SystemScores
    about: Mapping[str, Any]


def read_contenders(folders: Sequence[Path], system: str | None = None) -> list[Contender]:
    """The default system of each folder, or ``system``.

    Raises InputError for fewer than two folders or a system that a folder lacks, and TrialListError for a folder that
    is no evaluation.
    """
    if len(folders) < 2:
        raise InputError(f"a comparison needs two evaluation folders or more, got {len(folders)}")
    found = []
    for folder, label in zip(folders, labels_of(folders), strict=True):
        about, scores = read_metrics(folder), read_scores(folder / SCORES)
        wanted = about["default_system"] if system is None else system
        if wanted not in scores:
            raise InputError(f"{folder}: no scores of system {wanted!r} there; it has {', '.join(scores)}")
        found.append(Contender(label, folder, wanted, scores[wanted], about))
    return found


def compare(contenders: Sequence[Contender]) -> dict[str, Any]:
    """The content of compare.json: each contender's metrics with intervals, and differences from the first.

    Metrics are of all trials of a folder, differences of the trials that it shares with the first. As in metrics.json,
    costs are those of the log-likelihood ratios where there are any. Raises TrialListError for folders that share no
    trials, and MetricError as ``bootstrap_interval`` and ``paired_bootstrap`` do, naming the folder.
    """
    first, *others = contenders
    return {
        "reference": first.label,
        "level": LEVEL,
        "operating_point": MAIN_POINT,
        "evaluations": [_evaluation(contender) for contender in contenders],
        "differences": [_differences(first, other) for other in others],
        "settings": _settings_apart(contenders),
    }


def write_comparison(out: Path, contenders: Sequence[Contender], table: Mapping[str, Any]) -> tuple[Path, ...]:
    """Write compare.json, compare.html and the DET picture into ``out``; returns what was written."""
    found = write_text(out / "compare.json", json.dumps(table, indent=1) + "\n")
    curves = {f"{contender.label}: {contender.system}": contender.scores for contender in contenders}
    from pipeline.report_figures import overlay  # matplotlib takes a second to import

    drawn = overlay(curves, out / "compare_det")
    svg = next(path for path in drawn if path.suffix == ".svg").read_bytes()
    return (found, write_text(out / "compare.html", comparison_page(table, det=svg)), *drawn)


def _evaluation(contender: Contender) -> dict[str, Any]:
    scores = contender.scores
    entry: dict[str, Any] = {
        "label": contender.label,
        "folder": str(contender.folder),
        "system": contender.system,
        "trials": contender.about.get("trials"),
        "version": contender.about.get("version"),
        "n_target": scores.target.size,
        "n_nontarget": scores.nontarget.size,
    }
    for key, statistic in STATISTICS.items():
        judged = _judged(scores, statistic)
        value, interval = None, None
        if judged is not None:
            try:
                value, interval = _value(judged, statistic), _interval(judged, statistic)
            except MetricError as error:
                raise MetricError(f"{contender.folder}, {contender.system}: {error}") from None
        entry[key] = _in_unit(key, value)
        entry[f"{key}_ci95"] = _ends(key, interval)
    return entry


def _judged(scores: SystemScores, statistic: Statistic) -> SystemScores | None:
    """The scores that metrics.json computes the statistic from; None where there are none."""
    if scores.llrs is None:
        return None if statistic == "cllr" else scores
    return scores if statistic == "eer" else dataclasses.replace(scores, scores=scores.llrs)


def _value(scores: SystemScores, statistic: Statistic) -> float:
    both = scores.target, scores.nontarget
    if statistic == "eer":
        return equal_error_rate(*both).rate
    if statistic == "min_dcf":
        return minimum_costs(*both)[MAIN_POINT]
    return log_likelihood_ratio_cost(*both) if statistic == "cllr" else minimum_cllr(*both)


def _interval(scores: SystemScores, statistic: Statistic) -> Interval:
    return bootstrap_interval(
        scores.target,
        scores.nontarget,
        seed=SEED,
        statistic=statistic,
        level=LEVEL,
        target_speakers=scores.target_speakers,
        nontarget_speakers=scores.nontarget_speakers,
    )


def _differences(first: Contender, other: Contender) -> dict[str, Any]:
    trials = [set(zip(side.scores.speakers, side.scores.paths, strict=True)) for side in (first, other)]
    if not trials[0] & trials[1]:
        raise TrialListError(
            f"{first.folder} and {other.folder}: they share no trial, the same speaker claimed for the same path;"
            " evaluate both on one list"
        )
    entry: dict[str, Any] = {"label": other.label, "against": first.label}
    for key, statistic in STATISTICS.items():
        judged = [_judged(side.scores, statistic) for side in (first, other)]
        if judged[0] is None or judged[1] is None:
            entry[key] = None
            continue
        try:
            found = paired_bootstrap(judged[0], judged[1], seed=SEED, statistic=statistic, level=LEVEL)
        except MetricError as error:
            raise MetricError(f"{first.folder} and {other.folder}: {error}") from None
        entry |= {"n_target": found.n_target, "n_nontarget": found.n_nontarget, "unmatched": found.unmatched}
        entry[key] = _difference(key, found)
    return entry


def _difference(key: str, found: PairedDifference) -> dict[str, Any]:
    return {
        "first": _in_unit(key, found.first),
        "second": _in_unit(key, found.second),
        "difference": _in_unit(key, found.difference),
        "ci95": _ends(key, found.interval),
        "share_below_zero": found.share_below_zero,
    }


def _in_unit(key: str, value: float | None) -> float | None:
    return None if value is None else 100.0 * value if key.endswith("percent") else value


def _ends(key: str, interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [_in_unit(key, interval.low), _in_unit(key, interval.high)]


def _settings_apart(contenders: Sequence[Contender]) -> dict[str, list[Any]] | None:
    """Settings that differ, by their dotted names: the value in each folder. None if some folder does not tell them."""
    if not all(isinstance(contender.about.get("settings"), dict) for contender in contenders):
        return None
    flat = [_flat(contender.about["settings"]) for contender in contenders]
    names = dict.fromkeys(key for settings in flat for key in settings)
    values = {key: [settings.get(key) for settings in flat] for key in names}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
