"""Detection error trade-off (DET) curves, with confidence bands where given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri

from pipeline.evaluation.plots.style import (
    DASHES,
    EER_MARK,
    GREY,
    Scores,
    colour,
    column_figure,
    legend,
    percent,
    score_pairs,
)
from pipeline.metrics import DetBand, ErrorCurve, equal_error_rate_of, error_curve, rule_of_thirty
from pipeline.metrics.curves import FloatArray

_TICKS = (0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 60, 80, 90, 95, 98, 99, 99.9)  # percent
_UPPER_LIMITS = (0.2, 0.4, 0.6, 0.8, 0.95, 0.995)
_LOWEST_RATE = 5e-6
_RESOLUTION = 0.004  # normal deviates; about a thousandth of an axis
_LONG_CURVE = 100_000  # points above which a curve is thinned before it is drawn
_LONGEST_CHORD = 0.05  # normal deviates
_OTHER: dict[str, Any] = {"color": "#bbbbbb", "linewidth": 0.6, "zorder": 1}
_TICK_SPACING = {"x": 0.07, "y": 0.045}  # share of the axis that a tick label needs


def det_grid(nontargets: int) -> FloatArray:
    """Return the false accept rates at which to compute a band for ``plot_det``, shape (80,).

    They are evenly spaced on its axis, from half a trial of ``nontargets`` up to nearly all of them.
    """
    low, high = _half_trial(nontargets), _UPPER_LIMITS[-1]
    return np.asarray(ndtr(np.linspace(ndtri(min(low, high)), ndtri(high), 80)), dtype=np.float64)


def plot_det(
    curves: Mapping[str, Scores],
    *,
    title: str = "",
    bands: Mapping[str, DetBand] | None = None,
    featured: Sequence[str] | None = None,
) -> Figure:
    """Draw false rejects against false accepts, both on normal-deviate axes.

    ``curves`` is as for ``plot_error_rates``; normal scores of equal variance give straight lines. The axes cannot
    show rates of zero and one, which are drawn half a trial away; the axes reach down to there. Tied scores are joined
    by a line that is straight in the rates, so that it curves here, and each curve meets the dotted line FA = FR at
    its interpolated equal error rate, given in the legend and marked by a dot, unless that is below half a trial.
    ``bands`` holds intervals of the false rejects by system, drawn in the curve's colour. ``featured`` are the systems
    to colour and name, the first of them on top; others are thin and grey. Thin dotted lines stand where the shortest
    list has 30 errors: rates below or to the left of them are not well known.
    Martin et al., The DET curve in assessment of detection task performance, 1997. Raises MetricError when there is no
    system, or scores that define no error rate.
    """
    pairs = score_pairs(curves)
    named = list(pairs) if featured is None else [name for name in featured if name in pairs]
    drawn = {name: _drawn_curve(*pair) for name, pair in pairs.items()}
    labels = [f"{name} (EER {percent(drawn[name][0])})" for name in named]
    half_accepts = [_half_trial(nontarget.size) for _, nontarget in pairs.values()]
    half_rejects = [_half_trial(target.size) for target, _ in pairs.values()]
    upper = _upper_limit(max(rate for rate, _, _ in drawn.values()), max(half_accepts + half_rejects))
    columns = 1 if max(map(len, labels)) > 24 else 2
    keys = len(labels) + len(set(bands or ()) & set(named)) + (len(named) < len(pairs)) + 1
    with column_figure(3.33 + 0.125 * math.ceil(keys / columns), title) as (figure, axes):
        diagonal = ndtri([_LOWEST_RATE, upper])
        axes.plot(diagonal, diagonal, ":", color=GREY, linewidth=0.8)
        others: list[Artist] = [axes.plot(*drawn[name][1:], **_OTHER)[0] for name in pairs if name not in named]
        lines: list[Artist] = []
        for k, name in enumerate(named):
            rate, x, y = drawn[name]
            on_top = len(named) - k if featured else 0
            lines += axes.plot(x, y, color=colour(k), linestyle=DASHES[k % len(DASHES)], zorder=2 + on_top / 10)
            half = max(_half_trial(side.size) for side in pairs[name])
            if half <= rate <= upper:
                axes.plot(*[ndtri(rate)] * 2, **EER_MARK | {"markeredgecolor": colour(k)})
            if bands and name in bands:
                lines.append(_draw_band(axes, bands[name], _half_trial(pairs[name][0].size), colour(k)))
                labels.insert(len(lines) - 1, f"{100 * bands[name].level:g} % interval")
        shortest = [min(pair[side].size for pair in pairs.values()) for side in (0, 1)]
        thirty = _draw_thirty_errors(axes, targets=shortest[0], nontargets=shortest[1], upper=upper)
        _scale_axis(axes, "x", min(half_accepts), upper)
        _scale_axis(axes, "y", min(half_rejects), upper)
        axes.set_xlabel("false accepts (%)")
        axes.set_ylabel("false rejects (%)")
        axes.set_box_aspect(1)
        more = ["other systems"] * bool(others) + ["30 errors"] * bool(thirty)
        legend(figure, lines + others[:1] + thirty[:1], labels + more, columns=columns)
    return figure


def _drawn_curve(target: FloatArray, nontarget: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return the equal error rate and the result of ``_det_points``."""
    curve = error_curve(target, nontarget)
    return (equal_error_rate_of(curve).rate, *_det_points(*_thinned(curve), target.size, nontarget.size))


def _thinned(curve: ErrorCurve) -> tuple[FloatArray, FloatArray]:
    """Return both rates at all points of the curve; of a long one, only points that print can resolve."""
    accepts, rejects = curve.false_accept, curve.false_reject
    if accepts.size <= _LONG_CURVE:
        return accepts, rejects
    limit = float(ndtri(_LOWEST_RATE))
    grid = ndtr(np.arange(limit, -limit, _RESOLUTION / 2))
    passed = np.concatenate([accepts.size - np.searchsorted(accepts[::-1], grid), np.searchsorted(rejects, grid)])
    kept = np.unique(np.concatenate([[0, accepts.size - 1], passed - 1, passed]).clip(0, accepts.size - 1))
    return accepts[kept], rejects[kept]


def _det_points(
    accepts: FloatArray, rejects: FloatArray, targets: int, nontargets: int
) -> tuple[FloatArray, FloatArray]:
    """Return normal deviates of both rates along the curve, as densely as print can resolve."""

    def deviates(false_accept: FloatArray, false_reject: FloatArray) -> FloatArray:
        limits = _half_trial(nontargets), _half_trial(targets)
        rates = [np.clip(r, a, 1 - a) for r, a in zip((false_accept, false_reject), limits, strict=True)]
        return np.asarray(ndtri(rates), dtype=np.float64)

    # A chord that is straight in the rates is curved in their deviates: long chords are cut into pieces.
    lengths = np.abs(np.diff(deviates(accepts, rejects))).max(axis=0)
    pieces = np.maximum(np.ceil(lengths / _LONGEST_CHORD), 1).astype(np.intp)
    steps = np.arange(accepts.size, dtype=np.float64)
    along = np.append(0.0, np.cumsum(np.repeat(1.0 / pieces, pieces)))
    points = deviates(np.interp(along, steps, accepts), np.interp(along, steps, rejects))
    cells = np.round(points / _RESOLUTION)
    kept = np.append(True, np.any(cells[:, 1:] != cells[:, :-1], axis=0))
    return points[0, kept], points[1, kept]


def _draw_band(axes: Axes, band: DetBand, half_reject: float, shade: str) -> Artist:
    """Fill the interval of the false rejects and return its legend handle."""
    low, high = (ndtri(np.clip(side, half_reject, 1 - half_reject)) for side in (band.low, band.high))
    inside = (band.false_accept > 0) & (band.false_accept < 1)
    x = ndtri(band.false_accept[inside])
    return axes.fill_between(x, low[inside], high[inside], color=shade, alpha=0.2, linewidth=0)


def _draw_thirty_errors(axes: Axes, *, targets: int, nontargets: int, upper: float) -> list[Artist]:
    """Draw where the shortest list has 30 errors of a kind: rates below are not well known (rule of 30)."""
    return [
        draw(ndtri(rate), color=GREY, linewidth=0.5, linestyle=(0, (1, 3)), zorder=0, gid="thirty-errors")
        for draw, trials in ((axes.axvline, nontargets), (axes.axhline, targets))
        if (rate := rule_of_thirty(trials)) < upper
    ]


def _half_trial(trials: int) -> float:
    return max(0.5 / trials, _LOWEST_RATE)


def _upper_limit(rate: float, coarsest: float) -> float:
    """Return the upper limit of both axes: well above the worst equal error rate, and above half a trial."""
    needed = max(2.5 * rate, 1.5 * coarsest)
    return next((limit for limit in _UPPER_LIMITS if limit >= needed), _UPPER_LIMITS[-1])


def _scale_axis(axes: Axes, which: Literal["x", "y"], lowest: float, upper: float) -> None:
    low, high = float(ndtri(lowest)), float(ndtri(upper))
    low -= 0.03 * (high - low)
    labelled: list[float] = []
    bare: list[float] = []
    for tick in _TICKS:
        position = float(ndtri(tick / 100))
        if not low <= position <= high:
            continue
        crowded = labelled and (position - float(ndtri(labelled[-1] / 100))) < _TICK_SPACING[which] * (high - low)
        (bare if crowded else labelled).append(tick)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(ndtri(np.array(labelled) / 100), [f"{tick:g}" for tick in labelled])
    axis.set_ticks(ndtri(np.array(bare) / 100), minor=True)
    axes.grid(axis=which, color="#e6e6e6", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set(**{f"{which}lim": (low, high)})
