"""`voiceclaim evaluate --scores` and `voiceclaim convert`: scores of any system, from files, as a user has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from html_outline import check_accessible, check_self_contained
from sklearn.metrics import roc_curve
from typer.testing import CliRunner

from pipeline.cli.main import app
from pipeline.errors import InputError, TrialListError
from pipeline.evaluation import (
    NameColumn,
    SystemScores,
    TrialTable,
    read_list,
    read_scored,
    read_scores,
    report,
    write_list,
)
from pipeline.evaluation import assess as assessment
from pipeline.evaluation.assess import left_out, measure
from pipeline.evaluation.columns import as_names
from pipeline.evaluation.comparison_report import plot_evaluations
from pipeline.evaluation.plots.det import _det_points, _thinned
from pipeline.evaluation.scores import table_of
from pipeline.metrics import actual_cost, error_curve, log_likelihood_ratio_cost, minimum_cllr

MAIN = (sys.executable, "-c", "from pipeline.cli.main import main; main()")
FIGURES = {"det", "det_interval", "fa_fr", "score_histogram"}


def run(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*MAIN, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def inside(*words: object) -> str:
    """Return the output of the command, run in this process."""
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def trials() -> TrialTable:
    """Twelve models, sixty segments of their own, every segment claimed for everybody."""
    rng = np.random.default_rng(5)
    models = np.tile(np.arange(12), 60).astype(np.int32)
    segments = np.repeat(np.arange(60), 12).astype(np.int32)
    targets = models == segments % 12
    scores = np.round(rng.normal(np.where(targets, 2.0, -2.0), 1.6), 3)
    return TrialTable(
        NameColumn(as_names(f"spk{k}" for k in range(12)), models),
        NameColumn(as_names(f"utt/{k}.wav" for k in range(60)), segments),
        targets,
        scores,
        scores,
    )


def sklearn_eer(targets: np.ndarray, scores: np.ndarray) -> float:
    accepted, detected, _ = roc_curve(targets, scores, drop_intermediate=False)
    gap = accepted - (1 - detected)
    k = int(np.argmax(gap >= 0))
    return float(accepted[k - 1] - (accepted[k] - accepted[k - 1]) * gap[k - 1] / (gap[k] - gap[k - 1]))


def test_the_command_gives_the_files_of_any_evaluation(tmp_path, trials):
    rng = np.random.default_rng(0)
    write_list(tmp_path / "key.txt", trials, format_name="voxceleb", kind="key")
    write_list(tmp_path / "other.tsv", trials[rng.permutation(len(trials))], format_name="nist", kind="scores")
    done = run("evaluate", "--scores", tmp_path / "other.tsv", "--key", tmp_path / "key.txt", "--out", tmp_path / "out")
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
    assert table["joined"]["other"]["trials"] == 720
    assert table["left_out"] == []
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figures = FIGURES | {"reliability", "bayes_error"}
    assert names == {f"{name}.{kind}" for name in figures for kind in ("png", "svg")} | {
        "scores.txt", "metrics.json", "report.html"
    }  # fmt: skip
    again = read_scores(tmp_path / "out" / "scores.txt")["other"]
    assert again.scores.tolist() == trials.scores.tolist()
    assert again.llrs.tolist() == trials.scores.tolist()
    page = (tmp_path / "out" / "report.html").read_text()
    check_accessible(check_self_contained(page))
    assert "Score file" in page
    assert "<h2>Settings" not in page
    assert "store" not in page.split("<h2>Terms")[0]
    assert "other *" in done.stdout


def test_scores_without_llrs_have_no_calibration_and_say_what_was_left_out(tmp_path, trials):
    write_list(tmp_path / "key.txt", trials[np.arange(700)], format_name="kaldi", kind="key")
    write_list(tmp_path / "sys.txt", trials, format_name="kaldi", kind="scores")
    words = ("--scores", tmp_path / "sys.txt", "--key", tmp_path / "key.txt", "--out", tmp_path / "out")
    assert "sys: 20 scores of trials that are not in the key were ignored" in inside("evaluate", *words)
    table = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert table["systems"]["sys"]["cllr"] is None
    assert table["systems"]["sys"]["act_dcf"] is None
    assert table["joined"]["sys"]["extra_scores"] == 20
    assert not (tmp_path / "out" / "bayes_error.png").exists()


def test_scores_and_key_exchanged(tmp_path, trials):
    write_list(tmp_path / "key.txt", trials, format_name="kaldi", kind="key")
    write_list(tmp_path / "sys.txt", trials, format_name="kaldi", kind="scores")
    words = ("--scores", tmp_path / "key.txt", "--key", tmp_path / "sys.txt", "--out", tmp_path / "no")
    error = run("evaluate", *words, code=2).stderr
    assert "line 1: the first line must read 'enroll test score'" in error
    assert "got 'spk0 utt/0.wav target'; likely cause: " in error
    assert "the file is no score file" in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--scores", "s.txt", "store", "list.txt"), "STORE cannot be combined with --scores"),
        (("--scores", "s.txt", "--root", "x"), "--root cannot be combined with --scores"),
        (("store",), "give STORE and TRIALS, or --scores FILE"),
        ((), "give STORE and TRIALS, or --scores FILE"),
        (("store", "list.txt", "--key", "k"), "--key requires --scores"),
        (("store", "list.txt", "--no-llr"), "--llr requires --scores"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, words, message):
    shown = CliRunner().invoke(app, ["evaluate", *words, "--out", str(tmp_path / "out")])
    assert shown.exit_code == 2
    assert message in " ".join(shown.output.replace("│", " ").split())


@pytest.mark.slow
def test_a_long_list_is_bounded_and_kept_as_parquet(tmp_path, trials, monkeypatch):
    write_list(tmp_path / "scores.csv", trials, format_name="csv")
    result = read_scored(tmp_path / "scores.csv")
    about = report.about_scores(tmp_path / "scores.csv", None, result)
    out = tmp_path / "out"
    (out / "scores.txt").parent.mkdir()
    (out / "scores.txt").write_text("of an earlier evaluation")
    with monkeypatch.context() as patch:
        patch.setattr(assessment, "MOST_RESAMPLED", 500)
        patch.setattr(report, "MOST_RESAMPLED", 500)
        patch.setattr(assessment, "MOST_SPEAKERS", 10)
        scores = result.scores["scores"]
        assert len(left_out(scores)) == 2
        assert report.about_scores(tmp_path / "scores.csv", None, result)["left_out"] == list(left_out(scores))
        long = written(out, result, about)
    assert long["eer_interval_percent"] is None
    assert long["speaker_eer_percent"] is None
    assert (out / "scores.parquet").is_file()
    assert not (out / "scores.txt").exists()
    kept = report.read_results(out)["scores"]
    assert kept.scores.tolist() == scores.scores.tolist()
    assert list(kept.paths) == list(scores.paths)
    assert kept.is_target.tolist() == scores.is_target.tolist()
    assert plot_evaluations([out], tmp_path / "det.svg") == (tmp_path / "det.svg",)
    short = written(out, result, about)
    bounded = {"eer_interval_percent", "eer_percent_ci95", "speaker_eer_percent", "affine_cllr"}
    same = short.keys() - bounded
    assert {name: long[name] for name in same} == {name: short[name] for name in same}
    assert not (out / "scores.parquet").exists()
    assert report.read_results(out)["scores"].scores.tolist() == scores.scores.tolist()


def test_names_that_no_line_can_hold_and_lists_of_one_class(tmp_path, trials):
    odd = TrialTable(NameColumn.of(["a\tb"] * 4), NameColumn.of("uvwx"), np.ones(4, bool), np.arange(4.0))
    write_list(tmp_path / "scores.parquet", odd, format_name="parquet")
    result = read_scored(tmp_path / "scores.parquet")
    metrics = written(tmp_path / "out", result, report.about_scores(tmp_path / "scores.parquet", None, result))
    assert metrics["eer_percent"] is None
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"metrics.json", "scores.parquet", "report.html"}
    assert set(report.read_results(tmp_path / "out")["scores"].speakers) == {"a\tb"}


def written(out: Path, result, about) -> dict:
    metrics = {name: measure(of, threshold=None, seed=0, bounded=True) for name, of in result.scores.items()}
    table = report.metrics_table(metrics, default_system="scores", failed_trials=0, about=about)
    report.write_evaluation(out, result.scores, table)
    return json.loads((out / "metrics.json").read_text())["systems"]["scores"]


def test_measures_do_not_depend_on_how_names_are_coded(trials):
    shuffled = trials[np.random.default_rng(1).permutation(len(trials))]
    renamed = replace(shuffled, models=NameColumn.of(shuffled.models), segments=NameColumn.of(shuffled.segments))
    first, second = (
        measure(SystemScores(of.models, of.segments, of.scores, of.targets, of.llrs), threshold=0.5, seed=3)
        for of in (shuffled, renamed)
    )
    assert first.eer_interval is not None
    assert (first.eer, first.speaker_spread) == (second.eer, second.speaker_spread)
    assert (first.costs, first.identification_error) == (second.costs, second.identification_error)


def test_a_spk2utt_is_a_key(tmp_path, trials):
    owned = {f"spk{k}": [f"utt/{n}.wav" for n in range(60) if n % 12 == k] for k in range(12)}
    (tmp_path / "spk2utt").write_text("".join(f"{name} {' '.join(own)}\n" for name, own in owned.items()))
    write_list(tmp_path / "scores", trials, format_name="kaldi", kind="scores")
    result = read_scored(tmp_path / "scores", tmp_path / "spk2utt", llr=True)
    assert result.scores["scores"].is_target.tolist() == trials.targets.tolist()
    assert result.scores["scores"].llrs.tolist() == trials.scores.tolist()
    assert result.key_format == "spk2utt"


def test_systems_are_chosen_and_named(tmp_path, trials):
    other = TrialTable(trials.models, trials.segments, trials.targets, -trials.scores)
    scores = {
        name: SystemScores(of.models, of.segments, of.scores, of.targets, of.llrs)
        for name, of in (("one", trials), ("two", other))
    }
    write_list(tmp_path / "scores.txt", table_of(scores), format_name="voiceclaim")
    result = read_scored(tmp_path / "scores.txt")
    assert list(result.scores) == ["one", "two"]
    assert result.scores["one"].llrs.tolist() == trials.scores.tolist()
    assert result.scores["two"].llrs is None
    assert list(read_scored(tmp_path / "scores.txt", systems=["two"], llr=False).scores) == ["two"]
    with pytest.raises(InputError, match="it has the systems one, two, got three"):
        read_scored(tmp_path / "scores.txt", systems=["three"])
    write_list(tmp_path / "key", trials, format_name="kaldi", kind="key")
    both = read_scored(tmp_path / "scores.txt", tmp_path / "key")
    assert both.scores["two"].scores.tolist() == (-trials.scores).tolist()
    shown = inside("convert", tmp_path / "scores.txt", tmp_path / "one.tsv", "--to", "nist", "--system", "one")
    assert "720 trials" in shown
    assert read_list(tmp_path / "one.tsv").llrs.tolist() == trials.scores.tolist()
    error = run("convert", tmp_path / "scores.txt", tmp_path / "x", "--to", "nist", code=2).stderr
    assert "holds the scores of one system, got 2: one, two" in error
    words = ("convert", tmp_path / "scores.txt", tmp_path / "key.csv", "--to", "csv", "--write", "key")
    inside(*words, "--system", "two")
    assert read_list(tmp_path / "key.csv").targets.sum() == 60


def test_files_without_what_is_asked_of_them(tmp_path, trials):
    write_list(tmp_path / "scores", trials, format_name="kaldi", kind="scores")
    write_list(tmp_path / "trials.tsv", trials, format_name="nist", kind="trials")
    with pytest.raises(TrialListError, match="have no labels; give the key to them with --key"):
        read_scored(tmp_path / "scores")
    with pytest.raises(TrialListError, match="scores were expected, got a list without any"):
        read_scored(tmp_path / "trials.tsv", tmp_path / "scores")
    with pytest.raises(TrialListError, match="a key must label its trials"):
        read_scored(tmp_path / "scores", tmp_path / "trials.tsv")
    write_list(tmp_path / "labels", trials[trials.targets], format_name="kaldi", kind="key")
    write_list(tmp_path / "x.csv", trials[trials.targets], format_name="csv", kind="scores")
    one_class = read_scored(tmp_path / "x.csv", tmp_path / "labels").scores["x"]
    assert measure(one_class, threshold=None, seed=0, bounded=True).eer is None


def test_a_missing_library_is_an_error_in_one_line(tmp_path, trials):
    write_list(tmp_path / "scores", trials, format_name="parquet")
    code = "import sys; sys.modules['pyarrow'] = None; from pipeline.cli.main import main; main()"
    words = ["evaluate", "--scores", tmp_path / "scores", "--key", tmp_path / "scores", "--out", tmp_path / "out"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 2
    assert "pip install 'voiceclaim[formats]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("ties", [0, 2])
def test_a_long_curve_is_thinned_without_leaving_its_place(ties, monkeypatch):
    rng = np.random.default_rng(1)
    target, nontarget = rng.normal(2, 1.2, 3000), rng.normal(-1, 1, 60_000)
    if ties:
        target, nontarget = target.round(ties), nontarget.round(ties)
    curve = error_curve(target, nontarget)
    whole = np.array(_det_points(curve.false_accept, curve.false_reject, 3000, 60_000))
    monkeypatch.setattr("pipeline.evaluation.plots.det._LONG_CURVE", 0)
    accepts, rejects = _thinned(curve)
    thin = np.array(_det_points(accepts, rejects, 3000, 60_000))
    assert accepts.size < curve.false_accept.size or ties
    # As far as print can show: from every point of the one to the line of the other, in normal deviates.
    across = np.hypot(*(whole[:, :, None] - thin[:, None, :])).min(axis=1)
    assert across.max() < 0.06
