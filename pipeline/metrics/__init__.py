"""Metrics: scores and labels to numbers. Error rates, costs, intervals and curves; pure functions of arrays."""

from pipeline.metrics.bootstrap import DetBand, Interval, Statistic, bootstrap_interval, det_band
from pipeline.metrics.cllr import affine_cllr, log_likelihood_ratio_cost, minimum_cllr
from pipeline.metrics.costs import (
    MAIN_POINT,
    OPERATING_POINTS,
    MinimumCost,
    OperatingPoint,
    actual_cost,
    detection_cost,
    minimum_costs_of,
)
from pipeline.metrics.curves import ErrorCurve, error_curve
from pipeline.metrics.diagrams import (
    Reliability,
    bayes_error_rates,
    reliability,
    score_histogram,
)
from pipeline.metrics.error_rates import (
    EqualErrorRate,
    ErrorRates,
    equal_error_rate,
    equal_error_rate_hull_of,
    equal_error_rate_of,
    rates_at,
    threshold_at_false_accept,
)

__all__ = [
    "MAIN_POINT",
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
    "log_likelihood_ratio_cost",
    "minimum_cllr",
    "minimum_costs_of",
    "rates_at",
    "reliability",
    "score_histogram",
    "threshold_at_false_accept",
]
