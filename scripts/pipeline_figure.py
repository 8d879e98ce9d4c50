#!/usr/bin/env python3
"""Draws docs/pipeline.svg: the way of the data at enrollment and at verification, a box a stage.

python scripts/pipeline_figure.py [--out docs/pipeline.svg]

Where a stage is in the code: docs/explanation.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from pipeline.plots.style import COLOURS, GREY, PAGE_INCHES, STYLE, save_figure

BLUE, ORANGE, GREEN = COLOURS[0], COLOURS[1], COLOURS[2]
HEIGHT = 5.2
HELD_OUT = "provisional machines score utterances set aside:\nonly scores are kept"


@dataclass(frozen=True)
class Box:
    """A stage: its middle and size in inches, its name, what it is in detail, and its lane's colour."""

    x: float
    y: float
    width: float
    name: str
    detail: str
    colour: str
    height: float = 0.62

    def draw(self, axes: Axes) -> None:
        """The box with its two texts."""
        corner = (self.x - self.width / 2, self.y - self.height / 2)
        axes.add_patch(
            FancyBboxPatch(
                corner,
                self.width,
                self.height,
                boxstyle="round,pad=0,rounding_size=0.06",
                edgecolor=self.colour,
                facecolor=(self.colour, 0.10),
                linewidth=1.0,
            )
        )
        top = self.y + self.height / 2
        axes.text(self.x, top - 0.11, self.name, ha="center", va="center", fontweight="bold", fontsize=7.5)
        axes.text(self.x, (top - 0.19 + corner[1]) / 2, self.detail, ha="center", va="center", fontsize=6.5)


BOXES = {
    "audio": Box(0.72, 4.62, 1.16, "audio", "file, pipe, stream\nany rate", GREEN),
    "frames": Box(2.12, 4.62, 1.16, "frames", "30 ms every 10 ms\n(T, L)", GREEN),
    "gate": Box(3.52, 4.62, 1.16, "speech gate", "causal: floor, peak\nand margin", GREEN),
    "features": Box(5.02, 4.62, 1.36, "features (T, 40)", "perceptual LPC\nand deltas", GREEN),
    "codebook": Box(0.90, 3.34, 1.46, "codebooks", "200 k-means centroids\na speaker: one pool", BLUE),
    "machines": Box(0.90, 2.34, 1.46, "frame machines", "pairs, one-class,\none-vs-rest (RBF)", BLUE),
    "mixture": Box(2.56, 3.34, 1.40, "mixture", "256 sounds of\nthe population", BLUE),
    "segments": Box(2.56, 2.34, 1.40, "segments, models", "least squares; means\nmoved to the speaker", BLUE),
    "heldout": Box(1.73, 1.30, 3.06, "held-out round", HELD_OUT, BLUE),
    "store": Box(1.73, 0.38, 3.06, "speaker store", "arrays and a manifest; no audio", BLUE, 0.50),
    "margins": Box(4.30, 3.34, 1.30, "margins", r"$f_{ij}$, $f_i$, one-class" + "\n(T, machines)", ORANGE),
    "statistics": Box(6.10, 3.34, 1.50, "statistics", "sums over frames,\na vector a stretch", ORANGE),
    "posteriors": Box(4.30, 2.34, 1.30, "posteriors", "sigmoids and\ncoupling, a frame", ORANGE),
    "segment": Box(6.10, 2.34, 1.50, "stretch scores", "segments, models: own,\nless the best rival", ORANGE),
    "scores": Box(4.30, 1.30, 1.30, "utterance score", "running mean;\nworst rival", ORANGE),
    "llr": Box(6.10, 1.30, 1.50, "fusion, calibration", "log-likelihood ratio\nof the claim", ORANGE),
    "decision": Box(5.20, 0.38, 3.10, "decision", "accepted, rejected, or not enough speech", ORANGE, 0.50),
}  # fmt: skip
# Side of the first box, side of the second: l, r, t, b.
ARROWS = (
    ("audio", "frames", "rl"), ("frames", "gate", "rl"), ("gate", "features", "rl"),
    ("codebook", "machines", "bt"), ("mixture", "segments", "bt"),
    ("machines", "heldout", "bt"), ("segments", "heldout", "bt"), ("heldout", "store", "bt"),
    ("margins", "posteriors", "bt"), ("posteriors", "scores", "bt"),
    ("statistics", "segment", "bt"), ("segment", "llr", "bt"), ("scores", "llr", "rl"),
    ("scores", "decision", "bt"), ("llr", "decision", "bt"),
)  # fmt: skip


def side(box: Box, where: str, other: Box) -> tuple[float, float]:
    """Where an arrow meets a box: the middle of a side, or above or below the narrower box's middle."""
    if where in "lr":
        return box.x + (box.width / 2 if where == "r" else -box.width / 2), box.y
    x = min((box, other), key=lambda b: b.width).x
    return x, box.y + (box.height / 2 if where == "t" else -box.height / 2)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], *, dashed: bool = False) -> None:
    """A straight arrow."""
    style = {"arrowstyle": "-|>", "mutation_scale": 7, "color": GREY, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(start, end, linestyle=(0, (3, 2)) if dashed else "-", **style))


def line(axes: Axes, *points: tuple[float, float]) -> None:
    """Straight strokes from point to point."""
    axes.plot(*zip(*points, strict=True), color=GREY, linewidth=0.9, solid_joinstyle="miter")


def lanes(axes: Axes) -> None:
    """The names of the lanes, and the ways from the features into them."""
    for x, y, text, colour in (
        (0.14, 5.04, "both: one front end, and a file is a stream with one chunk", GREEN),
        (0.17, 3.76, "enrollment", BLUE),
        (6.85, 3.76, "verification", ORANGE),
    ):
        axes.text(x, y, text, color=colour, fontweight="bold", fontsize=7.5, ha="right" if x > 6 else "left")
    bar, down = 4.02, BOXES["features"].x
    line(axes, (down, 4.31), (down, bar))
    line(axes, (BOXES["codebook"].x, bar), (BOXES["statistics"].x, bar))
    for name in ("codebook", "mixture", "margins", "statistics"):
        arrow(axes, (BOXES[name].x, bar), (BOXES[name].x, 3.65))


def figure() -> Figure:
    """All of it."""
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(PAGE_INCHES, HEIGHT))
        axes = drawn.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, PAGE_INCHES), ylim=(0, HEIGHT))
        axes.set_axis_off()
        lanes(axes)
        for first, second, sides in ARROWS:
            a, b = BOXES[first], BOXES[second]
            arrow(axes, side(a, sides[0], b), side(b, sides[1], a))
        # What verification takes from the store: machines, threshold, calibration.
        arrow(axes, (3.26, 0.38), (3.65, 0.38), dashed=True)
        line(axes, (3.45, 0.38), (3.45, 3.34))
        arrow(axes, (3.45, 3.34), (3.65, 3.34), dashed=True)
        axes.text(3.41, 1.86, "machines, threshold, calibration", rotation=90, ha="right", va="center", fontsize=6.5)
        for box in BOXES.values():
            box.draw(axes)
    return drawn


def main() -> None:
    """Draw and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "pipeline.svg")
    save_figure(figure(), parser.parse_args().out)


if __name__ == "__main__":
    main()
