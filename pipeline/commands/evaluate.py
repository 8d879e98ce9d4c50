"""The commands `voiceclaim evaluate`, `plot` and `compare`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.commands.shared import Jobs, Json, StoreArgument, Systems, names_of
from pipeline.terminal import bars, cores, plain, print_comparison, print_json, print_metrics, say

if TYPE_CHECKING:
    from pipeline.store import SpeakerStore


def evaluate(
    store: StoreArgument,
    trials: Annotated[Path, typer.Argument(metavar="TRIALS", help="`speaker path target|nontarget` or `1|0 ...`.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for scores, metrics and figures.")],
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that paths are relative to.", show_default="the list's")
    ] = None,
    systems: Systems = None,
    date: Annotated[str | None, typer.Option(metavar="TEXT", help="A date to print in the report.")] = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Score a trial list: error rates and costs, figures, and all of it as one page to send, report.html.

    \b
    Example: voiceclaim evaluate speakers.store trials.txt --out results/
    """
    table, written = evaluate_list(
        store, trials, root, out, names_of(systems), jobs or cores(), quiet=as_json, date=date
    )
    if as_json:
        print_json(table)
        return
    print_metrics(table)
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
) -> tuple[dict[str, Any], tuple[Path, ...]]:
    """Score a list of ``trials`` and write what there is to know: the table of metrics, and the files in ``out``."""
    from pipeline.assessment import assess, measure
    from pipeline.evaluation import read_trials
    from pipeline.html_report import Printing
    from pipeline.report import about_evaluation, metrics_table, write_evaluation
    from pipeline.store import SpeakerStore

    opened, claims = SpeakerStore.open(store), read_trials(trials)
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
