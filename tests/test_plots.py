"""Figures: files, sizes and determinism, and that the lines drawn are the rates computed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread
from scipy.stats import norm

import pipeline.plots
from pipeline.errors import InputError, MetricError
from pipeline.evaluation import ScoreRow, det_band, equal_error_rate, rates_at, read_scores, write_scores
from pipeline.plots import det_grid, plot_det, plot_error_rates, save_figure

SVG = "{http://www.w3.org/2000/svg}"


def gaussians(distance: float, targets: int = 60, nontargets: int = 600):
    generator = np.random.default_rng(int(10 * distance))
    return generator.normal(distance, 1, targets), generator.normal(0, 1, nontargets)


THREE = {"BOAO": gaussians(2.0), "POAO": gaussians(2.5), "RPOAO": gaussians(3.0)}
DEGENERATE = {
    "one of each": ([1.0], [0.0]),
    "inverted": ([0.0], [1.0]),
    "all tied": ([2.0] * 5, [2.0] * 9),
    "tied at zero": ([0.0], [0.0, 0.0]),
    "tied and tiny": ([1e-9], [1e-9]),
    "separated": (np.arange(50) + 100.0, np.arange(80.0)),
    "inverted lists": (np.arange(80.0), np.arange(50) + 100.0),
    "$\\undefined$ _^{": ([1, 3], [0, 2]),
    "_hidden": ([1, 3], [0, 2]),
}


def texts(path) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.parse(path).iter(f"{SVG}text")]  # noqa: S314


def touches_the_border(png) -> bool:
    dark = imread(png)[..., :3].min(axis=2) < 0.5
    return bool(dark[:3].any() or dark[-3:].any() or dark[:, :3].any() or dark[:, -3:].any())


@pytest.mark.parametrize(("draw", "inches"), [(plot_error_rates, 7.0), (plot_det, 3.4)])
def test_files_have_the_size_of_the_figure_and_something_on_them(tmp_path, draw, inches):
    figure = draw(THREE, title="three systems")
    png, svg = save_figure(figure, tmp_path / "run.v1")
    assert (png.name, svg.name) == ("run.v1.png", "run.v1.svg")
    image = imread(png)
    assert image.shape[1] == round(inches * 300)
    assert image.shape[0] == int(figure.get_figheight() * 300)
    dark = image[..., :3].min(axis=2) < 0.5
    assert 0.003 < dark.mean() < 0.3
    assert not touches_the_border(png)


@pytest.mark.parametrize("draw", [plot_error_rates, plot_det])
def test_same_scores_same_svg(tmp_path, draw):
    first, second = (save_figure(draw(THREE, title="t"), tmp_path / name)[1] for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    (other,) = save_figure(draw(THREE | {"BOAO": gaussians(1.0)}, title="t"), tmp_path / "c", formats=("svg",))
    assert other.read_bytes() != first.read_bytes()


def test_error_rate_figure_says_what_it_shows(tmp_path):
    figure = plot_error_rates(THREE, title="the list", units={"BOAO": "share of frames"})
    (svg,) = save_figure(figure, tmp_path / "rates.svg")
    shown = texts(svg)
    for words in ("the list", *THREE, "share of frames", "false accepts", "false rejects", "error rate (%)"):
        assert words in shown
    assert shown.count("threshold") == 2
    for target, nontarget in THREE.values():
        found = equal_error_rate(target, nontarget)
        assert f"EER {100 * found.rate:.1f} % at {found.threshold:.3g}" in shown


def test_det_figure_says_what_it_shows(tmp_path):
    (svg,) = save_figure(plot_det(THREE, title="the list"), tmp_path / "det.svg")
    shown = texts(svg)
    for name, scores in THREE.items():
        assert f"{name} (EER {100 * equal_error_rate(*scores).rate:.1f} %)" in shown
    assert {"the list", "false accepts (%)", "false rejects (%)", "1", "2", "5", "10", "20"} <= set(shown)


def test_error_rate_lines_are_the_rates():
    target, nontarget = THREE["BOAO"]
    axes = plot_error_rates({"BOAO": (target, nontarget)}).axes[0]
    accepts, rejects, mark = axes.lines
    for line, side in ((accepts, "false_accept"), (rejects, "false_reject")):
        assert line.get_drawstyle() == "steps-pre"
        expected = [getattr(rates_at(target, nontarget, t), side) for t in line.get_xdata()]
        assert line.get_ydata() == pytest.approx(100 * np.array(expected))
    found = equal_error_rate(target, nontarget)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == pytest.approx((found.threshold, 100 * found.rate))
    low, high = axes.get_xlim()
    assert np.mean((nontarget >= low) & (nontarget <= high)) >= 0.98
    assert low < found.threshold < high


def test_long_lists_are_thinned_without_moving_the_lines(tmp_path):
    target, nontarget = gaussians(3.0, 5_000, 50_000)
    accepts = plot_error_rates({"A": (target, nontarget)}).axes[0].lines[0]
    assert accepts.get_xdata().size <= 2000
    expected = [100 * rates_at(target, nontarget, t).false_accept for t in accepts.get_xdata()]
    assert accepts.get_ydata() == pytest.approx(expected)
    curve = plot_det({"A": (target, nontarget)}).axes[0].lines[1]
    assert curve.get_xdata().size <= 5000
    (svg,) = save_figure(plot_det({"A": (target, nontarget)}), tmp_path / "long.svg")
    assert svg.stat().st_size < 300_000


def test_det_points_and_ticks_are_normal_deviates():
    target, nontarget = THREE["POAO"]
    axes = plot_det({"POAO": (target, nontarget)}).axes[0]
    drawn = axes.lines[1].get_xydata()
    half_accept, half_reject = 0.5 / nontarget.size, 0.5 / target.size
    for threshold in (*target, *nontarget):
        rates = rates_at(target, nontarget, threshold)
        x = norm.ppf(np.clip(rates.false_accept, half_accept, 1 - half_accept))
        y = norm.ppf(np.clip(rates.false_reject, half_reject, 1 - half_reject))
        # Points closer than print resolves are left out.
        assert np.abs(drawn - (x, y)).max(axis=1).min() <= 0.004
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


def test_det_lines_differ_in_colour_and_in_style(tmp_path):
    figure = plot_det({f"system {k}": gaussians(1 + 0.3 * k) for k in range(7)})
    assert len({line.get_color() for line in figure.axes[0].lines[1:]}) == 7
    (svg,) = save_figure(figure, tmp_path / "det.svg")
    # Four dashed styles, a solid one that names none, and the dotted diagonal.
    assert len(set(re.findall(r"stroke-dasharray: ([^;\"]+)", svg.read_text()))) == 5


@pytest.mark.parametrize("draw", [plot_error_rates, plot_det])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_scores_are_drawn_in_silence(tmp_path, draw, name):
    png, svg = save_figure(draw({name: DEGENERATE[name]}, title="$x"), tmp_path / "figure")
    assert imread(png).min() < 0.5
    shown = " ".join(texts(svg))
    assert name in shown
    assert f"{100 * equal_error_rate(*DEGENERATE[name]).rate:.1f} %" in shown


@pytest.mark.parametrize("draw", [plot_error_rates, plot_det])
def test_many_systems_and_long_names_stay_inside_the_page(tmp_path, draw):
    long = "system number {} with quite a long name"
    systems = {long.format(k): scores for k, scores in enumerate(DEGENERATE.values())}
    keywords = {"units": dict.fromkeys(systems, "a unit " * 6)} if draw is plot_error_rates else {}
    (png,) = save_figure(draw(systems, title="a title " * 20, **keywords), tmp_path / "many.png")
    assert not touches_the_border(png)


def test_scores_read_from_a_file_can_be_drawn(tmp_path):
    path = tmp_path / "scores.tsv"
    write_scores(path, [ScoreRow("A", "s", "p", float(k % 5), k % 2 == 0) for k in range(20)])
    systems = read_scores(path)
    pair = {"A": (systems["A"].target, systems["A"].nontarget)}
    first, second = plot_det(systems).axes[0].lines[1], plot_det(pair).axes[0].lines[1]
    assert np.array_equal(first.get_xydata(), second.get_xydata())


def test_a_known_suffix_names_the_format(tmp_path):
    figure = plot_det({"A": ([1.0, 2.0], [0.0, 1.5])})
    assert save_figure(figure, tmp_path / "a.pdf") == (tmp_path / "a.pdf",)
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pdf"]


def test_what_cannot_be_drawn_or_written_is_refused(tmp_path):
    for draw in (plot_error_rates, plot_det):
        with pytest.raises(MetricError, match="at least one system"):
            draw({})
        with pytest.raises(MetricError, match="no nontarget scores"):
            draw({"A": ([1.0], [])})
    figure = plot_det({"A": ([1.0], [0.0])})
    with pytest.raises(InputError, match="got bmp"):
        save_figure(figure, tmp_path / "a", formats=("png", "bmp"))
    with pytest.raises(InputError, match="cannot write the figure"):
        save_figure(figure, tmp_path / "none" / "a.png")
    assert not list(tmp_path.iterdir())


def test_settings_are_left_alone(tmp_path):
    before = dict(mpl.rcParams)
    save_figure(plot_error_rates(THREE), tmp_path / "a")
    assert dict(mpl.rcParams) == before


def test_pyplot_stays_out():
    code = (
        "import sys; from pipeline.plots import plot_det; plot_det({'A': ([1.0], [0.0])});"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    root = Path(pipeline.plots.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


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


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_band_of_degenerate_scores_is_drawn_in_silence(tmp_path, name):
    target, nontarget = DEGENERATE[name]
    band = det_band(target, nontarget, det_grid(len(nontarget)), seed=0, samples=20)
    assert save_figure(plot_det({name: (target, nontarget)}, bands={name: band}), tmp_path / "det")[0].is_file()


@pytest.mark.parametrize("nontargets", [1, 10, 1000, 10**7])
def test_the_grid_of_a_band_covers_the_axis(nontargets):
    grid = det_grid(nontargets)
    assert (np.diff(grid) > 0).all()
    assert max(0.5 / nontargets, 5e-6) == pytest.approx(grid[0])
    assert 0.99 < grid[-1] < 1
