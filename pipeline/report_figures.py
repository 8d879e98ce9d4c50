"""The figures of an evaluation: what its scores allow, and curves of several laid over each other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.assessment import MOST_RESAMPLED
from pipeline.evaluation import DetBand, SystemScores, det_band, distinct, group_labels
from pipeline.plots import (
    det_grid,
    plot_bayes_error,
    plot_det,
    plot_error_rates,
    plot_histogram,
    plot_reliability,
    save_figure,
)
from pipeline.posteriors.coupling import RULES

BAND_SEED = 0  # the same scores give the same picture

# The paper's figure 1, its figure 2, the rules beyond it, and those there to be compared with.
FAMILIES: dict[str, tuple[str, ...]] = {
    "fa_fr_one_vs_rest": ("boar", "poar"),
    "fa_fr_one_vs_one": ("boao", "poao", "rpoao"),
    "fa_fr_worst_rival": ("worst_rival", "refined_worst_rival"),
    "fa_fr_comparison": tuple(name for name, rule in RULES.items() if rule.comparison),
}


def draw_evaluation(out: Path, scores: Mapping[str, SystemScores], table: Mapping[str, Any]) -> list[Path]:
    """The figures that the scores allow."""
    drawable = {name: found for name, found in scores.items() if found.two_classes}
    units = {name: rule.unit for name, rule in RULES.items()}
    written: list[Path] = []
    families = dict(FAMILIES)
    if "scores" in table:  # of another program
        families["fa_fr"] = tuple(name for name in drawable if name not in chain(*FAMILIES.values()))
        units |= {name: "score" for name in drawable if name not in RULES}
    for file, family in families.items():
        curves = {name: drawable[name] for name in family if name in drawable}
        if curves:
            written += save_figure(plot_error_rates(curves, units=units), out / file)
    if drawable:
        written += save_figure(plot_det(drawable), out / "det")
    default = str(table["default_system"])
    if default in drawable:
        threshold = table["systems"][default]["store_threshold"]
        bounded = "scores" in table and drawable[default].scores.size > MOST_RESAMPLED
        band = None if bounded else _band(drawable[default])
        written += _draw_default(out, default, drawable[default], units.get(default, "score"), threshold, band)
    return written


def _draw_default(
    out: Path, name: str, scores: SystemScores, unit: str, threshold: float | None, band: DetBand | None
) -> list[Path]:
    """The figures that show one system closely: its DET interval, its scores, and its calibration if it has one."""
    bands = {} if band is None else {name: band}
    written = [*save_figure(plot_det({name: scores}, bands=bands), out / "det_interval")]
    histogram = plot_histogram(scores, threshold=threshold, title=name, unit=unit)
    written += save_figure(histogram, out / "score_histogram")
    targets, nontargets = scores.target_llrs, scores.nontarget_llrs
    if targets is not None and nontargets is not None:
        written += save_figure(plot_reliability(targets, nontargets, title=name), out / "reliability")
        written += save_figure(plot_bayes_error(targets, nontargets, title=name), out / "bayes_error")
    return written


def _band(scores: SystemScores) -> DetBand | None:
    """Interval of the false rejects over speakers; None where there are too few of them for one."""
    speakers = scores.target_speakers, scores.nontarget_speakers
    if min(distinct(names) for names in speakers) < 2:
        return None
    return det_band(
        scores.target,
        scores.nontarget,
        det_grid(scores.nontarget.size),
        seed=BAND_SEED,
        target_speakers=group_labels(speakers[0]),
        nontarget_speakers=group_labels(speakers[1]),
    )


def overlay(curves: Mapping[str, SystemScores], out: Path) -> tuple[Path, ...]:
    """The DET curves of ``curves`` in the picture ``out``; returns what was written."""
    return save_figure(plot_det(curves), out)
