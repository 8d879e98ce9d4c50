#!/usr/bin/env python3
"""Attack the service, in a process of its own, with hostile connections, and check that it goes on answering.

    python scripts/hostile_connections.py --connections 1000 --json hostile.json

Voices of data/demo are enrolled (--store takes a copy of a store instead). Connections of every kind in ``attacks``
are opened in mixed order, many at a time, while an honest caller requests /healthz. At the end the same file must have
the same score, the store the same bytes, and the server as many open sockets as at the start. Connections that send no
request, or send one slowly, and floods of pings are left to a proxy (docs/service.md).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from shutil import copy
from typing import NamedTuple

import httpx
from running_service import resident_mib, running_service
from websockets.frames import Frame, Opcode

from pipeline.audio.corpus import read_corpus
from pipeline.config import load_config
from pipeline.enrollment.enroll import enroll
from pipeline.server.client import VoiceclaimClient
from pipeline.store.store import Store

ROOT = Path(__file__).resolve().parents[1]
AT_A_TIME = 200
TIMEOUT_SECONDS = 40.0  # longer than the service waits for any caller
SETTLE_SECONDS = 60.0
RATE = 16_000
UPGRADE = (
    "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Attack(NamedTuple):
    """Bytes on a new connection, or on a WebSocket to ``path``; then the service must close it if ``waits``."""

    data: tuple[bytes, ...]
    path: str | None = None
    waits: bool = True


def frame(opcode: Opcode, data: bytes, *, last: bool = True) -> bytes:
    """Return a masked frame."""
    return Frame(opcode, data, fin=last).serialize(mask=True)


def text(**fields: object) -> bytes:
    """Return a message in JSON."""
    return frame(Opcode.TEXT, json.dumps(fields).encode())


def attacks(token: str, claim: str) -> dict[str, Attack]:
    """Return every kind of attack."""
    post = (
        f"POST /verify HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n"
    ).encode()
    head = b"GET /speakers HTTP/1.1\r\nHost: localhost\r\n"
    part = b"10000\r\n" + bytes(2**16) + b"\r\n"
    audio, half = frame(Opcode.BINARY, bytes(3200)), frame(Opcode.BINARY, bytes(2**16), last=False)
    hello = {"rate": RATE, "format": "pcm_s16le", "token": token}
    begin = text(claim=claim, **hello)
    name = f"hostile {secrets.token_hex(4)}"
    speak = (text(name=name, **hello), audio * 5, text(type="utterance"), audio * 5)
    unknown = text(name=name, **{**hello, "token": secrets.token_hex(16)})
    hellos = {
        "not JSON": frame(Opcode.TEXT, b"{"),
        "deep JSON": frame(Opcode.TEXT, b"[" * 100_000),
        "wrong types": text(claim=3, rate="fast", format="mp3"),
        "long claim": text(claim="x" * 10**5, rate=RATE, format="f32le"),
        "not UTF-8": frame(Opcode.TEXT, b"\xff\xfe"),
        "binary": frame(Opcode.BINARY, bytes(500)),
        "no such opcode": b"\x87\x80\0\0\0\0",
    }
    return {
        "endless head": Attack((head, *(b"X-%d: " % n + b"y" * 2**16 + b"\r\n" for n in range(100)))),
        "requests ahead": Attack((b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200,) * 100, waits=False),
        "slow body": Attack((post + b"Content-Length: 1000\r\n\r\n--x",)),
        "endless body": Attack((post + b"Transfer-Encoding: chunked\r\n\r\n", *[part] * 24), waits=False),
        "not HTTP": Attack((secrets.token_bytes(4096) + b"\r\n\r\n",)),
        **{f"hello: {kind}": Attack((data,), "/verify") for kind, data in hellos.items()},
        "unknown token": Attack((unknown,), "/enroll"),
        "flood after a refusal": Attack((unknown, *[frame(Opcode.BINARY, b"\0\0") * 200] * 4000), "/enroll"),
        "no hello": Attack((), "/verify"),
        "silent stream": Attack((begin,), "/verify"),
        "huge frame": Attack((begin, b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(2**16)), "/verify"),
        "endless message": Attack((begin, half, *[frame(Opcode.CONT, bytes(2**16), last=False)] * 64), "/verify"),
        "not numbers": Attack(
            (text(claim=claim, **{**hello, "format": "f32le"}), frame(Opcode.BINARY, b"\xff" * 4000)), "/verify"
        ),
        "single samples, no reading": Attack(
            (begin, *[frame(Opcode.BINARY, b"\0\0") * 200] * 4000), "/verify", waits=False
        ),
        "gone while verifying": Attack((begin, audio * 3 + audio[:100]), "/verify", waits=False),
        "gone while enrolling": Attack(speak, "/enroll", waits=False),
        "gone after the end": Attack((*speak, text(type="end")), "/enroll", waits=False),  # with too little speech
    }


class Findings:
    """The results of all connections."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.faults: set[str] = set()
        self.answers = 0
        self.slowest = 0.0


async def carry_out(kind: str, attack: Attack, host: str, port: int, findings: Findings) -> None:
    """Open one hostile connection and note how it ended."""
    reader, writer = await asyncio.open_connection(host, port)
    how = "done"
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            if attack.path is not None:
                writer.write(UPGRADE.format(attack.path).encode())
                await reader.readuntil(b"\r\n\r\n")
            for data in attack.data:
                writer.write(data)
                await writer.drain()
            while attack.waits and await reader.read(2**16):
                pass
    except TimeoutError:
        how = "still open"
        if attack.waits:
            findings.faults.add(f"{kind}: not closed by the service after {TIMEOUT_SECONDS:g} s")
    except (OSError, asyncio.IncompleteReadError):
        how = "cut off"
    finally:
        writer.transport.abort()
    findings.ended[f"{kind}: {how}"] += 1


async def request_health(url: str, findings: Findings) -> None:
    """Request /healthz, again and again, until cancelled."""
    async with httpx.AsyncClient(base_url=url, timeout=30.0) as client:
        while True:
            began = time.monotonic()
            try:
                if (await client.get("/healthz")).status_code != 200:
                    findings.faults.add("/healthz did not answer 200")
            except httpx.HTTPError as error:
                findings.faults.add(f"/healthz: {type(error).__name__}")
            findings.answers += 1
            findings.slowest = max(findings.slowest, time.monotonic() - began)
            await asyncio.sleep(0.25)


async def carry_out_all(url: str, token: str, claim: str, count: int) -> Findings:
    """Open ``count`` hostile connections, at most AT_A_TIME at once."""
    findings, room = Findings(), asyncio.Semaphore(AT_A_TIME)
    host, _, port = url.removeprefix("http://").rpartition(":")
    kinds = list(attacks(token, claim).items())

    async def one(number: int) -> None:
        async with room:
            await carry_out(*kinds[number % len(kinds)], host, int(port), findings)

    honest = asyncio.create_task(request_health(url, findings))
    await asyncio.gather(*(one(number) for number in range(count)))
    honest.cancel()
    return findings


def open_sockets(pid: int, settle_to: int | None = None) -> int:
    """Count the open sockets of a process (Linux), once they are ``settle_to`` or the time is over."""
    until, folder = time.monotonic() + SETTLE_SECONDS, Path(f"/proc/{pid}/fd")
    while True:
        count = 0
        for name in os.listdir(folder):  # noqa: PTH208  # Path.iterdir would stat entries that come and go
            with suppress(FileNotFoundError):
                count += str((folder / name).readlink()).startswith("socket:")
        if settle_to is None or count <= settle_to or time.monotonic() > until:
            return count
        time.sleep(0.5)


def prepared(folder: Path, store: Path | None) -> Path:
    """Copy ``store``, or enroll voices of the demo corpus."""
    target = folder / "store"
    if store is not None:
        return Path(copy(store, target))
    speakers = dict(list(read_corpus(ROOT / "data" / "demo" / "enroll").speakers.items())[:6])
    enroll(target, speakers, load_config(None, ["features.rate=8000"]))
    return target


def main() -> int:
    """Attack, and print the findings; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        store = prepared(Path(folder), options.store)
        claim = Store(store).load().names[0]
        file = next((ROOT / "data" / "demo" / "verify").rglob("*.flac"))
        limits = ("--idle-seconds", "4", "--body-mib", "1", "--streams", "32")
        with (
            running_service(store, *limits, tokens=f"admin {token}") as (url, process),
            VoiceclaimClient(url, token=token) as client,
        ):
            score, before = client.verify(claim, file).update.score, store.read_bytes()
            sockets, memory = open_sockets(process.pid), resident_mib(process.pid)
            findings = asyncio.run(carry_out_all(url, token, claim, options.connections))
            result = {
                "connections": options.connections,
                "ended": dict(sorted(findings.ended.items())),
                "healthz_answers": findings.answers,
                "healthz_slowest_seconds": round(findings.slowest, 2),
                "faults": sorted(findings.faults),
                "connections_left_open": open_sockets(process.pid, sockets) - sockets,
                "same_score": client.verify(claim, file).update.score == score,
                "rss_growth_mib": round(resident_mib(process.pid) - memory, 1),
                "store_unchanged": store.read_bytes() == before,
            }
    written = f"{json.dumps(result, indent=1)}\n"
    sys.stdout.write(written)
    if options.json:
        options.json.write_text(written, encoding="utf-8")
    good = result["same_score"] and result["store_unchanged"] and not findings.faults
    return 0 if good and findings.answers and int(str(result["connections_left_open"])) <= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
