"""WebSockets: their messages, limits on their size and speed, and how each connection ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from pipeline.errors import AudioError, ServiceError, VoiceclaimError
from pipeline.server.callers import Caller, Patience, Taken
from pipeline.server.logs import log_event
from pipeline.server.messages import Hello, fault, problem, read_command, read_hello, service_error, shown, text_of
from pipeline.server.security import SCORES, allowed, caller_of, token_in
from pipeline.server.service import Service

_CODES = {413: 1009, 422: 1007, 500: 1011, 503: 1013, 507: 1013}  # RFC 6455, and IANA's registry of codes
_FREE_MESSAGES, _MEAN_BYTES = 500, 64  # parsing costs time by the message, not by the byte
_FLOOD = "Flood"
_REFUSAL_SECONDS = 0.25  # until a bad hello is answered, so that nobody sends many of them
_SLOWEST = 4.0  # seconds that a second of audio may take to come
_PIECE_SECONDS = 1.0  # of audio that is scored in one turn
_GONE = (TimeoutError, OSError, RuntimeError, WebSocketDisconnect)


class Connection:
    """One accepted WebSocket of a ``kind``, which is also the name of the scope that it needs.

    Little is read ahead: while messages are processed, further ones are collected up to a bound, and then TCP holds up
    the sender. ``caller`` and then ``room``, what the caller has taken of the room for recordings, are set after the
    hello.
    """

    caller: Caller
    room: Taken

    def __init__(self, socket: WebSocket, service: Service, kind: str) -> None:
        self.service = service
        self.kind = kind
        self.chunks = 0
        self._socket = socket
        self._limits = service.settings.limits
        self._messages = self._received = 0
        self._bytes = 0
        self._bytes_per_second = self._frame_bytes = 1
        self._began, self._patience = time.monotonic(), Patience(self._limits.idle_seconds)

    async def hello(self, kind: type[Hello]) -> Any:
        """Return the first message, of a ``caller`` whose token has the scope; raises ServiceError."""
        async with asyncio.timeout(self._limits.hello_seconds):
            hello = read_hello(await self._next(), kind)
        token, client = hello.token or token_in(self._socket.headers), self._socket.scope.get("client")
        self.caller = allowed(caller_of(self.service.settings.tokens, token, client), token, self.kind)
        self._frame_bytes = hello.pcm.frame_bytes
        self._bytes_per_second = self._frame_bytes * hello.rate
        return hello

    @property
    def piece_bytes(self) -> int:
        """Return the size of a piece of audio."""
        return round(_PIECE_SECONDS * self._bytes_per_second)

    async def receive(self) -> list[str | bytes]:
        """Wait for the next message, and return it with any others that have arrived.

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

    def command(self, message: str) -> str:
        """Return the command in a text message; raises ServiceError, or AudioError after a part of a sample."""
        command = read_command(message)
        if rest := self._bytes % self._frame_bytes:
            raise AudioError(
                f"the stream: audio ends with a whole sample of {self._frame_bytes} bytes, got {rest} of its bytes;"
                " bytes lost on the way, or another format?"
            )
        return command

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
    except (VoiceclaimError, OSError, MemoryError) as failure:
        error = service_error(failure, service.aliases)
    except Exception as failure:
        error = fault(failure)
    finally:
        how = how if error is None else error.kind
        service.metrics.streams_ended.labels(kind, how).inc()
        level = logging.ERROR if error is not None and error.status == 500 else logging.INFO
        log_event("stream", level=level, kind=kind, how=how, seconds=time.perf_counter() - started)
        if first is None:
            await asyncio.sleep(_REFUSAL_SECONDS)
        await connection.close(error)
