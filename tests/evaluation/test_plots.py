"""Figures: files, sizes and determinism, and that the values drawn are the values computed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import trial_scores
from matplotlib.image import imread
from scipy.stats import norm

from pipeline.errors import InputError, MetricError
from pipeline.evaluation.plots import (
    det_grid,
    plot_bayes_error,
    plot_det,
    plot_error_rates,
    plot_histogram,
    plot_reliability,
    save_figure,
)
from pipeline.metrics import (
    OPERATING_POINTS,
    actual_cost,
    det_band,
    detection_cost,
    equal_error_rate,
    rates_at,
    reliability,
    score_histogram,
)

SVG = "{http://www.w3.org/2000/svg}"


def gaussians(distance: float, targets: int = 60, nontargets: int = 600):
    return trial_scores.gaussians(distance, targets, nontargets, seed=int(10 * distance))


THREE = {"BOAO": gaussians(2.0), "POAO": gaussians(2.5), "RPOAO": gaussians(3.0)}
LLRS = trial_scores.true_llrs(2.0, 200, 2000, seed=20)
DRAWINGS = {
    "error rates": lambda pair, title="": plot_error_rates({"A": pair, "B": gaussians(2.0)}, title=title),
    "det": lambda pair, title="": plot_det({"A": pair}, title=title),
    "histogram": lambda pair, title="": plot_histogram(pair, threshold=1.5, title=title),
    "reliability": lambda pair, title="": plot_reliability(*pair, title=title),
    "bayes": lambda pair, title="": plot_bayes_error(*pair, title=title),
}
DEGENERATE = {
    "one of each": ([1.0], [0.0]),
    "inverted": ([0.0], [1.0]),
    "all tied": ([2.0] * 5, [2.0] * 9),
    "tied at zero": ([0.0], [0.0, 0.0]),
    "tied and tiny": ([1e-9], [1e-9]),
    "separated": (np.arange(50) + 100.0, -np.arange(80.0)),
    "inverted lists": (-np.arange(80.0), np.arange(50) + 100.0),
    "certain and wrong": ([-1e4] * 3, [1e4] * 3),
    "$\\undefined$ _^{": ([1, 3], [0, 2]),
    "_hidden": ([1, 3], [0, 2]),
}


def texts(path) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.parse(path).iter(f"{SVG}text")]  # noqa: S314


def texts_of(figure, tmp_path) -> list[str]:
    return texts(save_figure(figure, tmp_path / "texts.svg")[0])


def touches_the_border(png) -> bool:
    dark = imread(png)[..., :3].min(axis=2) < 0.5
    return bool(dark[:3].any() or dark[-3:].any() or dark[:, :3].any() or dark[:, -3:].any())


# All figures


@pytest.mark.parametrize("name", DRAWINGS)
def test_files_have_the_size_of_the_figure_nothing_is_cut_off_and_the_same_scores_give_the_same_svg(tmp_path, name):
    figure = DRAWINGS[name](LLRS, title="a system")
    png, svg = save_figure(figure, tmp_path / "run.v1")
    assert (png.name, svg.name) == ("run.v1.png", "run.v1.svg")
    again = save_figure(DRAWINGS[name](LLRS, title="a system"), tmp_path / "again")[1]
    assert again.read_bytes() == svg.read_bytes()
    image = imread(png)
    assert image.shape[1] == round((7.0 if name == "error rates" else 3.4) * 300)
    assert image.shape[0] == int(figure.get_figheight() * 300)
    assert 0.003 < (image[..., :3].min(axis=2) < 0.5).mean() < 0.3
    assert not touches_the_border(png)


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_scores_and_any_name_are_drawn_without_warnings(tmp_path, case):
    target, nontarget = scores = DEGENERATE[case]
    for name in ("histogram", "reliability", "bayes"):
        assert "$x_^{" in texts_of(DRAWINGS[name](scores, title="$x_^{"), tmp_path)
    band = det_band(target, nontarget, det_grid(len(nontarget)), seed=0, samples=20)
    for figure in (plot_error_rates({case: scores}), plot_det({case: scores}, bands={case: band})):
        shown = " ".join(texts_of(figure, tmp_path))
        assert case in shown
        assert f"{100 * equal_error_rate(*scores).rate:.1f} %" in shown


@pytest.mark.parametrize("draw", [plot_error_rates, plot_det])
def test_many_systems_and_long_names_stay_inside_the_page(tmp_path, draw):
    systems = {f"system number {k} with quite a long name": pair for k, pair in enumerate(DEGENERATE.values())}
    keywords = {"units": dict.fromkeys(systems, "a unit " * 6)} if draw is plot_error_rates else {}
    (png,) = save_figure(draw(systems, title="a title " * 20, **keywords), tmp_path / "many.png")
    assert not touches_the_border(png)


def test_a_known_suffix_names_the_format_and_errors_are_typed(tmp_path):
    figure = plot_det({"A": ([1.0, 2.0], [0.0, 1.5])})
    assert save_figure(figure, tmp_path / "a.pdf") == (tmp_path / "a.pdf",)
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    for draw in (plot_error_rates, plot_det):
        with pytest.raises(MetricError, match="at least one system"):
            draw({})
    for draw in DRAWINGS.values():
        with pytest.raises(MetricError, match="no nontarget scores"):
            draw(([1.0], []))
    with pytest.raises(InputError, match="got bmp"):
        save_figure(figure, tmp_path / "a", formats=("png", "bmp"))
    with pytest.raises(InputError, match="cannot write the figure"):
        save_figure(figure, tmp_path / "none" / "a.png")
    with pytest.raises(InputError, match="a file was expected, got a folder"):
        save_figure(figure, Path())
    assert [path.name for path in tmp_path.iterdir()] == ["a.pdf"]


def test_settings_of_matplotlib_are_left_alone_and_pyplot_is_not_loaded(tmp_path):
    before = dict(mpl.rcParams)
    save_figure(plot_error_rates(THREE), tmp_path / "a")
    assert dict(mpl.rcParams) == before
    code = (
        "import sys; from pipeline.evaluation.plots import plot_det; plot_det({'A': ([1.0], [0.0])});"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Error rates against the threshold


def test_error_rate_figure_names_systems_axes_and_equal_error_rates(tmp_path):
    shown = texts_of(plot_error_rates(THREE, title="the list", units={"BOAO": "share of frames"}), tmp_path)
    rates = [equal_error_rate(*pair) for pair in THREE.values()]
    words = {"the list", *THREE, "share of frames", "false accepts", "false rejects", "error rate (%)"}
    assert words | {f"EER {100 * eer.rate:.1f} % at {eer.threshold:.3g}" for eer in rates} <= set(shown)
    assert shown.count("threshold") == 2


@pytest.mark.parametrize("size", [1, 80])
def test_error_rate_lines_are_the_rates_and_those_of_long_lists_are_thinned(size):
    target, nontarget = gaussians(2.0, 60 * size, 600 * size)
    axes = plot_error_rates({"BOAO": (target, nontarget)}).axes[0]
    accepts, rejects, mark = axes.lines
    for line, side in ((accepts, "false_accept"), (rejects, "false_reject")):
        assert line.get_drawstyle() == "steps-pre"
        assert line.get_xdata().size <= 2000
        expected = [getattr(rates_at(target, nontarget, t), side) for t in line.get_xdata()]
        assert line.get_ydata() == pytest.approx(100 * np.array(expected))
    eer = equal_error_rate(target, nontarget)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == pytest.approx((eer.threshold, 100 * eer.rate))
    low, high = axes.get_xlim()
    assert np.mean((nontarget >= low) & (nontarget <= high)) >= 0.98
    assert low < eer.threshold < high


# DET


def test_det_figure_names_systems_and_axes(tmp_path):
    shown = texts_of(plot_det(THREE, title="the list"), tmp_path)
    for name, scores in THREE.items():
        assert f"{name} (EER {100 * equal_error_rate(*scores).rate:.1f} %)" in shown
    assert {"the list", "false accepts (%)", "false rejects (%)", "1", "2", "5", "10", "20"} <= set(shown)


@pytest.mark.parametrize(("size", "decimals", "room"), [(1, 9, 0.004), (200, 9, 0.06), (200, 2, 0.06)])
def test_det_points_and_ticks_are_normal_deviates(size, decimals, room):
    """A curve of over 100,000 points is drawn with those alone that print can resolve."""
    target, nontarget = (scores.round(decimals) for scores in gaussians(2.5, 60 * size, 600 * size))
    axes = plot_det({"POAO": (target, nontarget)}).axes[0]
    drawn = axes.lines[1].get_xydata()
    assert len(drawn) <= 5000
    half_accept, half_reject = 0.5 / nontarget.size, 0.5 / target.size
    for threshold in (*target[::size], *nontarget[::size]):
        rates = rates_at(target, nontarget, threshold)
        x = norm.ppf(np.clip(rates.false_accept, half_accept, 1 - half_accept))
        y = norm.ppf(np.clip(rates.false_reject, half_reject, 1 - half_reject))
        # Points closer than print resolves are left out.
        assert np.abs(drawn - (x, y)).max(axis=1).min() <= room
    for axis in (axes.xaxis, axes.yaxis):
        labels = [float(label.get_text()) for label in axis.get_ticklabels()]
        assert len(labels) >= 4
        assert axis.get_ticklocs() == pytest.approx(norm.ppf(np.array(labels) / 100))


@pytest.mark.parametrize("distance", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("decimals", [0, 8])
def test_det_curve_meets_the_diagonal_at_the_equal_error_rate(distance, decimals):
    target, nontarget = (np.round(scores, decimals) for scores in gaussians(distance))
    rate = equal_error_rate(target, nontarget).rate
    axes = plot_det({"A": (target, nontarget)}).axes[0]
    x, y = axes.lines[1].get_data()
    order = np.argsort(y - x)
    assert np.interp(0.0, (y - x)[order], x[order]) == pytest.approx(norm.ppf(rate), abs=0.02)
    diagonal_x, diagonal_y = axes.lines[0].get_data()
    assert np.array_equal(diagonal_x, diagonal_y)
    low, high = axes.get_xlim()
    assert low < norm.ppf(0.5 / nontarget.size)
    assert high > norm.ppf(rate)
    assert axes.get_box_aspect() == 1


def test_a_det_band_is_drawn_around_its_curve(tmp_path):
    target, nontarget = gaussians(1.5)
    band = det_band(target, nontarget, det_grid(nontarget.size), seed=0)
    figure = plot_det({"A": (target, nontarget), "B": gaussians(2.0)}, bands={"A": band, "absent": band})
    (filled,) = figure.axes[0].collections
    outline = filled.get_paths()[0].vertices
    half = 0.5 / target.size
    for k in range(0, band.false_accept.size, 10):
        at = np.isclose(outline[:, 0], norm.ppf(band.false_accept[k]))
        ends = np.clip([band.low[k], band.high[k]], half, 1 - half)
        assert (outline[at, 1].min(), outline[at, 1].max()) == pytest.approx(norm.ppf(ends))
    assert np.array_equal(filled.get_facecolor()[0, :3], mpl.colors.to_rgb(figure.axes[0].lines[1].get_color()))
    png, svg = save_figure(figure, tmp_path / "det")
    names = [words for words in texts(svg) if "EER" in words or "interval" in words]
    assert [words[:8] for words in names] == ["A (EER 2", "95 % int", "B (EER 1"]
    assert not touches_the_border(png)


# Histogram


def test_histogram_bars_are_the_shares_and_the_line_is_the_threshold(tmp_path):
    target, nontarget = LLRS
    figure = plot_histogram((target, nontarget), threshold=1.25, unit="nats")
    axes = figure.axes[0]
    edges, of_target, of_nontarget = score_histogram(target, nontarget, limits=axes.get_xlim())
    for drawn, shares in zip(axes.patches, (of_nontarget, of_target), strict=True):
        assert drawn.get_data().values == pytest.approx(100 * shares)
        assert drawn.get_data().edges == pytest.approx(edges)
        assert drawn.get_data().values.sum() == pytest.approx(100)
    assert axes.lines[0].get_xdata().tolist() == [1.25, 1.25]
    words = {"target trials (200)", "nontarget trials (2000)", "threshold 1.25", "nats", "share of the class (%)"}
    assert words <= set(texts_of(figure, tmp_path))


def test_a_threshold_beyond_all_scores_is_in_view_and_none_draws_no_line(tmp_path):
    for threshold in (-60.0, 60.0):
        figure = plot_histogram(LLRS, threshold=threshold)
        low, high = figure.axes[0].get_xlim()
        assert low < threshold < high
        assert not touches_the_border(save_figure(figure, tmp_path / "far.png")[0])
    assert not plot_histogram(LLRS).axes[0].lines


# Calibration


def test_reliability_dots_bars_and_numbers_are_those_computed(tmp_path):
    expected = reliability(*LLRS)
    figure = plot_reliability(*LLRS)
    (container,) = figure.axes[0].containers
    dots = container.lines[0]
    assert dots.get_xdata() == pytest.approx(100 * expected.predicted)
    assert dots.get_ydata() == pytest.approx(100 * expected.observed)
    bars = [segment[:, 1] for segment in container.lines[2][0].get_segments()]
    assert np.array(bars) == pytest.approx(100 * np.column_stack([expected.low, expected.high]))
    axes = {"predicted probability of a target trial (%)", "observed share of target trials (%)"}
    assert axes | set(map(str, expected.trials)) <= set(texts_of(figure, tmp_path))


def test_bayes_error_lines_are_the_costs(tmp_path):
    target, nontarget = 2 * LLRS[0], 2 * LLRS[1]
    figure = plot_bayes_error(target, nontarget)
    axes = figure.axes[0]
    actual, minimum = axes.lines[-2:]
    for k in range(0, len(actual.get_xdata()), 20):
        prior = 1 / (1 + np.exp(-actual.get_xdata()[k]))
        assert actual.get_ydata()[k] == pytest.approx(actual_cost(target, nontarget, prior))
        assert minimum.get_ydata()[k] == pytest.approx(detection_cost(target, nontarget, prior=prior).cost)
    marks = [line.get_xdata()[0] for line in axes.lines[1:-2]]
    assert marks == [point.log_odds for point in OPERATING_POINTS.values()]
    words = {"actual", "minimum", *OPERATING_POINTS, "normalised detection cost"}
    assert words | {"prior log odds of a target trial (nats)"} <= set(texts_of(figure, tmp_path))
    # The lines differ by more than their colour.
    assert actual.get_linestyle() != minimum.get_linestyle()
    assert actual.get_color() != minimum.get_color()


@pytest.mark.parametrize(("targets", "nontargets", "lines"), [(3000, 9000, 2), (20, 9000, 1), (20, 20, 0)])
def test_det_curves_show_from_which_rates_on_a_list_has_thirty_errors(targets, nontargets, lines):
    rng = np.random.default_rng(0)
    figure = plot_det({"A": (rng.normal(1, 1, targets), rng.normal(0, 1, nontargets))})
    marks = [line for line in figure.axes[0].lines if line.get_gid() == "thirty-errors"]
    assert len(marks) == lines
    for line, trials, data in zip(marks, (nontargets, targets), ("xdata", "ydata"), strict=False):
        assert norm.cdf(getattr(line, f"get_{data}")()[0]) == pytest.approx(30 / trials)
