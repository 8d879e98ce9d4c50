"""Nalbantov and Ivanov 2020 again: the machinery on a small made-up table, the published rows where the data are."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.papers.implied2020 import MACHINES, PAPER, reproduce
from benchmarks.papers.implied2020_credit import Setting, crossing, judge, split
from benchmarks.papers.implied2020_plots import (
    Point,
    Scored,
    plot_calibration,
    plot_hyperplanes,
    plot_isotonic_input,
    plot_roc,
)
from benchmarks.papers.outcome import Outcome, write
from benchmarks.papers.tables import TableSource, read_german
from pipeline.posteriors.implied import ImpliedPosterior, calibration_score
from pipeline.posteriors.newton import NewtonSigmoid

GRID = {"log2_c": (-1, 3), "log2_gamma": (-7, -3), "machines": 9}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> TableSource:
    """A file in the format of German credit: 160 rows of 24 small whole numbers, and 1 or 2."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(3)
    good = rng.random(160) < 0.6
    X = np.rint(rng.normal(3, 2, (160, 24)) + 1.5 * good[:, None] * (np.arange(24) < 12)).astype(int)
    lines = (" ".join(f"{value:3d}" for value in (*row, 1 if ok else 2)) for row, ok in zip(X, good, strict=True))
    (folder / "german.data-numeric").write_text("".join(f"{line} \n" for line in lines))
    return TableSource(folder, any_version=True)


@pytest.fixture(scope="module")
def stages() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def outcome(tables, stages) -> Outcome:
    return reproduce(tables, **GRID, progress=lambda *calls: stages.append(calls))


def row(outcome: Outcome, name: str):
    (result,) = [row for row in outcome.rows if row.name == name]
    return result


def test_the_numbers_are_those_of_machines_trained_here_on_the_first_half(tables, outcome):
    lines = (tables.folder / "german.data-numeric").read_text().splitlines()
    numbers = np.array([[int(word) for word in line.split()] for line in lines])
    X, good = numbers[:, :-1], numbers[:, -1] == 1
    scaler = StandardScaler().fit(X[:80])
    train, test = scaler.transform(X[:80]), scaler.transform(X[80:])
    most = max(outcome.extra["sensitivity"], key=lambda cell: cell["cv_auc"])
    machine = SVC(C=2.0 ** most["log2_C"], gamma=2.0 ** most["log2_gamma"]).fit(train, good[:80])
    margins = machine.decision_function(test)
    raw = (margins - margins.min()) / (margins.max() - margins.min())
    assert row(outcome, PAPER["raw"][0]).here == pytest.approx(calibration_score(raw, good[80:]), abs=1e-4)
    trained = NewtonSigmoid().fit(machine.decision_function(train), good[:80]).probability(margins)
    result = row(outcome, PAPER["platt_trained"][0])
    assert result.here == pytest.approx(calibration_score(trained, good[80:]), abs=1e-4)
    assert row(outcome, "AUC, Platt").here == pytest.approx(roc_auc_score(good[80:], margins), abs=1e-4)
    # Nine machines with the published penalties, one by one.
    yes = np.ones(80)
    for weight in np.arange(1, 10) / 10:
        penalties = {False: 2 * (1 - weight), True: 2 * weight}
        yes += machine.set_params(class_weight=penalties).fit(train, good[:80]).predict(test)
    assert row(outcome, "AUC, implied").here == pytest.approx(roc_auc_score(good[80:], yes), abs=1e-4)
    assert row(outcome, PAPER["implied"][0]).here == pytest.approx(calibration_score(yes / 11, good[80:]), abs=1e-4)
    assert row(outcome, "first test row: implied posterior").here == pytest.approx(yes[0] / 11, abs=1e-4)


def test_every_published_number_stands_beside_ours(outcome):
    for name, paper in PAPER.values():
        assert row(outcome, name).paper == paper
        assert 0 <= row(outcome, name).here <= 1
        low, _, high = row(outcome, f"{name}, over the grid").here.split()
        assert float(low) - 1e-3 <= row(outcome, name).here <= float(high) + 1e-3
    assert row(outcome, "worked example, point A: posterior").here == "4/11"
    assert row(outcome, "worked example, point B: posterior").here == "3/11"


def test_every_figure_is_drawn_and_the_outcome_written(outcome, tmp_path):
    panels = {name: len(draw().axes) for name, draw in outcome.figures.items()}
    assert panels == {
        "reweighting": 3, "worked_example": 4, "posteriors": 3, "calibration": 3, "isotonic_input": 1, "roc": 1,
        "sensitivity": 12,
    }  # fmt: skip
    names = {path.name for path in write(replace(outcome, figures={"roc": outcome.figures["roc"]}), tmp_path)}
    assert names == {"table.json", "table.md", "roc.png", "roc.pdf"}
    table = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert [(cell["log2_C"], cell["log2_gamma"]) for cell in table["sensitivity"]] == [
        (-1, -7), (-1, -3), (3, -7), (3, -3),
    ]  # fmt: skip
    assert set(PAPER) < set(table["sensitivity"][0])


def test_the_figures_draw_what_they_are_given():
    weights, lines = np.array([0.25, 0.75]), np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]])
    point = Point("P", np.array([0.5, 0.5]), np.array([0.0, 1.0]), "2 / 4")
    rows, positive = np.array([[0.0, 0.0], [2.0, 1.0], [1.0, -1.0]]), np.array([True, False, False])
    plane, answers, _ = plot_hyperplanes(rows, positive, weights, lines, [point]).axes
    through = [line.get_xy1() for line in plane.lines if hasattr(line, "get_xy1")]
    np.testing.assert_allclose(through, [[1.0, 0.0], [0.0, -0.5]])
    assert answers.get_title(loc="left") == "P: posterior 2 / 4"
    scored = Scored("half", np.array([0.5, 0.5, 0.55]), np.array([0.5, 0.5, 1.0]))
    (axes,) = plot_calibration([scored], np.array([True, False, True])).axes
    np.testing.assert_allclose(axes.collections[0].get_offsets(), [[0.55, 2 / 3]])
    assert axes.get_title(loc="left") == "half: calibration score 0.150"
    labels = [text.get_text() for text in plot_roc({"s": np.array([1.0, 2, 2])}, positive).axes[0].get_legend().texts]
    assert labels == ["s (AUC 0.000)"]


def test_two_machines_of_one_total_cross_where_both_say_another_posterior():
    example = crossing()
    assert [3 * weight * 5 + 3 * (1 - weight) * 5 for weight in example.weights] == pytest.approx([15, 15])
    assert example.posteriors == pytest.approx([0.5, 0.2])
    np.testing.assert_allclose(example.lines @ [*example.at, 1.0], 0.0, atol=1e-12)
    low, high = example.rows.min(axis=0), example.rows.max(axis=0)
    assert (low < example.at).all()
    assert (example.at < high).all()
    # More copies of the positive points in place of their weight: eq. 3.
    copies = np.concatenate([example.rows[~example.positive], *[example.rows[example.positive]] * 4])
    machine = SVC(kernel="linear", C=0.6).fit(copies, np.repeat([False, True], [5, 20]))
    np.testing.assert_allclose([*machine.coef_[0], *machine.intercept_], example.lines[1], rtol=0, atol=2e-3)


def test_the_input_of_isotonic_regression_is_shown_pair_by_pair():
    scored = Scored("implied", np.array([0.1, 0.6, 0.4]), np.array([0.0, 1.0, 0.0]))
    (axes,) = plot_isotonic_input(scored, np.array([False, True, False])).axes
    upper, lower, steps = axes.lines
    assert upper.get_xdata().tolist() == [0.6]
    assert lower.get_xdata().tolist() == [0.1, 0.4]
    assert abs(upper.get_ydata() - 1).max() <= 0.08
    assert abs(lower.get_ydata()).max() <= 0.08
    assert steps.get_ydata().tolist() == [0.0, 0.0, 1.0]


@pytest.mark.skipif("VOICECLAIM_TABLES" not in os.environ, reason="VOICECLAIM_TABLES names no folder of data files")
def test_german_credit_at_the_chosen_setting():
    half = split(read_german(TableSource(Path(os.environ["VOICECLAIM_TABLES"]))), StandardScaler())
    assert (half.labels.sum(), half.positive.sum()) == (364, 336)
    result = judge(half, Setting(5, -9, 0.0, 0.0), MACHINES).numbers(half.positive)
    assert result["implied"] == pytest.approx(0.065, abs=0.01)
    assert result["raw"] == pytest.approx(0.085, abs=0.02)
    assert result["auc_implied"] > result["auc_platt"] > 0.78
    assert ImpliedPosterior(machines=MACHINES).fit(half.train, half.labels).posteriors_[0] == 0.005
