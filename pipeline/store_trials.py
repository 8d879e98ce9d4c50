"""Held-out trials as they stand in a file of a store, or of exported speakers."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import AnyArray
from pipeline.calibration import HeldOutTrials
from pipeline.errors import StoreFormatError

Array = NDArray[np.float64]
SCORE_PREFIX = "score."
BEGINNING_PREFIX = "beginning."


class TrialFile(Protocol):
    """Where held-out trials are read from: a file of the store, or of exported speakers."""

    @property
    def path(self) -> Path:
        """The file, for errors."""

    def names(self) -> list[str]:
        """Names of its arrays."""

    def read(self, name: str) -> AnyArray:
        """The array ``name``."""


def read_trials(file: TrialFile) -> HeldOutTrials:
    """The held-out trials whose arrays ``file`` holds; raises StoreFormatError."""
    names = [name for name in file.names() if name.startswith(SCORE_PREFIX)]
    return HeldOutTrials(
        file.read("claims"),
        file.read("speakers"),
        file.read("population"),
        {name.removeprefix(SCORE_PREFIX): file.read(name) for name in names},
        file.read("frames"),
        file.read("outsider"),
        _beginnings(file),
    )


def _beginnings(file: TrialFile) -> dict[int, dict[str, Array]]:
    """Scores of the beginnings of held-out trials, by frames and system."""
    found: dict[int, dict[str, Array]] = {}
    for name in file.names():
        if name.startswith(BEGINNING_PREFIX):
            frames, _, system = name.removeprefix(BEGINNING_PREFIX).partition(".")
            if not frames.isascii() or not frames.isdecimal() or len(frames) > 9 or int(frames) == 0:
                raise StoreFormatError(f"{file.path}: array {name!r}: a number of frames must stand in its name")
            found.setdefault(int(frames), {})[system] = file.read(name)
    return found
