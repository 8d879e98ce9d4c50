"""Connections that the server gives up: silent ones, those whose peer does not read, and requests without an end.

Uvicorn takes in a request's head however long it is and however long it takes, and waits for ever for a closed
connection's last bytes to be taken.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from pipeline.server.settings import Limits

_SWEEP_SECONDS = 0.5
_MOST_PINGS = 1000  # of one connection: hours of them from a peer that wants to know whether we are there
_MOST_HEAD = 2**18  # bytes; more than one read gives, so that a whole short request never counts


class BoundedHeads(HttpToolsProtocol):
    """Uvicorn's HTTP, which gives up a request whose head is longer than any of ours."""

    _in_head = True
    _head_bytes = 0

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._in_head = False
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
    """Uvicorn's WebSockets, which take nothing in while their peer does not read, and only so many pings.

    Else pings would keep the event loop busy, and their answers, which pile up, fill the memory.
    """

    _pings = 0

    def handle_ping(self) -> None:
        """See uvicorn."""
        self._pings += 1
        if self._pings > _MOST_PINGS:
            self.transport.abort()
        elif not self.transport.is_closing():
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
