"""Assessment: a trial list against a store, each file decoded and scored once for all its claims."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Lock

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.audio.folders import audio_suffixes
from pipeline.errors import AudioError, InputError, NotEnoughSpeechError, UnknownSpeakerError, check_callable
from pipeline.evaluation import NameColumn, SystemScores, Trial
from pipeline.evaluation.breakdowns import SPEECH, metadata_of, speech_groups
from pipeline.evaluation.lists import as_trials, names_given
from pipeline.evaluation.recordings import Recordings
from pipeline.evaluation.speech import SpeechReader
from pipeline.machines.workers import Workers, chosen_workers
from pipeline.metrics import Unscored
from pipeline.scoring.claims import ClaimScorer
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store, as_model
from pipeline.verification.claim_scorers import claim_scorers

Progress = Callable[[int, int], None]
"""Called as progress(files just done, files in all)."""

_MAKING = Lock()
_REFUSED = "where enrollment refused them, --not-enrolled NAME (not_enrolled) counts their trials as rejected"
_form_c = partial(unicodedata.normalize, "NFC")


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A file without a score, the reason, and the number of its trials."""

    path: str
    reason: str
    trials: int


@dataclass(frozen=True, slots=True)
class ScoredFile:
    """``seconds`` of speech of a file, and its ``scores`` by (system, speaker).

    Each is a score and its log-likelihood ratio, None without a calibration. ``channels_differ`` is True if the mean of
    channels with different sounds was scored, ``is_enrolled`` if the file is a copy of an enrolled recording.
    """

    seconds: float
    scores: Mapping[tuple[str, str], tuple[float, float | None]]
    channels_differ: bool = False
    is_enrolled: bool = False


@dataclass(frozen=True)
class Assessment:
    """Scores of every trial that could be scored, and the files and trials that could not.

    Attributes
    ----------
    scores : dict of str to SystemScores
        By system; columns of shape (trials,).
    failed : tuple of FailedFile
        Files without a score.
    unscored : Unscored
        Numbers of trials without a score, of both classes.
    mixed : tuple of str
        Files scored by the mean of channels with different sounds.
    enrolled : tuple of str
        Files that are copies of enrolled recordings or of parts of them: error rates are too low. They are found by
        the fingerprints in a store (``duplicate_audio.keep``); ``assess_pairs`` does not look for them.

    Examples
    --------
    >>> import pathlib, pipeline
    >>> model, trials = pipeline.Store("speakers.store").load(), pipeline.read_trials(pathlib.Path("trials.txt"))
    >>> pipeline.assess(model, trials, pathlib.Path()).failed_trials
    0
    """

    scores: dict[str, SystemScores]
    failed: tuple[FailedFile, ...]
    unscored: Unscored
    mixed: tuple[str, ...] = ()
    enrolled: tuple[str, ...] = ()

    def __repr__(self) -> str:
        scored = max((one.scores.size for one in self.scores.values()), default=0)
        return f"<Assessment by {', '.join(self.scores)}: {scored} trials scored, {self.failed_trials} not>"

    @property
    def failed_trials(self) -> int:
        """Return the number of trials without a score, of both classes."""
        return self.unscored.total


def assess(
    model: SpeakerModel | Store | Path | str,
    trials: Sequence[Trial] | Path | str,
    root: Path | str | Recordings,
    *,
    systems: Iterable[str] | str | None = None,
    not_enrolled: Collection[str] | str = (),
    channel: int | None = None,
    jobs: int = 1,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Assessment:
    """Score ``trials``, their paths relative to ``root``, under ``systems`` (default: all available).

    Trials on a file that cannot be decoded or has too little speech have no score (failures to acquire); the file is
    listed in ``failed``. Raises UnknownSpeakerError for a claim on somebody who is neither enrolled nor in
    ``not_enrolled``, and InputError for a name in ``not_enrolled`` that is enrolled or never claimed, and for arguments
    of another type.

    Parameters
    ----------
    model : SpeakerModel, Store or path
        The enrolled speakers.
    trials : sequence of Trial, or path of a list
        Claims on audio files (``read_trials``).
    root : path
        Folder that the trials' paths are relative to, or Kaldi data directory of the utterances that they name.
    systems : iterable of str, or str, optional
        Scoring systems, or one.
    not_enrolled : collection of str, or str, optional
        People who could not be enrolled (``EnrollmentReport.refused``): claims on them are failures to enroll.
    channel : int, optional
        Channel to read of each file, from 1, where a trial chooses none; by default the mean of all.
    jobs, workers : int, Workers, optional
        Threads, or workers elsewhere; neither changes a bit of any score.
    progress : callable, optional
        Called as ``progress(files just done, files in all)``.

    Returns
    -------
    Assessment

    Examples
    --------
    >>> import pathlib, pipeline
    >>> model, trials = pipeline.Store("speakers.store").load(), pipeline.read_trials(pathlib.Path("trials.txt"))
    >>> sorted(pipeline.assess(model, trials, pathlib.Path(), systems=["poao", "rpoao"]).scores)
    ['poao', 'rpoao']
    """
    check_callable("progress", progress)
    workers = chosen_workers(workers, jobs)
    model, trials = as_model(model), as_trials(trials)
    available = model.evaluated_systems
    named = available if systems is None else names_given("systems", systems, "the names of scoring systems, or one,")
    names = tuple(model.check_system(name, available) for name in dict.fromkeys(named))
    absent = _absent(model, trials, names_given("not_enrolled", not_enrolled, "a collection of names, or one,"))
    refused = Counter(trial.target for trial in trials if _form_c(trial.speaker) in absent)
    trials = [trial for trial in trials if _form_c(trial.speaker) not in absent]
    positions = positions_of(model, trials, _REFUSED)
    by_path: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_path[trial.segment].append(trial)
    by_claims: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, its_trials in by_path.items():
        by_claims[tuple(dict.fromkeys(trial.speaker for trial in its_trials))].append(path)
    reader = SpeechReader(model, Recordings.under(root, channel, workers).of(trials))
    files = _FileScorer(model, reader, names, positions)
    # Files of the same claims follow each other, and share a scorer.
    tasks = [(path, claims, len(by_path[path])) for claims, paths in by_claims.items() for path in paths]
    results: dict[str, ScoredFile | FailedFile] = {}
    with threadpool_limits(1):
        scored = workers.map(_score_file, tasks, common=files, reads=files.reads)
        for (path, _, _), result in zip(tasks, scored, strict=True):
            results[path] = result
            if progress is not None:
                progress(1, len(by_path))
    return _collect(names, trials, results, refused)


def _absent(model: SpeakerModel, trials: Sequence[Trial], not_enrolled: Collection[str]) -> set[str]:
    """Return the names ``not_enrolled``, normalised; raises InputError for one that is enrolled or never claimed."""
    names = set(map(_form_c, not_enrolled))
    if there := sorted(names.intersection(model.names)):
        raise InputError(f"not enrolled: {there[0]!r} is enrolled in {model.where}; is it the name of somebody else?")
    if unclaimed := sorted(names.difference(_form_c(trial.speaker) for trial in trials)):
        raise InputError(
            f"not enrolled: a trial must claim each of these names, got none for {unclaimed[0]!r}; a mistyped name, or"
            " another list?"
        )
    return names


def _check_columns(model: SpeakerModel, trials: Sequence[Trial]) -> None:
    """Raise InputError if no trial claims a speaker, and the columns look swapped or the rows like pairs of files."""
    names = set(model.names)
    if not trials or any(trial.speaker in names for trial in trials):
        return
    first = trials[0]
    if all(trial.path in names for trial in trials):
        raise InputError(
            f"trials: the columns look swapped: an enrolled speaker and the path of an audio file were expected, got"
            f" {first.speaker!r} as the speaker and {first.path!r}, who is enrolled, as the path"
        )
    if all(Path(trial.speaker).suffix.lower() in audio_suffixes() for trial in trials):
        raise InputError(
            f"trials: a claim must name an enrolled speaker, got {first.speaker!r}, which looks like an audio file;"
            " lists of file pairs, as VoxCeleb's, are scored with --pairs (assess_pairs), by comparing two recordings"
        )


def positions_of(model: SpeakerModel, trials: Sequence[Trial], remedy: str) -> dict[str, int]:
    """Return the position in the model of each claimed speaker.

    Raises UnknownSpeakerError, with a ``remedy``, for claims on people who are not enrolled, and InputError as
    ``_check_columns``.
    """
    _check_columns(model, trials)
    claims = Counter(trial.speaker for trial in trials)
    try:
        return {name: model.position(name) for name in claims}
    except UnknownSpeakerError as error:
        known = set(model.names)
        theirs = [count for name, count in claims.items() if _form_c(name) not in known]
        more = (
            f"; {sum(theirs)} of {len(trials)} trials claim people who are not enrolled (names: {len(theirs)});"
            f" {remedy}"
        )
        raise UnknownSpeakerError(error.name, error.nearest, nobody=error.nobody, more=more) from None


@dataclass(frozen=True, eq=False)
class _FileScorer:
    """Scorers of recordings by ``systems`` of ``model``; ``positions`` are the claimed speakers' indices in it."""

    model: SpeakerModel
    reader: SpeechReader
    systems: tuple[str, ...]
    positions: Mapping[str, int]
    _latest: dict[tuple[str, ...], ClaimScorer] = field(default_factory=dict, init=False)

    @cached_property
    def _scorer_of(self) -> Callable[..., ClaimScorer]:
        return claim_scorers(self.model, self.systems)

    def scorer(self, claims: tuple[str, ...]) -> ClaimScorer:
        """Return the scorer of ``claims``; only the latest is kept: each has coefficients of a whole population."""
        with _MAKING:
            if claims not in self._latest:
                self._latest.clear()
                self._latest[claims] = self._scorer_of([self.positions[claim] for claim in claims])
            return self._latest[claims]

    def reads(self, path: str, *_: object) -> tuple[Path, ...]:
        """Return the paths that are read to score the file at ``path``."""
        return (self.reader.recordings.find(path).path,)


def _score_file(files: _FileScorer, path: str, claims: tuple[str, ...], trials: int) -> ScoredFile | FailedFile:
    """Return the scores of the file at ``path`` for all ``claims``, or the reason why its ``trials`` have none."""
    model, scorer = files.model, files.scorer(claims)
    try:
        speech = files.reader.read(path)
    except (AudioError, NotEnoughSpeechError) as error:
        return FailedFile(path, str(error), trials)
    running = scorer.start()
    running.push(speech.features)
    results: dict[tuple[str, str], tuple[float, float | None]] = {}
    for system, scores in running.scores().items():
        llrs = model.llrs(system, scores, running.frames)
        for number, claim in enumerate(claims):
            results[system, claim] = float(scores[number]), None if llrs is None else float(llrs[number])
    seconds = running.frames * model.config.features.step_seconds
    return ScoredFile(seconds, results, speech.channels_differ, speech.is_enrolled)


def _collect(
    systems: tuple[str, ...],
    trials: Sequence[Trial],
    results: dict[str, ScoredFile | FailedFile],
    refused: Mapping[bool, int],
) -> Assessment:
    done = {path: result for path, result in results.items() if not isinstance(result, FailedFile)}
    scored = [trial for trial in trials if trial.segment in done]
    lost = Counter(trial.target for trial in trials if trial.segment not in done)
    speakers, paths = NameColumn.of(trial.speaker for trial in scored), NameColumn.of(trial.segment for trial in scored)
    targets = np.array([trial.target for trial in scored], dtype=np.bool_)
    speech = speech_groups(done[trial.segment].seconds for trial in scored)
    metadata = {SPEECH: speech, **metadata_of(trial.metadata for trial in scored)}
    by_system = {}
    for system in systems:
        pairs = [done[trial.segment].scores[system, trial.speaker] for trial in scored]
        scores, llrs = np.array([score for score, _ in pairs]), [llr for _, llr in pairs]
        ratios = np.array(llrs) if pairs and None not in llrs else None
        by_system[system] = SystemScores(speakers, paths, scores, targets, ratios, metadata)
    failed = tuple(result for result in results.values() if isinstance(result, FailedFile))
    mixed = tuple(path for path, result in done.items() if result.channels_differ)
    enrolled = tuple(path for path, result in done.items() if result.is_enrolled)
    unscored = Unscored(lost[True], lost[False], refused[True], refused[False])
    return Assessment(by_system, failed, unscored, mixed, enrolled)
