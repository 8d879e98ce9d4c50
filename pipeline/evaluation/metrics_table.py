"""The content of metrics.json: rates in percent, costs, and what was evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline import __version__
from pipeline.evaluation import ScoredList, Trial
from pipeline.evaluation.breakdowns import GroupMetrics, left_out_columns
from pipeline.evaluation.columns import Metadata
from pipeline.evaluation.curves import state_of
from pipeline.evaluation.measure import SystemMetrics, left_out
from pipeline.evaluation.scores import SpeakerSpread
from pipeline.metrics import MAIN_POINT, MEAN_COSTS, OPERATING_POINTS, ErrorRates, rule_of_thirty, rule_of_three
from pipeline.store.model import SpeakerModel


def about_evaluation(
    model: SpeakerModel, trials: Path, claims: Sequence[Trial], metadata: Metadata | None
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
        "speakers_claimed": len(first.speakers.used),
        "files": len(first.paths.used),
        "version": __version__,
        "joined": scored.joined,
        "left_out": [*left_out(first), *left_out_columns(first.metadata)],
    }


def metrics_table(
    metrics: Mapping[str, SystemMetrics], *, default_system: str, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of metrics.json: rates in percent, null for metrics that a list does not define."""
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
