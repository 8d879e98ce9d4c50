#!/usr/bin/env python3
"""Draws docs/posteriors.svg: every posterior of margins, fitted to one set of held-out margins.

    python scripts/posteriors_figure.py [--out docs/posteriors.svg]

The machine is an RBF support vector machine between a common class of two normal clouds and a rarer one in their
middle. Posteriors are fitted to the margins of 400 rows held out by three folds. What they should be is measured on
400 000 new rows, by the machine trained on all 400.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.svm import SVC

from pipeline.plots.style import COLOURS, GREY, PAGE_INCHES, STYLE, save_figure
from pipeline.posteriors.heldout import margins_for
from pipeline.posteriors.kinds import POSTERIORS, make_posterior
from pipeline.posteriors.sigmoid import FixedSigmoid, log_probability

ROWS, NEW, BINS = 400, 400_000, 12
SHOWN = (-3.4, 2.4)
# One panel for both: their curves are the same line.
SAME = {"newton": "newton, platt"}
Margins = tuple[np.ndarray, np.ndarray]


def draw(rows: int, rng: np.random.Generator) -> Margins:
    """Points (n, 2), and whether each is of the rarer class (n,)."""
    rare = rng.random(rows) < 0.3
    centre = np.where(rng.random(rows) < 0.5, -2.2, 2.2) * ~rare
    return np.stack([centre, np.zeros(rows)], axis=1) + rng.standard_normal((rows, 2)), rare


def margins(rng: np.random.Generator) -> tuple[Margins, Margins]:
    """Held-out margins and classes (400,), and those of new rows (400 000,)."""
    X, y = draw(ROWS, rng)
    machine = SVC(C=1.0, gamma=0.1)
    heldout = margins_for(machine, X, y, method="kfold", seed=0)
    machine.fit(X, y)
    fresh, truth = draw(NEW, rng)
    return heldout, (machine.decision_function(fresh), truth)


def shares(found: Margins, edges: np.ndarray) -> Margins:
    """Mean margin and share of the rarer class in each bin that is not empty."""
    place = np.searchsorted(edges, found[0])
    counts = np.bincount(place, minlength=len(edges) + 1)
    means, rare = (np.bincount(place, weights=values, minlength=len(counts)) for values in found)
    return means[counts > 0] / counts[counts > 0], rare[counts > 0] / counts[counts > 0]


def draw_panel(axes: Axes, title: str, posterior: Any, heldout: Margins, new: Margins) -> None:
    """One posterior, the shares that it was fitted to, and the shares among the new rows."""
    grid = np.linspace(*SHOWN, 800)
    axes.plot(*shares(new, np.linspace(*SHOWN, 60)), color="#b3b3b3", linewidth=2.6, solid_capstyle="round")
    style = {"markerfacecolor": "white", "markeredgecolor": "black", "markersize": 3.2, "markeredgewidth": 0.7}
    quantiles = np.quantile(heldout[0], np.arange(1, BINS) / BINS)
    axes.plot(*shares(heldout, quantiles), "o", zorder=3, **style)
    axes.plot(grid, 1.0 / (1.0 + np.exp(-posterior.log_odds(grid))), color=COLOURS[0], linewidth=1.4)
    log_odds = np.asarray(posterior.log_odds(new[0]))
    loss = -log_probability(np.where(new[1], log_odds, -log_odds)).mean()
    axes.set_title(title, loc="left", fontweight="bold")
    axes.text(0.98, 0.04, f"log loss {loss:.3f}", ha="right", transform=axes.transAxes)


def figure_of(heldout: Margins, new: Margins) -> Figure:
    """Margins of both classes, and a panel a posterior."""
    fitted = {kind: make_posterior(kind).fit(*heldout) for kind in POSTERIORS if kind != "platt"}
    panels: dict[str, Any] = {"fixed": FixedSigmoid(), **fitted}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 3.7), layout="constrained")
        grid = figure.subplots(2, 4, sharex=True)
        draw_margins(grid.flat[0], new)
        for axes, (kind, posterior) in zip(grid.flat[1:], panels.items(), strict=True):
            draw_panel(axes, SAME.get(kind, kind), posterior, heldout, new)
            axes.set_ylim(-0.03, 1.03)
        first = grid.flat[1]
        words = (("fitted", 0.05, 0.90, COLOURS[0]), ("held-out rows", 0.05, 0.79, "black"))
        for text, x, y, colour in (*words, ("new rows", 0.05, 0.68, GREY)):
            first.text(x, y, text, color=colour, transform=first.transAxes)
        for axes in grid.flat:
            axes.set_xlim(*SHOWN)
            axes.spines[["top", "right"]].set_visible(False)
        for axes in grid[1]:
            axes.set_xlabel("margin")
        grid[0, 1].set_ylabel("P(rarer class | margin)")
        grid[1, 0].set_ylabel("P(rarer class | margin)")
    return figure


def draw_margins(axes: Axes, new: Margins) -> None:
    """How the margins of new rows of both classes are spread."""
    edges = np.linspace(*SHOWN, 91)
    for rare, colour, words, height in (
        (False, COLOURS[1], "common class", 0.9),
        (True, COLOURS[0], "rarer class", 0.79),
    ):
        counts, _ = np.histogram(new[0][new[1] == rare], bins=edges)
        axes.stairs(counts / NEW / np.diff(edges), edges, fill=True, edgecolor=colour, facecolor=(colour, 0.25))
        axes.text(0.98, height, words, ha="right", color=colour, transform=axes.transAxes)
    axes.margins(y=0.35)
    axes.set_title("margins of new rows", loc="left", fontweight="bold")
    axes.set_ylabel("density")
    axes.set_yticks([])


def main() -> None:
    """Draw and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "posteriors.svg")
    options = parser.parse_args()
    save_figure(figure_of(*margins(np.random.default_rng(1))), options.out)


if __name__ == "__main__":
    main()
