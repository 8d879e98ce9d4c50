"""Tasks of the processes that score claims: numbered streams, which go on from one task to the next.

A process scores with one core: Python runs one thread at a time, and most of the work on a short piece of audio is
Python's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from pipeline.audio.streams import PcmDecoder, PcmFormat, Samples
from pipeline.errors import ServiceError
from pipeline.scoring.decisions import Update, as_json
from pipeline.scoring.sequential import SequentialTest
from pipeline.server.newest import NewestModel, VerifierSettings, threshold_probability
from pipeline.server.workers import Channel
from pipeline.verification.stream import VerificationStream


@dataclass(frozen=True, slots=True)
class AudioClaim:
    """A claim on audio in ``pcm``, or in samples at its rate, under a system and a sequential test."""

    claim: str
    system: str | None
    pcm: PcmFormat
    early: SequentialTest | None = None


@dataclass(slots=True)
class MixedElsewhere:
    """The finding on channels by the process that decoded the audio (``pipeline.audio.downmix.Mixed``)."""

    channels_differ: bool = False


@dataclass(slots=True)
class _Live:
    stream: VerificationStream
    decoder: PcmDecoder
    mixed: MixedElsewhere


CHANGED = "StoreChanged"
_newest = cache(NewestModel)
_LIVE: dict[int, _Live] = {}


def prepare(_channel: Channel, settings: VerifierSettings) -> None:
    """Read the newest model, so that the first claim need not wait for it."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # for good: each process has a core
    _newest(settings).current()


def begin(_channel: Channel, settings: VerifierSettings, number: int, live: AudioClaim, revision: int) -> float:
    """Begin stream ``number`` and return its delay in ms; raises ServiceError if the store is not at ``revision``."""
    verifier = _newest(settings).verifier(live.claim, live.system, live.early)
    if verifier.model.revision != revision:
        raise ServiceError(503, "the store has just changed; try again", kind=CHANGED)
    mixed = MixedElsewhere()
    stream = verifier.stream(live.pcm.rate, mix=mixed)
    _LIVE[number] = _Live(stream, PcmDecoder(live.pcm, where="the stream"), mixed)
    return stream.delay_ms


def push(_channel: Channel, settings: VerifierSettings, number: int, data: bytes) -> dict[str, Any]:
    """Score ``data`` and return the state; raises StreamClosedError if the speaker has been removed."""
    live = _LIVE[number]
    _newest(settings).check_enrolled(live.stream.verifier)
    return _state(live.stream, live.stream.push(live.decoder.push(data)))


def feed(_channel: Channel, number: int, samples: Samples) -> None:
    """Score ``samples`` (n,)."""
    _LIVE[number].stream.feed(samples)


def close(_channel: Channel, number: int, channels_differ: bool) -> dict[str, Any]:
    """End the stream, whose audio may be the mean of channels that differ, and return its final state."""
    live = _LIVE.pop(number)
    live.mixed.channels_differ = channels_differ
    return _state(live.stream, live.stream.close())


def forget(_channel: Channel, number: int) -> None:
    """End the stream, if it goes on, without a decision."""
    _LIVE.pop(number, None)


def _state(stream: VerificationStream, update: Update) -> dict[str, Any]:
    return {**as_json(update), "threshold_probability": threshold_probability(stream.verifier, update.frames)}
