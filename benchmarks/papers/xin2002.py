"""Xin, Wu and Pan 2002 again: five systems on the YOHO protocol, on the user's own corpus.

The paper takes the first 50 speakers of YOHO, 200 centroids each, and claims every verification utterance for every
speaker. YOHO cannot be redistributed: users who have it give its tree (ENROLL and VERIFY, SPHERE files), and any corpus
of that layout can replace it. Settings are those of configs/paper.toml.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.papers.outcome import Outcome, Row
from pipeline.audio.corpus import Utterance, read_corpus
from pipeline.config import Config, load_config
from pipeline.enrollment.enroll import enroll
from pipeline.enrollment.report import EnrollmentReport
from pipeline.errors import InputError, MetricError
from pipeline.evaluation import SystemScores, Trial, read_trials
from pipeline.evaluation.assess import Assessment, assess
from pipeline.evaluation.measure import SystemMetrics, measure
from pipeline.resources import find_config
from pipeline.scoring.rules import RULES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]
Speakers = Mapping[str, tuple[Utterance, ...]]

PAPER = {"boar": 6.06, "poar": 3.35, "boao": 6.75, "poao": 4.55, "rpoao": 1.58}
"""Equal error rates of the paper's experiment, percent, by system."""

FIGURES = {
    "figure1": ("Figure 1: one against the rest", ("boar", "poar")),
    "figure2": ("Figure 2: one against one", ("boao", "poao", "rpoao")),
}
ORDERINGS = (("poar", "boar"), ("poao", "boao"), ("rpoao", "poao"))


@dataclass(frozen=True)
class Protocol:
    """Enrolled speakers and trials; paths of ``trials`` are relative to ``root``."""

    enroll: Speakers
    trials: tuple[Trial, ...]
    root: Path


def reproduce(
    corpus: Path,
    *,
    trials: Path | None = None,
    speakers: int | None = None,
    overrides: Sequence[str] = (),
    jobs: int = 1,
    progress: Progress | None = None,
) -> Outcome:
    """Return equal error rates of the paper's five systems, in percent, beside the paper's, and its figures 1 and 2.

    ``corpus`` and ``trials`` are as for ``protocol_of``; ``speakers`` is the number of first speakers to take;
    ``overrides`` change settings, as in "features.kind=lpc". The machines are trained in a temporary folder. Raises
    InputError, MetricError and what enrollment raises.
    """
    settings = load_config(find_config("paper"), overrides)
    protocol = protocol_of(corpus, trials, speakers)
    notify = progress or (lambda _stage, _done, _total: None)
    with tempfile.TemporaryDirectory(prefix="voiceclaim-") as work:
        report = enroll(Path(work) / "store", protocol.enroll, settings, jobs=jobs, progress=notify)
        enrolled = {speaker.name for speaker in report.enrolled}
        claims = [trial for trial in protocol.trials if trial.speaker in enrolled]
        assessed = assess(
            report.model, claims, protocol.root, systems=PAPER, jobs=jobs, progress=partial(notify, "scoring")
        )
    metrics = {name: measure(scores, threshold=None, seed=settings.seed) for name, scores in assessed.scores.items()}
    return Outcome(
        "xin2002",
        "Xin, Wu and Pan 2002: equal error rates of the five systems, percent",
        (*_rates(metrics), *_orderings(metrics)),
        _notes(report, assessed, metrics["rpoao"], trials, overrides),
        {name: partial(_figure, title, names, assessed.scores) for name, (title, names) in FIGURES.items()}
        | {f"{name}_thresholds": partial(_thresholds, names, assessed.scores) for name, (_, names) in FIGURES.items()},
        _extra(report, assessed, metrics, settings),
    )


def protocol_of(corpus: Path, trials: Path | None = None, speakers: int | None = None) -> Protocol:
    """Return enrollment utterances and trials of a corpus, of its first ``speakers`` speakers, else of all.

    With a folder ENROLL (in any case) its speakers are enrolled, else ``corpus`` itself must be their folder. Without a
    list, every utterance of the folder VERIFY is claimed for every enrolled speaker. With one, its claims are scored,
    but only on files that have a target trial of one of these speakers: the paper's
    impostors are other enrolled speakers. Raises InputError.
    """
    home = _folder(corpus, "enroll")
    if home is None and trials is None:
        raise InputError(f"{corpus}: folders ENROLL and VERIFY of speakers expected, or a trial list, got neither")
    folders = read_corpus(home or corpus).speakers
    taken = dict(list(folders.items())[:speakers])
    if speakers is not None and len(taken) < speakers:
        raise InputError(f"{home or corpus}: {speakers} speakers asked for, got {len(taken)}")
    if trials is None:
        return Protocol(taken, _every_claim(corpus, taken), corpus)
    listed = read_trials(trials)
    spoken = {trial.path for trial in listed if trial.target and trial.speaker in taken}
    kept = tuple(trial for trial in listed if trial.path in spoken and trial.speaker in taken)
    if not kept:
        raise InputError(f"{trials}: no trial is of a speaker of {home or corpus}; a list of another corpus?")
    return Protocol(taken, kept, trials.parent)


def _every_claim(corpus: Path, taken: Speakers) -> tuple[Trial, ...]:
    home = _folder(corpus, "verify")
    if home is None:
        raise InputError(f"{corpus}: a folder VERIFY beside ENROLL expected, or a trial list, got neither")
    said = {name: utterances for name, utterances in read_corpus(home).speakers.items() if name in taken}
    if not said:
        raise InputError(f"{home}: none of its speakers is among the {len(taken)} of ENROLL; folders named otherwise?")
    return tuple(
        Trial(claim, str(utterance.path.relative_to(corpus)), claim == speaker)
        for speaker, utterances in said.items()
        for utterance in utterances
        for claim in taken
    )


def _folder(corpus: Path, name: str) -> Path | None:
    if not corpus.is_dir():
        raise InputError(f"{corpus}: a corpus must be a folder; a mistyped or moved path?")
    return next((entry for entry in sorted(corpus.iterdir()) if entry.is_dir() and entry.name.lower() == name), None)


def _rates(metrics: Mapping[str, SystemMetrics]) -> list[Row]:
    rows = []
    for name, paper in PAPER.items():
        interval = metrics[name].eer_interval
        note = "" if interval is None else f"95 % interval {100 * interval.low:.2f} to {100 * interval.high:.2f}"
        rows.append(Row(name.upper(), paper, round(_percent(name, metrics), 2), note))
    return rows


def _orderings(metrics: Mapping[str, SystemMetrics]) -> list[Row]:
    return [
        Row(f"{a.upper()} below {b.upper()}", "yes", "yes" if _percent(a, metrics) < _percent(b, metrics) else "no")
        for a, b in ORDERINGS
    ]


def _percent(name: str, metrics: Mapping[str, SystemMetrics]) -> float:
    eer = metrics[name].eer
    if eer is None:
        raise MetricError(
            f"{name}: an equal error rate needs scores of target and of nontarget trials, one of them is missing"
        )
    return 100 * eer.rate


def _notes(
    report: EnrollmentReport,
    assessed: Assessment,
    one: SystemMetrics,
    trials: Path | None,
    overrides: Sequence[str],
) -> tuple[str, ...]:
    speech = sum(speaker.seconds for speaker in report.enrolled) / len(report.enrolled)
    claimed = "every verification utterance claimed for every speaker" if trials is None else f"claims of {trials.name}"
    changed = "".join(f", {override}" for override in overrides)
    notes = [
        "Paper: the first 50 speakers of YOHO; neither the machines' C nor the one-class scale is given.",
        f"Here: {len(report.enrolled)} speakers, {speech:.0f} s of speech each on average; {claimed}:"
        f" {one.n_target} target and {one.n_nontarget} nontarget trials; settings of configs/paper.toml{changed}.",
        "Equal error rates are interpolated where the curves cross between scores; the paper does not define its own.",
        "Intervals are from resampled speakers.",
    ]
    if report.refused:
        notes.append(f"{len(report.refused)} speakers were refused and not enrolled.")
    if assessed.failed:
        notes.append(f"{assessed.failed_trials} claims of {len(assessed.failed)} files could not be scored.")
    return tuple(notes)


def _extra(
    report: EnrollmentReport, assessed: Assessment, metrics: Mapping[str, SystemMetrics], settings: Config
) -> dict[str, Any]:
    return {
        "speakers": len(report.enrolled),
        "machines": report.machines,
        "enroll_seconds": round(report.elapsed_seconds, 1),
        "n_target": metrics["rpoao"].n_target,
        "n_nontarget": metrics["rpoao"].n_nontarget,
        "n_failed": assessed.failed_trials,
        "eer_percent": {name: round(_percent(name, metrics), 6) for name in metrics},
        "identification_error_percent": {
            name: None if one.identification_error is None else round(100 * one.identification_error, 4)
            for name, one in metrics.items()
        },
        "settings": settings.model_dump(mode="json"),
    }


def _figure(title: str, names: tuple[str, ...], scores: Mapping[str, SystemScores]) -> Figure:
    from benchmarks.papers.xin2002_plots import plot_fa_fr

    return plot_fa_fr(
        {name.upper(): scores[name] for name in names}, {name.upper(): PAPER[name] for name in names}, title=title
    )


def _thresholds(names: tuple[str, ...], scores: Mapping[str, SystemScores]) -> Figure:
    from pipeline.evaluation.plots.scores import plot_error_rates

    return plot_error_rates(
        {name.upper(): scores[name] for name in names}, units={name.upper(): RULES[name].unit for name in names}
    )
