"""Figures 1 and 2 of Platt 1999 again: densities of the margins by class, and the sigmoid against Bayes' rule."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.errors import MetricError
from pipeline.evaluation.plots.style import DASHES, GREY, PAGE_INCHES, STYLE, colour, legend, suptitle
from pipeline.posteriors.base import Array, Flags, MarginPosterior

BIN = 0.1
# Beyond these quantiles of all margins a bin holds too few trials to show a density.
SHOWN = (0.001, 0.999)


def plot_margins(
    margins: npt.ArrayLike, positive: npt.ArrayLike, sigmoid: MarginPosterior, *, title: str = ""
) -> Figure:
    """Plot the density of the margins (n,) of each class, and P(positive | margin), counted and by ``sigmoid``.

    ``positive`` (n,) are the classes; ``sigmoid`` is fitted already. Bins are 0.1 wide, with edges at whole tenths. A
    cross is the share of positives among a bin's trials, which is Bayes' rule on the two histograms with the priors of
    the trials. Raises MetricError unless there are finite margins of both classes.
    """
    f, flags = np.asarray(margins, dtype=float), np.asarray(positive, dtype=bool)
    if f.ndim != 1 or f.shape != flags.shape or not np.isfinite(f).all() or flags.all() or not flags.any():
        raise MetricError(f"margins: finite ones of both classes expected, got shapes {f.shape} and {flags.shape}")
    low, high = np.floor(np.quantile(f, SHOWN) / BIN + [0, 1]) * BIN
    edges = low + BIN * np.arange(round((high - low) / BIN) + 1)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 2.6 + (0.2 if title else 0.0)), layout="constrained")
        densities, posterior = figure.subplots(1, 2)
        _draw_densities(densities, f, flags, edges)
        _draw_posterior(posterior, f, flags, edges, sigmoid)
        for axes in (densities, posterior):
            axes.set_xlim(edges[0], edges[-1])
            axes.set_xlabel("margin f")
            axes.spines[["top", "right"]].set_visible(False)
        handles, labels = [], []
        for axes in (densities, posterior):
            entries = axes.get_legend_handles_labels()
            handles += entries[0]
            labels += entries[1]
        legend(figure, handles, labels, columns=4)
        suptitle(figure, title)
    return figure


def _draw_densities(axes: Axes, f: Array, positive: Flags, edges: Array) -> None:
    for k, (label, chosen) in enumerate((("positive", positive), ("negative", ~positive))):
        density = np.histogram(f[chosen], edges)[0] / (chosen.sum() * BIN)
        axes.stairs(density, edges, color=colour(k), linestyle=DASHES[k], linewidth=1.2, label=f"p(f | {label})")
    for margin in (-1.0, 1.0):
        axes.axvline(margin, color=GREY, linewidth=0.6, linestyle=DASHES[2], zorder=0)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("density")


def _draw_posterior(axes: Axes, f: Array, positive: Flags, edges: Array, sigmoid: MarginPosterior) -> None:
    hits, all_trials = np.histogram(f[positive], edges)[0], np.histogram(f, edges)[0]
    drawn = all_trials > 0
    centres = (edges[:-1] + edges[1:]) / 2
    axes.plot(
        centres[drawn],
        hits[drawn] / all_trials[drawn],
        "+",
        color=colour(1),
        markersize=4,
        label=f"share of positives in bins of {BIN:g}",
    )
    x = np.linspace(edges[0], edges[-1], 400)
    axes.plot(x, sigmoid.probability(x), color=colour(0), label="fitted sigmoid")
    axes.set_ylim(-0.02, 1.02)
    axes.set_ylabel("P(positive | f)")
