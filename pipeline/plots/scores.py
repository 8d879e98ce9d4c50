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

from pipeline.evaluation import ErrorCurve, equal_error_rate, equal_error_rate_of, error_curve, score_histogram
from pipeline.evaluation.curves import FloatArray
from pipeline.plots.style import (
    COLUMN_INCHES,
    DASHES,
    GREY,
    PAGE_INCHES,
    STYLE,
    Scores,
    colour,
    legend,
    percent,
    score_pair,
    score_pairs,
    suptitle,
    wrapped,
)

_DRAWN_POINTS = 1200  # more than the pixels across a panel at print resolution


def plot_error_rates(
    curves: Mapping[str, Scores], *, title: str = "", units: Mapping[str, str] | None = None
) -> Figure:
    """False accepts and false rejects in percent against the threshold, one panel a system.

    ``curves`` maps a system's name to its scores, or to a pair of target and nontarget score arrays. Systems
    score in different units, so each panel has its own threshold axis, called ``units[name]`` (else
    "threshold"), over the scores that matter: all but the outermost half percent of either class. The
    percent axis is shared. A dot marks where the curves cross; above each panel stand the equal error rate
    and its threshold. One system fills a column of a paper, several fill the page, four in a row.
    Raises MetricError when there is no system, or scores that define no error rate.
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
        legend(figure, _error_rate_keys(), ("false accepts", "false rejects", "equal error rate"), columns=3)
        suptitle(figure, title)
    return figure


def plot_histogram(
    scores: Scores, *, threshold: float | None = None, title: str = "", unit: str = "score", bins: int = 40
) -> Figure:
    """Share of the true and of the false claims in each bin of the score, in percent of either class.

    The score axis, called ``unit``, is that of ``plot_error_rates`` and reaches to ``threshold``, which is drawn if
    it is given; scores beyond the axis count in the outermost bins. Raises MetricError for scores that define no
    error rate.
    """
    target, nontarget = score_pair(scores)
    within = equal_error_rate(target, nontarget).threshold if threshold is None else threshold
    low, high = _range_that_matters(target, nontarget, within)
    shares = score_histogram(target, nontarget, limits=(low, high), bins=bins)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN_INCHES, 2.4 + (0.2 if title else 0.0)), layout="constrained")
        axes = figure.subplots()
        highest = 100 * max(shares.target.max(), shares.nontarget.max())
        for values, index in ((shares.nontarget, 1), (shares.target, 0)):
            style = {"edgecolor": colour(index), "facecolor": (colour(index), 0.25), "linestyle": DASHES[1 - index]}
            axes.stairs(100 * values, shares.edges, fill=True, linewidth=1.0, **style)
        # Above the highest bin, so that no bar can run through the words.
        for x, align, words, size, index in (
            (0.02, "left", "false claims", nontarget.size, 1),
            (0.98, "right", "true claims", target.size, 0),
        ):
            axes.text(x, 0.97, f"{words} ({size})", ha=align, va="top", color=colour(index), transform=axes.transAxes)
        if threshold is not None:
            _draw_threshold(axes, threshold, highest)
        axes.set_xlim(low, high)
        axes.set_ylim(0, 1.18 * highest)
        axes.set_xlabel(wrapped(unit, COLUMN_INCHES), parse_math=False)
        axes.set_ylabel("share of the class (%)")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.spines[["top", "right"]].set_visible(False)
        suptitle(figure, title)
    return figure


def _draw_threshold(axes: Axes, threshold: float, height: float) -> None:
    axes.plot([threshold, threshold], [0, 1.05 * height], color="black", linewidth=0.8)
    axes.annotate(
        f"threshold {threshold:.3g}".replace("-", "\N{MINUS SIGN}"),
        xy=(threshold, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
    )


def _draw_error_rates(axes: Axes, target: FloatArray, nontarget: FloatArray, colour: str) -> None:
    curve = error_curve(target, nontarget)
    crossing = equal_error_rate_of(curve)
    low, high = _range_that_matters(target, nontarget, crossing.threshold)
    thresholds, false_accept, false_reject = _in_view(curve, low, high)
    axes.plot(thresholds, 100 * false_accept, "-", color=colour, drawstyle="steps-pre")
    axes.plot(thresholds, 100 * false_reject, color=colour, drawstyle="steps-pre", linestyle=DASHES[1])
    axes.plot(crossing.threshold, 100 * crossing.rate, **_EER_MARK)
    axes.annotate(
        f"EER {percent(crossing.rate)} at {crossing.threshold:.3g}".replace("-", "\N{MINUS SIGN}"),
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 4),
        textcoords="offset points",
    )
    axes.set_xlim(low, high)
    axes.set_ylim(-2, 102)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


_EER_MARK: dict[str, Any] = {
    "marker": "o",
    "markersize": 4,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "linestyle": "none",
    "zorder": 3,
    "clip_on": False,
}


def _error_rate_keys() -> list[Line2D]:
    return [
        Line2D([], [], color=GREY, linestyle="-"),
        Line2D([], [], color=GREY, linestyle=DASHES[1]),
        Line2D([], [], **_EER_MARK),
    ]


def _range_that_matters(target: FloatArray, nontarget: FloatArray, threshold: float) -> tuple[float, float]:
    """Threshold limits without the outermost half percent of either class, but with the crossing."""
    edges = [threshold, *np.quantile(target, [0.005, 0.995]), *np.quantile(nontarget, [0.005, 0.995])]
    low, high = float(min(edges)), float(max(edges))
    margin = 0.04 * (high - low) or 0.1 * abs(low) or 0.5
    return low - margin, high + margin


def _in_view(curve: ErrorCurve, low: float, high: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Points of the curve between two thresholds, both ends included, no more of them than print can show."""
    inside = curve.thresholds[(curve.thresholds > low) & (curve.thresholds < high)]
    if inside.size > _DRAWN_POINTS:
        inside = np.linspace(low, high, _DRAWN_POINTS)[1:-1]
    thresholds = np.concatenate([[low], inside, [high]])
    k = np.searchsorted(curve.thresholds, thresholds, side="left")
    return thresholds, curve.false_accept[k], curve.false_reject[k]
