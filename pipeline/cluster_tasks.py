"""What a worker of a cluster does: see that it is the client's like, and do one task on one thread.

Only for workers that trust each other: dask sends tasks and results as pickles.
"""

from __future__ import annotations

import copy
import hashlib
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline._version import __version__
from pipeline.errors import ClusterError
from pipeline.files import open_regular

# Those whose code makes the numbers; distributed carries them.
PACKAGES = (
    "numpy", "scipy", "scikit-learn", "numba", "llvmlite", "soxr", "soundfile", "librosa", "pydantic", "distributed",
)  # fmt: skip


@dataclass(frozen=True)
class Handed:
    """What all tasks of one kind share, sent once to each worker; ``token`` tells it from others."""

    token: str
    value: Any = field(compare=False)


@dataclass(frozen=True, eq=False)
class Parcel:
    """One task: ``function(common, *arguments)``, the ``files`` that it opens, and the ``facts`` of who wants it."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    files: tuple[Path, ...]
    facts: Mapping[str, str]


@cache
def facts() -> Mapping[str, str]:
    """What decides the last bits of an array here: the code, the libraries, the processor's instructions."""
    import llvmlite.binding as llvm
    import numpy as np
    import scipy.linalg  # noqa: F401  (loads its BLAS, which is then looked at and limited)
    import sklearn.cluster  # noqa: F401
    import soundfile
    from threadpoolctl import threadpool_info

    # Those of other packages that are loaded here too have no part in anything.
    used = [lib for lib in threadpool_info() if lib["user_api"] == "blas" and re.search("numpy|scipy", lib["filepath"])]
    blas = {f"{lib['internal_api']} {lib['version']} {lib.get('architecture')}" for lib in used}
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    return {
        "voiceclaim": __version__,
        "code": _digest(),
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **{name: _version_of(name) for name in PACKAGES},
        "libsndfile": str(soundfile.__libsndfile_version__),
        "processor": str(llvm.get_host_cpu_name()),
        "SIMD": " ".join(sorted([*simd.get("baseline", ()), *simd.get("found", ())])),
        "BLAS": ", ".join(sorted(blas)),
    }


def check_same(wanted: Mapping[str, str], found: Mapping[str, str], where: str) -> None:
    """Raise ClusterError for the first of the ``facts`` of a worker at ``where`` that is not as ``wanted``."""
    for name, value in wanted.items():
        if found.get(name) != value:
            raise ClusterError(
                f"worker {where}: {name} must be what it is here, {value!r}, got {found.get(name)!r}; arrays would"
                " differ in their last bits: install the same versions everywhere, on processors of one kind"
            )


def same(handed: Handed) -> Handed:
    """What is handed over; as a task of its own, it is made again where the worker that held it is lost."""
    return handed


def perform(parcel: Parcel, common: Handed) -> Any:
    """Do one task; raises ClusterError where this worker is not the client's like, or lacks a file that it has."""
    check_same(parcel.facts, facts(), _address())
    for path in parcel.files:
        _check_opens(path)
    _limit_threads()
    # Arrays that came over the network may be read-only and stand at odd addresses, for which numpy sums in other
    # blocks. Copies are as arrays are made here.
    return parcel.function(_own(common), *copy.deepcopy(parcel.arguments))


@lru_cache(maxsize=2)
def _own(common: Handed) -> Any:
    return copy.deepcopy(common.value)


@cache
def _limit_threads() -> None:
    """One thread a BLAS, for good: tasks run side by side, and the number of threads changes the last bits."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _check_opens(path: Path) -> None:
    try:
        open_regular(path).close()
    except OSError as error:
        raise ClusterError(
            f"{path}: worker {_address()} cannot open it ({error.strerror or error}), and the machine that asks can;"
            " workers read audio and the store themselves: share the folder with them, under the same path"
        ) from None


def _address() -> str:
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return "here"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _digest() -> str:
    """Of the package's source, so that two checkouts of one version are told apart."""
    root, found = Path(__file__).resolve().parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
