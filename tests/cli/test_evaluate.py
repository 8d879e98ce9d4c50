"""`voiceclaim evaluate`, `plot`, `compare` and `convert`: the files they write, and what they print."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from html_outline import check_accessible, check_self_contained
from populations import SYSTEMS
from sklearn.metrics import roc_curve

from pipeline import __version__
from pipeline.config import parse_config
from pipeline.enrollment.enroll import enroll
from pipeline.evaluation import SystemScores, read_list, read_scores, write_list
from pipeline.evaluation.scores import table_of
from pipeline.metrics import actual_cost, log_likelihood_ratio_cost, minimum_cllr
from pipeline.store.store import Store
from pipeline.verification.verifier import Verifier

# A system that each figure shows.
FIGURES = {
    "fa_fr_one_vs_rest": "poar", "fa_fr_one_vs_one": "rpoao", "fa_fr_worst_rival": "worst_rival", "det": "gmm_rival",
    "score_histogram": "worst_rival",
    "reliability": "worst_rival", "bayes_error": "worst_rival",
}  # fmt: skip
WRITTEN = {"scores.txt", "metrics.json", "report.html", "table.csv", "table.tex"}


def written(folder: Path, figures: set[str]) -> bool:
    """Check that the folder holds an evaluation with these figures, and nothing else."""
    names = {f"{name}.{suffix}" for name in figures for suffix in ("png", "svg")}
    return {path.name for path in folder.iterdir()} == names | WRITTEN


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") and path.stat().st_size > 5000


def svg_text(path: Path) -> str:
    """All text of an SVG picture, which must be well-formed."""
    root = ET.parse(path).getroot()  # noqa: S314  (a file of our own making)
    return " ".join(" ".join(root.itertext()).split())


# A trial list against a store


@pytest.fixture(scope="module")
def trial_lines(voices, heard, demo) -> list[tuple[str, str, bool]]:
    """Claims for four voices on two files of each and of a stranger."""
    return [
        (claim, heard(speaker, n).relative_to(demo).as_posix(), claim == speaker)
        for speaker in (*voices, "marta")
        for n in range(2)
        for claim in voices
    ]


@pytest.fixture(scope="module")
def evaluated(run_in, store, demo, trial_lines, silence, tmp_path_factory):
    """The folder and result of an evaluation of every system, with three trials that cannot be scored."""
    folder = tmp_path_factory.mktemp("evaluated")
    failing = [("anna", str(silence), False), ("ivan", str(silence), False), ("anna", "verify/missing.flac", True)]
    text = "".join(
        f"{claim} {path} {'target' if own else 'nontarget'}\n" for claim, path, own in [*trial_lines, *failing]
    )
    (folder / "kaldi.txt").write_text(f"# claims\n\n{text}", encoding="utf-8")
    result = run_in(folder, "evaluate", store, "kaldi.txt", "--root", demo, "--out", "results", "--json")
    assert result.code == 4
    return folder / "results", result


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
    assert "Date" not in facts
    settings = parse_config(tomllib.loads(outline.all("pre")[0].text), source="report.html")
    assert settings == Store(store).load().config


def test_both_list_formats_give_the_same_scores_whatever_the_threads_and_the_page_has_the_date(
    evaluated, inside, store, demo, trial_lines, tmp_path
):
    text = "".join(f"{int(own)} {claim} {path}\n" for claim, path, own in trial_lines)
    (tmp_path / "voxceleb.txt").write_text(text, encoding="utf-8")
    words = ("--root", demo, "--out", "out", "--systems", "poar, rpoao", "-j", 1, "--date", "1 May <2026>")
    result = inside("evaluate", store, "voxceleb.txt", *words)
    assert result.code == 0
    ours, theirs = read_scores(tmp_path / "out/scores.txt"), read_scores(evaluated[0] / "scores.txt")
    assert list(ours) == ["poar", "rpoao"]
    for system, outcome in ours.items():
        np.testing.assert_allclose(outcome.scores, theirs[system].scores, rtol=0, atol=1e-12)
        assert system in result.out
    assert "metrics.json" in result.out
    outline = check_self_contained((tmp_path / "out/report.html").read_text(encoding="utf-8"))
    assert dict(outline.table("The list")[1:])["Date"] == "1 May <2026>"


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
    for key in ("eer_percent", "eer_interval_percent", "threshold", "false_reject_percent"):
        assert outcome[key] is None
    assert outcome["n_failed"] == 0
    assert 0 <= outcome["false_accept_percent"] <= 100
    assert written(tmp_path / "out", set())


def test_an_evaluation_that_cannot_be_is_an_error(refused, store, demo, tmp_path):
    anna = "anna verify/anna/25_96_34.flac target\n"
    for words, text, reported in [
        ((), "anna x.flac maybe\n", "line 1"),
        ((), "marta verify/marta/27_83_75.flac target\n", "'marta'"),
        ((), "anna missing.flac target\n", "missing.flac"),
        (("--systems", ","), anna, "system"),
        (("--out", "trials.txt"), anna, "trials.txt"),
    ]:
        (tmp_path / "trials.txt").write_text(text, encoding="utf-8")
        assert reported in refused("evaluate", store, "trials.txt", "--root", demo, "--out", "out", *words)
        assert (tmp_path / "trials.txt").read_text(encoding="utf-8") == text


# Several evaluations


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
        (("plot", "first", "--out", "x.png", "--systems", "oracle"), "oracle"),
        (("plot", "first", "--out", "no/such/folder/x.png"), "x.png"),
        (("compare", "first"), "two evaluation folders"),
        (("compare", "first", "nowhere"), "nowhere"),
        (("compare", "first", "second", "--system", "oracle"), "oracle"),
        (("compare", "first", "second", "--out", "first/scores.txt"), "first/scores.txt"),
    ]:
        assert reason in refused(*words)


# Scores of any system


def sklearn_eer(targets: np.ndarray, scores: np.ndarray) -> float:
    accepted, detected, _ = roc_curve(targets, scores, drop_intermediate=False)
    gap = accepted - (1 - detected)
    k = int(np.argmax(gap >= 0))
    return float(accepted[k - 1] - (accepted[k] - accepted[k - 1]) * gap[k - 1] / (gap[k] - gap[k - 1]))


def test_scores_and_key_give_the_files_of_any_evaluation(run, tmp_path, trials):
    rng = np.random.default_rng(0)
    rows = zip(trials.targets.astype(int), trials.models, trials.segments, strict=True)
    (tmp_path / "key.txt").write_text("".join(f"{label} {model} {segment}\n" for label, model, segment in rows))
    write_list(tmp_path / "other.tsv", trials[rng.permutation(len(trials))], format_name="nist", kind="scores")
    done = run("evaluate", "--scores", "other.tsv", "--key", "key.txt", "--out", "out")
    assert done.code == 0
    table = json.loads((tmp_path / "out" / "metrics.json").read_text())
    result = table["systems"]["other"]
    target, nontarget = trials.scores[trials.targets], trials.scores[~trials.targets]
    assert result["eer_percent"] / 100 == pytest.approx(sklearn_eer(trials.targets, trials.scores), abs=1e-12)
    assert result["cllr"] == pytest.approx(log_likelihood_ratio_cost(target, nontarget))
    assert result["min_cllr"] == pytest.approx(minimum_cllr(target, nontarget))
    assert result["act_dcf"] == pytest.approx(actual_cost(target, nontarget, 0.05))
    assert result["eer_interval_percent"][0] < result["eer_percent"] < result["eer_interval_percent"][1]
    assert (result["n_target"], result["n_nontarget"]) == (60, 660)
    assert table["formats"] == {"scores": "nist", "key": "voxceleb"}
    assert table["joined"] == {"other": {"trials": 720, "extra_scores": 0, "repeated_trials": 0, "repeated_scores": 0}}
    assert table["left_out"] == []
    assert written(tmp_path / "out", {"det", "fa_fr", "score_histogram", "reliability", "bayes_error"})
    again = read_scores(tmp_path / "out" / "scores.txt")["other"]
    assert again.scores.tolist() == again.llrs.tolist() == trials.scores.tolist()
    page = (tmp_path / "out" / "report.html").read_text()
    check_accessible(check_self_contained(page))
    assert "Score file" in page
    assert "<h2>Settings" not in page
    assert "store" not in page.split("<h2>Terms")[0]
    assert "other *" in done.out


def test_scores_without_llrs_have_no_calibration_and_unlisted_ones_are_counted(inside, refused, tmp_path, trials):
    write_list(tmp_path / "key.txt", trials[np.arange(700)], format_name="kaldi", kind="key")
    write_list(tmp_path / "sys.txt", trials, format_name="kaldi", kind="scores")
    result = inside("evaluate", "--scores", "sys.txt", "--key", "key.txt", "--out", "out")
    assert "sys: 20 scores of trials that are not in the key were ignored" in result.out
    table = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert table["systems"]["sys"]["cllr"] is table["systems"]["sys"]["act_dcf"] is None
    assert table["joined"]["sys"]["extra_scores"] == 20
    assert written(tmp_path / "out", {"det", "fa_fr", "score_histogram"})
    exchanged = refused("evaluate", "--scores", "key.txt", "--key", "sys.txt", "--out", "no")
    assert "line 1: the first line must read 'enroll test score'" in exchanged
    assert "got 'spk0 utt/0.wav target'; likely cause: " in exchanged
    assert "the file is no score file" in exchanged
    assert len(exchanged.strip().splitlines()) == 1
    assert not (tmp_path / "no").exists()


def test_options_that_do_not_go_together(refused):
    for words, message in [
        (("--scores", "s.txt", "store", "list.txt"), "STORE cannot be combined with --scores"),
        (("--scores", "s.txt", "--root", "x"), "--root cannot be combined with --scores"),
        (("--scores", "s.txt", "--backend", "threads"), "--backend cannot be combined with --scores"),
        (("store", "list.txt", "--scheduler", "tcp://x:1"), "requires --backend dask"),
        (("store",), "give STORE and TRIALS, or --scores FILE"),
        ((), "give STORE and TRIALS, or --scores FILE"),
        (("store", "list.txt", "--key", "k"), "--key requires --scores"),
        (("store", "list.txt", "--no-llr"), "--llr requires --scores"),
    ]:
        assert message in " ".join(refused("evaluate", *words, "--out", "out").split())


def test_convert_writes_the_system_and_the_part_asked_for(inside, refused, tmp_path, trials):
    other = replace(trials, scores=-trials.scores, llrs=None)
    scores = {
        name: SystemScores(of.models, of.segments, of.scores, of.targets)
        for name, of in (("one", trials), ("two", other))
    }
    write_list(tmp_path / "scores.csv", table_of(scores), format_name="csv")
    assert "720 trials" in inside("convert", "scores.csv", "one.tsv", "--to", "nist", "--system", "one", "--llr").out
    assert read_list(tmp_path / "one.tsv").llrs.tolist() == trials.scores.tolist()
    assert "holds the scores of one system, got 2: one, two" in refused("convert", "scores.csv", "x", "--to", "nist")
    assert "it has the systems one, two" in refused("convert", "scores.csv", "x", "--to", "nist", "--system", "three")
    inside("convert", "scores.csv", "key.csv", "--to", "csv", "--write", "key", "--system", "two")
    assert read_list(tmp_path / "key.csv").targets.tolist() == trials.targets.tolist()


def test_a_missing_library_is_an_error_in_one_line(tmp_path, trials):
    write_list(tmp_path / "scores", trials, format_name="parquet")
    code = "import sys; sys.modules['pyarrow'] = None; from pipeline.cli.main import main; main()"
    words = ("evaluate", "--scores", tmp_path / "scores", "--out", tmp_path / "out")
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'voiceclaim[formats]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
