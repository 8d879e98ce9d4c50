"""The commands `voiceclaim evaluate`, `plot` and `compare`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.commands.shared import Jobs, Json, Outsiders, Systems, names_of
from pipeline.formats import FORMATS
from pipeline.terminal import bars, cores, plain, print_comparison, print_json, print_metrics, say

if TYPE_CHECKING:
    from pipeline.store import SpeakerStore


def evaluate(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for scores, metrics and figures.")],
    store: Annotated[
        Path | None, typer.Argument(metavar="STORE", help="Folder of the speaker store.", show_default=False)
    ] = None,
    trials: Annotated[
        Path | None,
        typer.Argument(metavar="TRIALS", help="`speaker path target|nontarget` or `1|0 ...`.", show_default=False),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that paths are relative to.", show_default="the list's")
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Scores of any system, in place of STORE and TRIALS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The key to --scores.", show_default="labels beside the scores")
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"Format of --scores: {', '.join(FORMATS)}.",
            show_default="told from the file",
        ),
    ] = None,
    key_format: Annotated[
        str | None, typer.Option(metavar="NAME", help="Format of --key.", show_default="told from the file")
    ] = None,
    llr: Annotated[
        bool | None,
        typer.Option(
            "--llr/--no-llr",
            help="Whether --scores are natural-log likelihood ratios.",
            show_default="as the file says",
        ),
    ] = None,
    systems: Systems = None,
    outsiders: Outsiders = None,
    date: Annotated[str | None, typer.Option(metavar="TEXT", help="A date to print in the report.")] = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Score a trial list: error rates and costs, figures, and all of it as one page to send, report.html.

    With --scores, the same of scores that any system gave.

    \b
    Example: voiceclaim evaluate speakers.store trials.txt --out results/
    Example: voiceclaim evaluate --scores scores.tsv --key key.tsv --out results/
    """
    if scores is not None:
        _refuse_with_scores(STORE=store, TRIALS=trials, **{"--root": root, "--jobs": jobs, "--outsiders": outsiders})
        formats = format_name, key_format
        table, written = evaluate_scores(
            scores, key, out, formats=formats, llr=llr, systems=names_of(systems), date=date
        )
    elif store is None or trials is None:
        raise typer.BadParameter("give STORE and TRIALS, or --scores FILE and --key FILE")
    else:
        given = {"--key": key, "--format": format_name, "--key-format": key_format, "--llr": llr}
        if any(value is not None for value in given.values()):
            raise typer.BadParameter(f"{', '.join(given)} go with --scores")
        table, written = evaluate_list(
            store, trials, root, out, names_of(systems), jobs or cores(), quiet=as_json, date=date, outsiders=outsiders
        )
    if as_json:
        print_json(table)
        return
    print_metrics(table)
    for line in _told(table):
        say(line)
    say(f"written: {', '.join(str(path) for path in written)}")


def evaluate_list(
    store: Path,
    trials: Path,
    root: Path | None,
    out: Path,
    systems: list[str] | None,
    jobs: int,
    *,
    quiet: bool,
    date: str | None = None,
    outsiders: float | None = None,
) -> tuple[dict[str, Any], tuple[Path, ...]]:
    """Score a list of ``trials`` and write what there is to know: the table of metrics, and the files in ``out``."""
    from pipeline.assessment import assess, measure
    from pipeline.evaluation import read_trials
    from pipeline.html_report import Printing
    from pipeline.report import about_evaluation, metrics_table, write_evaluation
    from pipeline.store import SpeakerStore

    opened, claims = SpeakerStore.open(store, outsiders=outsiders), read_trials(trials)
    with bars(quiet=quiet) as advance:
        found = assess(
            opened,
            claims,
            trials.parent if root is None else root,
            systems=systems,
            jobs=jobs,
            progress=lambda done, total: advance("scoring", done, total),
        )
    for failed in found.failed:
        sys.stderr.write(f"not scored ({failed.trials} trials): {plain(failed.reason)}\n")
    metrics = {
        name: measure(scores, threshold=_threshold(opened, name), seed=opened.config.seed)
        for name, scores in found.scores.items()
    }
    default = opened.config.scoring.system
    table = metrics_table(
        metrics,
        default_system=default if default in metrics else next(iter(metrics)),
        failed_trials=found.failed_trials,
        about=about_evaluation(opened, trials, claims),
    )
    command = shlex.join(["voiceclaim", *sys.argv[1:]])
    return table, write_evaluation(out, found, table, Printing(command, date))


def _refuse_with_scores(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"{name} does not go with --scores, which needs no audio")


def evaluate_scores(
    scores: Path,
    key: Path | None,
    out: Path,
    *,
    formats: tuple[str | None, str | None] = (None, None),
    llr: bool | None = None,
    systems: list[str] | None = None,
    date: str | None = None,
) -> tuple[dict[str, Any], tuple[Path, ...]]:
    """``evaluate_list`` for a score file and its key, whose ``formats`` are told from the files where they are None."""
    from pipeline.assessment import measure
    from pipeline.formats.scored import read_scored
    from pipeline.html_report import Printing
    from pipeline.report import about_scores, metrics_table, write_score_evaluation

    found = read_scored(scores, key, scores_format=formats[0], key_format=formats[1], llr=llr, systems=systems)
    metrics = {name: measure(of, threshold=None, seed=0, bounded=True) for name, of in found.scores.items()}
    table = metrics_table(
        metrics, default_system=next(iter(metrics)), failed_trials=0, about=about_scores(scores, key, found)
    )
    command = shlex.join(["voiceclaim", *sys.argv[1:]])
    return table, write_score_evaluation(out, found.scores, table, Printing(command, date))


def _told(table: dict[str, Any]) -> list[str]:
    """What became of scores and trials that did not simply meet, and what was left out, a sentence each."""
    words = {
        "extra_scores": "scores of trials that the key does not list: left out",
        "repeated_trials": "trials that the key lists again: they count again",
        "repeated_scores": "scores given again, with the same value",
    }
    counted = [
        f"{name}: {counts[key]:,} {meaning}"
        for name, counts in table.get("joined", {}).items()
        for key, meaning in words.items()
        if counts[key]
    ]
    return [*counted, *(f"left out: {what}" for what in table.get("left_out", ()))]


def _threshold(store: SpeakerStore, system: str) -> float | None:
    """The store's threshold; None of a comparison rule that enrollment tried no held-out utterances with."""
    from pipeline.errors import MetricError
    from pipeline.posteriors.coupling import RULES

    try:
        return store.threshold(system)
    except MetricError:
        if not RULES[system].comparison:
            raise
        return None


def plot(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders that `evaluate --out` wrote.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The picture: .png, .svg or .pdf.")],
    systems: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Systems to draw.", show_default="each folder's default")
    ] = None,
) -> None:
    """Lay the DET curves of several evaluations over each other.

    \b
    Example: voiceclaim plot results-a/ results-b/ --out compare.png
    """
    from pipeline.report import plot_evaluations

    say("written: " + ", ".join(str(path) for path in plot_evaluations(folders, out, names_of(systems))))


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders that `evaluate --out` wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the page, the numbers and the picture.")
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="System to compare.", show_default="each folder's default")
    ] = None,
    as_json: Json = False,
) -> None:
    """Set evaluations side by side, and say what is better than the first beyond chance.

    Differences are of the same trials, their intervals of the same resampled speakers.

    \b
    Example: voiceclaim compare results-a/ results-b/ --out comparison/
    """
    from pipeline.comparison_report import compare as compare_contenders
    from pipeline.comparison_report import read_contenders, write_comparison

    contenders = read_contenders(folders, system)
    table = compare_contenders(contenders)
    written = write_comparison(out, contenders, table) if out is not None else ()
    if as_json:
        print_json(table)
        return
    print_comparison(table)
    if written:
        say(f"written: {', '.join(str(path) for path in written)}")
