"""Comparison of the voices of two recordings: each is enrolled beside a background model, and the other verified."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from pipeline.audio.utterance import Utterance
from pipeline.config import NO_CHECKS
from pipeline.enrollment.enroll import train
from pipeline.enrollment.speech import audible, read_speech
from pipeline.enrollment.training import Trainer
from pipeline.errors import AudioError, InputError, MetricError, NotEnoughSpeechError, check_type
from pipeline.files import is_same_file
from pipeline.machines.workers import LocalThreads, Workers
from pipeline.posteriors import sigmoid
from pipeline.scoring.decisions import NoTruthValue
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store, as_model
from pipeline.verification.audio_warnings import codes
from pipeline.verification.verifier import Verifier


@dataclass(frozen=True, slots=True)
class VoiceComparison(NoTruthValue):
    """Comparison of two recordings: of the ``same`` voice or not, by the mean ``llr`` (nats) of two claims.

    Each recording is enrolled once and the other verified: ``first_enrolled`` and ``second_enrolled`` are the ratios.
    ``probability`` is the probability of one voice at the ``prior`` of the background's settings, whose costs decide,
    too. ``mixed`` are recordings with channels that differ, compared by the mean of these channels.

    Examples
    --------
    >>> import pipeline
    >>> pipeline.VoiceComparison(True, 2.0, 0.8, 0.4, 1.0, 3.0).llr
    2.0
    """

    same: bool
    llr: float
    probability: float
    prior: float
    first_enrolled: float
    second_enrolled: float
    mixed: tuple[str, ...] = ()


def compare_voices(
    background: SpeakerModel | Store | Path | str,
    first: Path | str,
    second: Path | str,
    *,
    channel: int | None = None,
    jobs: int = 1,
) -> VoiceComparison:
    """Compare the voices of two recordings against the speakers of a background model.

    Each recording is enrolled in turn, in memory only, and the other verified. The speakers of the background stand for
    everybody else: there should be many, recorded like the two.

    Parameters
    ----------
    background : SpeakerModel, Store or path
        Speakers to compare with, none of whom should be in either recording.
    first, second : path
        Audio files.
    channel : int, optional
        Channel to read of both, from 1; by default the mean of all.
    jobs : int
        Threads.

    Returns
    -------
    VoiceComparison

    Raises
    ------
    AudioError, InputError, NotEnoughSpeechError, MetricError
        For a file that cannot be read, is given twice, or has too little speech; for a background without
        calibrated ratios.

    Examples
    --------
    >>> import pipeline
    >>> background = pipeline.Store("speakers.store").load()
    >>> pipeline.compare_voices(background.view_without("anna"), "letter.wav", "reply.wav").same
    True
    """
    background = background_of(background)
    for name, path in (("first", first), ("second", second)):
        check_type(name, path, os.PathLike | str, "the path of an audio file")
    check_two(Utterance("", Path(first)), Utterance("", Path(second)))
    updates = [
        _verified(background, Path(enrolled), Path(verified), channel, jobs)
        for enrolled, verified in ((first, second), (second, first))
    ]
    ratios = [llr for llr, _ in updates]
    both = zip((first, second), reversed(updates), strict=True)
    mixed = tuple(dict.fromkeys(str(path) for path, (_, warnings) in both if "channels" in codes(warnings)))
    costs, llr = background.config.threshold, sum(ratios) / 2
    same = llr >= background.operating_point.threshold
    return VoiceComparison(same, llr, sigmoid.posterior(llr, costs.prior), costs.prior, ratios[0], ratios[1], mixed)


def check_two(first: Utterance, second: Utterance) -> None:
    """Raise InputError for the same part of one file, by whatever two paths."""
    if replace(first, path=second.path) == second and is_same_file(first.path, second.path):
        raise InputError(f"{first.path} and {second.path}: two recordings were expected, got the same file twice")


def background_of(given: SpeakerModel | Store | Path | str) -> SpeakerModel:
    """Return the background model, with all impostors taken to be unknown: none of its speakers is in a recording."""
    return replace(as_model(given), unknown_share=1.0)


def enrolled_beside(background: SpeakerModel, recording: Utterance, workers: Workers) -> tuple[SpeakerModel, str]:
    """Enroll the speaker of ``recording`` beside ``background``, in memory only; return the model and the name.

    Raises AudioError, NotEnoughSpeechError or MetricError.
    """
    name, names = str(recording.path), {speaker.name for speaker in background.speakers}
    while name in names:
        name += "'"
    settings = background.config
    trainer = Trainer(settings, background, "speaker", workers, lambda *_: None)
    with threadpool_limits(1):
        voices, unread = read_speech(
            {name: [recording]}, settings, enrolled=len(names), workers=workers, progress=trainer.progress
        )
        if unread:
            raise AudioError("{}: {}".format(*unread[0]))
        voices, _ = audible(voices, settings)
        model, _ = train(trainer, voices, NO_CHECKS)
    if model.calibration(settings.scoring.system) is None:
        raise MetricError(f"{background.where}: the background has too few speakers for calibrated ratios; add more")
    return model, name


def _verified(
    background: SpeakerModel, enrolled: Path, verified: Path, channel: int | None, jobs: int
) -> tuple[float, tuple[str, ...]]:
    """Return the log-likelihood ratio of the file ``verified`` for the speaker of ``enrolled``, and its warnings."""
    model, name = enrolled_beside(background, Utterance("", enrolled, channel=channel), LocalThreads(jobs))
    update = Verifier(model, name).verify_file(verified, channel=channel)
    if update.llr is None:
        raise NotEnoughSpeechError(
            str(verified), seconds=update.speech_seconds, needed=background.config.scoring.min_seconds
        )
    return update.llr, update.warnings
