"""Figures over the score axis: both error rates against the threshold, and histograms of the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pipeline.evaluation.plots.style import (
    COLUMN_INCHES,
    DASHES,
    EER_MARK,
    GREY,
    PAGE_INCHES,
    STYLE,
    Scores,
    annotate,
    colour,
    column_figure,
    legend,
    minus,
    percent,
    score_pair,
    score_pairs,
    suptitle,
    wrapped,
)
from pipeline.metrics import ErrorCurve, equal_error_rate, equal_error_rate_of, error_curve, score_histogram
from pipeline.metrics.curves import FloatArray

_DRAWN_POINTS = 1200  # more than the pixels across a panel at print resolution


def plot_error_rates(
    curves: Mapping[str, Scores], *, title: str = "", units: Mapping[str, str] | None = None
) -> Figure:
    """Draw false accepts and false rejects in percent against the threshold, one panel per system.

    ``curves`` maps a system's name to its scores, or to a pair of target and nontarget score arrays. Systems score in
    different units, so each panel has its own threshold axis, labelled ``units[name]`` (else "threshold"), without
    the outermost half percent of either class; the percent axis is shared. A dot marks the equal error rate, which
    stands above the panel with its threshold. One system fills a column of a paper, several fill the page, four in a
    row. Raises MetricError when there is no system, or scores that define no error rate.
    """
    pairs = score_pairs(curves)
    columns = min(len(pairs), 4)
    rows = math.ceil(len(pairs) / columns)
    width = COLUMN_INCHES if len(pairs) == 1 else PAGE_INCHES
    height = 2.5 if columns <= 2 else 2.2
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, rows * height + 0.25), layout="constrained")
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for k, (name, (target, nontarget)) in enumerate(pairs.items()):
            axes = grid.flat[k]
            _draw_error_rates(axes, target, nontarget, colour(k))
            axes.set_title(wrapped(name, width / columns), loc="left", fontweight="bold", pad=13, parse_math=False)
            unit = (units or {}).get(name, "threshold")
            axes.set_xlabel(wrapped(unit, width / columns), parse_math=False)
        for axes in grid.flat[len(pairs) :]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel("error rate (%)")
        keys = [Line2D([], [], color=GREY, linestyle=dashes) for dashes in DASHES[:2]]
        names = ("false accepts", "false rejects", "equal error rate")
        legend(figure, [*keys, Line2D([], [], **EER_MARK)], names, columns=3)
        suptitle(figure, title)
    return figure


def plot_histogram(scores: Scores, *, threshold: float | None = None, title: str = "", unit: str = "score") -> Figure:
    """Draw the share of target and of nontarget trials in each bin of the score, in percent of either class.

    The score axis, labelled ``unit``, has the range of ``plot_error_rates``, extended to ``threshold``, which is
    drawn if given; scores beyond the axis count in the outermost bins. Raises MetricError for scores that define no
    error rate.
    """
    target, nontarget = score_pair(scores)
    inside = equal_error_rate(target, nontarget).threshold if threshold is None else threshold
    low, high = _score_range(target, nontarget, inside)
    edges, of_target, of_nontarget = score_histogram(target, nontarget, limits=(low, high))
    highest = 100 * max(of_target.max(), of_nontarget.max())
    with column_figure(2.4, title) as (figure, axes):
        for values, k in ((of_nontarget, 1), (of_target, 0)):
            style: Any = {"edgecolor": colour(k), "facecolor": (colour(k), 0.25), "linestyle": DASHES[1 - k]}
            axes.stairs(100 * values, edges, fill=True, linewidth=1.0, **style)
        # The class names stand above the highest bin, where no bar can cross them.
        top: Any = {"y": 0.97, "va": "top", "transform": axes.transAxes}
        axes.text(0.02, s=f"nontarget trials ({nontarget.size})", ha="left", color=colour(1), **top)
        axes.text(0.98, s=f"target trials ({target.size})", ha="right", color=colour(0), **top)
        if threshold is not None:
            axes.plot([threshold, threshold], [0, 1.05 * highest], color="black", linewidth=0.8)
            text = minus(f"threshold {threshold:.3g}")
            annotate(axes, text, (threshold, 1), (0, 3), at=("data", "axes fraction"), ha="center")
        axes.set_xlim(low, high)
        axes.set_ylim(0, 1.18 * highest)
        axes.set_xlabel(wrapped(unit, COLUMN_INCHES), parse_math=False)
        axes.set_ylabel("share of the class (%)")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_error_rates(axes: Axes, target: FloatArray, nontarget: FloatArray, colour: str) -> None:
    curve = error_curve(target, nontarget)
    eer = equal_error_rate_of(curve)
    low, high = _score_range(target, nontarget, eer.threshold)
    thresholds, false_accept, false_reject = _in_view(curve, low, high)
    axes.plot(thresholds, 100 * false_accept, "-", color=colour, drawstyle="steps-pre")
    axes.plot(thresholds, 100 * false_reject, color=colour, drawstyle="steps-pre", linestyle=DASHES[1])
    axes.plot(eer.threshold, 100 * eer.rate, **EER_MARK)
    annotate(axes, minus(f"EER {percent(eer.rate)} at {eer.threshold:.3g}"), (0, 1), (0, 4))
    axes.set_xlim(low, high)
    axes.set_ylim(-2, 102)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _score_range(target: FloatArray, nontarget: FloatArray, threshold: float) -> tuple[float, float]:
    """Return score limits without the outermost half percent of either class, but with the threshold."""
    edges = [threshold, *np.quantile(target, [0.005, 0.995]), *np.quantile(nontarget, [0.005, 0.995])]
    low, high = float(min(edges)), float(max(edges))
    margin = 0.04 * (high - low) or 0.1 * abs(low) or 0.5
    return low - margin, high + margin


def _in_view(curve: ErrorCurve, low: float, high: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the curve between two thresholds, both included, with no more points than print can show."""
    inside = curve.thresholds[(curve.thresholds > low) & (curve.thresholds < high)]
    if inside.size > _DRAWN_POINTS:
        inside = np.linspace(low, high, _DRAWN_POINTS)[1:-1]
    thresholds = np.concatenate([[low], inside, [high]])
    k = np.searchsorted(curve.thresholds, thresholds, side="left")
    return thresholds, curve.false_accept[k], curve.false_reject[k]
