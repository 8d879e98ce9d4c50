#!/usr/bin/env python3
"""Load the service, in a process of its own, with real-time streams: dropped chunks, latency, memory.

    python scripts/load_test.py --streams 64 --seconds 60 --json load.json

Fifty speakers of libri158 are enrolled first if the corpora are beside the checkout (or CORPORA names them), otherwise
the voices of data/demo; --store takes an existing store, with --audio for the speech. Each stream claims one of the
speakers and sends speech in chunks of --chunk-ms, at the pace of a microphone and out of step with the others.
--enroll names a folder of speakers: those who are not in the store are enrolled meanwhile, one after another.

The JSON holds ``dropped`` (chunks that no update covers), ``p95_ms`` (from the sending of a chunk to the update that
covers it), ``rss_growth_mib`` (growth of the server's memory from a quarter of the time to the end) and
``enroll_seconds`` (of each enrollment).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from running_service import resident_mib, running_service
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from pipeline.audio.corpus import read_corpus
from pipeline.audio.files import open_audio
from pipeline.audio.folders import audio_suffixes
from pipeline.cli.terminal import cores
from pipeline.config import load_config
from pipeline.enrollment.enroll import enroll
from pipeline.errors import VoiceclaimError
from pipeline.server.client import VoiceclaimClient
from pipeline.store.store import Store

ROOT = Path(__file__).resolve().parents[1]
SPEAKERS = 50
OPEN_SECONDS = 120.0  # for the machines of every claim to be read
LAST_SECONDS = 30.0  # for the last updates
LEAST_SECONDS = 3.0  # of speech, before it begins again


@dataclass
class Tally:
    """Chunks of all streams; latencies in seconds."""

    sent: int = 0
    answered: int = 0
    latencies: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def parsed() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--chunk-ms", type=float, default=200.0)
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--audio", type=Path, help="folder of the speech, with --store")
    parser.add_argument("--enroll", type=Path, help="folder of speakers to enroll meanwhile, one after another")
    parser.add_argument("--corpora", type=Path, default=ROOT.parent / "shared" / "corpora")
    options = parser.parse_args()
    if options.store and not options.audio:
        parser.error("--store needs --audio")
    return options


def prepared(folder: Path, corpora: Path) -> tuple[Path, Path]:
    """Make a store in ``folder``; return it, and the folder of the speech to send."""
    source, overrides = corpora / "libri158", []
    if not source.is_dir():
        source, overrides = ROOT / "data" / "demo", ["features.rate=8000"]
    speakers = dict(list(read_corpus(source / "enroll").speakers.items())[:SPEAKERS])
    sys.stderr.write(f"enrolling {len(speakers)} speakers of {source.name} ...\n")
    enroll(folder / "store", speakers, load_config(None, overrides), jobs=cores())
    return folder / "store", source / "verify"


def recordings_in(folder: Path, rate_of: Path) -> tuple[list[np.ndarray], int]:
    """Return a dozen recordings as 16-bit samples, and their rate."""
    rate = Store(rate_of).load().config.features.rate
    recordings = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in audio_suffixes()):
        with open_audio(path) as audio:
            samples = np.concatenate(list(audio.blocks()))
            if audio.rate == rate:
                samples = np.tile(samples, int(np.ceil(LEAST_SECONDS * rate / len(samples))))
                recordings.append(np.clip(np.round(samples * 2**15), -(2**15), 2**15 - 1).astype("<i2"))
        if len(recordings) == 12:
            break
    return recordings, rate


async def stream(
    url: str, claim: str, speech: np.ndarray, rate: int, late: float, options: argparse.Namespace, tally: Tally
) -> None:
    """Run one stream from hello to end, which begins ``late`` seconds after the first."""
    try:
        async with connect(
            f"ws{url.removeprefix('http')}/verify", compression=None, open_timeout=OPEN_SECONDS
        ) as socket:
            await socket.send(json.dumps({"claim": claim, "rate": rate, "format": "pcm_s16le"}))
            hello = json.loads(await asyncio.wait_for(socket.recv(), OPEN_SECONDS))
            if hello["type"] != "ready":
                tally.failures.append(hello["detail"])
                return
            await asyncio.sleep(options.start_at - time.monotonic() + late)
            waiting: deque[tuple[int, float]] = deque()
            receiving = asyncio.create_task(receive(socket, waiting, tally))
            await send(socket, speech, rate, options, waiting, tally)
            await asyncio.wait_for(receiving, LAST_SECONDS)
    except (OSError, WebSocketException, TimeoutError) as error:
        tally.failures.append(f"{type(error).__name__}: {error}")


async def send(
    socket: ClientConnection,
    speech: np.ndarray,
    rate: int,
    options: argparse.Namespace,
    waiting: deque[tuple[int, float]],
    tally: Tally,
) -> None:
    """Send chunks at the pace of a microphone."""
    length = round(rate * options.chunk_ms / 1000)
    chunks = [chunk.tobytes() for chunk in np.array_split(speech, len(speech) // length)]
    began, sent, bytes_sent = time.monotonic(), 0, 0
    while bytes_sent < 2 * rate * options.seconds:
        data = chunks[sent % len(chunks)]
        bytes_sent += len(data)
        await asyncio.sleep(began + bytes_sent / (2 * rate) - time.monotonic())
        sent += 1
        waiting.append((sent, time.monotonic()))
        tally.sent += 1
        await socket.send(data)
    await socket.send(json.dumps({"type": "end"}))


async def receive(socket: ClientConnection, waiting: deque[tuple[int, float]], tally: Tally) -> None:
    """Receive updates until the final one."""
    async for text in socket:
        now, update = time.monotonic(), json.loads(text)
        while waiting and waiting[0][0] <= update.get("chunks", 0):
            tally.latencies.append(now - waiting.popleft()[1])
            tally.answered += 1
        if update["type"] == "problem":
            tally.failures.append(update["detail"])
        if update["type"] in ("final", "problem"):
            return


async def run(
    url: str, pid: int, names: tuple[str, ...], recordings: tuple[list[np.ndarray], int], options: Any
) -> Any:
    """Run all streams at once; return their tally, and the server's memory in MiB after a quarter and at the end."""
    speech, rate = recordings
    tally = Tally()
    options.start_at = time.monotonic() + 0.5 * options.streams + 2.0
    streams = []
    for n in range(options.streams):
        claim, shifted = names[n % len(names)], np.roll(speech[n % len(speech)], 1000 * n)
        late = options.chunk_ms / 1000 * n / options.streams
        streams.append(asyncio.create_task(stream(url, claim, shifted, rate, late, options, tally)))
    await asyncio.sleep(options.start_at - time.monotonic() + options.seconds / 4)
    before = resident_mib(pid)
    await asyncio.sleep(options.start_at - time.monotonic() + options.seconds)
    after = resident_mib(pid)
    await asyncio.gather(*streams)
    return tally, before, after


@contextmanager
def enrolling(url: str, folder: Path | None, names: tuple[str, ...]) -> Iterator[list[float]]:
    """Enroll the speakers of ``folder`` who have none of ``names`` one after another; yield the seconds each took."""
    took: list[float] = []
    over = threading.Event()

    def enroll_all(speakers: list[tuple[str, list[Path]]]) -> None:
        with VoiceclaimClient(url) as client:
            for name, recordings in speakers:
                if over.is_set():
                    return
                began = time.monotonic()
                try:
                    client.enroll(name, recordings)
                except VoiceclaimError as error:
                    sys.stderr.write(f"{name} was not enrolled: {error}\n")
                    continue
                took.append(round(time.monotonic() - began, 1))

    speakers = {} if folder is None else read_corpus(folder).speakers
    new = [(name, [one.path for one in its]) for name, its in speakers.items() if name not in names]
    with ThreadPoolExecutor(1) as pool:
        all_enrolled = pool.submit(enroll_all, new)
        try:
            yield took
        finally:
            over.set()
            all_enrolled.result()


def summary(tally: Tally, before: float, after: float, speakers: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the results for JSON."""
    latencies = np.array(tally.latencies or [np.inf]) * 1000
    return {
        "streams": options.streams,
        "seconds": options.seconds,
        "speakers": speakers,
        "chunk_ms": options.chunk_ms,
        "chunks": tally.sent,
        "dropped": tally.sent - tally.answered,
        "failures": sorted(set(tally.failures)),
        "p50_ms": round(float(np.percentile(latencies, 50)), 1),
        "p95_ms": round(float(np.percentile(latencies, 95)), 1),
        "p99_ms": round(float(np.percentile(latencies, 99)), 1),
        "max_ms": round(float(latencies.max()), 1),
        "rss_mib": round(after, 1),
        "rss_growth_mib": round(after - before, 1),
    }


def main() -> int:
    """Run the test and print the results; return 1 if a chunk was dropped."""
    options = parsed()
    with tempfile.TemporaryDirectory() as folder:
        store, audio = (options.store, options.audio) if options.store else prepared(Path(folder), options.corpora)
        speech, names = recordings_in(audio, store), Store(store).load().names
        longest = str(options.seconds + 60)
        more = ("--share", "1", "--streams", str(options.streams), "--stream-seconds", longest, "--idle-seconds", "120")
        with running_service(store, *more) as (url, process):
            with enrolling(url, options.enroll, names) as enroll_seconds:
                tally, before, after = asyncio.run(run(url, process.pid, names, speech, options))
            times = psutil.Process(process.pid).cpu_times()
    result = {
        **summary(tally, before, after, len(names), options),
        "server_cpu_seconds": round(times.user + times.system, 1),
        "enroll_seconds": enroll_seconds,
    }
    text = json.dumps(result, indent=1)
    sys.stdout.write(f"{text}\n")
    if options.json:
        options.json.write_text(f"{text}\n", encoding="utf-8")
    return 1 if tally.failures or result["dropped"] else 0


if __name__ == "__main__":
    sys.exit(main())
