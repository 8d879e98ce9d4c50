"""`voiceclaim plot` and `compare`: several evaluations in one figure, and side by side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from evaluations import is_png, svg_text


@pytest.fixture
def two(evaluated, tmp_path) -> Path:
    """The folder of two copies of the evaluation, ``first`` and ``second``."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for file in ("scores.txt", "metrics.json"):
            shutil.copy(evaluated[0] / file, tmp_path / name)
    return tmp_path


def test_plot_draws_evaluations_in_one_figure(inside, two):
    assert inside("plot", "first", "second", "--out", "both.png").code == 0
    assert is_png(two / "both.png")
    result = inside("plot", "first", "second", "--out", "both.svg", "--systems", "poar,rpoao")
    assert (result.code, result.out) == (0, "written: both.svg\n")
    text = svg_text(two / "both.svg")
    assert all(f"{folder}: {system} (EER" in text for folder in ("first", "second") for system in ("poar", "rpoao"))
    assert "refined_worst_rival" not in text
    # One folder needs no name.
    assert inside("plot", "first", "--out", "one.svg", "--systems", "poar,rpoao").code == 0
    text = svg_text(two / "one.svg")
    assert "first" not in text and "poar (EER" in text and "rpoao (EER" in text


def test_compare_sets_evaluations_side_by_side(inside, evaluated, two):
    result = inside("compare", "first", "second", "--out", "both")
    assert result.code == 0
    assert "first: refined_worst_rival" in result.out
    assert "difference from first" in result.out
    table = json.loads((two / "both" / "compare.json").read_text(encoding="utf-8"))
    (line,) = [line for line in result.out.splitlines() if line.startswith("second: EER %")]
    assert line.endswith(table["differences"][0]["eer_percent"]["verdict"])
    assert all(str(path.relative_to(two)) in result.out for path in (two / "both").iterdir())
    metrics = json.loads((evaluated[0] / "metrics.json").read_text(encoding="utf-8"))
    (reported,) = inside("compare", "second", "first", "--system", "poar", "--json").lines
    for entry in reported["evaluations"]:
        # The same seed as the store's, and so the same intervals as in the evaluation.
        for key in ("eer_percent", "eer_percent_ci95", "min_dcf", "min_cllr"):
            assert entry[key] == metrics["systems"]["poar"][key]
    assert {path.name for path in two.iterdir()} == {"first", "second", "both"}


def test_a_plot_or_comparison_that_is_impossible_is_an_error(refused, two):
    for words, reason in [
        (("plot", "first", "--out", "x.png", "--systems", "poar,foo"), "no scores of system 'foo' there; it has "),
        (("plot", "first", "--out", "no/such/folder/x.png"), "x.png"),
        (("compare", "first"), "two evaluation folders"),
        (("compare", "first", "nowhere"), "nowhere"),
        (("compare", "first", "second", "--system", "oracle"), "oracle"),
        (("compare", "first", "second", "--out", "first/scores.txt"), "first/scores.txt"),
    ]:
        assert reason in refused(*words)
