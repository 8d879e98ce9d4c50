"""`voiceclaim evaluate` with scores and a key of any system, and `convert`: files written, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from evaluations import written
from html_outline import check_accessible, check_self_contained

from pipeline.evaluation import SystemScores, read_list, read_scores, write_list
from pipeline.evaluation.scores import table_of
from pipeline.metrics import actual_cost, equal_error_rate, log_likelihood_ratio_cost, minimum_cllr


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
    assert result["eer_percent"] == pytest.approx(100 * equal_error_rate(target, nontarget).rate)
    assert result["cllr"] == pytest.approx(log_likelihood_ratio_cost(target, nontarget))
    assert result["min_cllr"] == pytest.approx(minimum_cllr(target, nontarget))
    assert result["act_dcf"] == pytest.approx(actual_cost(target, nontarget, 0.05))
    assert result["eer_percent_ci95"][0] < result["eer_percent"] < result["eer_percent_ci95"][1]
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
    assert "DCF at prior 0.05; ID err" in done.out


def test_distances_in_place_of_scores_are_suspected(inside, tmp_path, trials):
    write_list(tmp_path / "key.txt", trials, format_name="kaldi", kind="key")
    for sign, is_said in ((-1, True), (1, False)):
        write_list(tmp_path / "s.txt", replace(trials, scores=sign * trials.scores), format_name="kaldi", kind="scores")
        shown = inside("evaluate", "--scores", "s.txt", "--key", "key.txt", "--out", "out").out
        assert ("s: targets score lower than nontargets; are these distances? Negate them\n" in shown) is is_said


def test_a_key_of_numbers_alone_is_read_after_convert_is_told_its_format(inside, refused, tmp_path):
    pairs = [(model, segment) for model in range(2) for segment in range(20)]
    (tmp_path / "key.txt").write_text("".join(f"{m} {n} {int(n % 2 == m)}\n" for m, n in pairs))
    (tmp_path / "s.txt").write_text("".join(f"{m} {n} {n + 10 * (n % 2 == m)}\n" for m, n in pairs))
    words = ("evaluate", "--scores", "s.txt", "--format", "kaldi", "--out", "out", "--key")
    assert "36 of 40 have none" in refused(*words, "key.txt")  # read as VoxCeleb's
    inside("convert", "key.txt", "key.csv", "--format", "kaldi", "--to", "csv", "--write", "key")
    inside(*words, "key.csv")
    table, own = json.loads((tmp_path / "out" / "metrics.json").read_text()), np.arange(20.0)
    assert table["systems"]["s"]["eer_percent"] == pytest.approx(100 * equal_error_rate(own + 10, own).rate)


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
    assert "were scores and key exchanged?" in exchanged
    assert len(exchanged.strip().splitlines()) == 1
    assert not (tmp_path / "no").exists()


def test_options_that_do_not_go_together(refused):
    for words, message in [
        (("--scores", "s.txt", "store", "list.txt"), "STORE cannot be combined with --scores"),
        (("--scores", "s.txt", "--root", "x"), "--root cannot be combined with --scores"),
        (("--scores", "s.txt", "--scheduler", "tcp://x:1"), "--scheduler cannot be combined with --scores"),
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
