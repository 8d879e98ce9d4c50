"""Connections of the service, by uvicorn's protocols: read a little at a time, and ended if they flood the service.

One caller's bytes must not keep the event loop from the others, and everything that is read at once is parsed at once.
Parsing takes time per frame or chunk, so a connection with more tiny ones than any honest caller sends is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import h11
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode

from pipeline.errors import ServiceError
from pipeline.server.messages import PROBLEM_TYPE, problem

_FREE_PIECES, _MEAN_BYTES = 1000, 32  # frames or chunks that may come beyond one for each _MEAN_BYTES
_MOST_AFTER_ANSWER = 2**20
_READ_AHEAD = 2**16  # bytes of messages that may wait for the application: two seconds of 16-bit audio at 16 kHz
_PROBLEM = json.dumps(problem(ServiceError(400, "this is not a valid HTTP/1.1 request", kind="InputError"))).encode()
_REFUSAL = h11.Response(
    status_code=400,
    headers=[("content-type", PROBLEM_TYPE), ("content-length", str(len(_PROBLEM))), ("connection", "close")],
    reason="Bad Request",
)


def _refused(connection: h11.Connection) -> bytes:
    """Return the answer of ``connection`` to an invalid request."""
    return b"".join(connection.send(event) or b"" for event in (_REFUSAL, h11.Data(data=_PROBLEM), h11.EndOfMessage()))


class _SlicedProtocol(asyncio.BufferedProtocol):
    """A connection that is read a little at a time, by asyncio's loop and also by TLS."""

    transport: asyncio.Transport
    slice_bytes = 2**12  # all that is read at once is parsed at once, and nobody else is answered meanwhile

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        """See asyncio.BufferedProtocol."""
        self._slice = bytearray(self.slice_bytes)
        return self._slice

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        if self.transport.is_closing():
            return
        try:
            self.data_received(bytes(self._slice[:nbytes]))
        except (h11.LocalProtocolError, InvalidState):  # uvicorn refuses what it has answered or closed already
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        raise NotImplementedError


class _Chunks(h11.Connection):
    """HTTP that counts the chunks of bodies, and parses no more of them when there are too many."""

    spare: float = _FREE_PIECES

    def next_event(self) -> Any:
        """See h11.Connection."""
        if self.spare < 0:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Data):
            self.spare += len(event.data) / _MEAN_BYTES - 1
        return event


class HttpProtocol(H11Protocol, _SlicedProtocol):
    """HTTP by h11, which bounds the head of a request, and reads no request before the last one is answered."""

    slice_bytes = 2**14  # uploads of less would cost several times as much

    def __init__(self, config: uvicorn.Config, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.conn = self._chunks = _Chunks(h11.SERVER, config.h11_max_incomplete_event_size or self.slice_bytes)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol. uvicorn limits requests alone, and neither silent connections nor WebSockets."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        if self._chunks.spare < 0:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse an invalid request with a problem in JSON, as in every refusal."""
        self.transport.write(_refused(self.conn))
        self.transport.close()


class LiveProtocol(WebSocketsSansIOProtocol, _SlicedProtocol):
    """A WebSocket by uvicorn and websockets, without tiny frames and without pongs that nobody reads.

    Messages are read ahead, where uvicorn reads one at a time: those that wait are scored together, which takes less
    time than one after the other, and the peer's pongs are not held up behind them. A peer that has sent no hello yet,
    or was refused, is given little memory.
    """

    _spare: float = _FREE_PIECES
    _unread = 0  # bytes of messages that wait
    _greeted = False  # a first message is complete

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. uvicorn does not answer a request that is not for a WebSocket."""
        self._spare += len(data) / _MEAN_BYTES
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()) or _refused(h11.Connection(h11.SERVER)))
            self.transport.close()
        self._end_what_is_long()

    def handle_events(self) -> None:
        """Handle all frames that have been read, or close."""
        self._spare -= len(self.conn.events)
        if self._spare < 0:
            self.transport.close()
        else:
            super().handle_events()

    def send_receive_event_to_app(self) -> None:
        """Hand a message to the application, and stop reading where too much waits."""
        self._greeted = True
        self._unread += sum(map(len, self.frames))
        read_on = self._unread < _READ_AHEAD
        self.read_paused |= read_on  # uvicorn stops where it has not stopped yet
        super().send_receive_event_to_app()
        self.read_paused &= not read_on

    async def receive(self) -> Any:
        """Return the next message; reading resumes when no more messages wait."""
        event = await super().receive()
        if self.queue.empty():
            self._unread = 0
        return event

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        await super().send(message)
        self.handshake_complete |= self.close_sent  # else uvicorn logs that a refused handshake is incomplete
        self._end_what_is_long()

    def _end_what_is_long(self) -> None:
        """End the connection if a long message is unfinished before the hello, or after a close."""
        if self._greeted and not self.close_sent:
            return
        if len(self.conn.reader.buffer) + sum(map(len, self.frames)) > _READ_AHEAD:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def handle_parser_exception(self) -> None:
        """Close after an invalid frame; before the handshake is answered, without a frame."""
        if self.conn.close_sent is None:  # which uvicorn asserts
            self.transport.close()
        else:
            super().handle_parser_exception()

    def handle_ping(self) -> None:
        """Answer, or drop the pong where the peer does not read (RFC 6455, 5.5.3, asks for the last one alone)."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()


def end_unread(app: ASGIApp, seconds: float) -> ASGIApp:
    """Wrap ``app`` so that the connection ends after an answer to a request whose body it has not read.

    A little more of that body is read, within ``seconds``: after a reset, a caller still sending would lose the answer.
    """

    async def ending(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        complete = "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"

        async def noted() -> Message:
            nonlocal complete
            message = await receive()
            complete = not message.get("more_body", False)
            return message

        async def drain() -> None:
            left = _MOST_AFTER_ANSWER
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while not complete and left > 0:
                        left -= len((await noted()).get("body", b""))

        async def answer(message: Message) -> None:
            if not complete and message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            elif not complete and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await drain()
                message = {"type": "http.response.body"}
            await send(message)

        await app(scope, noted, answer)

    return ending
