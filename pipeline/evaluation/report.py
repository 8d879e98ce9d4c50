"""Results of one evaluation on disk: metrics.json, the scores, the figures and report.html."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.evaluation import SystemScores, read_scores, write_list
from pipeline.evaluation.assess import FailedFile
from pipeline.evaluation.curves import curves_of, featured
from pipeline.evaluation.details import Details, details_of
from pipeline.evaluation.exports import SYSTEM_COLUMNS, tables
from pipeline.evaluation.measure import MOST_RESAMPLED, cost_scores
from pipeline.evaluation.pages import evaluation_page
from pipeline.evaluation.scores import table_of
from pipeline.files import read_bounded
from pipeline.metrics import DetBand, det_band
from pipeline.scoring.rules import RULES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = "scores.txt"
SCORES_TABLE = "scores.parquet"  # in place of SCORES for long lists
METRICS = "metrics.json"
REPORT = "report.html"
_HINT = "name a folder that `voiceclaim evaluate` wrote"
_MAX_METRICS_BYTES = 2**24
_BAND_SEED = 0  # the same scores give the same figure

# Systems by figure: the paper's figures 1 and 2, the rules that go beyond it, and those for comparison.
FIGURES = ("fa_fr", "det", "score_histogram", "reliability", "bayes_error")  # beside those of FAMILIES
FAMILIES: dict[str, tuple[str, ...]] = {
    "fa_fr_one_vs_rest": ("boar", "poar"),
    "fa_fr_one_vs_one": ("boao", "poao", "rpoao"),
    "fa_fr_worst_rival": ("worst_rival", "refined_worst_rival"),
}


def write_evaluation(
    out: Path,
    scores: Mapping[str, SystemScores],
    table: Mapping[str, Any],
    *,
    failed: Sequence[FailedFile] = (),
    command: str | None = None,
) -> tuple[Path, ...]:
    """Write metrics.json (``table``), scores.txt, the tables, the figures and report.html into ``out``.

    Return the paths written.

    A score file of more than ``MOST_RESAMPLED`` trials, or with names that scores.txt cannot hold, is kept as
    scores.parquet. ``command`` is printed in the report.
    """
    metrics = write_text(out / METRICS, json.dumps(table, indent=1) + "\n")
    names = chain(scores, *(chain(system.speakers.names, system.paths.names) for system in scores.values()))
    as_table = "scores" in table and (_is_long(scores) or any(mark in name for name in names for mark in "\t\n\r"))
    kept, stale = (out / SCORES_TABLE, out / SCORES) if as_table else (out / SCORES, out / SCORES_TABLE)
    write_list(kept, table_of(scores), format_name="parquet" if as_table else "voiceclaim")
    stale.unlink(missing_ok=True)  # left by an earlier evaluation, it would be taken for this one's
    exported = [
        write_text(out / f"table{suffix}", text)
        for suffix, text in tables(table["systems"], SYSTEM_COLUMNS, first="system").items()
    ]
    default = scores.get(str(table["default_system"]))
    described = None if default is None or ("scores" in table and _is_long({"": default})) else default
    band = None if described is None else _det_band(described)
    drawn = draw_evaluation(out, scores, table, band)
    for name in (*FAMILIES, *FIGURES):
        for old in {out / f"{name}.png", out / f"{name}.svg"}.difference(drawn):  # of an earlier evaluation
            old.unlink(missing_ok=True)
    page = evaluation_page(
        table,
        figures=drawn,
        curves=curves_of(table, scores, band),
        details=_details(described, table),
        failed=failed,
        command=command,
    )
    return (kept, metrics, *exported, *drawn, write_text(out / REPORT, page))


def _details(scores: SystemScores | None, table: Mapping[str, Any]) -> Details | None:
    """Return the details of the default system at the store's threshold, or at that of the equal error rate."""
    if scores is None or not scores.two_classes:
        return None
    entry = table["systems"][table["default_system"]]
    threshold = entry["threshold"] if entry["store_threshold"] is None else entry["store_threshold"]
    return details_of(scores, threshold)


def _is_long(scores: Mapping[str, SystemScores]) -> bool:
    return max(system.scores.size for system in scores.values()) > MOST_RESAMPLED


def draw_evaluation(
    out: Path, scores: Mapping[str, SystemScores], table: Mapping[str, Any], band: DetBand | None
) -> list[Path]:
    """Draw every figure that the scores allow; ``table`` is metrics.json, ``band`` that of its default system."""
    from pipeline.evaluation import plots  # matplotlib takes a second to import

    drawable = {name: system for name, system in scores.items() if system.two_classes}
    if not drawable:
        return []
    families, units = dict(FAMILIES), {name: rule.unit for name, rule in RULES.items()}
    if "scores" in table:
        families["fa_fr"] = tuple(name for name in drawable if name not in chain(*FAMILIES.values()))
        units = {**dict.fromkeys(drawable, "score"), **units}
    figures: dict[str, Figure] = {}
    for file, family in families.items():
        if curves := {name: drawable[name] for name in family if name in drawable}:
            figures[file] = plots.plot_error_rates(curves, units=units)
    name = str(table["default_system"])
    bands = {} if band is None or name not in drawable else {name: band}
    figures["det"] = plots.plot_det(drawable, bands=bands, featured=featured(drawable, name))
    if (default := drawable.get(name)) is not None:
        threshold, unit = table["systems"][name]["store_threshold"], units.get(name, "score")
        figures["score_histogram"] = plots.plot_histogram(default, threshold=threshold, title=name, unit=unit)
        if default.llrs is not None:
            ratios = cost_scores(default)
            figures["reliability"] = plots.plot_reliability(ratios.target, ratios.nontarget, title=name)
            figures["bayes_error"] = plots.plot_bayes_error(ratios.target, ratios.nontarget, title=name)
    return [path for stem, figure in figures.items() for path in plots.save_figure(figure, out / stem)]


def _det_band(scores: SystemScores) -> DetBand | None:
    """Return the interval of the false rejects over speakers; None if a class has fewer than two speakers."""
    from pipeline.evaluation.plots import det_grid

    targets, nontargets = scores.target_speakers, scores.nontarget_speakers
    if min(len(targets.used), len(nontargets.used)) < 2:
        return None
    return det_band(
        scores.target,
        scores.nontarget,
        det_grid(scores.nontarget.size),
        seed=_BAND_SEED,
        target_speakers=targets.codes,
        nontarget_speakers=nontargets.codes,
    )


def read_results(folder: Path) -> dict[str, SystemScores]:
    """Read the scores of an evaluation folder by system; raises InputError."""
    return read_scores(kept_scores(folder))


def kept_scores(folder: Path) -> Path:
    """Return the file of the scores of an evaluation folder; raises InputError."""
    try:
        if (folder / SCORES_TABLE).is_file():
            return folder / SCORES_TABLE
        if not (folder / SCORES).exists():
            what = f"it holds no {SCORES}" if folder.exists() else "no such folder"
            raise InputError(f"{folder}: {what}; {_HINT}")
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror or error}; {_HINT}") from None
    return folder / SCORES


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read the metrics.json of an evaluation folder; raises InputError if it is not one."""
    path = folder / METRICS
    try:
        table = json.loads(read_bounded(path, _MAX_METRICS_BYTES))
        return {**table, "default_system": str(table["default_system"])}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; {_HINT}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not the metrics of an evaluation ({error!r}); {_HINT}") from None


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` as UTF-8 and return the path, whose folder is created if missing; raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"{path.parent}: results cannot be written there: {error.strerror or error}") from None
    return path
