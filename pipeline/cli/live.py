"""Live audio from a pipe or a microphone: its source, a level meter, and the verification of a claim."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from pipeline.cli.terminal import live_line, print_error
from pipeline.errors import AudioError

if TYPE_CHECKING:
    from pipeline.audio.downmix import Downmix
    from pipeline.scoring.decisions import Update
    from pipeline.verification.verifier import Verifier

Blocks = Iterator[Any]
"""Blocks of mono samples (n,), full scale 1."""

QUIET_DB = -50.0  # speech below this level is too quiet
_FLOOR_DB = -60.0
_CELLS = 12


@contextmanager
def pipe(raw: str | None, mix: Downmix) -> Iterator[tuple[int, Blocks]]:
    """Yield the rate in Hz and the blocks of the standard input: WAV, or PCM in the format ``raw``.

    ``mix`` reduces several channels to one.
    """
    from pipeline.audio.streams import stream_pipe

    if sys.stdin is None:
        raise AudioError("-: the standard input is closed; pipe audio into the command")
    yield stream_pipe(sys.stdin.buffer, None if raw is None else _pcm_format(raw), mix=mix)


@contextmanager
def microphone(device: str | None) -> Iterator[tuple[int, Blocks]]:
    """Yield the rate in Hz and the blocks of a microphone, until Ctrl-C."""
    from pipeline.audio.microphone import open_microphone

    with open_microphone(int(device) if device is not None and device.isdecimal() else device) as opened:
        yield opened.rate, until_interrupted(opened.blocks())
        if opened.lost:
            print_error(f"this machine is too slow for the microphone: {opened.lost:.1f} s of sound were lost")


def until_interrupted(blocks: Blocks) -> Blocks:
    """Yield ``blocks`` until Ctrl-C; a first Ctrl-C lets the block that is being scored finish."""
    listening = stopped = False

    def interrupt(*_: object) -> None:
        nonlocal stopped
        if listening or stopped:
            raise KeyboardInterrupt
        stopped = True

    earlier = signal.signal(signal.SIGINT, interrupt)
    try:
        while not stopped:
            listening = True
            block = next(blocks, None)
            listening = False
            if block is None:
                return
            yield block
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGINT, earlier)


def _pcm_format(text: str) -> Any:
    """Parse the value of --raw; raises typer.BadParameter."""
    from pipeline.audio.streams import PcmFormat

    rate, _, rest = text.partition(":")
    channels, _, encoding = rest.partition(":")
    if not rate.isdecimal() or not (channels or "1").isdecimal():
        raise typer.BadParameter(f"--raw must read RATE[:CHANNELS[:ENCODING]], got {text!r}")
    return PcmFormat(int(rate), int(channels or 1), encoding or "s16le")  # type: ignore[arg-type]  # checked there


class LevelMeter:
    """Level of the latest block in dB below full scale, and whether more than a share of the audio is clipped."""

    def __init__(self, max_clipped: float) -> None:
        from pipeline.audio.levels import Clipping

        self.level_db = -math.inf
        self._clipping = Clipping()
        self._most_clipped = max_clipped

    def push(self, samples: Any) -> None:
        """Measure mono ``samples`` (n,), full scale 1."""
        if len(samples) == 0:
            return
        power = float((samples * samples).mean())
        self.level_db = 10.0 * math.log10(power) if power > 0.0 else -math.inf
        self._clipping.push(samples)

    @property
    def clipped(self) -> bool:
        """Return True if the share of clipped samples exceeds the limit."""
        return self._clipping.share > self._most_clipped

    def __str__(self) -> str:
        share = (max(self.level_db, _FLOOR_DB) - _FLOOR_DB) / -_FLOOR_DB
        full = min(_CELLS, round(_CELLS * share))
        level = "silence" if self.level_db == -math.inf else f"{self.level_db:4.0f} dB"
        # Runs of equal samples in a silence are quantisation, not clipping.
        warning = " CLIPPED" if self.clipped and self.level_db >= QUIET_DB else ""
        return f"[{'#' * full}{'.' * (_CELLS - full)}] {level:7}{warning}"


def verify_live(
    verifier: Verifier,
    rate: int,
    blocks: Blocks,
    interval: float,
    report: Callable[[Update], None],
    *,
    mix: Downmix,
    live: bool,
) -> Update:
    """Verify ``blocks``, made by ``mix``, until they end or the claim is decided, and return the last update.

    ``report`` is called with an update every ``interval`` seconds of audio; with ``live`` a line on the terminal shows
    each update.
    """
    stream, reported = verifier.stream(rate, mix=mix), 0.0
    meter = LevelMeter(verifier.model.config.checks.max_clipped)
    with live_line(quiet=not live) as show:
        show(f"{verifier.claim}: listening")
        for block in blocks:
            update = stream.push(block)
            meter.push(block)
            show(_progress(verifier, update, meter))
            if update.audio_seconds >= reported + interval:
                reported = update.audio_seconds
                report(update)
            if update.settled:
                break
        return stream.close()


def _progress(verifier: Verifier, update: Update, meter: LevelMeter) -> str:
    """Describe a claim whose audio is still arriving, in one line."""
    from pipeline.verification.audio_warnings import codes

    words = [str(meter), f"{update.speech_seconds:5.2f} s of speech"]
    if update.probability is not None:
        words.append(f"P {update.probability:.3f}")
    words.append(update.decision.replace("_", " ") + ("" if update.settled else " so far"))
    if update.duplicate_suspected:
        words.append("DUPLICATE SUSPECTED")
    words += [code.replace("_", " ") for code in codes(update.warnings)]
    return "  ".join([*words, verifier.claim])
