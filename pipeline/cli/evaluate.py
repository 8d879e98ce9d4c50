"""The command `voiceclaim evaluate`: score a trial list, or measure the scores of any system."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.metrics import name_failed, note_mixed, print_evaluation
from pipeline.cli.options import (
    IN_PART,
    Channel,
    Jobs,
    Json,
    Root,
    Scheduler,
    SpeakerPattern,
    Systems,
    UnknownImpostors,
    folder_of_results,
    names_of,
    refuse,
    workers_of,
)
from pipeline.cli.terminal import cores, print_error, print_json, print_note, print_skipped, progress_bar
from pipeline.errors import InputError, MetricError
from pipeline.evaluation import FORMATS

if TYPE_CHECKING:
    from pipeline.evaluation import Trial
    from pipeline.evaluation.assess import Assessment
    from pipeline.evaluation.columns import Metadata
    from pipeline.evaluation.measure import SystemMetrics
    from pipeline.store.model import SpeakerModel

Written = tuple[dict[str, Any], tuple[Path, ...]]
"""Table of metrics, and the files written."""
TRIALS_HELP = (
    "Trial list: lines `speaker path target|nontarget` or `1|0 speaker path`, or CSV under a header. Or a folder with"
    " one folder per speaker."
)


def evaluate(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for scores, metrics, figures and report.html.")
    ],
    store: Annotated[Path | None, typer.Argument(metavar="STORE", help="Speaker store.", show_default=False)] = None,
    trials: Annotated[Path | None, typer.Argument(metavar="TRIALS", help=TRIALS_HELP, show_default=False)] = None,
    root: Root = None,
    speaker_pattern: SpeakerPattern = None,
    scores: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score file of any system, instead of STORE and TRIALS.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Key of --scores: which trials are target.", show_default="labels in the score file"
        ),
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help=f"Format of --scores: {', '.join(FORMATS)}.", show_default="detected"
        ),
    ] = None,
    llr: Annotated[
        bool | None,
        typer.Option(
            "--llr/--no-llr", help="--scores are natural-log likelihood ratios.", show_default="as the file declares"
        ),
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="TRIALS are pairs of recordings, as in VoxCeleb; STORE is the background.")
    ] = False,
    systems: Systems = None,
    unknown_impostors: UnknownImpostors = None,
    not_enrolled: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Person who could not be enrolled: claims of the name count as rejected."),
    ] = None,
    channel: Channel = None,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Score a trial list and write a report.

    The results are scores, error rates, costs, figures and a self-contained page, report.html. With --scores, measure
    the scores of any other system instead. With --pairs, compare two recordings in every trial, which takes one
    enrollment for each recording. Exit codes: 0 done, 4 some trials have no score, 2 an error.

    Examples:
    - `voiceclaim evaluate speakers.store verify/ --out results/`
    - `voiceclaim evaluate speakers.store flat/ --speaker-pattern '([^_-]+)' --out results/`
    - `voiceclaim evaluate speakers.store trials.txt --out results/`
    - `voiceclaim evaluate background.store veri_test.txt --pairs --root wav/ --out results/`
    - `voiceclaim evaluate --scores scores.tsv --key key.tsv --out results/`
    - `voiceclaim evaluate speakers.store trials.txt --out results/ --scheduler tcp://host:8786`
    """
    if pairs:
        others = {
            "--systems": systems,
            "--not-enrolled": not_enrolled,
            "--scheduler": scheduler,
            "--scores": scores,
            "--unknown-impostors": unknown_impostors,
        }
        refuse("cannot be combined with --pairs", others)
    if scores is not None:
        of_claims = {
            "STORE": store,
            "TRIALS": trials,
            "--not-enrolled": not_enrolled,
            "--root": root,
            "--speaker-pattern": speaker_pattern,
            "--channel": channel,
            "--jobs": jobs,
            "--scheduler": scheduler,
            "--unknown-impostors": unknown_impostors,
        }
        refuse("cannot be combined with --scores", of_claims)
        options = {"scores_format": format_name, "llr": llr, "systems": names_of(systems)}
        with folder_of_results(out):
            table, written = _evaluate_scores(scores, key, out, **options)
    elif store is None or trials is None:
        raise typer.BadParameter("give STORE and TRIALS, or --scores FILE and --key FILE")
    else:
        refuse("requires --scores", {"--key": key, "--format": format_name, "--llr": llr})
        with folder_of_results(out):  # tried before hours of scoring
            table, written = evaluate_list(
                *(store, trials, root, out, names_of(systems), jobs or cores()),
                quiet=as_json,
                unknown_impostors=unknown_impostors,
                not_enrolled=not_enrolled or (),
                channel=channel,
                scheduler=scheduler,
                pairs=pairs,
                speaker_pattern=speaker_pattern,
            )
    if as_json:
        print_json(table)
    else:
        print_evaluation(table, written)
    _end(table["systems"][table["default_system"]], table.get("enrolled_files", ()), table.get("files", 0))


def _end(counts: dict[str, Any], enrolled: Sequence[str], files: int) -> None:
    """Print warnings about enrolled recordings and unscored trials; exit with a code of its own for unscored trials.

    ``enrolled`` names the copies of enrolled recordings among the ``files`` recordings of the list.
    """
    if enrolled:
        print_error(
            f"{len(enrolled)} of the {files} recordings in the list are copies of enrolled ones, the first of them"
            f" {enrolled[0]}: these error rates are too low; evaluate on recordings that nobody was enrolled with"
        )
    scored, failed = counts["n_target"] + counts["n_nontarget"], counts["n_failed"]
    if not (counts["n_target"] and counts["n_nontarget"]):
        missing = "nontarget (false)" if counts["n_target"] else "target (true)"
        print_error(f"no {missing} claims were scored: error rates need claims of both classes")
    if failed:
        share = 100 * failed / (scored + failed)
        print_error(f"{failed} trials ({share:.3g} %) have no score; EER and costs are those of the others")
        raise typer.Exit(IN_PART)


def evaluate_list(
    store: Path,
    trials: Path,
    root: Path | None,
    out: Path,
    systems: list[str] | None,
    jobs: int,
    *,
    quiet: bool,
    unknown_impostors: float | None = None,
    not_enrolled: Sequence[str] = (),
    channel: int | None = None,
    scheduler: str | None = None,
    pairs: bool = False,
    speaker_pattern: str | None = None,
) -> Written:
    """Score the list ``trials``, of claims or ``pairs`` of recordings, and write every result to ``out``."""
    from pipeline.evaluation.assess import assess
    from pipeline.evaluation.metrics_table import about_evaluation, metrics_table
    from pipeline.evaluation.pairs import assess_pairs
    from pipeline.evaluation.recordings import Recordings
    from pipeline.evaluation.report import write_evaluation
    from pipeline.machines.workers import path_for
    from pipeline.store.store import Store
    from pipeline.verification.voice_comparison import background_of

    if pairs and trials.is_dir():
        raise typer.BadParameter("--pairs is for a list of pairs, and a folder was given")
    opened = Store(store).load(unknown_impostors=unknown_impostors)
    opened = background_of(opened) if pairs else opened
    claims, root, metadata = claims_of(trials, root, opened.names, speaker_pattern)
    with workers_of(scheduler, jobs) as workers, progress_bar(quiet=quiet) as advance:
        advance("reading machines", 0, 1)
        of_claims = partial(assess, systems=systems, not_enrolled=not_enrolled, workers=workers)
        score = partial(assess_pairs, jobs=jobs) if pairs else of_claims
        # A folder's paths name files, even if the current folder is a Kaldi data directory.
        where = Recordings(path_for(root, workers), {}) if trials.is_dir() else root
        assessment = score(opened, claims, where, channel=channel, progress=partial(advance, "scoring"))
    name_failed(assessment.failed, root, len(claims))
    if repeated := len(claims) - len({(claim.speaker, claim.segment) for claim in claims}):
        print_note(f"note: {repeated} trials repeat earlier ones of the list, and count as often as they are listed")
    note_mixed(assessment.mixed, opened.config.checks)
    if assessment.failed_trials == len(claims):
        raise InputError(f"{trials}: none of the {len(claims)} trials could be scored; the reasons are above")
    metrics = _measured(opened, assessment, pairs)
    default = opened.config.scoring.system
    about = about_evaluation(opened, trials, claims, metadata)
    if assessment.enrolled:
        about["enrolled_files"] = list(assessment.enrolled)
    table = metrics_table(metrics, default_system=default if default in metrics else next(iter(metrics)), about=about)
    scores, failed = assessment.scores, assessment.failed
    return table, write_evaluation(out, scores, table, failed=failed, command=_command())


def _measured(model: SpeakerModel, assessment: Assessment, pairs: bool) -> dict[str, SystemMetrics]:
    """Return the metrics of each system, with the errors at the threshold of the store."""
    from pipeline.evaluation.measure import measure

    measured = partial(measure, seed=model.config.seed, unscored=assessment.unscored)
    return {
        name: measured(scores, threshold=_threshold(model, name, pairs)) for name, scores in assessment.scores.items()
    }


def _threshold(model: SpeakerModel, system: str, pairs: bool) -> float | None:
    """Return the store's threshold of ``system``, or of ratios of ``pairs``; None if machines for it are absent."""
    if pairs:
        return model.operating_point.threshold
    try:
        return model.threshold(system)
    except MetricError:
        return None


def claims_of(
    trials: Path, root: Path | None, names: tuple[str, ...], speaker_pattern: str | None
) -> tuple[Sequence[Trial], Path, Metadata | None]:
    """Return the trials of a list, or of a folder against ``names``; the root of their paths; and metadata columns."""
    from pipeline.evaluation import read_list, trials_of_folder
    from pipeline.evaluation.lists import trials_of

    if not trials.is_dir():
        refuse(f"is for a folder, and {trials} is none", {"--speaker-pattern": speaker_pattern})
        listed = read_list(trials, kind="key")
        return trials_of(listed, str(trials)), trials.parent if root is None else root, listed.metadata
    if root is not None:
        raise typer.BadParameter("--root is for a trial list, and a folder was given")
    found = trials_of_folder(trials, names, speaker_pattern=speaker_pattern)
    print_skipped(found.skipped)
    if found.unknown_impostors:
        print_note(f"not enrolled, so their files are those of impostors: {', '.join(found.unknown_impostors)}")
    return found.trials, Path(), None


def _evaluate_scores(scores: Path, key: Path | None, out: Path, **options: Any) -> Written:
    """Measure a score file against its key; the ``options`` are those of ``read_scored``."""
    from pipeline.evaluation import read_scored
    from pipeline.evaluation.measure import measure
    from pipeline.evaluation.metrics_table import about_scores, metrics_table
    from pipeline.evaluation.report import write_evaluation

    scored = read_scored(scores, key, **options)
    metrics = {name: measure(of, threshold=None, seed=0, bounded=True) for name, of in scored.scores.items()}
    about = about_scores(scores, key, scored)
    table = metrics_table(metrics, default_system=next(iter(metrics)), about=about)
    return table, write_evaluation(out, scored.scores, table, command=_command())


def _command() -> str:
    return shlex.join(["voiceclaim", *sys.argv[1:]])
