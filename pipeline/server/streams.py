"""Verification, identification and enrollment from live audio, and claims on files.

All of a caller's audio is scored piece by piece, when it is the caller's turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from starlette.websockets import WebSocketDisconnect

from pipeline.audio.streams import PcmDecoder, PcmFormat, Samples
from pipeline.errors import ServiceError, VoiceclaimError
from pipeline.scoring.decisions import Update, as_json
from pipeline.server.callers import Caller
from pipeline.server.connections import Connection
from pipeline.server.decoding import decode
from pipeline.server.messages import EnrollHello, Hello, VerifyHello
from pipeline.server.metrics import counting
from pipeline.server.scorers import ScoredClaim
from pipeline.server.scoring import AudioClaim, MixedElsewhere
from pipeline.server.security import RULES
from pipeline.server.service import Attempt, Service
from pipeline.server.utterances import UtteranceFiles
from pipeline.verification.identification import Identification
from pipeline.verification.identifier import IdentificationStream, Identifier
from pipeline.verification.verifier import Verifier

_HEARTBEAT_SECONDS = 1.0


def check_rules(caller: Caller, *chosen: object) -> None:
    """Raise ServiceError for a system or a rule of decision that is ``chosen`` by a caller who may not choose."""
    if RULES not in caller.scopes and any(each is not None for each in chosen):
        raise ServiceError(
            403, "a choice of system or early decisions takes a token with the scope rules", kind="Forbidden"
        )


async def verify(connection: Connection, hello: VerifyHello) -> None:
    """Verify live audio against one claim, with one update for all messages that came together."""
    service, caller = connection.service, connection.caller
    check_rules(caller, hello.system, hello.early)
    verifier = await service.claimed(caller, hello.claim, hello.system, hello.sequential_test)
    live = AudioClaim(hello.claim, hello.system, hello.pcm, hello.sequential_test)
    made = partial(service.verifier, hello.claim, hello.system, hello.sequential_test)
    async with service.attempt(caller, verifier) as attempt, service.scorers.claim(caller, made, live) as claim:
        terms = as_json(claim.verifier.terms)
        await connection.answer("ready", {**terms, "rate": hello.rate, "delay_ms": claim.delay_ms})
        try:
            await _score(connection, claim.push, connection.answer)
        except BaseException as error:
            await _close(service, claim, attempt, error)
            raise
        final = await _close(service, claim, attempt, None)
    await connection.answer("final", {**terms, **final, "chunks": connection.chunks})


async def _score(
    connection: Connection,
    push: Callable[[bytes], Awaitable[dict[str, Any]]],
    send: Callable[[str, dict[str, Any]], Awaitable[None]],
) -> None:
    """Push audio until the caller ends it, and ``send`` the state after it."""
    service, ended = connection.service, False
    while not ended:
        audio: list[bytes] = []
        for message in await connection.receive():
            if isinstance(message, bytes):
                audio.append(connection.count(message))
            elif connection.command(message) == "end":
                ended = True
                break
            else:
                raise ServiceError(422, f"a stream to {connection.kind} is one utterance", kind="InputError")
        if not audio:
            continue
        started, data, size = time.perf_counter(), b"".join(audio), connection.piece_bytes
        table: dict[str, Any] = {}
        for at in range(0, max(1, len(data)), size):
            table = await push(data[at : at + size])
        if not ended:
            await send("update", {**table, "chunks": connection.chunks})
        service.metrics.update_seconds.observe(time.perf_counter() - started)


async def _close(service: Service, claim: ScoredClaim, attempt: Attempt, error: BaseException | None) -> dict[str, Any]:
    """Close the stream and record its outcome: the final state, or the error if the audio was refused.

    Raises StreamClosedError where the speaker has been removed meanwhile.
    """
    verifier = claim.verifier
    final, state = await claim.close()
    attempt.note(final)
    refused = error if isinstance(error, VoiceclaimError) and not isinstance(error, ServiceError) else None
    if error is None:
        try:
            await service.run("disk", service.check_enrolled, verifier)
        except VoiceclaimError as removed:
            await service.record(verifier.claim, verifier, removed)
            raise
    await service.record(verifier.claim, verifier, refused or final)
    return state


async def verify_file(
    service: Service, caller: Caller, claim: str, system: str | None, path: Path, channel: int | None
) -> tuple[Verifier, Update]:
    """Decode a ``channel`` of a file in a process of its own, and verify it; cancelling this ends the process."""
    mixed = MixedElsewhere()
    async with _decoded(service, caller, path, channel, mixed) as (rate, audio):
        made = partial(service.verifier, claim, system)
        async with service.file_scorers.claim(caller, made, AudioClaim(claim, system, PcmFormat(rate))) as scored:
            async for samples in audio:
                await scored.feed(samples)
            update, _ = await scored.close(channels_differ=mixed.channels_differ)
    await service.run("disk", service.check_enrolled, scored.verifier)
    return scored.verifier, update


async def identify_file(
    service: Service, caller: Caller, identifier: Identifier, path: Path, channel: int | None
) -> Identification:
    """Find who speaks in a ``channel`` of a file, decoded as by ``verify_file``.

    Raises StreamClosedError if a speaker who was found has been removed meanwhile.
    """
    mixed = MixedElsewhere()
    async with _decoded(service, caller, path, channel, mixed) as (rate, audio):
        stream = await service.run("disk", partial(identifier.stream, rate, mix=mixed))
        async for samples in audio:
            await service.score(caller, stream.feed, samples)
    return await _identified(service, caller, stream, channel)


async def _identified(
    service: Service, caller: Caller, stream: IdentificationStream, channel: int | None = None
) -> Identification:
    """Close the stream of live audio, or of the ``channel`` of a file, and count its outcome.

    Raises StreamClosedError if a speaker who was found has been removed meanwhile.
    """
    found = await service.score(caller, stream.close)
    await service.run("disk", service.check_found, found)
    service.metrics.identifications.labels(str(found.decision)).inc()
    await service.run("log", service.log_identification, stream.identifier, found, channel)
    return found


async def identify(connection: Connection, hello: Hello) -> None:
    """Find who speaks in live audio, with one update for all messages that came together."""
    service, caller = connection.service, connection.caller
    identifier = await service.identifier()
    stream = await service.run("disk", identifier.stream, hello.rate)
    decoder = PcmDecoder(hello.pcm, where="the stream")
    await connection.send("ready", {"rate": hello.rate, "system": identifier.system})

    def push(data: bytes) -> dict[str, Any]:
        found = stream.push(decoder.push(data))
        service.check_found(found)
        return found.as_json()

    await _score(connection, partial(service.score, caller, push), connection.send)
    found = await _identified(service, caller, stream)
    await connection.send("final", {**found.as_json(), "chunks": connection.chunks})


@asynccontextmanager
async def _decoded(
    service: Service, caller: Caller, path: Path, channel: int | None, mixed: MixedElsewhere
) -> AsyncIterator[tuple[int, AsyncIterator[Samples]]]:
    """Decode a ``channel`` of a file, and give its rate and its samples (n,) piece by piece; ``mixed`` is set last."""
    bounds = service.settings.limits.audio
    async with service.decoders.conversation(caller, decode, path, bounds, channel) as (_, messages):
        begins = await anext(messages)
        yield begins["rate"], _samples_of(messages, mixed)


async def _samples_of(messages: AsyncIterator[Any], mixed: MixedElsewhere) -> AsyncIterator[Samples]:
    async for message in messages:
        if isinstance(message, np.ndarray):
            yield message
        elif "channels_differ" in message:
            mixed.channels_differ = message["channels_differ"]


# Enrollment


async def enroll(connection: Connection, hello: EnrollHello) -> None:
    """Record utterances until the caller ends them, then enroll the speaker."""
    service = connection.service
    name, model = await service.check_new(connection.caller, hello.name)
    async with service.private_folder() as folder:
        utterances = await service.run("disk", UtteranceFiles, service.settings, folder, model, hello.pcm)
        try:
            await connection.send("ready", {"name": name, "rate": hello.rate, **utterances.needs()})
            await _record(connection, utterances)
            await _train(connection, name, utterances)
        finally:
            await service.run("disk", utterances.close)


async def _record(connection: Connection, utterances: UtteranceFiles) -> None:
    service, caller, size = connection.service, connection.caller, connection.piece_bytes
    while True:
        for message in await connection.receive():
            if isinstance(message, bytes):
                connection.room.take(len(message))
                data = connection.count(message)
                for at in range(0, max(1, len(data)), size):
                    await service.score(caller, utterances.push, data[at : at + size])
            elif connection.command(message) == "utterance":
                await service.score(caller, utterances.next_utterance)
            else:
                await service.score(caller, utterances.finish)
                return
        await connection.send("progress", {**utterances.progress(), "chunks": connection.chunks})


async def _train(connection: Connection, name: str, utterances: UtteranceFiles) -> None:
    """Enroll, which is completed even if the caller leaves, and report time and progress every second."""
    service = connection.service
    state: dict[str, Any] = {"stage": "waiting", "share": 0.0}
    training = asyncio.create_task(
        service.enroll(connection.caller, name, utterances.recordings(), progress=state.update)
    )
    started, gone = time.monotonic(), False
    while not training.done():
        try:
            if not gone:
                await connection.send("training", {**state, "seconds": round(time.monotonic() - started, 1)})
        except WebSocketDisconnect:
            gone = True
        await asyncio.wait([training], timeout=_HEARTBEAT_SECONDS)
    with counting(service.metrics.enrollments, "enrolled"):
        summary = training.result()
    await connection.send("enrolled", summary)
