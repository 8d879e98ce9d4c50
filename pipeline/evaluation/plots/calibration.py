"""Calibration figures: reliability diagram and Bayes error rates of log-likelihood ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from pipeline.evaluation.plots.style import DASHES, GREY, annotate, colour, column_figure, legend
from pipeline.metrics import OPERATING_POINTS, bayes_error_rates, reliability

_CEILING = 1.4  # highest cost drawn, relative to deciding without scores


def plot_reliability(target_llrs: npt.ArrayLike, nontarget_llrs: npt.ArrayLike, *, title: str = "") -> Figure:
    """Draw the observed share of target trials against the predicted probability, in percent, with Wilson's intervals.

    Predictions use the list's own prior; perfect calibration lies on the dotted line. The number at each bar counts
    the trials behind it. Raises MetricError for ratios that define no error rate.
    """
    bins = reliability(target_llrs, nontarget_llrs)
    x, y = 100 * bins.predicted, 100 * bins.observed
    with column_figure(3.3, title) as (figure, axes):
        axes.plot([0, 100], [0, 100], ":", color=GREY, linewidth=0.8)
        bars = np.maximum([y - 100 * bins.low, 100 * bins.high - y], 0)
        axes.errorbar(x, y, bars, fmt="o", color=colour(0), markersize=3.5, elinewidth=0.8, capsize=2)
        for at, low, trials in zip(x, 100 * bins.low, bins.trials, strict=True):
            side = "left" if at < 4 else "right" if at > 96 else "center"
            annotate(axes, str(trials), (at, low), (0, -2), at="data", ha=side, va="top", color=GREY, fontsize=6)
        key = f"bars: {100 * bins.level:g} % interval, numbers: trials\ndotted: perfect calibration"
        annotate(axes, key, (0, 1), (0, 4), color=GREY)
        axes.set(xlim=(-3, 103), ylim=(-6, 103), xticks=range(0, 101, 20), yticks=range(0, 101, 20))
        axes.set_xlabel("predicted probability of a target trial (%)")
        axes.set_ylabel("observed share of target trials (%)")
        axes.set_box_aspect(1)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot_bayes_error(target_llrs: npt.ArrayLike, nontarget_llrs: npt.ArrayLike, *, title: str = "") -> Figure:
    """Draw the normalised detection cost against the prior log odds: at Bayes' threshold, and at the best one.

    The gap is calibration loss; above the dotted line the scores do more harm than good. The operating points are
    named on top. Costs above 1.4 are cut off. Raises MetricError for ratios that define no error rate.
    """
    log_odds, actual, minimum = bayes_error_rates(target_llrs, nontarget_llrs)
    with column_figure(2.6, title) as (figure, axes):
        axes.axhline(1.0, linestyle=":", color=GREY, linewidth=0.8)
        slanted: Any = {"rotation": 90, "ha": "center", "va": "bottom", "color": GREY, "fontsize": 6.5}
        for name, point in OPERATING_POINTS.items():
            axes.axvline(point.log_odds, color="#dddddd", linewidth=0.8, zorder=0)
            annotate(axes, name, (point.log_odds, 1), (0, 2), at=("data", "axes fraction"), **slanted)
        lines = axes.plot(log_odds, actual, color=colour(0))
        lines += axes.plot(log_odds, minimum, color=colour(1), linestyle=DASHES[1])
        legend(figure, lines, ("actual", "minimum"), columns=2)
        axes.set(xlim=(log_odds[0], log_odds[-1]), ylim=(0, _CEILING))
        axes.set_xlabel("prior log odds of a target trial (nats)")
        axes.set_ylabel("normalised detection cost")
        axes.spines[["top", "right"]].set_visible(False)
    return figure
