"""Bounds on audio and bodies, and messages received before the end of a stream."""

from __future__ import annotations

import asyncio
from contextlib import closing
from itertools import repeat

import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect

from pipeline.server.callers import Shares
from pipeline.server.connections import Connection
from pipeline.server.limits import Limits
from pipeline.server.security import limit_bodies
from pipeline.server.service import Service
from pipeline.server.settings import Settings


def test_as_much_audio_as_is_allowed_fits_in_two_channels_of_a_file_and_one_of_an_enrollment():
    for bounds in (Limits(file_seconds=600.0, enroll_seconds=1800.0), Limits(file_seconds=600.0, enroll_seconds=60.0)):
        assert bounds.audio.samples == max(600 * 48_000 * 2, int(bounds.enroll_seconds) * 48_000)


def test_a_body_has_so_many_seconds_and_its_sender_any_number_for_the_answer():
    async def read(limits: Limits, messages) -> None:
        async def receive():
            seconds, message = next(messages)
            await asyncio.sleep(seconds)
            return message

        async def app(_scope, receive, _send):
            while (await receive())["type"] != "http.disconnect":
                pass

        bounded = limit_bodies(app, limits, None, Shares("bytes", 1000, 1000))
        await bounded({"type": "http", "headers": [], "client": None}, receive, None)

    part, last = ({"type": "http.request", "body": b"x", "more_body": more} for more in (True, False))
    with pytest.raises(TimeoutError):
        asyncio.run(read(Limits(body_seconds=0.3), repeat((0.01, part))))
    asyncio.run(read(Limits(body_seconds=0.3, idle_seconds=0.3), iter([(0, last), (0.5, {"type": "http.disconnect"})])))


def test_messages_that_came_with_the_end_of_a_stream_are_received_before_it(store):
    events = [
        {"type": "websocket.connect"},
        *({"type": "websocket.receive", "bytes": data, "text": None} for data in (b"one", b"two")),
        {"type": "websocket.disconnect", "code": 1001},
    ]

    async def receive():
        return events.pop(0)

    async def send(_message) -> None:
        pass

    async def scenario(service: Service) -> None:
        socket = WebSocket({"type": "websocket"}, receive, send)
        await socket.accept()
        connection = Connection(socket, service, "verify")
        assert await connection.receive() == [b"one", b"two"]
        for _ in range(2):
            with pytest.raises(WebSocketDisconnect):
                await connection.receive()

    with closing(Service(Settings(store), threads=1)) as service:
        asyncio.run(scenario(service))
