"""Exit codes and options that several commands share."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pipeline.cli.terminal import print_error, print_note
from pipeline.errors import AuditError, InputError, TracesLeftError, VoiceclaimError

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.machines.workers import Workers
    from pipeline.metrics import OperatingPoint
    from pipeline.store.store import Store
    from pipeline.verification.audit import AuditLog

T = TypeVar("T")

# Exit codes of the commands.
DONE, REJECTED, ERROR, NOT_ENOUGH_SPEECH, IN_PART = range(5)
INTERRUPTED = 130
WORST_FIRST = (ERROR, REJECTED, NOT_ENOUGH_SPEECH, DONE)

# Signals by which a user, a supervisor or a closed terminal ends a command.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Speaker store.")]
NewStore = Annotated[Path, typer.Option("--store", metavar="STORE", help="Speaker store (created if missing).")]
ConfigFile = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="TOML settings file, or a built-in preset: default, lean, paper."),
]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. codebook.centroids=100 (repeatable)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Number of threads.", show_default="all cores")]
Wait = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait this long while another process writes.")
]
WAIT_SECONDS = 10.0
Far = Annotated[
    float | None, typer.Option("--far", metavar="P", help="False-accept rate to set the threshold for (1 %: 0.01).")
]
Prior = Annotated[
    float | None,
    typer.Option(metavar="P", help="Decide by cost: prior probability of a target trial.", show_default="settings"),
]
CostMiss = Annotated[
    float | None, typer.Option(metavar="X", help="Decide by cost: cost of a miss.", show_default="settings")
]
CostFalseAccept = Annotated[
    float | None, typer.Option(metavar="X", help="Decide by cost: cost of a false accept.", show_default="settings")
]
_UNKNOWN = "Assumed share of impostors who are not enrolled."
UnknownImpostors = Annotated[
    float | None, typer.Option(metavar="SHARE", min=0, max=1, help=_UNKNOWN, show_default="settings")
]
Root = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder that paths are relative to, or the utterances' Kaldi data directory (wav.scp).",
        show_default="the list's",
    ),
]
Log = Annotated[Path | None, typer.Option("--log", metavar="FILE", help="Append every outcome to this audit log.")]
LogKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Key file of the audit log.", show_default="$VOICECLAIM_AUDIT_KEY, if set"),
]
LogPaths = Annotated[bool, typer.Option("--log-paths", help="Name the audio files in the log.")]
PAPER = ("boar", "poar", "boao", "poao", "rpoao")
"""Scoring systems of Xin, Wu and Pan 2002."""
System = Annotated[
    str | None, typer.Option(metavar="NAME", help="Scoring system, e.g. gmm_rival.", show_default="settings")
]
Systems = Annotated[
    str | None,
    typer.Option(
        "--systems",
        metavar="NAME,NAME",
        help="Scoring systems to report; paper: the five of Xin, Wu and Pan.",
        show_default="all",
    ),
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="Microphone: its number, or part of its name.")]
Raw = Annotated[
    str | None, typer.Option(metavar="RATE[:CHANNELS[:ENCODING]]", help="Headerless pipe: 16000, 8000:1:mulaw, ...")
]
Channel = Annotated[
    int | None,
    typer.Option("--channel", metavar="N", min=1, help="Channel to read, from 1.", show_default="the mean of all"),
]
SpeakerPattern = Annotated[
    str | None,
    typer.Option(
        "--speaker-pattern",
        metavar="REGEX",
        help="Regular expression to match file names (paths, if it contains a /); its group is the speaker.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Run on the Dask cluster of this scheduler: tcp://host:8786.",
        show_default="local threads",
    ),
]


def complete_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the enrolled speakers of the store on the command line, for the shell to complete."""
    from pipeline.store.store import Store

    # After an option without its value the words are not parsed.
    store = context.params.get("store") or next(iter(context.args), "")
    try:
        return [name for name in Store(store).load().names if name.startswith(incomplete)]
    except VoiceclaimError:  # no store yet
        return []


def refuse(reason: str, options: Mapping[str, object]) -> None:
    """Raise typer.BadParameter, for ``reason``, if any of the ``options``, values by name, is given (not None)."""
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"{name} {reason}")


def check_log_and_raw(
    log: Path | None, log_key: Path | None, log_paths: bool, raw: str | None, audio: list[str]
) -> None:
    """Raise typer.BadParameter for an option of a log or a pipe without the log or the pipe."""
    if log is None:
        refuse("requires --log", {"--log-key": log_key, "--log-paths": log_paths or None})
    if "-" not in audio:
        refuse("is for a pipe: give - as AUDIO", {"--raw": raw})


def read_settings(config: str | None, overrides: list[str] | None) -> Config | None:
    """Return the settings that --config and --set ask for; None if neither is given."""
    if not config and not overrides:
        return None
    from pipeline.config import load_config

    return load_config(config or None, overrides or ())


def in_turn(store: Path, wait: float, write: Callable[[], T]) -> T:
    """Call ``write``, and retry for ``wait`` seconds, with a note, while another process writes to ``store``."""
    from pipeline.store.waiting import when_free

    note = f"{store}: another process is writing to this store; waiting for up to {wait:g} s (--wait)"
    return when_free(write, wait, on_wait=lambda: print_note(note))


@contextmanager
def workers_of(scheduler: str | None, jobs: int) -> Iterator[Workers]:
    """Yield ``jobs`` local threads, or the workers of the Dask cluster at ``scheduler``."""
    from pipeline.machines.workers import DaskWorkers, LocalThreads

    if scheduler is None:
        yield LocalThreads(jobs)
        return
    with DaskWorkers(scheduler, jobs=jobs) as workers:
        # The command reports errors in one line; dask would log the same as pages of traceback.
        for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        yield workers


def make_folder(path: Path) -> None:
    """Make the folder at ``path``, and those above it, if missing; raises InputError if it cannot be written to."""
    import tempfile

    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise InputError(f"{path}: a folder to write to was expected: {error.strerror or error}") from None


@contextmanager
def folder_of_results(path: Path) -> Iterator[None]:
    """Make the folder at ``path`` for the results of the block; if the block fails, remove empty folders made here."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    make_folder(path)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not empty
            for folder in new:
                folder.rmdir()
        raise


def point_of(
    config: Config, prior: float | None, cost_miss: float | None, cost_false_accept: float | None
) -> OperatingPoint | None:
    """Return prior and costs, completed from the settings; None if no option asks for them."""
    from pipeline.metrics import OperatingPoint

    options = {"prior": prior, "cost_miss": cost_miss, "cost_false_accept": cost_false_accept}
    given = {name: value for name, value in options.items() if value is not None}
    settings = {name: getattr(config.threshold, name) for name in options}
    return OperatingPoint(**{**settings, **given}) if given else None


def names_of(text: str | None) -> list[str] | None:
    """Return the names in ``text``, "paper" replaced by its five systems; raises typer.BadParameter for no name."""
    if text is None:
        return None
    given = [name.strip() for name in text.split(",") if name.strip()]
    names = [name for one in given for name in (PAPER if one == "paper" else (one,))]
    if not names:
        raise typer.BadParameter(f"--systems must name at least one system, got {text!r}")
    return names


def opened_log(log: Path | None, key_file: Path | None) -> AuditLog | None:
    """Return the audit log at ``log``, None without one; raises AuditError, typer.BadParameter for a key without it."""
    if log is None:
        refuse("requires --log", {"--log-key": key_file})
        return None
    from pipeline.verification.audit import open_log

    return open_log(log, key_file)


@contextmanager
def logged_store(path: Path, audit: AuditLog | None) -> Iterator[Store]:
    """Yield the store at ``path``, in which no change is made that ``audit``, if there is one, cannot record.

    From the commit to the end of the block, which records the change, the signals of ``ENDING`` have no effect.
    """
    from pipeline.store.store import Store

    def before_commit() -> None:
        if audit is not None:
            audit.check_writable()
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)

    handlers = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield Store(path, before_commit=before_commit)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def logged_failures(
    log: Path | None, key_file: Path | None, event: str, names: Iterable[str]
) -> Iterator[AuditLog | None]:
    """Yield ``opened_log``; log an error in the body once for each name, and raise it.

    The body itself logs success. Raises AuditError.
    """
    from pipeline.verification.audit_events import record_failure

    audit = opened_log(log, key_file)
    try:
        yield audit
    except VoiceclaimError as error:
        if audit is None or isinstance(error, AuditError | TracesLeftError):
            raise
        try:
            record_failure(audit, event, names, error)
        except AuditError as unwritten:
            print_error(unwritten)  # the first error is printed as well
        raise
