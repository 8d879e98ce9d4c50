"""An assessment on disk: scores, metrics and the figures, and evaluations laid over each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.assessment import Assessment, SystemMetrics
from pipeline.errors import InputError, TrialListError
from pipeline.evaluation import SystemScores, read_scores, write_scores
from pipeline.plots import plot_det, plot_error_rates, save_figure
from pipeline.posteriors.coupling import RULES

SCORES = "scores.txt"
METRICS = "metrics.json"
PICTURES = (".png", ".svg", ".pdf")

# The paper's figure 1, its figure 2, and the rules beyond it.
FAMILIES: dict[str, tuple[str, ...]] = {
    "fa_fr_one_vs_rest": ("boar", "poar"),
    "fa_fr_one_vs_one": ("boao", "poao", "rpoao"),
    "fa_fr_worst_rival": ("worst_rival", "refined_worst_rival"),
}


def metrics_table(
    metrics: Mapping[str, SystemMetrics], *, default_system: str, failed_trials: int, about: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of metrics.json: rates in percent, what a list does not define as null."""
    return {
        **about,
        "default_system": default_system,
        "systems": {name: _system_entry(found, failed_trials) for name, found in metrics.items()},
    }


def _system_entry(found: SystemMetrics, failed_trials: int) -> dict[str, Any]:
    def percent(share: float | None) -> float | None:
        return None if share is None else 100.0 * share

    interval = found.eer_interval
    return {
        "eer_percent": None if found.eer is None else percent(found.eer.rate),
        "eer_interval_percent": None if interval is None else [percent(interval.low), percent(interval.high)],
        "threshold": None if found.eer is None else found.eer.threshold,
        "min_dcf_p01": found.min_cost,
        "store_threshold": found.store_threshold,
        "false_accept_percent": percent(found.at_store_threshold.false_accept),
        "false_reject_percent": percent(found.at_store_threshold.false_reject),
        "n_target": found.n_target,
        "n_nontarget": found.n_nontarget,
        "n_failed": failed_trials,
    }


def write_evaluation(out: Path, assessment: Assessment, table: Mapping[str, Any]) -> tuple[Path, ...]:
    """Write scores.txt, metrics.json and the figures into ``out``; returns what was written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / METRICS).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: results cannot be written there: {error.strerror or error}") from None
    write_scores(out / SCORES, assessment.rows)
    drawable = {name: scores for name, scores in assessment.scores.items() if _two_classes(scores)}
    written = [out / SCORES, out / METRICS]
    units = {name: rule.unit for name, rule in RULES.items()}
    for file, family in FAMILIES.items():
        curves = {name: drawable[name] for name in family if name in drawable}
        if curves:
            written += save_figure(plot_error_rates(curves, units=units), out / file)
    if drawable:
        written += save_figure(plot_det(drawable), out / "det")
    return tuple(written)


def plot_evaluations(folders: Sequence[Path], out: Path, systems: Sequence[str] | None = None) -> tuple[Path, ...]:
    """Lay the DET curves of several evaluation folders over each other in the picture ``out``.

    Each folder gives its default system, or those of ``systems`` that it has.
    """
    if out.suffix and out.suffix not in PICTURES:
        raise InputError(f"{out}: pictures are {', '.join(PICTURES)}, got {out.suffix}")
    curves: dict[str, SystemScores] = {}
    labels = _labels(folders)
    for folder, label in zip(folders, labels, strict=True):
        scores = read_scores(folder / SCORES)
        wanted = (_default_system(folder),) if systems is None else systems
        for system in wanted:
            if system in scores and _two_classes(scores[system]):
                curves[f"{label}: {system}"] = scores[system]
    if not curves:
        raise TrialListError(
            f"{', '.join(map(str, folders))}: no evaluation here holds both target and nontarget scores of"
            f" {', '.join(systems) if systems else 'its default system'}"
        )
    return save_figure(plot_det(curves), out)


def _two_classes(scores: SystemScores) -> bool:
    return scores.target.size > 0 and scores.nontarget.size > 0


def _labels(folders: Sequence[Path]) -> list[str]:
    """Folder names, or whole paths where two names are the same."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _default_system(folder: Path) -> str:
    path = folder / METRICS
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return str(table["default_system"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrialListError(
            f"{path}: not the metrics of an evaluation ({error!r}); name a folder that `voiceclaim evaluate` wrote"
        ) from None
