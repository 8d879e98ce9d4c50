"""Tools of the parts: processes of their own, memory, exponents, peak rates of the machine."""

from __future__ import annotations

import multiprocessing
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from claim_scoring import best_of
from threadpoolctl import threadpool_limits

Figures = dict[str, float | int | str]

FIRST_FITTED = 50  # speakers; with fewer the fixed cost of a call hides the growth
STATUS = Path("/proc/self/status")


def in_child(function: Callable[..., Figures], *arguments: Any) -> Figures:
    """Call in a new process, so that no part's memory or threads are another's. Exceptions come back."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as child:
        return child.submit(_on_one_thread, function, arguments).result()


def _on_one_thread(function: Callable[..., Figures], arguments: Sequence[Any]) -> Figures:
    with threadpool_limits(1):
        return function(*arguments)


def held_kib() -> float:
    """Return the memory that this process holds at present or, where the system does not tell, the most it has held."""
    return _status("VmRSS:")


def peak_gib() -> float:
    """Return the most memory that this process has held."""
    return _status("VmHWM:") / 2**20


def _status(name: str) -> float:
    # Not ru_maxrss if something else is available: on Linux a new process inherits its parent's.
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
        return float(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else float(peak)


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the power of ``sizes`` that ``seconds`` grow with, by least squares on logarithms.

    Over sizes from FIRST_FITTED on, or over all where fewer than two are.
    """
    size, spent = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(seconds, dtype=float))
    large = size >= np.log(FIRST_FITTED)
    if large.sum() < 2:
        large[:] = True
    return float(np.polyfit(size[large], spent[large], 1)[0])


def machine() -> Figures:
    """Return the processor, and the peak rates of one core: products, exponentials and copies."""
    peak = max(sgemm_gflops(size) for size in (1024, 2048))
    values = np.random.default_rng(0).uniform(-20.0, 0.0, 50_000).astype(np.float32)
    made = np.empty_like(values)
    source, target = np.ones(2**25), np.empty(2**25)

    copied = best_of(lambda: np.copyto(target, source), seconds=0.5)
    fresh = best_of(source.copy, seconds=0.5)
    return {
        "machine.cpu": cpu_model(),
        "machine.system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()},"
        f" numpy {np.__version__}",
        "machine.sgemm_gflops": peak,
        "machine.exp_float32_ns": 1e9 * best_of(lambda: np.exp(values, out=made), seconds=0.3) / len(values),
        "machine.copy_gib_per_second": source.nbytes / copied / 2**30,
        "machine.copy_to_new_memory_gib_per_second": source.nbytes / fresh / 2**30,
    }


def sgemm_gflops(size: int, *, calls: int = 7) -> float:
    """Return the best rate of a square float32 product, in 10^9 additions and multiplications a second."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    out = np.empty_like(left)
    return 2e-9 * size**3 / min(seconds_of(lambda: np.matmul(left, right, out=out)) for _ in range(calls))


def seconds_of(function: Callable[[], Any]) -> float:
    """Return the seconds that one call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def cpu_model() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
