"""The metrics of a list and the files of an evaluation, from scores made up here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from pipeline import __version__
from pipeline.assessment import Assessment, measure
from pipeline.config import parse_config
from pipeline.evaluation import (
    OPERATING_POINTS,
    ErrorRates,
    ScoreRow,
    SystemScores,
    Trial,
    actual_cost,
    affine_cllr,
    detection_cost,
    equal_error_rate,
    equal_error_rate_hull,
    identification_error,
    log_likelihood_ratio_cost,
    minimum_cllr,
    rates_at,
    read_scores,
    speaker_error_rates,
)
from pipeline.report import about_evaluation, metrics_table, write_evaluation
from pipeline.store import SpeakerStore

KEYS = {
    "eer_percent",
    "eer_interval_percent",
    "eer_percent_ci95",
    "eer_hull_percent",
    "threshold",
    "min_dcf",
    "act_dcf",
    "min_dcf_p01",
    "cllr",
    "min_cllr",
    "affine_cllr",
    "identification_error_percent",
    "speaker_eer_percent",
    "operating_points",
    "store_threshold",
    "false_accept_percent",
    "false_reject_percent",
    "n_target",
    "n_nontarget",
    "n_failed",
}


def rows_of(system: str, *, llr=None, speakers: int = 5, seed: int = 0) -> list[ScoreRow]:
    """Four files of each speaker, every file claimed for everybody; ``llr`` maps a score to its ratio."""
    generator = np.random.default_rng(seed)
    rows = []
    for own in range(speakers):
        for file in range(4):
            for claim in range(speakers):
                score = float(generator.normal(1.5 * (own == claim), 1))
                ratio = None if llr is None else llr(score)
                rows.append(ScoreRow(system, f"s{claim}", f"s{own}/{file}.wav", score, own == claim, ratio))
    return rows


def assessed(*systems: list[ScoreRow]) -> Assessment:
    rows = tuple(row for its_rows in systems for row in its_rows)
    return Assessment(rows, {its_rows[0].system: SystemScores.from_rows(its_rows) for its_rows in systems}, ())


def table_of(assessment: Assessment, default: str) -> dict:
    metrics = {name: measure(scores, threshold=0.7, seed=1) for name, scores in assessment.scores.items()}
    return metrics_table(metrics, default_system=default, failed_trials=2, about={"trials": "list.txt"})


def test_entry_of_a_system_without_calibration():
    scores = SystemScores.from_rows(rows_of("rpoao"))
    entry = table_of(Assessment((), {"rpoao": scores}, ()), "rpoao")["systems"]["rpoao"]
    target, nontarget = scores.target, scores.nontarget
    assert entry.keys() == KEYS
    assert entry["eer_percent"] == 100 * equal_error_rate(target, nontarget).rate
    assert entry["eer_hull_percent"] == 100 * equal_error_rate_hull(target, nontarget) <= entry["eer_percent"]
    low, high = entry["eer_percent_ci95"]
    assert low <= entry["eer_percent"] <= high
    assert entry["eer_interval_percent"] == [low, high]
    assert entry["min_dcf"] == detection_cost(target, nontarget, prior=0.05).cost
    assert entry["min_dcf_p01"] == detection_cost(target, nontarget, prior=0.01).cost
    assert entry["min_cllr"] == minimum_cllr(target, nontarget)
    assert entry["affine_cllr"] == affine_cllr(target, nontarget)
    assert entry["act_dcf"] is entry["cllr"] is None
    assert entry["identification_error_percent"] == 100 * identification_error(scores)
    by_speaker = speaker_error_rates(scores)
    spread = entry["speaker_eer_percent"]
    assert spread["median"] == pytest.approx(100 * np.median([*by_speaker.values()]))
    assert spread["quartiles"] == pytest.approx(100 * np.quantile([*by_speaker.values()], [0.25, 0.75]))
    assert spread["worst"] == pytest.approx(100 * by_speaker[spread["worst_speaker"]])
    assert spread["worst"] == pytest.approx(100 * max(by_speaker.values()))
    assert entry["operating_points"].keys() == OPERATING_POINTS.keys()
    for name, found in entry["operating_points"].items():
        point = OPERATING_POINTS[name]
        costs = {"prior": point.prior, "cost_miss": point.cost_miss, "cost_false_accept": point.cost_false_accept}
        assert found == {**costs, "min_dcf": detection_cost(target, nontarget, **costs).cost, "act_dcf": None}
    rates = rates_at(target, nontarget, 0.7)
    assert entry["false_accept_percent"] == 100 * rates.false_accept
    assert (entry["n_target"], entry["n_nontarget"], entry["n_failed"]) == (20, 80, 2)


def test_entry_of_a_calibrated_system_judges_the_ratios():
    # A calibration that merges scores: its minimum is above that of the scores, and still below its actual cost.
    scores = SystemScores.from_rows(rows_of("rpoao", llr=lambda score: float(np.clip(round(2 * score - 1), -2, 2))))
    entry = table_of(Assessment((), {"rpoao": scores}, ()), "rpoao")["systems"]["rpoao"]
    llrs = scores.target_llrs, scores.nontarget_llrs
    assert entry["eer_percent"] == 100 * equal_error_rate(scores.target, scores.nontarget).rate
    assert entry["cllr"] == log_likelihood_ratio_cost(*llrs)
    assert entry["min_cllr"] == minimum_cllr(*llrs)
    assert entry["affine_cllr"] == affine_cllr(*llrs)
    assert minimum_cllr(scores.target, scores.nontarget) < entry["min_cllr"] < entry["cllr"]
    assert entry["act_dcf"] == entry["operating_points"]["p05"]["act_dcf"] == actual_cost(*llrs, 0.05)
    assert entry["min_dcf"] == entry["operating_points"]["p05"]["min_dcf"]
    for found in entry["operating_points"].values():
        costs = {name: found[name] for name in ("prior", "cost_miss", "cost_false_accept")}
        assert (
            found["min_dcf"] == detection_cost(*llrs, **costs).cost <= found["act_dcf"] == actual_cost(*llrs, **costs)
        )


@pytest.mark.parametrize("llr", [None, lambda score: score])
@pytest.mark.parametrize("target", [True, False])
def test_what_a_list_of_one_class_does_not_define_is_null(llr, target):
    rows = [row for row in rows_of("poao", llr=llr) if row.target == target]
    entry = table_of(assessed(rows), "poao")["systems"]["poao"]
    defined = {name for name, value in entry.items() if value is not None}
    side = "false_reject_percent" if target else "false_accept_percent"
    assert defined == {"operating_points", "store_threshold", side, "n_target", "n_nontarget", "n_failed"}
    for found in entry["operating_points"].values():
        assert found["prior"] > 0
        assert found["min_dcf"] is found["act_dcf"] is None


def test_nothing_scored_at_all_is_measured_too():
    found = measure(SystemScores.from_rows([]), threshold=0.0, seed=0)
    assert (found.n_target, found.n_nontarget, found.eer, found.min_cost, found.speaker_spread) == (0, 0, *[None] * 3)
    assert found.at_store_threshold == ErrorRates(None, None)


def test_one_speaker_has_no_interval():
    rows = [row for row in rows_of("poao") if row.speaker == "s0"]
    entry = table_of(assessed(rows), "poao")["systems"]["poao"]
    assert entry["eer_percent"] is not None
    assert entry["eer_percent_ci95"] is None
    assert entry["speaker_eer_percent"]["worst_speaker"] == "s0"


CLOSE = {f"{name}.{kind}" for name in ("det_interval", "score_histogram") for kind in ("png", "svg")}
CALIBRATED = {f"{name}.{kind}" for name in ("reliability", "bayes_error") for kind in ("png", "svg")}


def files_of(tmp_path, assessment: Assessment, default: str) -> set[str]:
    written = write_evaluation(tmp_path / "out", assessment, table_of(assessment, default))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {path.name for path in written} == names
    return names


def test_the_default_system_is_shown_closely_and_calibration_where_there_is_one(tmp_path):
    plain, calibrated = rows_of("boao"), rows_of("rpoao", llr=lambda score: 2 * score - 1, seed=1)
    names = files_of(tmp_path, assessed(plain, calibrated), "rpoao")
    assert names >= CLOSE | CALIBRATED
    drawn = (tmp_path / "out" / "score_histogram.svg").read_text(encoding="utf-8")
    assert "rpoao" in drawn
    assert "threshold 0.7" in drawn
    assert "95 % interval" in (tmp_path / "out" / "det_interval.svg").read_text(encoding="utf-8")
    found = read_scores(tmp_path / "out" / "scores.txt")
    assert found["boao"].llrs is None
    assert found["rpoao"].llrs == pytest.approx(2 * found["rpoao"].scores - 1)
    table = json.loads((tmp_path / "out" / "metrics.json").read_text(encoding="utf-8"))
    assert table["systems"]["boao"]["cllr"] is None
    assert math.isfinite(table["systems"]["rpoao"]["cllr"])


def test_without_calibration_there_are_no_calibration_figures(tmp_path):
    names = files_of(tmp_path, assessed(rows_of("boao"), rows_of("rpoao", llr=lambda score: score)), "boao")
    assert names >= CLOSE
    assert not names & CALIBRATED


def test_one_speaker_is_drawn_without_a_band(tmp_path):
    names = files_of(tmp_path, assessed([row for row in rows_of("boao") if row.speaker == "s0"]), "boao")
    assert names >= CLOSE
    assert "95 % interval" not in (tmp_path / "out" / "det_interval.svg").read_text(encoding="utf-8")


def test_one_class_is_not_drawn(tmp_path):
    rows = [row for row in rows_of("boao", llr=lambda score: score) if row.target]
    assert files_of(tmp_path, assessed(rows), "boao") == {"scores.txt", "metrics.json", "report.html"}


def test_a_system_without_a_threshold_has_no_rates_at_it(tmp_path):
    assessment = assessed(rows_of("pkpd"), rows_of("wu_lin_weng", seed=1))
    metrics = {name: measure(scores, threshold=None, seed=1) for name, scores in assessment.scores.items()}
    table = metrics_table(metrics, default_system="pkpd", failed_trials=0, about={"trials": "list.txt"})
    entry = table["systems"]["pkpd"]
    assert entry["eer_percent"] is not None
    for key in ("store_threshold", "false_accept_percent", "false_reject_percent"):
        assert entry[key] is None
    written = {path.name for path in write_evaluation(tmp_path / "out", assessment, table)}
    assert written >= CLOSE | {"report.html", "fa_fr_comparison.svg"}
    assert "threshold" not in (tmp_path / "out" / "score_histogram.svg").read_text(encoding="utf-8")


def test_metrics_say_what_list_and_store_they_are_of(store):
    opened = SpeakerStore.open(store)
    claims = [Trial("anna", "a.wav", True), Trial("anna", "b.wav", False), Trial("ivan", "a.wav", False)]
    about = about_evaluation(opened, Path("lists") / "trials.txt", claims)
    counts = {"speakers": 4, "speakers_claimed": 2, "files": 2}
    assert about.items() >= {**counts, "trials": str(Path("lists") / "trials.txt"), "version": __version__}.items()
    assert about["store"] == str(store)
    # What is read back from the file is what was in force.
    assert parse_config(json.loads(json.dumps(about["settings"])), source="metrics.json") == opened.config
