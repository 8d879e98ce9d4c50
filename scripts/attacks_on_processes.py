"""Attacks on the processes and files of a service: each starts services of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
from attack_target import ADMIN, DEMO, TOKENS, Result, Target, last_of, voice
from honest_callers import recordings_of
from running_service import COMMAND, running_service

GRACE_SECONDS = 330  # a service that is told to end has 300 s for an enrollment
RESTORES = 6


async def killed(store: Path, folder: Path) -> Result:
    """Finding 8: SIGKILL and SIGHUP during an enrollment; which processes and audio are left afterwards."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup has ignored, here and in what is started
    result = {name: await _ended_by(name, store, folder) for name in ("SIGKILL", "SIGHUP")}
    ended = all(not table["children_left"] and table["folders_after_the_next_start"] == 1 for table in result.values())
    hung_up = result["SIGHUP"]
    return {**result, "held": ended and hung_up["exit_code"] == 0 and hung_up["files_left"] == 0}


async def _ended_by(name: str, store: Path, folder: Path) -> Result:
    spool = folder / f"spool {name}"
    spool.mkdir()
    with running_service(store, "--spool", str(spool), tokens=TOKENS) as (url, process):
        target = Target(url, process, store, folder)
        async with target.client(ADMIN, GRACE_SECONDS) as client, AsyncExitStack() as stack:
            socket, _ = await target.stream(stack, ADMIN, name="somebody", rate=8000)
            await socket.send(bytes(16_000))
            await target.verify(ADMIN, voice("anna"), claim="anna")
            enrolling = asyncio.create_task(client.post("/speakers/new", files=[("files", voice("marta"))]))
            await asyncio.sleep(2.0)
            children = psutil.Process(process.pid).children()
            process.send_signal(getattr(signal, name))
            code = await asyncio.to_thread(process.wait, GRACE_SECONDS)
            await asyncio.gather(enrolling, return_exceptions=True)
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, 10)
        left = [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
        files = list(spool.glob("voiceclaim-*/*"))
    with running_service(store, "--spool", str(spool), tokens=TOKENS):
        swept = len(list(spool.glob("voiceclaim-*")))
    return {
        "exit_code": code,
        "children": len(children),
        "children_left": len(left),
        "files_left": len(files),
        "folders_after_the_next_start": swept,
    }


async def restored(store: Path, folder: Path) -> Result:
    """Finding 10: a backup restored over a live store several times, each time with six streams open."""
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
                finals += [(await last_of(socket))["type"] for socket in sockets]
        alive = process.poll() is None
    held = done.returncode == 0 and alive and finals == ["final"] * (6 * RESTORES)
    ends = {kind: finals.count(kind) for kind in set(finals)}
    return {"restores": RESTORES, "error": done.stderr.decode()[-200:], "alive": alive, "ends": ends, "held": held}


ATTACKS = (killed, restored)
