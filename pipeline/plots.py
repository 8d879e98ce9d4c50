"""Figures of error rates, at the column widths of a printed paper.

Each function takes scores, draws, and returns a Figure; ``save_figure`` writes it. The same scores give the
same SVG, byte for byte: no date, no random ids, text kept as text. Colours are those of Okabe and Ito, which
stay apart for colour-blind readers, and lines that share axes differ by style as well. Nothing here goes
through pyplot: no window, no global list of figures, no lasting change of matplotlib's settings.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy.special import ndtri

from pipeline.errors import InputError, MetricError
from pipeline.evaluation import ErrorCurve, SystemScores, equal_error_rate, error_curve
from pipeline.evaluation.curves import as_scores

Scores = SystemScores | tuple[npt.ArrayLike, npt.ArrayLike]
_FloatArray = npt.NDArray[np.float64]

COLUMN_INCHES = 3.4
PAGE_INCHES = 7.0
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_GREY = "#666666"
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.titlesize": 8.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "voiceclaim",
}
# Dates, and nothing else, would make two renderings of one figure differ.
_METADATA: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_DRAWN_POINTS = 1200  # more than the pixels across a panel at print resolution
_DET_TICKS = (0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 60, 80, 90, 95, 98, 99, 99.9)  # percent
_DET_UPPER = (0.2, 0.4, 0.6, 0.8, 0.95, 0.995)
_DET_FLOOR = 5e-6
_DET_RESOLUTION = 0.004  # normal deviates; about a thousandth of an axis
_DET_CHORD = 0.05  # normal deviates
_DET_SPACING = {"x": 0.07, "y": 0.045}  # share of the axis that a tick label needs


def plot_error_rates(
    curves: Mapping[str, Scores], *, title: str = "", units: Mapping[str, str] | None = None
) -> Figure:
    """False accepts and false rejects in percent against the threshold, one panel a system.

    ``curves`` maps a system's name to its scores, or to a pair of target and nontarget score arrays. Systems
    score in different units, so each panel has its own threshold axis, called ``units[name]`` (else
    "threshold"), over the scores that matter: all but the outermost half percent of either class. The
    percent axis is shared. A dot marks where the curves cross; above each panel stand the equal error rate
    and its threshold. One system fills a column of a paper, several fill the page, four in a row.
    Raises MetricError when there is no system, or scores that define no error rate.
    """
    pairs = _score_pairs(curves)
    columns = min(len(pairs), 4)
    rows = math.ceil(len(pairs) / columns)
    width = COLUMN_INCHES if len(pairs) == 1 else PAGE_INCHES
    height = 2.5 if columns <= 2 else 2.2
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, rows * height + 0.25), layout="constrained")
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for k, (name, (target, nontarget)) in enumerate(pairs.items()):
            axes = grid.flat[k]
            _draw_error_rates(axes, target, nontarget, _colour(k))
            axes.set_title(_wrapped(name, width / columns), loc="left", fontweight="bold", pad=13, parse_math=False)
            unit = (units or {}).get(name, "threshold")
            axes.set_xlabel(_wrapped(unit, width / columns), parse_math=False)
        for axes in grid.flat[len(pairs) :]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel("error rate (%)")
        _legend(figure, _error_rate_keys(), ("false accepts", "false rejects", "equal error rate"), columns=3)
        _suptitle(figure, title)
    return figure


def plot_det(curves: Mapping[str, Scores], *, title: str = "") -> Figure:
    """Detection error trade-off: false rejects against false accepts, both on normal-deviate axes.

    ``curves`` is as for ``plot_error_rates``. Normal scores of equal spread give straight lines. A rate of
    zero or one has no place on such an axis and is drawn half a trial away; the axes reach down to there. A
    step of tied scores is joined in the rates, so that it curves here, and every curve meets the dotted line
    FA = FR at its interpolated equal error rate, which the legend gives, unless that is below half a trial.
    Martin et al., The DET curve in assessment of detection task performance, 1997. Raises MetricError when
    there is no system, or scores that define no error rate.
    """
    pairs = _score_pairs(curves)
    rates = [equal_error_rate(target, nontarget).rate for target, nontarget in pairs.values()]
    labels = [f"{name} (EER {_percent(rate)})" for name, rate in zip(pairs, rates, strict=True)]
    half_accepts = [_half_trial(nontarget.size) for _, nontarget in pairs.values()]
    half_rejects = [_half_trial(target.size) for target, _ in pairs.values()]
    upper = _det_upper(max(rates), max(half_accepts + half_rejects))
    columns = 1 if max(map(len, labels)) > 24 else 2
    with mpl.rc_context(_STYLE):
        height = 3.33 + 0.125 * math.ceil(len(labels) / columns) + (0.2 if title else 0.0)
        figure = Figure(figsize=(COLUMN_INCHES, height), layout="constrained")
        axes = figure.subplots()
        diagonal = ndtri([_DET_FLOOR, upper])
        axes.plot(diagonal, diagonal, ":", color=_GREY, linewidth=0.8)
        lines = []
        for k, (target, nontarget) in enumerate(pairs.values()):
            x, y = _det_points(error_curve(target, nontarget), target.size, nontarget.size)
            lines += axes.plot(x, y, color=_colour(k), linestyle=_DASHES[k % len(_DASHES)])
        _scale_det(axes, "x", min(half_accepts), upper)
        _scale_det(axes, "y", min(half_rejects), upper)
        axes.set_xlabel("false accepts (%)")
        axes.set_ylabel("false rejects (%)")
        axes.set_box_aspect(1)
        _legend(figure, lines, labels, columns=columns)
        _suptitle(figure, title)
    return figure


def save_figure(figure: Figure, path: Path, formats: Sequence[str] = ("png", "svg")) -> tuple[Path, ...]:
    """Write the figure at 300 dots an inch and return the paths written.

    A path that ends in a known suffix (png, svg, pdf) is written as it stands, in that format alone; any
    other gets one file for each of ``formats``, the suffix appended. Raises InputError for an unknown format
    or a place that cannot be written to.
    """
    unknown = sorted(set(formats) - set(_METADATA))
    if unknown:
        raise InputError(f"{path}: figure formats are {', '.join(_METADATA)}, got {', '.join(unknown)}")
    if path.suffix[1:] in _METADATA:
        files = {path.suffix[1:]: path}
    else:
        files = {kind: path.with_name(f"{path.name}.{kind}") for kind in formats}
    with mpl.rc_context(_STYLE):
        for kind, file in files.items():
            try:
                figure.savefig(file, format=kind, dpi=300, metadata=_METADATA[kind])
            except OSError as error:
                raise InputError(f"{file}: cannot write the figure: {error.strerror or error}") from error
    return tuple(files.values())


def _score_pairs(curves: Mapping[str, Scores]) -> dict[str, tuple[_FloatArray, _FloatArray]]:
    if not curves:
        raise MetricError("a figure needs the scores of at least one system, got none")
    return {name: _score_pair(scores) for name, scores in curves.items()}


def _score_pair(scores: Scores) -> tuple[_FloatArray, _FloatArray]:
    target, nontarget = (scores.target, scores.nontarget) if isinstance(scores, SystemScores) else scores
    return as_scores(target, "target"), as_scores(nontarget, "nontarget")


def _draw_error_rates(axes: Axes, target: _FloatArray, nontarget: _FloatArray, colour: str) -> None:
    crossing = equal_error_rate(target, nontarget)
    low, high = _range_that_matters(target, nontarget, crossing.threshold)
    thresholds, false_accept, false_reject = _in_view(error_curve(target, nontarget), low, high)
    axes.plot(thresholds, 100 * false_accept, "-", color=colour, drawstyle="steps-pre")
    axes.plot(thresholds, 100 * false_reject, color=colour, drawstyle="steps-pre", linestyle=_DASHES[1])
    axes.plot(crossing.threshold, 100 * crossing.rate, **_EER_MARK)
    axes.annotate(
        f"EER {_percent(crossing.rate)} at {crossing.threshold:.3g}".replace("-", "\N{MINUS SIGN}"),
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 4),
        textcoords="offset points",
    )
    axes.set_xlim(low, high)
    axes.set_ylim(-2, 102)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


_EER_MARK: dict[str, Any] = {
    "marker": "o",
    "markersize": 4,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "linestyle": "none",
    "zorder": 3,
    "clip_on": False,
}


def _error_rate_keys() -> list[Line2D]:
    return [
        Line2D([], [], color=_GREY, linestyle="-"),
        Line2D([], [], color=_GREY, linestyle=_DASHES[1]),
        Line2D([], [], **_EER_MARK),
    ]


def _range_that_matters(target: _FloatArray, nontarget: _FloatArray, threshold: float) -> tuple[float, float]:
    """Threshold limits without the outermost half percent of either class, but with the crossing."""
    edges = [threshold, *np.quantile(target, [0.005, 0.995]), *np.quantile(nontarget, [0.005, 0.995])]
    low, high = float(min(edges)), float(max(edges))
    margin = 0.04 * (high - low) or 0.1 * abs(low) or 0.5
    return low - margin, high + margin


def _in_view(curve: ErrorCurve, low: float, high: float) -> tuple[_FloatArray, _FloatArray, _FloatArray]:
    """Points of the curve between two thresholds, both ends included, no more of them than print can show."""
    inside = curve.thresholds[(curve.thresholds > low) & (curve.thresholds < high)]
    if inside.size > _DRAWN_POINTS:
        inside = np.linspace(low, high, _DRAWN_POINTS)[1:-1]
    thresholds = np.concatenate([[low], inside, [high]])
    k = np.searchsorted(curve.thresholds, thresholds, side="left")
    return thresholds, curve.false_accept[k], curve.false_reject[k]


def _det_points(curve: ErrorCurve, targets: int, nontargets: int) -> tuple[_FloatArray, _FloatArray]:
    """Normal deviates of both rates along the curve, with points as dense as print can show and no denser."""

    def deviates(false_accept: _FloatArray, false_reject: _FloatArray) -> _FloatArray:
        limits = _half_trial(nontargets), _half_trial(targets)
        rates = [np.clip(r, a, 1 - a) for r, a in zip((false_accept, false_reject), limits, strict=True)]
        return np.asarray(ndtri(rates), dtype=np.float64)

    # A chord that is straight in the rates is not so in their deviates: cut the long ones up.
    lengths = np.abs(np.diff(deviates(curve.false_accept, curve.false_reject))).max(axis=0)
    pieces = np.maximum(np.ceil(lengths / _DET_CHORD), 1).astype(np.intp)
    steps = np.arange(curve.thresholds.size, dtype=np.float64)
    along = np.append(0.0, np.cumsum(np.repeat(1.0 / pieces, pieces)))
    points = deviates(np.interp(along, steps, curve.false_accept), np.interp(along, steps, curve.false_reject))
    cells = np.round(points / _DET_RESOLUTION)
    kept = np.append(True, np.any(cells[:, 1:] != cells[:, :-1], axis=0))
    return points[0, kept], points[1, kept]


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


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %" if rate >= 0.01 or rate == 0.0 else f"{100 * rate:.2f} %"


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]


def _legend(figure: Figure, handles: Sequence[Line2D], labels: Sequence[str], *, columns: int) -> None:
    """Keys below the axes, where no curve can run through them."""
    legend = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=2.6,
        columnspacing=1.5,
        labelspacing=0.3,
        borderaxespad=0.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _suptitle(figure: Figure, title: str) -> None:
    if title:
        figure.suptitle(_wrapped(title, figure.get_figwidth()), parse_math=False)


def _wrapped(text: str, inches: float) -> str:
    """Text in lines that fit a panel of that width: about 14 characters an inch at this size."""
    return textwrap.fill(text, int(14 * inches))
