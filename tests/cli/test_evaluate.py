"""`voiceclaim evaluate` with a trial list and a store: the files it writes, and what it prints."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest
from evaluations import is_png, svg_text, written
from html_outline import check_accessible, check_self_contained
from populations import SYSTEMS

from pipeline import __version__
from pipeline.config import parse_config
from pipeline.enrollment.enroll import enroll
from pipeline.evaluation import read_scores
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

# A system that each figure shows.
FIGURES = {
    "fa_fr_one_vs_rest": "poar", "fa_fr_one_vs_one": "rpoao", "fa_fr_worst_rival": "worst_rival", "det": "gmm_rival",
    "score_histogram": "worst_rival",
    "reliability": "worst_rival", "bayes_error": "worst_rival",
}  # fmt: skip


def test_evaluate_writes_every_score_with_its_trial_and_names_the_files_without_one(
    evaluated, store, demo, trial_lines, silence
):
    folder, result = evaluated
    scores = read_scores(folder / "scores.txt")
    assert set(scores) == set(SYSTEMS)
    opened = Store(store).load()
    for system, outcome in scores.items():
        assert [*zip(outcome.speakers, outcome.paths, outcome.is_target.tolist(), strict=True)] == trial_lines
        verifier = Verifier(opened, "dexter", system=system)
        at = next(n for n, line in enumerate(trial_lines) if line[0] == "dexter")
        assert outcome.scores[at] == pytest.approx(verifier.verify_file(demo / trial_lines[at][1]).score, abs=1e-9)
    assert f"not scored (2 trials): {silence}: 0.00 s of speech found" in result.err
    assert "not scored (1 trials)" in result.err
    assert "missing.flac" in result.err


def test_systems_that_enrollment_trains_no_machines_for_have_error_rates_and_no_threshold(
    inside, tmp_path, recordings, tiny_with, trial_lines, demo, voices
):
    kinds = 'machines.kinds=["one_vs_one", "one_class"]'
    enroll(tmp_path / "s", {name: recordings[name] for name in voices}, tiny_with(kinds, "scoring.system=rpoao"))
    lines = (f"{claim} {path} {'target' if own else 'nontarget'}\n" for claim, path, own in trial_lines)
    (tmp_path / "trials.txt").write_text("".join(lines), encoding="utf-8")
    result = inside("evaluate", "s", "trials.txt", "--root", demo, "--out", "out", "--systems", "poar,rpoao", "--json")
    assert result.code == 0
    of = json.loads((tmp_path / "out" / "metrics.json").read_text(encoding="utf-8"))["systems"]
    assert 0.0 <= of["poar"]["eer_percent"] < 20.0
    assert (of["poar"]["store_threshold"], of["poar"]["false_accept_percent"]) == (None, None)
    assert of["rpoao"]["store_threshold"] is not None
    assert "poar" in (inside("evaluate", "s", "trials.txt", "--root", demo, "--out", "o", "--systems", "poar")).out


def test_evaluate_writes_the_documented_metrics_and_prints_the_same(evaluated, store):
    folder, result = evaluated
    table = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert table == json.loads(result.out)
    about = {"trials": "kaldi.txt", "store": str(store), "speakers": 4, "speakers_claimed": 4, "files": 12}
    assert table.items() >= {**about, "version": __version__, "default_system": "refined_worst_rival"}.items()
    assert set(table["systems"]) == set(SYSTEMS)
    scores, opened = read_scores(folder / "scores.txt"), Store(store).load()
    for system, outcome in table["systems"].items():
        assert (outcome["n_target"], outcome["n_nontarget"], outcome["n_failed"]) == (8, 32, 3)
        target, nontarget = scores[system].target, scores[system].nontarget
        assert outcome["store_threshold"] == pytest.approx(opened.threshold(system), rel=1e-9)  # fused: a fit
        assert outcome["false_accept_percent"] == pytest.approx(100 * np.mean(nontarget >= outcome["store_threshold"]))
        assert outcome["false_reject_percent"] == pytest.approx(100 * np.mean(target < outcome["store_threshold"]))


def test_evaluate_draws_each_figure_for_screen_and_for_print_and_writes_nothing_else(evaluated):
    folder, _ = evaluated
    assert written(folder, {*FIGURES})
    for name, system in FIGURES.items():
        assert is_png(folder / f"{name}.png")
        assert system in svg_text(folder / f"{name}.svg")


def test_evaluate_writes_a_page_that_can_be_sent(evaluated, store, demo):
    outline = check_self_contained((evaluated[0] / "report.html").read_text(encoding="utf-8"))
    check_accessible(outline)
    assert {row[0].removesuffix(" (default)") for row in outline.table("Error rates and costs")[1:]} == set(SYSTEMS)
    facts = dict(outline.table("The list")[1:])
    assert facts["Command"] == f"voiceclaim evaluate {store} kaldi.txt --root {demo} --out results --json"
    settings = parse_config(tomllib.loads(outline.all("pre")[0].text), source="report.html")
    assert settings == Store(store).load().config


def test_both_list_formats_give_the_same_scores_whatever_the_threads(
    evaluated, inside, store, demo, trial_lines, tmp_path
):
    text = "".join(f"{int(own)} {claim} {path}\n" for claim, path, own in trial_lines)
    (tmp_path / "voxceleb.txt").write_text(text, encoding="utf-8")
    words = ("--root", demo, "--out", "out", "--systems", "poar, rpoao", "-j", 1)
    result = inside("evaluate", store, "voxceleb.txt", *words)
    assert result.code == 0
    ours, theirs = read_scores(tmp_path / "out/scores.txt"), read_scores(evaluated[0] / "scores.txt")
    assert list(ours) == ["poar", "rpoao"]
    for system, outcome in ours.items():
        np.testing.assert_allclose(outcome.scores, theirs[system].scores, rtol=0, atol=1e-12)
        assert system in result.out
    assert "metrics.json" in result.out


def test_paper_stands_for_the_five_systems_of_xin_wu_and_pan(inside, store, heard, demo, tmp_path):
    path = heard("anna").relative_to(demo).as_posix()
    (tmp_path / "trials.txt").write_text(f"anna {path} target\nivan {path} nontarget\n", encoding="utf-8")
    words = ("--root", demo, "--out", "out", "--systems", "paper, gmm", "--json")
    systems = json.loads(inside("evaluate", store, "trials.txt", *words).out)["systems"]
    assert [*systems] == ["boar", "poar", "boao", "poao", "rpoao", "gmm"]


def test_rates_by_a_column_are_those_of_the_list_with_its_rows_alone(inside, store, demo, trial_lines, tmp_path):
    lines = {"even": [], "odd": []}
    for n, (claim, path, own) in enumerate(trial_lines):
        lines["even" if n // 4 % 2 else "odd"].append(
            f"{claim},{path},{int(own)},{'even' if n // 4 % 2 else 'odd'},{n}"
        )
    for name, rows in (("all", [*lines["odd"], *lines["even"]]), *lines.items()):
        (tmp_path / f"{name}.csv").write_text("\n".join(["speaker,path,label,take,n", *rows]) + "\n", encoding="utf-8")
    words = ("--root", demo, "--systems", "poar, rpoao")
    printed = inside("evaluate", store, "all.csv", "--out", "all", *words).out
    assert inside("evaluate", store, "even.csv", "--out", "even", *words).code == 0
    assert inside("evaluate", store, "odd.csv", "--out", "odd", *words).code == 0
    every, *alone = (json.loads((tmp_path / f"{name}/metrics.json").read_text("utf-8")) for name in ("all", *lines))
    assert every["left_out"] == ["error rates by 'n': that column has more than 20 values"]
    for system, entry in every["systems"].items():
        assert [*entry["by_metadata"]["take"]] == [*lines]
        for group, other in zip(entry["by_metadata"]["take"].values(), alone, strict=True):
            of_list = other["systems"][system]
            assert {key: of_list[key] for key in group if key != "rule_of_30"}.items() <= group.items()
            assert group["n_target"] == 4
        speech = entry["by_metadata"].get("speech", {})
        assert sum(group["n_target"] for group in speech.values()) in {0, 8}
    outline = check_self_contained((tmp_path / "all/report.html").read_text(encoding="utf-8"))
    check_accessible(outline)
    default = every["systems"][every["default_system"]]
    rows = outline.table(f"Error rates of {every['default_system']} by take")[1:]
    assert [row[0] for row in rows] == [*lines]
    assert rows[0][4:] == [
        f"{default['by_metadata']['take']['even'][f'false_{kind}_percent']:.2f}" for kind in ("accept", "reject")
    ]
    shown = next(line for line in printed.splitlines() if line.startswith("even")).split()
    assert shown == rows[0]

    key = "key.csv"
    (tmp_path / key).write_text((tmp_path / "all.csv").read_text("utf-8"), encoding="utf-8")
    scored = inside("evaluate", "--scores", "all/scores.txt", "--key", key, "--out", "scored", "--json")
    again = json.loads(scored.out)["systems"]["poar"]
    assert again["by_metadata"]["take"]["odd"]["eer_percent"] == alone[1]["systems"]["poar"]["eer_percent"]
    assert [*again["by_metadata"]] == ["take"]


def test_paths_are_relative_to_the_list_and_one_class_gives_no_eer_and_no_figures(inside, store, heard, tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "a.flac").write_bytes(heard("anna").read_bytes())
    (tmp_path / "lists" / "trials.txt").write_text("ivan a.flac nontarget\nlars a.flac nontarget\n", encoding="utf-8")
    result = inside("evaluate", store, "lists/trials.txt", "--out", "out", "--systems", "poar")
    assert result.code == 0
    assert [line.split()[:2] for line in result.out.splitlines() if line.startswith("poar")] == [["poar", "*"]]
    outcome = json.loads((tmp_path / "out/metrics.json").read_text(encoding="utf-8"))["systems"]["poar"]
    for key in ("eer_percent", "eer_percent_ci95", "threshold", "false_reject_percent"):
        assert outcome[key] is None
    assert outcome["n_failed"] == 0
    assert 0 <= outcome["false_accept_percent"] <= 100
    assert written(tmp_path / "out", set())
