"""Evaluations compared: differences with analytic values, and the files written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from html_outline import Outline, check_accessible, check_self_contained
from score_rows import ScoreRow, scores_from, write_scores
from trial_scores import rows_of

from pipeline.errors import InputError, MetricError
from pipeline.evaluation import paired_bootstrap
from pipeline.evaluation.comparison_report import compare, labels_of, read_evaluations, write_comparison
from pipeline.evaluation.pages import comparison_page

STATISTICS = ("eer_percent", "min_dcf", "cllr", "min_cllr")


def folder_of(path: Path, rows: list[ScoreRow], **about) -> Path:
    """A folder with the files that a comparison reads; the first row's system is the default."""
    path.mkdir()
    write_scores(path / "scores.txt", rows)
    table = {"default_system": rows[0].system, "trials": "list.txt", "systems": {}, **about}
    (path / "metrics.json").write_text(json.dumps(table), encoding="utf-8")
    return path


def rows_by_hand(system: str, targets, nontargets, *, llr=None, speakers=("a", "b", "c")) -> list[ScoreRow]:
    """The same scores for every speaker, so that no resample of speakers differs from the list."""
    return [
        ScoreRow(system, speaker, f"{kind}{n}.wav", score, kind == "t", None if llr is None else llr(score))
        for speaker in speakers
        for kind, scores in (("t", targets), ("n", nontargets))
        for n, score in enumerate(scores)
    ]


NO_DIFFERENCE = "no significant difference"


def compared(*folders: Path, system: str | None = None) -> dict:
    return compare(read_evaluations(folders, system))


# Numbers


def test_identical_folders_have_zero_difference(tmp_path):
    rows = rows_of("rpoao", seed=0, llr=lambda score: 2 * score - 1)
    table = compared(folder_of(tmp_path / "a", rows), folder_of(tmp_path / "b", rows))
    (difference,) = table["differences"]
    assert (difference["label"], difference["against"], difference["unmatched"]) == ("b", "a", 0)
    for key in STATISTICS:
        value = table["evaluations"][0][key]
        zero = {"difference": 0.0, "ci95": [0.0, 0.0], "share_below_zero": 0.0, "verdict": NO_DIFFERENCE}
        assert difference[key] == {**zero, "first": value, "second": value}
    page = comparison_page(table, figures=())
    assert {row[4] for row in Outline(page).table("Paired differences")[1:]} == {NO_DIFFERENCE}


def test_differences_by_hand(tmp_path):
    # Targets {1, 3}, nontargets {0, 2}: EER 0.5, minimum Cllr 0.5 bits; at p05 rejecting the lower target costs 0.5.
    # Ratios that are all 0 cost 1 bit. The second has no error. All resamples are alike: intervals have no width.
    first = rows_by_hand("poao", (1, 3), (0, 2), llr=lambda score: 0.0)
    second = rows_by_hand("boao", (8, 9), (0, 2), llr=lambda score: 800.0 if score > 5 else -800.0)
    (tmp_path / "in").mkdir()
    a, b = folder_of(tmp_path / "in" / "a", first), folder_of(tmp_path / "in" / "b", second)
    (difference,) = compared(a, b)["differences"]
    # Ratios without information cost as much as deciding without scores.
    for key, gain in (("eer_percent", 50.0), ("min_dcf", 1.0), ("cllr", 1.0), ("min_cllr", 1.0)):
        assert difference[key] == {
            "first": gain, "second": 0.0, "difference": -gain, "ci95": [-gain, -gain], "share_below_zero": 1.0,
            "verdict": "better",
        }  # fmt: skip
    plain = [dataclasses.replace(row, llr=None) for row in first]
    (difference,) = compared(folder_of(tmp_path / "plain", plain), b)["differences"]
    for key, gain in (("eer_percent", 50.0), ("min_dcf", 0.5), ("min_cllr", 0.5)):
        assert difference[key]["difference"] == -gain
        assert difference[key]["ci95"] == [-gain, -gain]
    assert difference["cllr"] is None


def test_differences_are_those_of_the_paired_bootstrap(tmp_path):
    rows = rows_of("poao", seed=1), rows_of("poao", seed=2, gap=2.0)
    table = compared(*(folder_of(tmp_path / name, its) for name, its in zip("ab", rows, strict=True)))
    expected = paired_bootstrap(*map(scores_from, rows), seed=0)
    (difference,) = table["differences"]
    eer = difference["eer_percent"]
    assert eer["difference"] == pytest.approx(100 * expected.difference)
    assert eer["ci95"] == pytest.approx([100 * expected.interval.low, 100 * expected.interval.high])
    assert eer["ci95"][0] <= eer["difference"] <= eer["ci95"][1]
    assert (difference["n_target"], difference["n_nontarget"]) == (20, 80)
    for entry in table["evaluations"]:
        for key in ("eer_percent", "min_dcf", "min_cllr"):
            low, high = entry[f"{key}_ci95"]
            assert low <= entry[key] <= high
        assert entry["cllr"] is entry["cllr_ci95"] is None


def test_differences_are_of_the_trials_that_both_scored(tmp_path):
    rows = rows_of("poao", seed=4)
    extra = [ScoreRow("poao", "b", "later.wav", -9.0, True), ScoreRow("poao", "c", "later.wav", 9.0, False)]
    table = compared(folder_of(tmp_path / "a", rows), folder_of(tmp_path / "b", [*extra, *reversed(rows)]))
    (difference,) = table["differences"]
    assert (difference["n_target"], difference["n_nontarget"], difference["unmatched"]) == (20, 80, 2)
    assert difference["eer_percent"]["difference"] == 0.0
    assert [(entry["n_target"], entry["system"]) for entry in table["evaluations"]] == [(20, "poao"), (21, "poao")]
    assert table["evaluations"][1]["eer_percent"] > table["evaluations"][0]["eer_percent"]


def test_settings_that_differ_are_named_with_their_values(tmp_path):
    rows = rows_of("poao", seed=7, speakers="ab")
    one = {"seed": 0, "machines": {"C": 1.0, "nu": 0.1}}
    other = {"seed": 0, "machines": {"C": 10.0, "nu": 0.1, "kinds": ["one_class"]}}
    a = folder_of(tmp_path / "a", rows, settings=one)
    b = folder_of(tmp_path / "b", rows, settings=other)
    old = folder_of(tmp_path / "old", rows)
    assert compared(a, b)["settings"] == {"machines.C": [1.0, 10.0], "machines.kinds": [None, ["one_class"]]}
    assert compared(a, a)["settings"] == {}
    assert compared(a, b, old)["settings"] is None


def test_labels_are_never_the_same(tmp_path):
    assert labels_of([Path("x/a"), Path("y/b")]) == ["a", "b"]
    assert labels_of([Path("x/a"), Path("y/a")]) == [str(Path("x/a")), str(Path("y/a"))]
    assert labels_of([Path("a"), Path("b"), Path("a")]) == ["a", "b", "a (2)"]


# Files


def test_a_comparison_is_written_as_numbers_page_and_figure(tmp_path):
    a = folder_of(tmp_path / "a", rows_of("poao", seed=8, llr=lambda score: score))
    b = folder_of(tmp_path / "b", rows_of("poao", seed=9, gap=5.0, llr=lambda score: score), settings={"seed": 1})
    evaluations = read_evaluations([a, b])
    written = write_comparison(tmp_path / "out", evaluations, compare(evaluations))
    names = {"compare.json", "compare.html", "compare.csv", "compare.tex", "compare_det.png", "compare_det.svg"}
    assert {path.name for path in written} == {path.name for path in (tmp_path / "out").iterdir()} == names
    table = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))
    assert table == compare(evaluations)
    outline = check_self_contained((tmp_path / "out" / "compare.html").read_text(encoding="utf-8"))
    check_accessible(outline)
    svg = (tmp_path / "out" / "compare_det.svg").read_bytes()
    assert outline.pictures() == [svg]
    assert b"a: poao" in svg
    assert b"b: poao" in svg
    rows = outline.table("Paired differences")[1:]
    assert [row[1] for row in rows] == ["EER %", "minDCF", "Cllr", "min. Cllr"]
    eer = table["differences"][0]["eer_percent"]
    low, high = eer["ci95"]
    assert high < 0
    values = [f"{eer[key]:.2f}" for key in ("first", "second")]
    assert rows[0][2:] == [f"{eer['difference']:+.2f}", f"{low:+.2f} to {high:+.2f}", "better", *values]


def test_names_of_folders_lists_and_settings_cannot_become_markup(tmp_path):
    hostile = "<script>alert('1')<b>&quot;"
    rows = [dataclasses.replace(row, system=hostile) for row in rows_of("x", seed=1)]
    about = {"trials": hostile, "version": hostile}
    paths = [tmp_path / f"{n}{hostile.replace('/', '')}" for n in range(2)]
    folders = [folder_of(path, rows, settings={"k<i>": n}, **about) for n, path in enumerate(paths)]
    evaluations = read_evaluations(folders)
    write_comparison(tmp_path / "out", evaluations, compare(evaluations))
    outline = check_self_contained((tmp_path / "out" / "compare.html").read_text(encoding="utf-8"))
    check_accessible(outline)
    assert outline.table("Folders, and the lists")[1][2] == hostile
    assert outline.table("Settings of the stores")[1] == ["k<i>", "0", "1"]


# Errors


def test_a_folder_that_is_no_evaluation_is_named(tmp_path):
    a, b = folder_of(tmp_path / "a", rows_of("poao", seed=1)), tmp_path / "b"
    b.mkdir()
    for name, text, named in [
        ("metrics.json", "[]", "metrics.json"),
        ("metrics.json", "{", "metrics.json"),
        ("metrics.json", '{"a":' * 100_000, "metrics.json"),
        ("metrics.json", '{"default_system": "poao"}', "scores.txt"),
        ("scores.txt", "hello", "scores.txt"),
    ]:
        (b / name).write_text(text, encoding="utf-8")
        with pytest.raises(InputError) as error:
            read_evaluations([a, b])
        assert str(b) in str(error.value) and named in str(error.value)


def test_folders_that_cannot_be_compared_are_typed_errors_that_name_them(tmp_path):
    rows = rows_of("poao", seed=1)
    a = folder_of(tmp_path / "a", rows)
    moved = folder_of(tmp_path / "moved", [dataclasses.replace(row, path=f"x/{row.path}") for row in rows])
    swapped = folder_of(tmp_path / "swapped", [dataclasses.replace(row, target=not row.target) for row in rows])
    alone = folder_of(tmp_path / "alone", [row for row in rows if row.speaker == "a"])
    true_only = folder_of(tmp_path / "true", [row for row in rows if row.target])
    for other, kind, named in (
        (moved, InputError, "share no trial"),
        (swapped, MetricError, "disagree"),
        (alone, MetricError, "at least 2"),
        (true_only, MetricError, "no nontarget scores"),
    ):
        with pytest.raises(kind, match=named) as error:
            compared(a, other)
        assert str(other) in str(error.value)
