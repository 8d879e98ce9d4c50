"""The files of an evaluation, from scores made up here: metrics.json, the figures, and report.html."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from html_outline import Outline, check_accessible, check_self_contained
from score_rows import ScoreRow, scores_from
from trial_scores import rows_of

from pipeline.config import Config, load_config, parse_config
from pipeline.evaluation import SystemScores, identification_error, read_scores, speaker_error_rates
from pipeline.evaluation.assess import FailedFile
from pipeline.evaluation.details import details_of
from pipeline.evaluation.measure import measure
from pipeline.evaluation.metrics_table import metrics_table
from pipeline.evaluation.pages import TEMPLATES, evaluation_page, settings_toml
from pipeline.evaluation.report import write_evaluation
from pipeline.metrics import (
    OPERATING_POINTS,
    Unscored,
    actual_cost,
    affine_cllr,
    detection_cost,
    equal_error_rate,
    equal_error_rate_hull_of,
    error_curve,
    false_reject_at,
    log_likelihood_ratio_cost,
    minimum_cllr,
    rates_at,
)

KEYS = {
    "eer_percent", "eer_percent_ci95", "eer_hull_percent", "threshold", "min_dcf", "act_dcf",
    "min_dcf_p01", "cllr", "min_cllr", "affine_cllr", "identification_error_percent", "speaker_eer_percent",
    "operating_points", "store_threshold", "false_accept_percent", "false_reject_percent", "n_target", "n_nontarget",
    "n_failed", "unscored", "generalised", "sample_size", "mean_costs", "false_reject_at_false_accept_percent",
    "false_accept_at_false_reject_percent", "by_metadata",
}  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=http://x.example/y onerror='alert(2)'>",
    "</style></table><!-- & &amp; &#60;",
    "'\"`${7*7}{{7*7}}",
)
ABOUT = {
    "trials": "lists/trials.txt",
    "store": "speakers.store",
    "speakers": 7,
    "speakers_claimed": 5,
    "files": 21,
    "version": "9.9.9",
    "settings": Config().model_dump(mode="json"),
}


def table_of(scores: dict[str, SystemScores], *, threshold: float | None = 0.61, failed: int = 2, about=ABOUT) -> dict:
    """The content of metrics.json; the last system is the default."""
    unscored = Unscored(target=min(failed, 1), nontarget=max(failed - 1, 0))
    metrics = {name: measure(system, threshold=threshold, seed=3, unscored=unscored) for name, system in scores.items()}
    return metrics_table(metrics, default_system=list(scores)[-1], about=about)


def entry_of(rows: list[ScoreRow]) -> dict:
    return table_of({rows[0].system: scores_from(rows)})["systems"][rows[0].system]


def written(out: Path, *systems, failed=(), threshold: float | None = 0.61, about=ABOUT, **printed) -> tuple[str, dict]:
    """report.html and metrics.json of an evaluation of these rows, whose default is the last system."""
    scores = {rows[0].system: scores_from(rows) for rows in systems}
    table = table_of(scores, threshold=threshold, failed=sum(file.trials for file in failed), about=about)
    paths = write_evaluation(out, scores, table, failed=failed, **printed)
    assert sorted(paths) == sorted(out.iterdir())
    saved = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    return (out / "report.html").read_text(encoding="utf-8"), saved


SYSTEMS = rows_of("boao", seed=1), rows_of("rpoao", llr=lambda score: 1.7 * score - 0.9, seed=2)
FAILED = [FailedFile("b/mute.wav", "b/mute.wav: 0.00 s of speech found", 5)]
COMMAND = "voiceclaim evaluate speakers.store 'my list.txt' --out out"


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """A page, its metrics and its folder: a system without a calibration, and a calibrated one, the default."""
    out = tmp_path_factory.mktemp("report") / "out"
    return *written(out, *SYSTEMS, failed=FAILED, command=COMMAND), out


def leaves(value) -> list[float]:
    """All numbers in a piece of JSON."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in leaves(item)]
    if isinstance(value, list):
        return [number for item in value for number in leaves(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


# metrics.json


def test_entry_of_a_system_without_calibration():
    rows = rows_of("rpoao")
    scores, entry = scores_from(rows), entry_of(rows)
    pair, by_speaker = (scores.target, scores.nontarget), speaker_error_rates(scores)
    assert entry.keys() == KEYS
    low, high = entry["eer_percent_ci95"]
    spread, rates = entry["speaker_eer_percent"], [*by_speaker.values()]
    assert (
        entry.items()
        >= {
            "eer_percent": 100 * equal_error_rate(*pair).rate,
            "eer_percent_ci95": [low, high],
            "eer_hull_percent": 100 * equal_error_rate_hull_of(error_curve(*pair)),
            "min_dcf": detection_cost(*pair, prior=0.05).cost,
            "min_dcf_p01": detection_cost(*pair, prior=0.01).cost,
            "min_cllr": minimum_cllr(*pair),
            "affine_cllr": affine_cllr(*pair),
            "act_dcf": None,
            "cllr": None,
            "identification_error_percent": 100 * identification_error(scores),
            "false_accept_percent": 100 * rates_at(*pair, 0.61).false_accept,
            "n_target": 20,
            "n_nontarget": 80,
            "n_failed": 2,
        }.items()
    )
    assert low <= entry["eer_percent"] <= high and entry["eer_hull_percent"] <= entry["eer_percent"]
    assert [spread["median"], *spread["quartiles"]] == pytest.approx(100 * np.quantile(rates, [0.5, 0.25, 0.75]))
    assert spread["worst"] == 100 * max(rates) == 100 * by_speaker[spread["worst_speaker"]]
    assert entry["operating_points"].keys() == OPERATING_POINTS.keys()
    for name, costs in entry["operating_points"].items():
        point = dataclasses.asdict(OPERATING_POINTS[name])
        assert costs == {**point, "min_dcf": detection_cost(*pair, **point).cost, "act_dcf": None}


def test_costs_of_a_calibrated_system_are_those_of_the_ratios():
    # A calibration that merges scores: its minimum is above that of the scores, and still below its actual cost.
    rows = rows_of("rpoao", llr=lambda score: float(np.clip(round(2 * score - 1), -2, 2)))
    scores, entry = scores_from(rows), entry_of(rows)
    llrs = scores.llrs[scores.is_target], scores.llrs[~scores.is_target]
    assert entry["eer_percent"] == 100 * equal_error_rate(scores.target, scores.nontarget).rate
    assert entry["cllr"] == log_likelihood_ratio_cost(*llrs)
    assert entry["min_cllr"] == minimum_cllr(*llrs)
    assert entry["affine_cllr"] == affine_cllr(*llrs)
    assert minimum_cllr(scores.target, scores.nontarget) < entry["min_cllr"] < entry["cllr"]
    p05 = entry["operating_points"]["p05"]
    assert (entry["min_dcf"], entry["act_dcf"]) == (p05["min_dcf"], p05["act_dcf"])
    for point in entry["operating_points"].values():
        costs = {name: point[name] for name in ("prior", "cost_miss", "cost_false_accept")}
        actual, minimum = actual_cost(*llrs, **costs), detection_cost(*llrs, **costs).cost
        assert point["min_dcf"] == minimum <= point["act_dcf"] == actual


@pytest.mark.parametrize("llr", [None, lambda score: score])
@pytest.mark.parametrize("target", [True, False])
def test_metrics_that_a_list_of_one_class_does_not_define_are_null(llr, target):
    entry = entry_of([row for row in rows_of("poao", llr=llr) if row.target == target])
    defined = {name for name, value in entry.items() if value is not None}
    side = "false_reject_percent" if target else "false_accept_percent"
    nested = {
        "operating_points", "mean_costs", "false_reject_at_false_accept_percent",
        "false_accept_at_false_reject_percent", "sample_size", "unscored", "generalised", "by_metadata",
    }  # fmt: skip
    assert defined == {*nested, "store_threshold", side, "n_target", "n_nontarget", "n_failed"}
    of_rates = leaves([entry["mean_costs"], entry["false_reject_at_false_accept_percent"]])
    assert of_rates == [] == leaves(entry["false_accept_at_false_reject_percent"])
    other = "nontarget" if target else "target"
    assert set(entry["sample_size"][other].values()) == {None}
    for point in entry["operating_points"].values():
        assert point["prior"] > 0
        assert point["min_dcf"] is point["act_dcf"] is None


def test_metrics_of_no_scores_at_all():
    entry = table_of({"poao": scores_from([])})["systems"]["poao"]
    assert (entry["n_target"], entry["n_nontarget"], entry["eer_percent"], entry["min_dcf"]) == (0, 0, None, None)
    assert entry["speaker_eer_percent"] is entry["false_accept_percent"] is entry["false_reject_percent"] is None


# Figures


def test_figures_of_the_default_system(evaluation):
    _, _, out = evaluation
    histogram = (out / "score_histogram.svg").read_text(encoding="utf-8")
    assert "rpoao" in histogram
    assert "threshold 0.61" in histogram
    assert "95 % interval" in (out / "det.svg").read_text(encoding="utf-8")
    scores = read_scores(out / "scores.txt")
    assert scores["boao"].llrs is None
    assert scores["rpoao"].llrs == pytest.approx(1.7 * scores["rpoao"].scores - 0.9)


# report.html as a page


def test_the_page_is_self_contained_and_accessible(evaluation):
    page, _, out = evaluation
    outline = check_self_contained(page)
    check_accessible(outline)
    (policy,) = [m for m in outline.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy.attributes["content"]
    assert policy.attributes["content"].count("script-src") == 1
    assert "@media print" in outline.all("style")[0].text
    assert set(outline.pictures()) == {path.read_bytes() for path in out.glob("*.svg")}
    names = {"det", "score_histogram", "reliability", "bayes_error", "fa_fr_one_vs_one"}
    assert {path.stem for path in out.glob("*.svg")} == names


def test_the_same_evaluation_gives_the_same_page(evaluation, tmp_path):
    again = written(tmp_path / "out", *SYSTEMS, failed=FAILED, command=COMMAND)[0]
    assert again == evaluation[0]


# Its content


def test_every_number_of_the_default_system_is_in_the_page_exactly_and_rounded(evaluation):
    page, metrics, _ = evaluation
    shown = {float(data.attributes["value"]): data.text for data in Outline(page).all("data")}
    numbers = leaves(metrics["systems"]["rpoao"])
    assert len(numbers) > 40
    assert set(numbers) <= shown.keys()
    for value, words in shown.items():
        # Half a unit of the last digit shown.
        digits = len(words.partition(".")[2])
        assert abs(float(words) - value) <= 0.5 * 10.0**-digits * (1 + 1e-9)


def test_the_tables_of_systems_hold_the_metrics_of_each(evaluation):
    page, metrics, _ = evaluation
    outline = Outline(page)
    header, plain, calibrated = outline.table("Error rates and costs")
    assert header[:4] == ["system", "EER %", "95 % interval", "ROCCH-EER %"]
    assert (plain[0], calibrated[0]) == ("boao", "rpoao (default)")
    keys = ("min_dcf", "act_dcf", "cllr", "min_cllr", "affine_cllr")
    for row, entry in ((plain, metrics["systems"]["boao"]), (calibrated, metrics["systems"]["rpoao"])):
        low, high = entry["eer_percent_ci95"]
        rates = f"{entry['eer_percent']:.2f}", f"{low:.2f} to {high:.2f}", f"{entry['eer_hull_percent']:.2f}"
        costs = ["n/a" if entry[key] is None else f"{entry[key]:.3f}" for key in keys]
        assert row[1:10] == [*rates, *costs, f"{entry['identification_error_percent']:.2f}"]
    decisions = {row[0]: row[1:] for row in outline.table("Decisions")[1:]}
    rates = f"{entry['false_accept_percent']:.2f}", f"{entry['false_reject_percent']:.2f}"
    assert decisions["rpoao (default)"][:3] == ["0.61", *rates]
    points = {row[0]: row[1:] for row in outline.table("Detection costs of rpoao")[1:]}
    assert points.keys() == {*OPERATING_POINTS, "sre16: mean of p01, p005"}
    assert points["nist08"][:3] == ["0.01", "10", "1"]
    spread = outline.table("Equal error rates of the trials claiming each speaker")[2]
    assert (spread[1], spread[-1]) == (
        f"{entry['speaker_eer_percent']['median']:.2f}",
        entry["speaker_eer_percent"]["worst_speaker"],
    )


def test_rates_at_rates_and_generalised_rates_stand_in_the_page_and_in_the_metrics(evaluation):
    page, metrics, _ = evaluation
    entry, scores = metrics["systems"]["rpoao"], scores_from(SYSTEMS[1])
    curve = error_curve(scores.target, scores.nontarget)
    at = entry["false_reject_at_false_accept_percent"]
    assert at == {f"{rate:g}": 100 * false_reject_at(curve, rate) for rate in (1e-2, 1e-3, 1e-4)}
    row = Outline(page).table("One error rate, in percent")[2]
    assert row[0] == "rpoao (default)" and row[1] == f"{at['0.01']:.2f}"
    never = np.append(scores.target, -99), np.append(scores.nontarget, [-99] * 4)
    lost = rates_at(*never, 0.61)
    general = entry["generalised"]
    assert general["eer_percent"] == pytest.approx(100 * equal_error_rate(*never).rate)
    assert general["false_accept_percent"] == pytest.approx(100 * lost.false_accept)
    assert general["false_reject_percent"] == pytest.approx(100 * lost.false_reject)
    assert Outline(page).table("Generalised rates")[2][1:] == [f"{value:.2f}" for value in general.values()]
    assert entry["sample_size"]["target"] == {"rule_of_3_percent": 15.0, "rule_of_30_percent": 100.0}
    costs = [entry["operating_points"][point]["act_dcf"] for point in ("p01", "p005")]
    assert entry["mean_costs"]["sre16"]["act_dcf"] == pytest.approx(np.mean(costs))


def test_the_page_names_the_list_the_files_without_a_score_and_its_limits(evaluation):
    outline = Outline(evaluation[0])
    facts = dict(outline.table("The list")[1:])
    assert facts["Trial list"] == "lists/trials.txt"
    assert facts["Command"] == COMMAND
    assert facts["Voiceclaim version"] == "9.9.9"
    counts = {"Target trials scored": "20", "Nontarget trials scored": "80", "Trials without a score": "5"}
    assert facts.items() >= {**counts, "Files": "21", "Speakers claimed": "5", "Speakers enrolled": "7"}.items()
    (caveat,) = [paragraph.text for paragraph in outline.all("p") if paragraph.attributes.get("class") == "note"]
    assert caveat.startswith("Note: these error rates apply to audio like this test list.")
    rows = outline.table("Their trials count as rejected")
    assert rows[1:] == [["b/mute.wav", "5", "0.00 s of speech found"]]


def test_a_list_of_one_class_gives_a_page_without_error_rates():
    rows = [row for row in rows_of("poao", llr=lambda score: score) if row.target]
    outline = check_self_contained(evaluation_page(table_of({"poao": scores_from(rows)}), figures=()))
    check_accessible(outline)
    assert outline.table("Error rates and costs")[1][1:] == ["n/a"] * 9
    assert "defines no error rates" in outline.root.text


def test_a_rule_without_threshold_and_a_list_of_one_speaker_have_fewer_figures_and_numbers(tmp_path):
    rows = [row for row in rows_of("pkpd") if row.speaker == "a"]
    page, metrics = written(tmp_path / "out", rows, threshold=None)
    entry = metrics["systems"]["pkpd"]
    assert entry["eer_percent"] is not None
    assert [entry[key] for key in ("store_threshold", "false_accept_percent", "false_reject_percent")] == [None] * 3
    assert entry["eer_percent_ci95"] is None
    assert entry["speaker_eer_percent"]["worst_speaker"] == "a"
    assert {path.stem for path in (tmp_path / "out").glob("*.svg")} == {"det", "score_histogram"}
    assert "threshold" not in (tmp_path / "out" / "score_histogram.svg").read_text(encoding="utf-8")
    assert "95 % interval" not in (tmp_path / "out" / "det.svg").read_text(encoding="utf-8")
    outline = check_self_contained(page)
    assert outline.table("Decisions")[1][1:4] == ["n/a"] * 3
    assert "threshold it accepts" not in outline.root.text
    default = dict(outline.table("The list")[1:])["Default system"]
    assert default == "pkpd (the store's default, fused, was not evaluated)"


def test_no_speaker_is_called_the_worst_and_no_file_lost_without_an_error():
    rows = [dataclasses.replace(row, score=float(row.target)) for row in rows_of("fused")]
    scores = scores_from(rows)
    table, details = table_of({"fused": scores}, failed=0), details_of(scores, 0.61)
    outline = Outline(evaluation_page(table, figures=(), details=details))
    assert "No false rejects or false accepts." in outline.root.text and "more speakers" not in outline.root.text
    spread = outline.table("Equal error rates of the trials claiming each speaker")[1]
    assert spread[1:] == ["0.00", "0.00 to 0.00", "0.00", "none"]
    assert dict(outline.table("The list")[1:])["Default system"] == "fused"
    assert "None: every file of the list was scored." in outline.root.text


def test_the_settings_in_the_page_read_back_as_the_settings(evaluation):
    assert parse_config(tomllib.loads(Outline(evaluation[0]).all("pre")[0].text), source="the page") == Config()
    changed = load_config(None, ("machines.one_class_scale=12.5", "codebook.min_seconds=1e-5", "seed=8"))
    shown = tomllib.loads(settings_toml(changed.model_dump(mode="json")))
    assert parse_config(shown, source="the page") == changed
    tables = {"text": 'quote " back \\ new\nline é', "b": {"list": [1.5, 2.0], "on": True}}
    assert tomllib.loads(settings_toml({"seed": 1, "none": None, "a": tables})) == {"seed": 1, "a": tables}


# Text from elsewhere


@pytest.mark.parametrize("worst", HOSTILE)
def test_names_paths_and_commands_cannot_become_markup(worst):
    # All speakers but one have no errors, so that each hostile name is the worst in turn.
    rows = rows_of("boao", speakers=HOSTILE)
    rows = [row if row.speaker == worst else dataclasses.replace(row, score=9.0 * row.target) for row in rows]
    about = {**ABOUT, "trials": f"lists/{worst.replace('/', '')}", "store": worst, "version": worst}
    table = table_of({"boao": scores_from(rows)}, about={**about, "settings": {"section": {"key": worst}}})
    assert table["systems"]["boao"]["speaker_eer_percent"]["worst_speaker"] == worst
    failed = [FailedFile(path, f"{path}: cannot be read", 1) for path in HOSTILE]
    page = evaluation_page(table, figures=(), failed=failed, command=f"voiceclaim {worst}")
    outline = check_self_contained(page.replace("http://x.example", "elsewhere"))
    check_accessible(outline)
    shown = {cell.text.replace("elsewhere", "http://x.example") for cell in outline.all("bdi", "code", "td")}
    assert shown >= {worst, f"voiceclaim {worst}", *HOSTILE}


def test_text_is_escaped_and_made_printable():
    for value, shown in [
        ("<b>\"'", "&lt;b&gt;&#34;&#39;"),
        ("a\0b\x1b[31m\x85", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}"),
        ("caf\udce9.wav", "caf\\udce9.wav"),
    ]:
        assert TEMPLATES.from_string("{{ value }}").render(value=value) == shown
        markup = TEMPLATES.from_string('{% import "kit.html" as kit %}{{ kit.name(value) }}').render(value=value)
        assert markup == f"<bdi>{shown}</bdi>"
