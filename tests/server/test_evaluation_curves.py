"""Curves of an evaluation that the service shows."""

from __future__ import annotations

import numpy as np
import pytest
from service import evaluated

from pipeline.errors import ServiceError
from pipeline.evaluation import read_list, write_list
from pipeline.metrics import equal_error_rate, error_curve
from pipeline.server.curves import last_evaluation


@pytest.mark.parametrize("trials", [20, 3000])
def test_the_curves_of_an_evaluation_are_those_of_its_scores(tmp_path, trials):
    rng = np.random.default_rng(0)
    target, nontarget = rng.normal(1.5, 1.0, trials), rng.normal(0.0, 1.0, trials)
    evaluated(tmp_path / "evaluation", supervector=(target, nontarget))
    result = last_evaluation(tmp_path / "evaluation")
    assert last_evaluation(tmp_path / "evaluation") is result
    (system,) = result.systems
    curve = error_curve(target, nontarget)
    assert len(system.thresholds) <= 400
    for threshold, accept, reject in zip(system.thresholds, system.false_accept, system.false_reject, strict=True):
        step = np.searchsorted(curve.thresholds, threshold)
        assert (accept, reject) == (curve.false_accept[step], curve.false_reject[step])
    assert (system.false_accept[0], system.false_reject[0]) == (1.0, 0.0)
    assert system.thresholds == sorted(set(system.thresholds))
    assert np.max(np.abs(np.diff(system.false_accept))) < 0.1
    assert np.max(np.abs(np.diff(system.false_reject))) < 0.1
    assert system.equal_error_rate == equal_error_rate(target, nontarget).rate
    assert system.store_threshold == 0.25
    assert "secret" not in result.model_dump_json()
    evaluated(tmp_path / "evaluation", supervector=(target[:10], nontarget))
    assert last_evaluation(tmp_path / "evaluation").systems[0].targets == 10
    # A long list is kept as a table.
    text = tmp_path / "evaluation" / "scores.txt"
    write_list(text.with_suffix(".parquet"), read_list(text), format_name="parquet")
    text.unlink()
    assert last_evaluation(tmp_path / "evaluation").systems[0].targets == 10


def test_no_evaluation_is_said_to_be_none(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "scores.txt").write_text("no scores")
    for folder in (None, tmp_path / "missing", tmp_path / "broken"):
        with pytest.raises(ServiceError) as refused:
            last_evaluation(folder)
        assert refused.value.status == 404
        assert str(tmp_path) not in refused.value.detail
