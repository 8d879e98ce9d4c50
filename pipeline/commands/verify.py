"""The command `voiceclaim verify`: files, pipes and the microphone."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.commands.listening import listen, microphone, pipe
from pipeline.commands.shared import Exit, Json, Log, LogKey, Outsiders, StoreArgument
from pipeline.errors import AudioError, VoiceclaimError
from pipeline.terminal import complain, plain, print_json, say

if TYPE_CHECKING:
    from pipeline.audit_events import Recorder
    from pipeline.early import EarlyRule
    from pipeline.evaluation import OperatingPoint
    from pipeline.store import SpeakerStore
    from pipeline.updates import Update
    from pipeline.verification import Verifier


def verify(
    store: StoreArgument,
    claim: Annotated[str, typer.Option(metavar="NAME", help="Who the voice says it is.")],
    audio: Annotated[
        list[str] | None, typer.Argument(metavar="AUDIO...", help="Audio files, or - for a pipe.", show_default=False)
    ] = None,
    mic: Annotated[bool, typer.Option("--mic", help="Listen to the microphone, until Ctrl-C or a decision.")] = False,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which microphone: a number, or part of its name.")
    ] = None,
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
    outsiders: Outsiders = None,
    early: Annotated[
        str | None,
        typer.Option(
            metavar="MISS:FALSE_ACCEPT",
            help="Decide as soon as the evidence suffices for these error rates, shares (0.005:0.005).",
        ),
    ] = None,
    at_end: Annotated[
        str, typer.Option(metavar="undecided|fixed", help="With --early, what becomes of audio that ends before that.")
    ] = "undecided",
    raw: Annotated[
        str | None,
        typer.Option(metavar="RATE[:CHANNELS[:ENCODING]]", help="The pipe is raw audio: 16000, 8000:1:mulaw, ..."),
    ] = None,
    interval: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Audio between a pipe's updates.")] = 0.25,
    log: Log = None,
    log_key: LogKey = None,
    log_paths: Annotated[bool, typer.Option("--log-paths", help="The log names the audio files, too.")] = False,
    as_json: Json = False,
) -> None:
    """Check whether the voice in each file, in a pipe or at the microphone, is NAME's.

    A score decides, by a threshold that enrollment found or by --threshold or --far. With --prior or a cost its
    log-likelihood ratio (LLR, nats) does, at the least expected cost; what is not given stands as in the settings. P is
    the probability of a true claim after hearing the file.

    A pipe (-) and the microphone print running updates as JSON lines; on a terminal a live line shows them instead.
    Exit codes: 0 accepted, 1 rejected, 3 not enough speech or undecided, 2 an error; of several files the first of 2,
    1, 3, 0 that happened.

    \b
    Example: voiceclaim verify speakers.store --claim anna call.wav
    Example: voiceclaim verify speakers.store --claim anna --prior 0.5 --cost-false-accept 10 call.wav
    Example: sox -d -t wav - | voiceclaim verify speakers.store --claim anna -
    Example: voiceclaim verify speakers.store --claim anna --early 0.005:0.005 --mic
    """
    from pipeline.audit_events import replay_memory, verification_recorder
    from pipeline.store import SpeakerStore
    from pipeline.verification import Verifier

    if bool(audio) == mic:
        raise typer.BadParameter("name audio files, or - for a pipe, or else give --mic")
    rule = _early_rule(early, at_end)
    opened = SpeakerStore.open(store, outsiders=outsiders)
    record = verification_recorder(log, opened, claim, key_file=log_key, paths=log_paths)
    try:
        verifier = Verifier(
            opened,
            claim,
            system=system,
            threshold=threshold,
            false_accept=far,
            point=_point(opened, prior, cost_miss, cost_false_accept),
            early=rule,
            memory=replay_memory(log),
        )
    except VoiceclaimError as error:
        record(None, None, error)
        raise
    if verifier.rivals == 0:
        sys.stderr.write("voiceclaim: nobody else is enrolled: only the one-class machine speaks\n")
    codes = []
    for name in audio or ():
        if name == "-":
            codes.append(_verify_live(verifier, pipe(raw), "-", interval, record, as_json=as_json))
        else:
            codes.append(verify_file(verifier, name, record, as_json=as_json))
    if mic:
        codes.append(_verify_live(verifier, microphone(device), "microphone", interval, record, as_json=as_json))
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


def verify_file(verifier: Verifier, name: str, record: Recorder = _unrecorded, *, as_json: bool) -> Exit:
    """Score one file, ``record`` what came of it and print it."""
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


def _verify_live(
    verifier: Verifier,
    source: AbstractContextManager[tuple[int, Any]],
    name: str,
    interval: float,
    record: Recorder,
    *,
    as_json: bool,
) -> Exit:
    """Score what comes in now; JSON lines, but for people who look at the output themselves."""
    for_programs = as_json or sys.stdout is None or not sys.stdout.isatty()

    def tell(update: Update) -> None:
        if for_programs:
            print_json(_outcome(verifier, name, update))

    try:
        with source as (rate, blocks):
            update = listen(verifier, rate, blocks, interval, tell, live=not as_json)
    except VoiceclaimError as error:
        record(verifier, None, error)
        raise
    record(verifier, None, update)
    if for_programs:
        print_json(_outcome(verifier, name, update))
    else:
        say(_in_words(verifier, update))
    return _exit_of(update)


def _early_rule(early: str | None, at_end: str) -> EarlyRule | None:
    """What --early says; raises typer.BadParameter, or InputError for rates out of range."""
    from pipeline.early import EarlyRule

    if at_end not in ("undecided", "fixed"):
        raise typer.BadParameter(f"--at-end must be undecided or fixed, got {at_end!r}")
    if early is None:
        return None
    try:
        miss, false_accept = map(float, early.split(":"))
    except ValueError:
        raise typer.BadParameter(f"--early must read MISS:FALSE_ACCEPT, two shares, got {early!r}") from None
    return EarlyRule(miss, false_accept, at_end="fixed" if at_end == "fixed" else "undecided")


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
    told.append(f"{update.speech_seconds:.2f} s of speech")
    return ", ".join([*told, *(["a copy of a known recording: replay suspected"] * bool(update.replay_suspected))])


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
        "outsiders": verifier.store.outsiders,
        "threshold": verifier.threshold,
        "llr_threshold": verifier.llr_threshold,
        "threshold_source": verifier.threshold_source,
        "system": verifier.system,
        "speech_seconds": update.speech_seconds,
        "audio_seconds": update.audio_seconds,
        "frames": update.frames,
        "rivals": verifier.rivals,
        "settled": update.settled,
        "early_llr": update.early_llr,
        "early_bounds": None if verifier.early is None else [verifier.early.reject_at, verifier.early.accept_at],
        "replay_suspected": update.replay_suspected,
    }


def _exit_of(update: Update) -> Exit:
    from pipeline.updates import Decision

    return {
        Decision.ACCEPTED: Exit.DONE,
        Decision.REJECTED: Exit.REJECTED,
        Decision.UNDECIDED: Exit.NOT_ENOUGH_SPEECH,
        Decision.NOT_ENOUGH_SPEECH: Exit.NOT_ENOUGH_SPEECH,
    }[update.decision]
