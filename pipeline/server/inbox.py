"""Messages of one WebSocket, read ahead only as far as they can be used: then the sender waits (TCP flow control)."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket

from pipeline.errors import ServiceError
from pipeline.server.settings import Limits

Message = str | bytes
_MESSAGES_A_SECOND, _BURST = 500, 500


class Gone(Exception):  # noqa: N818  # an ordinary end of a stream, not a fault
    """The peer has gone away."""


class Inbox:
    """Messages from ``socket``, which has been accepted; ``close`` when done.

    ``ending`` is set when the service shuts down.
    """

    def __init__(self, socket: WebSocket, limits: Limits, ending: asyncio.Event) -> None:
        self._socket = socket
        self._limits = limits
        self._ending = ending
        self._messages: list[Message] = []
        self._bytes = 0
        self._stopped: Exception | None = None
        self._allowed, self._since = float(_BURST), time.monotonic()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    async def first(self) -> str:
        """The hello; raises ServiceError for anything else, or for none in time."""
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                while not self._messages:
                    await self._next()
        except TimeoutError:
            raise ServiceError(408, "no hello came in time", kind="TimeoutError") from None
        hello = self._messages.pop(0)
        if isinstance(hello, bytes):
            raise ServiceError(422, "the first message must be a hello in JSON, as text", kind="InputError")
        return hello

    async def take(self) -> list[Message]:
        """Every message that has come, at least one; raises Gone, or ServiceError when the stream must end."""
        while not self._messages:
            await self._next()
        taken, self._messages, self._bytes = self._messages, [], 0
        self._room.set()
        return taken

    def check(self) -> None:
        """Raise Gone when the peer is known to have gone away."""
        if isinstance(self._stopped, Gone):
            raise self._stopped

    async def close(self) -> None:
        """Read no more."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _next(self) -> None:
        if self._stopped is not None:
            raise self._stopped
        self._news.clear()
        await self._news.wait()

    async def _read(self) -> None:
        while self._stopped is None:
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    event = await self._socket.receive()
            except TimeoutError:
                self._stop(ServiceError(408, "nothing came for too long; the stream is closed", kind="TimeoutError"))
                return
            if event["type"] == "websocket.disconnect":
                self._stop(Gone())
                return
            await self._put(event)
            await self._slow_down()

    async def _slow_down(self) -> None:
        """Let the sender wait who sends more messages than a stream can want; TCP tells them."""
        now = time.monotonic()
        self._allowed = min(_BURST, self._allowed + (now - self._since) * _MESSAGES_A_SECOND) - 1.0
        self._since = now
        if self._allowed < 0:
            await asyncio.sleep(-self._allowed / _MESSAGES_A_SECOND)

    async def _put(self, event: Any) -> None:
        message: Message = event["text"] if event.get("text") is not None else event["bytes"]
        self._messages.append(message)
        self._bytes += len(message) + 64  # empty messages take room, too
        self._news.set()
        while self._bytes > self._limits.queued_bytes:
            self._room.clear()
            await self._room.wait()

    async def _watch(self) -> None:
        await self._ending.wait()
        self._stop(ServiceError(503, "the service is shutting down; try again later"))

    def _stop(self, why: Exception) -> None:
        if self._stopped is None:
            self._stopped = why
        self._news.set()
