"""report.html, read by the standard library's parser: what it holds, and that it needs nothing else."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from html_outline import Outline, check_accessible, check_self_contained

from pipeline.assessment import Assessment, measure
from pipeline.config import Config, load_config, parse_config
from pipeline.evaluation import OPERATING_POINTS, ScoreRow, SystemScores
from pipeline.file_scoring import FailedFile
from pipeline.html_page import element, name, number, page, section, span, text
from pipeline.html_report import Printing, settings_toml
from pipeline.report import metrics_table, write_evaluation

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


def rows_of(system: str, *, llr=None, speakers: tuple[str, ...] = ("a", "b", "c", "d", "e"), seed: int = 0):
    """Four files of each speaker, every file claimed for everybody."""
    generator = np.random.default_rng(seed)
    rows = []
    for own in speakers:
        for file in range(4):
            for claim in speakers:
                score = float(generator.normal(1.2 * (own == claim), 1))
                path = f"{own}/{file}.wav"
                rows.append(ScoreRow(system, claim, path, score, own == claim, None if llr is None else llr(score)))
    return rows


def written(
    out: Path, *systems, failed=(), threshold: float | None = 0.61, printing: Printing | None = None, about=ABOUT
) -> tuple[str, dict]:
    """report.html and metrics.json of an evaluation of these rows, whose default is the last system."""
    rows = tuple(row for its_rows in systems for row in its_rows)
    found = Assessment(rows, {its[0].system: SystemScores.from_rows(its) for its in systems}, tuple(failed))
    metrics = {system: measure(scores, threshold=threshold, seed=3) for system, scores in found.scores.items()}
    table = metrics_table(metrics, default_system=systems[-1][0].system, failed_trials=found.failed_trials, about=about)
    write_evaluation(out, found, table, printing)
    saved = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    return (out / "report.html").read_text(encoding="utf-8"), saved


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """A page and its metrics: a system without a calibration, and a calibrated one, the default."""
    out = tmp_path_factory.mktemp("report") / "out"
    failed = [FailedFile("b/mute.wav", "b/mute.wav: 0.00 s of speech found", 5)]
    systems = rows_of("boao", seed=1), rows_of("rpoao", llr=lambda score: 1.7 * score - 0.9, seed=2)
    printing = Printing("voiceclaim evaluate speakers.store 'my list.txt' --out out", "21 November 2026")
    page_, metrics = written(out, *systems, failed=failed, printing=printing)
    return page_, metrics, out


def leaves(value) -> list[float]:
    """All numbers in a piece of JSON."""
    if isinstance(value, dict):
        return [number_ for item in value.values() for number_ in leaves(item)]
    if isinstance(value, list):
        return [number_ for item in value for number_ in leaves(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


# The page as a whole


def test_the_page_is_well_formed_and_needs_nothing_else(evaluation):
    page_, _, _ = evaluation
    outline = check_self_contained(page_)
    (policy,) = [m for m in outline.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy.attributes["content"]
    assert "script-src" not in policy.attributes["content"]


def test_the_page_can_be_read_aloud_in_the_dark_and_on_paper(evaluation):
    outline = Outline(evaluation[0])
    check_accessible(outline)
    style = outline.all("style")[0].text
    assert "@media print" in style
    assert "prefers-color-scheme: dark" in style
    assert any(m.attributes.get("name") == "viewport" for m in outline.all("meta"))


def test_the_checks_themselves_see_what_is_wrong():
    for bad in ("<p><b></p></b>", "<div>", "<p><table></table></p>", "</p>"):
        with pytest.raises(AssertionError):
            Outline(bad)
    whole = page("t", text("x"))
    check_self_contained(whole)
    bad = "<script></script>", '<img src="http://a/b.png" alt="">', '<img src="data:image/png" onload="x" alt="">'
    for markup in (*bad, '<a href="//a">b</a>', "<style>b { background: url(x) }</style>"):
        with pytest.raises(AssertionError):
            check_self_contained(whole.replace("x</main>", f"{markup}</main>"))


def test_every_figure_is_in_the_page_once_and_is_the_one_beside_it(evaluation):
    page_, _, out = evaluation
    beside = {path.read_bytes() for path in out.glob("*.svg")}
    inside = Outline(page_).pictures()
    assert set(inside) == beside
    assert len(inside) == len(beside) == 6  # det, det_interval, score_histogram, reliability, bayes_error, fa_fr


def test_the_same_evaluation_gives_the_same_page_and_only_a_date_that_was_asked_for(evaluation, tmp_path):
    systems = rows_of("boao", seed=1), rows_of("rpoao", llr=lambda score: 1.7 * score - 0.9, seed=2)
    pages = [written(tmp_path / folder, *systems)[0] for folder in ("first", "second")]
    assert pages[0] == pages[1]
    assert "Date" not in [row[0] for row in Outline(pages[0]).table("The list")]
    assert ["Date", "21 November 2026"] in Outline(evaluation[0]).table("The list")


# What it says


def test_every_number_of_the_default_system_is_in_the_page_exactly_and_rounded_to_read(evaluation):
    page_, metrics, _ = evaluation
    shown = {float(found.attributes["value"]): found.text for found in Outline(page_).all("data")}
    numbers = leaves(metrics["systems"]["rpoao"])
    assert len(numbers) > 40
    assert set(numbers) <= shown.keys()
    for value, words in shown.items():
        # Half a unit of the last digit that is written.
        digits = len(words.partition(".")[2])
        assert abs(float(words) - value) <= 0.5 * 10.0**-digits * (1 + 1e-9)


def test_the_table_of_systems_holds_the_metrics_of_each(evaluation):
    page_, metrics, _ = evaluation
    header, plain, calibrated = Outline(page_).table("Error rates and costs")
    assert header[:3] == ["system", "EER %", "95 % interval"]
    assert (plain[0], calibrated[0]) == ("boao", "rpoao (default)")
    for row, system in ((plain, "boao"), (calibrated, "rpoao")):
        found = metrics["systems"][system]
        low, high = found["eer_percent_ci95"]
        assert row[1:4] == [
            f"{found['eer_percent']:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{found['eer_hull_percent']:.2f}",
        ]
        assert float(row[4]) == pytest.approx(found["min_dcf"], abs=5e-4)
        assert float(row[7]) == pytest.approx(found["min_cllr"], abs=5e-4)
        assert float(row[8]) == pytest.approx(found["affine_cllr"], abs=5e-4)
        assert float(row[9]) == pytest.approx(found["identification_error_percent"], abs=5e-3)
    assert plain[5] == plain[6] == "n/a"
    assert float(calibrated[5]) == pytest.approx(metrics["systems"]["rpoao"]["act_dcf"], abs=5e-4)
    assert float(calibrated[6]) == pytest.approx(metrics["systems"]["rpoao"]["cllr"], abs=5e-4)


def test_decisions_operating_points_and_spread_have_their_tables(evaluation):
    page_, metrics, _ = evaluation
    outline, found = Outline(page_), metrics["systems"]["rpoao"]
    decisions = {row[0]: row[1:] for row in outline.table("Decisions")[1:]}
    rates = f"{found['false_accept_percent']:.2f}", f"{found['false_reject_percent']:.2f}"
    assert decisions["rpoao (default)"][:3] == ["0.61", *rates]
    points = {row[0]: row[1:] for row in outline.table("Detection costs of rpoao")[1:]}
    assert points.keys() == OPERATING_POINTS.keys()
    assert points["nist08"][:3] == ["0.01", "10", "1"]
    spread = outline.table("Equal error rates of the claims on each speaker")[2]
    assert spread[-1] == found["speaker_eer_percent"]["worst_speaker"]
    assert float(spread[1]) == pytest.approx(found["speaker_eer_percent"]["median"], abs=5e-3)


def test_the_page_says_what_was_measured_how_and_how_far_it_reaches(evaluation):
    outline = Outline(evaluation[0])
    facts = dict(outline.table("The list")[1:])
    assert facts["Trial list"] == "lists/trials.txt"
    assert facts["Command"] == "voiceclaim evaluate speakers.store 'my list.txt' --out out"
    assert facts["Voiceclaim version"] == "9.9.9"
    counts = {"True claims scored": "20", "False claims scored": "80", "Claims without a score": "5", "Files": "21"}
    assert facts.items() >= {**counts, "Speakers claimed": "5", "Speakers enrolled": "7"}.items()
    assert outline.all("h1")[0].text == "Speaker verification on trials.txt"
    (caveat,) = [found.text for found in outline.all("p") if found.attributes.get("class") == "note"]
    assert "error rates hold for audio like this list's" in caveat


def test_a_default_that_is_not_the_stores_own_is_said_to_be(tmp_path):
    page_, _ = written(tmp_path / "out", rows_of("pkpd"), threshold=None)
    told = dict(Outline(page_).table("The list")[1:])["Default system"]
    assert told == "pkpd; that of the store's settings, fused, was not asked for"
    page_, _ = written(tmp_path / "out", rows_of("fused"))
    assert dict(Outline(page_).table("The list")[1:])["Default system"] == "fused"


def test_failed_files_are_listed_or_said_to_be_none(evaluation, tmp_path):
    rows = Outline(evaluation[0]).table("Their claims count")
    assert rows[1:] == [["b/mute.wav", "5", "b/mute.wav: 0.00 s of speech found"]]
    assert (
        "None: every file of the list was scored." in Outline(written(tmp_path / "out", rows_of("boao"))[0]).root.text
    )


def test_a_list_of_one_class_gives_a_page_without_figures(tmp_path):
    page_, _ = written(tmp_path / "out", [row for row in rows_of("poao", llr=lambda score: score) if row.target])
    outline = check_self_contained(page_)
    check_accessible(outline)
    assert outline.all("img") == []
    assert outline.table("Error rates and costs")[1][1:] == ["n/a"] * 9
    assert "defines no error rates" in outline.root.text


def test_a_system_without_a_threshold_has_no_decisions(tmp_path):
    page_, metrics = written(tmp_path / "out", rows_of("pkpd"), threshold=None)
    outline = check_self_contained(page_)
    found = metrics["systems"]["pkpd"]
    assert [found[key] for key in ("store_threshold", "false_accept_percent", "false_reject_percent")] == [None] * 3
    assert outline.table("Decisions")[1][1:4] == ["n/a"] * 3
    assert "own threshold it accepts" not in outline.root.text
    assert any("there to be compared with" in found.text for found in outline.all("figcaption"))


def test_nobody_is_called_the_worst_where_nobody_errs(tmp_path):
    rows = [dataclasses.replace(row, score=float(row.target)) for row in rows_of("boao")]
    outline = Outline(written(tmp_path / "out", rows)[0])
    assert outline.table("Equal error rates of the claims on each speaker")[1][1:] == [
        "0.00", "0.00 to 0.00", "0.00", "none",
    ]  # fmt: skip


# Settings


def settings_of(page_: str) -> str:
    return Outline(page_).all("pre")[0].text


@pytest.mark.parametrize("overrides", [(), ("machines.one_class_scale=12.5", "codebook.min_seconds=1e-5", "seed=8")])
def test_the_settings_in_the_page_read_back_as_the_settings(tmp_path, overrides):
    config = load_config(None, overrides)
    about = {**ABOUT, "settings": config.model_dump(mode="json")}
    page_, _ = written(tmp_path / "out", rows_of("boao"), about=about)
    assert parse_config(tomllib.loads(settings_of(page_)), source="the page") == config


def test_settings_of_every_kind_are_toml():
    settings = {
        "seed": 1,
        "none": None,
        "a": {"text": 'quote " back \\ new\nline é', "b": {"list": [1.5, 2.0], "on": True}},
    }
    assert tomllib.loads(settings_toml(settings)) == {
        "seed": 1, "a": {"text": 'quote " back \\ new\nline é', "b": {"list": [1.5, 2.0], "on": True}},
    }  # fmt: skip


# What other people wrote


def test_names_paths_and_commands_cannot_become_markup(tmp_path):
    rows = rows_of("boao", speakers=HOSTILE)
    # Everybody but one errs nowhere, so that each hostile name is the worst in turn.
    for worst in HOSTILE:
        its = [row if row.speaker == worst else dataclasses.replace(row, score=9.0 * row.target) for row in rows]
        failed = [FailedFile(path, f"{path}: cannot be read", 1) for path in HOSTILE]
        about = {**ABOUT, "trials": f"lists/{worst.replace('/', '')}", "store": worst, "version": worst}
        about["settings"] = {"section": {"key": worst}}
        page_, metrics = written(
            tmp_path / "out", its, failed=failed, about=about, printing=Printing(f"voiceclaim {worst}", worst)
        )
        assert metrics["systems"]["boao"]["speaker_eer_percent"]["worst_speaker"] == worst
        outline = Outline(page_.replace("http://x.example", "elsewhere"))
        check_self_contained(page_.replace("http://x.example", "elsewhere"))
        check_accessible(outline)
        shown = [cell.text.replace("elsewhere", "http://x.example") for cell in outline.all("bdi", "code", "td")]
        assert {worst, f"voiceclaim {worst}"} <= set(shown)
        assert set(HOSTILE) <= set(shown)


def test_text_that_no_page_can_hold_is_replaced():
    assert (
        text("a\0b\x1b[31m\x85") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}"
    )
    assert text("caf\udce9.wav") == "caf\\udce9.wav"
    assert name("\N{RIGHT-TO-LEFT OVERRIDE}x") == "<bdi>\N{RIGHT-TO-LEFT OVERRIDE}x</bdi>"


def test_building_blocks_by_hand():
    assert number(None, ".2f") == "n/a"
    assert number(1 / 3, ".2f") == f'<data value="{1 / 3!r}">0.33</data>'
    assert span([-1.0, 0.5], "+.1f") == ('<span><data value="-1.0">-1.0</data> to <data value="0.5">+0.5</data></span>')
    assert element("a", text("<"), class_='"') == '<a class="&quot;">&lt;</a>'
    assert section("A & B", text("c")) == "<section><h2>A &amp; B</h2>c</section>\n"
