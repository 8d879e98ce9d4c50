"""Assessment of pairs of recordings, as in VoxCeleb's lists: one voice or two, by ``compare_voices``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.errors import AudioError, InputError, NotEnoughSpeechError, check_callable
from pipeline.evaluation import NameColumn, SystemScores, Trial
from pipeline.evaluation.assess import Assessment, FailedFile, Progress, assess
from pipeline.evaluation.breakdowns import metadata_of
from pipeline.evaluation.lists import as_trials
from pipeline.evaluation.recordings import Recordings
from pipeline.machines.workers import LocalThreads
from pipeline.metrics import Unscored
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store
from pipeline.verification.voice_comparison import background_of, check_two, enrolled_beside

SYSTEM = "compare_voices"
"""Name under which the ratios of pairs are reported."""

Ratios = dict[tuple[str, str], float]
"""Log-likelihood ratio, in nats, by the recording that was enrolled and the one that was verified."""


def assess_pairs(
    background: SpeakerModel | Store | Path | str,
    pairs: Sequence[Trial] | Path | str,
    root: Path | str,
    *,
    channel: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Assessment:
    """Score pairs of recordings by the mean log-likelihood ratio of both directions, as ``compare_voices`` does.

    Every recording is enrolled once beside the background, in memory alone, and its partners are verified: a list takes
    the time of one enrollment per recording. A pair with a recording that cannot be decoded or has too little speech
    has no score.

    Parameters
    ----------
    background : SpeakerModel, Store or path
        Speakers to compare with, none of whom should be in any recording.
    pairs : sequence of Trial, or path of a list
        ``speaker`` and ``path`` are the two recordings; ``target`` if they are of one voice.
    root : path
        Folder that their paths are relative to, or Kaldi data directory of the utterances that they name.
    channel : int, optional
        Channel to read of each file, from 1; by default the mean of all.
    jobs : int
        Threads.
    progress : callable, optional
        Called as ``progress(recordings just enrolled, recordings in all)``.

    Returns
    -------
    Assessment
        Of the one system ``compare_voices``, whose scores are natural-log likelihood ratios.

    Raises
    ------
    InputError
        For pairs that choose channels, and a pair of one recording with itself.
    MetricError
        For a background without calibrated ratios.

    Examples
    --------
    >>> import pathlib, pipeline
    >>> from pipeline.evaluation import Trial
    >>> background = pipeline.Store("speakers.store").load().view_without("anna")
    >>> pairs = [Trial("letter.wav", "reply.wav", True)]
    >>> (pipeline.assess_pairs(background, pairs, pathlib.Path()).scores["compare_voices"].scores > 0).tolist()
    [True]
    """
    check_callable("progress", progress)
    stored, pairs, recordings = background_of(background), as_trials(pairs), Recordings.under(root, channel)
    if any(pair.channel is not None for pair in pairs):
        raise InputError(
            "pairs: a list of pairs must name recordings alone, got a column of channels, which could only apply to the"
            " second recordings; leave it out, and choose one channel for all with --channel N (channel)"
        )
    for pair in pairs:
        check_two(recordings.find(pair.speaker), recordings.find(pair.path))
    partners: dict[str, dict[str, None]] = defaultdict(dict)  # sets in the list's order
    for pair in pairs:
        partners[pair.speaker][pair.path] = None
        partners[pair.path][pair.speaker] = None
    # Read once: every enrollment is trained beside all of it.
    model = replace(stored, arrays=tuple(map(dict, stored.arrays)), shared=dict(stored.shared))
    ratios: Ratios = {}
    reasons: dict[str, str] = {}
    mixed: dict[str, None] = {}  # a set in the list's order
    for enrolled, others in partners.items():
        try:
            found = _compared(model, recordings, enrolled, [other for other in others if other not in reasons], jobs)
        except (AudioError, NotEnoughSpeechError) as error:
            reasons[enrolled] = str(error)
        else:
            (scores,) = found.scores.values()
            llrs = () if scores.llrs is None else scores.llrs.tolist()
            ratios |= {(enrolled, other): llr for other, llr in zip(scores.paths, llrs, strict=True)}
            reasons |= {failed.path: failed.reason for failed in found.failed}
            mixed |= dict.fromkeys(found.mixed)
        if progress is not None:
            progress(1, len(partners))
    return _collect(pairs, ratios, reasons, tuple(mixed))


def _compared(
    background: SpeakerModel, recordings: Recordings, enrolled: str, others: Iterable[str], jobs: int
) -> Assessment:
    """Return the scores of the ``others`` for the speaker of ``enrolled``."""
    model, name = enrolled_beside(background, recordings.find(enrolled), LocalThreads(jobs))
    claims = [Trial(name, other, True) for other in others]
    return assess(model, claims, recordings, systems=model.config.scoring.system, jobs=jobs)


def _collect(pairs: Sequence[Trial], ratios: Ratios, reasons: dict[str, str], mixed: tuple[str, ...]) -> Assessment:
    lost = [pair for pair in pairs if pair.speaker in reasons or pair.path in reasons]
    without = Counter(pair.speaker if pair.speaker in reasons else pair.path for pair in lost)
    scored = [pair for pair in pairs if pair.speaker not in reasons and pair.path not in reasons]
    both = np.array([(ratios[one.speaker, one.path] + ratios[one.path, one.speaker]) / 2 for one in scored])
    scores = SystemScores(
        NameColumn.of(pair.speaker for pair in scored),
        NameColumn.of(pair.path for pair in scored),
        both,
        np.array([pair.target for pair in scored], dtype=np.bool_),
        both if scored else None,
        metadata_of(pair.metadata for pair in scored),
    )
    failed = tuple(FailedFile(path, reasons[path], count) for path, count in without.items())
    targets = sum(pair.target for pair in lost)
    return Assessment({SYSTEM: scores}, failed, Unscored(targets, len(lost) - targets), mixed)
