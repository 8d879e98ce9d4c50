"""Honest callers of a service, in a process of their own: streams in real time, and /healthz ten times a second."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from pipeline.audio.files import open_audio

CHUNK_SECONDS = 0.2
STREAM_SECONDS = 20.0
FORGIVEN_SECONDS = 0.5  # at the beginning of a stream, while the machines of its claim are read


class Sample(NamedTuple):
    """An observation of one caller ``at`` a time (monotonic): a delay in seconds, or a failure in words."""

    at: float
    kind: str
    seconds: float
    failure: str = ""


class Honest:
    """Streams with one ``token``, until ``end``; each claims to be the speaker whose recordings it sends."""

    def __init__(self, url: str, token: str, folder: Path, names: Sequence[str], streams: int) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_call, args=(theirs, url, token, folder, names, streams), daemon=True)
        self._process.start()
        self._pipe.recv()  # every stream is ready

    def end(self) -> list[Sample]:
        """End the streams, and return their observations."""
        self._pipe.send(None)
        samples: list[Sample] = self._pipe.recv()
        self._process.join()
        return samples


def seen(samples: list[Sample], since: float, until: float) -> dict[str, Any]:
    """Return percentiles, in milliseconds, of the delays between two times."""
    table: dict[str, Any] = {}
    for kind in ("update", "healthz"):
        delays = np.array([s.seconds for s in samples if s.kind == kind and since <= s.at < until and not s.failure])
        if len(delays):
            table[f"{kind}_p50_ms"], table[f"{kind}_p95_ms"] = np.round(1000 * np.percentile(delays, (50, 95)), 1)
            table[f"{kind}_max_ms"] = round(1000 * float(delays.max()), 1)
    table["failures"] = sorted({s.failure for s in samples if s.failure and since <= s.at < until})
    return table


def recordings_of(folder: Path) -> tuple[dict[str, np.ndarray], int]:
    """Return the recordings of each speaker, joined, as 16-bit samples, and their rate."""
    voices, rate = {}, 0
    for person in sorted(path for path in folder.iterdir() if path.is_dir()):
        parts = []
        for path in sorted(person.iterdir()):
            with open_audio(path) as audio:
                parts += list(audio.blocks())
                rate = audio.rate
        voices[person.name] = np.round(32767 * np.clip(np.concatenate(parts), -1, 1)).astype("<i2")
    return voices, rate


def _call(pipe: Any, url: str, token: str, folder: Path, names: Sequence[str], streams: int) -> None:
    asyncio.run(_call_all(pipe, url, token, folder, names, streams))


async def _call_all(pipe: Any, url: str, token: str, folder: Path, names: Sequence[str], streams: int) -> None:
    voices, rate = recordings_of(folder)
    samples: list[Sample] = []
    begun = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(_probe(url, samples))]
    for number in range(streams):
        name = names[number % len(names)]
        speech = np.roll(voices[name], 1000 * number)
        tasks.append(asyncio.create_task(_stream_on(url, token, name, speech, rate, samples, begun)))
        await asyncio.sleep(0.02)
    for _ in range(streams):
        await begun.acquire()
    pipe.send(None)
    await asyncio.to_thread(pipe.recv)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    pipe.send(samples)


async def _probe(url: str, samples: list[Sample]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        while True:
            began, failure = time.monotonic(), ""
            try:
                answer = await client.get("/healthz")
                failure = "" if answer.status_code == 200 else f"/healthz: {answer.status_code}"
            except httpx.HTTPError as error:
                failure = f"/healthz: {type(error).__name__}"
            samples.append(Sample(began, "healthz", time.monotonic() - began, failure))
            await asyncio.sleep(0.1)


async def _stream_on(
    url: str, token: str, name: str, speech: np.ndarray, rate: int, samples: list[Sample], begun: asyncio.Semaphore
) -> None:
    """Open one stream after the other."""
    while True:
        try:
            async with connect(f"ws{url.removeprefix('http')}/verify", compression=None, open_timeout=60) as socket:
                await socket.send(json.dumps({"claim": name, "rate": rate, "format": "pcm_s16le", "token": token}))
                answer = json.loads(await socket.recv())
                begun.release()
                if answer["type"] != "ready":
                    samples.append(Sample(time.monotonic(), "update", 0.0, f"refused: {answer['detail']}"))
                    await asyncio.sleep(1)
                    continue
                waiting: deque[tuple[int, float]] = deque()
                receiving = asyncio.create_task(_receive(socket, waiting, samples))
                await _send(socket, speech, rate, waiting)
                await asyncio.wait_for(receiving, 60)
        except (OSError, TimeoutError, ConnectionClosed) as error:
            samples.append(Sample(time.monotonic(), "update", 0.0, f"stream: {type(error).__name__}"))


async def _send(socket: ClientConnection, speech: np.ndarray, rate: int, waiting: deque[tuple[int, float]]) -> None:
    size, began = round(rate * CHUNK_SECONDS), time.monotonic()
    for number in range(round(STREAM_SECONDS / CHUNK_SECONDS)):
        await asyncio.sleep(began + (number + 1) * CHUNK_SECONDS - time.monotonic())
        waiting.append((number + 1, time.monotonic()))
        await socket.send(np.take(speech, range(number * size, (number + 1) * size), mode="wrap").tobytes())
    await socket.send(json.dumps({"type": "end"}))


async def _receive(socket: ClientConnection, waiting: deque[tuple[int, float]], samples: list[Sample]) -> None:
    began = time.monotonic()
    with suppress(asyncio.CancelledError, ConnectionClosed):
        async for text in socket:
            now, message = time.monotonic(), json.loads(text)
            while waiting and waiting[0][0] <= message.get("chunks", 0):
                sent = waiting.popleft()[1]
                if sent > began + FORGIVEN_SECONDS:
                    samples.append(Sample(sent, "update", now - sent))
            if message["type"] == "problem":
                samples.append(Sample(now, "update", 0.0, f"problem: {message['detail']}"))
            if message["type"] in ("final", "problem"):
                return
