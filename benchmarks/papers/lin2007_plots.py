"""Two algorithms for the sigmoid over the grid of C and gamma: iterations, and the excess of one final objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pipeline.evaluation.plots.style import PAGE_INCHES, STYLE, suptitle

MAP = "cividis"
LEAST_ITERATIONS, MOST_ITERATIONS = 2, 100
LEAST_EXCESS = 1e-12


@dataclass(frozen=True)
class Panel:
    """One data set's row of panels: arrays (C, gamma).

    Iterations of Platt's algorithm and of Newton's; where Platt's arithmetic ``failed`` by an overflow or the log of
    zero; the relative ``excess`` of its final objective over Newton's.
    """

    name: str
    platt: NDArray[np.int64]
    newton: NDArray[np.int64]
    failed: NDArray[np.bool_]
    excess: NDArray[np.float64]


def plot_problems(
    panels: Sequence[Panel], log2_c: Sequence[int], log2_gamma: Sequence[int], *, title: str = ""
) -> Figure:
    """Plot iterations of both algorithms and Platt's excess, a row of three panels for each of ``panels``.

    A dot marks problems in which Platt's arithmetic failed. Colours are on logarithmic scales, the same in every row;
    excesses below 1e-12, which are rounding, are drawn as 1e-12.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 2.1 * len(panels) + 0.4 + (0.2 if title else 0.0)), layout="constrained")
        grid = figure.subplots(len(panels), 3, squeeze=False, sharex=True, sharey=True)
        for row, panel in zip(grid, panels, strict=True):
            steps = LogNorm(LEAST_ITERATIONS, MOST_ITERATIONS)
            _draw(row[0], panel.platt, steps, log2_c, log2_gamma)
            iterations = _draw(row[1], panel.newton, steps, log2_c, log2_gamma)
            excess = _draw(row[2], panel.excess, LogNorm(LEAST_EXCESS, 1.0), log2_c, log2_gamma)
            _mark(row[0], panel.failed, log2_c, log2_gamma)
            row[0].set_ylabel(f"{panel.name}\nlog2 C")
        for axes, name in zip(
            grid[0],
            ("Platt: iterations\n(dots: overflow or log of zero)", "Newton: iterations", "Platt: excess of objective"),
            strict=True,
        ):
            axes.set_title(name)
        for axes in grid[-1]:
            axes.set_xlabel("log2 gamma")
        figure.colorbar(iterations, ax=grid[:, :2], ticks=[2, 5, 10, 20, 50, 100], format="%d", pad=0.01, aspect=40)
        figure.colorbar(excess, ax=grid[:, 2], ticks=[1e-12, 1e-9, 1e-6, 1e-3, 1], pad=0.02, aspect=40)
        suptitle(figure, title)
    return figure


def _draw(axes: Axes, values: NDArray[Any], norm: LogNorm, log2_c: Sequence[int], log2_gamma: Sequence[int]) -> Any:
    drawn = axes.pcolormesh(
        log2_gamma,
        log2_c,
        np.clip(values, norm.vmin, norm.vmax),
        norm=norm,
        cmap=MAP,
        shading="nearest",
        rasterized=True,
    )
    axes.set(xticks=log2_gamma[::2], yticks=log2_c[::2])
    axes.set_box_aspect(1)
    return drawn


def _mark(axes: Axes, where: NDArray[np.bool_], log2_c: Sequence[int], log2_gamma: Sequence[int]) -> None:
    c, gamma = np.nonzero(where)
    axes.plot(np.array(log2_gamma)[gamma], np.array(log2_c)[c], "o", color="#D55E00", markersize=2.2)
