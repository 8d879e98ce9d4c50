"""Error rates and costs of one system's scores on a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from pipeline.errors import check_seed, check_type
from pipeline.evaluation import SpeakerSpread, SystemScores, identification_error, speaker_error_rates, speaker_spread
from pipeline.evaluation.breakdowns import GroupMetrics, breakdowns
from pipeline.metrics import (
    OPERATING_POINTS,
    EqualErrorRate,
    ErrorRates,
    Interval,
    Statistic,
    Unscored,
    actual_cost,
    affine_cllr,
    bootstrap_interval,
    equal_error_rate_hull_of,
    equal_error_rate_of,
    error_curve,
    false_accept_at,
    false_reject_at,
    generalised_equal_error_rate,
    generalised_rates,
    log_likelihood_ratio_cost,
    minimum_cllr,
    minimum_costs_of,
    rates_at,
)

# Above these sizes a bounded ``measure`` leaves out metrics that take much longer than sorting.
MOST_RESAMPLED = 1_000_000  # trials
MOST_SPEAKERS = 20_000

RATES = (1e-2, 1e-3, 1e-4)
"""Rates of one error at which the other is reported, shares."""

NONE_UNSCORED = Unscored()


@dataclass(frozen=True)
class SystemMetrics:
    """Metrics of one system on one list; None for those that a list of a single class does not define.

    Error rates are those of the scores. ``costs`` (minimum and actual, by operating point), ``min_cllr`` and
    ``affine_cllr``, in bits, are those of the log-likelihood ratios if the system is calibrated, else of the scores;
    actual costs and ``cllr`` are None without a calibration. ``identification_error`` is a share.
    ``at_store_threshold`` are the error rates at ``store_threshold``. ``generalised_eer`` and
    ``generalised_at_store_threshold`` count ``unscored`` trials as rejected claims. ``false_reject_at`` and
    ``false_accept_at`` are the least rate of one error at each of ``RATES`` of the other. ``by_metadata`` are the
    metrics by the values of each metadata column.
    """

    n_target: int
    n_nontarget: int
    eer: EqualErrorRate | None
    eer_hull: float | None
    eer_interval: Interval | None
    costs: Mapping[str, tuple[float | None, float | None]]
    cllr: float | None
    min_cllr: float | None
    affine_cllr: float | None
    identification_error: float | None
    speaker_spread: SpeakerSpread | None
    store_threshold: float | None
    at_store_threshold: ErrorRates
    unscored: Unscored
    generalised_eer: EqualErrorRate | None
    generalised_at_store_threshold: ErrorRates
    false_reject_at: Mapping[float, float | None]
    false_accept_at: Mapping[float, float | None]
    by_metadata: Mapping[str, Mapping[str, GroupMetrics]]


def measure(
    scores: SystemScores,
    *,
    threshold: float | None,
    seed: int,
    unscored: Unscored = NONE_UNSCORED,
    bounded: bool = False,
) -> SystemMetrics:
    """Return error rates and costs of one system's ``scores``, in O(n log n).

    Parameters
    ----------
    scores : SystemScores
        Scores and labels of one system (``Assessment.scores``).
    threshold : float or None
        Threshold of the store, at which error rates are reported.
    seed : int
        Seeds the bootstrap.
    unscored : Unscored, optional
        Numbers of trials without a score (``Assessment.unscored``), for generalised rates.
    bounded : bool
        Leave out metrics that take much longer than sorting a long list (``left_out``).

    Returns
    -------
    SystemMetrics

    Raises
    ------
    InputError
        For arguments of another type, and a seed below 0.

    Examples
    --------
    >>> import pathlib, pipeline
    >>> model, trials = pipeline.Store("speakers.store").load(), pipeline.read_trials(pathlib.Path("trials.txt"))
    >>> scores = pipeline.assess(model, trials, pathlib.Path(), systems=["poao"]).scores["poao"]
    >>> pipeline.measure(scores, threshold=model.threshold("poao"), seed=0).eer.rate
    0.0
    """
    check_type("scores", scores, SystemScores, "the scores of one system, as Assessment.scores[system],")
    check_type("unscored", unscored, Unscored, "the numbers of trials without a score, as Assessment.unscored,")
    check_seed(seed)
    target, nontarget = scores.target, scores.nontarget
    both = target.size > 0 and nontarget.size > 0
    resampled = both and not (bounded and scores.scores.size > MOST_RESAMPLED)
    several = min(len(scores.target_speakers.used), len(scores.nontarget_speakers.used)) > 1
    by_speaker = {} if bounded and len(scores.speakers.used) > MOST_SPEAKERS else speaker_error_rates(scores)
    calibrated = scores.llrs is not None
    costed = cost_scores(scores)
    judged = costed.target, costed.nontarget
    curve = error_curve(target, nontarget) if both else None
    minimum = {} if curve is None else minimum_costs_of(curve if not calibrated else error_curve(*judged))
    at_threshold = ErrorRates(None, None) if threshold is None else rates_at(target, nontarget, threshold)
    counts = {"targets": target.size, "nontargets": nontarget.size}
    return SystemMetrics(
        n_target=target.size,
        n_nontarget=nontarget.size,
        eer=None if curve is None else equal_error_rate_of(curve),
        eer_hull=None if curve is None else equal_error_rate_hull_of(curve),
        eer_interval=speaker_interval(scores, seed=seed) if resampled and several else None,
        costs={
            name: (minimum.get(name), actual_cost(*judged, *astuple(point)) if both and calibrated else None)
            for name, point in OPERATING_POINTS.items()
        },
        cllr=log_likelihood_ratio_cost(*judged) if both and calibrated else None,
        min_cllr=minimum_cllr(*judged) if both else None,
        affine_cllr=affine_cllr(*judged) if resampled else None,
        identification_error=identification_error(scores),
        speaker_spread=speaker_spread(by_speaker) if by_speaker else None,
        store_threshold=threshold,
        at_store_threshold=at_threshold,
        unscored=unscored,
        generalised_eer=None if curve is None else generalised_equal_error_rate(curve, unscored, **counts),
        generalised_at_store_threshold=at_threshold
        if threshold is None
        else generalised_rates(at_threshold, unscored, **counts),
        false_reject_at={rate: None if curve is None else false_reject_at(curve, rate) for rate in RATES},
        false_accept_at={rate: None if curve is None else false_accept_at(curve, rate) for rate in RATES},
        by_metadata=breakdowns(scores, threshold),
    )


def left_out(scores: SystemScores) -> tuple[str, ...]:
    """Return, in words, the metrics that a bounded ``measure`` leaves out of a long list."""
    trials = f"95 % intervals and affine-calibrated Cllr: too slow for lists of more than {MOST_RESAMPLED:,} trials"
    speakers = f"error rates by speaker: too slow for more than {MOST_SPEAKERS:,} speakers"
    long = {trials: scores.scores.size > MOST_RESAMPLED, speakers: len(scores.speakers.used) > MOST_SPEAKERS}
    return tuple(words for words, left in long.items() if left)


def cost_scores(scores: SystemScores) -> SystemScores:
    """Return the scores that costs are computed from: the log-likelihood ratios if the system is calibrated."""
    return scores if scores.llrs is None else replace(scores, scores=scores.llrs)


def speaker_interval(scores: SystemScores, *, seed: int, statistic: Statistic = "eer") -> Interval:
    """Return the 95 % bootstrap interval of a statistic over speakers; raises MetricError for fewer than two."""
    return bootstrap_interval(
        scores.target,
        scores.nontarget,
        seed=seed,
        statistic=statistic,
        target_speakers=scores.target_speakers.codes,
        nontarget_speakers=scores.nontarget_speakers.codes,
    )
