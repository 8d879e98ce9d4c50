"""Figures 1 and 2 of Xin, Wu and Pan 2002 again: false rejects against false accepts."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.evaluation.plots.style import (
    COLUMN_INCHES,
    DASHES,
    GREY,
    STYLE,
    Scores,
    colour,
    legend,
    score_pairs,
    suptitle,
)
from pipeline.metrics import equal_error_rate, error_curve


def plot_fa_fr(curves: Mapping[str, Scores], paper: Mapping[str, float], *, title: str = "") -> Figure:
    """Plot false rejects against false accepts, both in percent on linear axes, one line per system.

    ``curves`` maps a system's name to its scores, or to a pair of target and nontarget score arrays; ``paper`` has
    equal error rates in percent by the same names. A dot on the dotted line FA = FR marks each curve's equal
    error rate, a cross of the same colour the paper's. Tied scores are joined by a straight line. The axes end at four
    times the worst rate, 100 at most. Raises MetricError when there is no system, or scores that define no error rate.
    """
    pairs = score_pairs(curves)
    rates = {name: 100 * equal_error_rate(*pair).rate for name, pair in pairs.items()}
    limit = min(100.0, 4 * max(1.0, *rates.values(), *(paper[name] for name in pairs if name in paper)))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN_INCHES, 3.6 + (0.2 if title else 0.0)), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, limit], [0, limit], ":", color=GREY, linewidth=0.8)
        lines: list[Artist] = []
        labels = []
        for k, (name, pair) in enumerate(pairs.items()):
            curve = error_curve(*pair)
            lines += axes.plot(
                100 * curve.false_accept, 100 * curve.false_reject, color=colour(k), linestyle=DASHES[k % len(DASHES)]
            )
            axes.plot(rates[name], rates[name], "o", color=colour(k), markersize=4.5, markeredgecolor="white", zorder=3)
            labels.append(f"{name}: {rates[name]:.2f} %")
            if name in paper:
                axes.plot(paper[name], paper[name], "x", color=colour(k), markersize=5, zorder=3)
                labels[-1] += f" (paper {paper[name]:.2f} %)"
        lines += [Line2D([], [], color=GREY, marker=mark, linestyle="none", markersize=4.5) for mark in "ox"]
        axes.set(xlim=(0, limit), ylim=(0, limit), xlabel="false accepts (%)", ylabel="false rejects (%)")
        axes.set_yticks(ticks := [tick for tick in axes.get_yticks() if 0 <= tick <= limit])
        axes.set_xticks(np.array(ticks))
        axes.set_box_aspect(1)
        axes.grid(color="#e6e6e6", linewidth=0.5)
        axes.set_axisbelow(True)
        legend(figure, lines, [*labels, "equal error rate here", "in the paper"], columns=2)
        suptitle(figure, title)
    return figure
