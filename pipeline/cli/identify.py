"""The command `voiceclaim identify`: which enrolled speaker is speaking, if any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.live import pipe
from pipeline.cli.options import (
    DONE,
    ERROR,
    NOT_ENOUGH_SPEECH,
    REJECTED,
    WORST_FIRST,
    Channel,
    Json,
    Log,
    LogKey,
    LogPaths,
    Raw,
    StoreArgument,
    System,
    UnknownImpostors,
    check_log_and_raw,
)
from pipeline.cli.terminal import escape, print_error, print_json, print_line
from pipeline.errors import AudioError

if TYPE_CHECKING:
    from pipeline.verification.identification import Identification
    from pipeline.verification.identifier import Identifier

_EXITS = {"identified": DONE, "nobody": REJECTED, "not_enough_speech": NOT_ENOUGH_SPEECH}


def identify(
    store: StoreArgument,
    audio: Annotated[list[str], typer.Argument(metavar="AUDIO", help="Audio files, or - for a pipe.")],
    best: Annotated[int, typer.Option("--best", "-n", min=1, metavar="N", help="Number of candidates to print.")] = 3,
    system: System = None,
    nobody: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Prior probability that nobody enrolled speaks.", show_default="unknown impostors"
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(metavar="X", help="Identify at LLRs of X and above.", show_default="the likeliest outcome"),
    ] = None,
    unknown_impostors: UnknownImpostors = None,
    log: Log = None,
    log_key: LogKey = None,
    log_paths: LogPaths = False,
    channel: Channel = None,
    raw: Raw = None,
    as_json: Json = False,
) -> None:
    """Find which enrolled speaker is speaking, if any.

    Probabilities are those of every enrolled speaker and of nobody, and sum to 1. The likeliest outcome is taken,
    unless --threshold sets a lowest log-likelihood ratio. Exit codes: 0 identified, 1 nobody enrolled, 3 not enough
    speech, 2 an error; for several files, the first of 2, 1, 3, 0 that occurred.

    Examples:
    - `voiceclaim identify speakers.store call.wav`
    - `voiceclaim identify speakers.store --best 10 --json call.wav voicemail.m4a`
    """
    from pipeline.store.store import Store
    from pipeline.verification.audit import open_log
    from pipeline.verification.audit_events import identification_recorder
    from pipeline.verification.identifier import Identifier

    check_log_and_raw(log, log_key, log_paths, raw, audio)
    model = Store(store).load(unknown_impostors=unknown_impostors)
    identifier = Identifier(model, system=system, best=best, nobody=nobody, threshold=threshold)
    record = identification_recorder(open_log(log, log_key), identifier, paths=log_paths, channel=channel)
    codes = []
    for name in audio:
        try:
            found = _identified(identifier, name, raw, channel)
        except AudioError as error:
            record(None if name == "-" else name, error)
            if as_json:
                print_json({"file": name, "decision": None, "error": str(error)})
            print_error(error)
            codes.append(ERROR)
            continue
        record(None if name == "-" else name, found)
        if as_json:
            print_json({"file": name, **found.as_json(), "system": identifier.system, "revision": model.revision})
        else:
            print_line(_sentence(name, found))
        codes.append(_EXITS[found.decision])
    raise typer.Exit(min(codes, key=WORST_FIRST.index))


def _identified(identifier: Identifier, name: str, raw: str | None, channel: int | None) -> Identification:
    from pipeline.audio.downmix import Downmix

    if name != "-":
        return identifier.identify_file(name, channel=channel)
    mix = Downmix("<stdin>", channel)
    with pipe(raw, mix) as (rate, blocks):
        stream = identifier.stream(rate, mix=mix)
        for block in blocks:
            stream.feed(block)
    return stream.close()


def _sentence(name: str, found: Identification) -> str:
    if found.nobody is None:
        return f"{escape(name)}: not enough speech, {found.speech_seconds:.2f} s"
    known = [f"{escape(repr(one.name))} {one.probability:.3f}" for one in found.candidates]
    nobody = f"nobody enrolled {found.nobody:.3f}"
    first, *others = [nobody, *known] if found.name is None else [*known, nobody]
    words = f"{escape(name)}: {first}; {', '.join(others)}; LLR {found.candidates[0].llr:.2f}"
    return "; ".join([f"{words}, {found.speech_seconds:.2f} s of speech", *found.warnings])
