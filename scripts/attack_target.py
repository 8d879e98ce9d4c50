"""A service to attack, in a process of its own, and the requests and audio that its attackers send."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
from honest_callers import recordings_of
from websockets.asyncio.client import ClientConnection, connect

DEMO = Path(__file__).resolve().parents[1] / "data" / "demo"
HONEST, HOSTILE, ENROLLS, ADMIN = "h" * 20, "x" * 20, "e" * 20, "a" * 20
TOKENS = f"verify,scores {HONEST};verify {HOSTILE};enroll {ENROLLS};admin {ADMIN}"
Result = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A running service, its store, and a folder for what belongs to it."""

    url: str
    process: subprocess.Popen[str]
    store: Path
    folder: Path

    def client(self, token: str, seconds: float = 300.0) -> httpx.AsyncClient:
        """Return a client with a token."""
        return httpx.AsyncClient(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=seconds)

    async def verify(self, token: str, file: bytes, *, seconds: float = 300.0, **claim: str) -> httpx.Response:
        """Claim with a file."""
        async with self.client(token, seconds) as client:
            return await client.post("/verify", data=claim, files={"file": file})

    async def stream(self, stack: AsyncExitStack, token: str, **hello: Any) -> tuple[ClientConnection, Result]:
        """Open a stream, and return it with its first answer."""
        path = "/enroll" if "name" in hello else "/verify"
        url = f"ws{self.url.removeprefix('http')}{path}"
        socket = await stack.enter_async_context(connect(url, compression=None, open_timeout=60))
        await socket.send(json.dumps({"rate": 16_000, "format": "pcm_s16le", "token": token, **hello}))
        return socket, json.loads(await asyncio.wait_for(socket.recv(), 60))


async def last_of(socket: ClientConnection) -> Result:
    """Return the message that ends a stream."""
    while True:
        message: Result = json.loads(await asyncio.wait_for(socket.recv(), 60))
        if message["type"] in ("final", "problem"):
            return message


def voice(name: str, kind: str = "verify") -> bytes:
    """Return a recording of a demo voice, as a file."""
    return sorted((DEMO / kind / name).iterdir())[0].read_bytes()


@cache
def long_speech(seconds: float, **how: str) -> bytes:
    """Return speech of two demo voices, repeated, as a file of the ``format`` and ``subtype``; it is made only once."""
    voices, rate = recordings_of(DEMO / "enroll")
    speech = np.resize(np.concatenate([voices["anna"], voices["lars"]]), int(seconds * rate))
    file = io.BytesIO()
    soundfile.write(file, speech, rate, **how)
    return file.getvalue()
