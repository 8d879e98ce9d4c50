"""Scores meet their key: against a dictionary, and what must not pass in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.evaluation import NameColumn, TrialTable, read_list, read_scored, read_scores, write_list
from pipeline.evaluation.columns import checked_llrs, split_by_system
from pipeline.evaluation.joining import join, label_by_owner
from pipeline.evaluation.scores import table_of

NAMES = ("key.txt", "scores.txt")
SETTINGS = settings(deadline=None, max_examples=120)
PAIRS = st.tuples(st.sampled_from("abcd"), st.sampled_from("uvwxyz"))


def key_of(*trials: tuple[str, str, bool]) -> TrialTable:
    models, segments, labels = zip(*trials, strict=True) if trials else ((), (), ())
    return TrialTable(NameColumn.of(models), NameColumn.of(segments), np.array(labels, dtype=bool))


def scores_of(*rows: tuple[str, str, float], labels: list[bool] | None = None) -> TrialTable:
    models, segments, values = zip(*rows, strict=True) if rows else ((), (), ())
    return TrialTable(
        NameColumn.of(models),
        NameColumn.of(segments),
        None if labels is None else np.array(labels),
        np.array(values, dtype=float),
        -np.array(values, dtype=float),
    )


@SETTINGS
@given(
    labels=st.dictionaries(PAIRS, st.booleans(), min_size=1),
    again=st.lists(st.integers(0, 100), max_size=4),
    extra=st.dictionaries(st.tuples(st.sampled_from("abq"), st.sampled_from("uvr")), st.integers(5, 9), max_size=5),
    scored_again=st.lists(st.integers(0, 100), max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_every_trial_of_the_key_gets_its_score(labels, again, extra, scored_again, order):
    trials = [(*pair, label) for pair, label in labels.items()]
    trials += [trials[k % len(trials)] for k in again]
    answers = {pair: float(k) for k, pair in enumerate(labels)} | {
        pair: float(value) for pair, value in extra.items() if pair not in labels
    }
    rows = [(*pair, value) for pair, value in answers.items()]
    rows += [rows[k % len(rows)] for k in scored_again]
    order.shuffle(trials)
    order.shuffle(rows)
    result, counts = join(key_of(*trials), scores_of(*rows), names=NAMES)
    assert result.scores.tolist() == [answers[model, segment] for model, segment, _ in trials]
    assert result.llrs.tolist() == [-answers[model, segment] for model, segment, _ in trials]
    assert result.is_target.tolist() == [label for _, _, label in trials]
    assert list(zip(result.speakers, result.paths, strict=True)) == [trial[:2] for trial in trials]
    unkeyed = sum((model, segment) not in labels for model, segment, _ in rows)
    keyed_again = len(rows) - unkeyed - len(labels)
    counted = {"trials": len(trials), "extra_scores": unkeyed, "repeated_trials": len(again)}
    assert counts.items() >= counted.items()
    assert keyed_again <= counts["repeated_scores"] <= len(scored_again)


@SETTINGS
@given(labels=st.dictionaries(PAIRS, st.booleans(), min_size=1), kept=st.lists(st.booleans(), min_size=30, max_size=30))
def test_trials_without_a_score_are_counted_and_the_first_is_named(labels, kept):
    rows = [(*pair, 0.0) for pair, keep in zip(labels, kept, strict=False) if keep]
    missing = [pair for pair, keep in zip(labels, kept, strict=False) if not keep]
    key = key_of(*((*pair, label) for pair, label in labels.items()))
    if not missing:
        join(key, scores_of(*rows), names=NAMES)
        return
    first = rf"the first is model '{missing[0][0]}', segment '{missing[0][1]}'"
    words = rf"scores.txt: .*key.txt.* {len(missing)} of {len(labels)} have none, {first}"
    with pytest.raises(InputError, match=words):
        join(key, scores_of(*rows), names=NAMES)


def test_scores_that_do_not_match_are_shown_beside_the_key_and_swapped_columns_suspected():
    key = key_of(("anna", "u.wav", True), ("ivan", "u.wav", False))
    first = "the first is model 'anna', segment 'u.wav'; a score whose trial is not in the key: model"
    for row, words in [
        (("u.wav", "anna", 1.0), "'u.wav', segment 'anna'; likely cause: the columns of one of them are swapped"),
        (("Anna", "u", 1.0), "'Anna', segment 'u'; likely cause: failed trials"),
    ]:
        with pytest.raises(InputError, match=f"{first} {words}"):
            join(key, scores_of(row), names=NAMES)


def test_two_labels_two_scores_or_labels_that_differ_from_the_keys_are_refused():
    key = key_of(("a", "u", True), ("b", "u", False))
    rows = ("b", "u", 0), ("a", "u", 1)
    join(key, scores_of(*rows, labels=[False, True]), names=NAMES)
    twice = key_of(("a", "u", True), ("b", "u", True), ("a", "u", False))
    for listed, scores, message in [
        (twice, scores_of(*rows), r"key.txt: a trial must have one label, .* model 'a', segment 'u'"),
        (
            key,
            scores_of(*rows, ("a", "u", 2)),
            r"scores.txt: a trial must have one score, got 1.0 and 2.0 for model 'a'",
        ),
        (key, scores_of(*rows, labels=[True, True]), "1 are not, the first is model 'b', segment 'u'"),
        (scores_of(*rows), scores_of(*rows), "without labels"),
        (key, key, "without any"),
    ]:
        with pytest.raises(InputError, match=message):
            join(listed, scores, names=NAMES)


def test_owners_of_the_segments_say_what_is_true():
    owners = {"u1": "a", "u2": "a", "v1": "b"}
    rows = [("a", "u1", 1.0), ("a", "v1", 0.5), ("b", "u2", 0.1), ("q", "u1", 9.0), ("b", "r", 9.0), ("a", "u1", 1.0)]
    result, counts = label_by_owner(owners, scores_of(*rows), names=NAMES)
    assert result.scores.tolist() == [1.0, 0.5, 0.1, 1.0]
    assert result.is_target.tolist() == [True, False, False, True]
    assert list(result.speakers) == ["a", "a", "b", "a"]
    assert counts == {"trials": 4, "extra_scores": 2, "repeated_trials": 0, "repeated_scores": 1}
    with pytest.raises(InputError, match=r"scores.txt: some model and segment must be in key.txt, got none"):
        label_by_owner(owners, scores_of(("q", "u1", 1.0)), names=NAMES)
    with pytest.raises(InputError, match="must have one score"):
        label_by_owner(owners, scores_of(("a", "u1", 1.0), ("a", "u1", 2.0)), names=NAMES)


# Columns


@SETTINGS
@given(texts=st.lists(st.sampled_from(["x", "yy", "é", "z"])), data=st.data())
def test_a_column_stands_for_the_texts(texts, data):
    column = NameColumn.of(texts)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), dtype=bool)
    kept = column[mask]
    assert list(column) == texts == np.asarray(column).tolist()
    assert list(kept) == [text for text, keep in zip(texts, mask, strict=True) if keep]
    assert len(kept) == mask.sum()
    assert kept.used == sorted(set(kept))
    assert NameColumn.of(texts[::-1]).names.tolist() == column.names.tolist() == sorted(set(texts))


def test_systems_are_taken_apart_and_put_together(tmp_path):
    whole = TrialTable(
        NameColumn.of(["a", "b", "a"]),
        NameColumn.of(["u", "u", "v"]),
        np.array([True, False, True]),
        np.array([1.0, 2.0, 3.0]),
        np.array([0.5, np.nan, 1.5]),
        NameColumn.of(["B", "A", "B"]),
    )
    write_list(tmp_path / "scores.txt", whole, format_name="voiceclaim")
    result = read_scores(tmp_path / "scores.txt")
    assert list(result) == ["B", "A"]
    assert result["B"].llrs.tolist() == [0.5, 1.5]
    assert result["A"].llrs is None
    again = table_of(result)
    assert list(again.systems) == ["B", "B", "A"]
    assert list(again.models) == ["a", "a", "b"]
    np.testing.assert_array_equal(again.llrs, [0.5, 1.5, np.nan])
    assert table_of({"A": result["A"]}).llrs is None
    assert list(split_by_system(replace(whole, systems=None), Path("folder/file.txt"))) == ["file"]
    with pytest.raises(InputError, match=r"file: system 's' must have .* in all of its rows or in none"):
        checked_llrs(whole, "s", Path("file"))


def test_lists_may_be_named_by_texts(tmp_path):
    text = "m s 1.5\nn s -0.5\n"
    (tmp_path / "scores").write_text(text)
    (tmp_path / "key").write_text("n s nontarget\nm s target\n")
    found = read_scored(str(tmp_path / "scores"), str(tmp_path / "key"), systems="scores").scores["scores"]
    assert (found.target.tolist(), found.nontarget.tolist()) == ([1.5], [-0.5])
    write_list(str(tmp_path / "again"), read_list(tmp_path / "scores"), format_name="kaldi")
    assert (tmp_path / "again").read_text() == text
    for call in (
        lambda: read_scored(3),
        lambda: read_scored("scores", 3),
        lambda: write_list(3, None, format_name="csv"),
    ):
        with pytest.raises(InputError, match=r"the path of a .* was expected, got int"):
            call()


@pytest.mark.parametrize(
    "line",
    ["anna a.wav 1 0.5", "anna bonafide target 4.6", "0.5 anna a.wav 1"],
    ids=["SpeechBrain", "ASVspoof", "first"],
)
def test_lines_of_more_than_three_words_are_the_likely_cause_of_scores_without_labels(tmp_path, line):
    (tmp_path / "scores.txt").write_text(f"{line}\n")
    with pytest.raises(InputError, match=r"no labels.* more than three words.* need a header .*formats\.md"):
        read_scored(tmp_path / "scores.txt")
    (tmp_path / "scores.csv").write_text("model,segment,score\nanna,a b.wav,0.5\n")
    with pytest.raises(InputError, match=r"give their key with --key$"):  # a header says what is read
        read_scored(tmp_path / "scores.csv")


def test_labels_beside_the_scores_are_held_to_the_rules_of_a_key(tmp_path):
    path, header = tmp_path / "scores.csv", "model,segment,label,score\n"
    path.write_text(header + "anna,a.wav,1,2\nanna,b.wav,0,-1\nanna,a.wav,1,2\n")
    scored = read_scored(path)
    assert scored.scores["scores"].scores.tolist() == [2.0, -1.0, 2.0]
    assert scored.joined["scores"] == {"trials": 3, "extra_scores": 0, "repeated_trials": 1, "repeated_scores": 1}
    for last, rule in (("0,2", "one label, got target and nontarget"), ("1,3", "one score, got 2.0 and 3.0")):
        path.write_text(f"{header}anna,a.wav,1,2\nanna,b.wav,0,-1\nanna,a.wav,{last}\n")
        with pytest.raises(InputError, match=rule):
            read_scored(path)
    path.write_text("model,segment,label,score,llr\nanna,a.wav,1,2,5\nanna,b.wav,0,-1,0\nanna,a.wav,1,2,-5\n")
    with pytest.raises(InputError, match=r"one log-likelihood ratio, got -5\.0 and 5\.0"):
        read_scored(path)
