"""Claims verified, speakers identified and enrolled while they speak: the WebSockets; and claims on files.

All of a caller's audio is scored piece by piece, when it is the caller's turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from pipeline.audio.streams import PcmDecoder, PcmFormat, Samples
from pipeline.errors import ServiceError, VoiceclaimError
from pipeline.scoring.decisions import Update, as_json
from pipeline.server.callers import Caller, Patience, Share
from pipeline.server.decoding import decode
from pipeline.server.logs import log_event
from pipeline.server.messages import (
    EnrollHello,
    Hello,
    VerifyHello,
    fault,
    problem,
    read_command,
    read_hello,
    service_error,
    shown,
    system_error,
    text_of,
)
from pipeline.server.scorers import ScoredClaim
from pipeline.server.scoring import AudioClaim
from pipeline.server.security import RULES, SCORES, allowed, caller_of, token_in
from pipeline.server.service import Attempt, Service
from pipeline.server.utterances import UtteranceFiles
from pipeline.verification.identification import Identification, IdentificationStream, Identifier
from pipeline.verification.stream import VerificationStream
from pipeline.verification.verifier import Verifier

_CODES = {413: 1009, 422: 1007, 500: 1011, 503: 1013, 507: 1013}  # RFC 6455, and IANA's registry of codes
_HEARTBEAT_SECONDS = 1.0
_FREE_MESSAGES, _MEAN_BYTES = 500, 64  # parsing costs time by the message, not by the byte
_FLOOD = "Flood"
_REFUSAL_SECONDS = 0.25  # until a bad hello is answered, so that nobody sends many of them
_SLOWEST = 4.0  # seconds that a second of audio may take to come
_PIECE_SECONDS = 1.0  # of audio that is scored in one turn
Stream = TypeVar("Stream", VerificationStream, IdentificationStream)
_GONE = (TimeoutError, OSError, RuntimeError, WebSocketDisconnect)


class Connection:
    """One accepted WebSocket of a ``kind``, which is also the name of the scope that it needs.

    Nothing is read ahead: while the last messages are processed, TCP holds up the sender. After the hello there is a
    ``caller``, and then what it has taken of the ``room`` for recordings.
    """

    caller: Caller
    room: Share

    def __init__(self, socket: WebSocket, service: Service, kind: str) -> None:
        self.service = service
        self.kind = kind
        self.chunks = 0
        self._socket = socket
        self._limits = service.settings.limits
        self._messages = self._received = 0
        self._bytes = 0
        self._bytes_per_second = 1
        self._began, self._patience = time.monotonic(), Patience(self._limits.idle_seconds)

    async def hello(self, kind: type[Hello]) -> Any:
        """Return the first message, of a ``caller`` whose token has the scope; raises ServiceError."""
        async with asyncio.timeout(self._limits.hello_seconds):
            hello = read_hello(await self._next(), kind)
        token, client = hello.token or token_in(self._socket.headers), self._socket.scope.get("client")
        self.caller = allowed(caller_of(self.service.settings.tokens, token, client), token, self.kind)
        self._bytes_per_second = hello.pcm.frame_bytes * hello.rate
        return hello

    @property
    def piece_bytes(self) -> int:
        """Return the size of a piece of audio."""
        return round(_PIECE_SECONDS * self._bytes_per_second)

    async def receive(self) -> list[str | bytes]:
        """Wait for the next message, and return it with those that came with it.

        Raises WebSocketDisconnect, or TimeoutError for a caller who sends nothing, or much less than real time.
        """
        left = self._began + 2 * self._limits.stream_seconds - time.monotonic()
        async with asyncio.timeout(left), self._patience.waiting():
            messages = [await self._next()]
        with suppress(TimeoutError, WebSocketDisconnect):  # the next call meets a disconnect again
            async with asyncio.timeout(0):
                while True:
                    messages.append(await self._next())
        self._messages += len(messages)
        self._received += sum(map(len, messages))
        if self._messages > _FREE_MESSAGES + self._received // _MEAN_BYTES:
            raise ServiceError(429, f"messages of a stream have at least {_MEAN_BYTES} bytes on average", kind=_FLOOD)
        return messages

    async def _next(self) -> str | bytes:
        if self._socket.client_state is WebSocketState.DISCONNECTED:
            raise WebSocketDisconnect
        event = await self._socket.receive()
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event["code"])
        message: str | bytes = event["text"] if event.get("text") is not None else event["bytes"]
        return message

    def count(self, data: bytes) -> bytes:
        """Return ``data``; raises ServiceError beyond the audio that a stream may have."""
        self.chunks += 1
        self._bytes += len(data)
        self._patience.gain(_SLOWEST * len(data) / self._bytes_per_second)
        self.service.metrics.audio_seconds.labels(self.kind).inc(len(data) / self._bytes_per_second)
        most = self._limits.stream_seconds
        if self._bytes / self._bytes_per_second > most:
            raise ServiceError(413, f"a stream has at most {most:g} s of audio", kind="InputError")
        return data

    async def answer(self, kind: str, table: dict[str, Any]) -> None:
        """Send the state of a claim, as far as the caller may see it."""
        await self.send(kind, shown(table, scores=SCORES in self.caller.scopes))

    async def send(self, kind: str, table: dict[str, Any]) -> None:
        """Send one message; raises WebSocketDisconnect when the peer has gone or does not read."""
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                await self._socket.send_text(text_of({**table, "type": kind}))
        except _GONE:
            raise WebSocketDisconnect from None

    async def close(self, error: ServiceError | None) -> None:
        """Close, with the problem if there is one."""
        if WebSocketState.DISCONNECTED in (self._socket.application_state, self._socket.client_state):
            return
        with suppress(*_GONE):
            if error is not None:
                await self.send("problem", {**problem(error), "kind": error.kind})
            if error is not None and error.kind == _FLOOD:
                return  # uvicorn would go on parsing the flood until the peer replies to a close frame
            async with asyncio.timeout(self._limits.idle_seconds):
                await self._socket.close(1000 if error is None else _CODES.get(error.status, 1008))


Handler = Callable[[Connection, Any], Awaitable[None]]


async def serve_stream(socket: WebSocket, service: Service, kind: str, hello: type[Hello], handle: Handler) -> None:
    """Accept ``socket``, read its hello and ``handle`` it until it ends; ``kind`` is the scope, too."""
    await socket.accept()
    connection = Connection(socket, service, kind)
    how, error, first, started = "done", None, None, time.perf_counter()
    try:
        first = await connection.hello(hello)
        with service.stream(kind, connection.caller), service.room.of(connection.caller) as room:
            connection.room = room
            await handle(connection, first)
    except WebSocketDisconnect:
        how = "gone"
    except TimeoutError:
        error = ServiceError(408, "nothing came for too long; the stream is closed", kind="TimeoutError")
    except VoiceclaimError as failure:
        error = service_error(failure, service.paths)
    except (OSError, MemoryError) as failure:
        error = system_error(failure)
    except Exception:
        error = fault()
        raise
    finally:
        how = how if error is None else error.kind
        service.metrics.streams_ended.labels(kind, how).inc()
        level = logging.ERROR if error is not None and error.status == 500 else logging.INFO
        log_event("stream", level=level, kind=kind, how=how, seconds=time.perf_counter() - started)
        if first is None:
            await asyncio.sleep(_REFUSAL_SECONDS)
        await connection.close(error)


# Verification


def check_rules(caller: Caller, *chosen: object) -> None:
    """Raise ServiceError for a system or a rule of decision that is ``chosen`` by a caller who may not choose."""
    if RULES not in caller.scopes and any(each is not None for each in chosen):
        raise ServiceError(
            403, "the token does not allow a choice of system or early decisions: it needs rules", kind="Forbidden"
        )


async def verify(connection: Connection, hello: VerifyHello) -> None:
    """Verify live audio against one claim, with an update for the messages that came together."""
    service, caller = connection.service, connection.caller
    check_rules(caller, hello.system, hello.early)
    try:
        verifier = await service.verifier(hello.claim, hello.system, hello.sequential_test)
    except VoiceclaimError as error:
        await service.record(hello.claim, None, error)
        raise
    live = AudioClaim(hello.claim, hello.system, hello.pcm, hello.sequential_test)
    made = partial(service.verifier, hello.claim, hello.system, hello.sequential_test)
    async with service.attempt(caller, verifier) as attempt, service.scorers.claim(caller, made, live) as claim:
        terms = as_json(claim.verifier.terms)
        await connection.answer("ready", {**terms, "rate": hello.rate, "delay_ms": claim.delay_ms})
        try:
            await _score(connection, claim.push)
        except BaseException as error:
            await _close(service, claim, attempt, error)
            raise
        final = await _close(service, claim, attempt, None)
    await connection.answer("final", {**terms, **final, "chunks": connection.chunks})


async def _score(connection: Connection, push: Callable[[bytes], Awaitable[dict[str, Any]]]) -> None:
    """Push audio until the caller ends it."""
    service, ended = connection.service, False
    while not ended:
        audio: list[bytes] = []
        for message in await connection.receive():
            if isinstance(message, bytes):
                audio.append(connection.count(message))
            elif read_command(message) == "end":
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
            await connection.answer("update", {**table, "chunks": connection.chunks})
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
    service: Service, caller: Caller, claim: str, system: str | None, path: Path
) -> tuple[Verifier, Update]:
    """Decode a file in a process of its own, and verify it; cancelled, that process ends."""
    async with _decoded(service, caller, path) as (rate, audio):
        made = partial(service.verifier, claim, system)
        async with service.file_scorers.claim(caller, made, AudioClaim(claim, system, PcmFormat(rate))) as scored:
            async for samples in audio:
                await scored.feed(samples)
            update, _ = await scored.close()
    await service.run("disk", service.check_enrolled, scored.verifier)
    return scored.verifier, update


async def identify_file(service: Service, caller: Caller, identifier: Identifier, path: Path) -> Identification:
    """Find who speaks in a file, decoded as ``verify_file`` does; raises StreamClosedError for somebody removed."""
    async with _decoded(service, caller, path) as (rate, audio):
        stream = await service.run("disk", identifier.stream, rate)
        async for samples in audio:
            await service.score(caller, stream.push, samples)
    return await _identified(service, caller, stream)


async def _identified(service: Service, caller: Caller, stream: IdentificationStream) -> Identification:
    """Close the stream, and count its outcome; raises StreamClosedError for somebody removed."""
    found = await service.score(caller, stream.close)
    await service.run("disk", service.check_found, found)
    service.metrics.identifications.labels(str(found.decision)).inc()
    await service.run("disk", service.log_identification, stream.identifier, found)
    return found


async def identify(connection: Connection, hello: Hello) -> None:
    """Find who speaks in live audio, with an update for the messages that came together."""
    service, caller = connection.service, connection.caller
    identifier = await service.identifier()
    stream = await service.run("disk", identifier.stream, hello.rate)
    decoder = PcmDecoder(hello.pcm, where="the stream")
    await connection.send("ready", {"rate": hello.rate, "system": identifier.system})

    def push(data: bytes) -> dict[str, Any]:
        found = stream.push(decoder.push(data))
        service.check_found(found)
        return found.as_json()

    await _score(connection, partial(service.score, caller, push))
    found = await _identified(service, caller, stream)
    await connection.send("final", {**found.as_json(), "chunks": connection.chunks})


@asynccontextmanager
async def _decoded(service: Service, caller: Caller, path: Path) -> AsyncIterator[tuple[int, AsyncIterator[Samples]]]:
    """Decode a file, and give its rate and its samples (n,) piece by piece."""
    async with service.decoders.conversation(caller, decode, path, service.settings.limits.audio) as (_, messages):
        begins = await anext(messages)
        yield begins["rate"], (message async for message in messages if isinstance(message, np.ndarray))


# Enrollment


async def enroll(connection: Connection, hello: EnrollHello) -> None:
    """Record utterances until the caller ends them, then enroll the speaker."""
    service = connection.service
    name, model = await service.check_new(connection.caller, hello.name)
    folder = await service.run("disk", service.spool.private_folder)
    utterances = await service.run("disk", UtteranceFiles, service.settings, folder, model, hello.pcm)
    try:
        await connection.send("ready", {"name": name, "rate": hello.rate, **utterances.needs()})
        await _record(connection, utterances)
        await _train(connection, name, utterances)
    finally:
        await service.run("disk", utterances.discard)


async def _record(connection: Connection, utterances: UtteranceFiles) -> None:
    service, caller, size = connection.service, connection.caller, connection.piece_bytes
    while True:
        for message in await connection.receive():
            if isinstance(message, bytes):
                connection.room.take(len(message))
                data = connection.count(message)
                for at in range(0, max(1, len(data)), size):
                    await service.score(caller, utterances.push, data[at : at + size])
            elif read_command(message) == "utterance":
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
    try:
        summary = training.result()
    except ServiceError as error:
        service.metrics.enrollments.labels(error.kind).inc()
        raise
    service.metrics.enrollments.labels("enrolled").inc()
    await connection.send("enrolled", summary)
