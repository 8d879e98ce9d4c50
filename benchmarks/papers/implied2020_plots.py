"""Figures of implied posteriors: reweighted hyperplanes, answers at a point, calibration, ROC, sensitivity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from pipeline.evaluation.plots.style import COLUMN_INCHES, DASHES, GREY, PAGE_INCHES, STYLE, colour, suptitle

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

MAP = "cividis"
JITTER = 0.08  # of the classes in the figure of isotonic regression's input
BINS = 10
_WEIGHT = "weight of the positive class"


@dataclass(frozen=True, eq=False)
class Point:
    """A test point (2,) of the plane, the machines' predictions (L,), 1 or 0, and its posterior, as text."""

    name: str
    at: Array
    answers: Array
    posterior: str


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores (n,) in [0, 1] of a method, and the isotonic regression (n,) of the classes on them."""

    name: str
    scores: Array
    isotonic: Array


def plot_hyperplanes(
    rows: Array, positive: Flags, weights: Array, lines: Array, points: Sequence[Point], *, title: str = ""
) -> Figure:
    """Plot points ``rows`` (n, 2) of two classes, ``lines`` of reweighted machines, and their answers at ``points``.

    ``lines`` (L, 3) are a, b, c of a x + b y + c = 0, positive on the positive class's side, for machines that give the
    positive class the ``weights`` (L,). The paper's Figs. 4-9.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 3.3 + (0.2 if title else 0.0)), layout="constrained")
        grid = figure.add_gridspec(len(points), 2, width_ratios=(3, 2))
        plane = figure.add_subplot(grid[:, 0])
        _draw_plane(plane, rows, positive, weights, lines)
        for k, point in enumerate(points):
            x, y = point.at.tolist()
            plane.plot(x, y, "*", color="black", markersize=8, zorder=4)
            plane.annotate(point.name, (x, y), xytext=(5, 3), textcoords="offset points", fontweight="bold", zorder=4)
            axes = figure.add_subplot(grid[k, 1])
            _draw_answers(axes, weights, point.answers, f"{point.name}: posterior {point.posterior}")
            if k == len(points) - 1:
                axes.set_xlabel(_WEIGHT)
        figure.colorbar(ScalarMappable(Normalize(0, 1), MAP), ax=plane, label=_WEIGHT, location="left", aspect=40)
        suptitle(figure, title)
    return figure


def plot_reweighting(
    rows: Array, positive: Flags, weights: Array, lines: Array, posteriors: Array, at: Array, *, title: str = ""
) -> Figure:
    """Plot two machines, a panel each, and both together where their lines cross, ``at`` (2,).

    ``lines`` (2, 3), ``weights`` (2,) and ``posteriors`` (2,) along the lines have one entry per machine. The paper's
    Figs. 1 to 3.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 2.6 + (0.2 if title else 0.0)), layout="constrained")
        panels = figure.subplots(1, 3, sharex=True, sharey=True)
        for k, axes in enumerate(panels[:2]):
            _draw_plane(axes, rows, positive, weights[k : k + 1], lines[k : k + 1])
            axes.set_title(f"weight {weights[k]:.1f}: posterior {posteriors[k]:.1f} along it", loc="left")
        both = panels[2]
        _draw_plane(both, rows, positive, weights, lines)
        both.plot(*at, "*", color="black", markersize=8, zorder=4)
        both.set_title(f"where they cross: {posteriors[0]:.1f} and {posteriors[1]:.1f}", loc="left")
        for axes in panels[1:]:
            axes.set_ylabel("")
        suptitle(figure, title)
    return figure


def _draw_plane(axes: Axes, rows: Array, positive: Flags, weights: Array, lines: Array) -> None:
    for flags, marker, k in ((positive, "o", 0), (~positive, "x", 1)):
        axes.plot(*rows[flags].T, marker, color=colour(k), markersize=3.5, fillstyle="none", linestyle="none")
    low, high = rows.min(axis=0) - 0.4, rows.max(axis=0) + 0.4
    shades = mpl.colormaps[MAP]
    for weight, (a, b, c) in zip(weights, lines, strict=True):
        normal = np.array([a, b])
        foot = -c * normal / (normal @ normal)
        axes.axline(foot, foot + np.array([-b, a]), color=shades(float(weight)), linewidth=1.0)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel="first feature", ylabel="second feature")
    axes.set_title("o positive, x negative", loc="left")


def _draw_answers(axes: Axes, weights: Array, answers: Array, title: str) -> None:
    for answer, k in ((1.0, 0), (0.5, 2), (0.0, 1)):
        said = answers == answer
        axes.plot(weights[said], answers[said], "o", color=colour(k), markersize=3)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.25, 1.25), yticks=(0, 1), yticklabels=("negative", "positive"))
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def plot_posteriors(
    margins: Array, platt: Array, implied: Array, weights: Array, answers: Array, *, title: str = ""
) -> Figure:
    """Plot the predictions for the first point, and both posteriors (n,) against the margins (n,) of one machine.

    ``answers`` (L,) are of machines that give the positive class the ``weights`` (L,). The paper's Figs. 10, 11.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 2.3 + (0.2 if title else 0.0)), layout="constrained")
        first, left, right = figure.subplots(1, 3)
        _draw_answers(first, weights, answers, f"first test point: posterior {implied[0]:.3f}")
        first.set_xlabel(_WEIGHT)
        for k, (axes, name, posterior) in enumerate(((left, "implied", implied), (right, "Platt", platt))):
            axes.plot(margins, posterior, "o", color=colour(k), markersize=1.5)
            axes.set(xlabel="margin of the reference machine", ylim=(-0.02, 1.02))
            axes.set_title(name, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
        left.set_ylabel("posterior")
        suptitle(figure, title)
    return figure


def plot_calibration(methods: Sequence[Scored], positive: Flags, *, title: str = "") -> Figure:
    """Plot shares of positives in ten even bins of the score (larger dots: more trials) and isotonic regression.

    One panel per method; scores on the dotted line are perfectly calibrated. The paper's Fig. 12.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 2.7 + (0.2 if title else 0.0)), layout="constrained")
        panels = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
        for k, (axes, method) in enumerate(zip(panels, methods, strict=True)):
            _draw_calibration(axes, method, positive, colour(k))
        panels[0].set_ylabel("share of positives")
        suptitle(figure, title)
    return figure


def _draw_calibration(axes: Axes, method: Scored, positive: Flags, shade: str) -> None:
    axes.plot([0, 1], [0, 1], ":", color=GREY, linewidth=0.8)
    place = np.minimum((method.scores * BINS).astype(int), BINS - 1)
    trials = np.bincount(place, minlength=BINS)
    used = trials > 0
    share = np.bincount(place, weights=positive, minlength=BINS)[used] / trials[used]
    axes.scatter((np.arange(BINS)[used] + 0.5) / BINS, share, s=4 + trials[used] / 4, color=shade, alpha=0.5, zorder=3)
    order = np.argsort(method.scores, kind="stable")
    axes.step(method.scores[order], method.isotonic[order], where="post", color="black", linewidth=0.9)
    off = np.abs(method.scores - method.isotonic).mean()
    axes.set_title(f"{method.name}: calibration score {off:.3f}", loc="left", parse_math=False)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="score")
    axes.set_box_aspect(1)


def plot_isotonic_input(scored: Scored, positive: Flags, *, title: str = "") -> Figure:
    """Plot every score with its class, moved up or down a little at random, and the isotonic regression. Fig. 13."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN_INCHES, 2.6 + (0.2 if title else 0.0)), layout="constrained")
        axes = figure.subplots()
        moved = positive + np.random.default_rng(0).uniform(-JITTER, JITTER, len(positive))
        for flags, k in ((positive, 0), (~positive, 1)):
            axes.plot(scored.scores[flags], moved[flags], "o", color=colour(k), markersize=2, fillstyle="none")
        order = np.argsort(scored.scores, kind="stable")
        axes.step(scored.scores[order], scored.isotonic[order], where="post", color="black", linewidth=0.9)
        axes.set(xlim=(-0.02, 1.02), yticks=(0, 1), yticklabels=("negative", "positive"))
        axes.set_xlabel(f"{scored.name} posterior")
        suptitle(figure, title)
    return figure


def plot_roc(scores: Mapping[str, Array], positive: Flags, *, title: str = "") -> Figure:
    """Plot the share of positives accepted against that of negatives, for each of ``scores`` (n,). Fig. 14."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN_INCHES, COLUMN_INCHES + (0.2 if title else 0.0)), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], ":", color=GREY, linewidth=0.8)
        for k, (name, values) in enumerate(scores.items()):
            false, true, _ = roc_curve(positive, values)
            area = float(np.trapezoid(true, false))
            axes.plot(false, true, color=colour(k), linestyle=DASHES[k], label=f"{name} (AUC {area:.3f})")
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        axes.set(xlabel="negatives called positive", ylabel="positives called positive")
        axes.set_box_aspect(1)
        axes.legend(loc="lower right", frameon=False)
        suptitle(figure, title)
    return figure


def plot_sensitivity(
    values: Mapping[str, Array],
    log2_c: Sequence[int],
    log2_gamma: Sequence[int],
    chosen: tuple[int, int],
    *,
    title: str = "",
) -> Figure:
    """Plot each of ``values`` (C, gamma), a panel, over the grid; a ring marks the ``chosen`` log2 C and log2 gamma."""
    across = 3
    down = -(-len(values) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 2.1 * down + (0.2 if title else 0.0)), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for axes, (name, shown) in zip(grid.flat, values.items(), strict=False):
            drawn: Any = axes.pcolormesh(log2_gamma, log2_c, shown, cmap=MAP, shading="nearest", rasterized=True)
            axes.plot(chosen[1], chosen[0], "o", color=colour(1), fillstyle="none", markersize=8, markeredgewidth=1.5)
            axes.set_title(name, loc="left", parse_math=False)
            axes.set(xticks=log2_gamma[::2], yticks=log2_c[::2])
            axes.set_box_aspect(1)
            figure.colorbar(drawn, ax=axes, aspect=25)
        for axes in grid.flat[len(values) :]:
            axes.set_axis_off()
        for axes in grid[-1]:
            axes.set_xlabel("log2 gamma")
        for axes in grid[:, 0]:
            axes.set_ylabel("log2 C")
        suptitle(figure, title)
    return figure
