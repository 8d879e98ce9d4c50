"""Detection error trade-off (DET) curves, with an interval where one is given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri

from pipeline.evaluation import DetBand, ErrorCurve, equal_error_rate_of, error_curve
from pipeline.evaluation.curves import FloatArray
from pipeline.plots.style import (
    COLUMN_INCHES,
    DASHES,
    GREY,
    STYLE,
    Scores,
    colour,
    legend,
    percent,
    score_pairs,
    suptitle,
)

_DET_TICKS = (0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 60, 80, 90, 95, 98, 99, 99.9)  # percent
_DET_UPPER = (0.2, 0.4, 0.6, 0.8, 0.95, 0.995)
_DET_FLOOR = 5e-6
_DET_RESOLUTION = 0.004  # normal deviates; about a thousandth of an axis
_DET_LONG = 100_000  # points; a curve of more is thinned before anything is drawn
_DET_CHORD = 0.05  # normal deviates
_DET_SPACING = {"x": 0.07, "y": 0.045}  # share of the axis that a tick label needs


def det_grid(nontargets: int, points: int = 80) -> FloatArray:
    """False accept rates at which to compute a band for ``plot_det``: even steps of its axis, shape (points,).

    From half a trial of ``nontargets`` on up to nearly all of them.
    """
    low, high = _half_trial(nontargets), _DET_UPPER[-1]
    return np.asarray(ndtr(np.linspace(ndtri(min(low, high)), ndtri(high), points)), dtype=np.float64)


def plot_det(curves: Mapping[str, Scores], *, title: str = "", bands: Mapping[str, DetBand] | None = None) -> Figure:
    """Detection error trade-off: false rejects against false accepts, both on normal-deviate axes.

    ``curves`` is as for ``plot_error_rates``. Normal scores of equal spread give straight lines. A rate of
    zero or one has no place on such an axis and is drawn half a trial away; the axes reach down to there. A
    step of tied scores is joined in the rates, so that it curves here, and every curve meets the dotted line
    FA = FR at its interpolated equal error rate, which the legend gives, unless that is below half a trial.
    ``bands`` are intervals of the false rejects by the same names, drawn in the curve's colour.
    Martin et al., The DET curve in assessment of detection task performance, 1997. Raises MetricError when
    there is no system, or scores that define no error rate.
    """
    pairs = score_pairs(curves)
    found = [_curve_to_draw(target, nontarget) for target, nontarget in pairs.values()]
    rates = [rate for rate, _, _ in found]
    labels = [f"{name} (EER {percent(rate)})" for name, rate in zip(pairs, rates, strict=True)]
    half_accepts = [_half_trial(nontarget.size) for _, nontarget in pairs.values()]
    half_rejects = [_half_trial(target.size) for target, _ in pairs.values()]
    upper = _det_upper(max(rates), max(half_accepts + half_rejects))
    columns = 1 if max(map(len, labels)) > 24 else 2
    keys = len(labels) + len(set(bands or ()) & set(pairs))
    with mpl.rc_context(STYLE):
        height = 3.33 + 0.125 * math.ceil(keys / columns) + (0.2 if title else 0.0)
        figure = Figure(figsize=(COLUMN_INCHES, height), layout="constrained")
        axes = figure.subplots()
        diagonal = ndtri([_DET_FLOOR, upper])
        axes.plot(diagonal, diagonal, ":", color=GREY, linewidth=0.8)
        lines: list[Artist] = []
        for k, (name, (target, _)) in enumerate(pairs.items()):
            _, x, y = found[k]
            lines += axes.plot(x, y, color=colour(k), linestyle=DASHES[k % len(DASHES)])
            if bands and name in bands:
                lines.append(_draw_band(axes, bands[name], _half_trial(target.size), colour(k)))
                labels.insert(len(lines) - 1, f"{100 * bands[name].level:g} % interval")
        _scale_det(axes, "x", min(half_accepts), upper)
        _scale_det(axes, "y", min(half_rejects), upper)
        axes.set_xlabel("false accepts (%)")
        axes.set_ylabel("false rejects (%)")
        axes.set_box_aspect(1)
        legend(figure, lines, labels, columns=columns)
        suptitle(figure, title)
    return figure


def _curve_to_draw(target: FloatArray, nontarget: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """The equal error rate, and what ``_det_points`` gives."""
    curve = error_curve(target, nontarget)
    return (equal_error_rate_of(curve).rate, *_det_points(*_thinned(curve), target.size, nontarget.size))


def _thinned(curve: ErrorCurve) -> tuple[FloatArray, FloatArray]:
    """Both rates at all points of the curve, of a long one at those around each step that print can show."""
    accepts, rejects = curve.false_accept, curve.false_reject
    if accepts.size <= _DET_LONG:
        return accepts, rejects
    limit = float(ndtri(_DET_FLOOR))
    grid = ndtr(np.arange(limit, -limit, _DET_RESOLUTION / 2))
    passed = np.concatenate([accepts.size - np.searchsorted(accepts[::-1], grid), np.searchsorted(rejects, grid)])
    kept = np.unique(np.concatenate([[0, accepts.size - 1], passed - 1, passed]).clip(0, accepts.size - 1))
    return accepts[kept], rejects[kept]


def _det_points(
    accepts: FloatArray, rejects: FloatArray, targets: int, nontargets: int
) -> tuple[FloatArray, FloatArray]:
    """Normal deviates of both rates along the curve, with points as dense as print can show and no denser."""

    def deviates(false_accept: FloatArray, false_reject: FloatArray) -> FloatArray:
        limits = _half_trial(nontargets), _half_trial(targets)
        rates = [np.clip(r, a, 1 - a) for r, a in zip((false_accept, false_reject), limits, strict=True)]
        return np.asarray(ndtri(rates), dtype=np.float64)

    # A chord that is straight in the rates is not so in their deviates: cut the long ones up.
    lengths = np.abs(np.diff(deviates(accepts, rejects))).max(axis=0)
    pieces = np.maximum(np.ceil(lengths / _DET_CHORD), 1).astype(np.intp)
    steps = np.arange(accepts.size, dtype=np.float64)
    along = np.append(0.0, np.cumsum(np.repeat(1.0 / pieces, pieces)))
    points = deviates(np.interp(along, steps, accepts), np.interp(along, steps, rejects))
    cells = np.round(points / _DET_RESOLUTION)
    kept = np.append(True, np.any(cells[:, 1:] != cells[:, :-1], axis=0))
    return points[0, kept], points[1, kept]


def _draw_band(axes: Axes, band: DetBand, half_reject: float, shade: str) -> Artist:
    """Fill the interval of the false rejects and return what stands for it in the legend."""
    low, high = (ndtri(np.clip(side, half_reject, 1 - half_reject)) for side in (band.low, band.high))
    inside = (band.false_accept > 0) & (band.false_accept < 1)
    return axes.fill_between(
        ndtri(band.false_accept[inside]), low[inside], high[inside], color=shade, alpha=0.2, linewidth=0
    )


def _half_trial(trials: int) -> float:
    return max(0.5 / trials, _DET_FLOOR)


def _det_upper(rate: float, coarsest: float) -> float:
    """Upper limit of both axes: well beyond the worst equal error rate, and beyond one half trial."""
    needed = max(2.5 * rate, 1.5 * coarsest)
    return next((limit for limit in _DET_UPPER if limit >= needed), _DET_UPPER[-1])


def _scale_det(axes: Axes, which: Literal["x", "y"], lowest: float, upper: float) -> None:
    low, high = float(ndtri(lowest)), float(ndtri(upper))
    low -= 0.03 * (high - low)
    labelled: list[float] = []
    bare: list[float] = []
    for tick in _DET_TICKS:
        position = float(ndtri(tick / 100))
        if not low <= position <= high:
            continue
        crowded = labelled and (position - float(ndtri(labelled[-1] / 100))) < _DET_SPACING[which] * (high - low)
        (bare if crowded else labelled).append(tick)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(ndtri(np.array(labelled) / 100), [f"{tick:g}" for tick in labelled])
    axis.set_ticks(ndtri(np.array(bare) / 100), minor=True)
    axes.grid(axis=which, color="#e6e6e6", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set(**{f"{which}lim": (low, high)})
