"""Metrics from scores and labels: error rates, costs, intervals and curves, as pure functions of arrays."""

from pipeline.metrics.bootstrap import DetBand, Interval, Statistic, bootstrap_interval, det_band
from pipeline.metrics.cllr import affine_cllr, log_likelihood_ratio_cost, minimum_cllr
from pipeline.metrics.costs import (
    MAIN_POINT,
    MEAN_COSTS,
    OPERATING_POINTS,
    MinimumCost,
    OperatingPoint,
    actual_cost,
    detection_cost,
    minimum_costs_of,
)
from pipeline.metrics.curves import ErrorCurve, error_curve
from pipeline.metrics.diagrams import Reliability, bayes_error_rates, reliability, score_histogram
from pipeline.metrics.error_rates import (
    EqualErrorRate,
    ErrorRates,
    equal_error_rate,
    equal_error_rate_hull_of,
    equal_error_rate_of,
    false_accept_at,
    false_reject_at,
    rates_at,
    threshold_at_false_accept,
)
from pipeline.metrics.failures import Unscored, generalised_equal_error_rate, generalised_rates
from pipeline.metrics.sample_size import rule_of_thirty, rule_of_three

__all__ = [
    "MAIN_POINT",
    "MEAN_COSTS",
    "OPERATING_POINTS",
    "DetBand",
    "EqualErrorRate",
    "ErrorCurve",
    "ErrorRates",
    "Interval",
    "MinimumCost",
    "OperatingPoint",
    "Reliability",
    "Statistic",
    "Unscored",
    "actual_cost",
    "affine_cllr",
    "bayes_error_rates",
    "bootstrap_interval",
    "det_band",
    "detection_cost",
    "equal_error_rate",
    "equal_error_rate_hull_of",
    "equal_error_rate_of",
    "error_curve",
    "false_accept_at",
    "false_reject_at",
    "generalised_equal_error_rate",
    "generalised_rates",
    "log_likelihood_ratio_cost",
    "minimum_cllr",
    "minimum_costs_of",
    "rates_at",
    "reliability",
    "rule_of_thirty",
    "rule_of_three",
    "score_histogram",
    "threshold_at_false_accept",
]
