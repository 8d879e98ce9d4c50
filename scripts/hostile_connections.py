#!/usr/bin/env python3
"""Hostile connections against the service, in a process of its own: whether it goes on answering, its store untouched.

    python scripts/hostile_connections.py --connections 1000 --json hostile.json

Voices of data/demo are enrolled (--store takes a copy of a store instead). Connections of every kind in ``KINDS`` come
mixed, many at a time, while an honest caller asks for /healthz. At the end the same file must have the same score,
every file of the store the same bytes, and the server as many open files as at the start.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import secrets
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from typing import Any

import httpx
from running_service import resident_mib, running_service

from pipeline.client import VoiceclaimClient
from pipeline.config import load_config
from pipeline.corpus import read_corpus
from pipeline.enrollment import enroll
from pipeline.store import SpeakerStore

ROOT = Path(__file__).resolve().parents[1]
AT_A_TIME = 200
PATIENCE_SECONDS = 40.0  # longer than the service waits for anybody
SETTLE_SECONDS = 60.0
RATE = 16_000
TEXT, BINARY, PING, CONTINUED = 1, 2, 9, 0


@dataclass
class Visit:
    """One hostile caller's connection."""

    host: str
    port: int
    token: str
    claim: str
    reader: Any = None
    writer: Any = None

    async def open(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=2**16)

    async def send(self, data: bytes) -> None:
        """Send, and wait until the system has taken it."""
        self.writer.write(data)
        await self.writer.drain()

    async def upgrade(self, path: str) -> None:
        """Become a WebSocket."""
        await self.open()
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        await self.send(
            f"GET {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        await self.reader.readuntil(b"\r\n\r\n")

    async def say(self, **fields: object) -> None:
        """Send a message in JSON."""
        await self.send(frame(TEXT, json.dumps(fields).encode()))

    async def begin(self, path: str) -> None:
        """An honest beginning."""
        await self.upgrade(path)
        who = {"claim": self.claim} if path == "/verify" else {"name": f"hostile {secrets.token_hex(4)}"}
        await self.say(**who, rate=RATE, format="pcm_s16le", token=self.token)
        await self.reader.read(2**12)

    async def until_closed(self) -> None:
        """Wait until the service ends the connection."""
        while await self.reader.read(2**16):
            pass


def frame(kind: int, payload: bytes, *, last: bool = True, length: int | None = None) -> bytes:
    """A masked frame that says it has ``length`` bytes."""
    size = len(payload) if length is None else length
    head = bytes([(0x80 if last else 0) | kind])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 2**16:
        head += bytes([0x80 | 126]) + struct.pack(">H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", size)
    return head + bytes(4) + payload


AUDIO = frame(BINARY, bytes(3200))


async def silence(visit: Visit) -> None:
    """Connect and say nothing."""
    await visit.open()
    await visit.until_closed()


async def slow_head(visit: Visit) -> None:
    """Send the head of a request a byte at a time."""
    await visit.open()
    for byte in b"GET /speakers HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200:
        await visit.send(bytes([byte]))
        await asyncio.sleep(0.2)


async def endless_head(visit: Visit) -> None:
    """Send a head of a request that never ends."""
    await visit.open()
    await visit.send(b"GET /speakers HTTP/1.1\r\nHost: localhost\r\n")
    for number in range(1000):
        await visit.send(b"X-%d: " % number + b"y" * 2**16 + b"\r\n")


async def far_ahead(visit: Visit) -> None:
    """Send thousands of requests at once, and read no answer."""
    await visit.open()
    for _ in range(100):
        await visit.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)


async def slow_body(visit: Visit) -> None:
    """Begin a body and stop."""
    await visit.open()
    head = f"POST /verify HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {visit.token}\r\n"
    await visit.send(f"{head}Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000\r\n\r\n--x".encode())
    await visit.until_closed()


async def endless_body(visit: Visit) -> None:
    """Send more than a request may have, in chunks."""
    await visit.open()
    head = f"POST /verify HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {visit.token}\r\n"
    await visit.send(
        f"{head}Content-Type: multipart/form-data; boundary=x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    for _ in range(24):
        await visit.send(b"10000\r\n" + bytes(2**16) + b"\r\n")


async def no_request(visit: Visit) -> None:
    """Send bytes that are no HTTP."""
    await visit.open()
    await visit.send(secrets.token_bytes(4096) + b"\r\n\r\n")
    await visit.until_closed()


async def wrong_hello(visit: Visit) -> None:
    """Send a hello that is none."""
    hellos = (
        frame(TEXT, b"{"),
        frame(TEXT, b"[" * 100_000),
        frame(TEXT, b'{"claim": 3, "rate": "fast", "format": "mp3"}'),
        frame(BINARY, secrets.token_bytes(500)),
        frame(TEXT, b"\xff\xfe"),
        frame(TEXT, json.dumps({"claim": "x" * 10**5, "rate": RATE, "format": "f32le"}).encode()),
        frame(7, b"no such kind"),
    )
    await visit.upgrade("/verify")
    await visit.send(secrets.choice(hellos))
    await visit.until_closed()


async def bad_token(visit: Visit) -> None:
    """Come with a token that is not known, or has the other scope."""
    await visit.upgrade("/enroll")
    await visit.say(name="mallory", rate=RATE, format="pcm_s16le", token=secrets.token_hex(16))
    await visit.until_closed()


async def silent_stream(visit: Visit) -> None:
    """Begin a stream and say nothing."""
    await visit.begin("/verify")
    await visit.until_closed()


async def silent_hello(visit: Visit) -> None:
    """Open a WebSocket and never say hello."""
    await visit.upgrade("/verify")
    await visit.until_closed()


async def huge_frame(visit: Visit) -> None:
    """Announce a frame of more than any memory."""
    await visit.begin("/verify")
    await visit.send(frame(BINARY, bytes(2**16), length=2**40))
    await visit.until_closed()


async def endless_fragments(visit: Visit) -> None:
    """Send a message in parts that never ends."""
    await visit.begin("/verify")
    await visit.send(frame(BINARY, bytes(2**16), last=False))
    for _ in range(64):
        await visit.send(frame(CONTINUED, bytes(2**16), last=False))
    await visit.until_closed()


async def slow_reading(visit: Visit) -> None:
    """Send audio, a sample at a time, without ever reading an answer."""
    await visit.begin("/verify")
    for _ in range(4000):
        await visit.send(frame(BINARY, b"\0\0") * 200)


async def ping_flood(visit: Visit) -> None:
    """Ask for signs of life without end, and read none."""
    await visit.upgrade("/verify")
    for _ in range(4000):
        await visit.send(frame(PING, bytes(125)) * 50)


async def not_numbers(visit: Visit) -> None:
    """Send samples that are no numbers."""
    await visit.upgrade("/verify")
    await visit.say(claim=visit.claim, rate=RATE, format="f32le", token=visit.token)
    await visit.send(frame(BINARY, b"\xff" * 4000))
    await visit.until_closed()


async def gone_while_verifying(visit: Visit) -> None:
    """Break off in the middle of a frame."""
    await visit.begin("/verify")
    await visit.send(AUDIO * 3 + AUDIO[:100])
    visit.writer.transport.abort()


async def gone_while_enrolling(visit: Visit) -> None:
    """Break off an enrollment, some right after its end was said."""
    await visit.begin("/enroll")
    await visit.send(AUDIO * 5)
    await visit.say(type="utterance")
    await visit.send(AUDIO * 5)
    if secrets.randbelow(4) == 0:
        await visit.say(type="end")  # nobody is enrolled from silence
    visit.writer.transport.abort()


KINDS: tuple[Callable[[Visit], Awaitable[None]], ...] = (
    silence,
    slow_head,
    endless_head,
    far_ahead,
    slow_body,
    endless_body,
    no_request,
    wrong_hello,
    bad_token,
    silent_stream,
    silent_hello,
    huge_frame,
    endless_fragments,
    slow_reading,
    ping_flood,
    not_numbers,
    gone_while_verifying,
    gone_while_enrolling,
)


@dataclass
class Found:
    """What was seen meanwhile."""

    ended: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    slowest: float = 0.0
    faults: list[str] = field(default_factory=list)


async def visit_once(kind: Callable[[Visit], Awaitable[None]], visit: Visit, found: Found) -> None:
    """One connection to its end."""
    how = "done"
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await kind(visit)
    except TimeoutError:
        how = "still open"
        if kind is not slow_reading:  # which does not look whether it was closed
            found.faults.append(f"{kind.__name__}: not ended by the service after {PATIENCE_SECONDS:g} s")
    except (OSError, asyncio.IncompleteReadError):
        how = "cut off"
    finally:
        if visit.writer is not None:
            visit.writer.transport.abort()
    found.ended[f"{kind.__name__}: {how}"] += 1


async def honest(url: str, done: asyncio.Event, found: Found) -> None:
    """Ask for a sign of life, again and again."""
    async with httpx.AsyncClient(base_url=url, timeout=30.0) as client:
        while not done.is_set():
            began = time.monotonic()
            try:
                if (await client.get("/healthz")).status_code != 200:
                    found.faults.append("/healthz did not answer 200")
            except httpx.HTTPError as error:
                found.faults.append(f"/healthz: {type(error).__name__}")
            found.answers += 1
            found.slowest = max(found.slowest, time.monotonic() - began)
            await asyncio.sleep(0.25)


async def attack(url: str, token: str, claim: str, count: int) -> Found:
    """``count`` hostile connections, at most AT_A_TIME at once."""
    found, done, room = Found(), asyncio.Event(), asyncio.Semaphore(AT_A_TIME)
    host, _, port = url.removeprefix("http://").rpartition(":")

    async def one(number: int) -> None:
        async with room:
            await visit_once(KINDS[number % len(KINDS)], Visit(host, int(port), token, claim), found)

    asking = asyncio.create_task(honest(url, done, found))
    await asyncio.gather(*(one(number) for number in range(count)))
    done.set()
    await asking
    return found


def fingerprint(store: Path) -> dict[str, str]:
    """SHA-256 of every file of a store."""
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def open_files(pid: int) -> int:
    """Files and connections that a process has open (Linux)."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  # Path.iterdir would stat entries that come and go


def settled(pid: int, before: int) -> int:
    """Open files of the server once the last connections are given up."""
    until = time.monotonic() + SETTLE_SECONDS
    while open_files(pid) > before and time.monotonic() < until:
        time.sleep(0.5)
    return open_files(pid)


def prepared(folder: Path, store: Path | None) -> Path:
    """A store of our own."""
    target = folder / "store"
    if store is not None:
        return Path(copytree(store, target))
    speakers = dict(list(read_corpus(ROOT / "data" / "demo" / "enroll").speakers.items())[:6])
    enroll(target, speakers, load_config(None, ["features.rate=8000"]))
    return target


def main() -> int:
    """Run the attack and print what it left; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        store = prepared(Path(folder), options.store)
        claim = SpeakerStore.open(store).names[0]
        file = next((ROOT / "data" / "demo" / "verify").rglob("*.flac"))
        bounds = ("--idle-seconds", "4", "--body-mib", "1", "--streams", "32")
        with running_service(store, *bounds, tokens=f"admin {token}") as (url, process):
            with VoiceclaimClient(url, token=token) as client:
                score, before = client.verify(claim, file).score, fingerprint(store)
            at_first, memory = open_files(process.pid), resident_mib(process.pid)
            found = asyncio.run(attack(url, token, claim, options.connections))
            left_open = settled(process.pid, at_first) - at_first
            with VoiceclaimClient(url, token=token) as client:
                same_score = client.verify(claim, file).score == score
            growth = resident_mib(process.pid) - memory
            unchanged = fingerprint(store) == before
    result = {
        "connections": options.connections,
        "ended": dict(sorted(found.ended.items())),
        "healthz_answers": found.answers,
        "healthz_slowest_seconds": round(found.slowest, 2),
        "faults": sorted(set(found.faults)),
        "same_score": same_score,
        "store_unchanged": unchanged,
        "connections_left_open": left_open,
        "rss_growth_mib": round(growth, 1),
    }
    text = json.dumps(result, indent=1)
    sys.stdout.write(f"{text}\n")
    if options.json:
        options.json.write_text(f"{text}\n", encoding="utf-8")
    return 0 if same_score and unchanged and not found.faults and left_open <= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
