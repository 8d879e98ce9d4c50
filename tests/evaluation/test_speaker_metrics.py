"""Error rates by speaker and identification errors, by hand and by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import MetricError
from pipeline.evaluation import ScoreRow, SystemScores, identification_error, speaker_error_rates, speaker_spread
from pipeline.metrics import equal_error_rate

TRIALS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(-3, 3).map(float), st.booleans()),
    max_size=15,
)


def scored(*trials: tuple[str, str, float, bool]) -> SystemScores:
    return SystemScores.from_rows([ScoreRow("A", *trial) for trial in trials])


def test_rates_and_their_spread_by_hand():
    result = speaker_error_rates(
        scored(
            ("dora", "1", 1, True),
            ("dora", "2", 3, True),
            ("dora", "3", 0, False),
            ("dora", "4", 2, False),
            ("anna", "1", 5, True),
            ("anna", "2", 4, False),
            ("only true", "1", 9, True),
            ("only false", "1", -9, False),
            ("ben", "1", 0, True),
            ("ben", "2", 1, False),
        )
    )
    assert result == {"anna": 0.0, "ben": 1.0, "dora": 0.5}
    assert list(result) == ["anna", "ben", "dora"]
    spread = speaker_spread(result)
    assert (spread.best, spread.lower_quartile, spread.median) == (0, 0.25, 0.5)
    assert (spread.upper_quartile, spread.worst, spread.worst_speaker) == (0.75, 1, "ben")
    assert speaker_spread({"b": 0.5, "a": 0.5}).worst_speaker == "b"
    with pytest.raises(MetricError, match="no speaker"):
        speaker_spread({})


@given(TRIALS)
def test_rates_equal_those_of_each_speakers_trials_taken_out(trials):
    expected = {}
    for name in "abc":
        target = [score for speaker, _, score, own in trials if speaker == name and own]
        nontarget = [score for speaker, _, score, own in trials if speaker == name and not own]
        if target and nontarget:
            expected[name] = equal_error_rate(target, nontarget).rate
    assert speaker_error_rates(scored(*trials)) == expected


def test_identification_by_hand():
    # File 1 is right, 2 is a tie, 3 goes to another; 4 and 5 have one class only and do not count.
    trials = [
        ("a", "1", 2, True),
        ("b", "1", 1, False),
        ("c", "1", 0, False),
        ("a", "2", 2, True),
        ("b", "2", 2, False),
        ("a", "3", 2, True),
        ("b", "3", 1, False),
        ("c", "3", 3, False),
        ("a", "4", -9, True),
        ("b", "5", 9, False),
    ]
    assert identification_error(scored(*trials)) == pytest.approx(2 / 3)
    assert identification_error(scored(*reversed(trials))) == pytest.approx(2 / 3)
    assert identification_error(scored(*trials[8:])) is None
    assert identification_error(scored()) is None


@given(TRIALS)
def test_identification_equals_looking_at_every_file(trials):
    wrong = []
    for path in "xyz":
        target = [score for _, its, score, own in trials if its == path and own]
        nontarget = [score for _, its, score, own in trials if its == path and not own]
        if target and nontarget:
            wrong.append(any(score >= max(target) for score in nontarget))
    result = identification_error(scored(*trials))
    assert result == (pytest.approx(np.mean(wrong)) if wrong else None)
