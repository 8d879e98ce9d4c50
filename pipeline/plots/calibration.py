"""Figures of calibration: whether log-likelihood ratios mean what they say."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.evaluation import OPERATING_POINTS, OperatingPoint, bayes_error_rates, reliability
from pipeline.evaluation.curves import FloatArray
from pipeline.plots.style import COLUMN_INCHES, DASHES, GREY, STYLE, colour, suptitle

_CEILING = 1.4  # the share of a useless system's cost up to which a cost is drawn
_LABELLED = 0.55  # the cost at which a line is named


def plot_reliability(target_llrs: npt.ArrayLike, nontarget_llrs: npt.ArrayLike, *, title: str = "") -> Figure:
    """Observed share of true claims against the predicted probability, in percent, with Wilson's 95 % intervals.

    The prediction is at the list's own prior. On the dotted line it comes true as often as it says. The number at
    each bar is that of the trials behind it. Raises MetricError for ratios that define no error rate.
    """
    found = reliability(target_llrs, nontarget_llrs)
    x, y = 100 * found.predicted, 100 * found.observed
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN_INCHES, 3.3 + (0.2 if title else 0.0)), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 100], [0, 100], ":", color=GREY, linewidth=0.8)
        bars = [y - 100 * found.low, 100 * found.high - y]
        axes.errorbar(x, y, np.maximum(bars, 0), fmt="o", color=colour(0), markersize=3.5, elinewidth=0.8, capsize=2)
        for at, low, trials in zip(x, 100 * found.low, found.trials, strict=True):
            _label_count(axes, at, low, int(trials))
        axes.annotate(
            f"bars: {100 * found.level:g} % interval, numbers: trials\ndotted: as predicted",
            xy=(0, 1),
            xycoords="axes fraction",
            xytext=(0, 4),
            textcoords="offset points",
            color=GREY,
        )
        axes.set(xlim=(-3, 103), ylim=(-6, 103), xticks=range(0, 101, 20), yticks=range(0, 101, 20))
        axes.set_xlabel("predicted probability of a true claim (%)")
        axes.set_ylabel("observed share of true claims (%)")
        axes.set_box_aspect(1)
        axes.spines[["top", "right"]].set_visible(False)
        suptitle(figure, title)
    return figure


def _label_count(axes: Axes, x: float, low: float, trials: int) -> None:
    """Number of trials, under the lower end of their interval."""
    axes.annotate(
        str(trials),
        xy=(x, low),
        xytext=(0, -2),
        textcoords="offset points",
        ha="left" if x < 4 else "right" if x > 96 else "center",
        va="top",
        color=GREY,
        fontsize=6,
    )


def plot_bayes_error(
    target_llrs: npt.ArrayLike,
    nontarget_llrs: npt.ArrayLike,
    *,
    points: Mapping[str, OperatingPoint] = OPERATING_POINTS,
    title: str = "",
) -> Figure:
    """Normalised detection cost against the log odds of the prior: by Bayes' rule, and by the best threshold.

    The gap is what calibration loses; above the dotted line listening does more harm than good. The named operating
    points stand on top. Costs above 1.4 are cut off. Raises MetricError for ratios that define no error rate.
    """
    found = bayes_error_rates(target_llrs, nontarget_llrs)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN_INCHES, 2.6 + (0.2 if title else 0.0)), layout="constrained")
        axes = figure.subplots()
        axes.axhline(1.0, linestyle=":", color=GREY, linewidth=0.8)
        for name, point in points.items():
            axes.axvline(point.log_odds, color="#dddddd", linewidth=0.8, zorder=0)
            _label_point(axes, name, point.log_odds)
        axes.plot(found.log_odds, found.actual, color=colour(0))
        axes.plot(found.log_odds, found.minimum, color=colour(1), linestyle=DASHES[1])
        # On the right arm, where no operating point stands: one inside the valley, the other outside.
        _label_line(axes, found.log_odds, found.actual, "actual", colour(0), inside=True)
        _label_line(axes, found.log_odds, found.minimum, "minimum", colour(1), inside=False)
        axes.set(xlim=(found.log_odds[0], found.log_odds[-1]), ylim=(0, _CEILING))
        axes.set_xlabel("prior log odds of a true claim (nats)")
        axes.set_ylabel("normalised detection cost")
        axes.spines[["top", "right"]].set_visible(False)
        suptitle(figure, title)
    return figure


def _label_point(axes: Axes, name: str, log_odds: float) -> None:
    axes.annotate(
        name,
        xy=(log_odds, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        rotation=45,
        rotation_mode="anchor",
        color=GREY,
        fontsize=6.5,
    )


def _label_line(axes: Axes, x: FloatArray, y: FloatArray, words: str, shade: str, *, inside: bool) -> None:
    """Name a line beside that point of its right half where it is about halfway up."""
    right = np.flatnonzero(x >= 0)
    k = right[np.argmin(np.abs(y[right] - _LABELLED))]
    axes.annotate(
        words,
        xy=(x[k], min(y[k], _CEILING)),
        xytext=(-4 if inside else 4, 2 if inside else -3),
        textcoords="offset points",
        ha="right" if inside else "left",
        va="bottom" if inside or y[k] < 0.1 else "top",
        color=shade,
    )
