"""The command line: each command parses its arguments, makes one library call and prints what came of it.

Exit codes: 0 done or accepted, 1 rejected, 2 an error, 3 not enough speech.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import shlex
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pipeline.audit_command import audit
from pipeline.errors import AudioError, CorpusError, NotEnoughSpeechError, VoiceclaimError
from pipeline.reproduce.command import reproduce
from pipeline.terminal import (
    bars,
    complain,
    cores,
    own_output,
    plain,
    print_comparison,
    print_json,
    print_metrics,
    print_table,
    say,
)

if TYPE_CHECKING:
    from pipeline.audit_events import Recorder
    from pipeline.evaluation import OperatingPoint
    from pipeline.store import SpeakerStore
    from pipeline.verification import Update, Verifier


class Exit(IntEnum):
    """What the command's exit code says."""

    DONE = 0
    REJECTED = 1
    ERROR = 2
    NOT_ENOUGH_SPEECH = 3


_EXITS = "Exit codes: 0 done or accepted, 1 rejected, 2 an error, 3 not enough speech."

app = typer.Typer(
    name="voiceclaim",
    help=f"Enroll speakers from audio and verify who is speaking. {_EXITS}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the speaker store.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Threads to work on.", show_default="all cores")]
LogKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Key of the audit log.", show_default="the variable VOICECLAIM_AUDIT_KEY, or none"
    ),
]
Systems = Annotated[
    str | None,
    typer.Option("--systems", metavar="NAME,NAME", help="Scoring systems to report.", show_default="all there are"),
]


def main() -> None:
    """Run the command line, errors told in one line and a typed exit code."""
    own_output()
    try:
        app()
    except NotEnoughSpeechError as error:
        _fail(error, Exit.NOT_ENOUGH_SPEECH)
    except VoiceclaimError as error:
        _fail(error, Exit.ERROR)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _fail(error: VoiceclaimError, code: Exit) -> NoReturn:
    complain(error)
    raise SystemExit(int(code))


@app.command()
def enroll(
    audio_dir: Annotated[
        Path, typer.Argument(metavar="AUDIO_DIR", help="One folder a speaker, a Kaldi data directory, or a YOHO tree.")
    ],
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="Folder of the speaker store, made if new.")],
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="TOML settings, or the name of a set that comes along (xin2002).")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting: codebook.centroids=100.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Take only speakers whose names match; may be repeated.")
    ] = None,
    background: Annotated[
        bool, typer.Option("--background", help="Enroll as rivals only: nobody can claim to be them.")
    ] = False,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Enroll every speaker of a folder of audio.

    \b
    Example: voiceclaim enroll recordings/ --store speakers.store
    """
    from pipeline.config import load_config
    from pipeline.corpus import read_corpus
    from pipeline.enrollment import enroll as enroll_speakers
    from pipeline.resources import find_config

    settings = load_config(find_config(config) if config else None, override or ()) if config or override else None
    corpus = read_corpus(audio_dir)
    speakers = {
        name: utterances
        for name, utterances in corpus.speakers.items()
        if only is None or any(fnmatch.fnmatchcase(name, glob) for glob in only)
    }
    if not speakers:
        raise CorpusError(f"{audio_dir}: no speaker among {len(corpus.speakers)} matches --only {' '.join(only or ())}")
    with bars(quiet=as_json) as progress:
        report = enroll_speakers(
            store,
            speakers,
            settings,
            role="background" if background else "speaker",
            jobs=jobs or cores(),
            progress=progress,
        )
    if as_json:
        print_json(
            {
                "store": str(store),
                "enrolled": [dataclasses.asdict(speaker) for speaker in report.enrolled],
                "refused": [{"name": name, "reason": reason} for name, reason in report.refused],
                "skipped": [{"file": str(path), "reason": reason} for path, reason in report.skipped],
                "machines": report.machines,
                "held_out_trials": report.held_out_trials,
                "elapsed_seconds": report.elapsed_seconds,
            }
        )
        return
    for path, reason in report.skipped:
        sys.stderr.write(f"skipped {plain(str(path))}: {plain(reason)}\n")
    for _, reason in report.refused:
        sys.stderr.write(f"refused {plain(reason)}\n")
    print_table(
        ("speaker", "files", "speech s", "frames", "centroids"),
        [
            (s.name, s.utterances, f"{s.seconds:.1f}", s.frames, f"{s.centroids}{' (few)' * s.short_of_centroids}")
            for s in report.enrolled
        ],
    )
    say(
        f"{len(report.enrolled)} enrolled, {len(report.refused)} refused, {len(report.skipped)} files skipped;"
        f" {report.machines} machines in {report.elapsed_seconds:.1f} s -> {store}"
    )


@app.command()
def verify(
    store: StoreArgument,
    audio: Annotated[list[str], typer.Argument(metavar="AUDIO...", help="Audio files, or - for a pipe.")],
    claim: Annotated[str, typer.Option(metavar="NAME", help="Who the voice says it is.")],
    system: Annotated[str | None, typer.Option(metavar="NAME", help="Scoring system.", show_default="settings")] = None,
    threshold: Annotated[float | None, typer.Option(metavar="X", help="Accept at this score and above.")] = None,
    far: Annotated[
        float | None, typer.Option("--far", metavar="P", help="Accept at this false-accept rate, a share (0.01).")
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Decide at the least cost, true claims being this likely.", show_default="settings"
        ),
    ] = None,
    cost_miss: Annotated[
        float | None,
        typer.Option(metavar="X", help="Decide at the least cost, a false reject costing X.", show_default="settings"),
    ] = None,
    cost_false_accept: Annotated[
        float | None,
        typer.Option(metavar="X", help="Decide at the least cost, a false accept costing X.", show_default="settings"),
    ] = None,
    raw: Annotated[
        str | None,
        typer.Option(metavar="RATE[:CHANNELS[:ENCODING]]", help="The pipe is raw audio: 16000, 8000:1:mulaw, ..."),
    ] = None,
    interval: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Audio between a pipe's updates.")] = 0.25,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Append every outcome to this audit log.")
    ] = None,
    log_key: LogKey = None,
    log_paths: Annotated[bool, typer.Option("--log-paths", help="The log names the audio files, too.")] = False,
    as_json: Json = False,
) -> None:
    """Check whether the voice in each file, or in a pipe, is NAME's.

    A score decides, by a threshold that enrollment found or by --threshold or --far. With --prior or a cost its
    log-likelihood ratio (LLR, nats) does, at the least expected cost; what is not given stands as in the settings. P is
    the probability of a true claim after hearing the file.

    A pipe (-) prints running updates as JSON lines. Exit codes: 0 accepted, 1 rejected, 3 not enough speech, 2 an
    error; of several files the first of 2, 1, 3, 0 that happened.

    \b
    Example: voiceclaim verify speakers.store --claim anna call.wav
    Example: voiceclaim verify speakers.store --claim anna --prior 0.5 --cost-false-accept 10 call.wav
    Example: sox -d -t wav - | voiceclaim verify speakers.store --claim anna -
    """
    from pipeline.audit_events import verification_recorder
    from pipeline.store import SpeakerStore
    from pipeline.verification import Verifier

    opened = SpeakerStore.open(store)
    record = verification_recorder(log, opened, claim, key_file=log_key, paths=log_paths)
    try:
        verifier = Verifier(
            opened,
            claim,
            system=system,
            threshold=threshold,
            false_accept=far,
            point=_point(opened, prior, cost_miss, cost_false_accept),
        )
    except VoiceclaimError as error:
        record(None, None, error)
        raise
    if verifier.rivals == 0:
        sys.stderr.write("voiceclaim: nobody else is enrolled: only the one-class machine speaks\n")
    codes = []
    for name in audio:
        if name == "-":
            codes.append(_verify_pipe(verifier, raw, interval, record))
        else:
            codes.append(_verify_file(verifier, name, record, as_json=as_json))
    order = (Exit.ERROR, Exit.REJECTED, Exit.NOT_ENOUGH_SPEECH, Exit.DONE)
    raise typer.Exit(int(min(codes, key=order.index)))


def _point(
    store: SpeakerStore, prior: float | None, cost_miss: float | None, cost_false_accept: float | None
) -> OperatingPoint | None:
    """What decisions cost, completed from the store's settings; None where no option asks for decisions by cost."""
    from pipeline.evaluation import OperatingPoint

    if prior is None and cost_miss is None and cost_false_accept is None:
        return None
    settings = store.config.threshold
    return OperatingPoint(
        settings.prior if prior is None else prior,
        settings.cost_miss if cost_miss is None else cost_miss,
        settings.cost_false_accept if cost_false_accept is None else cost_false_accept,
    )


def _unrecorded(_verifier: Verifier | None, _file: str | None, _outcome: Update | VoiceclaimError) -> None:
    """Stands in for an audit log."""


def _verify_file(verifier: Verifier, name: str, record: Recorder = _unrecorded, *, as_json: bool) -> Exit:
    try:
        update = verifier.verify_file(name)
    except VoiceclaimError as error:
        record(verifier, name, error)
        if not isinstance(error, AudioError):
            raise
        if as_json:
            print_json({"claim": verifier.claim, "file": name, "decision": None, "error": str(error)})
        complain(error)
        return Exit.ERROR
    record(verifier, name, update)
    if as_json:
        print_json(_outcome(verifier, name, update))
    else:
        say(f"{plain(name)}: {_in_words(verifier, update)}")
    return _exit_of(update)


def _verify_pipe(verifier: Verifier, raw: str | None, interval: float, record: Recorder) -> Exit:
    try:
        update = _listen(verifier, raw, interval)
    except VoiceclaimError as error:
        record(verifier, None, error)
        raise
    record(verifier, None, update)
    print_json(_outcome(verifier, "-", update))
    return _exit_of(update)


def _listen(verifier: Verifier, raw: str | None, interval: float) -> Update:
    """Print a pipe's running updates; the last one is returned."""
    from pipeline.pcm import stream_pipe

    if sys.stdin is None:
        raise AudioError("-: the standard input is closed; pipe audio into the command")
    rate, blocks = stream_pipe(sys.stdin.buffer, None if raw is None else _pcm_format(raw))
    stream = verifier.stream(rate)
    told = 0.0
    for block in blocks:
        update = stream.push(block)
        if update.audio_seconds >= told + interval:
            told = update.audio_seconds
            print_json(_outcome(verifier, "-", update))
    return stream.close()


def _pcm_format(text: str) -> Any:
    from pipeline.pcm import PcmFormat

    rate, _, rest = text.partition(":")
    channels, _, encoding = rest.partition(":")
    if not rate.isdecimal() or not (channels or "1").isdecimal():
        raise typer.BadParameter(f"--raw must read RATE[:CHANNELS[:ENCODING]], got {text!r}")
    return PcmFormat(int(rate), int(channels or 1), encoding or "s16le")  # type: ignore[arg-type]  # checked there


def _in_words(verifier: Verifier, update: Update) -> str:
    """The decision and what it rests on; the threshold stands with the number that it decides."""
    told = [f"{verifier.claim!r} {update.decision.replace('_', ' ')}"]
    if update.score is None:
        told.append("no score")
    else:
        told.append(_with_threshold("score", update.score, verifier.threshold, ".4f"))
    if update.llr is not None and update.probability is not None:
        told.append(_with_threshold("LLR", update.llr, verifier.llr_threshold, ".2f"))
        told.append(f"P {update.probability:.3f} at prior {verifier.prior:g}")
    return ", ".join([*told, f"{update.speech_seconds:.2f} s of speech"])


def _with_threshold(what: str, value: float, threshold: float | None, form: str) -> str:
    return f"{what} {value:{form}}" + ("" if threshold is None else f" (threshold {threshold:{form}})")


def _outcome(verifier: Verifier, name: str, update: Update) -> dict[str, Any]:
    return {
        "claim": verifier.claim,
        "file": name,
        "state": update.state,
        "decision": update.decision,
        "score": update.score,
        "llr": update.llr,
        "probability": update.probability,
        "prior": verifier.prior,
        "threshold": verifier.threshold,
        "llr_threshold": verifier.llr_threshold,
        "threshold_source": verifier.threshold_source,
        "system": verifier.system,
        "speech_seconds": update.speech_seconds,
        "audio_seconds": update.audio_seconds,
        "frames": update.frames,
        "rivals": verifier.rivals,
    }


def _exit_of(update: Update) -> Exit:
    from pipeline.verification import Decision

    return {
        Decision.ACCEPTED: Exit.DONE,
        Decision.REJECTED: Exit.REJECTED,
        Decision.NOT_ENOUGH_SPEECH: Exit.NOT_ENOUGH_SPEECH,
    }[update.decision]


@app.command()
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
    table, written = _evaluate(store, trials, root, out, _names(systems), jobs or cores(), quiet=as_json, date=date)
    if as_json:
        print_json(table)
        return
    print_metrics(table)
    say(f"written: {', '.join(str(path) for path in written)}")


def _evaluate(
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


@app.command()
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

    say("written: " + ", ".join(str(path) for path in plot_evaluations(folders, out, _names(systems))))


@app.command()
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


@app.command()
def speakers(
    store: StoreArgument,
    action: Annotated[str, typer.Argument(metavar="[list|show|remove]", help="What to do.")] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The speaker to show or remove.")] = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """List the enrolled speakers, show one, or remove one and every coefficient their voice went into.

    \b
    Example: voiceclaim speakers speakers.store
    Example: voiceclaim speakers speakers.store remove anna
    """
    from pipeline.store import SpeakerStore

    if action not in {"list", "show", "remove"}:
        raise typer.BadParameter(f"the action is list, show or remove, got {action!r}")
    if (name is None) != (action == "list"):
        raise typer.BadParameter("list takes no name" if name else f"{action} needs a speaker's name")
    if action == "remove" and name is not None:
        from pipeline.enrollment import remove_speaker

        left = len(remove_speaker(store, name, jobs=jobs or cores()).speakers)
        print_json({"removed": name, "left": left}) if as_json else say(f"removed {name!r}; {left} left")
        return
    opened = SpeakerStore.open(store)
    shown = [speaker for speaker in opened.speakers if name is None or speaker.name == name]
    if not shown and name is not None:
        opened.position(name)
    if as_json:
        records = [speaker.model_dump(exclude={"file", "id"}) for speaker in shown]
        print_json(records[0] if name else {"revision": opened.manifest.revision, "speakers": records})
        return
    print_table(
        ("speaker", "role", "files", "speech s", "frames", "centroids"),
        [(s.name, s.role, s.utterances, f"{s.seconds:.1f}", s.frames, s.centroids) for s in shown],
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the store and results.")] = Path(
        "demo-out"
    ),
    jobs: Jobs = None,
) -> None:
    """Run the main job on the synthetic demo corpus: enroll, verify, evaluate, plot.

    \b
    Example: voiceclaim demo --out demo-out
    """
    import shutil

    from pipeline.config import load_config
    from pipeline.corpus import read_corpus
    from pipeline.enrollment import enroll as enroll_speakers
    from pipeline.evaluation import read_trials
    from pipeline.resources import demo_folder
    from pipeline.store import SpeakerStore
    from pipeline.verification import Verifier

    corpus, store = demo_folder(), out / "store"
    shutil.rmtree(store, ignore_errors=True)
    say(f"Enrolling the synthetic voices of {corpus / 'enroll'} (8 kHz) ...")
    with bars(quiet=False) as progress:
        report = enroll_speakers(
            store,
            read_corpus(corpus / "enroll").speakers,
            load_config(None, ["features.rate=8000"]),
            jobs=jobs or cores(),
            progress=progress,
        )
    say(f"{len(report.enrolled)} speakers, {report.machines} machines, {report.elapsed_seconds:.1f} s\n")
    truth = next(trial for trial in read_trials(corpus / "trials.txt") if trial.target)
    impostor = next(s.name for s in report.enrolled if s.name != truth.speaker)
    for claim in (truth.speaker, impostor):
        _verify_file(Verifier(SpeakerStore.open(store), claim), str(corpus / truth.path), as_json=False)
    table, written = _evaluate(
        store, corpus / "trials.txt", None, out / "evaluation", None, jobs or cores(), quiet=False
    )
    say("")
    print_metrics(table)
    say("Synthetic voices: these rates say nothing about real ones.")
    say("plots: " + ", ".join(str(path) for path in written if path.suffix == ".png"))


app.command()(reproduce)
app.command()(audit)


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter(f"--systems must name at least one system, got {text!r}")
    return names
