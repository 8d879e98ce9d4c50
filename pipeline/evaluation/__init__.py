"""Trial lists, score files, error curves, metrics and their intervals: arrays and text only, no drawing."""

from pipeline.evaluation.bootstrap import Interval, bootstrap_interval
from pipeline.evaluation.curves import ErrorCurve, error_curve
from pipeline.evaluation.metrics import (
    EqualErrorRate,
    ErrorRates,
    MinimumCost,
    detection_cost,
    equal_error_rate,
    equal_error_rate_hull,
    log_likelihood_ratio_cost,
    rates_at,
    threshold_at_false_accept,
)
from pipeline.evaluation.trials import (
    ScoreRow,
    SystemScores,
    Trial,
    read_scores,
    read_trials,
    write_scores,
)

__all__ = [
    "EqualErrorRate",
    "ErrorCurve",
    "ErrorRates",
    "Interval",
    "MinimumCost",
    "ScoreRow",
    "SystemScores",
    "Trial",
    "bootstrap_interval",
    "detection_cost",
    "equal_error_rate",
    "equal_error_rate_hull",
    "error_curve",
    "log_likelihood_ratio_cost",
    "rates_at",
    "read_scores",
    "read_trials",
    "threshold_at_false_accept",
    "write_scores",
]
