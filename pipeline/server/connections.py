"""Connections that the server gives up: silent ones, those whose peer does not read, and floods of any kind.

Uvicorn takes in a request's head however long it is and however long it takes, as many requests ahead as come and
frames of next to nothing as fast as they come, and waits for ever for a closed connection's last bytes to be taken.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from pipeline.server.settings import Limits

_SWEEP_SECONDS = 0.5
_MOST_AHEAD = 16  # requests of one connection before the first is answered
_SLICE = 4096  # bytes that are taken in before it is looked whether they are a flood
_FRAMES_FREE, _BYTES_A_FRAME = 500, 64  # so many frames of any size, and then on average this much in each
_MOST_PINGS = 1000  # of one connection: hours of them from a peer that wants to know whether we are there
_MOST_HEAD = 2**18  # bytes; more than one read gives, so that a whole short request never counts


class BoundedHeads(HttpToolsProtocol):
    """Uvicorn's HTTP, which gives up a request whose head is longer than any of ours, or who asks far ahead."""

    _in_head = True
    _head_bytes = 0

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._in_head = False
        if len(self.pipeline) >= _MOST_AHEAD:
            self.transport.abort()
            self.cycle.disconnected = True
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """See httptools."""
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD:
                self.transport.abort()


class PoliteWebSockets(WebSocketsSansIOProtocol):
    """Uvicorn's WebSockets, which take nothing in while their peer does not read, and give up a flood of frames.

    Frames cost by their number, not their size: those of a sample each would keep the event loop busy, and the answers
    to pings, which pile up, fill the memory.
    """

    _bytes = _frames = _pings = 0

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        for start in range(0, len(data), _SLICE):
            part = data[start : start + _SLICE]
            self._bytes += len(part)
            super().data_received(part)
            if self._frames > _FRAMES_FREE + self._bytes // _BYTES_A_FRAME or self._pings > _MOST_PINGS:
                self.transport.abort()
                return

    def handle_bytes(self, event: Frame) -> None:
        """See uvicorn."""
        self._frames += 1
        super().handle_bytes(event)

    def handle_text(self, event: Frame) -> None:
        """See uvicorn."""
        self._frames += 1
        super().handle_text(event)

    def handle_cont(self, event: Frame) -> None:
        """See uvicorn."""
        self._frames += 1
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """See uvicorn."""
        self._pings += 1
        super().handle_ping()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()


class Reaper:
    """Looks over a server's ``connections`` (uvicorn's protocols) twice a second and ends those that only wait."""

    def __init__(self, connections: set[Any], limits: Limits) -> None:
        self._connections = connections
        self._limits = limits
        self._waiting: WeakKeyDictionary[Any, tuple[Any, float]] = WeakKeyDictionary()
        self._closing: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep(asyncio.get_running_loop().time())

    def sweep(self, now: float) -> None:
        """End every connection that has been waiting for too long at the time ``now`` in seconds."""
        for connection in list(self._connections):
            if connection.transport.is_closing():
                if now - self._closing.setdefault(connection, now) > self._limits.idle_seconds:
                    connection.transport.abort()
            elif self._waits(connection):
                # Between two sweeps a whole request may have come and gone: then it is another one that is waited for.
                last = getattr(connection, "cycle", None)
                since = self._waiting.get(connection)
                if since is None or since[0] is not last:
                    self._waiting[connection] = (last, now)
                elif now - since[1] > self._limits.head_seconds:
                    connection.transport.abort()
            else:
                self._waiting.pop(connection, None)

    @staticmethod
    def _waits(connection: Any) -> bool:
        """Whether a request has yet to come."""
        if isinstance(connection, WebSocketsSansIOProtocol):
            return not connection.handshake_initiated
        cycle = connection.cycle
        return cycle is None or bool(cycle.response_complete)
