"""A claim checked while it is spoken, from a pipe or a microphone: JSON lines for programs, a live line for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from pipeline.errors import AudioError
from pipeline.live_line import LevelMeter, LiveLine
from pipeline.terminal import complain, plain

if TYPE_CHECKING:
    from pipeline.updates import Update
    from pipeline.verification import Verifier

Blocks = Iterator[Any]
"""Blocks of mono samples (n,), full scale 1."""


@contextmanager
def pipe(raw: str | None) -> Iterator[tuple[int, Blocks]]:
    """The rate in Hz and the blocks of the standard input: WAV, or raw audio as ``--raw`` says."""
    from pipeline.pcm import stream_pipe

    if sys.stdin is None:
        raise AudioError("-: the standard input is closed; pipe audio into the command")
    yield stream_pipe(sys.stdin.buffer, None if raw is None else pcm_format(raw))


@contextmanager
def microphone(device: str | None) -> Iterator[tuple[int, Blocks]]:
    """The rate in Hz and the blocks of a microphone, until Ctrl-C."""
    from pipeline.microphone import Microphone

    with Microphone(int(device) if device is not None and device.isdecimal() else device) as opened:
        yield opened.rate, _until_interrupted(opened.blocks())
        if opened.lost:
            complain(f"the microphone was too fast: {opened.lost:.1f} s of sound were lost")


def _until_interrupted(blocks: Blocks) -> Blocks:
    try:
        yield from blocks
    except KeyboardInterrupt:
        return


def pcm_format(text: str) -> Any:
    """What ``--raw`` says; raises typer.BadParameter."""
    from pipeline.pcm import PcmFormat

    rate, _, rest = text.partition(":")
    channels, _, encoding = rest.partition(":")
    if not rate.isdecimal() or not (channels or "1").isdecimal():
        raise typer.BadParameter(f"--raw must read RATE[:CHANNELS[:ENCODING]], got {text!r}")
    return PcmFormat(int(rate), int(channels or 1), encoding or "s16le")  # type: ignore[arg-type]  # checked there


def listen(
    verifier: Verifier, rate: int, blocks: Blocks, interval: float, tell: Callable[[Update], None], *, live: bool
) -> Update:
    """Verify ``blocks`` until they end or the claim is settled; the last update is returned.

    ``tell`` hears of an update every ``interval`` seconds of audio; with ``live`` a line on the terminal shows each.
    """
    stream, meter, line = verifier.stream(rate), LevelMeter(rate), LiveLine()
    line.shown &= live
    line.show(f"{plain(verifier.claim)}: listening", now=True)
    told = 0.0
    try:
        for block in blocks:
            update = stream.push(block)
            meter.push(block)
            line.show(standing(verifier, update, meter), now=update.settled)
            if update.audio_seconds >= told + interval:
                told = update.audio_seconds
                tell(update)
            if update.settled:
                break
        return stream.close()
    finally:
        line.clear()


def standing(verifier: Verifier, update: Update, meter: LevelMeter) -> str:
    """A claim in the middle of its audio, in one line."""
    told = [str(meter), f"{update.speech_seconds:5.2f} s of speech"]
    if update.probability is not None:
        told.append(f"P {update.probability:.3f}")
    told.append(update.decision.replace("_", " ") + ("" if update.settled else " so far"))
    if update.replay_suspected:
        told.append("REPLAY SUSPECTED")
    return "  ".join([*told, plain(verifier.claim)])
