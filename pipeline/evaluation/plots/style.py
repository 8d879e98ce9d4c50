"""Shared parts of the figures: the style, scores to draw, legends, titles and files.

The colours are those of Okabe and Ito, distinct for colour-blind readers; lines that share axes differ in style too.
pyplot is not used: no window, no global list of figures, no lasting change of matplotlib's settings.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.errors import InputError, MetricError
from pipeline.evaluation import SystemScores
from pipeline.files import beside, obstacle
from pipeline.metrics.curves import FloatArray, both_scores

Scores = SystemScores | tuple[npt.ArrayLike, npt.ArrayLike]
"""The scores of a system, or a pair of target and nontarget score arrays."""

COLUMN_INCHES = 3.4
PAGE_INCHES = 7.0
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
)
GREY = "#666666"
EER_MARK: dict[str, Any] = {
    "marker": "o",
    "markersize": 4,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "linestyle": "none",
    "zorder": 3,
    "clip_on": False,
}
STYLE: Any = {
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
# Without the date, two renderings of one figure are the same bytes.
_METADATA: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save_figure(figure: Figure, path: Path, formats: Sequence[str] = ("png", "svg")) -> tuple[Path, ...]:
    """Write the figure at 300 dots per inch and return the paths written.

    A path with a known suffix (png, svg, pdf) is written in that format only; for any other, one file is written for
    each of ``formats``, the suffix appended. Raises InputError for an unknown format or a path that cannot be
    written.
    """
    unknown = sorted(set(formats) - set(_METADATA))
    if unknown:
        raise InputError(f"{path}: figure formats are {', '.join(_METADATA)}, got {', '.join(unknown)}")
    try:
        if path.suffix[1:] in _METADATA:
            files = {path.suffix[1:]: path}
        else:
            files = {kind: beside(path, f".{kind}") for kind in formats}
        with mpl.rc_context(STYLE):
            for kind, file in files.items():
                figure.savefig(file, format=kind, dpi=300, metadata=_METADATA[kind])
    except OSError as error:
        raise InputError(f"{path}: cannot write the figure: {obstacle(path, error)}") from error
    return tuple(files.values())


@contextmanager
def column_figure(height: float, title: str) -> Iterator[tuple[Figure, Axes]]:
    """Open a figure of one panel, one column wide; the title goes above the panel when the block ends."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN_INCHES, height + (0.2 if title else 0.0)), layout="constrained")
        yield figure, figure.subplots()
        suptitle(figure, title)


def score_pairs(curves: Mapping[str, Scores]) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return target and nontarget scores by system; raises MetricError for no system, or as ``as_scores`` does."""
    if not curves:
        raise MetricError("a figure needs the scores of at least one system, got none")
    return {name: score_pair(scores) for name, scores in curves.items()}


def score_pair(scores: Scores) -> tuple[FloatArray, FloatArray]:
    """Return target and nontarget scores of one system; raises MetricError as ``as_scores`` does."""
    return both_scores(*((scores.target, scores.nontarget) if isinstance(scores, SystemScores) else scores))


def percent(rate: float) -> str:
    """Format a share in percent, with two decimals below one percent."""
    return f"{100 * rate:.1f} %" if rate >= 0.01 or rate == 0.0 else f"{100 * rate:.2f} %"


def minus(text: str) -> str:
    """Replace hyphens by minus signs."""
    return text.replace("-", "\N{MINUS SIGN}")


def colour(k: int) -> str:
    """Return the colour of the k-th line; colours repeat after the last."""
    return COLOURS[k % len(COLOURS)]


def annotate(
    axes: Axes,
    text: str,
    xy: tuple[float, float],
    offset: tuple[float, float],
    *,
    at: Any = "axes fraction",
    **style: Any,
) -> None:
    """Write ``text`` at ``xy`` in the coordinates ``at``, shifted by ``offset`` points."""
    axes.annotate(text, xy=xy, xycoords=at, xytext=offset, textcoords="offset points", **style)


def legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], *, columns: int) -> None:
    """Put a legend below the axes, where no curve can cross it."""
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


def suptitle(figure: Figure, title: str) -> None:
    """Put a title above all panels, in as many lines as it needs; none for an empty text."""
    if title:
        figure.suptitle(wrapped(title, figure.get_figwidth()), parse_math=False)


def wrapped(text: str, inches: float) -> str:
    """Break ``text`` into lines that fit a panel of that width: about 14 characters per inch at this size."""
    return textwrap.fill(text, int(14 * inches))
