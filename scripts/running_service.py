"""The service as a process of its own, for the scripts beside this file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

COMMAND = (sys.executable, "-c", "from pipeline.cli.main import main; main()")
_END_SECONDS = 60.0


@contextmanager
def running_service(
    store: Path, *options: str, tokens: str | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a service on a free port until the end of the block; yield its URL and its process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if tokens is not None:
        environment["VOICECLAIM_TOKENS"] = tokens
    words = [*COMMAND, "serve", str(store), "--port", "0", *options]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise AssertionError("stdout was opened as a pipe")
        timer = threading.Timer(_END_SECONDS, process.kill)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        try:
            if " at http" not in line:
                raise SystemExit("the service did not start; see its error output")
            yield line.rsplit(" ", 1)[-1].strip().rstrip("/"), process
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def resident_mib(pid: int) -> float:
    """Return the memory of a process in MiB."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20
