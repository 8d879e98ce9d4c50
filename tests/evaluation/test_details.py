"""Details speaker by speaker, the tables for papers, and the curves of the charts."""

from __future__ import annotations

import csv
import io

import numpy as np
from hypothesis import given
from score_rows import ScoreRow, scores_from
from trial_scores import SCORES, gaussians, rows_of

from pipeline.evaluation.curves import MOST_FEATURED, curves_of, featured
from pipeline.evaluation.details import MOST_SPEAKERS, UNKNOWN, WORST_TRIALS, details_of
from pipeline.evaluation.exports import SYSTEM_COLUMNS, tables
from pipeline.metrics import equal_error_rate, rates_at

ROWS = [
    ScoreRow("s", "anna", "1.wav", 3.0, True),
    ScoreRow("s", "anna", "2.wav", 0.5, True),  # a false reject at 1
    ScoreRow("s", "anna", "3.wav", 2.0, False),  # bruno speaks: a false accept
    ScoreRow("s", "anna", "4.wav", 0.9, False),  # nobody's
    ScoreRow("s", "bruno", "3.wav", 4.0, True),
    ScoreRow("s", "bruno", "1.wav", -2.0, False),
    ScoreRow("s", "bruno", "2.wav", -1.0, False),
]


def test_details_count_and_name_the_errors():
    details = details_of(scores_from(ROWS), 1.0)
    assert [(e.speaker, e.targets, e.false_rejects, e.nontargets, e.false_accepts) for e in details.errors] == [
        ("anna", 2, 1, 2, 1),
        ("bruno", 1, 0, 2, 0),
    ]
    assert (details.rows, details.voices) == (("anna", "bruno"), ("anna", "bruno", UNKNOWN))
    paths = [[trial and trial.path for trial in row] for row in details.matrix]
    assert paths == [["2.wav", "3.wav", "4.wav"], ["2.wav", "3.wav", None]]
    assert [(t.claim, t.path, t.voice, t.margin, t.wrong) for t in details.worst[:3]] == [
        ("anna", "3.wav", "bruno", 1.0, True),
        ("anna", "2.wav", "anna", -0.5, True),
        ("anna", "4.wav", UNKNOWN, 0.9 - 1.0, False),
    ]


def test_errors_of_the_speakers_sum_to_the_pooled_rates_and_many_speakers_are_cut_to_the_worst():
    names = [f"s{n:02d}" for n in range(MOST_SPEAKERS + 5)]
    scores = scores_from(rows_of("s", speakers=names))
    details = details_of(scores, 0.7)
    rates = rates_at(scores.target, scores.nontarget, 0.7)
    assert sum(e.false_rejects for e in details.errors) / scores.target.size == rates.false_reject
    assert sum(e.false_accepts for e in details.errors) / scores.nontarget.size == rates.false_accept
    assert len(details.rows) == MOST_SPEAKERS and len(details.worst) == WORST_TRIALS
    fewest = min(e.false_rejects + e.false_accepts for e in details.errors if e.speaker in details.rows)
    assert all(e.false_rejects + e.false_accepts <= fewest for e in details.errors if e.speaker not in details.rows)


@given(SCORES, SCORES)
def test_the_curves_hold_the_rates_at_the_thresholds_that_are_marked(target, nontarget):
    rows = [ScoreRow("s", "a", f"{n}t", score, True) for n, score in enumerate(target)]
    rows += [ScoreRow("s", "a", f"{n}n", score, False) for n, score in enumerate(nontarget)]
    table = {"default_system": "s", "systems": {"s": {"store_threshold": 0.25}}}
    (system,) = curves_of(table, {"s": scores_from(rows)}).systems
    step = system.thresholds.index(0.25)
    rates = rates_at(np.array(target), np.array(nontarget), 0.25)
    assert (system.false_accept[step], system.false_reject[step]) == (rates.false_accept, rates.false_reject)
    assert system.equal_error_threshold in system.thresholds
    assert system.equal_error_rate == equal_error_rate(np.array(target), np.array(nontarget)).rate


def test_the_default_is_featured_first_then_one_of_each_family():
    names = ["boar", "poar", "rpoao", "worst_rival", "supervector", "supervector_rival", "gmm_rival", "fused"]
    assert featured(names, "fused") == ["fused", "rpoao", "worst_rival", "supervector_rival", "gmm_rival"]
    assert featured(["b", "a"], "a") == ["a", "b"]
    assert len(featured(map(str, range(20)), "7")) == MOST_FEATURED


def test_tables_have_every_digit_as_csv_and_are_escaped_as_latex():
    target, nontarget = gaussians(2.0, 30, 300)
    entry = dict.fromkeys((key for key, _ in SYSTEM_COLUMNS.values()), None)
    entry |= {"eer_percent": 100 * equal_error_rate(target, nontarget).rate, "eer_percent_ci95": [1.25, 9.5]}
    written = tables({"a_b & 50%": entry, "plain": {**entry, "min_dcf": 0.12345}}, SYSTEM_COLUMNS, first="system")
    header, first, second = csv.reader(io.StringIO(written[".csv"]))
    assert header[:4] == ["system", "EER %", "EER % low", "EER % high"]
    assert first[:5] == ["a_b & 50%", str(entry["eer_percent"]), "1.25", "9.5", ""]
    assert second[header.index("minDCF")] == "0.12345"
    body = [line for line in written[".tex"].splitlines() if line.endswith(r"\\")]
    assert body[1].startswith(rf"a\_b \& 50\% & {entry['eer_percent']:.2f} [1.25, 9.50] & -- & ")
    assert all(line.count(" & ") == len(SYSTEM_COLUMNS) for line in (body[0], body[2]))
    assert "0.123 " in body[2]
