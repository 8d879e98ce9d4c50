"""An assessment on disk: scores, metrics, the figures and the report, and evaluations laid over each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline._version import __version__
from pipeline.assessment import MOST_RESAMPLED, Assessment, PointCosts, SystemMetrics, left_out
from pipeline.errors import InputError, TrialListError
from pipeline.evaluation import (
    MAIN_POINT,
    SpeakerSpread,
    SystemScores,
    Trial,
    distinct,
    read_scores,
    rows_of,
    write_scores,
)
from pipeline.evaluation.columns import coded
from pipeline.evaluation.systems import by_system, table_of
from pipeline.file_scoring import FailedFile
from pipeline.formats.parquet import read_parquet, write_parquet
from pipeline.formats.scored import ScoredList
from pipeline.html_report import Printing, evaluation_page
from pipeline.results import METRICS, REPORT, SCORES, SCORES_TABLE, labels_of, read_metrics, write_text
from pipeline.store import SpeakerStore

PICTURES = (".png", ".svg", ".pdf")


def about_evaluation(store: SpeakerStore, trials: Path, claims: Sequence[Trial]) -> dict[str, Any]:
    """What metrics.json says of the list and the store besides the metrics; ``claims`` are those of ``trials``."""
    return {
        "trials": str(trials),
        "store": str(store.path),
        "speakers": len(store.names),
        "speakers_claimed": len({claim.speaker for claim in claims}),
        "files": len({claim.path for claim in claims}),
        "outsiders": store.outsiders,
        "version": __version__,
        "settings": store.config.model_dump(mode="json"),
    }


def about_scores(scores: Path, key: Path | None, found: ScoredList) -> dict[str, Any]:
    """What metrics.json says of a score file and its key, by the side of what ``about_evaluation`` says of a store."""
    first = next(iter(found.scores.values()))
    return {
        "trials": str(scores if key is None else key),
        "scores": str(scores),
        "formats": {"scores": found.scores_format, "key": found.key_format},
        "speakers_claimed": distinct(first.speakers),
        "files": distinct(first.paths),
        "version": __version__,
        "joined": {name: asdict(counts) for name, counts in found.joined.items()},
        "left_out": list(left_out(first)),
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

    interval, main = found.eer_interval, found.costs[MAIN_POINT]
    low_high = None if interval is None else [percent(interval.low), percent(interval.high)]
    return {
        "eer_percent": None if found.eer is None else percent(found.eer.rate),
        "eer_interval_percent": low_high,
        "eer_percent_ci95": low_high,
        "eer_hull_percent": percent(found.eer_hull),
        "threshold": None if found.eer is None else found.eer.threshold,
        "min_dcf": main.minimum,
        "act_dcf": main.actual,
        "min_dcf_p01": found.min_cost,
        "cllr": found.cllr,
        "min_cllr": found.min_cllr,
        "affine_cllr": found.affine_cllr,
        "identification_error_percent": percent(found.identification_error),
        "speaker_eer_percent": None if found.speaker_spread is None else _spread_entry(found.speaker_spread),
        "operating_points": {name: _point_entry(costs) for name, costs in found.costs.items()},
        "store_threshold": found.store_threshold,
        "false_accept_percent": percent(found.at_store_threshold.false_accept),
        "false_reject_percent": percent(found.at_store_threshold.false_reject),
        "n_target": found.n_target,
        "n_nontarget": found.n_nontarget,
        "n_failed": failed_trials,
    }


def _spread_entry(spread: SpeakerSpread) -> dict[str, Any]:
    return {
        "median": 100.0 * spread.median,
        "quartiles": [100.0 * spread.lower_quartile, 100.0 * spread.upper_quartile],
        "worst": 100.0 * spread.worst,
        "worst_speaker": spread.worst_speaker,
    }


def _point_entry(costs: PointCosts) -> dict[str, Any]:
    return {
        "prior": costs.point.prior,
        "cost_miss": costs.point.cost_miss,
        "cost_false_accept": costs.point.cost_false_accept,
        "min_dcf": costs.minimum,
        "act_dcf": costs.actual,
    }


def write_evaluation(
    out: Path, assessment: Assessment, table: Mapping[str, Any], printing: Printing | None = None
) -> tuple[Path, ...]:
    """Write scores.txt, metrics.json, the figures and report.html into ``out``; returns what was written."""
    write_text(out / METRICS, json.dumps(table, indent=1) + "\n")
    write_scores(out / SCORES, assessment.rows)
    (out / SCORES_TABLE).unlink(missing_ok=True)
    drawn = _draw_and_tell(out, assessment.scores, table, assessment.failed, printing)
    return (out / SCORES, out / METRICS, *drawn)


def write_score_evaluation(
    out: Path, scores: Mapping[str, SystemScores], table: Mapping[str, Any], printing: Printing | None = None
) -> tuple[Path, ...]:
    """What ``write_evaluation`` does, for scores from a file, by system; returns what was written.

    Of more than ``MOST_RESAMPLED`` trials, or with names that scores.txt cannot hold, the scores go to scores.parquet
    instead; of so many no interval is drawn.
    """
    write_text(out / METRICS, json.dumps(table, indent=1) + "\n")
    long = max(found.scores.size for found in scores.values()) > MOST_RESAMPLED
    tabled = long or not all(map(_fits_a_line, chain(scores, *map(_names_of, scores.values()))))
    names = (SCORES_TABLE, SCORES) if tabled else (SCORES, SCORES_TABLE)
    if tabled:
        write_parquet(out / SCORES_TABLE, table_of(scores))
    else:
        write_scores(out / SCORES, rows_of(scores))
    # What an earlier evaluation left here would be taken for this one's.
    (out / names[1]).unlink(missing_ok=True)
    return (out / names[0], out / METRICS, *_draw_and_tell(out, scores, table, (), printing))


def _names_of(scores: SystemScores) -> Iterator[str]:
    for names in (scores.speakers, scores.paths):
        yield from coded(names).names


def _fits_a_line(name: str) -> bool:
    return not any(mark in name for mark in "\t\n\r")


def _draw_and_tell(
    out: Path,
    scores: Mapping[str, SystemScores],
    table: Mapping[str, Any],
    failed: Sequence[FailedFile],
    printing: Printing | None,
) -> tuple[Path, ...]:
    """The figures and the page that holds them."""
    from pipeline.report_figures import draw_evaluation  # matplotlib takes a second to import

    figures = draw_evaluation(out, scores, table)
    pictures = {path.stem: path.read_bytes() for path in figures if path.suffix == ".svg"}
    report = evaluation_page(table, failed=failed, pictures=pictures, printing=printing or Printing())
    return (*figures, write_text(out / REPORT, report))


def read_results(folder: Path) -> dict[str, SystemScores]:
    """Scores of an evaluation folder by system, however they were kept; raises TrialListError."""
    long = folder / SCORES_TABLE
    return by_system(read_parquet(long), folder.name) if long.is_file() else read_scores(folder / SCORES)


def plot_evaluations(folders: Sequence[Path], out: Path, systems: Sequence[str] | None = None) -> tuple[Path, ...]:
    """Lay the DET curves of several evaluation folders over each other in the picture ``out``.

    Each folder gives its default system, or those of ``systems`` that it has.
    """
    if out.suffix and out.suffix not in PICTURES:
        raise InputError(f"{out}: pictures are {', '.join(PICTURES)}, got {out.suffix}")
    curves: dict[str, SystemScores] = {}
    labels = labels_of(folders)
    for folder, label in zip(folders, labels, strict=True):
        scores = read_results(folder)
        wanted = (read_metrics(folder)["default_system"],) if systems is None else systems
        for system in wanted:
            if system in scores and scores[system].two_classes:
                curves[f"{label}: {system}"] = scores[system]
    if not curves:
        raise TrialListError(
            f"{', '.join(map(str, folders))}: no evaluation here holds both target and nontarget scores of"
            f" {', '.join(systems) if systems else 'its default system'}"
        )
    from pipeline.report_figures import overlay

    return overlay(curves, out)
