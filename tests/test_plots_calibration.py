"""Histograms and calibration figures: that what is drawn is what was computed, whatever the scores."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from pipeline.errors import MetricError
from pipeline.evaluation import (
    OPERATING_POINTS,
    ScoreRow,
    SystemScores,
    actual_cost,
    detection_cost,
    reliability,
    score_histogram,
)
from pipeline.plots import plot_bayes_error, plot_histogram, plot_reliability, save_figure

SVG = "{http://www.w3.org/2000/svg}"


def true_llrs(distance: float, targets: int = 200, nontargets: int = 2000):
    generator = np.random.default_rng(int(10 * distance))
    scores = generator.normal(distance, 1, targets), generator.normal(0, 1, nontargets)
    return tuple(distance * side - distance**2 / 2 for side in scores)


LLRS = true_llrs(2.0)
DRAWINGS = {
    "histogram": lambda t, n, **words: plot_histogram((t, n), threshold=1.5, **words),
    "reliability": plot_reliability,
    "bayes": plot_bayes_error,
}
DEGENERATE = {
    "one of each": ([1.0], [0.0]),
    "inverted": ([0.0], [1.0]),
    "all tied": ([2.0] * 5, [2.0] * 9),
    "tied at zero": ([0.0], [0.0, 0.0]),
    "separated": (np.arange(50) + 100.0, -np.arange(80.0)),
    "inverted lists": (-np.arange(80.0), np.arange(50) + 100.0),
    "sure and wrong": ([-1e4] * 3, [1e4] * 3),
}


def texts(path) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.parse(path).iter(f"{SVG}text")]  # noqa: S314


def touches_the_border(png) -> bool:
    dark = imread(png)[..., :3].min(axis=2) < 0.5
    return bool(dark[:3].any() or dark[-3:].any() or dark[:, :3].any() or dark[:, -3:].any())


@pytest.mark.parametrize("name", DRAWINGS)
def test_files_fill_a_column_and_nothing_is_cut_off(tmp_path, name):
    png, _ = save_figure(DRAWINGS[name](*LLRS, title="a system"), tmp_path / name)
    image = imread(png)
    assert image.shape[1] == round(3.4 * 300)
    assert 0.003 < (image[..., :3].min(axis=2) < 0.5).mean() < 0.3
    assert not touches_the_border(png)


@pytest.mark.parametrize("name", DRAWINGS)
def test_same_scores_same_svg(tmp_path, name):
    first, second = (save_figure(DRAWINGS[name](*LLRS), tmp_path / f"{k}.svg")[0] for k in "ab")
    (other,) = save_figure(DRAWINGS[name](*true_llrs(1.0)), tmp_path / "c.svg")
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_scores_are_drawn_in_silence(tmp_path, name, case):
    png, svg = save_figure(DRAWINGS[name](*DEGENERATE[case], title="$x_^{"), tmp_path / "figure")
    assert imread(png).min() < 0.5
    assert "$x_^{" in texts(svg)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_class_without_trials_is_refused(name):
    with pytest.raises(MetricError, match="no nontarget scores"):
        DRAWINGS[name]([1.0], [])


# Histogram.


def test_histogram_bars_are_the_shares_and_the_threshold_stands_where_it_is(tmp_path):
    target, nontarget = LLRS
    figure = plot_histogram((target, nontarget), threshold=1.25, unit="nats", bins=30)
    axes = figure.axes[0]
    false, true = axes.patches
    expected = score_histogram(target, nontarget, limits=axes.get_xlim(), bins=30)
    for drawn, shares in ((false, expected.nontarget), (true, expected.target)):
        assert drawn.get_data().values == pytest.approx(100 * shares)
        assert drawn.get_data().edges == pytest.approx(expected.edges)
        assert drawn.get_data().values.sum() == pytest.approx(100)
    assert axes.lines[0].get_xdata().tolist() == [1.25, 1.25]
    shown = texts(save_figure(figure, tmp_path / "h.svg")[0])
    assert {"true claims (200)", "false claims (2000)", "threshold 1.25", "nats", "share of the class (%)"} <= set(
        shown
    )


def test_a_threshold_beyond_all_scores_is_in_view_and_none_draws_no_line(tmp_path):
    for threshold in (-60.0, 60.0):
        figure = plot_histogram(LLRS, threshold=threshold)
        low, high = figure.axes[0].get_xlim()
        assert low < threshold < high
        assert not touches_the_border(save_figure(figure, tmp_path / "far.png")[0])
    assert not plot_histogram(LLRS).axes[0].lines


def test_scores_of_a_system_can_be_drawn():
    rows = [ScoreRow("A", "s", str(k), float(k % 7), k % 3 == 0) for k in range(40)]
    scores = SystemScores.from_rows(rows)
    drawn = [
        plot_histogram(which).axes[0].patches[0].get_data() for which in (scores, (scores.target, scores.nontarget))
    ]
    assert np.array_equal(drawn[0].values, drawn[1].values)


# Reliability.


def test_reliability_dots_bars_and_numbers_are_those_computed(tmp_path):
    found = reliability(*LLRS)
    figure = plot_reliability(*LLRS)
    axes = figure.axes[0]
    dots = axes.containers[0].lines[0]
    assert dots.get_xdata() == pytest.approx(100 * found.predicted)
    assert dots.get_ydata() == pytest.approx(100 * found.observed)
    bars = [segment[:, 1] for segment in axes.containers[0].lines[2][0].get_segments()]
    assert np.array(bars) == pytest.approx(100 * np.column_stack([found.low, found.high]))
    shown = texts(save_figure(figure, tmp_path / "r.svg")[0])
    assert set(map(str, found.trials)) <= set(shown)
    assert {"predicted probability of a true claim (%)", "observed share of true claims (%)"} <= set(shown)


# Bayes error rates.


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
    (svg,) = save_figure(figure, tmp_path / "b.svg")
    assert {"actual", "minimum", *OPERATING_POINTS, "normalised detection cost"} <= set(texts(svg))
    assert "prior log odds of a true claim (nats)" in texts(svg)
    # The lines differ by more than their colour.
    assert actual.get_linestyle() != minimum.get_linestyle()
    assert actual.get_color() != minimum.get_color()
    assert re.search("stroke-dasharray", svg.read_text())
