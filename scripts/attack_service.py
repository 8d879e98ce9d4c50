#!/usr/bin/env python3
"""Replay known attacks on a live service on loopback, beside honest streams, and check how each ends.

    python scripts/attack_service.py --streams 64 --json attacks.json
    python scripts/attack_service.py --only drips packed_uploads

Voices of data/demo are enrolled into a store in a temporary folder. The attacks that aim at everybody's time run
against a service that also serves --streams honest streams in real time, and /healthz ten times a second; the
JSON has what those saw meanwhile, and ``quiet`` what they saw without an attack. The others have services of their own.
``held`` says whether an attack ended as it must.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
from honest_callers import Honest, recordings_of, seen
from packed_flac import packed_flac
from running_service import COMMAND, resident_mib, running_service
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from pipeline.audio.corpus import read_corpus
from pipeline.config import load_config
from pipeline.enrollment.enroll import enroll
from pipeline.store.store import Store

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "data" / "demo"
HONEST, HOSTILE, ENROLLS, ADMIN = "h" * 20, "x" * 20, "e" * 20, "a" * 20
TOKENS = f"verify,scores {HONEST};verify {HOSTILE};enroll {ENROLLS};admin {ADMIN}"
MOST_UPDATE_MS, MOST_HEALTHZ_MS = 150.0, 50.0
Result = dict[str, Any]
NAMES = ("anna", "bruno", "clara", "dexter", "edith", "fergus", "greta", "hugo", "ivan", "jonas")  # honest callers


@dataclass
class Target:
    """A running service."""

    url: str
    process: subprocess.Popen[str]
    store: Path
    folder: Path

    def client(self, token: str, seconds: float = 120.0) -> httpx.AsyncClient:
        """Return a client with a token."""
        return httpx.AsyncClient(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=seconds)

    async def stream(self, stack: AsyncExitStack, token: str, **hello: Any) -> tuple[ClientConnection, Result]:
        """Open a stream, and return it with its first answer."""
        path = "/enroll" if "name" in hello else "/verify"
        url = f"ws{self.url.removeprefix('http')}{path}"
        socket = await stack.enter_async_context(connect(url, compression=None, open_timeout=60))
        hello = {"rate": 16_000, "format": "pcm_s16le", "token": token, **hello}
        await socket.send(json.dumps(hello))
        return socket, json.loads(await asyncio.wait_for(socket.recv(), 60))


def voice(name: str, kind: str = "verify") -> bytes:
    """Return a recording of a demo voice."""
    return sorted((DEMO / kind / name).iterdir())[0].read_bytes()


# Attacks on everybody's time


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
    """Finding 2: two uploads of packed silence, left after 1.5 s, then five small ones; an honest file between."""
    waits = []
    for count, size in ((2, 758_626), (5, 43_000)):
        content = packed_flac(599.0 if size > 10**5 else 30.0, size)
        with_file = {"data": {"claim": "anna"}, "files": {"file": content}}

        async def leave(with_file: dict[str, Any] = with_file) -> None:
            async with target.client(HOSTILE, 1.5) as client:
                with suppress(httpx.TimeoutException):
                    await client.post("/verify", **with_file)

        hostile = [asyncio.create_task(leave()) for _ in range(count)]
        await asyncio.sleep(1.0)
        async with target.client(HONEST) as client:
            began = time.monotonic()
            answer = await client.post("/verify", data={"claim": "anna"}, files={"file": voice("anna")})
            waits.append(time.monotonic() - began)
        await asyncio.gather(*hostile)
    held = answer.status_code == 200 and max(waits) < 5
    return {"honest_file_seconds": [round(wait, 2) for wait in waits], "held": held}


async def drips(target: Target) -> Result:
    """Finding 4: 128 streams of one token that send one sample each 15 s."""
    refused, honest = 0, []
    async with AsyncExitStack() as stack:
        sockets = []
        for _ in range(128):
            socket, answer = await target.stream(stack, HOSTILE, claim="anna")
            refused += answer["type"] == "problem"
            sockets.append(socket)
        for at in (0, 15, 30, 45):
            for hello in ({"claim": "bruno"}, {"name": f"newcomer {at}"}):
                async with AsyncExitStack() as honest_stack:
                    _, answer = await target.stream(honest_stack, ADMIN, **hello)
                    honest.append(answer.get("status", 200))
            for socket in sockets:
                with suppress(ConnectionClosed):
                    await socket.send(b"\0\0")
            await asyncio.sleep(15)
        left = sum(socket.close_code is None for socket in sockets)
    return {"refused": refused, "open_after_60_s": left, "honest": honest, "held": left == 0 and set(honest) == {200}}


async def long_enrollment(target: Target) -> Result:
    """Finding 5: two hours of audio to enroll at once, then what is allowed; a removal behind it."""
    quiet = await asyncio.to_thread(opus_of, 595)
    async with target.client(ENROLLS, 300) as client, target.client(ADMIN, 300) as admin:
        files = [("files", quiet)]
        much = await client.post("/speakers/much", files=files * 12)
        allowed = asyncio.create_task(client.post("/speakers/long", files=files * 3))
        await asyncio.sleep(12)
        began, was_training = time.monotonic(), not allowed.done()
        removed = await admin.delete("/speakers/karla")
        seconds = time.monotonic() - began
        memory = max(resident_mib(pid) for pid in children_of(target.process.pid))
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


def opus_of(seconds: int) -> bytes:
    """Return speech of the demo voices, again and again, as Opus."""
    import io

    import soundfile

    voices, rate = recordings_of(DEMO / "enroll")
    speech = np.resize(np.concatenate([voices["anna"], voices["lars"]]), seconds * rate)
    file = io.BytesIO()
    soundfile.write(file, speech, rate, format="OGG", subtype="OPUS")
    return file.getvalue()


async def pinned_spool(target: Target) -> Result:
    """Finding 11: three callers send 60 MiB each and do not finish; an honest upload of 5 MiB."""
    host, port = target.url.removeprefix("http://").split(":")
    head = (
        "POST /verify HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 64000000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\nContent-Disposition: form-data; name=file;"
        ' filename="a"\r\n\r\n'
    )
    began, ends = time.monotonic(), list[float]()

    async def pin() -> None:
        _, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(head.format(HOSTILE).encode())
            for _ in range(60):
                writer.write(bytes(2**20))
                await writer.drain()
            while time.monotonic() < began + 120:
                await asyncio.sleep(12)
                writer.write(b"\0")
                await writer.drain()
        except OSError:
            pass
        finally:
            ends.append(time.monotonic() - began)
            writer.transport.abort()

    pins = [asyncio.create_task(pin()) for _ in range(3)]
    await asyncio.sleep(5)
    async with target.client(HONEST) as client:
        files = {"file": wav_of(5 * 2**20)}
        answer = await client.post("/verify", data={"claim": "anna"}, files=files)
    await asyncio.gather(*pins)
    held = answer.status_code == 200 and max(ends) < 110
    return {"honest_upload": answer.status_code, "held_seconds": [round(end) for end in ends], "held": held}


def wav_of(size: int) -> bytes:
    """Return speech as a WAV file of about ``size`` bytes."""
    import io

    import soundfile

    voices, rate = recordings_of(DEMO / "verify")
    file = io.BytesIO()
    soundfile.write(file, np.resize(voices["anna"], size // 2), rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


# Attacks on what is kept and decided


async def many_tries(target: Target) -> Result:
    """Finding 3: 250 claims by a token with the scope verify: what they are told, and how many are heard."""
    statuses, keys, began = [], set(), time.monotonic()
    async with target.client(HOSTILE) as client:
        for _ in range(250):
            answer = await client.post("/verify", data={"claim": "hugo"}, files={"file": voice("marta")})
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                keys |= {key for key, value in answer.json().items() if value is not None}
    told = sorted(keys & {"score", "llr", "probability", "threshold", "sequential_llr"})
    async with target.client(ADMIN) as admin:
        other = await admin.post("/verify", data={"claim": "hugo"}, files={"file": voice("hugo")})
    waits = np.cumsum(30.0 * 2.0 ** np.arange(20))
    most = 5 + int(np.sum(waits <= time.monotonic() - began))
    held = statuses.count(200) <= most and not told and other.status_code == 200
    return {"heard": statuses.count(200), "made_to_wait": statuses.count(429), "told": told, "held": held}


async def chosen_rules(target: Target) -> Result:
    """Finding 9: the caller's own rule of decision, and another system."""
    async with AsyncExitStack() as stack:
        early = {"miss": 0.0001, "false_accept": 0.499}
        _, rule = await target.stream(stack, HOSTILE, claim="anna", early=early)
        _, system = await target.stream(stack, HOSTILE, claim="anna", system="boar")
    async with target.client(HOSTILE) as client:
        data = {"claim": "anna", "system": "boar"}
        file = await client.post("/verify", data=data, files={"file": voice("anna")})
    statuses = [rule.get("status"), system.get("status"), file.status_code]
    return {"statuses": statuses, "held": statuses == [403, 403, 403]}


async def removed_while_speaking(target: Target) -> Result:
    """Finding 6: a stream of somebody who is removed goes on."""
    voices, rate = recordings_of(DEMO / "verify")
    model = Store(target.store).load()
    number = model.speakers[model.position("lars")].id
    async with AsyncExitStack() as stack, target.client(ADMIN) as admin:
        socket, _ = await target.stream(stack, HONEST, claim="lars", rate=rate)
        await socket.send(voices["lars"][: 2 * rate].tobytes())
        await socket.recv()
        removed = await admin.delete("/speakers/lars")
        await socket.send(voices["lars"][2 * rate :].tobytes())
        message: Result = {}
        while message.get("type") not in ("final", "problem"):
            message = json.loads(await asyncio.wait_for(socket.recv(), 60))
    rows = fingerprints_in(target, number)
    return {
        "removal": removed.status_code,
        "stream": f"{message['type']} {message.get('status', '')}",
        "fingerprints_left": rows,
        "held": removed.status_code == 200 and message["type"] == "problem" and rows == 0,
    }


def fingerprints_in(target: Target, speaker: int) -> int:
    """Return how many recordings of audio accepted as a speaker are kept."""
    file = target.folder / "log.jsonl.fingerprints"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as database:
        return int(database.execute("SELECT count(*) FROM recording WHERE speaker = ?", (speaker,)).fetchone()[0])


async def many_fingerprints(target: Target) -> Result:
    """Finding 7: 100,000 accepted calls of others, and then a hello."""
    async with target.client(HONEST) as client:
        await client.post("/verify", data={"claim": "bruno"}, files={"file": voice("bruno")})
    with closing(sqlite3.connect(target.folder / "log.jsonl.fingerprints")) as database, database:
        prints = os.urandom(1200)
        rows = ((f"{number % 5000}", number % 5000, "2099-01-01T00:00:00Z", prints) for number in range(100_000))
        database.executemany("INSERT INTO recording (store, speaker, time, prints) VALUES (?, ?, ?, ?)", rows)
        try:
            database.execute("UPDATE recording SET prints = 'garbage' WHERE number = 1")
            garbage = "taken"
        except sqlite3.IntegrityError:
            garbage = "refused by the file"
    times = []
    async with AsyncExitStack() as stack:
        for _ in range(5):
            began = time.monotonic()
            _, answer = await target.stream(stack, HONEST, claim="anna")
            times.append(time.monotonic() - began)
    seconds = min(times)
    return {
        "hello_ms": round(1000 * seconds, 1),
        "a_row_of_garbage": garbage,
        "held": answer["type"] == "ready" and seconds < 0.1 and garbage != "taken",
    }


async def odd_names(target: Target) -> Result:
    """Findings 13 and 14: names with line ends, invisible characters, and twins of enrolled ones."""
    names = ["a\nb", "an\u200bna", "\u0430nna", "Anna", " anna", "a\u202eb"]
    answers = {}
    async with AsyncExitStack() as stack, target.client(ADMIN) as admin:
        for name in names:
            _, answer = await target.stream(stack, ENROLLS, name=name)
            posted = await admin.post(f"/speakers/{quote(name, safe='')}", files={"files": voice("anna")})
            answers[ascii(name)] = [answer.get("status", 200), posted.status_code]
    held = all(set(statuses) <= {409, 422} for statuses in answers.values())
    return {"answers": answers, "held": held}


async def told_paths(target: Target) -> Result:
    """Finding 14: an audit log and fingerprints that cannot be written, and what the caller is told of them."""
    file = target.folder / "log.jsonl.fingerprints"
    kept = file.read_bytes() if file.exists() else None
    file.write_bytes(b"no database" * 1000)
    async with target.client(HONEST) as client:
        answer = await client.post("/verify", data={"claim": "anna"}, files={"file": voice("anna")})
    file.unlink()
    if kept is not None:
        file.write_bytes(kept)
    held = answer.status_code == 503 and str(target.folder) not in answer.text
    return {"status": answer.status_code, "held": held}


# Attacks on processes and files


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started (Linux)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def is_running(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


async def killed(store: Path, folder: Path) -> Result:
    """Finding 8: SIGKILL and SIGHUP while somebody is being enrolled; what is left of processes and voices."""
    result: Result = {}
    for name in ("SIGKILL", "SIGHUP"):
        spool = folder / f"spool {name}"
        spool.mkdir()
        with running_service(store, "--spool", str(spool), tokens=TOKENS) as (url, process):
            target = Target(url, process, store, folder)
            async with target.client(ADMIN, 60) as client, AsyncExitStack() as stack:
                socket, _ = await target.stream(stack, ADMIN, name="somebody", rate=8000)
                await socket.send(bytes(16_000))
                await client.post("/verify", data={"claim": "anna"}, files={"file": voice("anna")})
                enrolling = asyncio.create_task(client.post("/speakers/new", files=[("files", voice("marta"))]))
                await asyncio.sleep(2.0)
                children = children_of(process.pid)
                process.send_signal(getattr(signal, name))
                code = await asyncio.to_thread(process.wait, 120)
                await asyncio.gather(enrolling, return_exceptions=True)
            until = time.monotonic() + 10
            while any(map(is_running, children)) and time.monotonic() < until:
                await asyncio.sleep(0.1)
            left = list(spool.glob("voiceclaim-*/*"))
        with running_service(store, "--spool", str(spool), tokens=TOKENS):
            swept = len(list(spool.glob("voiceclaim-*")))
        result[name] = {
            "exit_code": code,
            "children": len(children),
            "children_left": sum(map(is_running, children)),
            "files_left": len(left),
            "folders_after_the_next_start": swept,
        }
    ended = all(not table["children_left"] and table["folders_after_the_next_start"] == 1 for table in result.values())
    hung_up = result["SIGHUP"]
    return {**result, "held": ended and hung_up["exit_code"] == 0 and hung_up["files_left"] == 0}


RESTORES = 6


async def restored(store: Path, folder: Path) -> Result:
    """Finding 10: a backup put back over a live store, each of several times with six streams."""
    copy = folder / "backup"
    command = [*COMMAND, "store"]
    subprocess.run([*command, "backup", str(store), str(copy)], check=True, capture_output=True)
    voices, rate = recordings_of(DEMO / "verify")
    with running_service(store, "--failures", "0", tokens=TOKENS) as (url, process):
        target = Target(url, process, store, folder)
        words, finals = [*command, "restore", str(copy), str(store)], []
        for _ in range(RESTORES):
            async with AsyncExitStack() as stack:
                sockets = [(await target.stream(stack, ADMIN, claim="anna", rate=rate))[0] for _ in range(6)]
                for socket in sockets:
                    await socket.send(voices["anna"][:rate].tobytes())
                done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)
                if done.returncode or process.poll() is not None:
                    break
                for socket in sockets:
                    await socket.send(json.dumps({"type": "end"}))
                for socket in sockets:
                    message: Result = {}
                    while message.get("type") not in ("final", "problem"):
                        message = json.loads(await asyncio.wait_for(socket.recv(), 60))
                    finals.append(message["type"])
        alive = process.poll() is None
    held = done.returncode == 0 and alive and finals == ["final"] * (6 * RESTORES)
    ends = {kind: finals.count(kind) for kind in set(finals)}
    return {"restores": RESTORES, "error": done.stderr.decode()[-200:], "alive": alive, "ends": ends, "held": held}


# Running them

Live = Callable[[Target], Awaitable[Result]]
BESIDE: tuple[Live, ...] = (unusual_rates, packed_uploads, drips, long_enrollment, pinned_spool)
ALONE: tuple[Live, ...] = (
    many_tries, chosen_rules, many_fingerprints, told_paths, odd_names, removed_while_speaking,
)  # fmt: skip
OFFLINE = (killed, restored)


def enrolled(folder: Path) -> Path:
    """Enroll the demo voices."""
    speakers = read_corpus(DEMO / "enroll").speakers
    settings = load_config(None, ["features.rate=8000", "supervector.speeds_below=0", "codebook.centroids=30"])
    enroll(folder / "voices.store", speakers, settings, jobs=os.cpu_count() or 1)
    return folder / "voices.store"


async def beside(store: Path, folder: Path, streams: int, wanted: set[str]) -> Result:
    """Run the attacks beside honest streams."""
    results: Result = {}
    options = ("--failures", "100000", "--caller-failures", "1000000", "--log", str(folder / "log.jsonl"))
    with running_service(store, *options, tokens=TOKENS) as (url, process):
        target = Target(url, process, store, folder)
        honest = await asyncio.to_thread(Honest, url, HONEST, DEMO / "verify", NAMES, streams)
        spans = {"quiet": (time.monotonic(), time.monotonic() + 10)}
        await asyncio.sleep(10)
        for attack in BESIDE:
            if attack.__name__ in wanted:
                began = time.monotonic()
                results[attack.__name__] = await attack(target)
                spans[attack.__name__] = began, time.monotonic()
                sys.stderr.write(f"{attack.__name__}: {results[attack.__name__]}\n")
                await asyncio.sleep(3)
        samples = await asyncio.to_thread(honest.end)
    for name, span in spans.items():
        told = seen(samples, *span)
        in_time = (
            told.get("update_p95_ms", np.inf) < MOST_UPDATE_MS and told.get("healthz_p95_ms", np.inf) < MOST_HEALTHZ_MS
        )
        results[name] = {**results.get(name, {}), "honest": told, "in_time": bool(in_time)}
    return results


async def alone(store: Path, folder: Path, wanted: set[str]) -> Result:
    """Run the attacks on a service with its default bounds."""
    results: Result = {}
    with running_service(store, "--log", str(folder / "log.jsonl"), tokens=TOKENS) as (url, process):
        for attack in ALONE:
            if attack.__name__ in wanted:
                results[attack.__name__] = await attack(Target(url, process, store, folder))
                sys.stderr.write(f"{attack.__name__}: {results[attack.__name__]}\n")
    return results


def main() -> int:
    """Attack, and print how each attack ended; 1 if one did not end as it must."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [attack.__name__ for attack in (*BESIDE, *ALONE, *OFFLINE)]
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    wanted, results = set(options.only), {}
    with tempfile.TemporaryDirectory() as temporary:
        store = enrolled(Path(temporary))
        for part, run in (
            (BESIDE, lambda store, folder: beside(store, folder, options.streams, wanted)),
            (ALONE, lambda store, folder: alone(store, folder, wanted)),
        ):
            if wanted & {attack.__name__ for attack in part}:
                folder = Path(tempfile.mkdtemp(dir=temporary))
                results |= asyncio.run(run(Path(shutil.copy(store, folder)), folder))
        for attack in OFFLINE:
            if attack.__name__ in wanted:
                folder = Path(tempfile.mkdtemp(dir=temporary))
                results[attack.__name__] = asyncio.run(attack(Path(shutil.copy(store, folder)), folder))
                sys.stderr.write(f"{attack.__name__}: {results[attack.__name__]}\n")
    text = f"{json.dumps({'streams': options.streams, 'attacks': results}, indent=1)}\n"
    sys.stdout.write(text)
    if options.json:
        options.json.write_text(text, encoding="utf-8")
    return 0 if all(result.get("held", True) for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
