"""Attacks on the decisions of a service, on what it discloses, and on what it keeps."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import AsyncExitStack, closing, suppress
from urllib.parse import quote

import numpy as np
from attack_target import ADMIN, DEMO, ENROLLS, HONEST, HOSTILE, Result, Target, last_of, voice
from honest_callers import recordings_of
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from pipeline.store.store import Store


async def many_tries(target: Target) -> Result:
    """Finding 3: 250 claims by a token with the scope verify: what the answers disclose, and how many are scored."""
    began = time.monotonic()
    answers = [await target.verify(HOSTILE, voice("marta"), claim="hugo") for _ in range(250)]
    heard = [answer.json() for answer in answers if answer.status_code == 200]
    numbers = ("score", "llr", "probability", "threshold", "sequential_llr")
    told = sorted({name for name in numbers for table in heard if table[name] is not None})
    other = await target.verify(ADMIN, voice("hugo"), claim="hugo")
    most = 5 + int(np.sum(np.cumsum(30.0 * 2.0 ** np.arange(20)) <= time.monotonic() - began))
    waiting = sum(answer.status_code == 429 for answer in answers)
    held = len(heard) <= most and len(heard) + waiting == 250 and not told and other.status_code == 200
    return {"heard": len(heard), "made_to_wait": waiting, "told": told, "held": held}


async def chosen_rules(target: Target) -> Result:
    """Finding 9: the caller chooses the decision rule, or another system."""
    async with AsyncExitStack() as stack:
        early = {"miss": 0.0001, "false_accept": 0.499}
        _, rule = await target.stream(stack, HOSTILE, claim="anna", early=early)
        _, system = await target.stream(stack, HOSTILE, claim="anna", system="boar")
    file = await target.verify(HOSTILE, voice("anna"), claim="anna", system="boar")
    statuses = [rule.get("status"), system.get("status"), file.status_code]
    return {"statuses": statuses, "held": statuses == [403, 403, 403]}


async def removed_while_speaking(target: Target) -> Result:
    """Finding 6: somebody who is removed goes on speaking."""
    voices, rate = recordings_of(DEMO / "verify")
    model = Store(target.store).load()
    number = model.speakers[model.position("lars")].id
    async with AsyncExitStack() as stack, target.client(ADMIN) as admin:
        socket, _ = await target.stream(stack, HONEST, claim="lars", rate=rate)
        speaking = asyncio.create_task(_speak(socket, voices["lars"], rate))
        await socket.recv()
        ending = asyncio.create_task(last_of(socket))  # which reads all updates before the last message
        removed = await admin.delete("/speakers/lars")
        message = await ending
        await speaking
    rows = _fingerprints_of(target, number)
    held = removed.status_code == 200 and message.get("status") == 409 and rows == 0
    ends = f"{message['type']} {message.get('status', '')}"
    return {"removal": removed.status_code, "stream": ends, "fingerprints_left": rows, "held": held}


async def _speak(socket: ClientConnection, speech: np.ndarray, rate: int) -> None:
    """Send speech in real time until the stream ends."""
    with suppress(ConnectionClosed):
        while True:
            for at in range(0, len(speech), rate // 4):
                await socket.send(speech[at : at + rate // 4].tobytes())
                await asyncio.sleep(0.25)


def _fingerprints_of(target: Target, speaker: int) -> int:
    """Return how many recordings of audio accepted as a speaker are kept."""
    file = target.folder / "log.jsonl.fingerprints"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as database:
        return int(database.execute("SELECT count(*) FROM recording WHERE speaker = ?", (speaker,)).fetchone()[0])


async def many_fingerprints(target: Target) -> Result:
    """Finding 7: fingerprints of 100,000 accepted calls of other speakers, and then a hello."""
    await target.verify(HONEST, voice("bruno"), claim="bruno")
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
    held = answer["type"] == "ready" and min(times) < 0.1 and garbage != "taken"
    return {"hello_ms": round(1000 * min(times), 1), "a_row_of_garbage": garbage, "held": held}


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
    """Finding 14: fingerprints that cannot be read, and the error that the caller gets."""
    file = target.folder / "log.jsonl.fingerprints"
    kept = file.read_bytes() if file.exists() else None
    file.write_bytes(b"no database" * 1000)
    answer = await target.verify(HONEST, voice("anna"), claim="anna")
    file.unlink()
    if kept is not None:
        file.write_bytes(kept)
    held = answer.status_code == 503 and str(target.folder) not in answer.text
    return {"status": answer.status_code, "held": held}


ATTACKS = (many_tries, chosen_rules, many_fingerprints, told_paths, odd_names, removed_while_speaking)
