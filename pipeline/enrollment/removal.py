"""Removal of a speaker, with every coefficient that the speaker's voice went into."""

from __future__ import annotations

from pathlib import Path

from threadpoolctl import threadpool_limits

from pipeline.enrollment.solving import Named, machine_arrays, solve, stored_segments
from pipeline.enrollment.speech import Progress
from pipeline.enrollment.training import rest_arrays
from pipeline.machines.branches import UtteranceKind, utterance_kinds_of
from pipeline.machines.cohorts import cohorts_without
from pipeline.machines.pairs import Pairs
from pipeline.machines.training import one_vs_rest
from pipeline.scoring.trials import TRIAL_KINDS
from pipeline.store.machines import cohort_arrays
from pipeline.store.model import SpeakerModel
from pipeline.store.store import Store, as_store


def remove_speaker(
    store: Store | Path | str, name: str, *, jobs: int = 1, progress: Progress | None = None
) -> SpeakerModel:
    """Erase a speaker from a store, and return the model of those who remain.

    Parameters
    ----------
    store : Store or path
        The store.
    name : str
        Name of a speaker or a background speaker.
    jobs : int
        Threads for training machines again.
    progress : callable, optional
        Called as ``progress(stage, steps just done, steps in all)``, first with 0.

    Returns
    -------
    SpeakerModel

    Raises
    ------
    UnknownSpeakerError
        If nobody of that name is enrolled.

    Examples
    --------
    >>> import pipeline
    >>> pipeline.remove_speaker("speakers.store", "lars").names
    ('anna', 'dexter', 'ivan')
    """
    store = as_store(store)
    store.load().view_without(name)  # a wrong name is an error before anything is locked
    with store.writing() as transaction, threadpool_limits(1):
        return transaction.save(retrained_without(transaction.existing, name, jobs=jobs, progress=progress))


def retrained_without(
    model: SpeakerModel, name: str, *, jobs: int = 1, progress: Progress | None = None
) -> SpeakerModel:
    """Retrain everything that the speech of ``name`` went into, and return the model of everybody else.

    This covers one-vs-rest and supervector machines, cohorts and calibrations. The UBM stays as it was fitted to the
    first speakers.
    """
    kinds = [kind for kind in utterance_kinds_of(model.config.machines.kinds) if kind.machine == "supervector"]

    def done(steps: int) -> None:
        if progress is not None:
            progress("machines without the speaker", steps, 2 + len(kinds))

    done(0)
    rest = in_cohorts_without(model, name, jobs=jobs)
    if not len(rest):
        trials = tuple(f"{kind}trials." for kind in TRIAL_KINDS)
        gone_too = [key for key in rest.shared if not key.startswith(trials)]
        return rest.changed([], {}, removed=gone_too, pairs=None).calibrated()
    arrays: list[Named] = [{} for _ in rest.speakers]
    shared: Named = {}
    removed = _one_vs_rest(rest, arrays, jobs)
    done(1)
    for kind in kinds:
        _supervectors(rest, kind, arrays, shared, jobs)
        done(1)
    left = rest.changed(arrays, shared, removed=removed).calibrated(jobs=jobs)
    done(1)
    return left


def in_cohorts_without(model: SpeakerModel, name: str, *, jobs: int) -> SpeakerModel:
    """Return the view without ``name``, with cohorts and pair machines as if only the others had been enrolled."""
    rest, table = model.view_without(name), model.cohort_table
    if not len(rest) or table is None or model.pairs is None or rest.pairs is None:
        return rest
    gone = model.speakers.index(model.speaker(name))
    pool = rest.machines({"one_class"}).pool
    table, trained = cohorts_without(gone, pool, table, model.pairs, model.config.machines, jobs=jobs)
    return rest.changed([], cohort_arrays(table), pairs=Pairs(trained, rest.pairs))


def _one_vs_rest(rest: SpeakerModel, arrays: list[Named], jobs: int) -> tuple[str, ...]:
    """Train the one-vs-rest machines of those who remain; return the arrays to drop if only one speaker does."""
    if "one_vs_rest" not in rest.config.machines.kinds:
        return ()
    if len(rest) < 2:
        return ("one_vs_rest", "one_vs_rest_bias")
    pool = rest.machines({"one_class"}).pool
    for own, machine in zip(arrays, rest_arrays(*one_vs_rest(pool, rest.config.machines, jobs=jobs)), strict=True):
        own.update(machine)
    return ()


def _supervectors(rest: SpeakerModel, kind: UtteranceKind, arrays: list[Named], shared: Named, jobs: int) -> None:
    """Solve the supervector machines of those who remain: the solution has everybody's speech in it."""
    has_pseudo = kind.branch.has_pseudo_speakers(rest.config, len(rest))
    segments = stored_segments(rest, kind, has_pseudo=has_pseudo)
    solver, inner = solve(segments, rest.config, kind, known=rest, jobs=jobs)
    machines, everybody = machine_arrays(solver, kind, jobs=jobs)
    shared.update({**everybody, **inner})
    for own, machine in zip(arrays, machines, strict=True):
        own.update(machine)
