"""One recording of one speaker, or a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Utterance:
    """One recording of one speaker, or its part from ``start`` to ``end`` in seconds (None: no limit).

    ``channel`` is the one to read, from 1; None means the mean of all channels. Two channels of one file are two
    utterances.

    Examples
    --------
    >>> import pathlib, pipeline
    >>> pipeline.Utterance("anna", pathlib.Path("call.wav"), end=1.5).start is None
    True
    """

    speaker: str
    path: Path
    start: float | None = None
    end: float | None = None
    channel: int | None = None
