"""Calibration to the user's own trials, through the microphone, line and room in use.

Enrollment fits thresholds and log-likelihood ratios to held-out enrollment speech. The user's own trials, of which the
store keeps only the scores, replace that speech. They are kept when more speakers are enrolled; those of a removed
speaker are deleted. No machine changes. Scores change only for systems that sum others, whose weights are fitted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.enrollment.heldout_scoring import HeldOutScoring
from pipeline.errors import AudioError, InputError, MetricError, NotEnoughSpeechError, check_callable
from pipeline.evaluation import Trial
from pipeline.evaluation.assess import FailedFile, Progress, positions_of
from pipeline.evaluation.lists import as_trials
from pipeline.evaluation.recordings import Recordings
from pipeline.evaluation.speech import SpeechReader
from pipeline.machines.workers import LocalThreads
from pipeline.metrics import ErrorRates, equal_error_rate, log_likelihood_ratio_cost, rates_at
from pipeline.scoring.rules import RULES
from pipeline.scoring.trials import NOBODY, OWN, HeldOutTrials
from pipeline.store.arrays import UpdatedArrays
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store, as_store

# Least number of trials of each class, and of speakers of target trials, to set a threshold by.
LEAST_TRIALS, LEAST_SPEAKERS = 10, 2

Labels = Mapping[str, Mapping[str, bool]]
"""True for target trials, by segment and claimed speaker."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Errors of the default system on own trials: EER, the store's threshold, rates there, Cllr in bits."""

    eer: float
    threshold: float
    rates: ErrorRates
    cllr: float | None


@dataclass(frozen=True)
class CalibrationReport:
    """The model as stored, the user's ``trials``, files that ``failed``, and the fit to these trials before and after.

    ``before`` is None where the store had no threshold. The error rates ``after`` are on the trials that thresholds
    and the ratios of ``fused`` were fitted to, and therefore too low. ``mixed`` are the files scored by the mean of
    channels with different sounds.

    Examples
    --------
    >>> import pathlib, pipeline
    >>> trials = pipeline.read_trials(pathlib.Path("own.txt"))
    >>> report = pipeline.calibrate("speakers.store", trials, pathlib.Path())
    >>> report.target_trials, report.nontarget_trials, report.speakers
    (12, 12, 2)
    """

    model: SpeakerModel
    trials: HeldOutTrials
    failed: tuple[FailedFile, ...]
    before: Fit | None
    after: Fit
    mixed: tuple[str, ...] = ()

    @property
    def target_trials(self) -> int:
        """Return the number of target trials."""
        return int(self.trials.is_target.sum())

    @property
    def nontarget_trials(self) -> int:
        """Return the number of nontarget trials."""
        return len(self.trials) - self.target_trials

    @property
    def unknown_trials(self) -> int:
        """Return the number of nontarget trials by people who are not enrolled."""
        return int(self.trials.unknown.sum())

    @property
    def speakers(self) -> int:
        """Return the number of speakers who have target trials."""
        return len(np.unique(self.trials.claims[self.trials.is_target]))


def calibrate(
    store: Store | Path | str,
    trials: Sequence[Trial] | Path | str,
    root: Path | str | Recordings,
    *,
    channel: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> CalibrationReport:
    """Fit the thresholds and log-likelihood ratios of a store to labelled trials of your own, from now on.

    They replace the held-out trials, and earlier trials of your own. The speaker of a file is the one claimed in its
    target trial; a file without a target trial is taken to be of somebody who is not enrolled. A trial listed twice
    counts once. Files that cannot be decoded, have too little speech, or are copies of enrolled recordings (by the
    store's fingerprints) are left out with their trials, and reported.

    Parameters
    ----------
    store : Store or path
        Where the model is kept.
    trials : sequence of Trial, or path of a list
        Claims on audio files that nobody was enrolled with (``read_trials``).
    root : path
        Folder that the trials' paths are relative to, or Kaldi data directory of the utterances that they name.
    channel : int, optional
        Channel to read of each file, from 1, where a trial chooses none; by default the mean of all.
    jobs : int
        Threads.
    progress : callable, optional
        Called as ``progress(files just done, files in all)``.

    Returns
    -------
    CalibrationReport

    Raises
    ------
    UnknownSpeakerError
        For a claim on somebody who is not enrolled.
    InputError
        For labels that contradict each other, or fewer than ten target trials of two speakers and ten nontarget ones.

    Examples
    --------
    >>> import pathlib, pipeline
    >>> trials = pipeline.read_trials(pathlib.Path("own.txt"))
    >>> report = pipeline.calibrate("speakers.store", trials, pathlib.Path())
    >>> report.model.threshold("poao") == report.before.threshold
    False
    """
    check_callable("progress", progress)
    trials = as_trials(trials)
    labels = _labelled(trials)
    _check_enough(labels, ())
    store = as_store(store)
    store.load()  # where there is no store, none is made
    recordings = Recordings.under(root, channel)
    with store.writing() as transaction, threadpool_limits(1):
        model = transaction.existing
        positions = positions_of(model, trials, "leave these trials out of the list")
        own, failed, mixed = _scored(model, labels, positions, recordings.of(trials), jobs, progress)
        try:
            before = _fit(model, own)
        except MetricError:  # the store has no threshold
            before = None
        fitted = transaction.save(_with_own(model, own))
    return CalibrationReport(fitted, own, failed, before, _fit(fitted, own), mixed)


def reset_calibration(store: Store | Path | str) -> SpeakerModel:
    """Erase your own trials from a store: thresholds and ratios are fitted to the held-out trials again.

    Parameters
    ----------
    store : Store or path
        Where the model is kept.

    Returns
    -------
    SpeakerModel

    Raises
    ------
    StoreMissingError
        Where there is no store.

    Examples
    --------
    >>> import pipeline
    >>> pipeline.reset_calibration("speakers.store").names
    ('anna', 'dexter', 'ivan', 'lars')
    """
    store = as_store(store)
    store.load()  # where there is no store, none is made
    with store.writing() as transaction, threadpool_limits(1):
        return transaction.save(_with_own(transaction.existing, None))


def _with_own(model: SpeakerModel, own: HeldOutTrials | None) -> SpeakerModel:
    """Return ``model`` with the user's ``own`` trials in place of earlier ones, and calibrated to them."""
    gone = frozenset(name for name in model.shared if name.startswith(OWN))
    arrays = {} if own is None else own.as_arrays(kind=OWN)
    return replace(model, shared=UpdatedArrays(arrays, model.shared, gone)).calibrated()


def _labelled(trials: Sequence[Trial]) -> Labels:
    """Return the labels of ``trials``; raises InputError where they contradict each other."""
    labels: dict[str, dict[str, bool]] = {}
    for trial in trials:
        claims = labels.setdefault(trial.segment, {})
        if claims.setdefault(trial.speaker, trial.target) != trial.target:
            raise InputError(f"trials: {trial.segment} claimed for {trial.speaker!r} is both target and nontarget")
    for path, claims in labels.items():
        spoken = [name for name, is_target in claims.items() if is_target]
        if len(spoken) > 1:
            raise InputError(
                f"trials: {path} must be a target trial of one speaker, got {', '.join(map(repr, spoken[:3]))};"
                " a wrong label, or one person enrolled under two names?"
            )
    return labels


def _check_enough(labels: Labels, failed: Sequence[FailedFile]) -> None:
    """Raise InputError unless the files that did not fail make enough trials."""
    lost = {file.path for file in failed}
    left = [(name, is_target) for path, of in labels.items() if path not in lost for name, is_target in of.items()]
    spoken = [name for name, is_target in left if is_target]
    counts = len(spoken), len(set(spoken)), len(left) - len(spoken)
    if counts[0] < LEAST_TRIALS or counts[1] < LEAST_SPEAKERS or counts[2] < LEAST_TRIALS:
        reason = f"; {len(lost)} files could not be scored, the first: {failed[0].reason}" if failed else ""
        raise InputError(
            f"trials: calibration needs at least {LEAST_TRIALS} target trials of {LEAST_SPEAKERS} speakers and"
            f" {LEAST_TRIALS} nontarget trials, got {counts[0]} target trials (speakers: {counts[1]}) and"
            f" {counts[2]} nontarget trials{reason}"
        )


def _scored(
    model: SpeakerModel,
    labels: Labels,
    positions: Mapping[str, int],
    recordings: Recordings,
    jobs: int,
    progress: Progress | None,
) -> tuple[HeldOutTrials, tuple[FailedFile, ...], tuple[str, ...]]:
    """Return the trials of ``labels`` as scored by ``model``, files without a score, and those that were mixed.

    ``positions`` are those of the claimed speakers in the model. Raises InputError for too few trials with a score.
    """
    ids = [speaker.id for speaker in model.speakers]
    claims = sorted(positions.values())
    scoring = HeldOutScoring(model.config, model.population(), {}, claims, ids, condition=model.condition())
    scored, failed, mixed = [], [], []
    common = model, SpeechReader(model, recordings), scoring, positions
    results = LocalThreads(jobs).map(_score_file, labels.items(), common=common)
    for path, result in zip(labels, results, strict=True):
        if progress is not None:
            progress(1, len(labels))
        if isinstance(result, FailedFile):
            failed.append(result)
        else:
            trials, channels_differ = result
            scored.append(trials)
            mixed += [path] if channels_differ else []
    _check_enough(labels, failed)
    return HeldOutTrials.joined(scored), tuple(failed), tuple(mixed)


def _score_file(
    common: tuple[SpeakerModel, SpeechReader, HeldOutScoring, Mapping[str, int]], path: str, claims: Mapping[str, bool]
) -> tuple[HeldOutTrials, bool] | FailedFile:
    """Return the listed trials of one file, and whether channels were mixed; or the reason why there are none."""
    model, reader, scoring, positions = common
    try:
        speech = reader.read(path)
    except (AudioError, NotEnoughSpeechError) as error:
        return FailedFile(path, str(error), len(claims))
    if speech.is_enrolled:
        reason = f"{path}: it is a copy of an enrollment recording; leave it out, or give another recording"
        return FailedFile(path, reason, len(claims))
    spoken = [positions[name] for name, is_target in claims.items() if is_target]
    (everybody,) = scoring.score(spoken[0] if spoken else 0, [speech.features])
    ids = [model.speakers[positions[name]].id for name in claims]
    # The second scoring, without an impostor's own machines, is left out: an impostor who is not enrolled has none.
    listed = everybody.where(np.isin(everybody.claims, np.array(ids, dtype=np.uint64)) & ~everybody.unknown)
    if spoken:
        return listed, speech.channels_differ
    count = len(listed)
    by_unknown = replace(listed, speakers=np.full(count, NOBODY, dtype=np.uint64), unknown=np.ones(count, dtype=bool))
    return by_unknown, speech.channels_differ


def _fit(model: SpeakerModel, trials: HeldOutTrials) -> Fit:
    """Return the errors of the default system of ``model`` on ``trials``; raises MetricError without a threshold."""
    system = model.config.scoring.system
    threshold, calibration = model.threshold(system), model.calibration(system)
    llrs = None if calibration is None else trials.ratios(calibration)
    scores = llrs if RULES[system].parts and llrs is not None else trials.scores[system]
    own = trials.is_target
    return Fit(
        eer=equal_error_rate(scores[own], scores[~own]).rate,
        threshold=threshold,
        rates=rates_at(scores[own], scores[~own], threshold),
        cllr=None if llrs is None else log_likelihood_ratio_cost(llrs[own], llrs[~own]),
    )
