"""The command `voiceclaim verify`: verify a claim on files, a pipe or the microphone."""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipeline.cli.live import microphone, pipe, verify_live
from pipeline.cli.options import (
    DONE,
    ERROR,
    NOT_ENOUGH_SPEECH,
    REJECTED,
    WORST_FIRST,
    Channel,
    CostFalseAccept,
    CostMiss,
    Device,
    Far,
    Json,
    Log,
    LogKey,
    LogPaths,
    Prior,
    Raw,
    StoreArgument,
    System,
    UnknownImpostors,
    check_log_and_raw,
    complete_names,
    point_of,
    refuse,
)
from pipeline.cli.terminal import coloured, escape, print_error, print_json, print_line, print_note
from pipeline.errors import AudioError, VoiceclaimError

if TYPE_CHECKING:
    from pipeline.audio.downmix import Downmix
    from pipeline.scoring.decisions import Update
    from pipeline.scoring.sequential import SequentialTest
    from pipeline.store.model import SpeakerModel
    from pipeline.verification.audit_events import Recorder
    from pipeline.verification.verifier import Verifier

# Target trials below which P is shown with its interval.
ENOUGH_TARGETS = 100
_COLOURS = {"accepted": "green", "rejected": "red", "undecided": "yellow", "not_enough_speech": "yellow"}
_EXITS = {"accepted": DONE, "rejected": REJECTED}  # any other decision: NOT_ENOUGH_SPEECH


def verify(
    store: StoreArgument,
    claim: Annotated[list[str], typer.Option(metavar="NAME", help="Claimed speaker.", autocompletion=complete_names)],
    audio: Annotated[
        list[str] | None, typer.Argument(metavar="AUDIO", help="Audio files, or - for a pipe.", show_default=False)
    ] = None,
    mic: Annotated[bool, typer.Option("--mic", help="Use the microphone, until Ctrl-C or a decision.")] = False,
    device: Device = None,
    system: System = None,
    threshold: Annotated[float | None, typer.Option(metavar="X", help="Accept scores of X and above.")] = None,
    far: Far = None,
    prior: Prior = None,
    cost_miss: CostMiss = None,
    cost_false_accept: CostFalseAccept = None,
    unknown_impostors: UnknownImpostors = None,
    sequential: Annotated[
        str | None, typer.Option(metavar="MISS:FALSE_ACCEPT", help="Sequential test at these error rates: 0.005:0.005.")
    ] = None,
    at_end: Annotated[
        Literal["undecided", "fixed"],
        typer.Option(
            metavar="undecided|fixed",
            help="Decision if the audio ends before --sequential decides; fixed: by the threshold.",
        ),
    ] = "undecided",
    channel: Channel = None,
    raw: Raw = None,
    interval: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Audio between live updates.")] = 0.25,
    log: Log = None,
    log_key: LogKey = None,
    log_paths: LogPaths = False,
    as_json: Json = False,
) -> None:
    """Verify a claimed speaker in files or live audio.

    A claim is accepted at the store's threshold or above. For the default system, fused, this is the threshold of least
    expected cost at the prior and costs of the settings. --prior and the costs, --far or --threshold replace it.
    --sequential stops as soon as its error rates are met. LLR is the log-likelihood ratio in nats. P is the posterior
    probability of a target trial (a true claim), given if the decision uses a prior.

    A pipe (-) and the microphone print updates as JSON lines; on a terminal, a live line instead. Exit codes:
    0 accepted, 1 rejected, 3 not enough speech or undecided, 2 an error; for several files, the first of 2, 1, 3, 0
    that occurred.

    Examples:
    - `voiceclaim verify speakers.store --claim anna call.wav`
    - `voiceclaim verify speakers.store --claim anna --prior 0.5 --cost-false-accept 10 call.wav`
    - `voiceclaim verify speakers.store --claim anna --channel 1 stereo-call.wav`
    - `sox -d -t wav - | voiceclaim verify speakers.store --claim anna -`
    - `voiceclaim verify speakers.store --claim anna --sequential 0.005:0.005 --mic`
    """
    from pipeline.audio.downmix import Downmix
    from pipeline.store.store import Store
    from pipeline.verification.audit import open_log
    from pipeline.verification.audit_events import duplicate_memory, verification_recorder
    from pipeline.verification.policies import policy_of
    from pipeline.verification.verifier import Verifier

    if bool(audio) == mic:
        raise typer.BadParameter("give audio files, - for a pipe, or --mic")
    if len(claim) > 1 or claim == ["*"]:
        raise typer.BadParameter("one claim is verified at a time; to find who speaks: voiceclaim identify STORE AUDIO")
    if mic:
        refuse("is for files and pipes: a microphone is read as one channel", {"--channel": channel})
    check_log_and_raw(log, log_key, log_paths, raw, audio or [])
    (name,) = claim
    rule = _sequential_test(sequential, at_end)
    model = Store(store).load(unknown_impostors=unknown_impostors)
    record = verification_recorder(open_log(log, log_key), model, name, paths=log_paths, channel=channel)
    try:
        point = point_of(model.config, prior, cost_miss, cost_false_accept)
        policy = policy_of(threshold=threshold, false_accept=far, point=point, sequential=rule)
        verifier = Verifier(model, name, system=system, memory=duplicate_memory(log), decide_by=policy)
    except VoiceclaimError as error:
        record(None, None, error)
        raise
    if verifier.competing == 0:
        print_error(f"only {name!r} is enrolled: the score compares them with nobody; enroll more speakers")
    if far is not None:
        _warn_of_few_trials(model, far)
    codes = []
    for source in audio or ():
        if source == "-":
            mix = Downmix("<stdin>", channel)
            codes.append(_verify_stream(verifier, pipe(raw, mix), mix, "-", interval, record, as_json=as_json))
        else:
            codes.append(verify_file(verifier, source, record, channel=channel, as_json=as_json))
    if mic:
        live, mix = microphone(device), Downmix("microphone")
        codes.append(_verify_stream(verifier, live, mix, "microphone", interval, record, as_json=as_json))
    raise typer.Exit(min(codes, key=WORST_FIRST.index))


def _warn_of_few_trials(model: SpeakerModel, far: float) -> None:
    """Warn if the store has too few nontarget trials to show the requested rate, or none by unknown impostors."""
    trials = model.trials([], kind=model.fitted_to)
    count = 0 if trials is None else int((~trials.is_target).sum())
    if far * count < 1:
        print_note(
            f"note: {count} nontarget trials of the store cannot show a false-accept rate of {far:g};"
            f" enroll or calibrate with at least {math.ceil(1 / far)}"
        )
    if trials is not None and model.unknown > 0.0 and not trials.unknown.any():
        print_note(
            "note: no trial of the store is by an unknown impostor, so --far does not limit how often people who are"
            " not enrolled are accepted; enroll three speakers or more, or calibrate with recordings of such people"
        )


def verify_file(verifier: Verifier, name: str, record: Recorder, *, channel: int | None = None, as_json: bool) -> int:
    """Verify one file, ``record`` the outcome and print it."""
    try:
        update = verifier.verify_file(name, channel=channel)
    except VoiceclaimError as error:
        record(verifier, name, error)
        if not isinstance(error, AudioError):
            raise
        if as_json:
            print_json({"claim": verifier.claim, "file": name, "decision": None, "error": str(error)})
        print_error(error)
        return ERROR
    record(verifier, name, update)
    _print(verifier, name, update, as_json=as_json)
    return _EXITS.get(update.decision, NOT_ENOUGH_SPEECH)


def _verify_stream(
    verifier: Verifier,
    source: AbstractContextManager[tuple[int, Any]],
    mix: Downmix,
    name: str,
    interval: float,
    record: Recorder,
    *,
    as_json: bool,
) -> int:
    """Verify live audio; print updates as JSON lines unless the output is a terminal."""
    json_lines = as_json or not sys.stdout.isatty()

    def report(update: Update) -> None:
        if json_lines:
            _print(verifier, name, update, as_json=True)

    try:
        with source as (rate, blocks):
            update = verify_live(verifier, rate, blocks, interval, report, mix=mix, live=not as_json)
    except VoiceclaimError as error:
        record(verifier, None, error)
        raise
    record(verifier, None, update)
    _print(verifier, name if json_lines else None, update, as_json=json_lines)
    return _EXITS.get(update.decision, NOT_ENOUGH_SPEECH)


def _sequential_test(sequential: str | None, at_end: Literal["undecided", "fixed"]) -> SequentialTest | None:
    """Parse --sequential; raises typer.BadParameter, or InputError for rates out of range."""
    from pipeline.scoring.sequential import SequentialTest

    if sequential is None:
        return None
    try:
        miss, false_accept = map(float, sequential.split(":"))
    except ValueError:
        raise typer.BadParameter(f"--sequential must read MISS:FALSE_ACCEPT, two rates, got {sequential!r}") from None
    return SequentialTest(miss, false_accept, at_end=at_end)


def _print(verifier: Verifier, name: str | None, update: Update, *, as_json: bool) -> None:
    if not as_json:
        print_line(_sentence(verifier, name, update))
        return
    from pipeline.scoring.decisions import as_json as table_of

    interval = verifier.probability_interval(update.llr)
    print_json({"file": name, **table_of(verifier.terms, update), "probability_interval": interval})


def _sentence(verifier: Verifier, name: str | None, update: Update) -> str:
    """Describe a decision; the threshold is printed after the number that it applies to."""
    decision = coloured(update.decision.replace("_", " "), _COLOURS[update.decision])
    start = f"{decision} {escape(repr(verifier.claim))}" + (f" {escape(name)}" if name else "")
    decider, words = verifier.decider, []
    by_test = _by_test(verifier, update)
    threshold, llr_threshold = (None, None) if by_test else (decider.threshold, decider.llr_threshold)
    if update.score is None:
        words.append(f"no score ({verifier.model.config.scoring.min_seconds:g} s needed)")
    elif update.score == update.llr:  # one number
        words.append(_with_threshold("LLR", update.score, llr_threshold if threshold is None else threshold, ".2f"))
    else:
        words.append(_with_threshold("score", update.score, threshold, ".4f"))
        if update.llr is not None:
            words.append(_with_threshold("LLR", update.llr, llr_threshold, ".2f"))
    words += by_test
    if update.probability is not None:
        words.append(f"P {update.probability:.3f}{_interval(verifier, update)} at prior {verifier.decider.prior:g}")
    words.append(f"{update.speech_seconds:.2f} s of speech")
    if update.duplicate_suspected:
        words.append("a copy of known audio: duplicate suspected")
    return "; ".join([f"{start}: {', '.join(words)}", *update.warnings])


def _by_test(verifier: Verifier, update: Update) -> list[str]:
    """Return the ratio and bounds of a sequential test in words; an empty list if a threshold decided."""
    test, llr = verifier.decider.test, update.sequential_llr
    if test is None or llr is None or (test.verdict(llr) is None and update.decision != "undecided"):
        return []
    return [f"sequential LLR {llr:.2f} (bounds {test.reject_at:.2f} and {test.accept_at:.2f})"]


def _interval(verifier: Verifier, update: Update) -> str:
    """Return the interval of P in words if the calibration rests on few trials."""
    ends, uncertainty = verifier.probability_interval(update.llr), verifier.uncertainty
    if ends is None or uncertainty is None or uncertainty.targets >= ENOUGH_TARGETS:
        return ""
    return f" (95 %: {ends[0]:.2f} to {ends[1]:.2f})"


def _with_threshold(what: str, value: float, threshold: float | None, form: str) -> str:
    return f"{what} {value:{form}}" + ("" if threshold is None else f" (threshold {threshold:{form}})")
