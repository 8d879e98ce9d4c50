"""Attacks that delay other callers, or use up the space for uploads."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from functools import partial

import httpx
import psutil
from attack_target import ADMIN, ENROLLS, HONEST, HOSTILE, Result, Target, long_speech, voice
from packed_flac import packed_flac
from websockets.exceptions import ConnectionClosed

LONG = partial(long_speech, 595, format="OGG", subtype="OPUS")
LARGE = partial(long_speech, 5 * 2**20 / 16_000, format="WAV", subtype="PCM_16")


def prepare() -> None:
    """Make the audio of the attacks beforehand: it takes six seconds of a core, which the service would lack later."""
    LONG()
    LARGE()


async def unusual_rates(target: Target) -> Result:
    """Finding 1: four callers say hello with a new sampling rate each time, for ten seconds."""
    until, statuses = time.monotonic() + 10, []

    async def hellos(rate: int) -> None:
        while time.monotonic() < until:
            async with AsyncExitStack() as stack:
                _, answer = await target.stream(stack, HOSTILE, claim="anna", rate=rate)
                statuses.append(answer.get("status"))
            rate += 4

    await asyncio.gather(*(hellos(2000 + number) for number in range(4)))
    return {"hellos": len(statuses), "refused": statuses.count(422), "held": set(statuses) == {422}}


async def packed_uploads(target: Target) -> Result:
    """Finding 2: two uploads of packed silence, abandoned after 1.5 s, then five small ones; an honest file between."""
    waits, statuses = [], set()
    for count, seconds, size in ((2, 599.0, 758_626), (5, 30.0, 43_000)):
        packed = packed_flac(seconds, size)

        async def leave(packed: bytes = packed) -> None:
            with suppress(httpx.TimeoutException):
                await target.verify(HOSTILE, packed, claim="anna", seconds=1.5)

        hostile = [asyncio.create_task(leave()) for _ in range(count)]
        await asyncio.sleep(1.0)
        began = time.monotonic()
        statuses.add((await target.verify(HONEST, voice("anna"), claim="anna")).status_code)
        waits.append(round(time.monotonic() - began, 2))
        await asyncio.gather(*hostile)
    return {"honest_file_seconds": waits, "held": statuses == {200} and max(waits) < 5}


async def drips(target: Target) -> Result:
    """Finding 4: 128 streams of one token that send one sample each 15 s."""
    honest = []
    async with AsyncExitStack() as stack:
        opened = [await target.stream(stack, HOSTILE, claim="anna") for _ in range(128)]
        for at in (0, 15, 30, 45):
            for hello in ({"claim": "bruno"}, {"name": f"newcomer {at}"}):
                async with AsyncExitStack() as honest_stack:
                    _, answer = await target.stream(honest_stack, ADMIN, **hello)
                    honest.append(answer.get("status", 200))
            for socket, _ in opened:
                with suppress(ConnectionClosed):
                    await socket.send(b"\0\0")
            await asyncio.sleep(15)
        left = sum(socket.close_code is None for socket, _ in opened)
    refused = sum(answer["type"] == "problem" for _, answer in opened)
    return {"refused": refused, "open_after_60_s": left, "honest": honest, "held": left == 0 and set(honest) == {200}}


async def long_enrollment(target: Target) -> Result:
    """Finding 5: two hours of audio to enroll at once, then as much as is allowed, with a removal queued behind."""
    files = [("files", LONG())]
    async with target.client(ENROLLS) as client, target.client(ADMIN) as admin:
        much = await client.post("/speakers/much", files=files * 12)
        allowed = asyncio.create_task(client.post("/speakers/long", files=files * 3))
        await asyncio.sleep(12)
        began, was_training = time.monotonic(), not allowed.done()
        removed = await admin.delete("/speakers/karla")
        seconds = time.monotonic() - began
        memory = max(child.memory_info().rss for child in psutil.Process(target.process.pid).children()) / 2**20
        answer = await allowed
    return {
        "two_hours": much.status_code,
        "removal": removed.status_code,
        "removal_seconds": round(seconds, 1),
        "was_training": was_training,
        "largest_process_mib": round(memory),
        "half_an_hour": answer.status_code,
        "held": much.status_code == 413 and removed.status_code == 200 and seconds < 60,
    }


_BODY = (
    "POST /verify HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 64000000\r\n"
    "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\nContent-Disposition: form-data; name=file;"
    ' filename="a"\r\n\r\n'
)


async def pinned_spool(target: Target) -> Result:
    """Finding 11: three callers send 60 MiB each and do not finish; an honest upload of 5 MiB."""
    host, port = target.url.removeprefix("http://").split(":")
    began = time.monotonic()

    async def pin() -> float:
        _, writer = await asyncio.open_connection(host, int(port))
        with suppress(OSError):
            writer.write(_BODY.format(HOSTILE).encode())
            for _ in range(60):
                writer.write(bytes(2**20))
                await writer.drain()
            while time.monotonic() < began + 120:
                await asyncio.sleep(12)
                writer.write(b"\0")
                await writer.drain()
        writer.transport.abort()
        return time.monotonic() - began

    pins = [asyncio.create_task(pin()) for _ in range(3)]
    await asyncio.sleep(5)
    answer = await target.verify(HONEST, LARGE(), claim="anna")
    ends = await asyncio.gather(*pins)
    held = answer.status_code == 200 and max(ends) < 110
    return {"honest_upload": answer.status_code, "held_seconds": [round(end) for end in ends], "held": held}


ATTACKS = (unusual_rates, packed_uploads, drips, long_enrollment, pinned_spool)
