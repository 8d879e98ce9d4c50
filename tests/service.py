"""The real service in a process of its own, on a free port."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from score_rows import ScoreRow, write_scores
from websockets.sync.client import ClientConnection, connect

from pipeline.audio.files import open_audio

COMMAND = (sys.executable, "-c", "from pipeline.cli.main import main; main()")
START_SECONDS = 300.0  # a store with background voices is made first, beside other tests
ENROLL_TOKEN, VERIFY_TOKEN, ADMIN_TOKEN, PLAIN_TOKEN, IDENTIFY_TOKEN = (letter * 20 for letter in "evapi")
TOKENS = (
    f"enroll {ENROLL_TOKEN}\nverify,identify,scores,rules {VERIFY_TOKEN}; # nobody's\n"
    f"admin {ADMIN_TOKEN}\nverify {PLAIN_TOKEN}\nidentify {IDENTIFY_TOKEN}"
)


@dataclass
class Running:
    """A service that has been started: where it is, and where its output goes."""

    url: str
    process: subprocess.Popen[bytes]
    store: Path
    output: Path
    spool: Path

    @property
    def uploads(self) -> list[Path]:
        """Everything that was sent and still lies there."""
        return [path for path in self.spool.glob("voiceclaim-*/*") if path.name != "lock"]

    @property
    def log_text(self) -> str:
        """Everything on its two outputs so far."""
        return self.output.read_text(encoding="utf-8")

    def socket(self, path: str, **options: Any) -> AbstractContextManager[ClientConnection]:
        """A WebSocket to ``path``, until the end of a block."""
        return connect(f"ws{self.url.removeprefix('http')}{path}", compression=None, **options)

    def request(self, method: str, path: str, *, token: str | None = None, **options: Any) -> httpx.Response:
        """Send a request; ``path`` is sent as it is."""
        url = httpx.URL(self.url).copy_with(raw_path=path.encode())
        headers = {**options.pop("headers", {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        return httpx.request(method, url, headers=headers, timeout=120, **options)


@contextmanager
def running_copy(store: Path, folder: Path, *options: object, tokens: bool = False) -> Iterator[Running]:
    """The service of a copy of ``store`` in ``folder``, which asks for ``TOKENS`` if ``tokens``."""
    copy = Path(shutil.copy(store, folder / "voices.store"))
    with running(copy, folder, *options, environment={"VOICECLAIM_TOKENS": TOKENS} if tokens else None) as started:
        yield started


@contextmanager
def running(
    store: Path,
    folder: Path,
    *options: object,
    environment: Mapping[str, str] | None = None,
    spool: Path | None = None,
) -> Iterator[Running]:
    """The service of ``store`` until the end of the block; uploads go to ``spool``, or to a folder in ``folder``."""
    spool, output = spool or folder / "spool", folder / "output.txt"
    output.parent.mkdir(exist_ok=True)
    spool.mkdir(exist_ok=True)
    variables = {**os.environ, **(environment or {})}
    words = [*COMMAND, "serve", str(store), "--port", "0", "--spool", str(spool), *map(str, options)]
    with output.open("wb") as file, subprocess.Popen(words, stdout=file, stderr=file, env=variables) as process:
        try:
            until = time.monotonic() + START_SECONDS
            while " at http" not in (text := output.read_text(encoding="utf-8")):
                assert process.poll() is None and time.monotonic() < until, text
                time.sleep(0.05)
            url = text.split(" at ")[-1].split()[0].rstrip("/")
            yield Running(url, process, store, output, spool)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(60)
                finally:
                    process.kill()  # one that hangs fails its test, and not the whole run


def evaluated(folder: Path, **scores: tuple[np.ndarray, np.ndarray]) -> Path:
    """An evaluation on disk, of the target and nontarget scores of each system."""
    rows = [
        ScoreRow(system, f"s{n % 3}", f"secret{n}.wav", float(score), target)
        for system, kinds in scores.items()
        for target, kind in zip((True, False), kinds, strict=True)
        for n, score in enumerate(kind)
    ]
    folder.mkdir(exist_ok=True)
    write_scores(folder / "scores.txt", rows)
    systems = {system: {"store_threshold": 0.25} for system in scores}
    (folder / "metrics.json").write_text(json.dumps({"default_system": next(iter(scores)), "systems": systems}))
    return folder


def samples_of(path: Path) -> tuple[np.ndarray, int]:
    """A whole file, mono, and its rate."""
    with open_audio(path) as audio:
        return np.concatenate(list(audio.blocks())), audio.rate


def pcm16(samples: np.ndarray) -> bytes:
    """Samples of a 16-bit file as they were in it."""
    return np.round(samples * 2**15).astype("<i2").tobytes()


def problem_of(answer: httpx.Response, status: int) -> str:
    """The detail of a problem, which must be one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    table = answer.json()
    assert table["status"] == status
    assert table["type"].startswith("urn:voiceclaim:")
    return table["detail"]


def receive(socket: ClientConnection) -> dict[str, Any]:
    """The next message."""
    return json.loads(socket.recv(30))


def until(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of that kind."""
    while (message := receive(socket))["type"] != kind:
        assert message["type"] != "problem", message
    return message


def send(socket: ClientConnection, **fields: object) -> None:
    """Send a message in JSON."""
    socket.send(json.dumps(fields))


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition to hold, and fail after so many seconds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def streamed(service: Running, claim: str, rate: int, data: bytes, form: str, seed: int, token: str | None = None):
    """Return the final state of a claim on a stream, in pieces of random lengths that cut samples in two."""
    chosen = np.random.default_rng(seed)
    with service.socket("/verify") as socket:
        send(socket, claim=claim, rate=rate, format=form, **({"token": token} if token else {}))
        until(socket, "ready")
        while data:
            size = int(chosen.choice((2, 159, 1600, 8192, 16_384)) + chosen.choice((0, 0, 1)))
            socket.send(data[:size])
            data = data[size:]
        send(socket, type="end")
        return until(socket, "final")


def files_of(recordings, voice: str, count: int = 6) -> list[tuple[str, bytes]]:
    """The first recordings of a voice, as they are sent to enroll it."""
    return [("files", utterance.path.read_bytes()) for utterance in recordings[voice][:count]]


def entries_in(log: Path) -> list[dict]:
    """The lines of an audit log."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def metrics_of(service: Running, token: str | None = None) -> str:
    """Metrics as Prometheus would read them."""
    return service.request("GET", "/metrics", token=token).text


def names_in(service: Running) -> list[str]:
    """Names of the enrolled speakers, in the service's order."""
    return [entry["name"] for entry in service.request("GET", "/speakers").json()["speakers"]]
