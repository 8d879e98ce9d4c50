"""Enrollment: recordings of speakers to a speaker model in a store, with thresholds from held-out utterances.

Two passes. The hold-out pass sets part of every new speaker's utterances aside, trains on the rest and scores the
utterances set aside; only those scores are kept, and the calibrations fitted to them. The final pass
trains the machines that go into the store on everything. Speakers already enrolled keep their machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import get_args

from threadpoolctl import threadpool_limits

from pipeline.audio.corpus import Recordings, Utterance, as_corpus
from pipeline.config import ChecksConfig, Config
from pipeline.enrollment.adding import TakenOut, taken_out
from pipeline.enrollment.arguments import agreed_settings, check_covered, check_names, checks_of
from pipeline.enrollment.checks import Finding, needs_recordings
from pipeline.enrollment.growing import Grown, grown
from pipeline.enrollment.holdout import HeldOut, hold_out_pass
from pipeline.enrollment.new_speakers import NewSpeaker
from pipeline.enrollment.report import EnrollmentReport
from pipeline.enrollment.speech import Progress, audible, is_narrow_band, read_speech
from pipeline.enrollment.training import Trainer
from pipeline.errors import InputError, TracesLeftError, check_callable
from pipeline.machines.training import machine_count
from pipeline.machines.workers import Workers, chosen_workers
from pipeline.scoring.calibrations import Calibrations
from pipeline.scoring.trials import HELD_OUT
from pipeline.store.layout import AnyArray
from pipeline.store.model import SpeakerModel
from pipeline.store.speakers import Role
from pipeline.store.store import Store, as_store


def enroll(
    store: Store | Path | str,
    recordings: Recordings,
    config: Config | None = None,
    *,
    role: Role = "speaker",
    quality: ChecksConfig | None = None,
    add: bool = False,
    new: bool = False,
    anew: bool = False,
    channel: int | None = None,
    jobs: int = 1,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> EnrollmentReport:
    """Enroll speakers into a store, which is made if it is not there.

    All or nothing: on any error the store is as it was. A file that cannot be decoded is skipped and reported; a
    speaker who has too little speech, or is refused by the enrollment checks, is left out and reported.

    Parameters
    ----------
    store : Store or path
        Where the model is kept.
    recordings : path, Corpus, or mapping of str to paths or utterances
        A folder with one folder per speaker, what ``read_corpus`` made of one, or audio files by speaker.
    config : Config, optional
        Must equal the settings of a store that exists; None takes those, or the defaults.
    role : {"speaker", "background"}
        Background speakers are in cohorts only and cannot be claimed.
    quality : ChecksConfig, optional
        Replaces the section ``checks`` of the settings for this enrollment.
    add : bool
        Add recordings to speakers who are enrolled already, in place of an error (``pipeline.enrollment.adding``).
        Where a check refuses any of these, nobody is enrolled.
    new : bool
        As ``add``, but leave out recordings that the store has of the same speaker (``pipeline.enrollment.growing``).
        If no recordings are left, the store stays as it is, and the report names nobody.
    anew : bool
        Enroll everybody again, together: background models are trained on all ``recordings``, not only on the first
        speakers of the store. Settings may change; trials of ``calibrate`` are erased. All speakers of the store must
        be among ``recordings``.
    channel : int, optional
        Channel to read of each recording, from 1, unless its ``Utterance`` names one; by default the mean of all. A
        file that has fewer is skipped.
    jobs, workers : int, Workers, optional
        Threads, or workers elsewhere.
    progress : callable, optional
        Called as ``progress(stage, steps just done, steps in all)``, by one thread at a time; stages may alternate.

    Returns
    -------
    EnrollmentReport

    Raises
    ------
    SpeakerExistsError
        For a name that is taken, without ``add``; raised before any work is done.
    NotEnoughSpeechError, EnrollmentRefusedError
        If nobody is left to enroll, or recordings to be added are refused.

    Examples
    --------
    >>> import pipeline
    >>> config = pipeline.load_config(overrides=["codebook.centroids=8", "supervector.speeds_below=0"])
    >>> pipeline.enroll("new.store", "recordings", config).model.names
    ('anna', 'ivan')
    """
    if role not in get_args(Role):
        raise InputError(f"role: one of {', '.join(get_args(Role))} was expected, got {role!r}")
    check_callable("progress", progress)
    started = time.perf_counter()
    corpus = as_corpus(recordings).of_channel(channel)
    left = Grown(corpus.speakers, {}, ())
    add = add or new
    workers = chosen_workers(workers, jobs)
    report = _one_at_a_time(progress or (lambda *_: None))
    store = as_store(store)
    with store.writing() as transaction, threadpool_limits(1):
        if new and not anew and transaction.model is not None:
            left = grown(transaction.model, corpus.speakers, workers=workers, progress=report)
            if not left.speakers and corpus.speakers:
                return _nothing_new(store.load(), left, corpus.left_out, started)
        out, is_new = _beside(
            transaction.model, left.speakers, config, role, store=store.path, add=add, anew=anew, jobs=workers.jobs
        )
        settings = out.rest.config
        checks = checks_of(settings, quality)
        read = partial(
            read_speech,
            left.speakers,
            enrolled=len(out.rest),
            workers=workers,
            progress=report,
            measured=needs_recordings(checks) or settings.duplicate_audio.keep,
        )
        used, newcomers, skipped = _read_at_its_band(read, settings, is_new=is_new)
        out = replace(out, rest=SpeakerModel(used)) if is_new else out
        trainer = Trainer(used, out.rest, role, workers, report)
        newcomers, short = audible([out.returned(newcomer) for newcomer in newcomers], used)
        trained, held_out = train(trainer, newcomers, checks)
        findings = (*(Finding(name, "speech", True, reason) for name, reason in short), *held_out.findings)
        out.check(findings)
        try:
            model = transaction.save(trained.calibrated(jobs=workers.jobs))
        except TracesLeftError as error:  # of speakers who are still enrolled
            model = error.model
    return EnrollmentReport(
        model=model,
        enrolled=model.speakers[-len(held_out.newcomers) :],
        findings=findings,
        skipped=(*corpus.left_out, *left.skipped, *skipped),
        held_out_trials=len(held_out.trials),
        machines=_trained_count(model, len(held_out.newcomers)),
        narrow_band=used != settings,
        elapsed_seconds=time.perf_counter() - started,
        left_out=left.left_out,
    )


def _beside(
    model: SpeakerModel | None,
    speakers: Mapping[str, Sequence[Utterance]],
    config: Config | None,
    role: Role,
    *,
    store: Path,
    add: bool,
    anew: bool,
    jobs: int,
) -> tuple[TakenOut, bool]:
    """Return the model that ``speakers`` are trained beside, and whether it is empty, as in a new ``store``.

    ``model`` is the one in the store, None for none. Raises InputError, ConfigError and SpeakerExistsError.
    """
    if anew:
        check_covered(model, speakers, role, add=add)
    before = None if anew else model
    settings = agreed_settings(store, before, model.config if config is None and model is not None else config)
    check_names(store, before, speakers, add=add)
    rest = before or SpeakerModel(settings)  # a store that was emptied begins anew
    if add:
        return taken_out(rest, speakers, role, jobs=jobs), not before
    again = model.speakers if anew and model is not None else ()
    return TakenOut(rest, dict.fromkeys(one.name for one in again)), not before


def _nothing_new(
    model: SpeakerModel, left: Grown, not_read: Sequence[tuple[Path, str]], started: float
) -> EnrollmentReport:
    """Return the report for recordings that are all in ``model`` already."""
    skipped, elapsed = (*not_read, *left.skipped), time.perf_counter() - started
    return EnrollmentReport(model, (), (), skipped, 0, 0, False, elapsed, left.left_out)


def _read_at_its_band(
    read: Callable[[Config], tuple[list[NewSpeaker], list[tuple[Path, str]]]], settings: Config, *, is_new: bool
) -> tuple[Config, list[NewSpeaker], list[tuple[Path, str]]]:
    """Return the settings, narrowed for a new store whose recordings end at 4 kHz, and the result of ``read``."""
    newcomers, skipped = read(settings)
    if is_new and settings.narrowed != settings and is_narrow_band(newcomer.high_db for newcomer in newcomers):
        return settings.narrowed, *read(settings.narrowed)
    return settings, newcomers, skipped


def train(trainer: Trainer, newcomers: list[NewSpeaker], checks: ChecksConfig) -> tuple[SpeakerModel, HeldOut]:
    """Run both passes in memory; return the model of known and new speakers, and the result of the hold-out pass.

    The model has no calibrations yet. Raises EnrollmentRefusedError if nobody is left.
    """
    held_out = hold_out_pass(trainer, newcomers, checks)
    model = held_out.final
    if model is None:
        model = trainer.final(held_out.newcomers, held_out.provisional)
    return _with_held_out(model, trainer.known, held_out), held_out


def _one_at_a_time(progress: Progress) -> Progress:
    """Return ``progress`` made safe for several threads: one call at a time."""
    lock = Lock()

    def report(stage: str, done: int, total: int) -> None:
        with lock:
            progress(stage, done, total)

    return report


def _with_held_out(model: SpeakerModel, known: SpeakerModel, held_out: HeldOut) -> SpeakerModel:
    """Return the trained ``model`` with the held-out trials of all its speakers, dropping calibrations to fewer."""
    arrays: dict[str, AnyArray] = {}
    for kind, trials in zip(HELD_OUT, (held_out.trials, held_out.changed), strict=True):
        if trials is not None:
            arrays |= trials.after(known.trials(kind=kind)).as_arrays(kind=kind)
    held = tuple(f"{kind}trials." for kind in HELD_OUT)
    gone = [name for name in model.shared if name.startswith(held) and name not in arrays]
    return model.changed([], arrays, removed=gone, calibrations=Calibrations())


def _trained_count(model: SpeakerModel, newcomers: int) -> int:
    first, pairs = len(model) - newcomers, None
    if model.cohort_table is not None and model.pairs is not None:
        pairs = sum(sum(other < n for other in model.pairs.against(n)) for n in range(first, len(model)))
    return machine_count(len(model), first, model.config.machines, pairs)
