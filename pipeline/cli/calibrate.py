"""The command `voiceclaim calibrate`: fit a store's thresholds to the user's own trials."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.evaluate import TRIALS_HELP, claims_of
from pipeline.cli.metrics import note_mixed, number
from pipeline.cli.options import (
    WAIT_SECONDS,
    Channel,
    Jobs,
    Json,
    Log,
    LogKey,
    Root,
    SpeakerPattern,
    StoreArgument,
    Wait,
    in_turn,
    logged_store,
    opened_log,
)
from pipeline.cli.terminal import cores, print_json, print_line, print_note, print_table, progress_bar

if TYPE_CHECKING:
    from pipeline.evaluation.calibrate import CalibrationReport


def calibrate(
    store: StoreArgument,
    trials: Annotated[Path | None, typer.Argument(metavar="TRIALS", help=TRIALS_HELP, show_default=False)] = None,
    root: Root = None,
    speaker_pattern: SpeakerPattern = None,
    channel: Channel = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Erase the trials; go back to thresholds from enrollment.")
    ] = False,
    jobs: Jobs = None,
    log: Log = None,
    log_key: LogKey = None,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Fit thresholds and log-likelihood ratios to your own trials.

    Enrollment fits them to held-out enrollment speech. They are better fitted to trials through the microphone, line
    and room in use. The store keeps the scores of your trials, not their audio. Error rates on the same trials are too
    low: evaluate on others.

    Examples:
    - `voiceclaim calibrate speakers.store trials.txt`
    - `voiceclaim calibrate speakers.store own-recordings/`
    - `voiceclaim calibrate speakers.store --reset`
    """
    if reset != (trials is None) or (reset and (root, speaker_pattern, channel) != (None, None, None)):
        raise typer.BadParameter("give a list or folder TRIALS, or --reset alone")
    from pipeline.evaluation.calibrate import calibrate as calibrate_store
    from pipeline.evaluation.calibrate import reset_calibration
    from pipeline.evaluation.recordings import Recordings
    from pipeline.store.store import Store
    from pipeline.verification.audit_events import record_calibration, record_reset

    audit = opened_log(log, log_key)
    if trials is None:
        with logged_store(store, audit) as logged:
            model = in_turn(store, wait, lambda: reset_calibration(logged))
            if audit is not None:
                record_reset(audit, model)
        if as_json:
            print_json({"store": str(store), "revision": model.revision})
        else:
            print_line("own trials erased; thresholds are those of the held-out trials")
        return
    claims, root, _ = claims_of(trials, root, Store(store).load().names, speaker_pattern)
    with logged_store(store, audit) as logged, progress_bar(quiet=as_json) as advance:
        write = partial(
            calibrate_store,
            logged,
            claims,
            Recordings(root, {}) if trials.is_dir() else root,
            channel=channel,
            jobs=jobs or cores(),
            progress=partial(advance, "scoring"),
        )
        report = in_turn(store, wait, write)
        if audit is not None:
            record_calibration(audit, report)
    note_mixed(report.mixed, report.model.config.checks)
    if as_json:
        print_json(_as_json(store, report))
    else:
        _print_report(report)


def _as_json(store: Path, report: CalibrationReport) -> dict[str, Any]:
    return {
        "store": str(store),
        "revision": report.model.revision,
        "system": report.model.config.scoring.system,
        "target_trials": report.target_trials,
        "nontarget_trials": report.nontarget_trials,
        "unknown_trials": report.unknown_trials,
        "speakers": report.speakers,
        "before": None if report.before is None else _fit_json(report.before),
        "after": _fit_json(report.after),
        "failed": [{"file": file.path, "reason": file.reason, "trials": file.trials} for file in report.failed],
    }


def _fit_json(fit: Any) -> dict[str, Any]:
    table = asdict(fit)
    return {**table.pop("rates"), **table}


def _print_report(report: CalibrationReport) -> None:
    for failed in report.failed:
        print_note(f"not scored ({failed.trials} trials): {failed.reason}")
    rows = []
    for name, fit in (("before", report.before), ("after", report.after)):
        if fit is not None:
            shares = (fit.eer, fit.rates.false_accept, fit.rates.false_reject)
            eer, *rates = (number(None if share is None else 100 * share, ".2f") for share in shares)
            rows.append((name, f"{fit.threshold:.4g}", eer, *rates, number(fit.cllr, ".3f")))
    print_table((report.model.config.scoring.system, "threshold", "EER %", "FA %", "FR %", "Cllr"), rows)
    print_line(
        f"{report.target_trials} target trials of {report.speakers} speakers,"
        f" {report.nontarget_trials} nontarget trials ({report.unknown_trials} by people who are not enrolled)"
    )
