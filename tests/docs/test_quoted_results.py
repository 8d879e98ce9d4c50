"""Results on the pages: tables and rates are those of the files in benchmarks/results."""

from __future__ import annotations

import json
import re
from statistics import fmean

import attack_service
import attacks_on_time
import pytest
from pages import ROOT, extension, page

from pipeline.verification.attempts import AttemptLimits

RESULTS = ROOT / "benchmarks" / "results"


def test_tables_of_results_are_those_of_the_files_and_the_page_quotes_them():
    made, folder = extension("benchmark_results"), RESULTS
    rows = [cells(row) for row in made.systems(folder).splitlines()[2:]]
    result = json.loads((folder / "real_speech.json").read_text(encoding="utf-8"))
    for row, truth in zip(rows, result, strict=True):
        assert row[:3] == [truth["corpus"], truth["config"], truth["list"]]
        for system, shown in zip(made.SYSTEMS, row[3 : 3 + len(made.SYSTEMS)], strict=True):
            rate = truth["systems"].get(system, {}).get("eer_percent")
            assert shown == ("-" if rate is None else f"{rate:.2f}")
        own = truth["systems"][made.DEFAULTS[truth["config"]]]
        errors = [f"{own[f'false_{kind}_percent']:.2f}" for kind in ("reject", "accept")]
        assert row[3 + len(made.SYSTEMS) :] == [*errors, f"{truth['enroll_seconds']:.0f}"]
    quoted = [
        row for line in page("docs/results.md")[0].splitlines() if (row := cells(line))[:3] in [r[:3] for r in rows]
    ]
    assert sorted(quoted) == sorted(rows)
    for name, make in made.TABLES.items():
        text = make(folder)
        assert "nan" not in text.lower().split() and len(text) > 100, name
    assert len({line.count("|") for line in made.accuracy(folder).splitlines()}) == 1


def test_bars_are_those_of_the_files():
    made = extension("benchmark_results")
    text = made.chart(RESULTS)
    peers = json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))["rows"]
    wanted = ("trials_test_tel", "CAM++", "less its best rival")
    (peer,) = [row["eer_percent"] for row in peers if (row["list"], row["system"], row["normalisation"]) == wanted]
    result = json.loads((RESULTS / "real_speech.json").read_text(encoding="utf-8"))
    (own,) = [row["systems"] for row in result if (row["list"], row["config"]) == ("trials_test_tel", "default")]
    paper = min(own[rule]["eer_percent"] for rule in ("boar", "poar", "boao", "poao", "rpoao"))
    bars = made.bars_of(RESULTS)["commands30, trials_test_tel"]
    assert [*bars.values()] == [peer, paper, own["fused"]["eer_percent"]]
    shown = re.findall(r'class="rate"[^>]*>([\d.]+)<', text)
    assert shown == [f"{rate:.2f}" for group in made.bars_of(RESULTS).values() for rate in group.values()]


def test_the_comparison_of_the_first_page_is_that_of_the_files():
    made = extension("benchmark_results")
    shown = made.comparison(RESULTS).replace(made.NO_BREAK, " ")
    assert shown in page("README.md")[0]
    bold = [line for line in shown.splitlines() if "**" in line]
    assert bold == []
    # The default's rows of the encoders' file are those of the run that the other tables are of.
    rows = json.loads((RESULTS / "real_speech.json").read_text(encoding="utf-8"))
    run = {(row["corpus"], row["list"]): row["systems"]["fused"] for row in rows if row["config"] == "default"}
    paired = [
        row
        for row in json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))["rows"]
        if row["system"] == "default"
    ]
    assert len(paired) >= 5
    for row in paired:
        for rate in ("eer_percent", "false_accept_percent", "false_reject_percent"):
            assert row[rate] == pytest.approx(run[row["corpus"], row["list"]][rate])


def test_rates_quoted_on_other_pages_are_those_of_the_file():
    result = json.loads((RESULTS / "real_speech.json").read_text(encoding="utf-8"))
    rows = [row for row in result if (row["corpus"], row["config"]) == ("commands30", "default")]
    rate = {row["list"]: row["systems"]["fused"]["eer_percent"] for row in rows}
    explanation = " ".join(page("docs/explanation.md")[0].split())
    assert f"from {rate['trials_test']:.1f} to {rate['trials_test_tel']:.1f} percent" in explanation


def test_rates_of_identification_on_the_page_are_those_of_the_file():
    rows = json.loads((RESULTS / "identification.json").read_text(encoding="utf-8"))["rows"]
    row = {row["system"]: row for row in rows if row["list"] == "trials_open"}
    text = " ".join(page("docs/howto/identify.md")[0].split())
    for system, name in (("fused", "`fused`"), *((f"{peer}, cosine",) * 2 for peer in ("Resemblyzer", "CAM++"))):
        errors = row[system]
        assert f"| {name} | {errors['rank1_error_percent']:.2f} % | {errors['fnir_at_fpir1_percent']:.2f} % |" in text
    assert f"takes {row['fused']['fpir_percent']:.2f} % of the others' files for somebody enrolled" in text
    assert f"misses {row['fused']['fnir_percent']:.2f} % of the enrolled speakers' files" in text


def test_the_table_of_readings_of_reuters_is_that_of_the_file():
    errors = json.loads((RESULTS / "reuters_readings.json").read_text(encoding="utf-8"))["errors"]
    base = next(iter(errors.values()))
    rows = [f"| {name} | {count} | {count - base:+d} |" for name, count in errors.items()]
    assert "\n".join(rows) in (ROOT / "benchmarks" / "REPRODUCE.md").read_text(encoding="utf-8")


def test_the_table_of_kinds_left_out_is_that_of_the_file():
    from benchmarks.left_out import markdown

    result = json.loads((RESULTS / "left_out.json").read_text(encoding="utf-8"))
    assert markdown(result["rows"]) in (ROOT / "benchmarks" / "ROBUSTNESS.md").read_text(encoding="utf-8")
    rates = [row["left_out"]["eer_percent"] for row in result["rows"]]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"range from {min(rates):.2f} to {max(rates):.2f} percent, with a mean of {fmean(rates):.2f}" in readme


def test_the_table_of_conditions_is_that_of_the_file():
    from benchmarks.robustness import markdown

    result = json.loads((RESULTS / "robustness_default.json").read_text(encoding="utf-8"))
    assert markdown(result["rows"]) in (ROOT / "benchmarks" / "ROBUSTNESS.md").read_text(encoding="utf-8")


def test_tables_of_cohorts_and_early_decisions_are_those_of_the_files():
    from benchmarks import early_decision, rivals

    results = {
        name: json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("rivals", "early_decision")
    }
    early = early_decision.markdown({name: results["early_decision"][name] for name in ("test", "open")})
    for made, name in ((rivals.table(results["rivals"]), "RIVALS"), (early, "EARLY")):
        text = (ROOT / "benchmarks" / f"{name}.md").read_text(encoding="utf-8")
        shown = [cells(row) for row in text.splitlines()]
        wanted = [cells(row) for row in made.splitlines() if re.match(r"\| (\d|all|test|open)", row)]
        assert len(wanted) >= 5 and [row for row in wanted if row not in shown] == [], name


def test_the_load_and_the_attacks_are_those_of_the_files():
    load = json.loads((RESULTS / "load.json").read_text(encoding="utf-8"))
    text = " ".join((ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").split())
    assert (load["streams"], load["seconds"], load["dropped"]) == (64, 600.0, 0)
    assert f"dropped nothing of {load['chunks']:,} chunks, kept its memory, and gave {load['p95_ms']:.0f} ms" in text
    assert f"half of the updates within {load['p50_ms']:.0f} ms" in text
    attacks = json.loads((RESULTS / "attacks.json").read_text(encoding="utf-8"))["attacks"]
    assert all(one["held"] for name, one in attacks.items() if name != "quiet")
    beside = [attack.__name__ for attack in attacks_on_time.ATTACKS]
    *some, last = (f"{attacks[name]['honest']['update_p95_ms']:.0f}" for name in beside)
    security = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    quiet = f"{attacks['quiet']['honest']['update_p95_ms']:.0f} ms in quiet"
    assert f"within {quiet}, and within {', '.join(some)} and {last} ms beside" in security
    slowest = max(attacks[name]["honest"]["healthz_p95_ms"] for name in beside)
    assert f"/healthz answered within {slowest:.0f} ms beside all of them" in security
    goals = max(attacks[name]["honest"]["update_p95_ms"] for name in beside) <= 150 and slowest <= 50
    assert goals and "The goals, 150 and 50 ms, are met there" in security


def test_the_table_of_duplicates_is_that_of_the_file_and_holds_what_is_promised():
    from benchmarks.duplicate_audio import COUNTED_ONLY, LEAST_FOUND, MOST_FLAGGED, markdown

    result = json.loads((RESULTS / "duplicate_audio.json").read_text(encoding="utf-8"))
    assert markdown(result) in page("docs/duplicate-audio.md")[0]
    for name, row in result["changed"].items():
        assert row["found"] >= LEAST_FOUND * row["tried"] or name == COUNTED_ONLY, name
    assert all(row["flagged"] <= MOST_FLAGGED * row["tried"] for row in result["genuine"].values())


def test_the_table_of_first_users_is_that_of_the_file():
    from benchmarks.first_users import markdown

    result = json.loads((RESULTS / "first_users.json").read_text(encoding="utf-8"))
    text = page("docs/explanation.md")[0]
    assert f"--list {result['list']} --words {result['words']} --phrases {result['phrases']}" in text
    assert markdown(result["rows"]) in text


def test_security_says_what_was_measured():
    text = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    attacks = [attack.__name__ for module in attack_service.PARTS for attack in module.ATTACKS]
    assert [name for name in attacks if f"`{name}`" not in text] == []
    wolves = json.loads((RESULTS / "wolves.json").read_text(encoding="utf-8"))
    rate, stricter = wolves["false_accept_percent"], wolves["false_accept_percent_at_prior"]["0.1"]
    assert wolves["inputs"] >= 1000 and sum(row["inputs"] for row in wolves["rows"]) == wolves["inputs"]
    assert f"made {wolves['inputs']:,} sounds" in text
    assert f"at the default threshold {rate:.1f} % of the claims" in text
    assert f"At a prior of 0.1 it is {stricter:.2f} %" in text
    hill = json.loads((RESULTS / "hill_climb.json").read_text(encoding="utf-8"))
    accepted, count = hill["accepted_within"][str(hill["queries"])], hill["claims"]
    assert hill["queries"] == 250
    assert f"{accepted['anew']} of {count} claims accepted by tries drawn anew, {accepted['walk']} by steps" in text
    day = hill["accepted_within"]["34"]
    assert f"{day['anew']} and {day['walk']} by the 34 tries" in text
    guided = f"{day['scores']} of {count} claims by the 34 tries of a day, where tries drawn anew have {day['anew']}"
    assert f"{guided}, and **{accepted['scores']} of {count}** by 250" in text
    assert f"no failure is counted | **{accepted['scores']} of {count}**" in text
    assert f"{accepted['tenths']} of {count} claims by 250 tries" in text
    waits = [AttemptLimits().wait(failures) for failures in range(hill["queries"])]
    assert sum(waits[:34]) < 86_400 < sum(waits[:35])
    assert f"by 250, which take {sum(waits) / 86_400:.1f} days" in text


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]
