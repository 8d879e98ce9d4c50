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


def scored(trials: list[tuple[str, str, float, bool]]) -> SystemScores:
    return SystemScores.from_rows([ScoreRow("A", *trial) for trial in trials])


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


def test_identification_by_hand():
    # File 1 is right, 2 is a tie, 3 goes to another; 4 and 5 have one class only and do not count.
    trials = [("a", "1", 2, True), ("b", "1", 1, False), ("c", "1", 0, False)]
    trials += [("a", "2", 2, True), ("b", "2", 2, False)]
    trials += [("a", "3", 2, True), ("b", "3", 1, False), ("c", "3", 3, False)]
    trials += [("a", "4", -9, True), ("b", "5", 9, False)]
    assert identification_error(scored(trials)) == pytest.approx(2 / 3)
    assert identification_error(scored(trials[8:])) is None
