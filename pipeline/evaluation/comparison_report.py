"""Several evaluation folders together: paired differences from the first folder, and DET curves in one figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config.loading import by_dotted_name
from pipeline.errors import InputError, MetricError
from pipeline.evaluation import SystemScores, paired_bootstrap
from pipeline.evaluation.exports import COMPARED_COLUMNS, tables
from pipeline.evaluation.measure import cost_scores, speaker_interval
from pipeline.evaluation.pages import comparison_page
from pipeline.evaluation.report import read_metrics, read_results, write_text
from pipeline.metrics import (
    MAIN_POINT,
    Statistic,
    equal_error_rate,
    error_curve,
    log_likelihood_ratio_cost,
    minimum_cllr,
    minimum_costs_of,
)
from pipeline.metrics.curves import FloatArray

# By key of metrics.json: the statistic, its function of target and nontarget scores, and its unit.
STATISTICS: dict[str, tuple[Statistic, Callable[[FloatArray, FloatArray], float], float]] = {
    "eer_percent": ("eer", lambda *scores: equal_error_rate(*scores).rate, 100.0),
    "min_dcf": ("min_dcf", lambda *scores: minimum_costs_of(error_curve(*scores))[MAIN_POINT], 1.0),
    "cllr": ("cllr", log_likelihood_ratio_cost, 1.0),
    "min_cllr": ("min_cllr", minimum_cllr, 1.0),
}
SEED = 0  # the same folders give the same numbers
LEVEL = 0.95
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True, eq=False)
class EvaluatedSystem:
    """One system of one evaluation folder; ``metrics`` is the folder's metrics.json."""

    label: str
    folder: Path
    system: str
    scores: SystemScores
    metrics: Mapping[str, Any]


def read_evaluations(folders: Sequence[Path], system: str | None = None) -> list[EvaluatedSystem]:
    """Read the default system of each folder, or ``system``.

    Raises InputError for fewer than two folders, a folder that is not an evaluation, or a system that one lacks.
    """
    if len(folders) < 2:
        raise InputError(f"a comparison needs two evaluation folders or more, got {len(folders)}")
    evaluations = []
    for folder, label in zip(folders, labels_of(folders), strict=True):
        metrics, scores = read_metrics(folder), read_results(folder)
        name = metrics["default_system"] if system is None else system
        if name not in scores:
            raise InputError(f"{folder}: no scores of system {name!r} there; it has {', '.join(scores)}")
        evaluations.append(EvaluatedSystem(label, folder, name, scores[name], metrics))
    return evaluations


def compare(evaluations: Sequence[EvaluatedSystem]) -> dict[str, Any]:
    """Return the content of compare.json: metrics of each evaluation with intervals, and differences from the first.

    Metrics use all trials of a folder, differences the trials that it shares with the first. As in metrics.json, costs
    are those of the log-likelihood ratios if the system is calibrated. Raises InputError for folders without a
    common trial, and MetricError as ``paired_bootstrap``, naming the folder.
    """
    first, *others = evaluations
    return {
        "reference": first.label,
        "level": LEVEL,
        "operating_point": MAIN_POINT,
        "evaluations": [_metrics_of(evaluation) for evaluation in evaluations],
        "differences": [_differences(first, other) for other in others],
        "settings": _differing_settings([evaluation.metrics.get("settings") for evaluation in evaluations]),
    }


def write_comparison(out: Path, evaluations: Sequence[EvaluatedSystem], table: Mapping[str, Any]) -> tuple[Path, ...]:
    """Write compare.json (``table``), compare.html, the table and the DET figure into ``out``; return the paths."""
    from pipeline.evaluation.plots import plot_det, save_figure  # matplotlib takes a second to import

    numbers = write_text(out / "compare.json", json.dumps(table, indent=1) + "\n")
    rows = {f"{entry['label']}: {entry['system']}": entry for entry in table["evaluations"]}
    exported = [
        write_text(out / f"compare{suffix}", text)
        for suffix, text in tables(rows, COMPARED_COLUMNS, first="evaluation").items()
    ]
    curves = {f"{evaluation.label}: {evaluation.system}": evaluation.scores for evaluation in evaluations}
    drawn = save_figure(plot_det(curves), out / "compare_det")
    page = write_text(out / "compare.html", comparison_page(table, figures=drawn))
    return (numbers, page, *exported, *drawn)


def plot_evaluations(folders: Sequence[Path], out: Path, systems: Sequence[str] | None = None) -> tuple[Path, ...]:
    """Draw the DET curves of several evaluation folders into the file ``out``; return the paths written.

    Each folder gives its default system, or those of ``systems`` that it has; the name of a single folder is left out.
    Raises InputError for a system that no folder has.
    """
    if out.suffix and out.suffix not in FIGURE_SUFFIXES:
        raise InputError(f"{out}: figures are {', '.join(FIGURE_SUFFIXES)}, got {out.suffix}")
    curves: dict[str, SystemScores] = {}
    present: dict[str, SystemScores] = {}
    for folder, label in zip(folders, labels_of(folders), strict=True):
        scores = read_results(folder)
        present |= scores
        for name in (read_metrics(folder)["default_system"],) if systems is None else systems:
            if name in scores and scores[name].two_classes:
                curves[f"{label}: {name}" if len(folders) > 1 else name] = scores[name]
    if unknown := [name for name in systems or () if name not in present]:
        where = ", ".join(map(str, folders))
        raise InputError(f"{where}: no scores of system {unknown[0]!r} there; it has {', '.join(present)}")
    if not curves:
        raise InputError(
            f"{', '.join(map(str, folders))}: no evaluation here holds both target and nontarget scores of"
            f" {', '.join(systems) if systems else 'its default system'}"
        )
    from pipeline.evaluation.plots import plot_det, save_figure

    return save_figure(plot_det(curves), out)


def verdict(difference: Mapping[str, Any]) -> str:
    """Return in words what the interval of a ``difference`` in compare.json means; negative is better."""
    low, high = difference["ci95"]
    return "worse" if low > 0 else "better" if high < 0 else "no significant difference"


def labels_of(folders: Sequence[Path]) -> list[str]:
    """Return a distinct label for each folder: its name, or else its whole path, numbered if it is given again."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) == len(names):
        return names
    paths = [str(folder) for folder in folders]
    earlier = [paths[:n].count(path) for n, path in enumerate(paths)]
    return [f"{path} ({count + 1})" if count else path for path, count in zip(paths, earlier, strict=True)]


def _metrics_of(evaluation: EvaluatedSystem) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "label": evaluation.label,
        "folder": str(evaluation.folder),
        "system": evaluation.system,
        "trials": evaluation.metrics.get("trials"),
        "version": evaluation.metrics.get("version"),
        "n_target": evaluation.scores.target.size,
        "n_nontarget": evaluation.scores.nontarget.size,
    }
    for key, (statistic, function, unit) in STATISTICS.items():
        scores = _scores_for(statistic, evaluation.scores)
        entry[key] = entry[f"{key}_ci95"] = None
        if scores is None:
            continue
        try:
            entry[key] = unit * function(scores.target, scores.nontarget)
            interval = speaker_interval(scores, seed=SEED, statistic=statistic)
            entry[f"{key}_ci95"] = [unit * interval.low, unit * interval.high]
        except MetricError as error:
            raise MetricError(f"{evaluation.folder}, {evaluation.system}: {error}") from None
    return entry


def _scores_for(statistic: Statistic, scores: SystemScores) -> SystemScores | None:
    """Return the scores that metrics.json computes the statistic from; None for Cllr without a calibration."""
    if statistic == "cllr" and scores.llrs is None:
        return None
    return scores if statistic == "eer" else cost_scores(scores)


def _differences(first: EvaluatedSystem, other: EvaluatedSystem) -> dict[str, Any]:
    trials = [set(zip(side.scores.speakers, side.scores.paths, strict=True)) for side in (first, other)]
    if not trials[0] & trials[1]:
        raise InputError(
            f"{first.folder} and {other.folder}: they share no trial, the same speaker claimed for the same path;"
            " evaluate both on one list"
        )
    entry: dict[str, Any] = {"label": other.label, "against": first.label}
    for key, (statistic, _, unit) in STATISTICS.items():
        one, two = (_scores_for(statistic, side.scores) for side in (first, other))
        if one is None or two is None:
            entry[key] = None
            continue
        try:
            paired = paired_bootstrap(one, two, seed=SEED, statistic=statistic, level=LEVEL)
        except MetricError as error:
            raise MetricError(f"{first.folder} and {other.folder}: {error}") from None
        entry |= {"n_target": paired.n_target, "n_nontarget": paired.n_nontarget, "unmatched": paired.unmatched}
        entry[key] = {
            "first": unit * paired.first,
            "second": unit * paired.second,
            "difference": unit * paired.difference,
            "ci95": [unit * paired.interval.low, unit * paired.interval.high],
            "share_below_zero": paired.share_below_zero,
        }
        entry[key]["verdict"] = verdict(entry[key])
    return entry


def _differing_settings(settings: Sequence[Any]) -> dict[str, list[Any]] | None:
    """Return the value in each folder of settings that differ, by dotted name; None if a folder records no settings."""
    if not all(isinstance(tree, dict) for tree in settings):
        return None
    flat = [by_dotted_name(tree) for tree in settings]
    values = {
        key: [leaves.get(key) for leaves in flat] for key in dict.fromkeys(key for leaves in flat for key in leaves)
    }
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}
