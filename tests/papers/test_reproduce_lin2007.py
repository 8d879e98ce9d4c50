"""Lin, Lin and Weng 2007 again: the machinery on small made-up tables, the published problems where the data are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC

from benchmarks.papers.lin2007 import LOG2_C, LOG2_GAMMA, NOT_ABOVE, reproduce
from benchmarks.papers.lin2007_plots import Panel, plot_problems
from benchmarks.papers.outcome import Outcome
from benchmarks.papers.tables import TableSource
from pipeline.posteriors.newton import NewtonSigmoid
from pipeline.posteriors.platt import PlattSigmoid

GRID = {"log2_c": (-5, 5, 15), "log2_gamma": (-9, -1)}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> TableSource:
    """Files in the formats of sonar and shuttle: 40 sonar rows, and seven classes of shuttle of which 2 is rare."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    sonar = np.clip(np.r_[rng.normal(0.4, 0.2, (19, 60)), rng.normal(0.5, 0.2, (21, 60))], 0, 1)
    names = ["R"] * 19 + ["M"] * 21
    lines = [",".join([*(f"{value:.4f}" for value in row), name]) for row, name in zip(sonar, names, strict=True)]
    (folder / "sonar.all-data").write_text("\n".join(lines) + "\n")
    classes = np.r_[np.repeat([1, 3, 5, 6, 7], 6), np.repeat(2, 6), np.repeat(4, 300)]
    shuttle = rng.normal(0, 5, (len(classes), 9)) + 3.0 * classes[:, None]
    shuttle[classes == 1] *= 40
    rows = np.c_[np.rint(shuttle).astype(int), classes][rng.permutation(len(classes))]
    (folder / "shuttle.trn").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    return TableSource(folder, any_version=True)


@pytest.fixture(scope="module")
def outcome(tables) -> Outcome:
    return reproduce(tables, **GRID)


def here(outcome: Outcome, name: str):
    (result,) = [row.here for row in outcome.rows if row.name == name]
    return result


def test_the_grid_has_the_papers_110_problems():
    assert (LOG2_C[0], LOG2_C[-1]) == (-5, 15)
    assert (LOG2_GAMMA[0], LOG2_GAMMA[-1]) == (-15, 3)
    assert len(LOG2_C) * len(LOG2_GAMMA) == 110


def test_newton_never_overflows_and_never_ends_higher(outcome):
    for ours in ("ours, fixed", "ours, dynamic"):
        for how in ("", " (cross-validated)"):
            assert here(outcome, f"{ours}{how}: overflows on both sets") == 0
            assert here(outcome, f"{ours}{how}: objective not above Platt's") == "12 of 12"


def test_the_numbers_are_those_of_the_algorithms_on_each_problem(tables, outcome):
    lines = (tables.folder / "sonar.all-data").read_text().splitlines()
    X = np.array([[float(value) for value in line.split(",")[:-1]] for line in lines])
    y = np.array([line.endswith("M") for line in lines])
    X = 2 * (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0)) - 1
    fits = {"Platt": [], "ours, fixed": []}
    for log2_c in GRID["log2_c"]:
        for log2_gamma in GRID["log2_gamma"]:
            f = SVC(C=2.0**log2_c, gamma=2.0**log2_gamma).fit(X, y).decision_function(X)
            fits["Platt"].append(PlattSigmoid(tolerance=1e-5).fit(f, y))
            fits["ours, fixed"].append(NewtonSigmoid(scaled=False).fit(f, y))
    for name, result in fits.items():
        assert here(outcome, f"sonar, {name}: iterations") == round(np.mean([fit.iterations_ for fit in result]), 4)
        mean = np.mean([fit.objective_ for fit in result])
        assert here(outcome, f"sonar, {name}: final objective") == pytest.approx(mean, abs=1e-4)
    steps = [sum(getattr(fit, name) for fit in fits["ours, fixed"]) for name in ("backtracks_", "iterations_")]
    ratio = here(outcome, "sonar, ours, fixed: backtracking steps an iteration")
    assert ratio == pytest.approx(steps[0] / steps[1], abs=1e-5)


def test_columns_of_shuttle_have_the_ranges_of_all_its_classes(tables, outcome):
    from benchmarks.papers.lin2007 import _shuttle

    table = _shuttle(tables)
    raw = np.loadtxt(tables.folder / "shuttle.trn")
    low, high = raw[:, :-1].min(axis=0), raw[:, :-1].max(axis=0)
    kept = raw[np.isin(raw[:, -1], (2, 4))]
    np.testing.assert_allclose(table.X, 2 * (kept[:, :-1] - low) / (high - low) - 1)
    np.testing.assert_array_equal(table.y == 1, kept[:, -1] == 2)
    assert any("shuttle 2 and 4, train: 306 rows, 6 positive" in note for note in outcome.notes)


def test_threads_change_nothing_and_progress_is_told(tables, outcome):
    calls = []
    again = reproduce(tables, jobs=2, progress=lambda *call: calls.append(call), **GRID)
    assert again.rows == outcome.rows
    stages = ("sonar", "shuttle", "sonar (cross-validated)", "shuttle (cross-validated)")
    assert calls == [(stage, 1, 6) for stage in stages for _ in range(6)]


def test_the_figure_shows_each_problem_in_its_place():
    excess = np.array([[1e-3, 0.0, -1e-14], [2.0, 0.5, 1e-9]])
    steps = np.array([[7, 8, 9], [100, 5, 6]])
    failed = np.array([[False, True, False], [False, False, True]])
    figure = plot_problems([Panel("sonar", steps, steps + 1, failed, excess)], (-5, -3), (1, 3, 5), title="title")
    platt, newton, gap = figure.axes[:3]
    np.testing.assert_array_equal(platt.collections[0].get_array(), steps)
    np.testing.assert_array_equal(newton.collections[0].get_array(), np.minimum(steps + 1, 100))
    np.testing.assert_allclose(gap.collections[0].get_array(), np.clip(excess, 1e-12, 1.0))
    np.testing.assert_array_equal(platt.lines[0].get_xydata(), [[3, -5], [5, -3]])
    assert (platt.get_xlabel(), platt.get_ylabel()) == ("log2 gamma", "sonar\nlog2 C")


@pytest.mark.slow
@pytest.mark.skipif("VOICECLAIM_TABLES" not in os.environ, reason="VOICECLAIM_TABLES names no folder of data files")
def test_all_220_problems_of_the_paper():
    outcome = reproduce(TableSource(Path(os.environ["VOICECLAIM_TABLES"])), jobs=os.cpu_count() or 1)
    for ours in ("ours, fixed", "ours, dynamic"):
        for how in ("", " (cross-validated)"):
            assert here(outcome, f"{ours}{how}: overflows on both sets") == 0
            assert here(outcome, f"{ours}{how}: objective not above Platt's") == "220 of 220"
    for claim in ("Platt does well on sonar", "Platt overflows on shuttle", "Platt needs more iterations on shuttle"):
        assert here(outcome, claim) == "yes"
    assert NOT_ABOVE == 1e-9
    assert any("6785 rows, 37 positive" in note for note in outcome.notes)
