"""Figures of Nalbantov and Ivanov 2020 from the results, drawn when called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.implied2020_credit import Halves, Judged, Setting, WorkedExample, crossing
from benchmarks.papers.outcome import FigureBuilder
from pipeline.posteriors.implied import isotonic_on

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


def figures(
    example: WorkedExample,
    half: Halves,
    judged: Judged,
    chosen: Setting,
    maps: Mapping[str, Array],
    grid: tuple[Sequence[int], Sequence[int]],
) -> dict[str, FigureBuilder]:
    """Return functions that draw the paper's 14 figures, and ``maps`` over ``grid``, log2 C and log2 gamma."""
    return {
        "reweighting": _reweighting,
        "worked_example": partial(_worked_example, example),
        "posteriors": partial(_posteriors, judged),
        "calibration": partial(_calibration, judged, half),
        "isotonic_input": partial(_isotonic_input, judged, half),
        "roc": partial(_roc, judged, half),
        "sensitivity": partial(_sensitivity, maps, grid, chosen),
    }


def _reweighting() -> Figure:
    from benchmarks.papers.implied2020_plots import plot_reweighting

    example = crossing()
    return plot_reweighting(
        example.rows, example.positive, example.weights, example.lines, example.posteriors, example.at
    )


def _isotonic_input(judged: Judged, half: Halves) -> Figure:
    from benchmarks.papers.implied2020_plots import Scored, plot_isotonic_input

    scored = Scored("implied", judged.implied, isotonic_on(judged.implied, half.positive))
    return plot_isotonic_input(scored, half.positive)


def _worked_example(example: WorkedExample) -> Figure:
    from benchmarks.papers.implied2020_plots import Point, plot_hyperplanes

    at_origin, along_x, along_y = example.fitted.machine_margins(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    lines = np.stack([along_x - at_origin, along_y - at_origin, at_origin], axis=1)[::-1]
    points = [
        Point(name, at, answers, f"{1 + int(answers.sum())} / {len(answers) + 2}")
        for name, at, answers in zip("AB", example.points, example.answers, strict=True)
    ]
    return plot_hyperplanes(example.rows, example.positive, example.weights, lines, points)


def _posteriors(judged: Judged) -> Figure:
    from benchmarks.papers.implied2020_plots import plot_posteriors

    machines = judged.answers.shape[1]
    weights = 1.0 - np.arange(1, machines + 1) / (machines + 1)
    return plot_posteriors(judged.margins, judged.platt, judged.implied, weights, judged.answers[0])


def _calibration(judged: Judged, half: Halves) -> Figure:
    from benchmarks.papers.implied2020_plots import Scored, plot_calibration

    named = (("raw SVM", judged.raw), ("Platt", judged.platt), ("implied", judged.implied))
    return plot_calibration([Scored(name, p, isotonic_on(p, half.positive)) for name, p in named], half.positive)


def _roc(judged: Judged, half: Halves) -> Figure:
    from benchmarks.papers.implied2020_plots import plot_roc

    return plot_roc({"Platt": judged.platt, "implied": judged.implied}, half.positive)


def _sensitivity(maps: Mapping[str, Array], grid: tuple[Sequence[int], Sequence[int]], chosen: Setting) -> Figure:
    from benchmarks.papers.implied2020_plots import plot_sensitivity

    return plot_sensitivity(maps, *grid, (chosen.log2_c, chosen.log2_gamma))
