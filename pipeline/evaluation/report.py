"""Results of one evaluation on disk: metrics.json, the scores, the figures and report.html."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import __version__
from pipeline.errors import InputError
from pipeline.evaluation import ScoredList, SystemScores, Trial, distinct, read_list, read_scores, write_list
from pipeline.evaluation.assess import FailedFile
from pipeline.evaluation.breakdowns import GroupMetrics, left_out_columns
from pipeline.evaluation.columns import Metadata
from pipeline.evaluation.curves import curves_of, featured, state_of
from pipeline.evaluation.details import Details, details_of
from pipeline.evaluation.exports import SYSTEM_COLUMNS, tables
from pipeline.evaluation.measure import MOST_RESAMPLED, SystemMetrics, cost_scores, left_out
from pipeline.evaluation.pages import evaluation_page
from pipeline.evaluation.scores import SpeakerSpread, by_system, table_of
from pipeline.files import read_bounded
from pipeline.metrics import (
    MAIN_POINT,
    MEAN_COSTS,
    OPERATING_POINTS,
    DetBand,
    ErrorRates,
    det_band,
    rule_of_thirty,
    rule_of_three,
)
from pipeline.scoring.rules import RULES
from pipeline.store.model import SpeakerModel

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


def about_evaluation(
    model: SpeakerModel, trials: Path, claims: Sequence[Trial], metadata: Metadata | None = None
) -> dict[str, Any]:
    """Return the entries of metrics.json about the list and the store.

    ``claims`` are those of the file ``trials``, ``metadata`` its further columns.
    """
    left = left_out_columns(metadata or {})
    return {
        "trials": str(trials),
        "store": str(model.where),
        "state": state_of(model),
        "speakers": len(model.names),
        "speakers_claimed": len({claim.speaker for claim in claims}),
        "files": len({claim.path for claim in claims}),
        "unknown_impostors": model.unknown,
        "version": __version__,
        "settings": model.config.model_dump(mode="json"),
        **({"left_out": left} if left else {}),
    }


def about_scores(scores: Path, key: Path | None, scored: ScoredList) -> dict[str, Any]:
    """Return the entries of metrics.json about a score file and its key, in place of ``about_evaluation``."""
    first = next(iter(scored.scores.values()))
    return {
        "trials": str(scores if key is None else key),
        "scores": str(scores),
        "formats": {"scores": scored.scores_format, "key": scored.key_format},
        "speakers_claimed": distinct(first.speakers),
        "files": distinct(first.paths),
        "version": __version__,
        "joined": scored.joined,
        "left_out": [*left_out(first), *left_out_columns(first.metadata)],
    }


def metrics_table(
    metrics: Mapping[str, SystemMetrics], *, default_system: str, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of metrics.json: rates in percent, null for what a list does not define."""
    systems = {name: _system_entry(system) for name, system in metrics.items()}
    return {**about, "default_system": default_system, "systems": systems}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _percents(shares: Mapping[float, float | None]) -> dict[str, float | None]:
    return {f"{rate:g}": _percent(share) for rate, share in shares.items()}


def _mean_costs(costs: Mapping[str, tuple[float | None, float | None]]) -> dict[str, dict[str, float | None]]:
    """Return NIST's primary costs that are means over operating points."""
    means: dict[str, dict[str, float | None]] = {}
    for name, points in MEAN_COSTS.items():
        sides = zip(*(costs[point] for point in points), strict=True)
        minimum, actual = (None if None in side else sum(filter(None, side)) / len(side) for side in sides)
        means[name] = {"min_dcf": minimum, "act_dcf": actual}
    return means


def _sample_size(trials: int) -> dict[str, float | None]:
    """Return the lowest rates, in percent, that ``trials`` can show by the rules of 3 and of 30."""
    return {
        "rule_of_3_percent": _percent(rule_of_three(trials) if trials else None),
        "rule_of_30_percent": _percent(rule_of_thirty(trials) if trials else None),
    }


def _rates(rates: ErrorRates) -> dict[str, float | None]:
    return {f"{kind}_percent": _percent(share) for kind, share in asdict(rates).items()}


def _system_entry(metrics: SystemMetrics) -> dict[str, Any]:
    eer, interval, main, spread = metrics.eer, metrics.eer_interval, metrics.costs[MAIN_POINT], metrics.speaker_spread
    general = metrics.generalised_eer
    return {
        "eer_percent": None if eer is None else _percent(eer.rate),
        "eer_percent_ci95": None if interval is None else [_percent(interval.low), _percent(interval.high)],
        "eer_hull_percent": _percent(metrics.eer_hull),
        "threshold": None if eer is None else eer.threshold,
        "min_dcf": main[0],
        "act_dcf": main[1],
        "min_dcf_p01": metrics.costs["p01"][0],
        "cllr": metrics.cllr,
        "min_cllr": metrics.min_cllr,
        "affine_cllr": metrics.affine_cllr,
        "identification_error_percent": _percent(metrics.identification_error),
        "speaker_eer_percent": None if spread is None else _spread_entry(spread),
        "operating_points": {
            name: {**asdict(OPERATING_POINTS[name]), "min_dcf": minimum, "act_dcf": actual}
            for name, (minimum, actual) in metrics.costs.items()
        },
        "mean_costs": _mean_costs(metrics.costs),
        "false_reject_at_false_accept_percent": _percents(metrics.false_reject_at),
        "false_accept_at_false_reject_percent": _percents(metrics.false_accept_at),
        "store_threshold": metrics.store_threshold,
        **_rates(metrics.at_store_threshold),
        "n_target": metrics.n_target,
        "n_nontarget": metrics.n_nontarget,
        "sample_size": {"target": _sample_size(metrics.n_target), "nontarget": _sample_size(metrics.n_nontarget)},
        "n_failed": metrics.unscored.total,
        "unscored": asdict(metrics.unscored),
        "generalised": {
            "eer_percent": None if general is None else _percent(general.rate),
            **_rates(metrics.generalised_at_store_threshold),
        },
        "by_metadata": {
            name: {value: _group_entry(group) for value, group in groups.items()}
            for name, groups in metrics.by_metadata.items()
        },
    }


def _spread_entry(spread: SpeakerSpread) -> dict[str, Any]:
    return {
        "median": _percent(spread.median),
        "quartiles": [_percent(spread.lower_quartile), _percent(spread.upper_quartile)],
        "worst": _percent(spread.worst),
        "worst_speaker": spread.worst_speaker,
    }


def _group_entry(group: GroupMetrics) -> dict[str, Any]:
    return {
        "eer_percent": _percent(group.eer),
        **_rates(group.at_threshold),
        "n_target": group.n_target,
        "n_nontarget": group.n_nontarget,
        "rule_of_30": group.rule_of_30,
    }


def write_evaluation(
    out: Path,
    scores: Mapping[str, SystemScores],
    table: Mapping[str, Any],
    *,
    failed: Sequence[FailedFile] = (),
    command: str | None = None,
    date: str | None = None,
) -> tuple[Path, ...]:
    """Write metrics.json (``table``), scores.txt, the tables, the figures and report.html into ``out``.

    Return the paths written.

    A score file of more than ``MOST_RESAMPLED`` trials, or with names that scores.txt cannot hold, is kept as
    scores.parquet. ``command`` and ``date`` are printed in the report.
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
        figures={path.stem: path.read_bytes() for path in drawn if path.suffix == ".svg"},
        curves=curves_of(table, scores, bands={} if band is None else {table["default_system"]: band}),
        details=_details(described, table),
        failed=failed,
        command=command,
        date=date,
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
    """Return the interval of the false rejects over speakers; None if a class is of fewer than two of them."""
    from pipeline.evaluation.plots import det_grid

    targets, nontargets = scores.target_speakers, scores.nontarget_speakers
    if min(distinct(targets), distinct(nontargets)) < 2:
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
    kept = kept_scores(folder)
    return by_system(read_list(kept), kept) if kept.name == SCORES_TABLE else read_scores(kept)


def kept_scores(folder: Path) -> Path:
    """Return the file of the scores of an evaluation folder; raises InputError."""
    try:
        if (folder / SCORES_TABLE).is_file():
            return folder / SCORES_TABLE
        if not (folder / SCORES).exists():
            raise InputError(f"{folder}: it holds no {SCORES}; {_HINT}")
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
