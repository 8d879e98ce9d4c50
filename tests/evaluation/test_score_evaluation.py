"""Scores of any system against a key: reading, metrics, and what is left out of long lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_rows import ScoreRow, scores_from

from pipeline.errors import InputError, MetricError
from pipeline.evaluation import (
    NameColumn,
    ScoredList,
    SystemScores,
    TrialTable,
    identification_error,
    read_scored,
    report,
    speaker_error_rates,
    speaker_spread,
    write_list,
)  # fmt: skip
from pipeline.evaluation import measure as measurement
from pipeline.evaluation.comparison_report import plot_evaluations, read_evaluations
from pipeline.evaluation.measure import left_out, measure
from pipeline.evaluation.metrics_table import about_scores, metrics_table
from pipeline.evaluation.scores import table_of
from pipeline.metrics import equal_error_rate


def scores_of(table: TrialTable) -> SystemScores:
    return SystemScores(table.models, table.segments, table.scores, table.targets, table.llrs)


def evaluated(out: Path, path: Path, result: ScoredList) -> dict:
    """The entry of metrics.json of an evaluation of the file's only system."""
    ((name, scores),) = result.scores.items()
    metrics = {name: measure(scores, threshold=None, seed=0, bounded=True)}
    about = about_scores(path, None, result)
    table = metrics_table(metrics, default_system=name, about=about)
    report.write_evaluation(out, result.scores, table)
    return json.loads((out / "metrics.json").read_text())["systems"][name]


@pytest.mark.slow
def test_a_long_list_is_bounded_and_kept_as_parquet(tmp_path, trials, monkeypatch):
    path, out = tmp_path / "scores.csv", tmp_path / "out"
    write_list(path, trials, format_name="csv")
    result = read_scored(path)
    scores = result.scores["scores"]
    out.mkdir()
    (out / "scores.txt").write_text("of an earlier evaluation")
    with monkeypatch.context() as patch:
        patch.setattr(measurement, "MOST_RESAMPLED", 500)
        patch.setattr(report, "MOST_RESAMPLED", 500)
        patch.setattr(measurement, "MOST_SPEAKERS", 10)
        assert len(left_out(scores)) == 2
        assert about_scores(path, None, result)["left_out"] == list(left_out(scores))
        long = evaluated(out, path, result)
    assert long["eer_percent_ci95"] is long["speaker_eer_percent"] is None
    assert (out / "scores.parquet").is_file() and not (out / "scores.txt").exists()
    kept = report.read_results(out)["scores"]
    assert kept.scores.tolist() == scores.scores.tolist()
    assert list(kept.paths) == list(scores.paths)
    assert kept.is_target.tolist() == scores.is_target.tolist()
    assert plot_evaluations([out], tmp_path / "det.svg") == (tmp_path / "det.svg",)
    short = evaluated(out, path, result)
    same = short.keys() - {"eer_percent_ci95", "speaker_eer_percent", "affine_cllr"}
    assert {name: long[name] for name in same} == {name: short[name] for name in same}
    assert (out / "scores.txt").is_file() and not (out / "scores.parquet").exists()


def test_names_that_no_line_can_hold_are_kept_as_parquet(tmp_path):
    odd = TrialTable(NameColumn.of(["a\tb"] * 4), NameColumn.of("uvwx"), np.ones(4, bool), np.arange(4.0))
    write_list(tmp_path / "scores.parquet", odd, format_name="parquet")
    metrics = evaluated(tmp_path / "out", tmp_path / "scores.parquet", read_scored(tmp_path / "scores.parquet"))
    assert metrics["eer_percent"] is None  # a single class
    names = {"metrics.json", "scores.parquet", "report.html", "table.csv", "table.tex"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert set(report.read_results(tmp_path / "out")["scores"].speakers) == {"a\tb"}
    compared = read_evaluations([tmp_path / "out"] * 2)
    assert [set(one.scores.speakers) for one in compared] == [{"a\tb"}] * 2


def test_measures_do_not_depend_on_how_names_are_coded(trials):
    shuffled = trials[np.random.default_rng(1).permutation(len(trials))]
    names = np.append(shuffled.models.names[::-1], "nobody")
    other = replace(shuffled, models=NameColumn(names, 11 - shuffled.models.codes))
    first, second = (measure(scores_of(table), threshold=0.5, seed=3) for table in (shuffled, other))
    assert first.eer_interval is not None
    assert (first.eer, first.speaker_spread) == (second.eer, second.speaker_spread)
    assert (first.costs, first.identification_error) == (second.costs, second.identification_error)


def test_systems_are_chosen_and_labelled_by_any_key(tmp_path, trials):
    other = replace(trials, scores=-trials.scores, llrs=None)
    both = table_of({"one": scores_of(trials), "two": scores_of(other)})
    write_list(tmp_path / "scores.txt", both, format_name="voiceclaim")
    result = read_scored(tmp_path / "scores.txt")
    assert list(result.scores) == ["one", "two"]
    assert result.scores["one"].llrs.tolist() == trials.scores.tolist()
    assert result.scores["two"].llrs is None
    assert list(read_scored(tmp_path / "scores.txt", systems=["two"], llr=False).scores) == ["two"]
    with pytest.raises(InputError, match="it has the systems one, two, got three"):
        read_scored(tmp_path / "scores.txt", systems=["three"])
    owned = {f"spk{k}": [f"utt/{n}.wav" for n in range(60) if n % 12 == k] for k in range(12)}
    (tmp_path / "spk2utt").write_text("".join(f"{name} {' '.join(own)}\n" for name, own in owned.items()))
    write_list(tmp_path / "key", trials, format_name="kaldi", kind="key")
    for name, key_format in (("key", "kaldi"), ("spk2utt", "spk2utt")):
        with_key = read_scored(tmp_path / "scores.txt", tmp_path / name)
        assert with_key.key_format == key_format
        assert with_key.scores["two"].scores.tolist() == (-trials.scores).tolist()
        assert with_key.scores["two"].is_target.tolist() == trials.targets.tolist()


def test_files_without_what_is_asked_of_them(tmp_path, trials):
    write_list(tmp_path / "scores", trials, format_name="kaldi", kind="scores")
    write_list(tmp_path / "trials.tsv", trials, format_name="nist", kind="trials")
    for files, message in [
        (("scores",), "have no labels; give their key with --key"),
        (("trials.tsv", "scores"), "scores were expected, got a list without any"),
        (("scores", "trials.tsv"), "a key must label its trials"),
    ]:
        with pytest.raises(InputError, match=message):
            read_scored(*(tmp_path / file for file in files))


# Error rates by speaker, and of identification


TRIALS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(-3, 3).map(float), st.booleans()),
    max_size=15,
)


def scored(trials: list[tuple[str, str, float, bool]]) -> SystemScores:
    return scores_from([ScoreRow("A", *trial) for trial in trials])


def by(number: int, name: str, trials: list[tuple[str, str, float, bool]]) -> tuple[list[float], list[float]]:
    """Target and nontarget scores of the trials whose field ``number`` is ``name``."""
    own = [trial for trial in trials if trial[number] == name]
    return [score for *_, score, target in own if target], [score for *_, score, target in own if not target]


@given(TRIALS)
def test_rates_and_identification_errors_are_those_of_the_trials_of_each_speaker_and_file(trials):
    speakers = {name: by(0, name, trials) for name in "abc"}
    expected = {name: equal_error_rate(*pair).rate for name, pair in speakers.items() if all(pair)}
    assert speaker_error_rates(scored(trials)) == expected
    files = [pair for name in "xyz" if all(pair := by(1, name, trials))]
    wrong = [max(nontarget) >= max(target) for target, nontarget in files]
    assert identification_error(scored(trials)) == (pytest.approx(np.mean(wrong)) if wrong else None)


def test_rates_and_their_spread_by_hand():
    trials = [("dora", str(score), float(score), score % 2 == 1) for score in range(4)]
    trials += [("anna", "1", 5, True), ("anna", "2", 4, False), ("only true", "1", 9, True)]
    result = speaker_error_rates(scored([*trials, ("ben", "1", 0, True), ("ben", "2", 1, False)]))
    assert list(result.items()) == [("anna", 0.0), ("ben", 1.0), ("dora", 0.5)]
    spread = speaker_spread(result)
    assert (spread.best, spread.lower_quartile, spread.median) == (0, 0.25, 0.5)
    assert (spread.upper_quartile, spread.worst, spread.worst_speaker) == (0.75, 1, "ben")
    assert speaker_spread({"b": 0.5, "a": 0.5}).worst_speaker == "b"
    with pytest.raises(MetricError, match="no speaker"):
        speaker_spread({})
