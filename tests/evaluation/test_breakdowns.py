"""Error rates by metadata against counts made trial by trial."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.evaluation import NameColumn, SystemScores
from pipeline.evaluation.breakdowns import breakdowns, metadata_of, speech_groups


@pytest.fixture
def scores() -> SystemScores:
    """200 trials of three lines, of which the last is noisy."""
    random = np.random.default_rng(4)
    is_target, line = random.random(200) < 0.4, random.integers(3, size=200)
    values = random.normal(size=200) + 2.0 * is_target - 0.5 * line
    names = NameColumn.of("abcd" * 50)
    metadata = {"line": NameColumn.of(np.array(["line 2", "line 10", "line 9"])[line]), "all": NameColumn.of("x" * 200)}
    return SystemScores(names, names, values, is_target, metadata={**metadata, "id": None})


@pytest.mark.parametrize("threshold", [0.5, None])
def test_rates_of_each_value_are_counted_at_one_threshold(scores, threshold):
    found = breakdowns(scores, threshold)
    assert [*found] == ["line"]  # one value makes no groups, and too many make none
    assert [*found["line"]] == ["line 2", "line 9", "line 10"]
    if threshold is None:  # where both rates of the whole list are alike, but for one trial
        accepts, rejects = (
            np.average([getattr(group.at_threshold, name) for group in found["line"].values()], weights=counts)
            for name, counts in (
                ("false_accept", [group.n_nontarget for group in found["line"].values()]),
                ("false_reject", [group.n_target for group in found["line"].values()]),
            )
        )
        assert accepts == pytest.approx(rejects, abs=1 / 80)
        return
    for value, group in found["line"].items():
        rows = [k for k in range(200) if scores.metadata["line"][k] == value]
        targets = [scores.scores[k] for k in rows if scores.is_target[k]]
        others = [scores.scores[k] for k in rows if not scores.is_target[k]]
        assert (group.n_target, group.n_nontarget) == (len(targets), len(others))
        assert group.at_threshold.false_reject == pytest.approx(sum(score < 0.5 for score in targets) / len(targets))
        assert group.at_threshold.false_accept == pytest.approx(sum(score >= 0.5 for score in others) / len(others))
        # At the equal error rate some threshold has both errors at most, to a trial.
        assert any(
            abs(sum(s < t for s in targets) / len(targets) - group.eer) <= 1 / len(targets)
            and abs(sum(s >= t for s in others) / len(others) - group.eer) <= 1 / len(targets)
            for t in [*targets, *others]
        )
        assert not group.rule_of_30


def test_a_value_of_one_class_has_no_equal_error_rate():
    line, names = NameColumn.of(["a"] * 60 + ["b"] * 60), NameColumn.of("xy" * 60)
    half = np.arange(120) % 2 == 0
    values = np.where(half, 0.0, 1.0)  # all wrong
    only = SystemScores(names, names, values, half | (np.arange(120) >= 60), metadata={"line": line})
    groups = breakdowns(only, 0.5)["line"]
    assert (groups["b"].eer, groups["b"].n_nontarget, groups["b"].at_threshold.false_accept) == (None, 0, None)
    assert (groups["a"].eer, groups["a"].rule_of_30) == (1.0, True)  # 30 errors of each kind


def test_speech_is_grouped_by_its_length():
    groups = speech_groups([0.0, 0.99, 1.0, 3.999, 4.0, 16.0, 1000.0])
    assert [*groups] == ["0 to 1 s", "0 to 1 s", "1 to 2 s", "2 to 4 s", "4 to 8 s", "16 s or more", "16 s or more"]


def test_what_a_trial_lacks_is_empty():
    columns = metadata_of([{"line": "a"}, {}, {"noise": "n"}])
    assert {name: [*column] for name, column in columns.items()} == {"line": ["a", "", ""], "noise": ["", "", "n"]}


@pytest.mark.parametrize(("trials", "relied_on"), [(29, False), (30, True)])
def test_an_error_rate_of_fewer_than_thirty_errors_is_never_relied_on(trials, relied_on):
    """Every trial of one line is an error: its rate is 1, of as many errors of each kind as it has trials."""
    is_target = np.repeat([True, False], 2 * trials)
    line = NameColumn.of(["good", "bad"] * (2 * trials))
    values = np.where(is_target == (np.asarray(line) == "good"), 1.0, 0.0)
    names = NameColumn.of(map(str, range(4 * trials)))
    found = breakdowns(SystemScores(names, names, values, is_target, metadata={"line": line}), 0.5)["line"]["bad"]
    assert (found.eer, found.n_target, found.rule_of_30) == (1.0, trials, relied_on)
