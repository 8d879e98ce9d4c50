"""Trial lists, score files, error curves, metrics and their intervals: arrays and text only, no drawing."""

from pipeline.evaluation.affine import affine_cllr
from pipeline.evaluation.bootstrap import DetBand, Interval, bootstrap_interval, det_band
from pipeline.evaluation.columns import NameColumn, TrialTable, distinct, group_labels
from pipeline.evaluation.comparison import PairedDifference, paired_bootstrap
from pipeline.evaluation.costs import (
    MAIN_POINT,
    OPERATING_POINTS,
    MinimumCost,
    OperatingPoint,
    actual_cost,
    calibration_loss,
    detection_cost,
    log_likelihood_ratio_cost,
    minimum_costs,
    minimum_costs_of,
)
from pipeline.evaluation.curves import ErrorCurve, error_curve
from pipeline.evaluation.diagrams import (
    BayesErrorRates,
    Reliability,
    ScoreHistogram,
    bayes_error_rates,
    reliability,
    score_histogram,
    wilson_interval,
)
from pipeline.evaluation.joining import JoinCounts
from pipeline.evaluation.metrics import (
    EqualErrorRate,
    ErrorRates,
    equal_error_rate,
    equal_error_rate_hull,
    equal_error_rate_hull_of,
    equal_error_rate_of,
    rates_at,
    threshold_at_false_accept,
)
from pipeline.evaluation.pav import minimum_cllr, pav_llrs
from pipeline.evaluation.replicates import Statistic
from pipeline.evaluation.scores import ScoreRow, SystemScores, read_scores, rows_of, write_scores
from pipeline.evaluation.speakers import (
    SpeakerSpread,
    identification_error,
    speaker_error_rates,
    speaker_spread,
)
from pipeline.evaluation.trials import Trial, read_trials

__all__ = [
    "MAIN_POINT",
    "OPERATING_POINTS",
    "BayesErrorRates",
    "DetBand",
    "EqualErrorRate",
    "ErrorCurve",
    "ErrorRates",
    "Interval",
    "JoinCounts",
    "MinimumCost",
    "NameColumn",
    "OperatingPoint",
    "PairedDifference",
    "Reliability",
    "ScoreHistogram",
    "ScoreRow",
    "SpeakerSpread",
    "Statistic",
    "SystemScores",
    "Trial",
    "TrialTable",
    "actual_cost",
    "affine_cllr",
    "bayes_error_rates",
    "bootstrap_interval",
    "calibration_loss",
    "det_band",
    "detection_cost",
    "distinct",
    "equal_error_rate",
    "equal_error_rate_hull",
    "equal_error_rate_hull_of",
    "equal_error_rate_of",
    "error_curve",
    "group_labels",
    "identification_error",
    "log_likelihood_ratio_cost",
    "minimum_cllr",
    "minimum_costs",
    "minimum_costs_of",
    "paired_bootstrap",
    "pav_llrs",
    "rates_at",
    "read_scores",
    "read_trials",
    "reliability",
    "rows_of",
    "score_histogram",
    "speaker_error_rates",
    "speaker_spread",
    "threshold_at_false_accept",
    "wilson_interval",
    "write_scores",
]
